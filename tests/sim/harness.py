"""A whole shard, its clients and its Redis in one thread, under virtual time.

`World` is what outlives a shard: the server (fakeredis), the clock, the flows, the ledger of step bodies. `SimShard`
is one life of a shard, built of the product's own actors and services; only threads, sockets and real time are
replaced. `world.run(...)` lets everything happen that can happen now, then jumps to the next due time.
"""

from __future__ import annotations

import contextlib
import math
import random
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Any

import fakeredis
import msgspec
import redis
from redis.backoff import NoBackoff
from redis.retry import Retry as RedisRetry
from sim.ahead import next_look
from sim.bodies import Ledger, SimRunner
from sim.clocks import WorldsClock
from sim.dying import ShardDied, SimBox
from sim.entries import command_entry
from sim.journal import Journal, Judge, Sent, SimLink, Weather
from sim.looks import Looks

from stepwell.actors import messages as m
from stepwell.actors.bus import Bus, Subscriber
from stepwell.actors.dispatcher import Dispatcher
from stepwell.actors.execution import ExecutionActor
from stepwell.actors.failpoints import NO_FAILPOINTS, Failpoints
from stepwell.actors.healing import Healer
from stepwell.actors.holdings import Holdings
from stepwell.actors.inbox import InboxReader
from stepwell.actors.ingress import Ingress
from stepwell.actors.intake import Intake
from stepwell.actors.kit.clock import SystemClock, VirtualClock
from stepwell.actors.kit.ref import AnyRef
from stepwell.actors.kit.scheduler import ActorCrashed, VirtualScheduler
from stepwell.actors.leases import LOOK_SECONDS, RENEW_SECONDS, Leases, Pace
from stepwell.actors.membership import Membership, Owner
from stepwell.actors.mirror import Mirror
from stepwell.actors.newer import Newer
from stepwell.actors.seqs import SeqBook
from stepwell.actors.shard import Shard
from stepwell.actors.store_events import StoreEvent
from stepwell.actors.supervisor import Supervisor
from stepwell.actors.tracing import Tracing
from stepwell.client.starting import input_hash
from stepwell.core.attributes import Attributes
from stepwell.core.events import Event
from stepwell.core.formats import FORMAT
from stepwell.core.limits import Limits
from stepwell.core.ownership import worker_of
from stepwell.core.records import Meta, encode
from stepwell.core.status import TERMINAL
from stepwell.flow.definitions import FlowLike
from stepwell.flow.registry import Registry
from stepwell.store.inbox import InboxStore
from stepwell.store.ingress import IngressStore
from stepwell.store.leases import TTL_MS, LeaseStore
from stepwell.store.link import Link
from stepwell.store.members import Members
from stepwell.store.namespace import open_namespace
from stepwell.store.replies import Reply
from stepwell.store.requests import Create
from stepwell.store.scripts import Scripts
from stepwell.worker.postmortem import Findings, examine

if TYPE_CHECKING:
    from sim.audit import Audit

SECRET = bytes(range(32))
ROUNDS_MAX = 20_000
SWEEPS_MAX = 12
JUMPS_MAX = 20_000
LONG_TTL_MS = 10_000_000_000
LONG_RENEW_SECONDS = 1_000_000.0


class World(Looks):
    """Everything that outlives a shard."""

    audit: Audit

    def __init__(self, flows: Iterable[FlowLike] = (), *, partitions: int = 2, seed: int | None = None) -> None:
        self.clock = VirtualClock()
        self.server = fakeredis.FakeServer(version=(6, 2))
        self.scripts = Scripts()
        self.weather = Weather()
        self.client = self.connect()
        self.namespace = open_namespace(self.client, "sim", partitions, SECRET, new_secret=lambda: SECRET)
        self.keys = self.namespace.keys
        self.registry = Registry(flows)
        self.ledger = Ledger()
        self.sent: list[Sent] = []
        self.events: list[Event] = []
        self.store_events: list[StoreEvent] = []
        self.shards: list[SimShard] = []
        self.dead: list[SimShard] = []
        self.frozen: list[SimShard] = []
        self.dead_hosts: set[str] = set()
        self.parents = False  # whether a parent looks into the black box of a dead shard
        self.findings: list[Findings] = []
        self.doomed = False  # a flow's code says so: the shard that drives it dies in this turn
        self.stepped = False  # the server's clock was set
        self.hangs = 0.0  # seconds that such a turn has lasted when the box is read
        self.random = None if seed is None else random.Random(seed)
        self.hurried: set[str] = set()  # executions whose backoffs somebody may have ended by hand
        self.checks: list[Callable[[], None]] = []
        self.counts: Callable[[SimShard], tuple[Subscriber, ...]] = lambda _shard: ()  # who counts its events, too
        self.tracing: Callable[[str], Tracing] | None = None  # who makes the spans of a shard
        self.offers: list[dict[str, Any]] = []  # heartbeats of workers elsewhere
        self.lease_ttl_ms = LONG_TTL_MS
        self.renew_seconds = LONG_RENEW_SECONDS
        self.look_seconds = LONG_RENEW_SECONDS
        self._link = Link(self.client, self.keys, self.scripts)
        self._commands = 0
        self._lives = 0

    def share(self) -> None:
        """From now on shards renew, look at each other and share the partitions, as outside of simulations."""
        self.lease_ttl_ms, self.renew_seconds, self.look_seconds = TTL_MS, RENEW_SECONDS, LOOK_SECONDS

    def connect(self) -> redis.Redis:
        return fakeredis.FakeRedis(server=self.server, retry=RedisRetry(NoBackoff(), 0), socket_timeout=5)

    def close(self) -> None:
        for shard in (*self.shards, *self.frozen, *self.dead):
            shard.end()

    # Shards.

    def shard(self, **options: Any) -> SimShard:
        """A new shard over the same server; it takes what is free."""
        self._lives += 1
        shard = SimShard(self, self._lives, **options)
        self.shards.append(shard)
        shard.start()
        return shard

    def crash(self, shard: SimShard | None = None) -> None:
        """A shard is gone, with all that it had in memory; its leases can be seen to be a dead process'. Where it has a
        parent, that one reads its box.
        """
        shard = shard or self.shards[0]
        self.shards.remove(shard)
        self.dead.append(shard)
        self.dead_hosts.add(shard.host)
        if self.parents:
            self.post_mortem(shard)

    def has_died(self) -> bool:
        """Asked at the end of each turn of each actor."""
        doomed, self.doomed = self.doomed, False
        return doomed

    def post_mortem(self, shard: SimShard) -> None:
        """What a parent does once its shard is dead: its box is read, its leases are freed, its siblings hurry."""
        report = shard.box.report(shard.clock.monotonic() + self.hangs)
        self.findings.append(examine(self.client, self.keys, self.scripts, shard.host, report, shard.shard_id))
        for each in self.shards:
            if worker_of(each.shard_id) == worker_of(shard.shard_id):
                each.leases.hurry()

    def freeze(self, shard: SimShard) -> None:
        """It gets no turn any more (SIGSTOP)."""
        self.shards.remove(shard)
        self.frozen.append(shard)

    def thaw(self, shard: SimShard) -> None:
        """It goes on (SIGCONT)."""
        self.frozen.remove(shard)
        self.shards.append(shard)

    def owners(self) -> dict[int, str]:
        """Which partition is held by which shard, as the server has it."""
        held = LeaseStore(self.connect(), self.keys, self.scripts).read(range(self.keys.partitions))
        return {partition: value.split("|")[0] for partition, value in held.items()}

    # What clients do.

    def attributes_of(self, execution_id: str) -> Attributes | None:
        """What whoever starts it gives it along; a test may replace this."""
        return None

    def start(self, flow: FlowLike | str, execution_id: str, trace: str = "", **given: Any) -> Reply:
        name = flow if isinstance(flow, str) else flow.name
        raw = msgspec.json.encode(given)
        now = self.clock.now_ms()
        hashed = input_hash(name, raw)
        attributes = self.attributes_of(execution_id)
        fields = [("meta", encode(Meta(name, now, hashed, trace=trace, attributes=attributes))), ("input", raw)]
        (reply,) = self._link.execute([Create(execution_id, name, hashed, now, fields, attributes=attributes)])
        return reply

    def send(
        self, kind: str, execution_id: str, data: object = None, command_id: str = "", **fields: str | bytes
    ) -> str:
        """Put a command into the inbox of its execution; its id."""
        self._commands += 1
        command_id = command_id or f"cmd-{self._commands}"
        entry = command_entry(kind, execution_id, data, command_id, self.clock.now_ms(), **fields)
        InboxStore(self.client, self.keys, self.scripts).send(self.keys.partition_of(execution_id), entry)
        return command_id

    def retry(self, execution_id: str) -> str:
        self.hurried.add(execution_id)
        return self.send("retry", execution_id)

    def cancel(self, execution_id: str) -> str:
        return self.send("cancel", execution_id)

    def signal(self, execution_id: str, name: str, payload: object = None) -> str:
        return self.send("signal", execution_id, {"name": name, "payload": payload})

    def ended(self, *execution_ids: str) -> bool:
        return all(self.status(each) in TERMINAL for each in execution_ids)

    def of_type(self, kind: type[Any]) -> list[Any]:
        return [event for event in (*self.events, *self.store_events) if isinstance(event, kind)]

    # Time.

    def run(self, until: Callable[[], object] | None = None, limit: float = 30 * 86_400.0) -> None:
        """Let all happen until `until()` holds, or (without one) until nothing is left to do.

        TimeoutError if it does not hold within `limit` virtual seconds, or if only sweeps are left and find nothing.
        """
        end = self.clock.monotonic() + limit
        sweeps = 0
        for _ in range(JUMPS_MAX):
            self.settle()
            if until is not None and until():
                return
            due = self.next_due()
            if due is None:
                if until is None:
                    return
                sweeps += 1
                due = min((s.sweep_due for s in self.shards), default=math.inf)
            else:
                sweeps = 0
            if due > end or sweeps > SWEEPS_MAX:
                raise TimeoutError(f"it did not happen; statuses: {self.statuses()}")
            self.clock.advance_to(max(due, self.clock.monotonic()))
        raise RuntimeError(f"the world goes on and on; statuses: {self.statuses()}")

    def run_for(self, seconds: float) -> None:
        """Let that much time pass, with all that is due in it; sweeps come late."""
        end = self.clock.monotonic() + seconds
        while True:
            self.settle()
            due = self.next_due()
            if due is None or due > end:
                break
            self.clock.advance_to(max(due, self.clock.monotonic()))
        self.clock.advance_to(end)
        self.settle()

    def settle(self) -> None:
        """Do all that can be done without time passing; then look whether the invariants hold."""
        for _ in range(ROUNDS_MAX):
            worked = [self._one_round(shard) for shard in list(self.shards)]
            if not any(worked):
                break
        else:
            raise RuntimeError("the world never comes to rest at one instant")
        for check in self.checks:
            check()

    def next_due(self) -> float | None:
        return min((due for shard in self.shards if (due := shard.next_due()) is not None), default=None)

    def _one_round(self, shard: SimShard) -> bool:
        try:
            return shard.round() if self.random is None else shard.random_round(self.random)
        except ShardDied:
            self.crash(shard)
            return True


class SimShard:
    """One life of a shard, without a thread. `paused`: parts that get no turn (`mirror`, `reader`, `leases`).
    `in_order`: it has left, and all that it cut short was told."""

    in_order = False

    def __init__(
        self,
        world: World,
        number: int,
        *,
        max_running: int = 1000,
        limits: Limits | None = None,
        failpoints: Failpoints = NO_FAILPOINTS,
        flows: Iterable[FlowLike] | None = None,
        ingress: bool = False,
        shard_id: str = "",
        parent: str = "",
        reads: int = FORMAT,
        clock: SystemClock | None = None,
    ) -> None:
        limits = Limits(running=max_running) if limits is None else limits
        self.world = world
        self.clock = clock or world.clock
        self.name = f"inc{number}"
        self.host = f"host,boot,{number},1"
        self.shard_id = shard_id or f"w{self.name}"
        self._parent, self._reads = parent, reads
        self.paused: set[str] = set()
        self.crashes: list[tuple[str, BaseException, str]] = []
        self.undelivered: list[tuple[object, str]] = []
        self._reader_until = 0.0
        self._mirror_until = 0.0
        self._draining = False
        seed = None if world.random is None else world.random.randrange(2**32)
        self.box = SimBox(self.name, world.has_died)
        self.scheduler = VirtualScheduler(self.clock, seed, on_dead_letter=self._lost_mail, turns=self.box)
        self.holdings = Holdings(self.clock.monotonic)
        self.journal = Journal(world.connect(), world.keys, world.scripts, world.weather, world.sent)
        tracing = None if world.tracing is None else world.tracing(self.shard_id)
        self.runner = SimRunner(self.clock, self.holdings, world.ledger, self.name, self.box, limits.steps, tracing)
        self.leases = self._build_leases()
        seqs = SeqBook(lambda partition: self.context.healer.tell(m.TailLost(partition)))
        self.mirror = Mirror(
            self.journal,
            self._pause_mirror,
            self.clock.monotonic,
            world.store_events.append,
            self.leases.recheck,
            failpoints,
            seqs.written,
        )
        self.reader = self._build_reader()
        self.context = Shard(
            clock=self.clock,
            keys=world.keys,
            secret=world.namespace.secret,
            registry=world.registry if flows is None else Registry(flows),
            bus=Bus((world.events.append, *world.counts(self)), None if tracing is None else tracing.follow),
            trace_flags=None if tracing is None else tracing.flags,
            holdings=self.holdings,
            mirror=self.mirror,
            runner=self.runner,  # type: ignore[arg-type]
            observer=world.store_events.append,
            incarnation=self.name,
            box=self.box,
            limits=limits,
            newer=Newer(reads),
        )
        self.ingress = self._build_ingress() if ingress else None
        self._ingress_until = 0.0
        self.leases.mirror = self.mirror
        self.leases.seqs = seqs
        self.leases.on_settled = lambda sent: self.context.healer.tell(m.Settled(sent))
        self.leases.on_gained = lambda grant: self.reader.gained(grant.partition)
        self.leases.on_lost = self.reader.lost

    def _build_reader(self) -> InboxReader:
        store = InboxStore(self.world.connect(), self.world.keys, self.world.scripts)
        store._link = self._sim_link("inbox")
        observer = self.world.store_events.append
        return InboxReader(store, self.holdings, self.clock, self._pause_reader, lambda: None, observer)

    def _build_ingress(self) -> Ingress:
        link = self._sim_link("ingress")
        store = IngressStore(link, f"w{self.name}/0")
        workers = self.world.offers
        observer, newer = self.world.store_events.append, Newer(self._reads)
        intake = Intake(store, link, self.context.registry, lambda: workers, self.clock, observer, newer)
        return Ingress(store, intake, self.clock, self._pause_ingress, observer, lambda: self.leases.outdated)

    def _build_leases(self) -> Leases:
        world = self.world
        store = LeaseStore(world.connect(), world.keys, world.scripts)
        store._link = self._sim_link("leases")
        members = Members(world.connect(), world.keys, world.scripts)
        members._link = self._sim_link("members")
        owner = Owner(self.shard_id, self.name, self.host, self._parent, self._reads)
        pace = Pace(world.lease_ttl_ms, world.renew_seconds, world.look_seconds)
        clock = self.clock if isinstance(self.clock, SystemClock) else WorldsClock(world.clock)
        membership = Membership(
            members,
            owner,
            world.keys.partitions,
            pace.ttl_ms / 1000,
            clock.monotonic,
            lambda info: info in world.dead_hosts,
            lambda info: info in world.dead_hosts,
        )
        return Leases(
            store,
            owner,
            self.holdings,
            clock,
            membership,
            world.store_events.append,
            lambda _server_ms: None,
            lambda: None,
            pace,
        )

    def _sim_link(self, name: str) -> SimLink:
        world = self.world
        return SimLink(world.connect(), world.keys, world.scripts, world.weather, name)

    def start(self) -> None:
        context = self.context
        context.supervisor = self.scheduler.spawn(Supervisor, context, name=":supervisor")
        context.dispatcher = self.scheduler.spawn(Dispatcher, context, name=":dispatcher")
        context.healer = self.scheduler.spawn(Healer, context, name=":healer")
        self.reader.dispatcher = context.dispatcher
        self.leases.dispatcher = context.dispatcher
        self._lease_round()

    # What tests look at and meddle with.

    def judge(self, judge: Judge) -> None:
        """Decide the fate of each request that the Mirror sends from now on."""
        self.journal.judge = judge

    def actor(self, execution_id: str) -> ExecutionActor | None:
        """The execution's actor, if it is in memory."""
        for cell in self.scheduler._living:
            if cell.name == execution_id and isinstance(cell.actor, ExecutionActor):
                return cell.actor
        return None

    def ref(self, execution_id: str) -> AnyRef | None:
        actor = self.actor(execution_id)
        return None if actor is None else actor.actor_ref

    @property
    def in_memory(self) -> list[str]:
        return [name for name in self.scheduler.living if not name.startswith(":")]

    def recall(self, execution_id: str) -> None:
        """Bring an execution that left memory back, as recovery does."""
        partition = self.world.keys.partition_of(execution_id)
        self.context.dispatcher.tell(m.Recover(partition, [(execution_id, 0.0)]))

    def drain(self) -> None:
        """Take in nothing new; what runs may end. `release` then gives the partitions back."""
        self._draining = True
        self.context.dispatcher.tell(m.Drain())
        self.runner.close_intake(lambda: None)

    def leave(self) -> None:
        """A drain that others inherit from: each partition goes to them as soon as it is quiet."""
        self.leases.leave(hand_over=True)

    def cut_short(self) -> None:
        """The grace time is over: what still runs is told of, and that is written."""
        self.runner.cut_short()
        while self.scheduler.run_until_idle() or self._mirror_round():
            pass

    def release(self) -> None:
        """The end of a drain: all that was recorded is written, the partitions are free, the process ends."""
        self.cut_short()
        self.context.dispatcher.tell(m.CheckRecovered(self.holdings.unrecovered()))
        self.scheduler.run_until_idle()
        self.scheduler.stop()
        self.leases.release()
        self.in_order = True
        self.world.shards.remove(self)
        self.world.dead.append(self)

    def give_up(self) -> None:
        """A part of it has failed: what has ended is written, what runs is cut off. Its process has not ended yet."""
        self.drain()
        while self.scheduler.run_until_idle() or self._mirror_round():
            pass
        self.leases.hold_on()
        unquiet = self.runner.cut_off()
        self.scheduler.stop()
        self.leases.release(unquiet)
        self.world.freeze(self)

    def end(self) -> None:
        if not self.scheduler._ended:
            with contextlib.suppress(ActorCrashed):  # mail that a dead shard never came to
                self.scheduler.stop()
        self.runner.drop_all()

    # Its turns.

    @property
    def sweep_due(self) -> float:
        """When the reader sweeps next (never while it drains)."""
        return float("inf") if self._draining else self.reader._sweep_due

    def next_due(self) -> float | None:
        """When something is due, sweeps apart."""
        dues = [self.scheduler.next_due(), self.runner.next_due()]
        if not self._draining and "reader" not in self.paused:
            look = self._next_look()  # but not while it pauses
            dues.append(None if look is None else max(look, self._reader_until))
        if not self.mirror.idle and "mirror" not in self.paused:
            dues.append(self._mirror_until)
        renews = self.world.renew_seconds < LONG_RENEW_SECONDS or self.world.weather.down or self.leases._suspects
        if renews and "leases" not in self.paused:
            dues.append(self.leases.next_at)
        takes_in = self.ingress is not None and not self._draining and "ingress" not in self.paused
        if self.ingress is not None and takes_in and self._entered():
            dues.append(max(self.ingress.next_at, self._ingress_until))
        if self.holdings.partitions() and self._reader_until > self.clock.monotonic():
            dues.append(self._reader_until)
        return min((due for due in dues if due is not None), default=None)

    def round(self) -> bool:
        """One turn for everybody; False if nobody had anything to do."""
        worked = self.scheduler.run_until_idle() > 0
        while self.runner.step():
            worked = True
        worked = self._mirror_round() or worked
        worked = self._lease_round() or worked
        self._read_round()
        worked = self._ingress_round() or worked
        return worked or bool(self.scheduler._runnable)

    def random_round(self, chance: random.Random) -> bool:
        """One turn for somebody who has something to do; False if nobody has."""
        parts: list[Callable[[], bool]] = [
            lambda: self.scheduler.step() > 0,
            self.runner.step,
            self._mirror_round,
            self._lease_round,
            self._read_round,
            self._ingress_round,
        ]
        chance.shuffle(parts)
        return any(part() for part in parts)

    def _mirror_round(self) -> bool:
        if "mirror" in self.paused or self.mirror.idle or self.clock.monotonic() < self._mirror_until:
            return False
        self.mirror.run_once(0)
        return True

    def _lease_round(self) -> bool:
        if "leases" in self.paused or self.clock.monotonic() < self.leases.next_at:
            return False
        self.leases.run_once()
        return True

    def _read_round(self) -> bool:
        if self._draining or "reader" in self.paused or self.clock.monotonic() < self._reader_until:
            return False
        self.reader.run_once(None)
        return bool(self.scheduler._runnable)

    def _ingress_round(self) -> bool:
        if self.ingress is None or self._draining or "ingress" in self.paused:
            return False
        if self.clock.monotonic() < self._ingress_until:
            return False
        before = self._entered()
        self.ingress.run_once(None)
        return self._entered() < before

    def _entered(self) -> int:
        """How many entries lie in the ingress."""
        return int(self.world.client.xlen(self.world.keys.ingress))

    def _next_look(self) -> float | None:
        return next_look(self)

    def _pause_ingress(self, seconds: float) -> None:
        self._ingress_until = self.clock.monotonic() + seconds

    def _pause_mirror(self, seconds: float) -> None:
        self._mirror_until = self.clock.monotonic() + seconds

    def _pause_reader(self, seconds: float) -> None:
        self._reader_until = self.clock.monotonic() + seconds

    def _lost_mail(self, message: object, name: str) -> None:
        self.undelivered.append((message, name))
