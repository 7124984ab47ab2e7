"""Leases over a store in memory, for tests of what they do in which round."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from stepwell.actors.holdings import Holdings
from stepwell.actors.kit.clock import VirtualClock
from stepwell.actors.leases import Leases
from stepwell.actors.membership import Membership, Owner
from stepwell.actors.store_events import StoreEvent
from stepwell.core.errors import StoreError
from stepwell.core.ownership import Member
from stepwell.store.leases import TTL_MS, Grant, Held, Lost, Renewed, Unanswered
from stepwell.store.link import LinkDown
from stepwell.store.members import Roll

PARTITIONS = 3
TTL = TTL_MS / 1000


class Store:
    """Leases in memory, whose exchanges take time and may fail."""

    def __init__(self, clock: VirtualClock) -> None:
        self.clock = clock
        self.held: dict[int, str] = {}
        self.lost: set[int] = set()
        self.lapsed: set[int] = set()
        self.silent: set[int] = set()
        self.seconds = 0.0
        self.down = False
        self.epoch = 100
        self.released: list[int] = []
        self.unclean: set[int] = set()  # left by somebody who died, and seen to by nobody since
        self.exchanges = 0
        self.meanwhile: dict[str, Callable[[], None]] = {}  # by what is asked: happens before its answer arrives

    def _exchange(self) -> None:
        self.exchanges += 1
        self.clock.advance(self.seconds)
        if self.down:
            raise LinkDown("down")

    def server_time_ms(self) -> int:
        self._exchange()
        self._pass("time")
        return self.clock.now_ms()

    def _pass(self, what: str) -> None:
        if what in self.meanwhile:
            self.meanwhile.pop(what)()

    def acquire(self, partitions: Sequence[int], owner: str, *_: object) -> list[Grant | Held | Unanswered]:
        self._exchange()
        answers: list[Grant | Held | Unanswered] = []
        for partition in partitions:
            if partition in self.silent:
                answers.append(Unanswered(partition, "its master is away"))
            elif partition in self.held:
                answers.append(Held(partition, self.held[partition]))
            else:
                self.epoch += 1
                self.held[partition] = f"{owner}|{self.epoch}|i|here,boot,1,1"
                answers.append(Grant(partition, self.epoch, self.held[partition], partition not in self.unclean, 0))
        self._pass("acquire")
        return answers

    def renew(self, grants: Sequence[Grant], ttl_ms: int) -> list[Renewed | Lost | Unanswered]:
        self._exchange()
        self._pass("renew")
        return [
            Unanswered(g.partition, "its master is away")
            if g.partition in self.silent
            else Lost(g.partition, "other|1|i|h")
            if g.partition in self.lost
            else Renewed(g.partition, 0, g.partition in self.lapsed)
            for g in grants
        ]

    def release(self, grants: Sequence[Grant]) -> list[bool]:
        self.released += [grant.partition for grant in grants]
        self.unclean -= {grant.partition for grant in grants}
        for grant in grants:
            self.held.pop(grant.partition, None)
        return [True] * len(grants)

    def pass_on(self, grants: Sequence[Grant]) -> None:
        for grant in grants:
            self.held.pop(grant.partition, None)

    def free(self, partition: int, value: str) -> bool:
        return self.held.pop(partition, None) is not None


class Roster:
    """The members, in memory."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self.members: dict[str, Member] = {}
        self.unreadable = False
        self.looks = 0
        self.left: list[str] = []

    def beat(self, shard_id: str, member: Member) -> None:
        self._store._exchange()
        self.members[shard_id] = member

    def leave(self, *shard_ids: str) -> None:
        self._store._exchange()
        self.left += shard_ids
        for each in shard_ids:
            self.members.pop(each, None)

    def read(self) -> Roll:
        self.looks += 1
        self._store._exchange()
        if self.unreadable:
            raise StoreError("Redis answered with an error: WRONGTYPE")
        return Roll(self._store.clock.now_ms(), dict(self.members))


class Stage:
    """Leases over that store; it notes what the Mirror, the dispatcher and the reader are told."""

    def __init__(self) -> None:
        self.clock = VirtualClock()
        self.store = Store(self.clock)
        self.holdings = Holdings(self.clock.monotonic)
        self.events: list[StoreEvent] = []
        self.checked: list[tuple[int, str | None]] = []
        self.told: list[object] = []
        self.gained: list[int] = []
        self.lost: list[int] = []
        self.ticks = 0
        self.told_ms: list[int] = []
        self.troubles = 0
        self.roster = Roster(self.store)
        owner = Owner("me", "i", "here,boot,1,1")
        self.leases = Leases(
            self.store,  # type: ignore[arg-type]
            owner,
            self.holdings,
            self,
            Membership(
                self.roster,  # type: ignore[arg-type]
                owner,
                PARTITIONS,
                TTL,
                self.clock.monotonic,
                lambda info: "dead" in info,
                lambda info: "dead" in info,
            ),
            self.events.append,
            self.tick,
            self.trouble,
        )
        self.leases.mirror = self  # type: ignore[assignment]
        self.leases.dispatcher = self  # type: ignore[assignment]
        self.leases.on_gained = lambda grant: self.gained.append(grant.partition)
        self.leases.on_lost = self.lost.append

    def monotonic(self) -> float:
        return self.clock.monotonic()

    def sync(self, server_ms: int, sent_monotonic: float, received_monotonic: float) -> None:
        assert sent_monotonic <= received_monotonic

    def tick(self, server_ms: int) -> None:
        self.ticks += 1
        self.told_ms.append(server_ms)

    def trouble(self) -> None:
        self.troubles += 1

    def lease_checked(self, partition: int, lease: str | None) -> None:
        self.checked.append((partition, lease))

    def tell(self, message: object) -> None:
        self.told.append(message)

    def acts_until(self, partition: int) -> float:
        return self.holdings._until[partition]


class Waits:
    """Stands for the event that a waiting round listens to: waiting takes virtual time, unless it is woken."""

    def __init__(self, stage: Stage) -> None:
        self._stage = stage
        self._set = False

    def set(self) -> None:
        self._set = True

    def clear(self) -> None:
        self._set = False

    def wait(self, seconds: float) -> None:
        if not self._set:
            self._stage.clock.advance(seconds)


def waits(stage: Stage) -> Stage:
    """The stage after its first round; from now on its rounds wait in virtual time."""
    stage.leases._wake = Waits(stage)  # type: ignore[assignment]
    stage.leases.round()
    return stage


def run_until(stage: Stage, seconds: float, meanwhile: Callable[[], None] = lambda: None) -> int:
    """Let its loop run for that long; how many rounds there were. A round that never ends is one of too many turns."""
    end = stage.clock.monotonic() + seconds
    before = stage.store.exchanges
    for _ in range(1000):
        meanwhile()
        stage.leases.run_once()
        if stage.clock.monotonic() >= end:
            return stage.store.exchanges - before
    raise AssertionError(f"it spins: {stage.store.exchanges - before} rounds")
