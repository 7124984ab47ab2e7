"""The world of the explorer: shards with clocks of their own, links that break on demand, actors that are slow."""

from __future__ import annotations

import math
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

from fakeredis._socket import FakeSocket
from sim.ahead import sees_at
from sim.dying import PartFailed
from sim.entries import command_entry
from sim.explore.failing import PART_OF_LINK, Bug, Failing
from sim.explore.peek import Peek, Row
from sim.explore.schedule import Setting
from sim.harness import ShardDied, SimShard, World
from sim.journal import Fate, Journal, SimLink, Weather

from stepwell.actors.kit.clock import SystemClock, VirtualClock
from stepwell.actors.kit.scheduler import ActorCrashed
from stepwell.core.attributes import Attributes
from stepwell.flow.definitions import FlowLike
from stepwell.store.inbox import InboxStore
from stepwell.store.requests import Command

# The hosts' wall clocks are wrong by so much.
HOST_AHEAD_SECONDS = 3_661.0
LINKS = ("mirror", "inbox", "leases", "members", "ingress", "client")


class Doom(Weather):
    """The weather that a schedule makes: what is to go wrong at which exchange of which link from now on."""

    def __init__(self) -> None:
        super().__init__()
        self._coming: dict[str, list[tuple[int, Fate]]] = {}
        self.happened: Counter[str] = Counter()
        self.tell: Callable[[str], None] = lambda _text: None

    def doom(self, link: str, fate: Fate, after: int = 0) -> None:
        """Such a fate for that link's exchange after so many more."""
        self._coming.setdefault(link, []).append((after, fate))

    def clear(self) -> None:
        """Nothing goes wrong any more."""
        self.down = False
        self._coming.clear()

    @property
    def threatens(self) -> frozenset[str]:
        """The links for which something is to come."""
        return frozenset(self._coming)

    def fate(self, link: str, commands: Sequence[Command]) -> Fate:
        coming = self._coming.get(link)
        if (
            not coming or not commands or commands[0][0] == "SCRIPT"
        ):  # the second half of an exchange that has met its fate
            return ""
        later = [(after - 1, fate) for after, fate in coming if after > 0]
        now = [fate for after, fate in coming if after == 0]
        later += [(0, fate) for fate in now[1:]]
        if later:
            self._coming[link] = later
        else:
            del self._coming[link]
        if not now:
            return ""
        self.happened[now[0]] += 1
        self.tell(f"the {link} link of a shard: {_FATES[now[0]]}" if link != "client" else _FATES[now[0]])
        return now[0]


_FATES: dict[Fate, str] = {
    "cut": "its connection breaks before anything is sent",
    "lost": "Redis does what was sent, the reply is lost",
    "torn": "Redis does the first half of what was sent, then the connection breaks",
    "repeated": "what was sent arrives twice",
    "dies before": "the process dies as it is about to send",
    "dies after": "Redis does what was sent, the process dies before it hears of it",
}


class DirectLink(SimLink):
    """A link that hands its commands to the fake server without packing and parsing them."""

    _socket: FakeSocket | None = None
    bug: Bug | None = None  # of the shard whose link it is

    def _round_trip(self, commands: Sequence[Command]) -> list[object]:
        carry = super()._round_trip
        if self.bug is None or not commands or commands[0][0] == "SCRIPT":  # that is but a part of an exchange
            return carry(commands)
        self.answered = []
        return self.bug.passes(PART_OF_LINK[self._name], lambda: carry(commands))

    def _carry(self, commands: Sequence[Command]) -> list[object]:
        socket = self._socket
        if socket is None:
            connection = self.client.connection_pool.get_connection()
            socket = self._socket = connection._sock
        raws: list[object] = []
        for command in commands:
            socket._process_command([_raw(each) for each in command])
            raws.append(socket.responses.get_nowait())
        return raws


def _raw(value: str | bytes | int) -> bytes:
    if type(value) is bytes:
        return value
    return value.encode() if type(value) is str else b"%d" % int(value)


class DirectJournal(DirectLink, Journal):
    """The same for the Mirror."""


class Drift:
    """A shard's clock: its own origin, and a speed that is a little off. `ahead`: by how many seconds its host's wall
    clock differs from that of other hosts."""

    def __init__(self, clock: VirtualClock, speed: float, origin: float, ahead: float) -> None:
        self.ahead = ahead
        self._clock = clock
        self._speed = speed
        self._origin = origin

    def monotonic(self) -> float:
        """The shard's seconds."""
        return self._origin + self._speed * self._clock.monotonic()

    def world(self, monotonic: float) -> float:
        """When that is by the world's clock, rather a bit later than earlier."""
        return (monotonic - self._origin) / self._speed + 1e-6


class ExploredShard(SimShard):
    """A shard in an explored world. `slow`: names of actors that get no turn. `leaves`: it hands over all it has."""

    def __init__(self, world: ExploredWorld, number: int, drift: Drift | None = None, **options: Any) -> None:
        self.explored = world
        self._drift = drift
        self.bug = Bug(self)
        self.failing = Failing(self)
        self.leaves = False
        clock = None if drift is None else SystemClock(drift.monotonic, lambda: time.time() + drift.ahead)
        super().__init__(world, number, clock=clock, **options)
        self.scheduler._random = world.chance
        client = world.connect()
        self.journal = DirectJournal(client, world.keys, world.scripts, world.weather, world.sent)
        self.journal.bug = self.bug
        self.mirror._link = self.journal
        self.slow: set[str] = set()

    def __repr__(self) -> str:
        return f"{self.shard_id} ({self.name})"

    @property
    def held_up(self) -> bool:
        """Whether a part of it gets no turns, so that what it keeps count of may be behind."""
        return bool(self.slow or self.paused)

    def _sim_link(self, name: str) -> SimLink:
        world = self.explored
        link = DirectLink(world.wire, world.keys, world.scripts, world.weather, name)
        link.bug = self.bug
        return link

    def next_due(self) -> float | None:
        dues = [due for due in (super().next_due(), self.failing.at) if due is not None]
        due = min(dues, default=None)
        return due if due is None or self._drift is None else self._drift.world(due)

    def leave(self) -> None:
        self.leaves = True
        super().leave()

    def hasten(self) -> None:
        """All of it that has not failed gets its turns again."""
        self.slow.clear()
        self.paused = set(self.failing.parts)

    @property
    def sweep_due(self) -> float:
        due = super().sweep_due
        return due if self._drift is None else self._drift.world(due)

    def part(self, chance: Any) -> bool:
        """One turn for somebody who has something to do; False if nobody has."""
        parts = [self._turn, self.runner.step, self._mirror_round, self._lease_round, self._read_round]
        if self.ingress is not None:
            parts.append(self._ingress_round)
        if self.bug.part:
            parts.append(self.bug.strikes)
        if self.failing.parts:
            parts.append(self.failing.go_on)
        chance.shuffle(parts)
        return any(part() for part in parts)

    def _turn(self) -> bool:
        runnable = self.scheduler._runnable
        held = [cell for cell in runnable if cell.name in self.slow]
        if not held:
            return self._step()
        rest = [cell for cell in runnable if cell.name not in self.slow]
        runnable.clear()
        runnable.extend(rest)
        try:
            return self._step()
        finally:
            if "scheduler" not in self.failing.parts:
                runnable.extend(held)

    def _step(self) -> bool:
        return self.bug.passes("scheduler", self.scheduler.step) > 0

    def _entered(self) -> int:
        return self.explored.peek.entered()

    def _next_look(self) -> float | None:
        peek = self.explored.peek
        dues = [peek.due_after(partition, until) for partition, until in self.reader._known_until.items()]
        return sees_at(self, min(dues)) if dues and min(dues) < math.inf else None

    def _ingress_round(self) -> bool:
        weather = self.explored.weather
        if not (self._entered() or weather.down or "ingress" in weather.threatens):
            return False
        return super()._ingress_round()

    def _read_round(self) -> bool:
        """Only where there is something to read, or to notice."""
        reader, world = self.reader, self.explored
        now = self.clock.monotonic()
        if self._draining or "reader" in self.paused or now < self._reader_until:
            return False
        weather = world.weather
        quiet = not (reader._changes or weather.down or "inbox" in weather.threatens)
        quiet = quiet and now < min(reader._look_due, reader._sweep_due)
        if quiet and not any(world.peek.unread(partition, after) for partition, after in reader._after.items()):
            return False
        before = len(self.scheduler._runnable)
        reader.run_once(None)
        return len(self.scheduler._runnable) > before


class ExploredWorld(World):
    """A world that a schedule decides on; `chance` is the stream of the beat under way."""

    weather: Doom

    def __init__(self, flows: Iterable[FlowLike], setting: Setting, chance: Any) -> None:
        super().__init__(flows, partitions=setting.partitions)
        self.setting = setting
        self.chance = self.random = chance
        self.weather = Doom()
        self.wire = self.connect()
        self.peek = Peek(self.server, self.keys)
        self._link = DirectLink(self.wire, self.keys, self.scripts, self.weather, "client")
        self._inboxes = InboxStore(self.wire, self.keys, self.scripts)
        self._inboxes._link = self._link
        self.parents = setting.parents
        self.stepped_ms = 0
        self.after_turn: Callable[[], None] = lambda: None
        if setting.sharing:
            self.share()
            self.look_seconds = 1.0

    def wall(self) -> float:
        """What the server's clock shows, in seconds."""
        return (self.clock.now_ms() + self.stepped_ms) / 1000

    def attributes_of(self, execution_id: str) -> Attributes | None:
        """Every second one has some."""
        number = sum(execution_id.encode())
        return {"own": execution_id, "third": number % 3, "odd": number % 4 == 1} if number % 2 else None

    def shard(self, **options: Any) -> ExploredShard:
        self._lives += 1
        drift = None
        if self.setting.drifts:
            speed = self.chance.choice([0.995, 0.999, 1.0, 1.001, 1.005])
            origin = self.chance.choice([0.0, 0.25, 1000.5, 86_400.0])
            drift = Drift(self.clock, speed, origin, self.chance.choice([0.0, -7_200.0, 300.0]))
        shard = ExploredShard(self, self._lives, drift, **options)
        self.shards.append(shard)
        shard.start()
        return shard

    def send(
        self, kind: str, execution_id: str, data: object = None, command_id: str = "", **fields: str | bytes
    ) -> str:
        self._commands += 1
        command_id = command_id or f"cmd-{self._commands}"
        entry = command_entry(kind, execution_id, data, command_id, self.clock.now_ms(), **fields)
        partition = self.keys.partition_of(execution_id)
        self._inboxes.send(partition, entry)
        return command_id

    def row(self, execution_id: str) -> Row:
        return self.peek.row(execution_id)

    def settle(self) -> None:
        for _ in range(20_000):
            worked = [self.turn(shard) for shard in list(self.shards)]
            if not any(worked):
                break
        else:
            raise RuntimeError("the world never comes to rest at one instant")
        for check in self.checks:
            check()

    def turn(self, shard: SimShard) -> bool:
        """One turn of somebody in a shard, and a look at what that did; False if nobody had anything to do."""
        try:
            worked = shard.part(self.chance)
        except ShardDied:
            self.after_turn()  # before anybody finds it dead
            self.crash(shard)
            worked = True
        except (PartFailed, ActorCrashed) as error:
            if not (isinstance(shard, ExploredShard) and shard.failing.has(error)):
                raise
            self.weather.tell(f"in {shard!r} {error}")
            worked = True
        if worked:
            self.after_turn()
        return worked


class _ServersTime:
    """What stands for the module `time` in the fake server."""

    def __init__(self, wall: Callable[[], float]) -> None:
        self.time = wall

    def __getattr__(self, name: str) -> Any:
        return getattr(time, name)


@contextmanager
def everybodys_time(world: ExploredWorld) -> Iterator[None]:
    """The server and its scripts read the world's time; who asks the host is told another one."""
    of_server = [
        module
        for name, module in list(sys.modules.items())
        if name.startswith("fakeredis.") and isinstance(getattr(module, "time", None), type(time))
    ]
    real, servers = time.time, _ServersTime(world.wall)
    time.time = lambda: world.clock.now_ms() / 1000 + HOST_AHEAD_SECONDS
    for module in of_server:
        vars(module)["time"] = servers
    try:
        yield
    finally:
        time.time = real
        for module in of_server:
            vars(module)["time"] = time
