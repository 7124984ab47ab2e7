"""`stepwell tail`: what is asked of the client, and what is printed."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import msgspec
import pytest

from stepwell.cli import tailing
from stepwell.core import events
from stepwell.core.advice import NO_WORKER
from stepwell.core.errors import StoreError
from stepwell.core.eventlog import RawEvent
from stepwell.store.events import CUT, LOST, Gap, Seen

AT = 1_767_323_045_000
FAILED = events.AttemptFailed(
    *("e1", "checkout", "charge", "charge", 2, 5, "error", "HttpError", "answered 503", 812, AT + 812, "t0", "e1:t0"),
    asked=False,
)
DONE = events.StepCompleted("e2", "refund", "pay", "pay", 1, 12, AT)


def seen(event: events.Event | RawEvent) -> Seen:
    return Seen(7, f"{AT}-0", AT, event)


class FakeClient:
    """Has some events; remembers how it was asked."""

    def __init__(self, *told: Seen | Gap | StoreError | None, workers: bool = True) -> None:
        self.told = told
        self.asked: list[Any] = []
        self._workers = workers

    def events(self, execution_id: str | None, **how: Any) -> Iterator[Seen | Gap]:
        away = how.pop("away")
        assert (away is not None) == how["follow"]
        self.asked.append((execution_id, how))
        for each in self.told:
            if isinstance(each, StoreError | None):
                away(each)
            else:
                yield each

    def why_idle(self) -> str:
        return "" if self._workers else NO_WORKER

    def __enter__(self) -> FakeClient:
        return self

    def __exit__(self, *_: object) -> None: ...


@pytest.fixture
def run(run_of: Any) -> Any:
    """`run(client, *arguments)` gives the exit code, stdout and stderr."""
    return run_of(tailing, "tail")


def test_one_line_an_event_with_time_execution_path_and_what_happened(run: Any) -> None:
    code, out, err = run(FakeClient(seen(FAILED), seen(DONE)))
    assert (code, err) == (0, "")
    assert out.splitlines() == [
        "2026-01-02T03:04:05.000Z  e1  charge  attempt 2 of 5 failed, next in 0.812 s: HttpError: answered 503",
        "2026-01-02T03:04:05.000Z  e2  pay  step completed at attempt 1",
    ]


def test_a_refused_command_is_told_with_why(run: Any) -> None:
    refused = events.CommandDone("e1", "shop", "signal", False, "it has ended (completed)", AT, "c1")
    sentence = events.CommandDone("e1", "shop", "retry", False, "retry of e1 refused: it runs", AT, "c3")
    applied = events.CommandDone("e1", "shop", "cancel", True, "", AT, "c2")
    _, out, _ = run(FakeClient(seen(refused), seen(sentence), seen(applied)))
    assert [line.partition("  e1  -  ")[2] for line in out.splitlines()] == [
        "command refused: signal: it has ended (completed)",
        "command refused: retry: it runs",
        "command applied: cancel",
    ]


def test_json_is_one_object_a_line_with_all_that_is_known(run: Any) -> None:
    _, out, _ = run(FakeClient(seen(FAILED), seen(RawEvent("MoonRose", {"at": 3, "phase": "full"}))), "--json")
    first, second = map(json.loads, out.splitlines())
    assert (first["event"], first["kind"]) == ("AttemptFailed", "error")
    assert (first["at"], first["execution"], first["partition"], first["entry"]) == (AT, "e1", 7, f"{AT}-0")
    assert (first["due_at"], first["delay_ms"], first["key"]) == (AT + 812, 812, "e1:t0")
    assert (second["event"], second["at"], second["event.at"], second["phase"]) == ("MoonRose", AT, 3, "full")


@pytest.mark.parametrize(
    ("arguments", "asked"),
    [
        ([], (None, 0.0, True, False)),
        (["--no-follow"], (None, None, False, False)),
        (["A1"], ("A1", None, True, False)),
        (["A1", "--stay", "--since", "10m"], ("A1", "10m", True, True)),
        (["--since", "1.5h"], (None, "1.5h", True, False)),
        (["--since", "90"], (None, "90", True, False)),
        (["--since", "2026-01-02T03:04:05Z"], (None, "2026-01-02T03:04:05Z", True, False)),
    ],
)
def test_where_it_begins_and_when_it_ends(run: Any, arguments: list[str], asked: tuple[Any, ...]) -> None:
    client = FakeClient()
    run(client, *arguments)
    execution_id, since, follow, stay = asked
    assert client.asked == [(execution_id, {"since": since, "follow": follow, "stay": stay})]


def test_newlines_are_shown_as_the_log_shows_them(run: Any) -> None:
    torn = msgspec.structs.replace(FAILED, message="one\ntwo")
    assert run(FakeClient(seen(torn)))[1].endswith("HttpError: one\\ntwo\n")


def test_kinds_and_flows_choose(run: Any) -> None:
    client = FakeClient(seen(FAILED), seen(DONE))
    assert "step completed" not in run(client, "--kind", "attemptfailed")[1]
    assert "attempt 2" not in run(client, "--flow", "refund")[1]
    assert run(client, "--kind", "AttemptFailed", "--flow", "refund")[1] == ""


def test_an_unknown_kind_is_refused_with_the_nearest_one(run: Any) -> None:
    code, _, err = run(FakeClient(), "--kind", "AtemptFailed")
    assert code == 2
    assert "did you mean AttemptFailed?" in err


def test_what_is_missing_is_told(run: Any) -> None:
    gaps = [Gap(3, "1-0", f"{AT}-0", CUT), Gap(4, "1-0", f"{AT - 5}-0", CUT), Gap(5, "9-0", "1-0", LOST)]
    _, out, err = run(FakeClient(*gaps, seen(DONE)))
    assert "older events were cut off, up to 2026-01-02T03:04:05.000Z (2 partitions; each keeps 10,000 changes)" in err
    assert "Redis has lost events of partition 5" in err
    assert len(out.splitlines()) == 1
    _, out, _ = run(FakeClient(*gaps), "--json")
    assert [json.loads(line)["why"] for line in out.splitlines()] == ["cut", "cut", "lost"]


@pytest.mark.pain(45)
def test_nothing_steers_the_terminal_and_nothing_secret_is_shown(run: Any) -> None:
    odd = RawEvent("Odd\x1b[2J", {"execution_id": "e\x9b1", "url": "redis://:pw1@h", "deep": [{"u": "a://b:pw2@c"}]})
    for arguments in ([], ["--json"]):
        _, out, _ = run(FakeClient(seen(odd)), *arguments)
        assert not {"\x1b", "\x9b"} & set(out.replace("\\u009b", "")) or arguments
        assert "pw1" not in out
        assert "pw2" not in out
        assert len(out.splitlines()) == 1


def test_who_follows_without_a_worker_is_told_so(run: Any) -> None:
    assert "no worker is running" in run(FakeClient(workers=False), "A1")[2]
    assert run(FakeClient(workers=False), "--no-follow")[2] == ""


def test_an_outage_is_told_once_and_so_is_its_end(run: Any) -> None:
    away = StoreError("Redis at redis://:hush@db:6379 refused the connection: start it, or correct the address")
    code, out, err = run(FakeClient(seen(FAILED), away, None, seen(DONE)))
    assert (code, len(out.splitlines())) == (0, 2)
    assert err.splitlines() == [
        "stepwell: Redis at redis://:***@db:6379 refused the connection: start it, or correct the address;"
        " trying again until it answers",
        "stepwell: the server answers again; what it has recorded meanwhile follows",
    ]
