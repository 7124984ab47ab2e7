"""What a generated flow must have seen and done, given what became of each of its operations.

`Walk(nodes)` goes through a plan by the documented rules, by itself: none of the product's code is used. `deliver`
tells it the outcome of one operation, in the order in which they were recorded; `pending` is what must then be open.
"""

from __future__ import annotations

from collections.abc import Generator
from dataclasses import dataclass, field
from typing import Any, TypeAlias

from sim.explore import plans
from sim.explore.plans import Nodes, Trip, Way
from sim.explore.steps import POLICIES, packed, value_of


@dataclass
class Asked:
    """An operation that the flow waits for."""

    kind: str  # step, timer or signal
    name: str = ""
    label: str = ""
    script: list[str] = field(default_factory=list)
    given: int = 0  # what the step's body gets
    seconds: float | None = None  # of a timer; the timeout of a wait; how long a step's body works
    wound: bool = False  # it belongs to a gather that fails
    branch_cancelled: bool = False  # it is cleanup
    at: int = 0  # how many facts had been delivered when it was asked for


@dataclass
class Outcome:
    """What became of an operation: `value`, `failed`, `late` or `cancelled`."""

    kind: str
    value: int = 0  # of a signal
    error: str = ""
    attempts: int = 0
    message: str = ""


@dataclass
class End:
    """How the flow's code ended: `returned`, `raised` or `cancelled`."""

    kind: str
    result: Any = None
    error: str = ""
    message: str | None = None  # None: not known
    path: str = ""  # of the step whose failure it is
    attempts: int = 0
    compensated: bool = False  # the flow asked for more after that failure


class StepFell(Exception):
    """StepFailed."""

    def __init__(self, error: str, attempts: int, path: str, message: str) -> None:
        super().__init__(message)
        self.error, self.attempts, self.path, self.message = error, attempts, path, message


class TooLate(Exception):
    """SignalTimeout."""


class Fault(Exception):
    """The flow's own: `args` are type and message."""


class Gone(BaseException):
    """Cancelled."""


class Branches:
    """A gather, as the flow's code asks for it."""

    def __init__(self, codes: list[Code]) -> None:
        self.codes = codes


Code: TypeAlias = "Generator[Asked | Branches, Any, None]"


@dataclass(eq=False)
class _Branch:
    code: Code
    prefix: str
    parent: _Open | None
    cancelled: bool
    answers: bool = False  # what it asks for first answers the failure that its owner was given
    given_failure: bool = False
    counts: dict[str, int] = field(default_factory=dict)

    def path(self, name: str) -> str:
        count = self.counts[name] = self.counts.get(name, 0) + 1
        return f"{self.prefix}{name}" if count == 1 else f"{self.prefix}{name}#{count}"

    @property
    def failing(self) -> bool:
        around = self.parent
        while around is not None:
            if around.failure is not None:
                return True
            around = around.owner.parent
        return False


@dataclass(eq=False)
class _Open:
    path: str
    owner: _Branch
    left: int
    failure: BaseException | None = None
    given_failure: bool = False


class Walk:
    """See the module's docstring. `declared` has each operation that was ever asked for."""

    def __init__(self, nodes: Nodes) -> None:
        self.trip = Trip()
        self.way = Way(self.trip)
        self.forgot = False
        self.end: End | None = None
        self.pending: dict[str, Asked] = {}
        self.declared: dict[str, Asked] = {}
        self.delivered = 0
        self._failed: dict[str, bool] = {}  # steps that failed, and whether the flow asked for more after that
        self._branches: dict[str, _Branch] = {}
        self._fresh: set[str] = set()
        self._root = _Branch(self._follow(nodes, self.way), "", None, False)
        self._ready: list[tuple[_Branch, Any, BaseException | None]] = [(self._root, None, None)]
        self._run()

    def deliver(self, path: str, outcome: Outcome) -> None:
        """An operation has this outcome; KeyError if it is not waited for."""
        asked = self.pending.pop(path)
        branch = self._branches.pop(path)
        self.delivered += 1
        if outcome.kind == "value":
            value: Any = outcome.value
            if asked.kind == "step":
                value = packed(POLICIES[asked.name].typed, value_of(asked.label, asked.given), None)
            self._ready.append((branch, value, None))
        elif outcome.kind == "failed":
            self._failed[path] = False
            fell = StepFell(outcome.error, outcome.attempts, path, outcome.message)
            self._ready.append((branch, None, fell))
        else:
            self._ready.append((branch, None, TooLate(path) if outcome.kind == "late" else Gone()))
        self._run()

    def _run(self) -> None:
        self._fresh = set()
        while self._ready:
            branch, value, error = self._ready.pop(0)
            if error is None and branch.failing and not branch.cancelled:
                error = Gone()
            self._go(branch, value, error)
        for path, asked in self.pending.items():
            asked.wound = self._branches[path].failing and not self._branches[path].cancelled

    def _go(self, branch: _Branch, value: Any, error: BaseException | None) -> None:
        while True:
            if isinstance(error, Gone):
                branch.cancelled = True
            if isinstance(error, Gone | StepFell):
                branch.given_failure = True
            try:
                asked = branch.code.send(value) if error is None else branch.code.throw(error)
            except StopIteration:
                self._ended(branch, None)
                return
            except (StepFell, TooLate, Fault, Gone) as raised:
                self._ended(branch, raised)
                return
            if isinstance(asked, Asked):
                path = branch.path({"step": asked.name, "timer": "sleep", "signal": "wait"}[asked.kind])
                asked.branch_cancelled = branch.cancelled
                asked.at = self.delivered
                if branch.given_failure or branch.answers:
                    self._failed = dict.fromkeys(self._failed, True)
                branch.answers = False
                self.pending[path] = self.declared[path] = asked
                self._branches[path] = branch
                self._fresh.add(path)
                return
            value, error = None, None
            if asked.codes:
                path = branch.path("gather")
                around = _Open(path, branch, len(asked.codes))
                answers, branch.answers = branch.given_failure or branch.answers, False
                for number, code in enumerate(asked.codes):
                    inside = _Branch(code, f"{path}.{number}/", around, branch.cancelled, answers)
                    self._ready.append((inside, None, None))
                return

    def _ended(self, branch: _Branch, error: BaseException | None) -> None:
        around = branch.parent
        if around is None:
            self._finish(error)
            return
        around.left -= 1
        around.given_failure = around.given_failure or branch.given_failure
        if error is not None and around.failure is None:
            around.failure = error
            for path in [path for path in self.pending if path.startswith(around.path + ".")]:
                inside = self._branches[path]
                if path in self._fresh and not inside.cancelled:  # it was never declared
                    del self.pending[path], self._branches[path], self.declared[path]
                    self._ready.append((inside, None, Gone()))
        if around.left == 0:
            around.owner.given_failure = around.owner.given_failure or around.given_failure
            self._ready.append((around.owner, None, around.failure))

    def _finish(self, error: BaseException | None) -> None:
        if isinstance(error, Gone):
            self.end = End("cancelled")
        elif isinstance(error, StepFell):
            compensated = self._failed[error.path]
            self.end = End("raised", None, error.error, error.message, error.path, error.attempts, compensated)
        elif isinstance(error, TooLate):
            self.end = End("raised", None, "SignalTimeout")
        elif isinstance(error, Fault):
            self.end = End("raised", None, *error.args)
        elif self.forgot:
            self.end = End("raised", None, "UsageError")
        elif self.trip.odd:
            self.end = End("raised", None, "PayloadError")
        else:
            result = {"state": self.way.state, "seen": self.way.seen, "order": self.trip.order}
            self.end = End("returned", result)

    # The nodes.

    def _follow(self, nodes: Nodes, way: Way) -> Code:
        for kind, *given in nodes:
            yield from getattr(self, f"_{kind}")(way, *given)

    def _step(self, way: Way, name: str, label: str, script: list[str], seconds: float) -> Code:
        result = yield Asked("step", name, label, script, way.given, seconds)
        way.note(label, plans.number_in(result), ["step", *plans.shape_of(result)])

    def _sleep(self, way: Way, seconds: float) -> Code:
        yield Asked("timer", seconds=seconds)
        way.note("sleep", 1, ["sleep", "NoneType"])

    def _wait(self, way: Way, name: str, timeout: float | None, caught: bool) -> Code:
        try:
            number = yield Asked("signal", name, seconds=timeout)
        except TooLate:
            if not caught:
                raise
            way.note("late", 2, ["late", name])
        else:
            way.note(name, number, ["signal", name, number, "dict"])

    def _gather(self, way: Way, branches: list[Nodes]) -> Code:
        ways = way.branches(len(branches))
        yield Branches([self._follow(nodes, each) for nodes, each in zip(branches, ways, strict=True)])
        way.join(ways)

    def _try(self, way: Way, nodes: Nodes, compensation: Nodes) -> Code:
        try:
            yield from self._follow(nodes, way)
        except StepFell as fell:
            way.note("failed", fell.attempts, ["failed", fell.error, fell.attempts, fell.path])
            yield from self._follow(compensation, way)

    def _rescue(self, way: Way, nodes: Nodes, compensation: Nodes) -> Code:
        try:
            yield from self._follow(nodes, way)
        except (StepFell, TooLate, Fault) as error:
            names = {StepFell: "StepFailed", TooLate: "SignalTimeout"}
            way.note("rescued", 3, ["rescued", names.get(type(error)) or error.args[0]])
            yield from self._follow(compensation, way)

    def _finally(self, way: Way, nodes: Nodes, steps: Nodes) -> Code:
        try:
            yield from self._follow(nodes, way)
        except GeneratorExit:
            raise
        except BaseException:
            yield from self._follow(steps, way)
            raise
        yield from self._follow(steps, way)

    def _guard(self, way: Way, nodes: Nodes, cleanup: Nodes, swallows: bool) -> Code:
        try:
            yield from self._follow(nodes, way)
        except Gone:
            way.note("cancelled", 4, ["cancelled"])
            yield from self._follow(cleanup, way)
            if not swallows:
                raise

    def _loop(self, way: Way, times: int, nodes: Nodes) -> Code:
        for _ in range(times):
            yield from self._follow(nodes, way)

    def _if(self, way: Way, odd: Nodes, even: Nodes) -> Code:
        yield from self._follow(odd if way.state % 2 else even, way)

    def _order(self, way: Way, odd: Nodes, even: Nodes) -> Code:
        yield from self._follow(odd if plans.parity(way.latest) else even, way)

    def _raise(self, way: Way, label: str) -> Code:
        yield from ()
        raise Fault("FlowFault", f"{label} after {len(way.trip.order)}")

    def _foreign(self, _way: Way) -> Code:
        yield from ()
        raise Fault("UsageError", None)

    def _misfit(self, _way: Way) -> Code:
        yield from ()
        raise Fault("InvalidInput", None)

    def _forget(self, _way: Way, _label: str) -> Code:
        yield from ()
        self.forgot = True

    def _odd(self, way: Way) -> Code:
        yield from ()
        way.trip.odd = True
