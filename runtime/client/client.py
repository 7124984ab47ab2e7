"""The blocking client."""

from __future__ import annotations

import weakref
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from types import TracebackType

import redis

from stepwell.actors.kit.clock import SystemClock
from stepwell.client.address import Place, promised, resolve
from stepwell.client.commanding import CommandResult
from stepwell.client.reading import Dicts
from stepwell.client.searching import Page
from stepwell.client.talk import Talk
from stepwell.client.waiting import Json
from stepwell.client.wire import Wire
from stepwell.core.clock import Clock
from stepwell.core.errors import StoreError
from stepwell.core.moments import Moment
from stepwell.core.overview import Overview
from stepwell.core.redact import redact_url
from stepwell.flow.definitions import FlowLike
from stepwell.store import connect as connections
from stepwell.store.events import Gap, Seen

__all__ = ["Client"]


class Client:
    """Starts executions, waits for them, looks at them and sends them commands. Threads may share one.

    Where the data are: `url`, or the embedded server of `data_dir`; with neither `STEPWELL_REDIS_URL`, else the
    embedded server of `STEPWELL_DATA` or `./.stepwell`. Close it, or use it in a `with` block.

    Args:
        url: a `redis://`, `rediss://`, `unix://` or `redis+sentinel://` URL; of a cluster that of any node.
        data_dir: the data directory of an embedded server, which is started if it does not run.
        namespace: what the keys begin with; several namespaces share a server without touching each other.
        partitions: how many the namespace must have; None takes what it has (64 where it is new).
        durability: when a write counts: `relaxed`, `aof` or `replicated:N`; by default `STEPWELL_DURABILITY`, else
            as the namespace's workers have it.
        clock: what waits are measured with.
        new_id: makes ids for executions and commands.
        connect: makes the connection pool for a URL.

    Every method may raise StoreError when Redis can't be used; the message says what to do.
    """

    def __init__(
        self,
        url: str | None = None,
        *,
        data_dir: str | Path | None = None,
        namespace: str = "stepwell",
        partitions: int | None = None,
        durability: str | None = None,
        clock: Clock | None = None,
        new_id: Callable[[], str] | None = None,
        connect: Callable[[str], redis.Redis] = connections.connect,
    ) -> None:
        clock = clock or SystemClock()
        self._talk = Talk(namespace, partitions, clock, new_id, promised(durability))
        self._namespace = namespace
        self._place = Place(resolve(url, data_dir))
        # The embedded server is left even where nobody calls close().
        self._leave = weakref.finalize(self, self._place.leave)
        self._wire = Wire(self._place, connect, self._talk.view, clock)

    def start(
        self,
        flow: str | FlowLike,
        input: Mapping[str, object] | None = None,
        execution_id: str | None = None,
        *,
        attributes: Mapping[str, object] | None = None,
        unchecked: bool = False,
    ) -> str:
        """Start an execution and return its id. Without a worker it is queued until there is one.

        Starting the same id with the same flow and input again returns the execution that is there: a start may be
        repeated.

        Args:
            flow: a `@flow` function, or its name.
            input: the keyword arguments of the flow function, as a JSON object.
            execution_id: 1 to 128 letters, digits or `_.:@-`; a new one by default.
            attributes: words by which it is found again, such as `{"customer": "c7"}`: up to 16 texts (256 bytes),
                numbers or truth values. Everybody who may look sees them: no secrets. A start that is repeated
                changes none.
            unchecked: do not ask living workers whether they know the flow and its parameters.

        Raises:
            ExecutionExists: the id is taken by an execution of another flow or input.
            UnknownFlow: workers live, but none of them knows the flow.
            InvalidInput: the input does not fit the flow's parameters: by names and types where the function was given,
                by what workers publish of them where its name was: names, and kinds of JSON values. What is wrong
                within a value is noticed when the execution begins then, which ends in `error` for it.
            InvalidName: the id, or the name of the flow or of an attribute, has odd characters.
            UsageError: an attribute is none.
        """
        return self._wire.run(self._talk.start(flow, input, execution_id, unchecked, attributes))

    def result(self, execution_id: str, timeout: float | None = None) -> Json:
        """Wait for the end of an execution and return its result as plain JSON values.

        Args:
            execution_id: what `start` returned.
            timeout: seconds to wait at most; None waits without limit.

        Raises:
            ExecutionFailed: it ended in `error`, or
            ExecutionCancelled: it was cancelled.
            TimeoutError: it has not ended yet; the message says what it is doing, and why if it is parked.
            UnknownExecution: there is none of that id.
        """
        return self._wire.run(self._talk.result(execution_id, timeout))

    def describe(self, execution_id: str) -> dict[str, Json]:
        """All that is known about an execution: `id flow status input result rev steps open error` and times (ms).

        Raises UnknownExecution.
        """
        return self._wire.run(self._talk.describe(execution_id))

    def list(
        self,
        status: str | None = None,
        flow: str | None = None,
        limit: int = 100,
        *,
        error: str | None = None,
        attributes: Mapping[str, object] | None = None,
        since: Moment | None = None,
        until: Moment | None = None,
        cursor: str | None = None,
        backing_off: bool = False,
        step: str | None = None,
    ) -> Page:
        """Executions: `id flow status created_at updated_at attributes error` (its type, or None), times in ms.

        The latest come first, by when they ended or were parked, and what has not by when it was started. The list has
        a `cursor`: given with the same arguments it brings the next page. It may be there though fewer than `limit`
        were found: where few of very many fit, a page looks at 3,000 of them and comes back.

        Args:
            status: only those of this status.
            flow: only those of this flow.
            limit: how many at most.
            error: only those that are in error, or parked, for this type of error.
            attributes: only those with all of these attributes; values are compared as text.
            since: only those from then on: `"2h ago"`, `"2026-11-29T10:00Z"`, a datetime, or a timedelta ago.
            until: only those up to then.
            cursor: where the page before ended. Times stay the first page's, though they are worked out from now anew.
            backing_off: only those of which a step waits for its next attempt, by when it is due, the soonest first.
                Each has a `backoff`, too: `path step attempt max_attempts due_at error_type error others`, of the
                step that is due first (`attempt` is the coming one), and how many others of it back off. `error` is
                the type of its last attempt's error then, and `since` and `until` are by when they were started.
            step: with `backing_off`, only those of which a step of this name backs off; that one is told.

        Raises UsageError for a status that there is not, or of which none backs off, a time that is none, or the cursor
        of another listing.
        """
        found = self._talk.list(
            status,
            flow,
            limit,
            error=error,
            attributes=attributes,
            since=since,
            until=until,
            cursor=cursor,
            backing_off=backing_off,
            step=step,
        )
        return self._wire.run(found)

    def retry(self, execution_id: str, timeout: float | None = 10.0) -> CommandResult:
        """Bring a failed execution back with the same keys, un-park a parked one, or end current backoffs now.

        Waits up to `timeout` seconds until that is done. Raises UnknownExecution, or CommandRefused with the reason.
        """
        return self._wire.run(self._talk.retry(execution_id, timeout))

    def cancel(self, execution_id: str, timeout: float | None = 10.0) -> CommandResult:
        """Cancel an execution, once the attempts that run have ended.

        Waits up to `timeout` seconds until that is recorded. Raises UnknownExecution, or CommandRefused.
        """
        return self._wire.run(self._talk.cancel(execution_id, timeout))

    def signal(
        self, execution_id: str, name: str, payload: object = None, timeout: float | None = 10.0
    ) -> CommandResult:
        """Send a signal, for `wait_for(name)` in the flow; `payload` is anything that JSON can hold.

        Waits up to `timeout` seconds until it is recorded. Raises UnknownExecution, CommandRefused, PayloadError.
        """
        return self._wire.run(self._talk.signal(execution_id, name, payload, timeout))

    def dead_letters(
        self,
        limit: int = 100,
        *,
        reason: str | None = None,
        partition: int | str | None = None,
        text: str | None = None,
    ) -> Dicts:
        """What could not be applied, newest first: `id partition kind reason entry at cut fields`.

        Args:
            limit: how many at most.
            reason: only those of this kind: `malformed`, `no such execution`, `not applicable`, `kills its shard`,
                `input` or `id taken`.
            partition: only those of one partition, or of the `ingress` (they have no partition).
            text: only those with this text in the sentence that says why, in capitals or not.

        Raises UsageError for a kind or a partition that there is not.
        """
        return self._wire.run(self._talk.dead_letters(limit, reason, partition, text))

    def dead_letter(self, letter_id: str) -> dict[str, Json]:
        """One dead letter; `cut`: only the beginning of its entry is kept. Raises UnknownLetter."""
        return self._wire.run(self._talk.dead_letter(letter_id))

    def replay_letter(self, letter_id: str) -> None:
        """Send a dead letter's entry again: it goes back to where it came from, and the letter is gone.

        Raises UnknownLetter, or UsageError where only a part of the entry was kept.
        """
        self._wire.run(self._talk.replay_letter(letter_id))

    def drop_letter(self, letter_id: str) -> None:
        """Remove a dead letter for good. Raises UnknownLetter."""
        self._wire.run(self._talk.drop_letter(letter_id))

    def events(
        self,
        execution_id: str | None = None,
        *,
        since: Moment | float | None = None,
        follow: bool = True,
        stay: bool = False,
        away: Callable[[StoreError | None], None] | None = None,
    ) -> Iterator[Seen | Gap]:
        """What happens, as it is recorded: every change of one execution, or of all.

        Each partition keeps its last 10,000 changes or so. A `Gap` tells where some are missing: cut off before they
        were read, or lost by Redis. Events of a partition come in their order, all together by the server's time.

        Args:
            execution_id: only its events; the iterator ends when it has ended.
            since: begin there: so many seconds back, or any time that `list` takes, by the server's clock; 0: with what
                comes now; None: with the oldest that is kept.
            follow: wait for what comes; else end with what there is.
            stay: go on after the end of that execution (somebody may retry it).
            away: called with the reason when Redis can't be read for a second, and with None when it can be again:
                then an outage may last for as long as it likes. Without it, a minute of it is a StoreError.

        Raises (at the first item) UnknownExecution, or UsageError for a `since` that is no time.
        """
        following = self._talk.events(execution_id, since, follow, stay, self._wire.in_words(away))
        while told := self._wire.run(following.more()):
            yield from told

    def now_ms(self) -> int:
        """The time now, by the server's clock (ms): what times of executions are to be compared with. 0 where there is
        no namespace yet."""
        return self._wire.run(self._talk.now_ms())

    def workers(self) -> Dicts:
        """The workers that live: `id host pid at flows` (`at`: of its last sign of life, ms; `flows`: names)."""
        return self._wire.run(self._talk.workers())

    def why_idle(self) -> str:
        """Why no worker is seen at work, and what to do: none runs, or Redis is full and takes no signs of life of
        those that do. Empty where one lives."""
        return self._wire.run(self._talk.why_idle())

    def overview(self, before: Overview | None = None, limit: int = 20) -> Overview:
        """The namespace at a glance: what `stepwell top` shows. Its cost depends on the number of partitions only.

        Args:
            before: an earlier one, which tells how fast the numbers of executions change.
            limit: how many entries there may be of each kind, such as steps that back off.
        """
        return self._wire.run(self._talk.overview(before, limit))

    def close(self) -> None:
        """Close the connections; the last user of an embedded server stops it. Closing twice is harmless."""
        self._leave.detach()
        self._wire.close()

    def __enter__(self) -> Client:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, tb: TracebackType | None) -> None:
        self.close()

    def __repr__(self) -> str:
        return f"Client({redact_url(self._place.url)!r}, namespace={self._namespace!r})"
