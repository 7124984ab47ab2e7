"""Leases: what may be acted on, and until when; what is taken, renewed, lost and given back."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import pytest

from stepwell.actors.holdings import Holdings
from stepwell.actors.kit.clock import VirtualClock
from stepwell.actors.leases import MARGIN_SECONDS, RENEW_SECONDS, RETRY_SECONDS, TTL_MS, Leases, Owner
from stepwell.actors.messages import PartitionLost
from stepwell.actors.store_events import Fenced, StoreEvent
from stepwell.store.leases import Grant, Held, Lost, Renewed
from stepwell.store.link import LinkDown

PARTITIONS = 3


class Store:
    """Leases in memory, whose exchanges take time and may fail."""

    def __init__(self, clock: VirtualClock) -> None:
        self.clock = clock
        self.held: dict[int, str] = {}
        self.lost: set[int] = set()
        self.seconds = 0.0
        self.down = False
        self.epoch = 100
        self.released: list[int] = []
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

    def acquire(self, partitions: Sequence[int], owner: str, *_: object) -> list[Grant | Held]:
        self._exchange()
        answers: list[Grant | Held] = []
        for partition in partitions:
            if partition in self.held:
                answers.append(Held(partition, self.held[partition]))
            else:
                self.epoch += 1
                self.held[partition] = f"{owner}|{self.epoch}|i|here,boot,1,1"
                answers.append(Grant(partition, self.epoch, self.held[partition], True, 0))
        self._pass("acquire")
        return answers

    def renew(self, grants: Sequence[Grant], ttl_ms: int) -> list[Renewed | Lost]:
        self._exchange()
        self._pass("renew")
        return [
            Lost(g.partition, "other|1|i|h") if g.partition in self.lost else Renewed(g.partition, 0, False)
            for g in grants
        ]

    def release(self, grants: Sequence[Grant]) -> list[bool]:
        self.released += [grant.partition for grant in grants]
        for grant in grants:
            self.held.pop(grant.partition, None)
        return [True] * len(grants)

    def free(self, partition: int, value: str) -> bool:
        return self.held.pop(partition, None) is not None


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
        self.leases = Leases(
            self.store,  # type: ignore[arg-type]
            Owner("me", "i", "here,boot,1,1"),
            self.holdings,
            self,
            PARTITIONS,
            self.events.append,
            lambda info: "dead" in info,
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


@pytest.fixture
def stage() -> Stage:
    return Stage()


def test_free_partitions_are_taken_and_told(stage: Stage) -> None:
    stage.leases.round()
    assert stage.holdings.partitions() == stage.gained == [0, 1, 2]
    assert all(stage.holdings.may_act(p) for p in range(PARTITIONS))
    assert stage.ticks == 1


def test_what_may_be_acted_on_counts_from_the_sending_of_the_request(stage: Stage) -> None:
    stage.store.seconds = 2.0
    stage.leases.round()
    # 2 s for the time, then the request is sent.
    assert stage.acts_until(0) == pytest.approx(2.0 + TTL_MS / 1000 - MARGIN_SECONDS)
    sent = stage.clock.monotonic() + 2.0
    stage.leases.round()
    assert stage.acts_until(0) == pytest.approx(sent + TTL_MS / 1000 - MARGIN_SECONDS)


def test_without_a_renewal_nothing_may_be_acted_on_before_the_lease_lapses(stage: Stage) -> None:
    stage.leases.round()
    stage.clock.advance(TTL_MS / 1000 - MARGIN_SECONDS - 0.01)
    assert stage.holdings.may_act(1)
    stage.clock.advance(0.02)
    assert not stage.holdings.may_act(1)
    assert stage.holdings.lease(1) is not None, "it may still be ours: only the server can tell"


def test_a_renewal_that_fails_is_tried_again_soon(stage: Stage) -> None:
    stage.leases.round()
    until = stage.acts_until(0)
    assert stage.leases._due == RENEW_SECONDS
    stage.store.down = True
    stage.clock.advance(RENEW_SECONDS)
    stage.leases.run_once()
    assert stage.acts_until(0) == until
    assert (stage.troubles, stage.ticks) == (1, 1)
    assert stage.leases._due == stage.clock.monotonic() + RETRY_SECONDS
    stage.store.down = False
    stage.clock.advance(RETRY_SECONDS)
    stage.leases.run_once()
    assert stage.acts_until(0) > until


def test_a_lost_partition_is_dropped_told_and_asked_for_again(stage: Stage) -> None:
    stage.leases.round()
    stage.store.lost = {1}
    stage.leases.round()
    assert stage.lost == [1]
    assert stage.told == [PartitionLost(1)]
    assert stage.events == [Fenced(1, lost=True)]
    assert stage.checked == [(1, None)]
    assert stage.holdings.partitions() == [0, 2]
    stage.store.lost = set()
    del stage.store.held[1]
    stage.leases.round()
    assert stage.gained == [0, 1, 2, 1]


def test_a_fenced_write_makes_it_look_at_once_and_tells_the_mirror(stage: Stage) -> None:
    stage.leases.round()
    stage.leases.recheck(2)
    stage.leases.run_once()
    assert stage.checked == [(2, stage.holdings.lease(2))]
    assert stage.events == [Fenced(2, lost=False)]


def test_a_suspect_that_is_not_held_is_checked_too(stage: Stage) -> None:
    stage.store.held = {2: "other|1|i|elsewhere,boot,1,1"}
    stage.leases.round()
    stage.leases.recheck(2)
    stage.leases.run_once()
    assert stage.checked == [(2, None)]


@pytest.mark.pain(48)
def test_the_lease_of_a_dead_process_is_taken_over_at_once(stage: Stage) -> None:
    stage.store.held = {0: "x|1|i|dead,boot,9,9", 1: "x|1|i|alive,boot,9,9", 2: "garbage"}
    stage.leases.round()
    assert stage.holdings.partitions() == [0]


def test_all_is_given_back_at_the_end(stage: Stage) -> None:
    stage.leases.round()
    stage.leases.release()
    assert stage.store.released == [0, 1, 2]
    assert stage.holdings.partitions() == []
    stage.leases.release()
    assert stage.store.released == [0, 1, 2]


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


@pytest.fixture
def waiting(stage: Stage) -> Stage:
    """A stage after its first round, whose rounds wait in virtual time."""
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


def test_a_suspect_does_not_make_it_spin_while_redis_is_away(waiting: Stage) -> None:
    waiting.store.down = True
    waiting.leases.recheck(2)
    rounds = run_until(waiting, 10.0)
    assert rounds == waiting.troubles
    assert 10 / RETRY_SECONDS <= rounds <= 10 / RETRY_SECONDS + 2
    waiting.store.down = False
    waiting.leases.run_once()
    assert waiting.checked == [(2, waiting.holdings.lease(2))]


@pytest.mark.parametrize("suspects", [[], [1]])
def test_nobody_hurries_a_round_that_failed(waiting: Stage, suspects: list[int]) -> None:
    waiting.store.down = True
    for partition in suspects:
        waiting.leases.recheck(partition)
    waiting.leases.hurry()
    waiting.leases.run_once()
    assert waiting.troubles == 1
    for _ in range(50):
        waiting.leases.hurry()
        for partition in suspects:
            waiting.leases.recheck(partition)
        waiting.leases.run_once()
    assert waiting.troubles == 1, "no time has passed"
    waiting.clock.advance(RETRY_SECONDS)
    waiting.leases.run_once()
    assert waiting.troubles == 2


def test_after_a_good_round_it_can_be_hurried(waiting: Stage) -> None:
    waiting.store.down = True
    waiting.leases.hurry()
    waiting.leases.run_once()
    waiting.store.down = False
    waiting.clock.advance(RETRY_SECONDS)
    waiting.leases.run_once()
    before = waiting.store.exchanges
    waiting.leases.hurry()
    waiting.leases.run_once()
    assert waiting.store.exchanges > before


@pytest.mark.parametrize("moment", ["time", "renew", "acquire"])
def test_a_round_that_is_under_way_when_all_is_given_back_keeps_nothing(stage: Stage, moment: str) -> None:
    stage.store.held = {1: "other|1|i|elsewhere,boot,1,1"}
    stage.leases.round()
    del stage.store.held[1]  # free: the next round asks for it
    stage.store.meanwhile[moment] = stage.leases.release
    stage.leases.round()
    assert stage.store.meanwhile == {}, "the moment came"
    assert stage.holdings.partitions() == []
    assert stage.store.held == {}, "nothing is held at the server either"
    assert stage.ticks == 1, "it does not say that it lives"
    stage.leases.round()
    assert stage.holdings.partitions() == []
    assert stage.told == []


def test_a_round_that_fails_after_all_was_given_back_calls_for_no_help(stage: Stage) -> None:
    stage.leases.round()
    stage.leases.release()
    stage.store.down = True
    stage.leases.round()
    assert stage.troubles == 0


def test_the_tick_gets_the_servers_time_of_its_round(stage: Stage) -> None:
    stage.store.seconds = 0.5
    stage.leases.round()
    assert stage.told_ms == [stage.clock._start_ms + 500]
