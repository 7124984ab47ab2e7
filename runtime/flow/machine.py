"""One execution as a machine: rules and flow code together, still without thread, clock or I/O.

`feed(event)` runs `decide`, gives recorded facts to the flow's code, decides on what the code did with them,
and so on until nothing is left to deliver. What comes out is one `Turn`: one commit, and what to do once that
commit is acknowledged.
"""

from __future__ import annotations

from collections.abc import Mapping

import msgspec
from msgspec.structs import replace

from stepwell.core.checkpoint import Checkpoint, oldest_first
from stepwell.core.effects import (
    Answer,
    Deliver,
    Effect,
    Emit,
    Erase,
    Redrive,
    Write,
)
from stepwell.core.errors import DefinitionError, Diverged, InvalidInput, PayloadError
from stepwell.core.events import Event, WokenBy
from stepwell.core.inputs import (
    NOT_MOVED,
    Begin,
    CutOff,
    Declaration,
    FlowRaised,
    Input,
    Moved,
    ParkAsked,
    Resumed,
    RetryAsked,
)
from stepwell.core.messages import message_of
from stepwell.core.records import CutShort, Failure, decode_fact
from stepwell.core.status import PARK_DIVERGED, PARKED, QUEUED, TERMINAL
from stepwell.core.transitions import decide, settle
from stepwell.flow.definitions import FlowLike
from stepwell.flow.driver import Driver, Moves, require_same
from stepwell.flow.operations import StepCall

_REPEATABLE = (Begin, Resumed, RetryAsked)
ForTheCode = Deliver | Redrive


class Turn(msgspec.Struct, eq=False):
    """What one event came to: the row's changed fields (None: erased), answers to commands, what is to be
    told, and what follows."""

    fields: dict[str, bytes | None] = {}
    answers: list[Answer] = []
    events: list[Event] = []
    follow: list[Effect] = []

    @property
    def empty(self) -> bool:
        """Whether there is nothing to commit."""
        return not self.fields and not self.answers


class Machine:
    """An execution in memory: its checkpoint and, unless it rests, its flow's code."""

    __slots__ = ("_driver", "checkpoint", "flow")

    def __init__(self, flow: FlowLike | None, checkpoint: Checkpoint) -> None:
        self.flow = flow
        self.checkpoint = checkpoint
        self._driver: Driver | None = None

    def start(
        self,
        now: int,
        clean: bool,
        cut: tuple[CutShort, ...] | None = None,
        moved: Mapping[str, int] = NOT_MOVED,
        woken_by: WokenBy = "recovery",
    ) -> Turn:
        """Bring the execution to life after it was loaded. `clean`: nothing ran when its last owner left; `cut`: what
        ran when it died, if that is known; `moved`: by how many ms the clock was set forward while operations waited;
        `woken_by`: what starts retries that are overdue.
        """
        if self.checkpoint.status == QUEUED:
            return self.feed(Begin(now))
        if self.checkpoint.status == PARKED or self.checkpoint.terminal:
            return Turn()
        return self.feed(Resumed(now, clean, cut, moved, woken_by))

    def feed(self, event: Input) -> Turn:
        """Apply one event. Divergence parks the execution (or refuses the retry that met it)."""
        before = self.checkpoint
        try:
            return self._turn(event)
        except (Diverged, PayloadError, DefinitionError) as error:
            self.checkpoint = before
            self.close()
            if isinstance(event, RetryAsked) and event.command_id:
                return self._turn(replace(event, obstacle=f"{PARK_DIVERGED}: {message_of(error)}"))
            return self._parked(event, message_of(error), error.path if isinstance(error, Diverged) else "")

    def _parked(self, event: Input, why: str, path: str) -> Turn:
        """Park, and keep what happened: it is recorded, and reaches the code when that fits again."""
        turn = Turn()
        undelivered: list[ForTheCode] = []
        if isinstance(event, Resumed):
            self._decide(CutOff(event.now, event.clean, event.cut), turn, undelivered)
        elif not isinstance(event, _REPEATABLE):
            self._decide(event, turn, undelivered)
        self._decide(ParkAsked(event.now, PARK_DIVERGED, why, path), turn, undelivered)
        return self._settled(turn)

    def park(self, asked: ParkAsked, clean: bool, cut: tuple[CutShort, ...] | None) -> Turn:
        """Park it as it was loaded; `clean` and `cut` as for `start`."""
        turn = Turn()
        undelivered: list[ForTheCode] = []
        self._decide(CutOff(asked.now, clean, cut), turn, undelivered)
        self._decide(asked, turn, undelivered)
        return self._settled(turn)

    def step_call(self, path: str) -> StepCall[object]:
        """The call of the open step at `path`."""
        assert self._driver is not None, f"{self.checkpoint.execution_id} is not driven"
        return self._driver.step_call(path)

    def close(self) -> None:
        """Take the flow's code out of memory; nothing of it runs."""
        if self._driver is not None:
            self._driver.close()
            self._driver = None

    def _turn(self, event: Input) -> Turn:
        turn = Turn()
        queue: list[ForTheCode] = []
        begins = type(event) is Begin and self.checkpoint.status == QUEUED
        if type(event) is Resumed and self._driver is None:
            queue.append(Redrive())
        self._decide(event, turn, queue)
        if begins:
            self._begin(event, turn, queue)
        while queue:
            effect = queue.pop(0)
            if type(effect) is Redrive:
                self._redrive(event.now, turn, queue)
            elif type(effect) is Deliver and self._driver is not None:
                self._move(self._driver.deliver(effect.path, effect.fact), event.now, turn, queue)
        return self._settled(turn)

    def _settled(self, turn: Turn) -> Turn:
        self.checkpoint = settle(self.checkpoint)
        status = self.checkpoint.status
        if turn.answers:
            turn.answers = [replace(a, outcome=replace(a.outcome, status=status)) for a in turn.answers]
        if status in TERMINAL or status == PARKED:
            self.close()
        return turn

    def _decide(self, event: Input, turn: Turn, queue: list[ForTheCode]) -> None:
        """Facts are delivered first in, first out: in the order of their `seq`, as replay will."""
        self.checkpoint, effects = decide(self.checkpoint, event)
        for effect in effects:
            # By type and not isinstance, which costs three times as much where it says no.
            if type(effect) is Write:
                turn.fields[effect.field] = effect.value
            elif type(effect) is Erase:
                turn.fields[effect.field] = None
            elif type(effect) is Emit:
                turn.events.append(effect.event)
            elif type(effect) is Deliver or type(effect) is Redrive:
                queue.append(effect)
            elif type(effect) is Answer:
                turn.answers.append(effect)
            else:
                turn.follow.append(effect)

    def _begin(self, event: Input, turn: Turn, queue: list[ForTheCode]) -> None:
        driver = self._new_driver(event.now, turn, queue)
        if driver is not None:
            self._move(driver.begin(), event.now, turn, queue)

    def _new_driver(self, now: int, turn: Turn, queue: list[ForTheCode]) -> Driver | None:
        assert self.flow is not None, f"{self.checkpoint.execution_id} has no flow here"
        try:
            arguments = self.flow.input.decode(self.checkpoint.input)
        except InvalidInput as error:
            if self.checkpoint.open:
                raise Diverged(str(error)) from error
            failure = FlowRaised(Failure("InvalidInput", str(error)))
            self._decide(Moved(now, end=failure), turn, queue)
            return None
        self._driver = Driver(self.flow, arguments, self.checkpoint.execution_id)
        return self._driver

    def _move(self, moves: Moves, now: int, turn: Turn, queue: list[ForTheCode]) -> None:
        if moves.declared or moves.wind_up or moves.end is not None:
            event = Moved(now, tuple(moves.declared.values()), tuple(moves.wind_up), moves.end)
            self._decide(event, turn, queue)

    def _redrive(self, now: int, turn: Turn, queue: list[ForTheCode]) -> None:
        """Build the code anew from the recorded facts, in their order.

        Raises:
            Diverged: code and record do not fit.
        """
        self.close()
        cp = self.checkpoint
        if cp.status == QUEUED:
            self._decide(Begin(now), turn, queue)
            self._begin(Begin(now), turn, queue)
            return
        facts = [(path, decode_fact(raw)) for path, raw in oldest_first(cp.facts)]
        driver = self._new_driver(now, turn, queue)
        if driver is None:
            return
        declared: dict[str, Declaration] = {}
        moves = driver.begin()
        declared.update(moves.declared)
        # Facts of this very turn are in the record already, so replay delivers them.
        queued = [effect for effect in queue if not isinstance(effect, Deliver)]
        queue.clear()
        queue.extend(queued)
        for path, fact in facts:
            if moves.end is not None:
                raise Diverged(f"the record has an outcome of {path}, but the code ends before it", path)
            moves = driver.deliver(path, fact)
            declared.update(moves.declared)
        self._check_open(driver, moves)
        fresh = {path: d for path, d in declared.items() if path in driver.pending() and path not in cp.open}
        winding = [path for path in driver.winding() if path in cp.open and not cp.open[path].winding]
        end = moves.end
        if fresh or winding or end is not None:
            self._decide(Moved(now, tuple(fresh.values()), tuple(winding), end), turn, queue)

    def _check_open(self, driver: Driver, moves: Moves) -> None:
        pending = driver.pending()
        for path, op in self.checkpoint.open.items():
            found = pending.get(path)
            if found is None:
                waits = "ends" if moves.end is not None else f"waits for {', '.join(sorted(pending)) or 'nothing'}"
                raise Diverged(f"the record has {path} open, but the code {waits} there", path)
            require_same(path, op.kind, op.name, found)
