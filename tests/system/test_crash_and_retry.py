"""Crashes and failures: attempts go on counting, delays are kept, and every attempt carries the same key."""

from __future__ import annotations

import json
import threading
from collections import Counter
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from itertools import pairwise

import pytest
from system.support.stage import HANG_SECONDS, Stage

from stepwell import ExecutionFailed

FLOORS = [0.2, 0.4, 0.8, 1.6]
HOUR_MS = 3_600_000


class Receiver(ThreadingHTTPServer):
    """Honours `Idempotency-Key`: a key that it knows has no second effect."""

    daemon_threads = True

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), Handler)
        self.url = f"http://127.0.0.1:{self.server_address[1]}/pay"
        self.requests: list[str] = []  # the key of each
        self.effects: dict[str, str] = {}  # by key, the order that the body names
        self.lock = threading.Lock()


class Handler(BaseHTTPRequestHandler):
    server: Receiver

    def do_POST(self) -> None:
        body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        key = self.headers["Idempotency-Key"]
        with self.server.lock:
            self.server.requests.append(key)
            self.server.effects.setdefault(key, body["order"])
        self.send_response(200)
        self.send_header("Content-Length", "2")
        self.end_headers()
        self.wfile.write(b"{}")

    def log_message(self, format: str, *args: object) -> None:
        """Nobody reads it."""


@pytest.fixture
def receiver() -> Iterator[Receiver]:
    server = Receiver()
    thread = threading.Thread(target=server.serve_forever, args=(0.05,), daemon=True)
    thread.start()
    yield server
    server.shutdown()
    thread.join()
    server.server_close()


@pytest.mark.pain(21)
def test_a_retry_after_exhaustion_and_a_crash_carries_the_same_key(stage: Stage, receiver: Receiver) -> None:
    worker = stage.worker().ready()
    with stage.client() as client:
        client.start("payment", {"url": receiver.url, "gate": "repaired"}, "order-7")
        with pytest.raises(ExecutionFailed, match="the answer was lost"):
            client.result("order-7", timeout=HANG_SECONDS)
        failed = client.describe("order-7")
        worker.kill()
        stage.open("repaired")
        stage.worker().ready()
        retried = stage.command("retry", "order-7", *stage.where)
        assert retried.returncode == 0, retried.stderr
        stage.eventually(lambda: client.describe("order-7")["status"] != "error", "it is brought back")
        assert client.result("order-7", timeout=HANG_SECONDS) == "paid"
        seen = client.describe("order-7")

    [step] = seen["steps"]
    assert [attempt["n"] for attempt in step["attempts"]] == [1, 2, 3, 4]
    assert failed["error"]["failed_step"] == {"path": "paid", "token": step["token"], "attempts": 3}
    assert stage.journal.attempts("order-7", "paid") == [1, 2, 3, 4]
    assert receiver.requests == [step["key"]] * 4
    assert Counter(receiver.effects.values()) == {"order-7": 1}


@pytest.mark.pain(20, 23, 27)
@pytest.mark.parametrize(("flow", "before"), [("failing", []), ("failing_later", ["quick"])])
def test_a_step_that_always_fails_is_tried_with_growing_delays_and_then_named(
    stage: Stage, flow: str, before: list[str]
) -> None:
    worker = stage.worker().ready()
    started = stage.command("start", flow, "--id", "hopeless-1", "--wait", *stage.where)
    assert started.returncode == 1
    assert "Traceback" not in started.stderr

    runs = stage.journal.runs("hopeless-1", "hopeless")
    gaps = [after.at - earlier.at for earlier, after in pairwise(runs)]
    assert [run.attempt for run in runs] == [1, 2, 3, 4, 5]
    assert all(gap >= floor for gap, floor in zip(gaps, FLOORS, strict=True)), gaps
    assert len({run.key for run in runs}) == 1

    seen = json.loads(stage.command("show", "hopeless-1", "--json", *stage.where).stdout)
    step = seen["steps"][-1]
    error = seen["error"]
    assert [each["path"] for each in seen["steps"]] == [*before, "hopeless"]
    assert seen["status"] == "error"
    assert seen["open"] == {}
    assert set(error["open"]) == {"hopeless"}  # what a retry brings back
    assert (error["type"], error["attempts"]) == ("ValueError", 5)
    assert error["message"] == "always"
    assert error["failed_step"] == {"path": "hopeless", "token": step["token"], "attempts": 5}
    assert step["key"] == runs[0].key
    assert [stage.journal.attempts("hopeless-1", path) for path in before] == [[1]] * len(before)
    delays = [attempt["due_at"] - attempt["ended_at"] for attempt in step["attempts"][:-1]]
    assert delays == sorted(delays)
    # Of a delay the row tells how long it is; that it has passed tells the clock of bodies, which nobody sets.
    assert all(gap * 1000 >= delay for gap, delay in zip(gaps, delays, strict=True)), (gaps, delays)
    for earlier, after in pairwise(step["attempts"]):
        where = earlier["error"].pop("where")
        assert earlier["error"] == {"type": "ValueError", "message": "always", "reason": ""}
        assert where.endswith(" in hopeless")
        assert after["started_at"] >= earlier["ended_at"]
    assert step["attempts"][-1]["due_at"] is None
    worker.counts("stepwell_step_failures_total", 1, reason="budget")


@pytest.mark.pain(25)
def test_a_crash_does_not_give_a_new_budget(stage: Stage) -> None:
    worker = stage.worker().ready()
    with stage.client() as client:
        client.start("persistent", {"gate": "go"}, "p1")
        stage.ran("p1", "third_time_held", times=3)
        worker.kill()
        [step] = client.describe("p1")["steps"]
        assert [attempt["n"] for attempt in step["attempts"]] == [1, 2]
        stage.open("go")
        stage.worker().ready()
        assert client.result("p1", timeout=HANG_SECONDS) == 5
        [step] = client.describe("p1")["steps"]
    assert [attempt["n"] for attempt in step["attempts"]] == [1, 2, 3, 4, 5]
    # The third was cut short: it ran again under its number, and counts as an interruption.
    assert stage.journal.attempts("p1", "third_time_held") == [1, 2, 3, 3, 4, 5]
    assert step["interruptions"] == 1
    assert len({run.key for run in stage.journal.runs("p1")}) == 1


@pytest.mark.pain(48)
def test_a_restart_on_the_same_host_does_not_wait_for_the_old_lease(stage: Stage) -> None:
    first = stage.worker().ready()
    with stage.client() as client:
        client.start("holding", {"gate": "go"}, "h1")
        stage.ran("h1", "held")
        with stage.server() as server:

            def leases() -> dict[bytes, bytes]:
                return {key: value for key in server.scan_iter("*:lease") if (value := server.get(key))}

            held = stage.eventually(lambda: len(found := leases()) == 64 and found, "it holds all partitions")
            first.kill()
            for lease, holder in held.items():
                server.set(lease, holder, px=HOUR_MS)  # so that nobody could wait for its end
        stage.worker()
        stage.ran("h1", "held", times=2)
        stage.open("go")
        result = client.result("h1", timeout=HANG_SECONDS)
    assert result[1] == "after!"


def test_steps_of_a_killed_worker_run_again_under_their_numbers_and_all_end(stage: Stage) -> None:
    worker = stage.worker().ready()
    with stage.client() as client:
        ids = [f"many-{number}" for number in range(30)]
        for each in ids:
            client.start("holding", {"gate": "go"}, each)
        for each in ids:
            stage.ran(each, "held")
        worker.kill()
        stage.open("go")
        second = stage.worker().ready()
        assert [client.result(each, timeout=HANG_SECONDS) for each in ids] == [[second.shard, "after!"]] * len(ids)
    for each in ids:
        assert stage.journal.attempts(each, "held") == [1, 1]
        assert stage.journal.attempts(each, "quick") == [1]
        assert len({run.key for run in stage.journal.runs(each, "held")}) == 1
