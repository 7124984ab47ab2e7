"""The Intake: gives entries of the ingress their effects, as a client would, and removes those that have theirs.

Nothing that a user wrote runs here: an entry that ends its shard would come back to end the next.
"""

from __future__ import annotations

import functools
import logging
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final

from redis.exceptions import RedisError

from stepwell.actors import store_events
from stepwell.actors.ingress_entries import NotTaken, ToCommand, ToStart, read_ingress
from stepwell.actors.newer import Newer
from stepwell.actors.store_events import StoreObserver
from stepwell.client.commanding import entry_fields
from stepwell.client.starting import Offers, Start, creation, identity, misfits, served_by, taken
from stepwell.core.clock import Clock
from stepwell.core.errors import InvalidInput
from stepwell.core.letters import LetterKind
from stepwell.flow.registry import Registry
from stepwell.metrics.saying import say
from stepwell.store import queries
from stepwell.store.ingress import BuryIngress, IngressEntry, IngressStore
from stepwell.store.link import Link
from stepwell.store.replies import UNREACHABLE, Broken, Buried, Created, Exists, Refused, failure, order
from stepwell.store.requests import Command, Create

logger = logging.getLogger("stepwell.ingress")
# A command may come before the start that it belongs to is through; that takes no longer than a claim.
WAIT_FOR_START_SECONDS: Final = 60.0
# What stands for the ingress where partitions are told apart.
INGRESS: Final = -1

Workers = Callable[[], Sequence[Mapping[str, object]]]


@dataclass(slots=True)
class _Batch:
    """What becomes of entries that are taken in together."""

    now_ms: int
    starts: list[ToStart] = field(default_factory=list)
    commands: list[ToCommand] = field(default_factory=list)
    done: list[str] = field(default_factory=list)  # have their effects, or never had one
    letters: list[BuryIngress] = field(default_factory=list)
    finished: list[str] = field(default_factory=list)  # and are removed
    left: list[str] = field(default_factory=list)  # are of a newer format

    def bury(self, entry_id: str, kind: LetterKind, reason: str) -> None:
        """Make it a dead letter."""
        self.letters.append(BuryIngress(entry_id, kind, reason, self.now_ms))


class Intake:
    """`link` writes what becomes of an entry; `workers` tells the heartbeats of the living."""

    def __init__(
        self,
        store: IngressStore,
        link: Link,
        registry: Registry,
        workers: Workers,
        clock: Clock,
        observer: StoreObserver,
        newer: Newer | None = None,
    ) -> None:
        self._store = store
        self._link = link
        self._keys = link.keys
        self._registry = registry
        self._workers = workers
        self._clock = clock
        self._observer = observer
        self._newer = Newer() if newer is None else newer
        self._since: dict[str, float] = {}  # commands that wait for the start of their execution
        self._unsure: dict[str, BuryIngress] = {}  # letters, by their entries, of which no reply was heard

    def take_in(self, entries: Sequence[IngressEntry]) -> list[str]:
        """Write the effects of entries, then remove those that have theirs.

        Returns the ids of those that need nothing more of us: they are removed, or left to a newer version.

        What raises (LinkDown, StoreRefused, StoreError) or is not among them can be taken in again.
        """
        batch = _Batch(self._clock.now_ms())
        for entry in entries:
            self._read(batch, entry)
        self._start(batch)
        self._settle(batch)
        if batch.commands:
            self._send(batch)
            self._settle(batch)
        for entry_id in batch.finished:
            self._since.pop(entry_id, None)
        return batch.finished + batch.left

    def living(self) -> set[object]:
        """The shards that live, by name, as their consumers are called."""
        return {beat.get("id") for beat in self._workers()}

    def _read(self, batch: _Batch, entry: IngressEntry) -> None:
        if not entry.fields:
            batch.done.append(entry.entry_id)  # removed before we came to it
            return
        if self._is_newer(entry):
            batch.left.append(entry.entry_id)
            return
        try:
            asked = read_ingress(entry)
        except NotTaken as error:
            batch.bury(entry.entry_id, "malformed", str(error))
            return
        if isinstance(asked, ToStart):
            batch.starts.append(asked)
        else:
            batch.commands.append(asked)

    def _is_newer(self, entry: IngressEntry) -> bool:
        """Left pending: who reads that format claims it. Others may claim it too, and leave it likewise."""
        known = self._newer.has_entry(INGRESS, entry.entry_id)
        if known or not self._newer.entry(INGRESS, entry.entry_id, entry.fields):
            return known
        self._observer(store_events.LeftAlone("ingress"))
        return True

    def _settle(self, batch: _Batch) -> None:
        """Remove what has its effect, and move the rest of what is decided to the dead letters."""
        self._store.finish(batch.done)
        batch.finished += batch.done
        letters, batch.done, batch.letters = batch.letters, [], []
        batch.finished += self._bury(letters)

    def bury_again(self) -> None:
        """Find out what became of letters whose reply was lost: if they are there, nobody else will tell of them."""
        if self._unsure:
            self._bury(list(self._unsure.values()))

    def _bury(self, letters: Sequence[BuryIngress]) -> list[str]:
        """The ids of entries that are dead letters now. Each is told of once, by whoever has moved it."""
        before = set(self._unsure)
        self._unsure.update({letter.entry_id: letter for letter in letters})
        buried = []
        for letter, reply in zip(letters, self._link.execute(letters), strict=True):
            if isinstance(reply, Refused) and reply.kind == UNREACHABLE:
                continue
            del self._unsure[letter.entry_id]
            if isinstance(reply, Buried):
                buried.append(letter.entry_id)
                if letter.entry_id in before or not reply.dup:
                    self._observer(store_events.DeadLettered(letter.kind, letter.reason))
            elif not isinstance(reply, Refused):
                told, entry = "entry %s of the ingress can't be buried: %s", letter.entry_id
                of = {"part": "ingress", "kind": "refused", "entry": entry}
                say(logger, "StoreTrouble", told, entry, reply, level=logging.ERROR, of=of)
        return buried

    # Starts.

    def _start(self, batch: _Batch) -> None:
        fitting = []
        served = functools.cache(lambda: served_by(self._workers()))  # asked once, and only if it matters
        for asked in batch.starts:
            problem = self._misfit(asked.start, served)
            if problem:
                batch.bury(asked.entry_id, "input", problem)
            else:
                fitting.append(asked)
        requests = [creation(asked.start, batch.now_ms) for asked in fitting]
        started = 0
        for asked, request, reply in zip(fitting, requests, self._link.execute(requests), strict=True):
            if isinstance(reply, Created):
                started += 1
                batch.done.append(asked.entry_id)
            elif isinstance(reply, Exists):
                self._exists(batch, asked, request, reply)
            elif not isinstance(reply, Refused):
                reason = reply.message if isinstance(reply, Broken) else repr(reply)
                batch.bury(asked.entry_id, "not applicable", f"execution {asked.start.execution_id}: {reason}")
        if started:
            self._observer(store_events.IngressTaken("start", started))

    def _misfit(self, start: Start, served: Callable[[], Sequence[Offers]]) -> str:
        """Why the input fits the flow as no living worker has it; empty if it fits one, or if nobody has the flow."""
        flow = self._registry.find(start.flow)
        own: object = None
        problem = ""
        if flow is not None:
            try:
                flow.input.check(start.input)
                return ""
            except InvalidInput as error:
                problem = str(error)
            own = flow.input.offer()
        others = [flows[start.flow] for flows in served() if start.flow in flows and flows[start.flow] != own]
        elsewhere = misfits(start, others)
        return "" if others and not elsewhere else problem or elsewhere

    def _exists(self, batch: _Batch, asked: ToStart, request: Create, found: Exists) -> None:
        flow, there = found.flow, found.input_hash
        if not (flow and there):
            query = queries.heads(self._keys, [asked.start.execution_id], ["meta"])
            flow, there = identity(query.parse(self._link.call(query.commands))[0])
        problem = taken(asked.start, request.input_hash, flow, there)
        if problem:
            batch.bury(asked.entry_id, "id taken", problem)
        else:
            batch.done.append(asked.entry_id)
            self._observer(store_events.DuplicateSuppressed("start", asked.start.execution_id))

    # Commands.

    def _send(self, batch: _Batch) -> None:
        ready = self._ready(batch)
        sends: list[Command] = []
        for asked in ready:
            fields = entry_fields(asked.verb, asked.execution_id, asked.command_id, asked.data, batch.now_ms)
            sends += queries.send(self._keys, self._keys.partition_of(asked.execution_id), fields).commands
        sent: Counter[str] = Counter()
        # One by one: an inbox that is broken or can't be reached holds up no other.
        for asked, raw in zip(ready, self._link.attempt(sends), strict=True):
            wrong = failure(raw) if isinstance(raw, RedisError) else None
            if wrong is None:
                sent[asked.verb] += 1
                batch.done.append(asked.entry_id)
            elif isinstance(wrong, Broken):
                batch.bury(asked.entry_id, "not applicable", f"{asked.verb} of {asked.execution_id}: {wrong.message}")
        for verb, count in sent.items():
            self._observer(store_events.IngressTaken(verb, count))

    def _ready(self, batch: _Batch) -> list[ToCommand]:
        """Commands that may go: to executions that are there, or that nothing older can bring any more."""
        exists: list[Command] = [["EXISTS", self._keys.row(asked.execution_id)] for asked in batch.commands]
        ready: list[ToCommand] = []
        early: list[ToCommand] = []
        for asked, raw in zip(batch.commands, self._link.attempt(exists), strict=True):
            if not isinstance(raw, RedisError):
                (ready if raw else early).append(asked)
        if early:
            oldest = self._store.oldest()
            ready += [asked for asked in early if not self._waits(asked.entry_id, oldest)]
        return sorted(ready, key=lambda asked: order(asked.entry_id))

    def _waits(self, entry_id: str, oldest: str | None) -> bool:
        if oldest is None or order(oldest) >= order(entry_id):
            return False
        now = self._clock.monotonic()
        return now - self._since.setdefault(entry_id, now) < WAIT_FOR_START_SECONDS
