"""One actor per execution in memory: it owns the checkpoint, mirrors each change, and arms its own timers.

At most one commit is in flight; what comes meanwhile waits in `_later`. What a decision asks for (attempts,
timers, events) happens when its commit is acknowledged, so nothing goes on that Redis does not know.
"""

from __future__ import annotations

import logging
import math
from collections.abc import Sequence

from msgspec.structs import replace

from stepwell.actors import messages as m
from stepwell.actors import store_events
from stepwell.actors.commands import NoSuchCommand, command_input
from stepwell.actors.execution_fields import ExecutionFields
from stepwell.actors.handover import first_outcome
from stepwell.actors.healing import whole_row
from stepwell.actors.runner import StepOrder
from stepwell.actors.telling import attempt_failed, parked_unread, retry_started, unloaded
from stepwell.actors.unread import parking_commit
from stepwell.core import row
from stepwell.core.checkpoint import Checkpoint
from stepwell.core.effects import ArmTimer, DisarmTimer, Effect, StartAttempt, Withdraw
from stepwell.core.errors import StepwellError
from stepwell.core.events import WokenBy
from stepwell.core.inputs import (
    AttemptSucceeded,
    GraceOver,
    Input,
    NotStarted,
    ParkAsked,
    RetryAsked,
    TimerFired,
)
from stepwell.core.limits import WAKE_AHEAD_SECONDS
from stepwell.core.ownership import next_rev
from stepwell.core.records import encode
from stepwell.core.status import (
    PARK_KILLS_SHARD,
    PARK_NOT_DEPLOYED,
    PARK_UNREADABLE,
    PARKED,
    QUEUED,
    RUNNING,
    SETTLED,
    STEP_RUNNING,
    TERMINAL,
    WAITING,
)
from stepwell.core.transitions import dues, is_busy, next_due, place_of, score_of
from stepwell.flow.attempt import context_of
from stepwell.flow.machine import Machine, Turn
from stepwell.flow.registry import unknown_flow
from stepwell.store.replies import Committed, Conflict, Reply
from stepwell.store.requests import KEEP, Applied, Commit, Forget, Restore

logger = logging.getLogger("stepwell.execution")
HELD_RETRY_SECONDS = 0.5


class RowConflict(StepwellError):
    """A row was changed by somebody else while we held its partition."""


class ExecutionActor(ExecutionFields):
    """See above; what it is made from is told by `ExecutionFields`."""

    __slots__ = ()

    def on_start(self) -> None:
        """Read the row; go on where it stands. A queued execution waits for its doorbell."""
        fields, self._fields = self._fields, None
        assert fields is not None
        if self._park is not None:
            self._park_unread(fields, self._park)
            return
        try:
            cp = row.parse(self._id, fields, self._shard.secret, self._shard.newer.reads)
        except row.UnreadableRow as error:
            self._park_unread(fields, m.Park(PARK_UNREADABLE, str(error)))
            return
        self._row_status = cp.status
        self._row_due, self._row_backoff = dues(cp)
        self._row_place = place_of(cp) if cp.status in SETTLED else None
        flow = self._shard.registry.find(cp.meta.flow)
        self._machine = machine = Machine(flow, cp)
        if flow is None:
            self._park_not_deployed(machine)
        elif cp.status == PARKED and cp.error is not None and cp.error.type == PARK_NOT_DEPLOYED:
            self._feed(RetryAsked(self._now(), ""))
        elif cp.status != QUEUED:
            now = self._now()
            woken_by: WokenBy = "signal" if self._left.called else "recovery"
            self._commit(machine.start(now, self._left.clean, self._left.cut, self._moved(cp), woken_by), now)
        self._catch_up()
        self._rest()

    def _moved(self, cp: Checkpoint) -> dict[str, int]:
        """By how much the clock was moved since each timed operation was recorded."""
        since = self._shard.clock.moved_since
        timed = [(path, op.due_at - op.delay_ms) for path, op in cp.open.items() if op.due_at and op.delay_ms]
        return {path: moved for path, at_ms in timed if (moved := since(at_ms))}

    def on_receive(self, message: object) -> None:
        """One message; everything but the store's answer waits while a commit is in flight."""
        if type(message) is m.Written:
            self._written(message.reply)
        elif type(message) in _NEVER_WAITS or (type(message) is m.StopGranted and self._held_back is not None):
            self._handle(message)
        elif self._in_flight is not None or self._later or self._held_back is not None:
            self._postpone(message)
        else:
            self._handle(message)
        if self._in_flight is None:
            if self._later:
                self._catch_up()
            self._rest()

    def _catch_up(self) -> None:
        while self._later and self._in_flight is None and not self._leaving:
            place = 0 if self._held_back is None else first_outcome(self._later)
            if place is None:
                break
            self._handle(self._later.pop(place))
        if not self._later:
            self._later = None

    def _postpone(self, message: object, first: bool = False) -> None:
        if self._later is None:
            self._later = []
        self._later.insert(0 if first else len(self._later), message)

    def on_stop(self) -> None:
        """Nothing of the flow's code runs when its execution leaves memory."""
        self._close()

    def on_failure(self, *_: object) -> None:
        """The same after a failure."""
        self._close()

    def _handle(self, message: object) -> None:
        if type(message) is m.StepDone:
            self._settling = message
            now, began, ended, queued = self._now(), message.started_at, message.ended_at, message.queued_ms
            self._feed(AttemptSucceeded(now, message.path, message.attempt, began, ended, message.value, queued))
        elif type(message) is m.StepErred:
            self._settling = message
            self._feed(attempt_failed(message, self._now(), self._shard.clock.monotonic()))
        elif type(message) is m.TimerDue:
            self._feed(TimerFired(self._now(), message.path, message.woken_by))
        elif type(message) is m.Doorbell:
            self._doorbell(message)
        elif type(message) is m.CommandMail:
            self._command(message)
        elif type(message) is m.NeverBegun:
            self._feed(NotStarted(self._now(), message.path, message.attempt))
        elif type(message) is m.StopGranted:
            self._remember()
            self._forget()
        else:
            self._rare(message)

    def _rare(self, message: object) -> None:
        if isinstance(message, m.BodyBegan):
            if self._machine is not None:
                self._shard.bus.publish(retry_started(self._machine.checkpoint, message))
        elif isinstance(message, m.GraceOver):
            self._feed(GraceOver(self._now(), message.path, message.attempt))
        elif isinstance(message, m.StoredRev):
            self._compare(message.rev)
        elif isinstance(message, m.Drop):
            self._let_go()
            self._forget()
        elif isinstance(message, m.Leave):
            self._told_to_leave()
        elif isinstance(message, m.Stay):
            self._told_to_stay()
        elif isinstance(message, m.StepHeld):
            again = m.StartAgain(message.path, message.attempt)
            self.timers.start("held:" + message.path, HELD_RETRY_SECONDS, again)
        elif isinstance(message, m.StartAgain):
            self._start(StartAttempt(message.path, message.attempt))
        elif isinstance(message, m.Passivate):
            if self._idle_ms > WAKE_AHEAD_SECONDS * 1000:
                self._ask_to_leave()
        else:
            raise TypeError(f"{self} does not know what to do with {message!r}")

    # Events in.

    def _feed(self, event: Input) -> None:
        machine = self._machine
        if machine is not None:
            self._commit(machine.feed(event), event.now)

    def _refuse(self, mail: m.Mail, reason: str) -> None:
        self._handled += 1
        self._shard.dispatcher.tell(m.BadCommand(self._id, self._partition, mail, reason))

    def _why_unread(self) -> str:
        why = "" if self._park is None else f" ({self._park.in_short})"
        return f"{self._id} is parked, and its row was not read{why}"

    def _doorbell(self, bell: m.Doorbell) -> None:
        machine = self._machine
        if machine is None:
            self._refuse(bell, self._why_unread())
            return
        self._mail_handled(bell.entry_id, "")
        cp = machine.checkpoint
        # Its own entry has the time of its creation. Should a list have begun it before, that comes late: no repeat.
        if bell.entry_id and bell.made_at != cp.meta.created_at:
            self._shard.observer(store_events.DuplicateSuppressed("start", self._id))
        self._busy = True if bell.entry_id else None  # whoever passed an entry on counts us as running
        now = self._now()
        begins = cp.status == QUEUED and machine.flow is not None
        self._commit(machine.start(now, clean=True) if begins else Turn(), now)

    def _command(self, mail: m.CommandMail) -> None:
        try:
            event = command_input(mail.type, mail.command_id, mail.data, self._now())
        except NoSuchCommand as error:
            self._refuse(mail, str(error))
            return
        machine = self._machine
        if machine is None:
            self._refuse(mail, self._why_unread())
            return
        if machine.flow is None and isinstance(event, RetryAsked):
            cp = machine.checkpoint
            known = [flow.name for flow in self._shard.registry]
            event = replace(event, obstacle=f"{PARK_NOT_DEPLOYED}: {unknown_flow(cp.meta.flow, known)}")
        if isinstance(event, RetryAsked) and self._left.suspect:
            self._pardon = "xi"  # a person says that it is mended
        if mail.command_id and mail.command_id in machine.checkpoint.applied:
            self._shard.observer(store_events.DuplicateSuppressed("command", self._id))
        turn = machine.feed(event)
        outcome = next((encode(a.outcome) for a in turn.answers if a.command_id == mail.command_id), b"")
        self._mail_handled(mail.entry_id, mail.command_id, outcome)
        self._commit(turn, event.now)

    def _mail_handled(self, entry_id: str, command_id: str, outcome: bytes = b"") -> None:
        self._handled += 1
        if entry_id or command_id:
            self._pending = (*self._pending, Applied(entry_id, command_id, outcome))

    # The commit.

    @property
    def _lease(self) -> str | None:
        """Under which its row was read; None when that is over: before a later grant others may have written."""
        lease = self._grant.value
        return lease if self._shard.holdings.lease(self._partition) == lease else None

    def _commit(self, turn: Turn, now: int) -> None:
        """Write what was decided at that time (ms); without a change go on at once."""
        machine = self._machine
        assert machine is not None
        assert self._in_flight is None
        self._turn = turn
        self._turn_at = self._shard.clock.monotonic()
        if turn.empty and not self._pending:
            self._forgive()
            self._acknowledged()
            return
        lease = self._lease
        if lease is None:
            self._forget()
            return
        cp = machine.checkpoint
        due, backoff = dues(cp)
        begun = cp.meta.created_at, ""  # where it is listed until it settles
        place = place_of(cp) if cp.status in SETTLED else begun
        sets: list[tuple[str, bytes]] = []
        dels: list[str] = []
        for name, value in turn.fields.items():
            if value is None:
                dels.append(name)
            else:
                sets.append((name, value))
        commit = Commit(  # some by place: a call with more than 15 names costs ten times as much
            self._partition,
            self._id,
            lease,
            cp.rev,
            self._shard.commit_id(),
            now,
            sets,
            self._row_status,
            cp.status,
            KEEP if due == self._row_due else score_of(due),
            dels,
            self._pending,
            event=encode(turn.events) if turn.events else b"",  # what live views show
            ended=cp.status in TERMINAL and self._row_status not in TERMINAL,
            forget="xi" if self._left.suspect and cp.terminal else self._pardon,
            rev=next_rev(cp.rev, self._grant.epoch),
            flow=cp.meta.flow,
            backoff="" if backoff == self._row_backoff else score_of(backoff),
            attributes=cp.meta.attributes,
            place_before=self._row_place or begun,
            place=place,
        )
        self._pardon = ""
        self._row_due, self._row_backoff, self._row_place = due, backoff, None if place is begun else place
        self._pending = ()
        self._in_flight = commit
        self._shard.mirror.send(self.actor_ref, commit)

    def _written(self, reply: Reply) -> None:
        request = self._in_flight
        machine = self._machine
        if request is None:
            return
        if machine is None:
            self._in_flight = None
            if self._unread is not None and isinstance(reply, Committed):
                self._shard.bus.publish(self._unread)
            return
        if not isinstance(reply, Committed):
            self._not_written(reply, request, machine.checkpoint)
            return
        self._in_flight = None
        cp = machine.checkpoint
        self._row_status = cp.status
        machine.checkpoint = replace(cp, rev=request.rev)
        if isinstance(request, Commit):
            if request.applied:
                entries = [done.entry_id for done in request.applied if done.entry_id]
                self._shard.dispatcher.tell(m.EntriesDone(self._id, self._partition, entries))
        else:
            self._shard.observer(store_events.Healed(self._id))
            if self._pending:
                turn = self._turn
                self._commit(Turn(), self._now())
                self._turn = turn
                return
        self._acknowledged()

    def _not_written(self, reply: Reply, request: Commit | Restore, cp: Checkpoint) -> None:
        if isinstance(reply, Conflict) and isinstance(request, Commit) and reply.stored_rev < request.expected_rev:
            self._restore(cp, request.applied)
            return
        if isinstance(reply, Conflict):
            self._shard.observer(store_events.RowDiverged(self._id))
        raise RowConflict(
            f"execution {self._id}: expected to write revision {request.rev}, but Redis says {reply!r}; the row is"
            " read again"
        )

    def _compare(self, stored_rev: int) -> None:
        """Redis has lost writes of the partition. A commit in flight finds out by itself."""
        machine = self._machine
        if machine is not None and self._in_flight is None and stored_rev < machine.checkpoint.rev:
            self._restore(machine.checkpoint, ())

    def _restore(self, cp: Checkpoint, applied: Sequence[Applied]) -> None:
        """Redis lost acknowledged data: write the whole row as it should be now, under the same fence."""
        lease = self._lease
        if lease is None:
            self._forget()
            return
        self._pending = tuple(applied)
        self._in_flight = whole_row(Restore, self._shard, cp, lease, next_rev(cp.rev, self._grant.epoch))
        self._shard.mirror.send(self.actor_ref, self._in_flight)
        if self._left.suspect:  # what was taken back may be there again, too
            self._pardon = "xi" if cp.terminal else "i"
            self._forgive()

    def _forgive(self) -> None:
        """Take back what is held against it, apart from a commit."""
        lease = self._lease
        if self._pardon and lease is not None:
            fields = [f"{kind}:{self._id}" for kind in self._pardon]
            self._shard.mirror.send(None, Forget(self._partition, lease, fields))
        self._pardon = ""

    def _acknowledged(self) -> None:
        turn, self._turn = self._turn, None
        if turn is not None and self._machine is not None:
            for event in turn.events:
                self._shard.bus.publish(event, about=self._machine.checkpoint)
            self._follow(turn.follow)
        if self._settling is not None:
            self._shard.runner.settle(self._id, self._settling.path, self._settling.attempt)
            self._settling = None
        self._turn_at = 0.0
        self._tell_busy()

    # What follows.

    def _follow(self, effects: Sequence[Effect]) -> None:
        for effect in effects:
            if type(effect) is StartAttempt:
                self._start(effect)
            elif type(effect) is ArmTimer:
                self._unfire(effect.path)
                self._arm(effect)
            elif type(effect) is DisarmTimer:
                self._unfire(effect.path)
                self.timers.cancel(effect.path)
            elif type(effect) is Withdraw:
                self._withdraw(effect)

    def _start(self, effect: StartAttempt) -> None:
        machine = self._machine
        if machine is None:
            return
        cp = machine.checkpoint
        op = cp.open.get(effect.path)
        if op is None or op.attempt != effect.attempt or cp.status != RUNNING:
            return
        if self._held_back is not None:
            # Its body may run already, if this actor was rebuilt.
            if not self._shard.runner.adopt(self._id, effect.path, effect.attempt, self.actor_ref):
                self._held_back[effect.path] = effect
            return
        if op.winding:
            if not self._shard.runner.adopt(self._id, effect.path, effect.attempt, self.actor_ref):
                self._postpone(m.NeverBegun(effect.path, effect.attempt), first=True)
            return
        grant = self._grant
        if self._lease is None:
            return  # the partition is lost, and `Drop` is on its way
        call = machine.step_call(effect.path)
        context = context_of(cp, op, effect.path, call.step, grant.epoch, flags=self._shard.trace_flags)
        due = op.late_from
        ready_at = self._shard.clock.now_ms() if due is None else due
        order = StepOrder(self._partition, grant.value, call, context, op.lane, ready_at)
        self._shard.runner.start(order, self.actor_ref)

    def _withdraw(self, effect: Withdraw) -> None:
        """The step is being wound up: if its body has not begun, it never will."""
        if self._shard.runner.withdraw(self._id, effect.path, effect.attempt):
            self._postpone(m.NeverBegun(effect.path, effect.attempt), first=True)

    def _unfire(self, path: str) -> None:
        """Its timer is over: what that has told, and waits here, is not for what comes next at that path."""
        if self._later:
            self._later = [each for each in self._later if type(each) is not m.TimerDue or each.path != path] or None

    def _arm(self, effect: ArmTimer) -> None:
        """The delay counts from the decision; a rounded millisecond must not make it short."""
        delay = effect.delay_ms / 1000
        passed = self._shard.clock.monotonic() - self._turn_at
        remaining = delay if passed <= 0 else max(0.0, delay - passed + 0.001)
        self.timers.start(effect.path, remaining, m.TimerDue(effect.path, effect.woken_by))

    def _tell_busy(self) -> None:
        machine = self._machine
        if machine is None or machine.checkpoint.status in TERMINAL:
            return  # it asks to leave, which tells that too
        busy = machine.checkpoint.status == RUNNING or is_busy(machine.checkpoint, self._now())
        if busy != self._busy:
            self._busy = busy
            self._shard.dispatcher.tell(m.Busy(self._id, busy))

    # Leaving.

    def _rest(self) -> None:
        """An execution that has ended or is parked leaves memory, one that is due in a long time, and one whose
        partition goes."""
        if self._in_flight is not None or self._leaving:
            return
        if self._held_back is not None:
            self._leave_when_quiet(self._held_back)
            return
        if self._later:
            return
        machine = self._machine
        status = PARKED if machine is None else machine.checkpoint.status
        if status == PARKED or status in TERMINAL:
            self._ask_to_leave()
        elif status == WAITING and self._shard.limits.passivate_after * 1000 < self._idle_ms < math.inf:
            self._ask_to_leave()  # (what is not timed may come at once: the dispatcher tells when that rests too long)

    @property
    def _idle_ms(self) -> float:
        """Milliseconds for which it has nothing to do unless somebody addresses it."""
        machine = self._machine
        if machine is None:
            return math.inf
        cp = machine.checkpoint
        if cp.status != WAITING:
            return 0 if cp.status == RUNNING else math.inf
        due = next_due(cp)
        return math.inf if due is None else due - self._now()

    def _ask_to_leave(self) -> None:
        if self._in_flight is None and not self._later:
            self._shard.dispatcher.tell(m.MayStop(self._id, self.actor_ref, self._handled))

    def _told_to_leave(self) -> None:
        """What has not begun won't; it stays declared, and the next owner runs it as if nothing had been."""
        self._held_back = {}
        self._asked = False
        machine = self._machine
        follow = () if self._turn is None else self._turn.follow
        declared = {effect.path for effect in follow if isinstance(effect, StartAttempt)}
        for path, op in machine.checkpoint.open.items() if machine is not None else ():
            acknowledged = op.status == STEP_RUNNING and path not in declared
            if acknowledged and self._shard.runner.withdraw(self._id, path, op.attempt):
                self._held_back[path] = StartAttempt(path, op.attempt)

    def _leave_when_quiet(self, held_back: dict[str, StartAttempt]) -> None:
        machine = self._machine
        open_steps = machine.checkpoint.open if machine is not None else {}
        if self._asked or any(op.status == STEP_RUNNING and path not in held_back for path, op in open_steps.items()):
            return
        self._asked = True
        self._shard.dispatcher.tell(m.MayStop(self._id, self.actor_ref, self._handled, told=True))

    def _told_to_stay(self) -> None:
        held_back, self._held_back = self._held_back, None
        for effect in (held_back or {}).values():
            self._start(effect)

    def _let_go(self) -> None:
        """The partition is lost: what has not begun must not begin, and what has ended is of no use to us."""
        machine = self._machine
        for path, op in machine.checkpoint.open.items() if machine is not None else ():
            if op.status == STEP_RUNNING:
                self._shard.runner.withdraw(self._id, path, op.attempt)
                self._shard.runner.settle(self._id, path, op.attempt)

    def _remember(self) -> None:
        """Redis may lose what it has just acknowledged: for a while the shard can still restore the row."""
        machine = self._machine
        if machine is not None and self._lease is not None:
            now = self._shard.clock.monotonic()
            self._shard.afterlife.keep(self._partition, machine.checkpoint, now)

    def _forget(self) -> None:
        """Stop here; write nothing, run nothing."""
        self._leaving = True
        self._in_flight = None
        self._later = None
        self.stop()

    def _close(self) -> None:
        machine, self._machine = self._machine, None
        if machine is None:
            return
        for told in unloaded(machine.checkpoint, self._now()):
            self._shard.bus.publish(told)
        machine.close()

    # Parking at the door.

    def _park_not_deployed(self, machine: Machine) -> None:
        cp = machine.checkpoint
        if cp.terminal or cp.status == PARKED:
            return
        why = unknown_flow(cp.meta.flow, [flow.name for flow in self._shard.registry])
        asked = ParkAsked(self._now(), PARK_NOT_DEPLOYED, why)
        self._commit(machine.park(asked, self._left.clean, self._left.cut), asked.now)

    def _park_unread(self, fields: dict[str, bytes], park: m.Park) -> None:
        """The row stays as it is but for status and error: what can't be read must not be written over."""
        if park.reason == PARK_KILLS_SHARD:
            self._pardon = "xi"
        told = parked_unread(self._id, fields, park, self._now())
        commit = parking_commit(self._shard, self._grant, fields, told, self._pardon)
        if commit is not None and self._lease is not None:
            self._unread, self._in_flight = told, commit
            self._shard.mirror.send(self.actor_ref, self._in_flight)
        elif fields.get("status") != b"parked" or park.reason != PARK_UNREADABLE:
            self._forgive()
        self._rest()

    def _now(self) -> int:
        return self._shard.clock.now_ms()


_NEVER_WAITS = frozenset({m.BodyBegan, m.StoredRev, m.Drop, m.Leave, m.Stay})  # for an answer of the store
