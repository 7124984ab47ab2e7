"""The Ingress: takes in what programs without a client write into the stream `ns:ingress`.

It does what a client would do: makes the execution, or puts the command into the inbox of its partition; then, and only
then, the entry is removed. Whatever breaks in between, the entry is taken in again, by us or by another shard, and has
its effect once, because its ids derive from its own. Any shard may do that for any partition.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator, Sequence
from typing import Final

from stepwell.actors.intake import Intake
from stepwell.actors.store_events import StoreObserver, StoreTrouble
from stepwell.core.clock import Clock
from stepwell.core.errors import StoreError
from stepwell.metrics.saying import say
from stepwell.store.ingress import START, IngressEntry, IngressStore
from stepwell.store.troubles import kind_of

logger = logging.getLogger("stepwell.ingress")
BLOCK_MS: Final = 500
READ_COUNT: Final = 100
# While so many entries can't be finished no others are taken up.
LEFT_MAX: Final = 1000
BATCH_BYTES: Final = 4 * 1024 * 1024
RETRY_SECONDS: Final = 0.25
PAUSE_SECONDS: Final = 0.5
LOOK_SECONDS: Final = 5.0
# A shard's lease has lapsed by then, so it is dead or useless.
CLAIM_IDLE_MS: Final = 15_000
TIDY_SECONDS: Final = 60.0
FORGET_IDLE_MS: Final = 60_000


class Ingress:
    """One round of `run_once` takes in what waits; every 5 s also what a dead shard has left.

    `outdated`: whether shards of a newer version are there, which see to that.
    """

    def __init__(
        self,
        store: IngressStore,
        intake: Intake,
        clock: Clock,
        pause: Callable[[float], object],
        observer: StoreObserver,
        outdated: Callable[[], bool] = lambda: False,
    ) -> None:
        self._store = store
        self._intake = intake
        self._clock = clock
        self._pause = pause
        self._observer = observer
        self._outdated = outdated
        self._left = 0  # entries that we took up and could not finish yet
        self._unsure = True  # there may be more of them: a reply was lost, or we are new
        self._again_at = 0.0
        self._look_due = 0.0
        self._tidy_due = clock.monotonic() + TIDY_SECONDS
        self._warned = False

    @property
    def next_at(self) -> float:
        """The monotonic second from which on there is something to do beside reading."""
        return min(self._look_due, self._again_at) if self._left or self._unsure else self._look_due

    def run_once(self, block_ms: int | None = BLOCK_MS) -> None:
        """One round."""
        try:
            self._round(block_ms)
            if self._warned:
                say(logger, "StoreTrouble", "the ingress is read again", level=logging.INFO, part="ingress")
            self._warned = False
        except StoreError as error:
            if not self._warned:
                told = "the ingress can't be read (%s); trying again"
                say(logger, "StoreTrouble", told, error, part="ingress", kind=kind_of(error))
            self._warned = True
            self._observer(StoreTrouble("ingress", kind_of(error), str(error)))
            self._unsure = True
            self._pause(PAUSE_SECONDS)

    def leave(self) -> None:
        """The end: nobody needs to claim anything from us, nor to find out that we are gone."""
        self._store.leave()

    def _round(self, block_ms: int | None) -> None:
        if self._outdated():
            # What we took up and have not finished is claimed by those that are newer: we don't ask for it any more.
            self._pause(PAUSE_SECONDS)
            return
        now = self._clock.monotonic()
        if (self._left or self._unsure) and now >= self._again_at:
            self._again()
        if now >= self._look_due:
            self._look(now)
        if self._left and block_ms is not None:
            block_ms = int(RETRY_SECONDS * 1000)
        if self._left < LEFT_MAX:
            self._take(self._store.read(block_ms, READ_COUNT))
        elif block_ms is not None:
            self._pause(RETRY_SECONDS)

    def _again(self) -> None:
        """What we took up and have not finished. It is read again: somebody may have claimed and finished it since, and
        so long as we ask for it nobody does."""
        self._intake.bury_again()
        self._left = 0
        after = START
        while page := self._store.mine(after, READ_COUNT):
            self._take(page)
            after = page[-1].entry_id
        self._unsure = False

    def _look(self, now: float) -> None:
        claimed = self._store.claim(CLAIM_IDLE_MS, READ_COUNT)
        if len(claimed) < READ_COUNT:
            self._look_due = now + LOOK_SECONDS
        self._take(claimed)
        if now >= self._tidy_due:
            self._tidy_due = now + TIDY_SECONDS
            self._take(self._store.adopt())
            idlers = self._store.idlers(FORGET_IDLE_MS)
            # To servers before 7.2 who waits for an entry in vain is idle, too.
            living = self._intake.living() if idlers else ()
            for consumer in idlers:
                if consumer not in living and self._store.forget(consumer):
                    told = "consumer %s of the ingress is gone and forgotten"
                    say(logger, "ConsumerForgotten", told, consumer, detail=consumer)

    def _take(self, entries: Sequence[IngressEntry]) -> None:
        for batch in _batches(entries):
            self._left += len(batch) - len(self._intake.take_in(batch))
        self._again_at = self._clock.monotonic() + RETRY_SECONDS


def _batches(entries: Sequence[IngressEntry]) -> Iterator[list[IngressEntry]]:
    """The entries in groups that one round trip can carry."""
    batch: list[IngressEntry] = []
    size = 0
    for entry in entries:
        if batch and (size > BATCH_BYTES or len(batch) >= READ_COUNT):
            yield batch
            batch, size = [], 0
        batch.append(entry)
        size += sum(map(len, entry.fields.values()))
    if batch:
        yield batch
