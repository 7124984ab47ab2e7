"""The Dispatcher: routes what the inbox reader reads to execution actors. It alone owns the routing table.

A route exists from the moment that somebody needs an execution until its actor was granted to stop. The grant is
a handshake: an actor says how much mail it has handled, and may go only if nothing more was sent to it.
"""

from __future__ import annotations

import logging
from collections import Counter

import msgspec

from stepwell.actors import messages as m
from stepwell.actors import store_events
from stepwell.actors.admission import Admission, Start, take_one
from stepwell.actors.commands import NoSuchCommand, flow_of, read_entry
from stepwell.actors.execution import ExecutionActor
from stepwell.actors.handover import Departures
from stepwell.actors.healing import revive
from stepwell.actors.kit.pooled import PooledActor
from stepwell.actors.kit.ref import AnyRef
from stepwell.actors.left import Left
from stepwell.actors.letters import Letters
from stepwell.actors.residents import Residents
from stepwell.actors.route import Route
from stepwell.actors.shard import Shard
from stepwell.actors.suspicion import STRIKES_MAX, Suspicions, opened, parking, why_buried
from stepwell.core.letters import LetterKind
from stepwell.core.records import Outcome, encode
from stepwell.metrics.saying import say
from stepwell.store.inbox import Entry
from stepwell.store.leases import Grant
from stepwell.store.replies import Broken, Buried, Loaded, order
from stepwell.store.requests import DeadLetter, Forget, Load, Unlist
from stepwell.store.suspects import Strike

logger = logging.getLogger("stepwell.dispatcher")
LOADING_MAX = 256
LOAD_RETRY_SECONDS = 1.0


class Dispatcher(PooledActor):
    """See the module's docstring. Who may begin, and when, is asked of `Admission`."""

    def __init__(self, shard: Shard) -> None:
        self._shard = shard
        self._admission = Admission(shard.limits.running, shard.registry.running_max)
        self._suspicions = Suspicions(shard.holdings)
        self._letters = Letters(shard.holdings, shard.mirror, shard.observer)
        self._routes: dict[str, Route] = {}
        self._residents = Residents(shard.limits.in_memory, shard.limits.passivate_after)
        self._loading = 0
        self._rebuilt: set[str] = set()  # whose actor has failed, and whose row is read again
        self._stale_rows: Counter[str] = Counter()  # rows to come that were asked for by routes which are gone
        self._departures = Departures()
        self._listed: dict[int, str] = {}  # by partition: the lease under which all is known that it had before

    def on_receive(self, message: object) -> None:
        """One message."""
        if isinstance(message, m.EntriesDone):
            self._entries_done(message)
        elif isinstance(message, m.Busy):
            self._busy(message)
        elif isinstance(message, m.MayStop):
            self._may_stop(message)
        elif isinstance(message, m.InboxRead):
            for entry in message.entries:
                self._entry(entry)
        elif isinstance(message, m.RowRead):
            self._row_read(message)
        else:
            self._rare(message)
        self._admit()

    def _rare(self, message: object) -> None:
        if isinstance(message, m.Swept):
            self._swept(message)
        elif isinstance(message, m.Recover):
            self._recover(message)
        elif isinstance(message, m.Recovering):
            self._admission.recovering = message.active
        elif isinstance(message, m.PartitionLost):
            self._partition_lost(message.partition)
        elif isinstance(message, m.TailLost):
            self._tail_lost(message.partition)
        elif isinstance(message, m.Revived):
            self._revived(message.execution_id)
        elif isinstance(message, m.ActorGone):
            self._actor_gone(message)
        elif isinstance(message, m.BadCommand):
            self._bad_command(message)
        elif isinstance(message, m.LetterAnswered):
            self._letters.answered(message.letter, message.reply)
            if isinstance(message.reply, Buried):
                self._shard.holdings.unapplied.done(message.letter.partition, message.letter.entry_id)
        elif isinstance(message, _LoadAgain):
            self._load_again(message.execution_id)
        elif isinstance(message, _LetIn):
            pass  # whoever may come in does after each message
        elif isinstance(message, m.CountStarts):
            self._count_starts()
        elif isinstance(message, m.LookAround):
            self._send_away(self._residents.too_long(self._shard.clock.monotonic()))
        elif isinstance(message, m.Drain):
            self._admission.draining = True
        else:
            self._handover(message)

    def _handover(self, message: object) -> None:
        if isinstance(message, m.Listed):
            if message.partition not in self._departures:
                self._listed[message.partition] = message.lease
        elif isinstance(message, m.CheckRecovered):
            self._check_recovered(message.partitions)
        elif isinstance(message, m.HandOver):
            self._hand_over(message)
        elif isinstance(message, m.ServeOn):
            self._serve_on(message.partitions)
        else:
            raise TypeError(f"{self} does not know what to do with {message!r}")

    # What comes in.

    def _entry(self, entry: Entry) -> bool:
        """Route one inbox entry; False if it is on its way already."""
        if self._admission.has_entry(entry.partition, entry.entry_id):
            return False
        if self._letters.has(entry.partition, entry.entry_id):
            return False
        if not self._stays(entry.partition):
            return False
        newer = self._shard.newer
        if newer.has_entry(entry.partition, entry.entry_id):
            return False
        strike = self._suspicions.entry(entry.partition, entry.entry_id)
        if newer.entry(entry.partition, entry.entry_id, entry.fields):
            self._begin(entry.partition, entry.entry_id)
            self._shard.observer(store_events.LeftAlone("entry"))
            return False
        if strike is not None and (why := why_buried(strike)):
            self._bury(entry.partition, entry.entry_id, "kills its shard", why)
            self._forgive(entry.partition, [f"e:{entry.entry_id}"])
            return True
        if strike is not None:
            self._opens("entry", entry.entry_id, strike)
        try:
            self._shard.box.reading(entry.partition, entry.entry_id)
            execution_id, mail = read_entry(entry)
            if self._shard.keys.partition_of(execution_id) != entry.partition:
                raise NoSuchCommand(f"execution {execution_id} does not belong to partition {entry.partition}")
        except NoSuchCommand as error:
            self._bury(entry.partition, entry.entry_id, "malformed", str(error))
            return True
        finally:
            self._shard.box.read()
        if strike is not None:
            self._forgive(entry.partition, [f"e:{entry.entry_id}"])  # whatever it was, reading it did no harm
        route = self._routes.get(execution_id)
        if route is not None and route.open is not None and entry.entry_id in route.open:
            return False
        if isinstance(mail, m.Doorbell) and (route is None or not route.busy):
            self._admission.ring(Start(execution_id, entry.partition, entry.entry_id, flow_of(entry), mail.made_at))
        else:
            self._begin(entry.partition, entry.entry_id)
            self._send(execution_id, entry.partition, mail)
        return True

    def _begin(self, partition: int, entry_id: str, since_ms: int | None = None) -> None:
        """That entry is under way from now on: since it came, unless it was held back."""
        since = order(entry_id)[0] if since_ms is None else since_ms
        self._shard.holdings.unapplied.begin(partition, entry_id, since)

    def _count_starts(self) -> None:
        now = self._shard.clock.now_ms()
        ages = dict.fromkeys((flow.name for flow in self._shard.registry), 0.0)
        for flow, entry_id in self._admission.next_starts().items():
            ages[flow] = max(0, now - order(entry_id)[0]) / 1000
        self._shard.observer(store_events.StartsWait(ages))

    def _send(self, execution_id: str, partition: int, mail: m.Mail, flow: str = "") -> None:
        route = self._routes.get(execution_id)
        if route is None:
            # What the last owner left is told by the grant, whoever comes first: a command or recovery.
            route = self._routes[execution_id] = Route(partition, self._suspicions.left(partition, execution_id), flow)
            self._load(execution_id)
        if isinstance(mail, m.Doorbell):
            self._begins_to_run(execution_id, route)  # the limit must know before it does
        route.tell(mail)

    def _swept(self, message: m.Swept) -> None:
        entries = sum([self._entry(entry) for entry in message.entries])
        now = self._shard.clock.now_ms()
        unknown = [each for each in message.due if not self._known(each) and self._serves(each)]
        for execution_id in unknown:
            self._admission.bring_back(self._shard.keys.partition_of(execution_id), [(execution_id, 0)], now)
        if entries or unknown:
            self._shard.observer(store_events.SweepFound(entries, len(unknown)))

    def _recover(self, message: m.Recover) -> None:
        if not self._stays(message.partition):
            return
        suspects, entries = self._suspicions.unmet(message.partition)
        unknown = []
        for execution_id, due in {**dict.fromkeys(suspects, 0.0), **dict(message.executions)}.items():
            route = self._routes.get(execution_id)
            if route is not None:
                route.recalled = not route.busy
            elif not self._admission.knows(execution_id) and self._serves(execution_id):
                unknown.append((execution_id, due))
        self._admission.bring_back(message.partition, unknown, self._shard.clock.now_ms())
        if entries:
            self._forgive(message.partition, [f"e:{entry_id}" for entry_id in entries])

    def _known(self, execution_id: str) -> bool:
        return execution_id in self._routes or self._admission.knows(execution_id)

    def _activate(self, execution_id: str, busy: bool) -> None:
        if self._known(execution_id):
            return
        partition = self._shard.keys.partition_of(execution_id)
        if self._shard.holdings.grant(partition) is not None:
            route = self._routes[execution_id] = Route(partition, self._suspicions.left(partition, execution_id))
            route.rung = True
            self._count_busy(route, busy)  # until its actor says otherwise
            self._load(execution_id)

    def _admit(self) -> None:
        """Let in whoever may come in now."""
        admission = self._admission
        if not admission.waiting:
            return
        now = self._shard.clock.monotonic()
        while self._loading < LOADING_MAX and (candidate := admission.next(now)) is not None:
            if isinstance(candidate, Start):
                mail = m.Doorbell(candidate.entry_id, candidate.made_at)
                self._begin(candidate.partition, candidate.entry_id, self._shard.clock.now_ms())
                self._send(candidate.execution_id, candidate.partition, mail, candidate.flow)
            else:
                self._activate(candidate.execution_id, candidate.busy)
        if admission.ramp_until is not None and not self.timers.active("ramp"):
            self.timers.start("ramp", admission.ramp_until - now, _LetIn())

    # Rows and actors.

    def _load(self, execution_id: str) -> None:
        route = self._routes.get(execution_id)
        if route is not None and route.ref is None and not route.waits_for:
            route.waits_for = "row"
            route.grant = self._shard.holdings.grant(route.partition)
            self._loading += 1
            self._shard.mirror.send(self.actor_ref, Load(execution_id))

    def _load_again(self, execution_id: str) -> None:
        route = self._routes.get(execution_id)
        if route is not None:
            self._count_busy(route, route.busy or route.rung or route.begins)
            self._load(execution_id)

    def _row_read(self, message: m.RowRead) -> None:
        self._loading -= 1
        route = self._routes.get(message.execution_id)
        if take_one(self._stale_rows, message.execution_id) or route is None:
            return
        route.waits_for = ""
        if isinstance(message.reply, Broken) and message.reply.wrong_type:
            self._foreign_row(message.execution_id, route, message.reply.message)
        elif not isinstance(message.reply, Loaded) or (grant := self._standing(route)) is None:
            # What failed says nothing about the row, nor does one that another owner may have written by now: ask
            # again. Others may run meanwhile.
            again = _LoadAgain(message.execution_id)
            self._count_busy(route, False)
            self.timers.start("load:" + message.execution_id, LOAD_RETRY_SECONDS, again)
        elif self._leave_alone(message.execution_id, route, message.reply.fields):
            pass
        elif revive(self._shard, message.execution_id, message.reply.fields):
            route.waits_for = "revival"
        elif message.reply.fields:
            self._learn_flow(route, message.reply.fields.get("flow", b"").decode(errors="replace"))
            self._shard.afterlife.forget(message.execution_id)
            park = route.park or parking(route.left)
            if route.left.strike is not None and park is None:
                self._opens("execution", message.execution_id, route.left.strike)
            left = msgspec.structs.replace(route.left, called=True) if route.called else route.left
            if message.execution_id in self._rebuilt:
                self._rebuilt.discard(message.execution_id)
                still_open = {name[2:] for name in message.reply.fields if name.startswith("p:")}
                self._shard.runner.keep(message.execution_id, still_open)
            ref = self._spawn(message.execution_id, message.reply.fields, grant, left, park)
            self._suspicions.settle(route.partition, message.execution_id)
            route.park = None
            route.left = opened(route.left)  # from now on the shard itself knows what runs
            if route.partition in self._departures:
                ref.tell(m.Leave())
            route.connect(ref)
        else:
            self._no_row(message.execution_id, route)

    def _standing(self, route: Route) -> Grant | None:
        """The grant under which its row was asked for, if it lasts: so nobody else has written the row since."""
        grant, holdings = route.grant, self._shard.holdings
        lasts = grant is not None and holdings.lease(route.partition) == grant.value
        return grant if lasts and holdings.may_act(route.partition) else None

    def _spawn(
        self, execution_id: str, fields: dict[str, bytes], grant: Grant, left: Left, park: m.Park | None
    ) -> AnyRef:
        shard = self._shard
        arguments = (shard, execution_id, fields, grant, left, park)
        return self.scheduler.spawn(ExecutionActor, *arguments, name=execution_id, supervisor=shard.supervisor)

    def _no_row(self, execution_id: str, route: Route) -> None:
        self._remove(execution_id)
        for mail in (route.open or {}).values():
            self._bury_mail(route.partition, mail, "no such execution", f"there is no execution {execution_id}")
        if route.left.suspect:
            self._suspicions.settle(route.partition, execution_id)
            self._forgive(route.partition, [f"x:{execution_id}", f"i:{execution_id}"])
        lease = self._shard.holdings.lease(route.partition)
        if route.rung and lease is not None:
            # It was on a list, and every sweep would find it there again.
            told = "execution %s is listed and has no row: it is taken off the lists"
            say(logger, "RowMissing", told, execution_id, execution=execution_id)
            self._shard.observer(store_events.RowMissing(execution_id))
            flows = sorted({flow.name for flow in self._shard.registry} | ({route.flow} - {""}))
            self._shard.mirror.send(None, Unlist(route.partition, execution_id, lease, flows))

    def _leave_alone(self, execution_id: str, route: Route, fields: dict[str, bytes]) -> bool:
        """Whether a newer version wrote its row: then that stays as it is, and so does what is sent to it."""
        newer = self._shard.newer
        known = newer.has_row(route.partition, execution_id)
        if not newer.row(route.partition, execution_id, fields, clean=route.left.clean):
            return False
        self._remove(execution_id)
        for entry_id in route.open or ():
            newer.leave_entry(route.partition, entry_id)
        if not known:
            self._shard.observer(store_events.LeftAlone("row"))
        return True

    def _foreign_row(self, execution_id: str, route: Route, error: str) -> None:
        """What has the name of its row is none, until a person mends it. The sweep looks again."""
        self._remove(execution_id)
        reason = f"the key {self._shard.keys.row(execution_id)} in Redis is no row of an execution ({error}): remove it"
        told = "execution %s can't be read: %s"
        say(logger, "KeyUnreadable", told, execution_id, reason, execution=execution_id, detail=error)
        for mail in (route.open or {}).values():
            self._bury_mail(route.partition, mail, "not applicable", reason)

    def _actor_gone(self, message: m.ActorGone) -> None:
        route = self._routes.get(message.execution_id)
        if route is None or route.ref is not message.ref:
            return
        self._rebuilt.add(message.execution_id)
        route.ref = None
        route.park = message.park
        self._load(message.execution_id)

    def _may_stop(self, message: m.MayStop) -> None:
        route = self._routes.get(message.execution_id)
        if route is None or route.ref is not message.ref:
            message.ref.tell(m.StopGranted())
        elif self._may_go(route, message):
            self._remove(message.execution_id)
            message.ref.tell(m.StopGranted())
            if route.recalled and route.partition not in self._departures:
                now = self._shard.clock.now_ms()
                self._admission.bring_back(route.partition, [(message.execution_id, now)], now - 1)

    def _may_go(self, route: Route, message: m.MayStop) -> bool:
        """Where its partition leaves, only what an actor says since it was told of that counts: it may have begun a
        step since it asked before."""
        leaves = route.partition in self._departures
        if message.told or leaves:
            return message.told and leaves
        return route.routed == message.handled

    def _revived(self, execution_id: str) -> None:
        route = self._routes.get(execution_id)
        if route is not None and route.waits_for == "revival":
            route.waits_for = ""
            self._load(execution_id)

    def _tail_lost(self, partition: int) -> None:
        routes = self._routes.items()
        living = {i: route.ref for i, route in routes if route.partition == partition and route.ref is not None}
        self._shard.healer.tell(m.Living(partition, living))

    # Partitions that go.

    def _stays(self, partition: int) -> bool:
        """Whether it is ours, and not about to leave."""
        return partition not in self._departures and self._shard.holdings.lease(partition) is not None

    def _serves(self, execution_id: str) -> bool:
        """Whether it is for us: its partition stays ours, and no newer version wrote its row."""
        partition = self._shard.keys.partition_of(execution_id)
        return self._stays(partition) and not self._shard.newer.has_row(partition, execution_id)

    def _check_recovered(self, partitions: list[int]) -> None:
        """An execution that was not loaded since its partition became ours may have been interrupted before that."""
        holdings = self._shard.holdings
        waiting = self._admission.returning
        unknown = {route.partition for route in self._routes.values() if not route.left.clean}
        listed = {each for each in partitions if self._listed.get(each, "") == holdings.lease(each)}
        for partition in listed - waiting - unknown - self._shard.newer.unmet():
            seconds = holdings.recovered(partition)
            if seconds is not None:
                self._shard.observer(store_events.PartitionRecovered(partition, seconds))
        standing = listed & waiting if self._admission.full else set()
        if standing:
            standing -= {route.partition for route in self._routes.values()}
        holdings.standing = frozenset(standing)

    def _hand_over(self, message: m.HandOver) -> None:
        """Nothing of these partitions begins any more; who is in memory (or comes there by now) is told to leave it."""
        leaving = set(message.partitions)
        self._admission.drop_partitions(leaving)
        for partition in leaving:
            self._listed.pop(partition, None)  # what waited is out of sight, but not seen to
        for route in self._routes.values():
            if route.partition in leaving and route.ref is not None:
                route.ref.tell(m.Leave())
        self._departures.begin(leaving, [route.partition for route in self._routes.values()], message.quiet)

    def _serve_on(self, partitions: list[int]) -> None:
        """Who has left comes back as what the partition has is read again."""
        staying = {partition for partition in partitions if self._departures.end(partition)}
        for route in self._routes.values():
            if route.partition in staying and route.ref is not None:
                route.ref.tell(m.Stay())

    def _partition_lost(self, partition: int) -> None:
        self._departures.end(partition)
        self._listed.pop(partition, None)
        self._shard.newer.forget(partition)
        self._shard.holdings.unapplied.lost(partition)
        self._shard.healer.tell(m.PartitionLost(partition))
        for execution_id, route in list(self._routes.items()):
            if route.partition == partition:
                self._forget(execution_id, route)
        self._admission.drop_partitions({partition})
        self._letters.lost(partition)
        self._shard.runner.lose(partition)

    def _forget(self, execution_id: str, route: Route) -> None:
        self._remove(execution_id)
        self.timers.cancel("load:" + execution_id)
        if route.ref is not None:
            route.ref.tell(m.Drop())
        # The partition may come back before the answer does, which then is not for the route that there is by then.
        elif route.waits_for == "row":
            self._stale_rows[execution_id] += 1

    def _remove(self, execution_id: str) -> None:
        route = self._routes.pop(execution_id)
        self._rebuilt.discard(execution_id)
        self._residents.gone(execution_id)
        self._count_busy(route, False)
        if route.partition in self._departures:
            self._departures.gone(route.partition)

    def _busy(self, message: m.Busy) -> None:
        route = self._routes.get(message.execution_id)
        # At rest before it got the doorbell that is on its way to it: its place is taken already.
        if route is not None and (message.busy or not route.begins):
            if message.busy:
                self._begins_to_run(message.execution_id, route)
            else:
                self._count_busy(route, False)
                self._rests(message.execution_id)

    def _begins_to_run(self, execution_id: str, route: Route) -> None:
        route.recalled = False
        self._count_busy(route, True)
        self._residents.gone(execution_id)

    # Who leaves memory.

    def _rests(self, execution_id: str) -> None:
        self._residents.rests(execution_id, self._shard.clock.monotonic())
        self._send_away(self._residents.too_many(len(self._routes)))

    def _send_away(self, execution_ids: list[str]) -> None:
        for execution_id in execution_ids:
            route = self._routes.get(execution_id)
            if route is not None and route.ref is not None:
                route.ref.tell(m.Passivate())

    def _count_busy(self, route: Route, busy: bool) -> None:
        if route.busy != busy:
            route.busy = busy
            if busy:
                self._admission.began(route.flow)
            else:
                self._admission.rested(route.flow)

    def _learn_flow(self, route: Route, flow: str) -> None:
        """Its row tells which flow it is of; a doorbell of another version, or recovery, did not."""
        if route.flow != flow:
            if route.busy:
                self._admission.rested(route.flow)
                self._admission.began(flow)
            route.flow = flow

    def _entries_done(self, message: m.EntriesDone) -> None:
        for entry_id in message.entry_ids:
            self._shard.holdings.unapplied.done(message.partition, entry_id)
        route = self._routes.get(message.execution_id)
        if route is not None:
            for entry_id in message.entry_ids:
                route.done(entry_id)

    def _opens(self, kind: str, name: str, strike: Strike) -> None:
        against = f"{strike.count} of {STRIKES_MAX} strikes against it ({strike.cause})"
        told = "%s %s is opened again, with %s"
        say(
            logger,
            "SuspectOpened",
            told,
            kind,
            name,
            against,
            kind=kind,
            entry=name if kind == "entry" else None,
            execution=name if kind == "execution" else None,
            strikes=strike.count,
            detail=strike.cause,
        )
        self._shard.observer(store_events.SuspectOpened(kind, name, strike.count, strike.cause))

    def _forgive(self, partition: int, fields: list[str]) -> None:
        """Hold nothing any more against suspects."""
        lease = self._shard.holdings.lease(partition)
        if lease is not None:
            self._shard.mirror.send(None, Forget(partition, lease, fields))

    # Dead letters.

    def _bad_command(self, message: m.BadCommand) -> None:
        self._bury_mail(message.partition, message.mail, "not applicable", message.reason)
        route = self._routes.get(message.execution_id)
        if route is not None:
            route.done(message.mail.entry_id)

    def _bury_mail(self, partition: int, mail: m.Mail, kind: LetterKind, reason: str) -> None:
        if isinstance(mail, m.CommandMail):
            self._bury(partition, mail.entry_id, kind, reason, mail.command_id)
        elif mail.entry_id:
            self._bury(partition, mail.entry_id, kind, reason)

    def _bury(self, partition: int, entry_id: str, kind: LetterKind, reason: str, command_id: str = "") -> None:
        lease = self._shard.holdings.lease(partition)
        if lease is None:
            return
        self._begin(partition, entry_id)
        letter = DeadLetter(
            partition=partition,
            lease=lease,
            entry_id=entry_id,
            kind=kind,
            reason=reason,
            now_ms=self._shard.clock.now_ms(),
            command_id=command_id,
            outcome=encode(Outcome(False, "", reason)) if command_id else b"",
        )
        self._letters.send(self.actor_ref, letter)


class _LoadAgain(msgspec.Struct):
    execution_id: str


class _LetIn(msgspec.Struct):
    """The ramp lets the next one in."""
