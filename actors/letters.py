"""Entries on their way to the dead letters: each is sent once, and told of when Redis says that it is there."""

from __future__ import annotations

import logging

from stepwell.actors.holdings import Holdings
from stepwell.actors.kit.ref import AnyRef
from stepwell.actors.mirror import Mirror
from stepwell.actors.store_events import DeadLettered, StoreObserver, StoreTrouble
from stepwell.metrics.saying import say
from stepwell.store.replies import Broken, Buried, Reply
from stepwell.store.requests import DeadLetter

__all__ = ["Letters"]

logger = logging.getLogger("stepwell.inbox")


class Letters:
    """For one thread: its owner's, who hears of each letter as `LetterAnswered` and passes that on."""

    def __init__(self, holdings: Holdings, mirror: Mirror, observer: StoreObserver) -> None:
        self._holdings = holdings
        self._mirror = mirror
        self._observer = observer
        self._sent: dict[tuple[int, str], DeadLetter] = {}
        self._stuck: set[int] = set()  # partitions that take no letters: it was logged

    def has(self, partition: int, entry_id: str) -> bool:
        """Whether that entry is on its way. What was sent under an earlier lease may never be answered."""
        letter = self._sent.get((partition, entry_id))
        return letter is not None and letter.lease == self._holdings.lease(partition)

    def send(self, owner: AnyRef, letter: DeadLetter) -> None:
        """Send it, unless that entry is on its way."""
        if not self.has(letter.partition, letter.entry_id):
            self._sent[letter.partition, letter.entry_id] = letter
            self._mirror.send(owner, letter)

    def answered(self, letter: DeadLetter, reply: Reply) -> None:
        """Tell of it, if it was this letter that has moved the entry."""
        if self._sent.get((letter.partition, letter.entry_id)) is letter:
            del self._sent[letter.partition, letter.entry_id]
        if isinstance(reply, Buried):
            self._stuck.discard(letter.partition)
            if letter.repeated or not reply.dup:
                self._observer(DeadLettered(letter.kind, letter.reason))
        elif isinstance(reply, Broken):
            self._cannot_bury(letter, reply)

    def _cannot_bury(self, letter: DeadLetter, reply: Broken) -> None:
        """Each sweep tries again; that is logged once for a partition."""
        self._observer(StoreTrouble("mirror", "refused", f"{letter.entry_id} can't be buried: {reply.message}"))
        if letter.partition not in self._stuck:
            self._stuck.add(letter.partition)
            told = "entry %s of the inbox of partition %d can't be buried: %s"
            where = (letter.entry_id, letter.partition, reply.said)
            say(logger, "StoreTrouble", told, *where, level=logging.ERROR, part="mirror", kind="refused")

    def lost(self, partition: int) -> None:
        """The partition is not ours any more."""
        self._stuck.discard(partition)
        for key in [each for each in self._sent if each[0] == partition]:
            del self._sent[key]
