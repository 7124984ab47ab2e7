"""A namespace full of executions, those that have ended, written as their owners would have written them, only faster.

The rows come from checkpoints by the product's own rules, and the script that restores rows writes them and their
lists.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import ClassVar, Final

from msgspec.structs import replace

from benchmarks.bare import Bare
from stepwell.core.checkpoint import Checkpoint
from stepwell.core.ownership import next_rev
from stepwell.core.records import Attempt, Fact, FailedStep, Failure, Meta, TerminalError, encode
from stepwell.core.row import fields_of
from stepwell.core.status import COMPLETED, ERROR
from stepwell.core.token import step_token, token_seed
from stepwell.core.transitions import dues, place_of, score_of
from stepwell.store.flight import pack
from stepwell.store.keys import Keys
from stepwell.store.requests import Command, Restore
from stepwell.store.scripts import Scripts

__all__ = ["EVERY_MS", "FIRST_MS", "SECRET", "Filled", "Finished", "checkpoint", "fill", "finished", "mixed"]

FIRST_MS: Final = 1_764_000_000_000
EVERY_MS: Final = 50
"""One ends every so many ms: a million in 14 hours."""
CUSTOMERS: Final = 10_000
BATCH: Final = 500
LEASE: Final = "bench/0|1|filled|host,boot,1,2"
SECRET: Final = bytes(32)
# Of a thousand executions: how many are of each flow, of each plan, and end with each error.
FLOWS: Final = {"checkout": 600, "ship": 300, "refund": 98, "audit": 2}
PLANS: Final = {"free": 700, "pro": 290, "enterprise": 10}
ENDS: Final = {"": 950, "ConnectionError": 40, "ValueError": 9, "CardDeclined": 1}


@dataclass(frozen=True, slots=True)
class Filled:
    """One of them; `error` is the type of its error, '' for none."""

    PREFIX: ClassVar[str]
    number: int
    flow: str
    plan: str
    error: str

    @property
    def execution_id(self) -> str:
        """As long as those that clients make."""
        return f"{self.PREFIX}{self.number:018d}"

    @property
    def attributes(self) -> dict[str, str]:
        """What it is found by."""
        return {"customer": f"c{self.number * 7 % CUSTOMERS}", "plan": self.plan}


class Finished(Filled):
    """One that has ended."""

    __slots__ = ()
    PREFIX = "01JE3Z9V"

    @property
    def meta(self) -> Meta:
        """Its facts; it took a second."""
        return Meta(self.flow, self.ended_at - 1000, "0" * 32, attributes=self.attributes)

    @property
    def ended_at(self) -> int:
        """In ms."""
        return FIRST_MS + self.number * EVERY_MS


def finished(count: int) -> Iterator[Finished]:
    """So many, the first ones first; flows, plans and errors are mixed, each time in the same way."""
    return itertools.starmap(Finished, mixed(count, ENDS))


def mixed(count: int, errors: dict[str, int]) -> Iterator[tuple[int, str, str, str]]:
    """So many numbers, each with a flow, a plan and one of these errors: each is drawn as often as it is to be among a
    thousand."""
    drawn = _spread(FLOWS, 7), _spread(PLANS, 11), _spread(errors, 17)
    flows, plans, ends = map(itertools.cycle, drawn)
    return zip(range(count), flows, plans, ends, strict=False)


def _spread(shares: dict[str, int], step: int) -> list[str]:
    """A thousand names by their shares, in no order; lists of different length never fall into step."""
    names = [name for name, share in shares.items() for _ in range(share)]
    length = len(names) - step  # 993, 989, 983: they have no divisor in common
    return [names[place * 389 % len(names)] for place in range(length)]


def checkpoint(of: Finished) -> Checkpoint:
    """What its owner had in memory when it ended: one step, and its result or its error."""
    meta, ended = of.meta, of.ended_at
    seed = token_seed(of.execution_id, 0, SECRET)
    token = step_token(seed, "noop", 0)
    failed = FailedStep("noop", token, 1)
    failure = Failure(of.error, "no", "fatal", "shop/flows.py:12 in noop")
    fact = Fact(1, token, ended - 500, ended, started_at=ended - 400)
    if of.error:
        fact = replace(fact, status="failed", error=failure, name="noop")
    return Checkpoint(
        execution_id=of.execution_id,
        meta=meta,
        input=b'{"n":7}',
        seed=seed,
        status=ERROR if of.error else COMPLETED,
        rev=next_rev(1, 1),
        seq=1,
        facts=("noop", encode(fact), None),
        fact_count=1,
        attempts=("a:noop:1", encode(Attempt(1, ended, failure, ended - 400)), None) if of.error else None,
        error=TerminalError(of.error, "no", ended, 1, failed) if of.error else None,
        result=None if of.error else b'{"turn":7}',
        started_at=ended - 500,
        ended_at=ended,
    )


def restoring(keys: Keys, cp: Checkpoint) -> Restore:
    """What writes its row and its lists."""
    due, backoff = dues(cp)
    return Restore(
        partition=keys.partition_of(cp.execution_id),
        execution_id=cp.execution_id,
        lease=LEASE,
        rev=cp.rev,
        commit_id="filled",
        now_ms=cp.ended_at or cp.meta.created_at,
        status=cp.status,
        live=score_of(due),
        fields=fields_of(cp),
        flow=cp.meta.flow,
        place=place_of(cp),
        backoff=score_of(backoff),
        attributes=cp.meta.attributes,
    )


def fill(url: str, keys: Keys, checkpoints: Iterable[Checkpoint]) -> Iterator[int]:
    """Write them; tells now and then how many there are.

    Raises RuntimeError where the server refuses one.
    """
    scripts = Scripts()
    with Bare(url) as wire:
        setup: list[Command] = [["SET", part.lease, LEASE] for part in keys.parts]
        setup += [["HSET", keys.meta, "format", "1", "partitions", str(keys.partitions)], *scripts.load_commands()]
        wire.batch(pack(setup), len(setup))
        written = 0
        several = iter(checkpoints)
        while batch := [restoring(keys, each).args(keys, scripts) for each in itertools.islice(several, BATCH)]:
            for reply in wire.batch(pack(batch), len(batch)):
                if not isinstance(reply, int):
                    raise RuntimeError(f"a row could not be written: the server answered {reply!r:.200}")
            written += len(batch)
            yield written
        wire.batch(pack([["DEL", part.lease] for part in keys.parts]), keys.partitions)
