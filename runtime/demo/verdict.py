"""Judges the evidence: what was promised, and whether enough went wrong to show it."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from itertools import pairwise

from stepwell.core.status import COMPLETED, STEP_COMPLETED
from stepwell.demo.delays import by_pair, measured
from stepwell.demo.evidence import Evidence, Kill
from stepwell.demo.habits import Pair

__all__ = ["count_attempts", "last_line", "running_at", "verify"]

RUNNING_AT_KILL_MIN = 5
RESETS_MIN = 10
EXHAUSTED_MIN = 5
SHOWN_MAX = 5  # problems of one kind that are spelled out
# By so much a worker and its successor may differ in what they take for Redis' time: each asks once, maybe on a busy
# machine, and the successor waits for what is left of a delay by its own clock.
CLOCKS_SECONDS = 0.25

Judge = Callable[[Evidence], Iterable[str]]


def verify(evidence: Evidence) -> list[str]:
    """What broke, one sentence each; empty if every promise held and was put to the test."""
    return [problem for judge in _JUDGES for problem in _shortened(list(judge(evidence)))]


def last_line(evidence: Evidence) -> str:
    """The line that the demo ends with when nothing broke."""
    steps = sum(len(order.steps) for order in evidence.seen)
    return f"demo: {steps} steps, {count_attempts(evidence)} attempts, 1 key per step, 1 side effect per step"


def count_attempts(evidence: Evidence) -> int:
    """Attempts of all steps; one that ran again after a crash counts once."""
    return sum(len(step.attempts) for order in evidence.seen for step in order.steps)


def running_at(kill: Kill, evidence: Evidence) -> set[Pair]:
    """The steps whose request was with the receiver before the worker was killed and until it was gone."""
    return {
        (request.order, request.step)
        for request in evidence.requests
        if request.arrived < kill.sent and (request.ended is None or request.ended > kill.gone)
    }


def _pairs(evidence: Evidence) -> list[Pair]:
    return [(order, step) for order in evidence.orders for step in evidence.policies]


def _completion(evidence: Evidence) -> Iterator[str]:
    seen = {order.order: order for order in evidence.seen}
    for name in evidence.orders:
        order = seen.get(name)
        if order is None:
            yield f"{name} is unknown to the runtime"
            continue
        if order.status != COMPLETED:
            yield f"{name} is {order.status}, not completed"
        done = {step.path for step in order.steps if step.status == STEP_COMPLETED}
        for path in evidence.policies:
            if path not in done:
                yield f"{path} of {name} is not completed"
        for extra in done - evidence.policies.keys():
            yield f"{name} has a step {extra} that its flow does not have"


def _keys(evidence: Evidence) -> Iterator[str]:
    grouped = by_pair(evidence.requests)
    told = {(order.order, step.path): step.key for order in evidence.seen for step in order.steps}
    owner: dict[str, Pair] = {}
    for pair in _pairs(evidence):
        keys = {request.key for request in grouped.get(pair, [])}
        order, step = pair
        if not keys:
            yield f"{step} of {order}: no request reached the receiver"
        elif "" in keys:
            yield f"{step} of {order} was sent without a key"
        elif len(keys) > 1:
            yield f"{step} of {order} was sent with {len(keys)} different keys"
        elif pair in told and keys != {told[pair]}:
            yield f"{step} of {order} was sent with another key than the runtime shows"
        for key in keys - {""}:
            if owner.setdefault(key, pair) != pair:
                yield f"{step} of {order} shares its key with {' of '.join(reversed(owner[key]))}"


def _effects(evidence: Evidence) -> Iterator[str]:
    counted = Counter((effect.order, effect.step) for effect in evidence.effects)
    for order, step in _pairs(evidence):
        count = counted.pop((order, step), 0)
        if count != 1:
            yield f"{step} of {order} had {count} side effects"
    for order, step in counted:
        yield f"a side effect that nobody ordered: {step} of {order}"


def _results(evidence: Evidence) -> Iterator[str]:
    receipts = {(effect.order, effect.step): effect.receipt for effect in evidence.effects}
    for order in evidence.seen:
        for step in order.steps:
            if step.status == STEP_COMPLETED and step.receipt != receipts.get((order.order, step.path)):
                yield f"{step.path} of {order.order} recorded another receipt than the receiver gave"


def _attempts(evidence: Evidence) -> Iterator[str]:
    grouped = by_pair(evidence.requests)
    earlier = {(each.order, each.step): each.interruptions for each in evidence.exhausted}
    for order in evidence.seen:
        for step in order.steps:
            pair = (order.order, step.path)
            requests = grouped.get(pair, [])
            numbers = {request.attempt for request in requests}
            most = len(step.attempts) + step.interruptions + earlier.get(pair, 0)
            if list(step.attempts) != list(range(1, len(step.attempts) + 1)):
                yield f"{step.path} of {order.order} has attempts {list(step.attempts)}: numbers are missing"
            elif numbers != set(step.attempts):
                yield f"{step.path} of {order.order} sent attempts {sorted(numbers)}, of {len(step.attempts)} recorded"
            elif len(requests) > most:
                yield (
                    f"{step.path} of {order.order} was sent {len(requests)} times, in {most} attempts and interruptions"
                )


def _reruns(evidence: Evidence) -> Iterator[str]:
    # A step begins when the one before it is recorded as completed: from then on that one must be silent.
    grouped = by_pair(evidence.requests)
    for order in evidence.orders:
        for step, following in pairwise(evidence.policies):
            begun = min((request.arrived for request in grouped.get((order, following), [])), default=math.inf)
            if any(request.arrived > begun for request in grouped.get((order, step), [])):
                yield f"{step} of {order} ran again after it was recorded as completed"


def _budgets(evidence: Evidence) -> Iterator[str]:
    failed = {(each.order, each.step) for each in evidence.exhausted}
    for (order, step), requests in by_pair(evidence.requests).items():
        policy = evidence.policies.get(step)
        budgets = 2 if (order, step) in failed else 1
        most = max(request.attempt for request in requests)
        if policy is not None and most > policy.max_attempts * budgets:
            yield f"{step} of {order} had {most} attempts, more than its budget of {policy.max_attempts}"


def _delays(evidence: Evidence) -> Iterator[str]:
    for delay in measured(evidence):
        if delay.seconds < delay.floor - (CLOCKS_SECONDS if delay.across_kill else 0.0):
            order, step = delay.pair
            yield (
                f"{step} of {order}: attempt {delay.attempt + 1} came {delay.seconds:.3f} s after attempt"
                f" {delay.attempt}, under the floor of {delay.floor:g} s"
            )


def _kills(evidence: Evidence) -> Iterator[str]:
    if not evidence.kills:
        yield "the worker was never killed"
    for number, kill in enumerate(evidence.kills, 1):
        running = len(running_at(kill, evidence))
        if running < RUNNING_AT_KILL_MIN:
            yield (
                f"only {running} steps ran when the worker was killed (kill {number}):"
                f" at least {RUNNING_AT_KILL_MIN} must"
            )


def _resets(evidence: Evidence) -> Iterator[str]:
    resets = sum(request.reset_after_recording for request in evidence.requests)
    if resets < RESETS_MIN:
        yield f"only {resets} connections were reset after the effect was recorded: at least {RESETS_MIN} must be"


def _exhaustion(evidence: Evidence) -> Iterator[str]:
    retried = set(evidence.retried)
    counted = 0
    keys = {(order.order, step.path): step.key for order in evidence.seen for step in order.steps}
    for each in evidence.exhausted:
        budget = evidence.policies[each.step].max_attempts if each.step in evidence.policies else 0
        if each.attempts != budget:
            yield f"{each.step} of {each.order} ended in error after {each.attempts} attempts, its budget is {budget}"
        elif each.order not in retried:
            yield f"{each.order} ended in error and was not retried"
        elif keys.get((each.order, each.step), each.key) != each.key:
            yield f"{each.step} of {each.order} has another key since its retry"
        else:
            counted += 1
    if counted < EXHAUSTED_MIN:
        yield f"only {counted} executions used up a budget and were retried: at least {EXHAUSTED_MIN} must"


def _drain(evidence: Evidence) -> Iterator[str]:
    if evidence.worker_exit != 0:
        yield f"the worker ended with exit code {evidence.worker_exit} when it was asked to stop"


_JUDGES: tuple[Judge, ...] = (
    _completion,
    _keys,
    _effects,
    _results,
    _attempts,
    _reruns,
    _budgets,
    _delays,
    _kills,
    _resets,
    _exhaustion,
    _drain,
)


def _shortened(problems: list[str]) -> list[str]:
    if len(problems) <= SHOWN_MAX:
        return problems
    return [*problems[:SHOWN_MAX], f"... and {len(problems) - SHOWN_MAX} more of that kind"]
