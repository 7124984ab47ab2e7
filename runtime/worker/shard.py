"""The composition root of one shard: builds the actors and threads, starts them in order, stops them in reverse."""

from __future__ import annotations

import contextlib
import logging
import secrets
import threading
from collections.abc import Callable, Mapping
from dataclasses import dataclass

import msgspec
import pykka
import redis

from stepwell.actors.blackbox import NO_BOX, BlackBox
from stepwell.actors.bus import Bus
from stepwell.actors.dispatcher import Dispatcher
from stepwell.actors.failpoints import NO_FAILPOINTS, Failpoints
from stepwell.actors.healing import Healer
from stepwell.actors.holdings import Holdings
from stepwell.actors.inbox import InboxReader
from stepwell.actors.ingress import Ingress
from stepwell.actors.intake import Intake
from stepwell.actors.kit.clock import SystemClock
from stepwell.actors.kit.ref import AnyRef
from stepwell.actors.kit.scheduler import ThreadScheduler
from stepwell.actors.kit.service import LoopThread
from stepwell.actors.leases import Leases
from stepwell.actors.membership import Membership, Owner
from stepwell.actors.messages import CheckRecovered, Drain, Settled, TailLost
from stepwell.actors.mirror import Mirror
from stepwell.actors.runner import StepRunner
from stepwell.actors.seqs import SeqBook
from stepwell.actors.shard import Shard
from stepwell.actors.store_events import StoreEvent, StoreObserver, StoreTrouble
from stepwell.actors.supervisor import Supervisor
from stepwell.actors.tracing import Tracing
from stepwell.core.errors import StoreError
from stepwell.core.formats import FORMAT
from stepwell.core.limits import Limits
from stepwell.core.redact import redact
from stepwell.flow.registry import Registry
from stepwell.metrics.recent import Counted, Recent
from stepwell.metrics.saying import say
from stepwell.metrics.shard import Now
from stepwell.store.inbox import InboxStore
from stepwell.store.ingress import IngressStore
from stepwell.store.leases import TTL_MS, Grant, LeaseStore, server_time_ms
from stepwell.store.link import Link
from stepwell.store.members import Members
from stepwell.store.namespace import Namespace, remember
from stepwell.store.scripts import Scripts
from stepwell.store.troubles import kind_of
from stepwell.store.workers import WorkerRegistry
from stepwell.worker.guarantee import Guarantee
from stepwell.worker.identity import host_info, is_dead, own_version
from stepwell.worker.patience import Patience
from stepwell.worker.timing import set_by_server
from stepwell.worker.vitals import VitalSigns
from stepwell.worker.watchdog import Watchdog

logger = logging.getLogger("stepwell.shard")
STOP_SECONDS = 5.0
FLUSH_SECONDS = 5.0
FORGET_SECONDS = 3600.0
DRAINING_PAUSE_SECONDS = 0.1


@dataclass(frozen=True, slots=True)
class ShardParts:
    """What a shard is built from. `connect` makes a client with a given name; `shard_id` names it among all shards;
    `box` tells whoever looks after the process what it works on.

    `parent`: the process that looks into the shard's death and frees its leases (`host,boot,pid,start`); '' where
    nobody does, so that whoever sees that the process is gone may free them at once. `life`: the how manieth process
    of the shard this is. `totals` and `guarantee` are what it tells of itself: what has been counted, what is in force.
    """

    namespace: Namespace
    registry: Registry
    connect: Callable[[str], redis.Redis]
    bus: Bus
    observer: StoreObserver
    shard_id: str
    limits: Limits
    threads: int
    on_failure: Callable[[str], None]
    on_dead_letter: Callable[[object, str], None]
    on_trouble: Callable[[], None]
    failpoints: Failpoints = NO_FAILPOINTS
    box: BlackBox = NO_BOX
    parent: str = ""
    life: int = 1
    totals: Callable[[], Counted] = Counted
    guarantee: Callable[[], Mapping[str, str]] = dict
    tracing: Tracing | None = None


class RunningShard:
    """One shard: one actor system, its threads, and the partitions it owns."""

    def __init__(self, parts: ShardParts) -> None:
        self._parts = parts
        self.clock = SystemClock()
        scripts = Scripts()
        keys = parts.namespace.keys
        incarnation = secrets.token_hex(8)
        self.limits = parts.limits
        self._dispatcher: AnyRef | None = None
        self._draining = threading.Event()
        self._stopping = threading.Event()
        self._gone = threading.Event()
        self.holdings = Holdings(self.clock.monotonic)
        self.scheduler = ThreadScheduler(self.clock, self._crashed, parts.on_dead_letter, parts.box)
        self._observer = parts.observer
        clients = {name: parts.connect(name) for name in ("mirror", "inbox", "leases", "ingress")}
        self._clients = list(clients.values())
        self._link = Link(clients["leases"], keys, scripts)
        self._workers = WorkerRegistry(clients["leases"], keys, scripts)
        self._forget_due = 0.0
        self._members = Members(clients["leases"], keys, scripts)
        self._leases = self._build_leases(clients["leases"], scripts, incarnation)
        seqs = SeqBook(self._tail_lost)
        self.mirror = Mirror(
            Link(clients["mirror"], keys, scripts, parts.namespace.durability),
            self._gone.wait,
            self.clock.monotonic,
            self._observe_mirror,
            self._leases.recheck,
            parts.failpoints,
            seqs.written,
        )
        self.runner = StepRunner(
            self.clock, self.holdings, parts.observer, parts.threads, parts.box, parts.limits, parts.tracing
        )
        self._reader = InboxReader(
            InboxStore(clients["inbox"], keys, scripts),
            self.holdings,
            self.clock,
            self._stopping.wait,
            self._leases.hurry,
            parts.observer,
        )
        self._context = Shard(
            clock=self.clock,
            keys=keys,
            secret=parts.namespace.secret,
            registry=parts.registry,
            bus=parts.bus,
            holdings=self.holdings,
            mirror=self.mirror,
            runner=self.runner,
            observer=parts.observer,
            incarnation=incarnation,
            limits=parts.limits,
            box=parts.box,
            trace_flags=None if parts.tracing is None else parts.tracing.flags,
        )
        self._tell_each_other(seqs)
        self._loops = [
            LoopThread("stepwell-mirror", self.mirror.run_once, self._crashed, self.mirror.wake),
            LoopThread("stepwell-inbox", self._reader.run_once, self._crashed, self._stopping.set),
            LoopThread("stepwell-leases", self._leases.run_once, self._crashed, self._leases.wake),
        ]
        self._ingress, self._ingress_loop = self._build_ingress(
            Link(clients["ingress"], keys, scripts, parts.namespace.durability)
        )
        self._ticked = self.clock.monotonic()
        self.watchdog = Watchdog(self.scheduler, self.clock.monotonic)
        self._standing_by = False
        self._all_told = False  # the actors of all bodies that still run know that nobody waits, and have written it

    def _tell_each_other(self, seqs: SeqBook) -> None:
        leases = self._leases
        leases.mirror = self.mirror
        leases.seqs = seqs
        leases.on_gained = self._gained
        leases.on_lost = self._reader.lost

    def _build_leases(self, client: redis.Redis, scripts: Scripts, incarnation: str) -> Leases:
        parts = self._parts
        owner = Owner(parts.shard_id, incarnation, host_info(), parts.parent)
        monotonic = self.clock.monotonic
        membership = Membership(
            self._members, owner, parts.namespace.partitions, TTL_MS / 1000, monotonic, is_dead, Patience(monotonic)
        )
        return Leases(
            LeaseStore(client, parts.namespace.keys, scripts),
            owner,
            self.holdings,
            self.clock,
            membership,
            parts.observer,
            self._tick,
            self._trouble,
        )

    def _build_ingress(self, link: Link) -> tuple[Ingress, LoopThread]:
        parts = self._parts
        store = IngressStore(link, parts.shard_id)
        workers = WorkerRegistry(link.client, link.keys, link.scripts)
        intake = Intake(
            store, link, parts.registry, lambda: workers.living(self.clock.now_ms()), self.clock, parts.observer
        )
        ingress = Ingress(store, intake, self.clock, self._stopping.wait, parts.observer, lambda: self._leases.outdated)
        guarantee = Guarantee(
            link.client, link.durability, f"{link.keys.namespace}:probe", self.clock.monotonic, parts.observer
        )

        self._vitals = VitalSigns(
            Link(link.client, link.keys, link.scripts),
            parts.shard_id,
            parts.life,
            self.clock,
            self.runner,
            parts.limits.steps + parts.threads + parts.limits.processes,
            lambda: self.executions,
            Recent(parts.totals, self.clock.monotonic).work,
            parts.guarantee,
            lambda: self.holdings.unapplied.lag,
        )

        def take_in() -> None:
            self._vitals.look()
            if self._draining.is_set():  # it takes in nothing more, but who watches sees it end
                self._gone.wait(DRAINING_PAUSE_SECONDS)
                return
            ingress.run_once()
            guarantee.look()

        return ingress, LoopThread("stepwell-ingress", take_in, self._crashed, self._stopping.set)

    def start(self) -> None:
        """Bring everything to life. The first lease round runs here, so that what is wrong is known at once."""
        shard = self._context
        shard.box.catch_faults()
        self.scheduler.start()
        # An execution's actor has its id for a name; no id begins with a colon.
        shard.supervisor = self.scheduler.spawn(Supervisor, shard, name=":supervisor")
        shard.dispatcher = self._dispatcher = self.scheduler.spawn(Dispatcher, shard, name=":dispatcher")
        shard.healer = self.scheduler.spawn(Healer, shard, name=":healer")
        self._leases.on_settled = lambda sent: shard.healer.tell(Settled(sent))
        self._reader.dispatcher = shard.dispatcher
        self._leases.dispatcher = shard.dispatcher
        self.runner.begin()
        with contextlib.suppress(StoreError):
            set_by_server(self.clock, lambda: server_time_ms(self._link))
        self._leases.round()
        for loop in (*self._loops, self._ingress_loop):
            loop.start()

    @property
    def executions(self) -> int:
        """Executions in memory."""
        return max(0, len(self.scheduler.living) - 3)

    @property
    def limits_by_place(self) -> dict[str, int]:
        """How many step bodies may run at once, by where they run."""
        limits = self.limits
        return {"loop": limits.steps, "thread": self._parts.threads, "process": limits.processes}

    @property
    def partitions(self) -> int:
        """How many the namespace has."""
        return self._parts.namespace.partitions

    def now(self) -> Now:
        """What it does at this moment. From any thread."""
        set_apart, waits_apart = self.runner.set_apart
        return Now(
            bodies=self.runner.bodies,
            set_apart=set_apart,
            waits_apart=waits_apart,
            abandoned_threads=self.runner.given_up,
            executions=self.executions,
            leases=sum(map(self.holdings.may_act, self.holdings.partitions())),
            counted_ago=self._reader.counted_ago,
            actors_ready=self.scheduler.ready,
            mail={
                "dispatcher": 0 if self._dispatcher is None else self._dispatcher.waiting,
                "mirror": self.mirror.waiting,
            },
        )

    @property
    def seconds_since_tick(self) -> float:
        """Seconds since the last round of renewals, failed ones included: the shard's heartbeat."""
        return self.clock.monotonic() - self._ticked

    @property
    def standing_by(self) -> bool:
        """Whether there are more shards than partitions, or newer ones, and this one has none."""
        return self._leases.stands_by

    @property
    def ready(self) -> bool:
        """Whether it owns partitions and may act on them."""
        return any(self.holdings.may_act(partition) for partition in self.holdings.partitions())

    def hurry(self) -> None:
        """Somebody has died: look now who is there and what is free, and not when the next look is due."""
        self._leases.hurry()

    def drain(self, grace: float, hurry: threading.Event) -> int:
        """Let running steps finish within `grace` seconds (or until `hurry` is set), and begin nothing.

        Where other shards live, each partition goes to them as soon as nothing of it runs. Returns how many steps are
        left in the end; their executions are told that it was no fault of theirs.
        """
        left = self._wind_up(grace, hurry)
        if self.runner.running:
            self.runner.cut_short()
            self._all_told = self._flush(hurry)
        return left

    def give_up(self) -> None:
        """A part has failed: begin nothing, wait for no step, and see to it that what steps have brought is written.
        `stop` leaves bodies that still run as a crash leaves them: it is no drain that cuts them short."""
        self._wind_up(0.0, threading.Event())

    def _wind_up(self, grace: float, hurry: threading.Event) -> int:
        _, inbox_loop, _ = self._loops
        deadline = self.clock.monotonic() + grace
        heirs = self._leases.has_heirs
        self._leases.leave(hand_over=heirs)
        if heirs:
            running = self.runner.running
            told = "others take over; up to %g s for what runs (steps: %d)"
            say(logger, "ShardDraining", told, grace, running, steps=running)
            self._hand_over(deadline, hurry)
        self._context.dispatcher.tell(Drain())
        self._draining.set()
        inbox_loop.stop(STOP_SECONDS)
        idle = threading.Event()
        self.runner.close_intake(idle.set)
        if self.runner.running and not heirs:
            running = self.runner.running
            told = "nothing new starts; up to %g s for what runs (steps: %d)"
            say(logger, "ShardDraining", told, grace, running, steps=running)
        while not idle.is_set() and not hurry.is_set() and self.clock.monotonic() < deadline:
            hurry.wait(0.02) if self.runner.running else idle.wait(0.02)
        left = self.runner.running
        if left:
            told = "not all steps finished in time (left: %d); these run again later, with the same keys"
            say(logger, "StepsCutShort", told, left, steps=left)
        self._flush(hurry)
        return left

    def _hand_over(self, deadline: float, hurry: threading.Event) -> None:
        """Wait until others have all partitions, as long as that may take and anything can come of it."""
        while self.holdings.partitions() and self._can_hand_over():
            if hurry.wait(0.02) or self.clock.monotonic() >= deadline:
                return

    def _can_hand_over(self) -> bool:
        """Not without all parts of the shard; without Redis only as long as steps run, whose end it may see again."""
        parts_live = self.scheduler.is_alive and all(loop.is_alive for loop in self._loops)
        return parts_live and (self._leases.seconds_in_trouble < FLUSH_SECONDS or self.runner.running > 0)

    def stop(self) -> None:
        """End all threads and give the partitions back, whatever has failed before: nothing counts as interrupted. But
        for those of which bodies still run without a drain that told of it: their leases stay."""
        unquiet: set[int] = set()
        if not self._all_told:
            self._leases.hold_on()
            unquiet = self.runner.cut_off()
        try:
            self._end_threads()
        finally:
            self._release(unquiet)
            for client in self._clients:
                client.close()
            if self._parts.tracing is not None:
                self._parts.tracing.close()

    def _end_threads(self) -> None:
        mirror_loop, inbox_loop, lease_loop = self._loops
        self._stopping.set()
        inbox_loop.stop(STOP_SECONDS)
        self._ingress_loop.stop(STOP_SECONDS)
        lease_loop.stop(STOP_SECONDS)
        if not self.scheduler.stop(STOP_SECONDS):
            say(logger, "PartSlow", "the actors did not stop within %g s", STOP_SECONDS, part="actors")
        self._gone.set()
        mirror_loop.stop(STOP_SECONDS)
        self.runner.stop(1.0)

    def _release(self, unquiet: set[int]) -> None:
        try:
            self._leases.release(unquiet)
            self._ingress.leave()
            self._vitals.leave()
            self._workers.remove(self._parts.shard_id)
        except StoreError as error:
            told, lapse = "partitions could not be given back (%s); their leases lapse within %d s", TTL_MS // 1000
            say(logger, "StoreTrouble", told, error, lapse, part="leases", kind=kind_of(error))

    def _flush(self, hurry: threading.Event) -> bool:
        """Wait until what steps have brought is written: twice idle around a round trip of the scheduler. Whether it
        is."""
        mirror_loop = self._loops[0]
        deadline = self.clock.monotonic() + FLUSH_SECONDS
        while mirror_loop.is_alive and not hurry.is_set() and self.clock.monotonic() < deadline:
            before = self.mirror.idle
            left = max(0.0, deadline - self.clock.monotonic())
            try:
                self._context.dispatcher.ask(CheckRecovered(self.holdings.unrecovered()), block=True, timeout=left)
            except (pykka.ActorDeadError, pykka.Timeout) as error:
                told = "what steps brought last may not be written (%s); then they run again"
                say(logger, "PartSlow", told, error, part="dispatcher", error=error)
                return False
            if before and self.mirror.idle:
                return True
            hurry.wait(0.01)
        return False

    def _observe_mirror(self, event: StoreEvent) -> None:
        """A server that is gone is noticed by who writes first: Leases looks after it."""
        if isinstance(event, StoreTrouble):
            self._leases.hurry()
        self._observer(event)

    def _tail_lost(self, partition: int) -> None:
        self._context.healer.tell(TailLost(partition))

    def _gained(self, grant: Grant) -> None:
        self._reader.gained(grant.partition)

    def _tick(self, server_ms: int) -> None:
        """Once per lease round: say that the worker lives, and that the namespace is what it was.

        The heartbeat has the server's own time, by which others judge its age; our clock may be slewing there.
        """
        self._ticked = self.clock.monotonic()
        self._parts.box.beat(self._ticked)
        parts = self._parts
        beat = {"at": server_ms, "flows": parts.registry.describe(), "host": host_info()}
        beat |= {"version": own_version(), "durability": str(parts.namespace.durability), "format": FORMAT}
        beat |= {"left_alone": self._context.newer.count}
        self._workers.beat(parts.shard_id, msgspec.json.encode(beat))
        remember(self._link, parts.namespace)
        self.watchdog.look()
        self.runner.look()
        self._tell_standing()
        if self._ticked >= self._forget_due:
            self._workers.forget_silent(server_ms)
            self._members.forget_silent()
            self._forget_due = self._ticked + FORGET_SECONDS

    def _trouble(self) -> None:
        """A round that failed is a sign of life too: a shard without its server is unready, not dead."""
        self._ticked = self.clock.monotonic()
        self._parts.box.beat(self._ticked)
        self._parts.on_trouble()

    def _tell_standing(self) -> None:
        """Say when there is nothing for this shard, and when there is again."""
        standing_by = self.standing_by and not self._leases.outdated  # that is told by who finds it out
        if standing_by and not self._standing_by:
            told = "standing by: there are more shards than partitions, and this one has none until another one goes"
            say(logger, "StandingBy", told, reason="no partitions")
        elif self._standing_by and not standing_by:
            told = "there are partitions for this shard again"
            say(logger, "StandingBy", told, level=logging.INFO, reason="no partitions")
        self._standing_by = standing_by

    def _crashed(self, name: str, error: BaseException, traceback: str) -> None:
        """A part that everything depends on has failed: the shard must end, loudly."""
        failure = redact(f"{name.lstrip(':')} failed: {type(error).__name__}: {error}")
        say(logger, "PartFailed", "%s", failure, traceback=traceback, part=name.lstrip(":"))
        self._parts.on_failure(failure)
