"""The demo's judge: it finds each kind of violation, and nothing where everything held."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import pytest

from stepwell.demo.evidence import Evidence, Kill, OrderSeen, StepSeen
from stepwell.demo.ledger import Effect, Request
from stepwell.demo.verdict import last_line, running_at, verify

LAST = "order-12"  # neither exhausted nor otherwise special


def with_request(evidence: Evidence, order: str, step: str, place: int, **changes: object) -> Evidence:
    """The evidence with the request at that place among its step's changed."""
    found = [n for n, each in enumerate(evidence.requests) if (each.order, each.step) == (order, step)][place]
    requests = list(evidence.requests)
    requests[found] = replace(requests[found], **changes)
    return replace(evidence, requests=requests)


def with_step(evidence: Evidence, order: str, path: str, **changes: object) -> Evidence:
    """The evidence with one step changed, as the runtime shows it."""

    def changed(seen: OrderSeen) -> OrderSeen:
        steps = tuple(replace(s, **changes) if (seen.order, s.path) == (order, path) else s for s in seen.steps)
        return replace(seen, steps=steps)

    return replace(evidence, seen=[changed(seen) for seen in evidence.seen])


def added(evidence: Evidence, *requests: Request) -> Evidence:
    """The evidence with requests added at the end."""
    return replace(evidence, requests=[*evidence.requests, *requests])


def again(evidence: Evidence, order: str, step: str, **changes: object) -> Request:
    """The last request of a step, changed."""
    return replace([r for r in evidence.requests if (r.order, r.step) == (order, step)][-1], **changes)


def without_order(evidence: Evidence) -> Evidence:
    return replace(evidence, seen=evidence.seen[:-1])


def parked_order(evidence: Evidence) -> Evidence:
    return replace(evidence, seen=[*evidence.seen[:-1], replace(evidence.seen[-1], status="parked")])


def step_left_out(evidence: Evidence) -> Evidence:
    last = evidence.seen[-1]
    return replace(evidence, seen=[*evidence.seen[:-1], replace(last, steps=last.steps[:1])])


def step_too_many(evidence: Evidence) -> Evidence:
    last = evidence.seen[-1]
    extra = StepSeen("charge#2", "completed", "k", (), 0, "")
    return replace(evidence, seen=[*evidence.seen[:-1], replace(last, steps=(*last.steps, extra))])


def shared_key(evidence: Evidence) -> Evidence:
    for place in (0, 1):
        evidence = with_request(evidence, LAST, "ship", place, key=f"{LAST}:charge")
    return with_step(evidence, LAST, "ship", key=f"{LAST}:charge")


def never_sent(evidence: Evidence) -> Evidence:
    kept = [r for r in evidence.requests if (r.order, r.step) != (LAST, "ship")]
    return replace(evidence, requests=kept)


def second_effect(evidence: Evidence) -> Evidence:
    # Under another key: an effect counts by what was ordered, not by its key.
    return replace(evidence, effects=[*evidence.effects, Effect(LAST, "charge", "another key", "r")])


def lost_effect(evidence: Evidence) -> Evidence:
    return replace(evidence, effects=[e for e in evidence.effects if (e.order, e.step) != (LAST, "ship")])


def foreign_effect(evidence: Evidence) -> Evidence:
    return replace(evidence, effects=[*evidence.effects, Effect("order-99", "charge", "k", "r")])


def ran_again(evidence: Evidence) -> Evidence:
    return added(evidence, again(evidence, LAST, "charge", arrived=103.0, ended=103.1))


def unexplained_request(evidence: Evidence) -> Evidence:
    return added(evidence, again(evidence, LAST, "ship", arrived=104.0, ended=104.1))


def over_budget(evidence: Evidence) -> Evidence:
    extra = [again(evidence, LAST, "ship", attempt=n, arrived=100.0 * n, ended=100.0 * n + 1) for n in (2, 3, 4)]
    return with_step(added(evidence, *extra), LAST, "ship", attempts=(1, 2, 3, 4))


def too_early(evidence: Evidence) -> Evidence:
    return with_request(evidence, LAST, "charge", 1, arrived=0.149)


def asked_for_more(evidence: Evidence) -> Evidence:
    return with_request(evidence, LAST, "charge", 0, asked=1.0)


def few_running(evidence: Evidence) -> Evidence:
    for order in evidence.orders[4:]:
        evidence = with_request(evidence, order, "ship", 0, ended=99.5)
    return evidence


def few_resets(evidence: Evidence) -> Evidence:
    for order in evidence.orders[9:]:
        evidence = with_request(evidence, order, "charge", 0, recorded=False)
    return evidence


def exhausted_too_early(evidence: Evidence) -> Evidence:
    return replace(evidence, exhausted=[replace(evidence.exhausted[0], attempts=2), *evidence.exhausted[1:]])


def new_key_after_retry(evidence: Evidence) -> Evidence:
    return replace(evidence, exhausted=[replace(evidence.exhausted[0], key="an older key"), *evidence.exhausted[1:]])


BROKEN: dict[str, tuple[Callable[[Evidence], Evidence], str]] = {
    "an order is unknown": (without_order, f"{LAST} is unknown to the runtime"),
    "an order is not completed": (parked_order, f"{LAST} is parked, not completed"),
    "a step is not completed": (step_left_out, f"ship of {LAST} is not completed"),
    "a step that no flow has": (step_too_many, f"{LAST} has a step charge#2 that its flow does not have"),
    "a step failed": (
        lambda e: with_step(e, LAST, "ship", status="failed"),
        f"ship of {LAST} is not completed",
    ),
    "two keys for one step": (
        lambda e: with_request(e, LAST, "charge", 1, key="another"),
        f"charge of {LAST} was sent with 2 different keys",
    ),
    "no key": (lambda e: with_request(e, LAST, "charge", 1, key=""), f"charge of {LAST} was sent without a key"),
    "one key for two steps": (shared_key, f"ship of {LAST} shares its key with charge of {LAST}"),
    "the runtime shows another key": (
        lambda e: with_step(e, LAST, "ship", key="another"),
        f"ship of {LAST} was sent with another key than the runtime shows",
    ),
    "nothing was sent": (never_sent, f"ship of {LAST}: no request reached the receiver"),
    "two effects": (second_effect, f"charge of {LAST} had 2 side effects"),
    "no effect": (lost_effect, f"ship of {LAST} had 0 side effects"),
    "an effect that nobody ordered": (foreign_effect, "a side effect that nobody ordered: charge of order-99"),
    "another result": (
        lambda e: with_step(e, LAST, "ship", receipt="other"),
        f"ship of {LAST} recorded another receipt than the receiver gave",
    ),
    "attempt numbers are missing": (
        lambda e: with_step(e, LAST, "charge", attempts=(1, 3)),
        f"charge of {LAST} has attempts [1, 3]: numbers are missing",
    ),
    "an attempt that is not recorded": (
        lambda e: with_step(e, LAST, "charge", attempts=(1,)),
        f"charge of {LAST} sent attempts [1, 2], of 1 recorded",
    ),
    "a request that no attempt explains": (
        unexplained_request,
        f"ship of {LAST} was sent 3 times, in 2 attempts and interruptions",
    ),
    "a recorded step ran again": (ran_again, f"charge of {LAST} ran again after it was recorded as completed"),
    "more attempts than the budget": (over_budget, f"ship of {LAST} had 4 attempts, more than its budget of 3"),
    "a delay under its floor": (
        too_early,
        f"charge of {LAST}: attempt 2 came 0.099 s after attempt 1, under the floor of 0.1 s",
    ),
    "a delay under Retry-After": (
        asked_for_more,
        f"charge of {LAST}: attempt 2 came 0.150 s after attempt 1, under the floor of 1 s",
    ),
    "no kill": (lambda e: replace(e, kills=[]), "the worker was never killed"),
    "a kill while too few steps ran": (few_running, "only 4 steps ran when the worker was killed (kill 1)"),
    "too few resets after recording": (few_resets, "only 9 connections were reset after the effect was recorded"),
    "no exhausted budget": (
        lambda e: replace(e, exhausted=[], retried=[]),
        "only 0 executions used up a budget and were retried",
    ),
    "an exhausted one was not retried": (
        lambda e: replace(e, retried=e.retried[1:]),
        "order-01 ended in error and was not retried",
    ),
    "an error before the budget was used up": (
        exhausted_too_early,
        "charge of order-01 ended in error after 2 attempts, its budget is 3",
    ),
    "another key after the retry": (new_key_after_retry, "charge of order-01 has another key since its retry"),
    "the worker did not drain": (
        lambda e: replace(e, worker_exit=1),
        "the worker ended with exit code 1 when it was asked to stop",
    ),
}


def test_nothing_is_found_where_everything_held(good: Evidence) -> None:
    assert verify(good) == []


@pytest.mark.parametrize("kind", BROKEN)
def test_each_kind_of_violation_is_named(kind: str, good: Evidence) -> None:
    break_it, sentence = BROKEN[kind]
    assert any(problem.startswith(sentence) for problem in verify(break_it(good))), verify(break_it(good))


def test_an_attempt_cut_short_by_a_kill_is_no_delay(good: Evidence) -> None:
    at_once = with_request(good, LAST, "ship", 1, arrived=101.001, ended=101.002)
    assert verify(at_once) == []


def test_a_worker_and_its_successor_may_differ_a_little_in_what_time_it_is(good: Evidence) -> None:
    asked = with_request(good, LAST, "charge", 0, asked=1.0)  # it is answered at 0.05
    killed = replace(asked, kills=[*good.kills, Kill(sent=0.06, gone=0.1)])

    def early(arrived: float) -> list[str]:
        problems = verify(with_request(killed, LAST, "charge", 1, arrived=arrived))
        return [problem for problem in problems if problem.startswith(f"charge of {LAST}")]

    assert early(arrived=0.81) == []
    assert early(arrived=0.79) == [
        f"charge of {LAST}: attempt 2 came 0.740 s after attempt 1, under the floor of 1 s",
    ]


def test_interruptions_before_a_retry_explain_requests_too(good: Evidence) -> None:
    order = "order-01"
    cut_short = Request(-1.0, -0.9, order, "charge", f"{order}:charge", 1, "503", False)
    more = replace(good, requests=[cut_short, *good.requests])
    assert verify(more) == [f"charge of {order} was sent 5 times, in 4 attempts and interruptions"]
    told = [replace(each, interruptions=1) if each.order == order else each for each in good.exhausted]
    assert verify(replace(more, exhausted=told)) == []


def test_a_request_that_was_never_answered_ran_at_the_kill(good: Evidence) -> None:
    unanswered = with_request(good, LAST, "ship", 0, ended=None)
    assert (LAST, "ship") in running_at(good.kills[0], unanswered)


def test_many_problems_of_one_kind_are_shortened(good: Evidence) -> None:
    problems = verify(replace(good, effects=[]))
    assert problems[4:6] == ["charge of order-03 had 0 side effects", "... and 19 more of that kind"]


def test_the_last_line_counts_steps_and_attempts(good: Evidence) -> None:
    assert last_line(good) == "demo: 24 steps, 46 attempts, 1 key per step, 1 side effect per step"
