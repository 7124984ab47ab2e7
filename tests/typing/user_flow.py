"""What a user of Stepwell writes, as type checkers must see it; `check.py` compares what they say with the comments.

"shows" stands where `reveal_type` must answer that type, "refused" where a checker must complain, and nowhere else.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import timedelta
from typing import reveal_type

from stepwell import (
    AsyncClient,
    Client,
    FatalError,
    Retry,
    RetryAfter,
    StepFailed,
    Worker,
    current_step,
    days,
    flow,
    gather,
    sleep,
    step,
    wait_for,
)


@dataclass
class Order:
    """An input."""

    id: str
    cents: int


@dataclass
class Receipt:
    """A result."""

    number: int


@step
async def charge(order: Order) -> Receipt:
    """Bare, async."""
    reveal_type(current_step().idempotency_key)  # shows: str
    reveal_type(current_step().attempt)  # shows: int
    if order.cents < 0:
        raise FatalError("no such amount")
    if order.cents == 0:
        raise RetryAfter(30)
    return Receipt(order.cents)


@step
def pack(order: Order, boxes: int = 1) -> list[str]:
    """Bare, on a thread."""
    return [order.id] * boxes


@step(retry=Retry(max_attempts=3, base=0.5, give_up_on=(ValueError,)), timeout=timedelta(seconds=30))
async def ship(order: Order, *, express: bool = False) -> Receipt:
    """With arguments, async."""
    return Receipt(int(express) + len(order.id))


@step(isolation="process", timeout=60)
def render(order: Order) -> bytes:
    """In a process."""
    return order.id.encode()


@step(isolation="fork")  # refused
def forked() -> None:
    """In none."""


@step(name="tell", timeout=5)
def notify(order: Order) -> str | None:
    """With arguments, on a thread."""
    return order.id or None


@flow
async def checkout(order: Order, note: str = "") -> dict[str, int]:
    """A flow."""
    receipt = await charge(order)
    reveal_type(receipt)  # shows: Receipt
    reveal_type(await charge(order))  # shows: Receipt
    reveal_type(await pack(order, boxes=2))  # shows: list[str]
    reveal_type(await ship(order, express=True))  # shows: Receipt
    reveal_type(await notify(order))  # shows: str | None

    shipped, told = await gather(ship(order), notify(order))
    reveal_type(shipped)  # shows: Receipt
    reveal_type(told)  # shows: str | None
    reveal_type(await gather(*[charge(order) for _ in range(3)]))  # shows: list[Receipt]

    await sleep(hours=1)
    await sleep(timedelta(minutes=1))
    reveal_type(await wait_for("approval", timeout=days(2)))  # shows: Any

    try:
        await charge(order)
    except StepFailed as failed:
        reveal_type(failed.attempts)  # shows: int

    await charge("A1")  # refused
    await charge()  # refused
    await pack(order, boxes="two")  # refused
    await ship(order, True)  # refused
    await sleep("an hour")  # refused
    print(receipt.nonsense)  # refused
    wrong: str = await charge(order)  # refused
    return {"paid": receipt.number, "note": len(note + wrong)}


@flow(name="restock")
async def refill(boxes: int) -> None:
    """A flow with a name of its own."""
    await pack(Order("stock", 0), boxes)


@flow  # refused
def no_flow(order: Order) -> int:
    """Flows are `async def`."""
    return order.cents


async def outside() -> None:
    """A step is a plain function there, and keeps its types."""
    reveal_type(await charge(Order("A1", 5)))  # shows: Receipt


def start_some() -> None:
    """The clients."""
    with Client() as client:
        reveal_type(client.start(checkout, {"order": {"id": "A1", "cents": 5}}))  # shows: str
        reveal_type(client.start("checkout", execution_id="A1"))  # shows: str
        reveal_type(client.retry("A1").applied)  # shows: bool | None
        client.start(charge)  # refused
        client.result(7)  # refused
    with Worker([checkout, refill], threads=4, grace=10):
        pass
    Worker([charge])  # refused


async def start_more() -> None:
    """The asyncio client."""
    async with AsyncClient() as client:
        reveal_type(await client.start(checkout))  # shows: str
        reveal_type((await client.signal("A1", "approval", {"by": "Ada"})).status)  # shows: str
        await client.start(charge)  # refused
