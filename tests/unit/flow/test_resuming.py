"""Leaving memory and coming back: crashes, long waits, other code."""

from __future__ import annotations

import dataclasses
import gc
from collections import Counter
from collections.abc import Callable
from typing import Any

import pytest
from msgspec.structs import replace

from stepwell import FatalError, Retry, StepFailed, current_step, flow, gather, sleep, step, wait_for
from stepwell.core import events
from stepwell.core.effects import ArmTimer
from stepwell.core.inputs import Resumed, TimerFired
from stepwell.core.rules.steps import INTERRUPTIONS_MAX, remaining_ms, resumed
from stepwell.flow.definitions import FlowLike
from stepwell.metrics.telling import FIELDS
from stepwell.testing import LocalRun, local_execution

calls: Counter[str] = Counter()
seen: list[Any] = []
down: set[str] = set()


@pytest.fixture(autouse=True)
def _fresh() -> None:
    calls.clear()
    seen.clear()
    down.clear()


@step(retry=Retry(max_attempts=5, base=10, factor=1, jitter=0))
def work(name: str = "work") -> str:
    calls[name] += 1
    seen.append(current_step().attempt)
    if name in down:
        raise OSError("down")
    return name


@step
def fatal(name: str) -> str:
    calls[name] += 1
    raise FatalError(name)


@flow
async def simple() -> str:
    return await work()


# Interruptions.


def test_an_attempt_cut_short_keeps_its_number_and_is_not_billed() -> None:
    down.add("work")
    run = local_execution(simple)
    run.step_once()
    run.step_once()
    for _ in range(3):
        run.execute("work")
        run.reload()
    run.run()
    assert seen == [1, 2, 2, 2, 2, 3, 4, 5]
    shown = run.show()
    assert shown["error"]["attempts"] == 5
    assert shown["steps"][0]["interruptions"] == 3
    assert [e.interruptions for e in run.events if isinstance(e, events.StepInterrupted)] == [1, 2, 3]


def test_the_interruption_is_recorded_before_the_attempt_runs_again() -> None:
    run = local_execution(simple)
    run.reload()
    assert b'"interruptions":1' in (run.commits[-1]["p:work"] or b"")


def test_a_clean_resume_is_no_interruption() -> None:
    run = local_execution(simple)
    for _ in range(30):
        run.reload(clean=True)
    assert run.checkpoint.open["work"].interruptions == 0
    assert len(run.commits) == 1, "nothing changed, nothing was written"
    assert run.run().result() == "work"


def test_a_step_that_is_cut_short_for_ever_ends_by_its_own_limit() -> None:
    run = local_execution(simple)
    for _ in range(INTERRUPTIONS_MAX):
        run.execute("work")
        run.reload()
    assert run.checkpoint.status == "running"
    run.execute("work")
    run.reload()
    error = run.show()["error"]
    assert (error["type"], error["failed_step"]["path"]) == ("Interrupted", "work")
    assert "does this step kill its process?" in error["message"]
    assert seen == [1] * (INTERRUPTIONS_MAX + 1)
    run.retry()
    assert run.run().result() == "work"
    assert seen[-1] == 2


def test_a_crash_in_a_backoff_keeps_attempts_and_due_time() -> None:
    down.add("work")
    run = local_execution(simple)
    run.step_once()
    due = run.timers["work"]
    run.advance(4)
    run.reload()
    assert run.timers["work"] == due
    resumed = [e for e in run.events if isinstance(e, events.BackoffResumed)]
    assert [e.remaining_ms for e in resumed] == [6000]
    run.run()
    assert seen == [1, 2, 3, 4, 5]


@pytest.mark.parametrize(
    ("step_seconds", "remaining"),
    [(0, 10_000), (4, 6_000), (10, 0), (3600, 0), (-3600, 10_000), (-0.001, 10_000)],
)
def test_a_stepped_clock_never_lengthens_a_recorded_delay(step_seconds: float, remaining: int) -> None:
    down.add("work")
    run = local_execution(simple)
    run.step_once()
    run.advance(step_seconds)
    assert remaining_ms(run.checkpoint.open["work"], run.now_ms) == remaining
    run.reload()
    assert run.timers["work"] == run.now_ms + remaining


@pytest.mark.pain(39)
@pytest.mark.parametrize(
    ("passed_s", "moved_ms", "remaining"),
    [
        (4, 0, 6000),
        (4, 3000, 9000),
        (4, -3000, 3000),
        (3604, 3_600_000, 6000),
        (-3596, -3_600_000, 6000),
        (0, 99_000, 10_000),
    ],
)
def test_what_a_clock_was_moved_while_an_execution_was_out_of_memory_is_no_time_that_passed(
    passed_s: float, moved_ms: int, remaining: int
) -> None:
    down.add("work")
    run = local_execution(simple)
    run.step_once()
    now = run.now_ms + int(passed_s * 1000)
    cp, effects = resumed(run.checkpoint, Resumed(now, clean=True, moved={"work": moved_ms}))
    assert [effect.delay_ms for effect in effects if isinstance(effect, ArmTimer)] == [remaining]
    op = cp.open["work"]
    assert op.due_at == now + remaining
    if moved_ms:
        # As if it were recorded now: what was before that counts no more when it is loaded the next time.
        assert op.delay_ms == remaining


def test_a_sleep_without_a_recorded_delay_still_ends_when_it_is_due() -> None:
    op = replace(local_execution(simple).checkpoint.open["work"], due_at=500, delay_ms=None)
    assert remaining_ms(op, 100) == 400


def test_retry_now_ends_a_backoff_and_the_old_timer_does_nothing() -> None:
    down.add("work")
    run = local_execution(simple)
    run.step_once()
    token = run.checkpoint.open["work"].token
    run.retry()
    assert run.running == {"work": 2}
    assert run.timers == {}
    assert run.checkpoint.open["work"].token == token
    row = dict(run.row)
    run.feed(TimerFired(run.now_ms + 10_000, "work"))
    assert run.row == row
    assert [e.why for e in run.events if isinstance(e, events.BackoffLeft)] == ["manual"]


# Other code.


@step
def a() -> str:
    calls["a"] += 1
    return "a"


@step
def b() -> str:
    calls["b"] += 1
    return "b"


@step
def renamed() -> str:
    return "renamed"


@flow
async def original() -> list[Any]:
    first = await a()
    await sleep(60)
    return [first, await b()]


@flow
async def with_a_renamed_step() -> list[Any]:
    first = await renamed()
    await sleep(60)
    return [first, await b()]


@flow
async def with_a_removed_step() -> list[Any]:
    await sleep(60)
    return [await b()]


@flow
async def with_an_inserted_step() -> list[Any]:
    first = await a()
    await b()
    await sleep(60)
    return [first, await b()]


@flow
async def that_ends_early() -> list[Any]:
    return [await a()]


@flow
async def of_another_kind() -> list[Any]:
    first = await a()
    await wait_for("sleep")
    return [first, await b()]


@flow
async def with_other_input(n: int) -> list[Any]:
    return [n]


@flow
async def with_more_after() -> list[Any]:
    first = await a()
    await sleep(60)
    return [first, await b(), await a()]


@pytest.mark.parametrize(
    ("code", "told"),
    [
        (with_a_renamed_step, "the record has an outcome of a, but the code waits for renamed"),
        (with_a_removed_step, "the record has an outcome of a, but the code waits for sleep"),
        (with_an_inserted_step, "the record has sleep open, but the code waits for b there"),
        (that_ends_early, "the record has sleep open, but the code ends there"),
        (of_another_kind, "the record has sleep open, but the code waits for wait there"),
        (with_other_input, "lacks n"),
    ],
    ids=lambda x: x.name if hasattr(x, "name") else None,
)
def test_code_that_does_not_fit_the_record_parks_with_both_paths_and_goes_on_after_a_fix(
    code: FlowLike, told: str
) -> None:
    run = local_execution(original)
    run.step_once()
    before = dict(run.checkpoint.open)
    run.reload(flow=code)
    error = run.show()["error"]
    assert run.checkpoint.status == "parked"
    assert error["type"] == "code diverged"
    assert told in error["message"]
    refused = run.retry()
    assert refused is not None
    assert not refused.applied
    assert "code diverged" in refused.reason
    run.reload(flow=original)
    assert run.checkpoint.status == "parked", "a person or the owner un-parks it"
    run.retry()
    assert dict(run.checkpoint.open) == before
    assert run.run().result() == ["a", "b"]
    assert calls == {"a": 1, "b": 1}


def test_code_that_waits_for_another_signal_than_the_recorded_one_parks() -> None:
    @flow
    async def approval() -> None:
        await wait_for("approval")
        await sleep(1)

    @flow
    async def other() -> None:
        await wait_for("payment")
        await sleep(1)

    run = local_execution(approval)
    run.signal("approval", 1)
    run.reload(flow=other)
    assert "record has signal approval at wait, but the code has signal payment there" in run.show()["error"]["message"]


def test_code_that_only_grew_behind_the_record_goes_on() -> None:
    run = local_execution(original)
    run.step_once()
    run.reload(flow=with_more_after)
    assert run.run().result() == ["a", "b", "a"]


def test_a_result_that_came_when_the_code_had_diverged_is_not_lost() -> None:
    @step
    def number() -> int:
        calls["number"] += 1
        return 5

    @flow
    async def counting() -> int:
        return (await number()) + 1

    run = local_execution(counting)
    done = run.execute("number")
    number._decoder = None
    number.fn.__annotations__["return"] = dict  # as after a deploy that changed the annotation
    run.feed(done)
    assert run.checkpoint.status == "parked"
    assert "number does not fit" in run.show()["error"]["message"]
    assert run.show()["steps"][0]["result"] == 5
    number._decoder = None
    number.fn.__annotations__["return"] = int
    run.retry()
    assert run.run().result() == 6
    assert calls["number"] == 1


def test_an_annotation_that_stopped_being_storable_parks_and_does_not_crash() -> None:
    @step
    def number() -> int:
        return 5

    @flow
    async def counting() -> int:
        await number()
        await sleep(1)
        return 1

    run = local_execution(counting)
    run.step_once()
    number._decoder = None
    number.fn.__annotations__["return"] = dict[list[int], int] | set[int] | list[int]
    run.reload(clean=True)
    assert run.checkpoint.status == "parked"
    assert "number" in run.show()["error"]["message"]


# Live and replayed runs see the same.


@dataclasses.dataclass
class Receipt:
    id: int
    lines: tuple[int, ...]
    tags: set[str]


@step
def receipt(n: int) -> Receipt:
    calls["receipt"] += 1
    return Receipt(n, (n, n + 1), {"x"})


@step
def pair() -> tuple[int, str]:
    return (1, "one")


@step
def names() -> set[str]:
    return {"b", "a"}


@step
def untyped():  # type: ignore[no-untyped-def]
    return {"t": (1, 2)}


@step
def cleanup(text: str) -> str:
    calls[text] += 1
    return text


def shape(value: object) -> str:
    return f"{type(value).__name__}:{sorted(value) if isinstance(value, set) else value!r}"


@flow
async def rich(order: Receipt, tags: set[str]) -> list[str]:
    got: list[object] = [order, tags]
    try:
        got.append(await receipt(1))
        got += await gather(pair(), names(), receipt(2), _branch())
        got.append(await untyped())
        try:
            got.append(await fatal("declined"))
        except StepFailed as failure:
            got += [failure.type, failure.message, failure.attempts, failure.path]
        await sleep(60)
        got.append(await wait_for("go"))
        got.append(await work("flaky"))
    finally:
        got.append(await cleanup("cleanup"))
    return [shape(value) for value in got]


async def _branch() -> object:
    try:
        await sleep(1)
        return await pair()
    finally:
        await cleanup("branch")


INPUT = {"order": Receipt(7, (1,), {"t"}), "tags": {"x", "y"}}


def drive(at_each: Callable[[LocalRun], object]) -> LocalRun:
    run = local_execution(rich, INPUT)
    run.signal_later(30, "go", {"x": [1]})
    for _ in range(200):
        if run.ended:
            return run
        at_each(run)
        down.add("flaky")
        if run.checkpoint.open.get("work", None) and run.checkpoint.open["work"].attempt > 2:
            down.clear()
        assert run.step_once()
    raise AssertionError("it never ends")


def test_types_are_the_annotated_ones_on_first_delivery() -> None:
    result = drive(lambda run: None).result()
    assert result[:4] == [
        "Receipt:Receipt(id=7, lines=(1,), tags={'t'})",
        "set:['x', 'y']",
        "Receipt:Receipt(id=1, lines=(1, 2), tags={'x'})",
        "tuple:(1, 'one')",
    ]
    assert result[7] == "dict:{'t': [1, 2]}", "without an annotation it is what JSON gives"


@pytest.mark.parametrize("clean", [True, False], ids=["passivated", "crashed"])
def test_a_rebuild_at_every_await_changes_nothing(clean: bool) -> None:
    live = drive(lambda run: None)
    ran = dict(calls)
    calls.clear()
    rebuilt = drive(lambda run: run.reload(clean=clean))
    assert rebuilt.result() == live.result()
    assert calls == ran, "no recorded step ran again, no cleanup ran early"
    assert (calls["cleanup"], calls["branch"]) == (1, 1)
    assert rebuilt.now_ms == live.now_ms


def test_a_rebuild_between_two_looks_at_a_running_step_changes_nothing() -> None:
    run = drive(lambda run: [run.reload(clean=True), run.reload(clean=True)])
    assert calls["receipt"] == 2
    assert run.ended


def test_leaving_memory_runs_no_cleanup_step_and_writes_nothing() -> None:
    run = local_execution(rich, INPUT)
    while "sleep" not in run.checkpoint.open:
        run.step_once()
    row, ran = dict(run.row), dict(calls)
    run.close()
    assert (run.row, dict(calls)) == (row, ran)
    run.reload(clean=True)
    assert (run.row, dict(calls)) == (row, ran)


def test_a_flow_that_is_dropped_without_being_closed_runs_no_cleanup_step() -> None:
    run = local_execution(rich, INPUT)
    while "sleep" not in run.checkpoint.open:
        run.step_once()
    ran = dict(calls)
    run._machine._driver = None
    gc.collect()
    assert dict(calls) == ran


def test_a_cleanup_that_clings_to_its_step_is_told_to_let_go() -> None:
    told: list[str] = []

    @flow
    async def clinging() -> None:
        try:
            await sleep(60)
        finally:
            try:
                await cleanup("clinging")
            except BaseException as error:
                told.append(type(error).__name__)
                raise

    run = local_execution(clinging)
    run.close()
    assert told == ["DriverClosing"]
    assert calls["clinging"] == 0


def test_code_that_raises_while_it_leaves_memory_is_only_logged(caplog: pytest.LogCaptureFixture) -> None:
    @flow
    async def rude() -> None:
        try:
            await sleep(60)
        finally:
            raise ValueError("in finally")

    run = local_execution(rude)
    run.reload(clean=True)
    assert "flow rude raised ValueError while it was taken out of memory" in caplog.text
    assert run.checkpoint.status == "waiting"


def test_who_raises_while_it_leaves_memory_is_named_with_the_place_where_it_waited(
    caplog: pytest.LogCaptureFixture,
) -> None:
    async def rudely(seconds: float) -> None:
        try:
            await sleep(seconds)
        finally:
            raise KeyError(seconds)

    @flow
    async def rude() -> None:
        try:
            await gather(rudely(1), sleep(2), rudely(3))
        finally:
            raise ValueError("in finally")

    run = local_execution(rude)
    run.reload(clean=True)
    fields = [record.__dict__["fields"] for record in caplog.records]
    place = {"execution": run.checkpoint.execution_id, "flow": "rude", "event": "CleanupRaised"}
    assert fields == [
        {**place, "path": "gather.0/sleep", "error": "KeyError"},
        {**place, "path": "gather", "error": "ValueError"},
        {**place, "path": "gather.2/sleep", "error": "KeyError"},
    ]
    assert {name for each in fields for name in each} <= set(FIELDS)


def test_facts_are_replayed_in_the_order_they_were_recorded() -> None:
    @flow
    async def racing() -> list[str]:
        order: list[str] = []

        async def note(branch: str) -> None:
            order.append(await work(branch))

        await gather(note("x"), note("y"), note("z"))
        await sleep(1)
        return order

    for reload in (False, True):
        run = local_execution(racing)
        for branch in (2, 0, 1):
            run.finish(f"gather.{branch}/work")
            if reload:
                run.reload(clean=True)
        assert run.run().result() == ["z", "x", "y"]
