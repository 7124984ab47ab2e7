"""Failures that a flow makes good in the branches of a gather: what `retry` says, and what it brings back."""

from __future__ import annotations

from stepwell import FatalError, Retry, StepFailed, flow, gather, sleep, step
from stepwell.testing import LocalRun


@step(retry=Retry(max_attempts=1))
def pay() -> None:
    raise OSError("no")


@step
def refund(what: str) -> str:
    return what


@flow
async def compensates_and_fails() -> None:
    try:
        await pay()
    except StepFailed:
        await gather(refund("order"), refund("tip"))
        raise


def test_a_compensation_in_branches_counts_as_going_on() -> None:
    run = LocalRun(compensates_and_fails).run()
    refused = run.retry()
    assert refused is not None
    assert "compensated" in refused.reason
    assert run.show()["error"]["compensated"]


def test_what_was_compensated_in_branches_is_not_brought_back_with_a_later_failure() -> None:
    down = ["ship"]

    @step
    def ship() -> str:
        if down:
            raise FatalError(f"{down.pop()} is down")
        return "shipped"

    async def compensates() -> None:
        try:
            await pay()
        except StepFailed:
            await gather(refund("order"), refund("tip"))

    async def ships() -> str:
        await sleep(600)
        return await ship()

    @flow
    async def both() -> list[str | None]:
        return list(await gather(compensates(), ships()))

    run = LocalRun(both).run()
    assert [*run.show()["error"]["open"]] == ["gather.1/ship"]
    run.retry()
    assert run.run().result() == [None, "shipped"]
