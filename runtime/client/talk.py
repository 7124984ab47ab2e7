"""Every request that a client can make, as conversations; what the blocking and the asyncio client have in common."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from stepwell.client import backing_off as backing
from stepwell.client import commanding, idle, letters, listing, overview, reading, starting, waiting
from stepwell.client.commanding import CommandResult
from stepwell.client.facts import NamespaceView
from stepwell.client.following import Away, Following
from stepwell.client.ids import new_ids
from stepwell.client.moves import Conversation
from stepwell.client.searching import Page
from stepwell.client.waiting import Json
from stepwell.core.clock import Clock
from stepwell.core.errors import UsageError
from stepwell.core.moments import Moment
from stepwell.core.overview import Overview
from stepwell.flow.definitions import FlowLike
from stepwell.store.durability import Durability

__all__ = ["Talk"]


class Talk:
    """Makes conversations about one namespace. Raises UsageError where the namespace's name or size is no good."""

    def __init__(
        self,
        namespace: str,
        partitions: int | None,
        clock: Clock,
        new_id: Callable[[], str] | None = None,
        durability: Durability | None = None,
    ) -> None:
        self.view = NamespaceView(namespace, partitions, clock, durability)
        self._clock = clock
        self._new_id = new_id or new_ids(clock)

    def start(
        self,
        flow: str | FlowLike,
        input: Mapping[str, object] | None,
        execution_id: str | None,
        unchecked: bool,
        attributes: Mapping[str, object] | None = None,
    ) -> Conversation[str]:
        """Client.start."""
        start = starting.prepare(flow, input, execution_id, self._new_id, attributes)
        return starting.start(self.view, start, unchecked)

    def result(self, execution_id: str, timeout: float | None) -> Conversation[Json]:
        """Client.result."""
        return waiting.result(self.view, self._clock, execution_id, timeout)

    def describe(self, execution_id: str) -> Conversation[dict[str, Json]]:
        """Client.describe."""
        return reading.describe(self.view, execution_id)

    def list(
        self,
        status: str | None,
        flow: str | None,
        limit: int,
        *,
        error: str | None = None,
        attributes: Mapping[str, object] | None = None,
        since: Moment | None = None,
        until: Moment | None = None,
        cursor: str | None = None,
        backing_off: bool = False,
        step: str | None = None,
    ) -> Conversation[Page]:
        """Client.list."""
        looked_for = listing.wanted(status, flow, error, attributes)
        if backing_off:
            return backing.backing_off(self.view, looked_for, limit, step, since, until, cursor)
        if step is not None:
            raise UsageError("a step chooses among those that back off: ask for backing off, too, or leave it out")
        return listing.listing(self.view, looked_for, limit, since, until, cursor)

    def retry(self, execution_id: str, timeout: float | None) -> Conversation[CommandResult]:
        """Client.retry."""
        return commanding.command(self.view, self._clock, "retry", execution_id, self._new_id(), timeout)

    def cancel(self, execution_id: str, timeout: float | None) -> Conversation[CommandResult]:
        """Client.cancel."""
        return commanding.command(self.view, self._clock, "cancel", execution_id, self._new_id(), timeout)

    def signal(
        self, execution_id: str, name: str, payload: object, timeout: float | None
    ) -> Conversation[CommandResult]:
        """Client.signal."""
        data = commanding.signal_data(name, payload)
        return commanding.command(self.view, self._clock, "signal", execution_id, self._new_id(), timeout, data)

    def dead_letters(
        self,
        limit: int,
        reason: str | None = None,
        partition: int | str | None = None,
        text: str | None = None,
    ) -> Conversation[reading.Dicts]:
        """Client.dead_letters."""
        return letters.listing(self.view, limit, reason, partition, text)

    def dead_letter(self, letter_id: str) -> Conversation[dict[str, Json]]:
        """Client.dead_letter."""
        return letters.letter(self.view, letter_id)

    def replay_letter(self, letter_id: str) -> Conversation[None]:
        """Client.replay_letter."""
        return letters.replay(self.view, letter_id)

    def drop_letter(self, letter_id: str) -> Conversation[None]:
        """Client.drop_letter."""
        return letters.drop(self.view, letter_id)

    def events(
        self,
        execution_id: str | None,
        since: Moment | float | None,
        follow: bool,
        stay: bool,
        away: Away | None = None,
    ) -> Following:
        """Client.events: a conversation for each of its parts."""
        return Following(self.view, self._clock, execution_id, since, follow, stay, away)

    def now_ms(self) -> Conversation[int]:
        """Client.now_ms."""
        yield from self.view.keys()
        return self.view.time_ms()

    def workers(self) -> Conversation[reading.Dicts]:
        """Client.workers."""
        return reading.workers(self.view)

    def why_idle(self) -> Conversation[str]:
        """Client.why_idle."""
        return idle.why_idle(self.view)

    def overview(self, before: Overview | None, limit: int) -> Conversation[Overview]:
        """Client.overview."""
        return overview.overview(self.view, before, limit)
