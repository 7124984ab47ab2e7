"""The script of a storm of failures: what becomes of each attempt, and so every number that must come out of it."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Final

from system.support.fates import Asked, plain
from tally.numbers import Tally

from stepwell.metrics import instruments as i

ERRORS: Final = ("error", "after", "busy", "broken")
FINAL: Final = {
    "fatal": "fatal",
    "refused": "fatal",
    "hopeless": "fatal",
    "uncalled": "fatal",
    "large": "payload",
    "odd": "payload",
}
REASONS: Final = {"timeout": "timeout", "crash": "crash", "after": "retry_after", "busy": "retry_after"}
BUDGETS: Final = {"patient": 3, "strict": 3}
BUDGET: Final = 4

Budget = tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Leg:
    """One step of an execution: its fates by attempts, those of each budget apart. `backoffs`: what ends them, with
    another attempt (timer, manual) or without (cancel, gather). `wound`: what its last attempt met when it failed."""

    step: str
    budgets: tuple[Budget, ...]
    backoffs: str = "timer"
    wound: str = ""

    @property
    def fates(self) -> list[str]:
        return [fate for budget in self.budgets for fate in budget]


@dataclass(frozen=True, slots=True)
class Planned:
    """An execution, and the statuses in which it ends, one after the other where it is brought back."""

    id: str
    flow: str
    legs: tuple[Leg, ...]
    ends: tuple[str, ...] = ("completed",)

    @property
    def input(self) -> list[str]:
        return [leg.step for leg in self.legs]

    def paths(self) -> list[str]:
        """Where its steps stand, in order."""
        if self.flow == "abreast":
            return [f"gather.{branch}/{leg.step}" for branch, leg in enumerate(self.legs)]
        seen: Counter[str] = Counter()
        paths = []
        for leg in self.legs:
            seen[leg.step] += 1
            paths.append(leg.step if seen[leg.step] == 1 else f"{leg.step}#{seen[leg.step]}")
        return paths


def fates_of(plan: Iterable[Planned]) -> dict[tuple[str, str], list[str]]:
    """What the receiver must know."""
    return {(each.id, path): leg.fates for each in plan for path, leg in zip(each.paths(), each.legs, strict=True)}


def leg(step: str, *fates: str, **more: str) -> Leg:
    """A step within its first budget."""
    return Leg(step, (fates,), **more)


def catalogue() -> list[Planned]:
    """Every way in which a step can end, each in an execution of its own; all end without anybody's help."""
    plan: list[Planned] = []

    def add(end: str, only: Leg) -> None:
        plan.append(Planned(f"c{len(plan)}", "route", (only,), (end,)))

    for name in ("errand", "errand_on_a_thread"):
        told = ERRORS if name == "errand" else ERRORS[:2]
        for error in told:
            add("completed", leg(name, error, "ok"))
        add("completed", leg(name, "ok"))
        add("completed", leg(name, *(told[n % len(told)] for n in range(BUDGET - 1)), "ok"))
        add("error", leg(name, *(told[n % len(told)] for n in range(BUDGET))))
        for final in FINAL:
            if final != "uncalled" and (name == "errand" or final != "refused"):
                add("error", leg(name, "error", final))
    add("completed", leg("errand_apart", "crash", "error", "crash", "ok"))
    add("error", leg("errand_apart", *["crash"] * BUDGET))
    add("error", leg("errand_apart", "fatal"))
    add("completed", leg("hurried", "timeout", "error", "timeout", "ok"))
    add("error", leg("hurried", "timeout", "hopeless"))
    add("error", leg("hurried", "error", "error", "error", "timeout"))
    add("completed", leg("hurried_apart", "timeout", "crash", "ok"))
    add("error", leg("strict", "error", "timeout"))
    add("error", leg("strict", "uncalled"))
    add("error", leg("strict", "error", "error", "error"))
    return plan


def crowd(chance: random.Random, size: int) -> list[Planned]:
    """Executions of a few steps with fates that are drawn. Whatever fails is caught, so all complete."""
    plan = []
    for number in range(size):
        legs = tuple(_drawn(chance) for _ in range(chance.randint(1, 4)))
        plan.append(Planned(f"d{number}", "detour", legs))
    return plan


def _drawn(chance: random.Random) -> Leg:
    failures = [chance.choice(ERRORS) for _ in range(chance.choice((0, 0, 1, 1, 2, 3, 4)))]
    if len(failures) < BUDGET:
        failures.append("fatal" if chance.random() < 0.1 else "ok")
    return leg("errand", *failures)


def helped() -> list[Planned]:
    """Executions that end only with a person's help: which, their flow or the name of their step tells."""
    hopeless = leg("errand", "error", "hopeless")
    return [
        Planned(
            "retried-budget",
            "route",
            (leg("errand", "ok"), Leg("errand", (("error",) * BUDGET, ("after", "error", "ok")))),
            ("error", "completed"),
        ),
        Planned(
            "retried-twice",
            "route",
            (Leg("strict", (("timeout",), ("error",) * 3, ("ok",))),),
            ("error", "error", "completed"),
        ),
        Planned("retried-large", "route", (Leg("errand", (("large",), ("ok",))),), ("error", "completed")),
        Planned(
            "retried-crash",
            "route",
            (Leg("errand_apart", (("crash",) * BUDGET, ("crash", "ok"))),),
            ("error", "completed"),
        ),
        Planned("hurried-up", "route", (leg("patient", "error", "error", "ok", backoffs="manual"),)),
        Planned("cancelled-resting", "route", (leg("patient", "error", backoffs="cancel"),), ("cancelled",)),
        Planned(
            "cancelled-running",
            "route",
            (leg("errand", "error", "held:cancelled:error", wound="cancel"),),
            ("cancelled",),
        ),
        Planned("cancelled-at-work", "route", (leg("errand", "held:cancelled:ok"),), ("cancelled",)),
        Planned(
            "sibling",
            "abreast",
            (
                leg("patient", "error", "ok", backoffs="gather"),
                Leg("errand", (("error", "held:sibling:fatal"), ("error", "ok"))),
            ),
            ("error", "completed"),
        ),
        Planned("talker", "talk", (leg("errand", "error", "ok"), leg("errand", "ok"), hopeless), ("error",)),
    ]


def held(flow: str, size: int) -> list[Planned]:
    """Executions of which an attempt, the first or a later one, is in flight until the gate `storm` is released."""
    legs = [
        (leg("errand", "held:storm:ok"),),
        (leg("errand", "error", "error", "held:storm:error", "ok"),),
        (leg("errand", "ok"), leg("errand_on_a_thread", "error", "held:storm:fatal")),
        (leg("errand_apart", "held:storm:crash", "ok"), leg("errand", "ok")),
    ]
    ends = ["completed", "completed", "error" if flow == "route" else "completed", "completed"]
    return [
        Planned(f"held-{flow}-{number}", flow, legs[number % len(legs)], (ends[number % len(legs)],))
        for number in range(size)
    ]


# What follows from it.


def tally_of_plan(plan: Iterable[Planned]) -> Tally:
    """All that is counted of it where nothing interrupts it."""
    tally = Tally()
    for each in plan:
        for end in each.ends:
            tally.count(i.EXECUTIONS_ENDED, each.flow, end)
        for one in each.legs:
            _count(tally, each.flow, one)
    return tally


def _count(tally: Tally, flow: str, one: Leg) -> None:
    pair = flow, one.step
    number = 0
    for budget in one.budgets:
        for nth, gated in enumerate(budget, 1):
            number += 1
            fate = plain(gated)
            _attempt(tally, pair, one, fate, nth, number, nth == len(budget))


def _attempt(tally: Tally, pair: tuple[str, str], one: Leg, fate: str, nth: int, number: int, is_last: bool) -> None:
    """`nth` within its budget; `number` of all."""
    if fate == "crash":
        tally.count(i.STEP_CRASHES, *pair)
    if fate == "ok":
        tally.count(i.STEP_ATTEMPTS, *pair, "ok")
        tally.observe(i.STEP_ATTEMPTS_TO_SUCCESS, *pair, value=number)
        return
    ended = why_ended(one, fate, nth, is_last)
    timeout = fate == "timeout"
    tally.count(i.STEP_ATTEMPTS, *pair, "timeout" if timeout else "terminal" if ended else "retryable")
    if ended:
        tally.count(i.STEP_FAILURES, *pair, ended)
        return
    tally.count(i.STEP_RETRIES_SCHEDULED, *pair, REASONS.get(fate, "error"))
    tally.observe(i.STEP_ATTEMPTS_LEFT, *pair, value=BUDGETS.get(one.step, BUDGET) - nth)
    ends_with_attempt = one.backoffs in {"timer", "manual"}
    tally.count(i.RETRY_WAKEUPS if ends_with_attempt else i.BACKOFFS_ABANDONED, one.backoffs)


def why_ended(one: Leg, fate: str, nth: int, is_last: bool) -> str:
    """Why a failed attempt is the last one of its budget; empty if it is not."""
    if fate in FINAL:
        return FINAL[fate]
    if fate == "timeout" and one.step == "strict":
        return "deadline"
    if nth == BUDGETS.get(one.step, BUDGET):
        return "budget"
    return one.wound if is_last else ""


def late_starts(plan: Iterable[Planned]) -> int:
    """How many bodies began that were not the first of their step."""
    return sum(len(one.fates) - 1 for each in plan for one in each.legs)


def begun_by_hand(plan: Iterable[Planned]) -> int:
    """How many of those a person has started: with a new budget, or instead of a timer."""
    legs = [one for each in plan for one in each.legs]
    renewed = sum(len(one.budgets) - 1 for one in legs)
    return renewed + sum(len(one.fates) - 1 for one in legs if one.backoffs in {"manual", "gather"})


# What the receiver knows of it.


def coarse(tally: Tally) -> Counter[tuple[str, str, str]]:
    """Attempts as a receiver can tell them apart: ok, timeout, interrupted, or failed in whatever way."""
    found: Counter[tuple[str, str, str]] = Counter()
    for (flow, step, outcome), n in tally.counts[i.STEP_ATTEMPTS].items():
        found[flow, step, outcome if outcome in {"ok", "timeout", "interrupted"} else "failed"] += n
    return found


def tally_of_record(record: Sequence[Asked]) -> Counter[tuple[str, str, str]]:
    """The same from what the receiver was asked and has answered."""
    found: Counter[tuple[str, str, str]] = Counter()
    last = {asked.name: place for place, asked in enumerate(record)}
    for place, asked in enumerate(record):
        fate = plain(asked.fate)
        outcome = fate if fate in {"ok", "timeout"} else "failed"
        # It was asked again under the same number: whoever asked before is dead.
        found[asked.flow, asked.step, outcome if last[asked.name] == place else "interrupted"] += 1
    return found
