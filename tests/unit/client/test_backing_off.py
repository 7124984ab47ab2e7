"""Listing what backs off: by when it is due, with the step, its attempt and its error, page by page."""

from __future__ import annotations

from typing import Any

import pytest
from unit.client.conftest import World

from stepwell.core.errors import InvalidName, UsageError
from stepwell.core.records import Attempt, Failure, OpenOp, encode
from stepwell.store import backoffs

SECRET = "redis://:hunter2@db:6379"


def back_off(
    world: World,
    execution_id: str,
    flow: str = "checkout",
    status: str = "waiting",
    attributes: dict[str, Any] | None = None,
    **steps: tuple[int, str],
) -> None:
    """An execution of which these steps back off, each until a time and for a type of error, as scripts have it."""
    world.run(world.talk.start(flow, {"n": 1}, execution_id, True, attributes))
    fields: dict[str, bytes] = {"p:sleep": encode(OpenOp("timer", "waiting", "t", 1, due_at=1))}
    for number, (step, (due, error)) in enumerate(steps.items()):
        path = f"gather.{number}/{step}"
        fields[f"p:{path}"] = encode(OpenOp("step", "backoff", "t", 1, step, attempt=3, due_at=due))
        fields[f"a:{path}:2"] = encode(Attempt(2, 1, Failure(error, f"503 of {SECRET}"), 1, due, 5))
    world.put(execution_id, told=False, status=status, **fields)
    put_on_list(world, execution_id, flow, min(due for due, _ in steps.values()))


def put_on_list(world: World, execution_id: str, flow: str, due: int) -> None:
    part = world.keys.parts[world.keys.partition_of(execution_id)]
    world.redis.sadd(part.backoff, flow)
    world.redis.zadd(part.backoff_of + flow, {execution_id: due})


def told(world: World, limit: int = 100, **more: Any) -> Any:
    status, flow = more.pop("status", None), more.pop("flow", None)
    return world.run(world.talk.list(status, flow, limit, backing_off=True, **more))


def listed(world: World, **more: Any) -> list[str]:
    return [line["id"] for line in told(world, **more)]


@pytest.mark.pain(42)
def test_it_is_told_which_step_waits_why_and_until_when(world: World) -> None:
    back_off(world, "e1", attributes={"customer": "c7"}, ship=(9_000, "KeyError"), charge=(5_000, "HttpError"))
    (line,) = told(world)
    assert line["backoff"] == {
        "path": "gather.1/charge",
        "step": "charge",
        "attempt": 3,
        "max_attempts": 5,
        "due_at": 5_000,
        "error_type": "HttpError",
        "error": "503 of redis://:***@db:6379",
        "others": 1,
    }
    assert (line["status"], line["flow"], line["attributes"], line["error"]) == (
        "waiting",
        "checkout",
        {"customer": "c7"},
        None,
    )


@pytest.mark.pain(42)
@pytest.mark.parametrize("limit", [1, 3, 7, 100])
def test_pages_go_on_by_when_it_is_due_over_flows_and_partitions(world: World, limit: int) -> None:
    for n in range(20):
        back_off(world, f"e{n:02}", ("checkout", "ship")[n % 2], charge=(1_000 + n // 4, "E"))
    found: list[str] = []
    cursor = None
    while True:
        page = told(world, limit, cursor=cursor)
        found += [line["id"] for line in page]
        cursor = page.cursor
        if cursor is None:
            break
    assert found == [f"e{n:02}" for n in range(20)]
    assert listed(world, flow="ship") == [f"e{n:02}" for n in range(1, 20, 2)]


def test_what_else_is_wanted_is_told_by_the_rows(world: World) -> None:
    back_off(world, "a", attributes={"customer": "c7"}, charge=(1, "HttpError"), ship=(2, "KeyError"))
    back_off(world, "b", status="running", charge=(3, "KeyError"))
    back_off(world, "c", flow="ship", attributes={"customer": "c7"}, send=(4, "HttpError"))
    assert listed(world) == ["a", "b", "c"]
    assert listed(world, attributes={"customer": "c7"}) == ["a", "c"]
    assert listed(world, status="running") == ["b"]
    assert listed(world, error="HttpError") == ["a", "c"]
    assert listed(world, step="send") == ["c"]
    (ships,) = told(world, step="ship")
    assert (ships["backoff"]["path"], ships["backoff"]["due_at"]) == ("gather.1/ship", 2), "the one that was asked for"
    first, second = told(world, error="KeyError")
    assert (first["backoff"]["step"], second["id"]) == ("ship", "b"), "that error is of its other step"
    assert listed(world, step="charge", error="KeyError") == ["b"]


def test_times_are_those_of_the_start(world: World) -> None:
    back_off(world, "e1", charge=(10**13, "E"))
    (line,) = told(world)
    assert listed(world, since=str(line["created_at"]), until=str(line["created_at"])) == ["e1"]
    assert listed(world, since=str(line["created_at"] + 1)) == []
    assert listed(world, until=str(line["created_at"] - 1)) == []


@pytest.mark.pain(42)
def test_what_moved_on_since_the_list_was_read_is_left_out(world: World) -> None:
    for name in ("e1", "e2", "e3", "e4", "e5"):
        back_off(world, name, charge=(5, "E"))
    world.put("e1", status="completed")
    world.redis.delete(world.keys.row("e2"))
    world.redis.hset(world.keys.row("e3"), "p:gather.0/charge", encode(OpenOp("step", "running", "t", 1, "charge")))
    world.put("e4", status="parked")
    page = told(world)
    assert ([line["id"] for line in page], page.looked, page.cursor) == (["e5"], 5, None)


@pytest.mark.parametrize("raw", [None, "rubbish", "{}", "[1]"])
def test_an_attempt_or_an_operation_that_cant_be_read_is_not_made_up(world: World, raw: str | None) -> None:
    back_off(world, "e1", charge=(5, "E"))
    back_off(world, "e2", charge=(6, "E"))
    world.redis.hset(world.keys.row("e1"), "p:odd", "rubbish")
    attempt = "a:gather.0/charge:2"
    if raw is None:
        world.redis.hdel(world.keys.row("e1"), attempt)
    else:
        world.redis.hset(world.keys.row("e1"), attempt, raw)
    first, _ = told(world)
    assert {name: first["backoff"][name] for name in ("attempt", "max_attempts", "error_type", "error")} == {
        "attempt": 3,
        "max_attempts": None,
        "error_type": None,
        "error": None,
    }
    assert listed(world, error="E") == ["e2"]


def test_a_very_long_row_is_read_to_its_end(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(backoffs, "OPEN_SCAN", 50)
    back_off(world, "e1", charge=(5, "E"), ship=(4, "E"))
    world.put("e1", **{f"r:step#{n}": b"{}" for n in range(400)})
    (line,) = told(world)
    assert (line["backoff"]["step"], line["backoff"]["others"]) == ("ship", 1)
    assert world.sent.count("HSCAN") > 1


def test_rows_of_one_page_only_are_read(world: World) -> None:
    for n in range(30):
        back_off(world, f"e{n}", charge=(n, "E"))
    world.sent.clear()
    page = told(world, 5)
    assert (len(page), page.looked) == (5, 5)
    assert (world.sent.count("HMGET"), world.sent.count("HSCAN"), world.sent.count("HGET")) == (5, 5, 5)


def test_a_cursor_of_another_listing_is_refused(world: World) -> None:
    for n in range(3):
        back_off(world, f"e{n}", charge=(n, "E"))
    cursor = told(world, 1).cursor
    for other in ({"step": "charge"}, {"flow": "checkout"}, {"error": "E"}, {"since": "2h"}):
        with pytest.raises(UsageError, match="another listing"):
            told(world, 1, cursor=cursor, **other)
    with pytest.raises(UsageError, match="another listing"):
        world.run(world.talk.list(None, None, 1, cursor=cursor))
    with pytest.raises(UsageError, match="another listing"):
        told(world, 1, cursor=world.run(world.talk.list(None, None, 1)).cursor)


@pytest.mark.parametrize("status", ["queued", "parked", "completed", "error", "cancelled"])
def test_a_status_in_which_nothing_backs_off_is_refused(world: World, status: str) -> None:
    with pytest.raises(UsageError, match=f"nothing that is {status} backs off, only what is running or waiting"):
        told(world, status=status)


def test_a_step_alone_and_what_is_no_step_are_refused(world: World) -> None:
    with pytest.raises(UsageError, match="a step chooses among those that back off"):
        world.run(world.talk.list(None, None, 1, step="charge"))
    with pytest.raises(InvalidName, match="a step name"):
        told(world, step="gather.1/charge")


def test_before_there_is_a_namespace_nothing_backs_off(world: World) -> None:
    assert list(told(world)) == []
    assert not world.redis.keys()


def test_it_goes_on_after_a_reply_that_was_lost(world: World) -> None:
    for n in range(3):
        back_off(world, f"e{n}", charge=(n, "E"))
    world.lose_reply_of("SMEMBERS", "ZRANGEBYSCORE", "HSCAN", "HGET")
    assert listed(world) == ["e0", "e1", "e2"]
