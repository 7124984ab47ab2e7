"""The receiver on a real socket: its answers, its resets after recording, and what it holds back."""

from __future__ import annotations

import http.client
import json
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from stepwell.demo.habits import Habit, Habits
from stepwell.demo.ledger import Ledger, read_effects, read_requests
from stepwell.demo.receiver import Receiver

pytestmark = pytest.mark.threads


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "ledger.sqlite"


@pytest.fixture
def receiver(path: Path) -> Iterator[Receiver]:
    ledger = Ledger(path, lambda: 0.0)
    with Receiver(ledger, Habits(1, [], []), pause=0) as serving:
        thread = threading.Thread(target=serving.serve_forever, args=(0.01,))
        thread.start()
        yield serving
        serving.gate.open()
        serving.shutdown()
        thread.join()
    ledger.close()


def post(receiver: Receiver, path: str, key: str = "k", attempt: int = 1) -> tuple[int, dict[str, object], str]:
    """Status, content and Retry-After of the answer."""
    connection = http.client.HTTPConnection(*receiver.server_address[:2], timeout=50)
    try:
        body = json.dumps({"order": "a", "step": "charge"})
        connection.request("POST", path, body, {"Idempotency-Key": key, "X-Attempt": str(attempt)})
        answer = connection.getresponse()
        return answer.status, json.loads(answer.read()), answer.headers.get("Retry-After", "")
    finally:
        connection.close()


def test_the_same_key_gets_the_same_answer(receiver: Receiver, path: Path) -> None:
    first = post(receiver, "/charge")
    assert first[0] == 200
    assert post(receiver, "/charge", attempt=2) == first
    assert len(read_effects(path)) == 1
    assert [request.attempt for request in read_requests(path)] == [1, 2]


def test_a_reset_comes_after_the_effect_and_without_an_answer(receiver: Receiver, path: Path) -> None:
    receiver.habits.courses["a", "charge"] = (Habit.RESET,)
    with pytest.raises(ConnectionResetError):
        post(receiver, "/charge")
    [effect] = read_effects(path)
    assert [request.reset_after_recording for request in read_requests(path)] == [True]
    assert post(receiver, "/charge")[1] == {"receipt": effect.receipt}
    assert len(read_effects(path)) == 1


def test_a_failure_records_nothing_and_may_say_when_to_come_again(receiver: Receiver, path: Path) -> None:
    receiver.habits.courses["a", "charge"] = (Habit.UNAVAILABLE, Habit.BUSY, Habit.TOO_MANY)
    answers = [post(receiver, "/charge") for _ in range(3)]
    assert [(status, after) for status, _, after in answers] == [(503, ""), (503, "1"), (429, "1")]
    assert read_effects(path) == []
    assert [request.asked for request in read_requests(path)] == [0.0, 1.0, 1.0]


def test_what_is_held_is_counted_and_let_go(receiver: Receiver) -> None:
    post(receiver, "/control/hold/0")
    with ThreadPoolExecutor(3) as pool:
        asked = [pool.submit(post, receiver, "/charge", f"k{number}") for number in range(3)]
        while post(receiver, "/control/held")[1] != {"held": 3}:
            assert not any(each.done() for each in asked)
        post(receiver, "/control/release")
        assert [each.result(50)[0] for each in asked] == [200, 200, 200]
    assert post(receiver, "/control/held")[1] == {"held": 0}


def test_requests_are_held_from_so_many_effects_on_until_all_are_let_go(receiver: Receiver) -> None:
    post(receiver, "/control/hold/2")
    for _ in range(3):  # of one effect
        assert post(receiver, "/charge", "k1")[0] == 200
    with ThreadPoolExecutor(1) as pool:
        second = pool.submit(post, receiver, "/charge", "k2")
        while post(receiver, "/control/held")[1] != {"held": 1}:
            assert not second.done()
        post(receiver, "/control/hold/3")
        assert second.result(50)[0] == 200
    post(receiver, "/control/release")
    assert post(receiver, "/charge", "k3")[0] == 200, "nobody asks for more"


def test_a_body_that_is_no_order_is_refused(receiver: Receiver, path: Path) -> None:
    connection = http.client.HTTPConnection(*receiver.server_address[:2], timeout=50)
    connection.request("POST", "/charge", "{}")
    assert connection.getresponse().status == 400
    connection.close()
    assert read_requests(path) == []
