"""Failing steps: attempts, growing delays, budgets, one key; and that nobody else notices."""

from __future__ import annotations

import itertools
import logging
from collections.abc import Callable
from dataclasses import dataclass

import pytest
from sim.bodies import work
from sim.harness import World
from sim.revs import nth

from stepwell import FatalError, Retry, StepFailed, current_step, flow, gather, sleep, step
from stepwell.core import events
from stepwell.core.records import decode_attempt, decode_open
from stepwell.metrics.formatting import utc_ms
from stepwell.metrics.logs import LogSubscriber
from stepwell.store.requests import Commit

MakeWorld = Callable[..., World]
FIVE = Retry(max_attempts=5, base=0.2)


@step
async def fine(n: int = 0) -> int:
    return n


@step(retry=FIVE)
async def always_fails() -> None:
    raise ValueError("not today")


@flow
async def fails_at_once() -> None:
    await always_fails()


@flow
async def fails_in_the_middle() -> None:
    await fine(1)
    await always_fails()
    await fine(3)


def test_a_row_says_which_attempt_is_the_last(make_world: MakeWorld) -> None:
    world = make_world(fails_at_once)
    world.shard()
    world.start(fails_at_once, "e1")
    world.run(lambda: world.status("e1") == "error")
    world.retry("e1")
    world.run(lambda: len(world.ledger.of("e1", "always_fails")) == 7)
    row = world.row("e1")
    last = [decode_attempt(row[f"a:always_fails:{n}"]).last for n in (1, 4, 6)]
    assert last == [5, 5, 10]


@pytest.mark.pain(22, 23)
@pytest.mark.parametrize("failing", [fails_at_once, fails_in_the_middle], ids=["first", "middle"])
def test_an_always_failing_step_ends_after_its_budget_with_growing_gaps(make_world: MakeWorld, failing) -> None:
    world = make_world(failing)
    world.shard()
    world.start(failing, "e1")
    world.run(limit=60)
    runs = world.ledger.of("e1", "always_fails")
    assert [run.attempt for run in runs] == [1, 2, 3, 4, 5]
    gaps = [after.at_ms - before.at_ms for before, after in itertools.pairwise(runs)]
    assert all(gap >= floor for gap, floor in zip(gaps, [200, 400, 800, 1600], strict=True))
    assert gaps == sorted(set(gaps))
    shown = world.show("e1")
    assert shown["status"] == "error"
    assert shown["open"] == {}
    assert shown["error"]["attempts"] == 5
    assert shown["error"]["type"] == "ValueError"
    [of_step] = [s for s in shown["steps"] if s["path"] == "always_fails"]
    assert shown["error"]["failed_step"] == {"path": "always_fails", "token": of_step["token"], "attempts": 5}
    assert len(of_step["attempts"]) == 5
    assert len(world.ledger.of("e1", "fine")) == (1 if failing is fails_in_the_middle else 0)


@pytest.mark.pain(22)
def test_no_recorded_result_ever_leaves_the_row_and_calls_seen_are_the_final_rev(make_world: MakeWorld) -> None:
    world = make_world(fails_in_the_middle)
    world.shard()
    world.start(fails_in_the_middle, "e1")
    world.run()
    commits = [sent.request for sent in world.sent if isinstance(sent.request, Commit)]
    assert len(commits) + 1 == nth(world.show("e1")["rev"])
    recorded: set[str] = set()
    for commit in commits:
        written = [field for field, _ in commit.sets if field.startswith("r:")]
        assert not recorded & {*written, *commit.dels}
        recorded.update(written)
    assert recorded == {"r:fine", "r:always_fails"} == {f for f in world.row("e1") if f.startswith("r:")}


@pytest.mark.pain(27)
def test_the_logged_due_time_is_the_row_s_and_the_next_attempt_s(
    make_world: MakeWorld, caplog: pytest.LogCaptureFixture
) -> None:
    world = make_world(fails_at_once)
    shard = world.shard()
    shard.context.bus.subscribe(LogSubscriber())
    world.start(fails_at_once, "e1")
    in_row: list[int] = []

    def look() -> None:
        raw = world.row("e1").get("p:always_fails")
        op = None if raw is None else decode_open(raw)
        if op is not None and op.due_at is not None and op.due_at not in in_row:
            in_row.append(op.due_at)

    world.checks.append(look)
    with caplog.at_level(logging.INFO, "stepwell"):
        world.run()
    starts = [run.at_ms for run in world.ledger.of("e1")][1:]
    told = [event.due_at for event in world.of_type(events.AttemptFailed)]
    assert in_row == told == starts
    logged = [record.fields["due"] for record in caplog.records if "failed, next in" in record.getMessage()]
    assert logged == [utc_ms(due) for due in told]


@pytest.mark.slow
@pytest.mark.pain(24, 43)
def test_a_thousand_executions_finish_while_one_backs_off(make_world: MakeWorld) -> None:
    @step(retry=Retry(max_attempts=2, base=60, cap=60, jitter=0))
    async def down() -> None:
        raise ConnectionError("down")

    @flow
    async def patient() -> None:
        await down()

    @flow
    async def quick(n: int) -> int:
        return await fine(n)

    world = make_world(patient, quick, audited=False)
    shard = world.shard(max_running=10)
    world.start(patient, "slow")
    world.run(lambda: world.status("slow") == "waiting")
    assert shard.runner.running == 0
    names = [f"q{n}" for n in range(1000)]
    for n, name in enumerate(names):
        world.start(quick, name, n=n)
    world.run(lambda: len(world.of_type(events.ExecutionEnded)) == 1000)
    assert world.clock.monotonic() < 60
    assert world.status("slow") == "waiting"
    assert shard.runner.running == 0
    world.run(lambda: world.ended("slow"))
    assert [run.at_ms for run in world.ledger.of("slow")] == [1_700_000_000_000, 1_700_000_060_000]


@pytest.mark.slow
@pytest.mark.pain(43)
def test_more_waiting_executions_than_may_run_hold_no_slot(make_world: MakeWorld) -> None:
    @flow
    async def sleeper() -> None:
        await sleep(hours=1)

    @flow
    async def quick() -> int:
        return await fine(1)

    world = make_world(sleeper, quick, audited=False)
    world.shard(max_running=5)
    for n in range(100):
        world.start(sleeper, f"s{n}")
    world.run(lambda: len(world.statuses()["waiting"]) == 100)
    world.start(quick, "q")
    world.run(lambda: world.ended("q"))
    assert world.clock.monotonic() < 1


@pytest.mark.pain(25)
def test_a_crash_keeps_the_attempt_count(make_world: MakeWorld) -> None:
    world = make_world(fails_at_once)
    world.shard()
    world.start(fails_at_once, "e1")
    world.run(lambda: len(world.ledger.runs) == 3)
    world.crash()
    world.shard()
    world.run(limit=60)
    assert world.ledger.attempts("e1", "always_fails") == [1, 2, 3, 4, 5]
    assert world.status("e1") == "error"


@pytest.mark.pain(26)
def test_in_a_loop_each_step_keeps_a_budget_of_its_own(make_world: MakeWorld) -> None:
    @flow
    async def loop() -> list[int]:
        attempts = []
        for turn in range(3):
            await fine(turn)
            try:
                await always_fails()
            except StepFailed as failed:
                attempts.append(failed.attempts)
        return attempts

    world = make_world(loop)
    world.shard()
    world.start(loop, "e1")
    world.run(limit=60)
    assert world.show("e1")["result"] == [5, 5, 5]
    paths = ["always_fails", "always_fails#2", "always_fails#3"]
    assert [world.ledger.attempts("e1", path) for path in paths] == [[1, 2, 3, 4, 5]] * 3
    assert len({key for path in paths for key in world.ledger.keys("e1", path)}) == 3


@pytest.mark.pain(21)
def test_one_key_over_attempts_crash_terminal_error_retry_and_changed_arguments(make_world: MakeWorld) -> None:
    amount = [1]
    sound: list[bool] = []

    @step(retry=FIVE)
    async def pay(given: int) -> str:
        await work(0.01)
        if not sound:
            raise ValueError("no")
        return current_step().idempotency_key

    @flow
    async def buy() -> str:
        return await pay(amount[0])

    world = make_world(buy)
    world.shard()
    world.start(buy, "e1")
    world.start(buy, "e2")
    world.run(lambda: world.ledger.attempts("e1", "pay") == [1, 2, 3])
    world.crash()
    amount[0] = 2
    world.shard()
    world.run()
    assert world.statuses()["error"] == ["e1", "e2"] or set(world.statuses()["error"]) == {"e1", "e2"}
    sound.append(True)
    world.retry("e1")
    world.run()
    assert world.status("e1") == "completed"
    [key] = world.ledger.keys("e1", "pay")
    assert world.show("e1")["result"] == key
    assert world.ledger.attempts("e1", "pay")[-1] == 6
    assert world.ledger.keys("e2", "pay") != {key}


@pytest.mark.pain(19)
def test_retry_now_ends_an_hour_of_backoff_and_the_old_timer_does_nothing(make_world: MakeWorld) -> None:
    tries: list[int] = []

    @step(retry=Retry(max_attempts=3, base=3600, cap=3600, jitter=0))
    async def once_bitten() -> int:
        tries.append(1)
        await work(7200.0 if len(tries) == 2 else 0.0)
        if len(tries) < 2:
            raise ValueError("no")
        return len(tries)

    @flow
    async def hourly() -> int:
        return await once_bitten()

    world = make_world(hourly)
    world.shard()
    world.start(hourly, "e1")
    world.run(lambda: world.status("e1") == "waiting")
    world.run_for(5)
    command = world.retry("e1")
    world.run(lambda: len(tries) == 2)
    assert world.clock.monotonic() < 6
    world.run_for(3700)  # over the old due time, while the attempt still runs
    assert len(tries) == 2
    world.run()
    assert world.show("e1")["result"] == 2
    assert len(world.ledger.keys("e1", "once_bitten")) == 1
    assert command in {a.command_id for s in world.sent if isinstance(s.request, Commit) for a in s.request.applied}


@pytest.mark.pain(20)
def test_an_exhausted_execution_is_told_once_and_is_listed(make_world: MakeWorld) -> None:
    world = make_world(fails_at_once)
    world.shard()
    world.start(fails_at_once, "e1")
    world.run()
    [gave_up] = world.of_type(events.StepGaveUp)
    assert (gave_up.reason, gave_up.attempt, gave_up.error_type) == ("exhausted", 5, "ValueError")
    [ended] = world.of_type(events.ExecutionEnded)
    assert (ended.status, ended.reason) == ("error", "step failed")
    assert world.statuses()["error"] == ["e1"]


class Odd:
    """Nothing that JSON can hold."""


@dataclass
class Basket:
    items: list[object]


async def _odd() -> Basket:
    return Basket([1, Odd()])


async def _large() -> str:
    return "x" * 1_100_000


@pytest.mark.pain(17, 18)
@pytest.mark.parametrize(
    ("body", "says"),
    [(_odd, ["step bad", "Odd", ".items[1]"]), (_large, ["step bad", "too large", "1,100,002 bytes", "1,048,576"])],
    ids=["unserialisable", "oversized"],
)
def test_a_result_that_can_t_be_stored_ends_the_step_at_once(make_world: MakeWorld, body, says: list[str]) -> None:
    bad = step(name="bad", retry=FIVE)(body)

    @flow
    async def f() -> None:
        await bad()

    world = make_world(f)
    world.shard()
    world.start(f, "e1")
    world.run()
    assert len(world.ledger.runs) == 1
    error = world.show("e1")["error"]
    assert error["type"] == "PayloadError"
    assert [word for word in says if word not in error["message"]] == []
    assert world.of_type(events.StepGaveUp)[0].reason == "payload"


def test_a_fatal_error_is_not_tried_again(make_world: MakeWorld) -> None:
    @step(retry=FIVE)
    async def refused() -> None:
        raise FatalError("card is stolen")

    @flow
    async def f() -> None:
        await refused()

    world = make_world(f)
    world.shard()
    world.start(f, "e1")
    world.run()
    assert world.ledger.attempts("e1", "refused") == [1]
    assert world.show("e1")["error"]["message"] == "card is stolen"


@pytest.mark.pain(33)
def test_one_branch_s_timeout_leaves_the_siblings_of_other_gathers_alone(make_world: MakeWorld) -> None:
    @step(timeout=1, retry=Retry(max_attempts=1))
    async def too_slow() -> None:
        await work(5)

    @step
    async def steady(n: int) -> int:
        await work(3)
        return n

    async def careful() -> str:
        try:
            await gather(too_slow(), steady(1))
        except StepFailed as failed:
            return failed.type
        return "no failure"

    async def other() -> list[int]:
        return list(await gather(steady(2), steady(3)))

    @flow
    async def both() -> list[object]:
        return list(await gather(careful(), other()))

    world = make_world(both)
    world.shard()
    world.start(both, "e1")
    world.run()
    assert world.show("e1")["result"] == ["StepTimeout", [2, 3]]
    assert len(world.ledger.of("e1")) == 4
    sibling = next(s for s in world.show("e1")["steps"] if s["path"] == "gather.0/gather.1/steady")
    assert sibling["result"] == 1, "what the sibling in the same gather did is recorded"


@pytest.mark.pain(39)
def test_after_a_restart_a_stepped_server_clock_never_lengthens_a_delay(make_world: MakeWorld) -> None:
    @step(retry=Retry(max_attempts=2, base=100, cap=100, jitter=0))
    async def down() -> None:
        raise ConnectionError("down")

    @flow
    async def f() -> None:
        await down()

    world = make_world(f, audited=False)
    world.shard()
    world.start(f, "e1")
    world.run(lambda: world.status("e1") == "waiting")
    world.crash()
    began = world.clock.monotonic()
    world.clock._start_ms -= 3_600_000
    world.shard()
    world.run()
    assert world.ledger.attempts("e1", "down") == [1, 2]
    assert world.clock.monotonic() - began == pytest.approx(100, abs=0.01)
