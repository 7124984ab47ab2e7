"""A program of somebody's own whose steps stand in its main file: `isolated_main.py DATA`; prints a result as JSON."""

from __future__ import annotations

import json
import os
import sys
import threading
from dataclasses import dataclass, field
from enum import Enum

from stepwell import Client, Retry, StepFailed, current_step, flow, step
from stepwell.worker.worker import Worker

LOCK = threading.Lock()  # nothing that could be sent anywhere; no step refers to it


class Kind(Enum):
    """A type of the main file."""

    GIFT = "gift"
    PLAIN = "plain"


@dataclass
class Item:
    """One that another one names."""

    kind: Kind


@dataclass
class Order:
    """One that names others."""

    id: str
    cents: int
    items: list[Item] = field(default_factory=lambda: [Item(Kind.GIFT)])


class Declined(Exception):
    """An error of the main file, which a policy names."""


def doubled(order: Order) -> Order:
    """A helper of the main file."""
    return Order(order.id, order.cents * 2, [*order.items, Item(Kind.PLAIN)])


@step(isolation="process", retry=Retry(give_up_on=(Declined,)))
def price(order: Order) -> Order:
    """Declines what costs nothing."""
    assert isinstance(order, Order)
    assert order.items[0].kind is Kind.GIFT
    if not order.cents:
        raise Declined(order.id)
    return doubled(order)


@step(isolation="process")
async def where() -> list[str | int]:
    """Key and process."""
    return [current_step().idempotency_key, os.getpid()]


@flow
async def pricing(order: Order) -> dict[str, object]:
    """Both steps, and a failure that is final."""
    priced = await price(order)
    assert isinstance(priced, Order)
    try:
        await price(Order("free", 0))
        declined = ""
    except StepFailed as failed:
        declined = f"{failed.type} after {failed.attempts}"
    key, pid = await where()
    return {"priced": priced, "declined": declined, "key": key, "elsewhere": pid != os.getpid()}


def main(data: str) -> None:
    """Run one execution."""
    with LOCK, Worker([pricing], data=data), Client(data_dir=data) as client:
        one = client.start(pricing, {"order": {"id": "A1", "cents": 5}}, "A1")
        print(json.dumps(client.result(one, timeout=150)))


main(sys.argv[1])
