"""An order, from reservation to delivery: steps that fail and are tried again, a pause, a signal, two steps at once.

    stepwell run flows.py
    stepwell start checkout --input '{"order": "A1", "cents": 990}' --id A1
    stepwell show A1
    stepwell signal A1 approval --payload '{"by": "Ada"}'
    stepwell result A1

Stop the worker in between, even with kill -9, and start it again: nothing that is done is done twice.
"""

from __future__ import annotations

from dataclasses import dataclass

from stepwell import FatalError, Retry, StepFailed, current_step, flow, gather, minutes, sleep, step, wait_for


@dataclass
class Receipt:
    """What the customer paid. Results are stored as JSON and come back as they are annotated."""

    order: str
    cents: int
    key: str


@step
async def reserve(order: str) -> str:
    """A step runs until it is done once. What it returns is recorded, and it never runs again."""
    return f"shelf of {order}"


# Up to 5 tries; the delays between them are at least 0.2, 0.4, 0.8 and 1.6 seconds.
@step(retry=Retry(max_attempts=5, base=0.2), timeout=30)
async def charge(order: str, cents: int) -> Receipt:
    """Tries 1 and 2 fail here on purpose, as a payment service may. `stepwell show` draws them."""
    this = current_step()
    if cents <= 0:
        raise FatalError(f"order {order} costs {cents} cents: trying again won't help")
    if this.attempt <= 2:
        raise ConnectionError("the payment service does not answer")
    # Send this key along: it is the same for all tries, so the customer pays once.
    return Receipt(order, cents, this.idempotency_key)


@step
async def release(shelf: str) -> None:
    """Undoes `reserve`."""


@step
def ship(order: str) -> str:
    """A step may be a plain `def`: it runs on a thread."""
    return f"{order} is on its way"


@step
async def notify(order: str) -> str:
    """Runs beside `ship`."""
    return f"the customer of {order} knows"


@flow
async def checkout(order: str, cents: int) -> dict[str, object]:
    """A flow only awaits steps and other operations: whatever touches the world is in a step."""
    shelf = await reserve(order)
    try:
        receipt = await charge(order, cents)
    except StepFailed:
        await release(shelf)
        raise
    await sleep(2)  # may be hours or days: it takes no thread, and it survives restarts
    approval = await wait_for("approval", timeout=minutes(60))
    shipped, told = await gather(ship(order), notify(order))
    return {"receipt": receipt, "approved": approval, "shipped": shipped, "told": told}
