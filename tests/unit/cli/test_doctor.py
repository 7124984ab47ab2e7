"""`stepwell doctor`: what is printed, as text and as JSON, and the exit code."""

from __future__ import annotations

import contextlib
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from stepwell.cli import main
from stepwell.client import address
from stepwell.store import connect, examination
from stepwell.store.check import ServerFacts
from stepwell.store.durability import Durability
from stepwell.store.guarantees import Facts, NamespaceFacts, WorkerFacts

SERVER = ServerFacts("redis://db", "redis", (7, 0, 15), maxmemory=0, maxmemory_policy="noeviction", aof_enabled=True)
WORKERS = (WorkerFacts("w/0", "0.1"),)


@pytest.fixture
def run(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Any:
    """`run(facts, *arguments)` gives the exit code, stdout, and what was asked for."""

    def running(facts: Facts, *arguments: str) -> tuple[int, str, dict[str, Any]]:
        asked: dict[str, Any] = {}

        def examine(_client: object, namespace: str, **options: Any) -> Facts:
            asked.update(options, namespace=namespace)
            return facts

        @contextlib.contextmanager
        def nowhere(url: str, **_: Any) -> Iterator[str]:
            yield url

        monkeypatch.setattr(examination, "examine", examine)
        monkeypatch.setattr(connect, "connect", nowhere)
        code = main(["doctor", "--redis", "redis://db", *arguments])
        return code, capsys.readouterr().out, asked

    return running


def test_where_all_promises_can_be_kept_the_code_is_0(run: Any) -> None:
    code, out, asked = run(Facts(SERVER, workers=WORKERS, version="0.1", namespace=NamespaceFacts("stepwell", 1, 64)))
    assert code == 0
    assert out.splitlines()[-1] == "the promises can be kept"
    assert "Redis 7.0.15 at redis://db" in out
    assert "power loss" in out
    assert (asked["namespace"], asked["partitions"], asked["durability"]) == ("stepwell", None, None)


def test_warnings_are_shown_with_what_to_do_and_change_no_code(run: Any) -> None:
    code, out, _ = run(Facts(SERVER, namespace=NamespaceFacts("stepwell", 1, 64)))
    assert code == 0
    assert "to do: start one: stepwell run FILE" in out
    assert out.splitlines()[-1] == "the promises can be kept; 1 warning"


def test_a_promise_that_can_not_be_kept_makes_the_code_1(run: Any) -> None:
    broken = Facts(ServerFacts("redis://db", version=(5, 0)), durability=Durability("aof"), workers=WORKERS)
    code, out, asked = run(broken, "--durability", "aof", "--partitions", "8", "--namespace", "shop")
    assert code == 1
    assert out.splitlines()[-1].endswith("can't be kept")
    assert (asked["namespace"], asked["partitions"], str(asked["durability"])) == ("shop", 8, "aof")


def test_as_json_it_can_be_read_by_a_program(run: Any) -> None:
    code, out, _ = run(Facts(SERVER, workers=WORKERS, version="0.1", clock_ms={"db": 1.26}), "--json")
    told = json.loads(out)
    assert (code, told["ok"], told["guarantee"]["kept"]) == (0, True, "yes")
    assert told["workers"] == [{"id": "w/0", "version": "0.1", "durability": None}]
    assert told["clock_ms"] == {"db": 1.3}
    assert {"level": "ok", "topic": "server", "text": "Redis 7.0.15 at redis://db, a single server", "to_do": None} in (
        told["findings"]
    )
    code, out, _ = run(Facts(ServerFacts("redis://db", version=(5, 0))), "--json")
    assert (code, json.loads(out)["ok"]) == (1, False)


def test_what_is_no_durability_is_refused(run: Any) -> None:
    assert run(Facts(SERVER), "--durability", "paper")[0] == 2


def test_an_embedded_server_is_left_again(run: Any, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    left: list[bool] = []
    monkeypatch.setattr(address.Place, "leave", lambda _place: left.append(True))
    run(Facts(SERVER))
    assert left == [True]
