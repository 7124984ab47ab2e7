"""How one batch travels through a Redis Cluster: rounds of one pipeline per master, until each command is done.

No I/O: a driver sends what `round` gives, and tells what came back. Only what a master refused to execute (MOVED,
ASK, NOSCRIPT) goes out again; what may have been executed never does. Commands of one slot keep their order.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import Final

from redis.exceptions import AskError, ClusterDownError, MovedError, NoScriptError, TryAgainError

from stepwell.store.replies import MasterLost
from stepwell.store.requests import Command
from stepwell.store.scripts import Scripts
from stepwell.store.slots import Address, SlotMap, key_of, slot_of

__all__ = ["Pipeline", "Routing"]

# A slot that moves more often than this while one batch is under way has to be tried again later.
_ROUNDS_MAX: Final = 8

_ASKING: Final[Command] = ["ASKING"]


class Pipeline:
    """What one master gets in one round: `commands`, of whose replies those at `wanted` answer the batch's `places`."""

    __slots__ = ("commands", "master", "places", "wanted")

    def __init__(self, master: Address) -> None:
        self.master = master
        self.commands: list[Command] = []
        self.places: list[int] = []
        self.wanted: list[int] = []

    def add(self, place: int, command: Command, asking: bool) -> None:
        """Append a command of the batch."""
        if asking:
            self.commands.append(_ASKING)
        self.places.append(place)
        self.wanted.append(len(self.commands))
        self.commands.append(command)


class Routing:
    """One batch under way. `moved`: a master that knows better than the slot map; `stale`: the map may be wrong."""

    def __init__(self, commands: Sequence[Command], scripts: Scripts) -> None:
        self._commands = commands
        self._scripts = scripts
        self._pending: list[int] = list(range(len(commands)))
        self._asked: dict[int, Address] = {}
        self._told: dict[int, Address] = {}
        self._forgetful: set[Address] = set()
        self._rounds = 0
        self.replies: list[object] = [None] * len(commands)
        self.moved: Address | None = None
        self.stale = False

    def round(self, slots: SlotMap, avoided: Collection[Address]) -> list[Pipeline]:
        """The pipelines to send now, in flight together; none when every command has its reply."""
        pending, self._pending = self._pending, []
        self._rounds += 1
        if self._rounds > _ROUNDS_MAX:
            for place in pending:
                if type(self.replies[place]) is not NoScriptError:
                    self.replies[place] = TryAgainError("its slot is on the move between masters")
            return []
        routes = slots.route([self._commands[place] for place in pending], avoided)
        pipelines: dict[Address, Pipeline] = {}
        for place, route in zip(pending, routes, strict=True):
            asked = self._asked.pop(place, None)
            # What a node was told outlives a map that was read from one which has not heard of it yet.
            master = asked or self._told.pop(place, None) or route
            if master is None:
                self.replies[place] = ClusterDownError("no master serves its hash slot")
                self.stale = True
                continue
            if master not in pipelines:
                pipelines[master] = self._begin(master)
            command = self._commands[place]
            if type(self.replies[place]) is NoScriptError:
                command = self._scripts.with_text(command)
            pipelines[master].add(place, command, asked is not None)
        return list(pipelines.values())

    def _begin(self, master: Address) -> Pipeline:
        begun = Pipeline(master)
        if master in self._forgetful:
            self._forgetful.discard(master)
            begun.commands += self._scripts.load_commands()
        return begun

    def answered(self, pipeline: Pipeline, raws: Sequence[object], slots: SlotMap) -> None:
        """All replies of a pipeline have come."""
        for place, at in zip(pipeline.places, pipeline.wanted, strict=True):
            raw = raws[at]
            self.replies[place] = raw
            if type(raw) is NoScriptError:
                self._forgetful.add(pipeline.master)
                if at and pipeline.commands[at - 1] is _ASKING:
                    self._asked[place] = pipeline.master
                self._pending.append(place)
            elif isinstance(raw, MovedError):
                self.moved = self._told[place] = _elsewhere(raw, pipeline)
                key = key_of(self._commands[place])
                if key is not None:
                    slots.moved(slot_of(key), self.moved)
                self._pending.append(place)
            elif isinstance(raw, AskError):
                self._asked[place] = _elsewhere(raw, pipeline)
                self._pending.append(place)
            else:
                self.stale |= isinstance(raw, ClusterDownError)
        self._pending.sort()

    def lost(self, pipeline: Pipeline, error: Exception) -> None:
        """A master was not reached, or the connection broke, or what it did is not safe: all must be sent again."""
        host, port = pipeline.master
        for place in pipeline.places:
            self.replies[place] = MasterLost(f"the master {host}:{port} has not acknowledged it: {error}")
        self.stale = True


def _elsewhere(raw: AskError, pipeline: Pipeline) -> Address:
    return (raw.host or pipeline.master[0], raw.port)
