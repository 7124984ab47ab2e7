"""How flow code runs: sequences, branches, loops, helpers, and what is no operation."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Generator
from typing import Any

import pytest

from stepwell import ExecutionFailed, Retry, flow, gather, sleep, step, wait_for
from stepwell.core.errors import Cancelled, UsageError
from stepwell.testing import LocalRun, local_execution, run_local


@step
def double(n: int) -> int:
    return 2 * n


@step
async def later(n: int) -> int:
    await asyncio.sleep(0)
    return n


@step
def fail() -> None:
    raise ValueError("no")


def paths(run: LocalRun) -> list[str]:
    return [s["path"] for s in run.show()["steps"]]


def test_a_sequence_passes_results_on() -> None:
    @flow
    async def sequence(n: int) -> list[int]:
        a = await double(n)
        b = await later(a)
        c = await double(b)
        return [a, b, c]

    run = LocalRun(sequence, {"n": 3}).run()
    assert run.result() == [6, 6, 12]
    assert paths(run) == ["double", "later", "double#2"]


def test_one_commit_holds_a_result_and_the_next_declaration() -> None:
    @flow
    async def two() -> int:
        return await double(await later(4))

    run = LocalRun(two).run()
    wrote = [{key: value is None for key, value in fields.items()} for fields in run.commits]
    assert wrote == [
        {"started_at": False, "p:later": False},
        {"r:later": False, "p:later": True, "p:double": False},
        {"r:double": False, "p:double": True, "ended_at": False, "result": False},
    ]


def test_branches_run_side_by_side_and_answer_in_their_order() -> None:
    @flow
    async def fan() -> list[int]:
        return list(await gather(double(1), later(2), double(3)))

    run = local_execution(fan)
    assert list(run.running) == ["gather.0/double", "gather.1/later", "gather.2/double"]
    run.finish("gather.2/double")
    run.finish("gather.0/double")
    run.finish("gather.1/later")
    assert run.result() == [2, 2, 6]


def test_gathers_nest_and_count_per_branch() -> None:
    async def pair(n: int) -> list[Any]:
        return list(await gather(double(n), gather(double(n + 1), later(n + 2))))

    @flow
    async def nest() -> list[Any]:
        first = list(await gather(pair(1), double(9), pair(5)))
        second = list(await gather(double(0)))
        return [first, second]

    run = LocalRun(nest).run()
    assert run.result() == [[[2, [4, 3]], 18, [10, [12, 7]]], [0]]
    assert paths(run) == [
        "gather.0/gather.0/double",
        "gather.0/gather.1/gather.0/double",
        "gather.0/gather.1/gather.1/later",
        "gather.1/double",
        "gather.2/gather.0/double",
        "gather.2/gather.1/gather.0/double",
        "gather.2/gather.1/gather.1/later",
        "gather#2.0/double",
    ]


def test_an_empty_gather_is_an_empty_list() -> None:
    @flow
    async def nothing() -> list[Any]:
        branches: list[Awaitable[int]] = []
        return list(await gather(*branches))

    assert run_local(nothing) == []


def test_loops_and_helpers_count_their_steps() -> None:
    async def helper(n: int) -> int:
        return await double(n) + await double(n)

    @flow
    async def loop() -> int:
        total = 0
        for n in range(3):
            total += await helper(n)
            await sleep(1)
        return total

    run = LocalRun(loop).run()
    assert run.result() == 12
    assert paths(run) == ["double", *(f"double#{n}" for n in range(2, 7))]
    assert [w["path"] for w in run.show()["waits"]] == ["sleep", "sleep#2", "sleep#3"]


def test_a_flow_may_await_another_flows_function() -> None:
    @flow
    async def inner(n: int) -> int:
        return await double(n)

    @flow
    async def outer() -> int:
        return await inner(2) + await double(1)

    run = LocalRun(outer).run()
    assert run.result() == 6
    assert paths(run) == ["double", "double#2"]


def test_five_thousand_steps_cost_what_ten_cost_each() -> None:
    @flow
    async def long(n: int) -> int:
        total = 0
        for i in range(n):
            total += await double(i)
        return total

    run = LocalRun(long, {"n": 2000}).run()
    assert run.result() == 1999 * 2000
    assert max(len(fields) for fields in run.commits) <= 4


class Odd:
    def __await__(self) -> Generator[Any, Any, None]:
        yield "odd"


async def _future() -> None:
    class Loopless(asyncio.Future[None]):
        pass

    loop = asyncio.new_event_loop()
    try:
        await Loopless(loop=loop)
    finally:
        loop.close()


@pytest.mark.parametrize(
    ("foreign", "told"),
    [
        (lambda: asyncio.sleep(0), "a builtins.NoneType, which is no Stepwell operation: move it into a @step"),
        (_future, "Loopless, which is no Stepwell operation: move it into a @step"),
        (lambda: asyncio.wait_for(later(1), 2), "asyncio"),
        (Odd, "a builtins.str, which is no Stepwell operation"),
    ],
)
def test_awaiting_anything_foreign_is_one_clear_error(foreign: Any, told: str) -> None:
    @flow
    async def strange() -> None:
        await foreign()

    with pytest.raises(ExecutionFailed, match=told) as caught:
        run_local(strange)
    assert caught.value.error["failed_step"] is None


def test_a_flow_goes_on_after_a_foreign_await_that_it_caught() -> None:
    @flow
    async def careful() -> int:
        try:
            await asyncio.sleep(0)
        except UsageError:
            return await double(4)
        return 0

    assert run_local(careful) == 8


def test_a_gather_of_things_that_can_not_be_awaited_says_how_to_call_it() -> None:
    @flow
    async def wrong() -> None:
        await gather([double(1), double(2)])  # type: ignore[call-overload]

    with pytest.raises(ExecutionFailed, match=r"gather\(\*branches\)"):
        run_local(wrong)


def test_operations_awaited_outside_a_flow_say_so() -> None:
    for operation in (sleep(1), wait_for("x"), gather(sleep(1), sleep(2))):
        with pytest.raises(UsageError, match="outside a flow"):
            operation.__await__().__next__()


def test_outside_a_flow_a_step_is_a_plain_function() -> None:
    assert double(3) == 6
    with asyncio.Runner() as runner:
        assert runner.run(later(3)) == 3  # type: ignore[arg-type]


def test_inside_a_step_another_step_is_a_plain_function() -> None:
    @step
    def both() -> Any:
        return [double(1), double(2)]

    @flow
    async def simple() -> Any:
        return await both()

    run = LocalRun(simple).run()
    assert run.result() == [2, 4]
    assert paths(run) == ["both"]


def call_a_step() -> object:
    return double(1)


def call_a_sleep() -> object:
    return sleep(5)


def call_a_wait() -> object:
    return wait_for("go")


def call_a_gather() -> object:
    return gather(double(1), double(2))


@pytest.mark.parametrize(
    ("call", "told"),
    [
        (call_a_step, "step double"),
        (call_a_sleep, "sleep(5)"),
        (call_a_wait, "wait_for('go')"),
        (call_a_gather, "gather of 2, step double"),
    ],
)
def test_an_operation_that_was_called_and_never_awaited_is_an_error(call: Callable[[], object], told: str) -> None:
    @flow
    async def forgetful() -> str:
        await double(1)
        call()
        return "done"

    run = LocalRun(forgetful).run()
    assert paths(run) == ["double"]
    assert run.show()["error"]["type"] == "UsageError"
    assert f"called {told} and never awaited it" in run.show()["error"]["message"]


def test_of_several_forgotten_calls_each_is_told_and_those_that_were_awaited_are_not() -> None:
    @flow
    async def forgetful() -> str:
        first, second = double(1), double(2)
        sleep(5)
        await second
        wait_for("go")
        await first
        return "done"

    run = LocalRun(forgetful).run()
    assert paths(run) == ["double", "double#2"]
    assert "called sleep(5), wait_for('go') and never awaited it" in run.show()["error"]["message"]


def test_operations_that_a_failing_gather_never_started_are_not_forgotten() -> None:
    @flow
    async def careful() -> str:
        async def breaks() -> None:
            raise ValueError("at once")

        calls = [double(1), double(2)]
        try:
            await gather(breaks(), *calls)
        except ValueError:
            return "caught"
        return "never"

    assert LocalRun(careful).run().result() == "caught"


def test_one_call_can_be_awaited_twice_and_is_two_steps() -> None:
    @flow
    async def twice() -> list[int]:
        call = double(4)
        return [await call, await call]

    run = LocalRun(twice).run()
    assert run.result() == [8, 8]
    assert paths(run) == ["double", "double#2"]


def test_control_flow_is_not_caught_by_except_exception() -> None:
    seen: list[str] = []

    @flow
    async def greedy() -> str:
        try:
            await sleep(60)
        except Exception:
            seen.append("swallowed")
        return "went on"

    run = local_execution(greedy)
    run.cancel()
    assert run.checkpoint.status == "cancelled"
    assert seen == []
    assert not issubclass(Cancelled, Exception)


def test_a_result_that_can_not_be_stored_is_an_error_of_the_flow() -> None:
    @flow
    async def opaque() -> Any:
        await double(1)
        return {"x": [object()]}

    with pytest.raises(ExecutionFailed, match=r"result of flow opaque can't be stored: \$\['x'\]\[0\]"):
        run_local(opaque)


def test_a_step_result_that_can_not_be_stored_ends_the_step_at_once() -> None:
    @step(retry=Retry(max_attempts=9))
    def leaky() -> Any:
        return {"conn": object()}

    @flow
    async def leaking() -> None:
        await leaky()

    run = LocalRun(leaking).run()
    error = run.show()["error"]
    assert error["attempts"] == 1
    assert "result of step leaky can't be stored: $['conn'] is of type object" in error["message"]
    assert run.show()["steps"][0]["error"]["reason"] == "payload"


def test_a_result_over_the_limit_ends_the_step_at_once_with_step_and_size() -> None:
    @step
    def big() -> str:
        return "x" * 2_000_000

    @flow
    async def hoard() -> None:
        await big()

    with pytest.raises(ExecutionFailed, match=r"result of step big is too large: 2,000,002 bytes"):
        run_local(hoard)


def test_an_error_of_the_flows_own_code_names_its_line() -> None:
    @flow
    async def buggy() -> None:
        await double(1)
        raise KeyError("no such customer at redis://u:secret@h")

    run = LocalRun(buggy).run()
    error = run.show()["error"]
    assert error["type"] == "KeyError"
    assert "secret" not in error["message"]
    assert "test_driving.py:" in error["detail"]
    assert error["detail"].endswith("in buggy")
    assert error["failed_step"] is None


def test_a_flow_that_raises_before_its_first_step_ends_in_error() -> None:
    @flow
    async def early() -> None:
        raise ValueError("at once")

    run = LocalRun(early).run()
    assert run.checkpoint.status == "error"
    assert len(run.commits) == 1


def test_a_branch_that_never_starts_leaves_no_warning() -> None:
    async def bad() -> None:
        raise ValueError("first")

    async def unstarted() -> int:
        return await double(1)

    @flow
    async def mixed() -> None:
        await gather(bad(), unstarted(), unstarted())

    run = LocalRun(mixed).run()
    assert run.show()["error"]["message"] == "first"
    assert paths(run) == []


def test_a_step_declared_beside_a_branch_that_raises_at_once_is_taken_back() -> None:
    async def bad() -> None:
        raise ValueError("at once")

    @flow
    async def mixed() -> None:
        await gather(double(1), sleep(5), bad())

    run = local_execution(mixed)
    assert run.checkpoint.status == "error"
    assert [sorted(fields) for fields in run.commits] == [["ended_at", "error", "started_at"]]


def test_a_failing_step_in_a_helper_travels_up_to_the_flow() -> None:
    async def helper() -> None:
        await fail()

    @flow
    async def top() -> None:
        await helper()

    with pytest.raises(ExecutionFailed, match="ValueError: no"):
        run_local(top)
