"""The shape of `show --json`: what people and outside tools rely on."""

from __future__ import annotations

from typing import Any

import pytest

from stepwell import FatalError, Retry, flow, gather, sleep, step, wait_for
from stepwell.core.view import view
from stepwell.testing import LocalRun, local_execution

calls: list[str] = []


@step(retry=Retry(max_attempts=5, base=0.2, jitter=0))
def shaky(fails: int) -> dict[str, int]:
    calls.append("shaky")
    if len(calls) <= fails:
        raise OSError("down")
    return {"n": fails}


@step
def ship(n: int) -> int:
    return n


@step
def fatal() -> None:
    raise FatalError("no such card")


@flow
async def order(fails: int) -> str:
    await shaky(fails)
    await gather(ship(1), _late(), ship(3))
    await wait_for("approval", timeout=60)
    return "done"


async def _late() -> int:
    await sleep(1)
    return await ship(2)


@flow
async def doomed() -> None:
    await gather(fatal(), shaky(99), wait_for("never"))


@pytest.fixture(autouse=True)
def _fresh() -> None:
    calls.clear()


def step_of(shown: dict[str, Any], path: str) -> dict[str, Any]:
    found: dict[str, Any] = next(s for s in shown["steps"] if s["path"] == path)
    return found


def test_an_execution_that_backs_off_shows_its_attempts_and_when_the_next_is_due() -> None:
    run = local_execution(order, {"fails": 2}, execution_id="order-7")
    run.advance(1)
    run.step_once()
    shown = run.show()
    begin = run.now_ms - 1000
    token = run.checkpoint.open["shaky"].token
    assert {key: shown[key] for key in ("id", "flow", "status", "input", "result", "rev", "error")} == {
        "id": "order-7",
        "flow": "order",
        "status": "waiting",
        "input": {"fails": 2},
        "result": None,
        "rev": 3,
        "error": None,
    }
    assert (shown["created_at"], shown["updated_at"], shown["started_at"]) == (begin, begin + 1000, begin)
    assert shown["open"] == {
        "shaky": {
            "kind": "step",
            "token": token,
            "attempt": 2,
            "due_at": begin + 1200,
            "name": "shaky",
            "status": "backoff",
            "declared_at": begin,
            "winding_up": "",
        }
    }
    assert shown["steps"] == [
        {
            "path": "shaky",
            "status": "backoff",
            "token": token,
            "key": f"order-7:{token}",
            "result": None,
            "attempts": [
                {
                    "n": 1,
                    "started_at": begin + 1000,
                    "ended_at": begin + 1000,
                    "error": {
                        "type": "OSError",
                        "message": "down",
                        "reason": "",
                        "where": "core/test_view.py:20 in shaky",
                    },
                    "due_at": begin + 1200,
                }
            ],
            "declared_at": begin,
            "started_at": begin + 1000,
            "finished_at": None,
            "interruptions": 0,
            "drains": 0,
        }
    ]
    assert "unreadable" not in shown


def test_a_completed_execution_shows_steps_in_the_order_of_declaration() -> None:
    run = LocalRun(order, {"fails": 1})
    run.signal("approval", {"by": "ann"})
    shown = run.run().show()
    paths = ["shaky", "gather.0/ship", "gather.2/ship", "gather.1/ship"]
    assert [s["path"] for s in shown["steps"]] == paths
    assert shown["result"] == "done"
    assert shown["open"] == {}
    tries = step_of(shown, "shaky")["attempts"]
    assert [(t["n"], t["error"] is None) for t in tries] == [(1, False), (2, True)]
    assert step_of(shown, "shaky")["result"] == {"n": 1}
    assert [(w["path"], w["kind"], w["status"]) for w in shown["waits"]] == [
        ("gather.1/sleep", "timer", "completed"),
        ("wait", "signal", "completed"),
    ]
    assert shown["waits"][1]["payload"] == {"by": "ann"}
    assert shown["ended_at"] == run.now_ms


def test_a_sequence_within_one_millisecond_keeps_its_order() -> None:
    @step
    def z() -> None: ...
    @step
    def a() -> None: ...

    async def branch() -> None:
        await z()
        await a()

    @flow
    async def quick() -> None:
        await z()
        await a()
        await gather(branch(), branch())
        await a()

    shown = LocalRun(quick).run().show()
    assert [s["path"] for s in shown["steps"]] == [
        "z", "a", "gather.0/z", "gather.0/a", "gather.1/z", "gather.1/a", "a#2",
    ]  # fmt: skip


def test_a_failed_execution_shows_what_failed_and_what_a_retry_brings_back() -> None:
    run = local_execution(doomed)
    run.finish("gather.1/shaky")
    run.finish("gather.0/fatal")
    shown = run.show()
    error = shown["error"]
    assert (shown["status"], error["type"], error["message"], error["attempts"]) == (
        "error", "FatalError", "no such card", 1,
    )  # fmt: skip
    failed = step_of(shown, "gather.0/fatal")
    assert error["failed_step"] == {"path": "gather.0/fatal", "token": failed["token"], "attempts": 1}
    assert {path: (left["status"], left["attempts"]) for path, left in error["open"].items()} == {
        "gather.0/fatal": ("failed", 1),
        "gather.1/shaky": ("backoff", 1),
        "gather.2/wait": ("waiting", 0),
    }
    assert shown["open"] == {}
    where = "core/test_view.py:31 in fatal"
    assert failed["error"] == {"type": "FatalError", "message": "no such card", "reason": "fatal", "where": where}
    assert error["detail"] == where
    assert step_of(shown, "gather.1/shaky")["status"] == "cancelled"


def test_after_a_retry_the_superseded_failure_stays_visible_and_the_step_is_open_again() -> None:
    run = local_execution(doomed)
    run.finish("gather.0/fatal")
    run.finish("gather.1/shaky")
    assert run.show()["status"] == "error"
    run.retry()
    shown = run.show()
    assert shown["error"] is None
    assert [failure["message"] for failure in shown["failures"]] == ["no such card"]
    assert step_of(shown, "gather.0/fatal")["status"] == "running"
    assert [t["n"] for t in step_of(shown, "gather.0/fatal")["attempts"]] == [1]
    assert shown["open"]["gather.0/fatal"]["attempt"] == 2


def test_a_parked_and_then_cancelled_execution_still_shows_its_steps() -> None:
    @flow
    async def other() -> None:
        await ship(1)

    run = local_execution(order, {"fails": 9})
    run.step_once()
    run.reload(flow=other)
    assert run.show()["status"] == "parked"
    assert run.show()["error"]["type"] == "code diverged"
    run.cancel()
    shown = run.show()
    assert shown["status"] == "cancelled"
    assert [(s["path"], s["status"], len(s["attempts"])) for s in shown["steps"]] == [("shaky", "cancelled", 1)]


@pytest.mark.parametrize(
    ("field", "raw"),
    [("r:shaky", b"{"), ("p:wait", b"[]"), ("meta", b"\xff"), ("input", b"{nope"), ("rev", b"x"), ("a:shaky:1", b"")],
)
def test_a_damaged_row_gives_what_can_be_read(field: str, raw: bytes) -> None:
    run = local_execution(order, {"fails": 1})
    while run.checkpoint.status != "waiting" or "wait" not in run.checkpoint.open:
        run.step_once()
    shown = view("local", {**run.row, field: raw})
    assert shown["unreadable"].startswith(f"the field {field} is malformed")
    assert shown["flow"] == "order"
    assert shown["status"] == "waiting"
    assert len(shown["steps"]) >= 3


def test_an_empty_row_is_unreadable_and_not_a_crash() -> None:
    shown = view("gone", {})
    assert shown["unreadable"] == "the field meta is missing"
    assert shown["steps"] == []


def test_signals_that_nothing_waits_for_yet_are_shown() -> None:
    run = local_execution(order, {"fails": 0})
    run.signal("approval", {"by": "ann"})
    run.signal("other")
    kept = run.show()["signals"]
    assert kept == [
        {"name": "approval", "at": run.now_ms, "payload": {"by": "ann"}},
        {"name": "other", "at": run.now_ms, "payload": None},
    ]
    run.row["s:9"] = b"{"
    assert run.show()["signals"] == kept
    assert "s:9" in run.show()["unreadable"]
