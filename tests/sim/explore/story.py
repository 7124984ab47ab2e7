"""A run in words that a person can follow: what happened in the world, turn by turn."""

from __future__ import annotations

import re
from collections.abc import Callable

import msgspec
from sim.explore.world import ExploredWorld
from sim.journal import Sent

from stepwell.actors.store_events import BatchWritten
from stepwell.store.leases import parse_lease
from stepwell.store.replies import Committed, Refused
from stepwell.store.requests import Commit, DeadLetter, Load, Restore

Tell = Callable[[str], None]
_SHORT = 160
_UNSAID = frozenset({"execution_id", "flow", "token", "key", "max_attempts"})


class Story:
    """Tells what a world's turns have done, as they do it."""

    def __init__(self, world: ExploredWorld, tell: Tell) -> None:
        self._world = world
        self._tell = tell
        self._sent = self._runs = self._events = self._store_events = 0

    def line(self, text: str) -> None:
        """One line, with the second of the world at which it was."""
        self._tell(f"{self._world.clock.monotonic():10.3f}  {text}")

    def go_on(self) -> None:
        """Tell what is new."""
        world = self._world
        for run in world.ledger.runs[self._runs :]:
            self.line(f"    {run.shard} begins {run.execution_id} {run.path}, attempt {run.attempt}")
        for sent in world.sent[self._sent :]:
            self.line(f"    {_sent(sent)}")
        for event in world.events[self._events :]:
            self.line(f"    {_event(event)}")
        for noted in world.store_events[self._store_events :]:
            if not isinstance(noted, BatchWritten):
                self.line(f"    {_event(noted)}")
        self._runs, self._sent = len(world.ledger.runs), len(world.sent)
        self._events, self._store_events = len(world.events), len(world.store_events)


def _sent(sent: Sent) -> str:
    request = sent.request
    lease = parse_lease(getattr(request, "lease", ""))
    who = "somebody" if lease is None else lease.incarnation
    if isinstance(request, Commit):
        said = f"{who} commits {request.execution_id} rev {request.rev}: {_changes(request)}"
    elif isinstance(request, Restore):
        said = f"{who} restores {request.execution_id} at rev {request.rev}, {request.status}"
    elif isinstance(request, DeadLetter):
        said = f"{who} buries entry {request.entry_id}: {request.reason}"
    elif isinstance(request, Load):
        return f"{request.execution_id} is loaded"
    else:
        said = f"{who} sends {request!r:.{_SHORT}}"
    return f"{said}{_fate(sent)}"


def _changes(commit: Commit) -> str:
    parts = [name for name, _ in commit.sets if name[1:2] == ":" or name in ("error", "result")]
    parts += [f"without {name}" for name in commit.dels]
    parts += [f"command {each.command_id}" for each in commit.applied if each.command_id]
    if commit.status_from != commit.status_to:
        parts.append(f"now {commit.status_to}")
    return ", ".join(parts) or "nothing of note"


def _fate(sent: Sent) -> str:
    if isinstance(sent.reply, Refused):
        return " -> Redis refuses for now"
    if sent.truth is None:
        return " -> never arrives"
    said = "written before" if isinstance(sent.truth, Committed) and sent.truth.dup else type(sent.truth).__name__
    return f" -> {said}" if sent.reply is not None else f" -> {said}, but the reply is lost"


def _event(event: object) -> str:
    words = re.sub(r"(?<=[a-z])(?=[A-Z])", " ", type(event).__name__).lower()
    given = msgspec.structs.asdict(event) if isinstance(event, msgspec.Struct) else vars(event)
    who = given.get("execution_id", "")
    rest = [f"{name} {value}" for name, value in given.items() if name not in _UNSAID and value not in ("", None)]
    return f"{who} {words}: {', '.join(rest)}"[:_SHORT].strip()
