"""Any sequence of events over any checkpoint: `decide` never raises, and what must hold holds after each of them."""

from __future__ import annotations

import pytest
from fuzz.budget import fuzz
from fuzz.test_row_readers import SECRET, VICTIM, rows
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    initialize,
    invariant,
    precondition,
    rule,
    run_state_machine_as_test,
)

from stepwell.core import events, row
from stepwell.core.checkpoint import APPLIED_LIMIT, oldest_first
from stepwell.core.effects import ArmTimer, Deliver, Effect, Emit, Erase, StartAttempt, Write
from stepwell.core.inputs import (
    AttemptFailed,
    AttemptSucceeded,
    Begin,
    CancelAsked,
    Declaration,
    FlowRaised,
    FlowReturned,
    Input,
    Moved,
    NotStarted,
    ParkAsked,
    Resumed,
    RetryAsked,
    SignalSent,
    TimerFired,
)
from stepwell.core.records import STEP, CutShort, Failure, decode_fact
from stepwell.core.retry import Retry
from stepwell.core.status import ERROR, PARKED, RUNNING, STATUSES, STEP_FAILED, STEP_RUNNING, WAITING
from stepwell.core.token import step_token
from stepwell.core.transitions import decide, next_due, settle

POLICY = Retry(max_attempts=3, base=1, factor=2, jitter=0.2)
NAMES = ("toil", "fails", "word", "last", "sleep", "gather.0/toil", "gather.1/wait")
FAILURE = Failure("E", "m")
WRITTEN_BY_SCRIPTS = ("status", "rev", "commit", "updated_at")

commands = st.integers(0, 80).map(lambda n: f"c{n}")
names = st.sampled_from(NAMES)
attempts = st.integers(-1, 4)
ages = st.integers(-1, 30_000)  # ms; below 0: threads read the clock at once


class Decisions(RuleBasedStateMachine):
    """One execution to which anything may happen; its row is kept by the writes alone."""

    @initialize(at=st.integers(0, 10_000), passed=st.integers(0, 100_000))
    def begin_somewhere(self, at: int, passed: int) -> None:
        fields = dict(rows()[at % len(rows())])
        self.cp = row.parse(VICTIM, fields, SECRET)
        self.row = fields
        self.now = 1_700_000_000_000 + passed
        self.tokens: dict[str, str] = {}
        self.last_seq = self.cp.seq
        self.started: list[StartAttempt] = []

    def happens(self, event: Input) -> list[Effect]:
        before = self.cp
        cp, effects = decide(before, event)
        assert decide(before, event) == (cp, effects), "the same arguments, the same answer"
        self.cp = settle(cp)
        for effect in effects:
            if isinstance(effect, Write):
                self.row[effect.field] = effect.value
            elif isinstance(effect, Erase):
                self.row.pop(effect.field, None)
            elif isinstance(effect, Deliver):
                assert effect.fact.seq > self.last_seq
                self.last_seq = effect.fact.seq
            elif isinstance(effect, StartAttempt):
                op = self.cp.open.get(effect.path)
                assert op is None or op.attempt >= effect.attempt
        gone = {path for path, _ in oldest_first(before.facts)} - {path for path, _ in oldest_first(self.cp.facts)}
        assert not gone or (
            isinstance(event, RetryAsked) and before.error is not None and gone <= set(before.error.open)
        )
        return effects

    @property
    def driven(self) -> bool:
        return self.cp.status in (RUNNING, WAITING)

    def fresh(self, name: str) -> str:
        taken = {*self.cp.open, *(path for path, _ in oldest_first(self.cp.facts)), *self.cp.left}
        return next(path for n in range(1, 1000) if (path := name if n == 1 else f"{name}#{n}") not in taken)

    @rule(seconds=st.integers(-5, 100))
    def time_passes(self, seconds: int) -> None:
        self.now += 1000 * seconds

    @rule()
    def begins(self) -> None:
        self.happens(Begin(self.now))

    @rule(
        kind=st.sampled_from(["step", "timer", "signal"]),
        name=names,
        seconds=st.none() | st.floats(0, 100),
        flags=st.tuples(st.booleans(), st.booleans()),
    )
    def declares(self, kind: str, name: str, seconds: float | None, flags: tuple[bool, bool]) -> None:
        if self.driven:
            seconds = 1.0 if kind == "timer" and seconds is None else seconds
            self.happens(Moved(self.now, (Declaration(self.fresh(name), kind, name, seconds, *flags),)))  # type: ignore[arg-type]

    @rule(paths=st.lists(names, max_size=3))
    def winds_up(self, paths: list[str]) -> None:
        if self.driven:
            self.happens(Moved(self.now, wind_up=tuple(paths)))

    @rule(
        end=st.sampled_from(
            [
                FlowReturned(b"1"),
                FlowRaised(FAILURE),
                FlowRaised(FAILURE, "toil", 3),
                FlowRaised(FAILURE, cancelled=True),
            ]
        )
    )
    def ends(self, end: FlowReturned | FlowRaised) -> None:
        if self.driven and not self.cp.open:
            self.happens(Moved(self.now, end=end))

    @rule(path=names, attempt=attempts, right=st.booleans(), ago=ages)
    def succeeds(self, path: str, attempt: int, right: bool, ago: int) -> None:
        number, ended = self.number(path, attempt, right), self.now - ago
        self.happens(AttemptSucceeded(self.now, path, number, ended - 5, ended, b"[1]"))

    @rule(
        path=names,
        attempt=attempts,
        right=st.booleans(),
        retryable=st.booleans(),
        after=st.none() | st.floats(0, 1e9),
        ago=ages,
        passed=ages,
    )
    def fails(
        self, path: str, attempt: int, right: bool, retryable: bool, after: float | None, ago: int, passed: int
    ) -> None:
        number, ended = self.number(path, attempt, right), self.now - ago
        failed = AttemptFailed(
            self.now, path, number, None, ended, FAILURE, retryable, POLICY, after, passed_ms=max(0, passed)
        )
        effects = self.happens(failed)
        told = [each.event for each in effects if isinstance(each, Emit)]
        for event in told:
            if isinstance(event, events.AttemptFailed):
                assert event.at == min(ended, self.now)
                timers = [each.delay_ms for each in effects if isinstance(each, ArmTimer)]
                left = max(0, event.delay_ms - failed.passed_ms)
                assert timers == ([] if self.cp.status == PARKED else [left])

    def number(self, path: str, attempt: int, right: bool) -> int:
        op = self.cp.open.get(path)
        return op.attempt if right and op is not None else attempt

    @rule(path=names, attempt=attempts)
    def never_began(self, path: str, attempt: int) -> None:
        self.happens(NotStarted(self.now, path, attempt))

    @rule(path=names)
    def timer_fires(self, path: str) -> None:
        self.happens(TimerFired(self.now, path))

    @rule(command=commands, name=names, payload=st.sampled_from([b"1", b"{}", b"{", b"[" * 5000]))
    def signal_comes(self, command: str, name: str, payload: bytes) -> None:
        self.happens(SignalSent(self.now, command, name, payload))

    @rule(command=commands)
    def cancel_comes(self, command: str) -> None:
        self.happens(CancelAsked(self.now, command))

    @rule(command=commands | st.just(""), obstacle=st.sampled_from(["", "", "", "code diverged: x"]))
    def retry_comes(self, command: str, obstacle: str) -> None:
        before = self.cp
        self.happens(RetryAsked(self.now, command, obstacle))
        if before.status == ERROR and self.cp.status != ERROR and before.error is not None:
            for path, left in before.error.open.items():
                op = self.cp.open.get(path)
                assert op is None or op.attempt in (0, left.next_attempt), "attempt numbers go on"
                assert op is None or left.status != STEP_FAILED or op.failures == 0, "with a fresh budget"

    @rule()
    def parks(self) -> None:
        self.happens(ParkAsked(self.now, "crashed", "by hand"))

    @precondition(lambda self: self.driven)
    @rule(clean=st.booleans(), boxed=st.booleans(), named=st.booleans())
    def comes_back(self, clean: bool, boxed: bool, named: bool) -> None:
        cut = tuple(CutShort(op.token, op.attempt, named, path) for path, op in self.cp.open.items() if op.kind == STEP)
        self.happens(Resumed(self.now, clean, cut if boxed else None))

    @invariant()
    def holds(self) -> None:
        cp = self.cp
        assert cp.status in STATUSES
        assert not (cp.terminal and cp.open)
        assert cp.status not in (ERROR, PARKED) or cp.error is not None
        assert len(cp.applied) <= APPLIED_LIMIT
        next_due(cp)
        for path, op in cp.open.items():
            assert op.token == step_token(cp.seed, path) == self.tokens.setdefault(path, op.token)
            if op.kind == STEP:
                assert 0 <= op.failures < POLICY.max_attempts, "attempts stay within their budget"
                assert op.status == STEP_RUNNING or cp.status != RUNNING or op.due_at is not None

    @invariant()
    def the_row_says_the_same(self) -> None:
        whole = dict(row.fields_of(self.cp))
        kept = {name: value for name, value in self.row.items() if name not in WRITTEN_BY_SCRIPTS}
        superseded = {name for name, raw in kept.items() if name[:2] == "r:" and decode_fact(raw).superseded}
        cancelling = kept.pop("cancelling", None), whole.pop("cancelling", None)
        assert (cancelling[0] is None) == (cancelling[1] is None)
        assert {name: value for name, value in kept.items() if name not in superseded - set(whole)} == whole
        again = row.parse(VICTIM, {**whole, "status": self.cp.status.encode(), "rev": b"1"}, SECRET)
        assert dict(row.fields_of(again)) == whole


@pytest.mark.pain(22, 25)
def test_any_sequence_of_events_keeps_what_must_hold() -> None:
    run_state_machine_as_test(Decisions, settings=fuzz(100, steps=30))
