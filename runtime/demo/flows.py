"""The flow of the demo: each step tells the receiver what to do, over HTTP."""

from __future__ import annotations

from typing import TypedDict

from stepwell import Retry, current_step, flow, http, step

# The receiver holds requests for a while: who gave up on one would send its next attempt before the answer to the last.
PATIENCE_SECONDS = 180.0
ATTEMPT_HEADER = "X-Attempt"  # lets the receiver's log tell an attempt that ran again from the next attempt


class Receipt(TypedDict):
    """What the receiver answers: the number of the effect that it recorded."""

    receipt: str


async def _tell(what: str, order: str, receiver: str) -> Receipt:
    answer = await http.send(
        "POST",
        f"{receiver}/{what}",
        json={"order": order, "step": what},
        headers={ATTEMPT_HEADER: str(current_step().attempt)},
        timeout=PATIENCE_SECONDS,
    )
    return Receipt(receipt=answer.json()["receipt"])


@step(retry=Retry(max_attempts=5, base=0.1))
async def reserve(order: str, receiver: str) -> Receipt:
    """Put the goods aside."""
    return await _tell("reserve", order, receiver)


@step(retry=Retry(max_attempts=5, base=0.2))
async def charge(order: str, receiver: str) -> Receipt:
    """Take the money: what nobody wants to happen twice."""
    return await _tell("charge", order, receiver)


@step(retry=Retry(max_attempts=5, base=0.1))
async def ship(order: str, receiver: str) -> Receipt:
    """Send the parcel."""
    return await _tell("ship", order, receiver)


@step(retry=Retry(max_attempts=5, base=0.1, factor=1.5))
async def notify(order: str, receiver: str) -> Receipt:
    """Write to the customer."""
    return await _tell("notify", order, receiver)


STEPS = (reserve, charge, ship, notify)


@flow(name="order")
async def order_flow(order: str, receiver: str) -> list[str]:
    """One order, from the shelf to the customer."""
    receipts = [
        await reserve(order, receiver),
        await charge(order, receiver),
        await ship(order, receiver),
        await notify(order, receiver),
    ]
    return [each["receipt"] for each in receipts]
