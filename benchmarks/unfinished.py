"""Executions that have not ended, of which some back off, as their owners would have written them; see `filled`."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from typing import Final

from benchmarks.filled import FIRST_MS, SECRET, Filled, mixed
from stepwell.core.checkpoint import Checkpoint
from stepwell.core.ownership import next_rev
from stepwell.core.records import SIGNAL, STEP, Attempt, Failure, Meta, OpenOp, encode
from stepwell.core.status import OP_WAITING, STEP_BACKOFF, WAITING
from stepwell.core.token import step_token, token_seed

__all__ = ["Unfinished", "unfinished"]

EVERY_MS: Final = 20
DELAY_MS: Final = 3_600_000
ATTEMPTS: Final = 5
# Of a thousand executions: after which error so many back off; the others wait for a signal.
ERRORS: Final = {"": 700, "ConnectionError": 240, "TimeoutError": 59, "RateLimited": 1}


class Unfinished(Filled):
    """One that waits; `error` is what its step failed with, '' for one that waits for a signal."""

    __slots__ = ()
    PREFIX = "01JE9K4R"

    @property
    def checkpoint(self) -> Checkpoint:
        """What its owner has in memory: its first step has failed once and is due in an hour, or it waits."""
        created = FIRST_MS + self.number * EVERY_MS
        seed = token_seed(self.execution_id, 0, SECRET)
        path = "charge" if self.error else "wait"
        token, declared = step_token(seed, path, 0), created + 100
        op, attempts = OpenOp(SIGNAL, OP_WAITING, token, declared, "approval"), None
        if self.error:
            due = created + 300 + DELAY_MS
            failure = Failure(self.error, "no", where="shop/flows.py:12 in charge")
            failed = Attempt(1, created + 300, failure, created + 200, due, ATTEMPTS)
            op = OpenOp(STEP, STEP_BACKOFF, token, declared, path, 2, due_at=due, delay_ms=DELAY_MS)
            attempts = ("a:charge:1", encode(failed), None)
        return Checkpoint(
            execution_id=self.execution_id,
            meta=Meta(self.flow, created, "0" * 32, attributes=self.attributes),
            input=b'{"n":7}',
            seed=seed,
            status=WAITING,
            rev=next_rev(1, 1),
            open={path: op},
            attempts=attempts,
            started_at=created + 50,
        )


def unfinished(count: int) -> Iterator[Unfinished]:
    """So many, the first ones first; flows, plans and errors are mixed, each time in the same way."""
    return itertools.starmap(Unfinished, mixed(count, ERRORS))
