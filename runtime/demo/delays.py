"""The delays between attempts, measured by the receiver: from an answer to the next attempt's request."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise

from stepwell.demo.evidence import Evidence
from stepwell.demo.habits import Pair
from stepwell.demo.ledger import Request

__all__ = ["Delay", "by_pair", "measured"]


@dataclass(frozen=True, slots=True)
class Delay:
    """One measured delay, in seconds.

    Attributes:
        pair: order and step.
        attempt: the failed attempt that it follows.
        failure: which failure of its budget that was, from 1.
        seconds: from the answer to the next attempt's first request.
        floor: the least that the policy and `Retry-After` allow.
        asked: whether `Retry-After` asked for more than the policy.
        across_kill: whether the worker was killed, or another was not up yet, meanwhile.
    """

    pair: Pair
    attempt: int
    failure: int
    seconds: float
    floor: float
    asked: bool = False
    across_kill: bool = False


def by_pair(requests: Sequence[Request]) -> dict[Pair, list[Request]]:
    """Requests grouped by order and step, in the order of their arrival."""
    grouped: dict[Pair, list[Request]] = {}
    for request in requests:
        grouped.setdefault((request.order, request.step), []).append(request)
    return grouped


def measured(evidence: Evidence) -> list[Delay]:
    """All delays that a policy decided.

    An attempt that a crash cut short keeps its number when it runs again, so those are no delays; nor is the
    wait for a person's `retry` after the last attempt of a budget.
    """
    found: list[Delay] = []
    for pair, sent in by_pair(evidence.requests).items():
        policy = evidence.policies.get(pair[1])
        if policy is None:
            continue
        for before, after in pairwise(sent):
            failure = (before.attempt - 1) % policy.max_attempts + 1
            if after.attempt == before.attempt or failure == policy.max_attempts or before.ended is None:
                continue
            own = policy.floor(failure)
            across = any(before.ended < kill.gone and kill.sent < after.arrived for kill in evidence.kills)
            seconds = after.arrived - before.ended
            found.append(
                Delay(pair, before.attempt, failure, seconds, max(own, before.asked), before.asked > own, across)
            )
    return found
