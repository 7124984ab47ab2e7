"""Made-up evidence of a demo in which everything held, for tests to break."""

from __future__ import annotations

from dataclasses import replace

import pytest

from stepwell.core.retry import Retry
from stepwell.demo.evidence import Evidence, Exhausted, Kill, OrderSeen, StepSeen
from stepwell.demo.ledger import Effect, Request

POLICY = Retry(max_attempts=3, base=0.1)
STEPS = ("charge", "ship")
ORDERS = tuple(f"order-{number:02d}" for number in range(1, 13))
EXHAUSTED = ORDERS[:5]
KILL = Kill(sent=100.0, gone=100.1)


def key_of(order: str, step: str) -> str:
    """The key of a step."""
    return f"{order}:{step}"


def receipt_of(order: str, step: str) -> str:
    """The receipt of a step."""
    return f"receipt-{step}-{order}"


def request(order: str, step: str, attempt: int, arrived: float, outcome: str, recorded: bool = False) -> Request:
    """A request that is answered 50 ms after it came."""
    return Request(arrived, arrived + 0.05, order, step, key_of(order, step), attempt, outcome, recorded)


def _requests(order: str) -> list[Request]:
    """`charge` is reset after recording and tried again (or uses up a budget); `ship` is cut short by a kill."""
    if order in EXHAUSTED:
        charges = [
            request(order, "charge", 1, 0.0, "reset", True),
            request(order, "charge", 2, 0.2, "503"),
            request(order, "charge", 3, 0.5, "503"),
            request(order, "charge", 4, 50.0, "200"),
        ]
    else:
        charges = [request(order, "charge", 1, 0.0, "reset", True), request(order, "charge", 2, 0.2, "200")]
    held = replace(request(order, "ship", 1, 99.0, "200", True), ended=101.0)
    return [*charges, held, request(order, "ship", 1, 102.0, "200")]


def _seen(order: str) -> OrderSeen:
    charges = (1, 2, 3, 4) if order in EXHAUSTED else (1, 2)
    return OrderSeen(
        order,
        "completed",
        (
            StepSeen("charge", "completed", key_of(order, "charge"), charges, 0, receipt_of(order, "charge")),
            StepSeen("ship", "completed", key_of(order, "ship"), (1,), 1, receipt_of(order, "ship")),
        ),
    )


@pytest.fixture
def good() -> Evidence:
    """Twelve orders of two steps; five used up a budget, one kill, twelve resets after recording."""
    return Evidence(
        orders=ORDERS,
        policies=dict.fromkeys(STEPS, POLICY),
        requests=[each for order in ORDERS for each in _requests(order)],
        effects=[Effect(o, s, key_of(o, s), receipt_of(o, s)) for o in ORDERS for s in STEPS],
        kills=[KILL],
        exhausted=[Exhausted(order, "charge", key_of(order, "charge"), 3) for order in EXHAUSTED],
        retried=EXHAUSTED,
        seen=[_seen(order) for order in ORDERS],
    )
