"""Random flows under random interleavings: the invariants hold after each turn, and replay changes nothing."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import HealthCheck, event, given, settings
from hypothesis import strategies as st

from stepwell import FatalError, Retry, SignalTimeout, StepFailed, current_step, flow, gather, sleep, step, wait_for
from stepwell.core import row
from stepwell.core.checkpoint import Checkpoint, oldest_first
from stepwell.core.records import decode_attempt, decode_fact, decode_open
from stepwell.core.token import step_token
from stepwell.testing import LocalRun

POLICY = Retry(max_attempts=3, base=1.0)
Node = list[Any]
journal: list[tuple[str, int]] = []  # (path, attempt) of each body that ran


@step(retry=POLICY)
def a(fails: int, fatal: bool) -> list[int]:
    return _act(fails, fatal)


@step(retry=POLICY)
async def b(fails: int, fatal: bool) -> list[int]:
    return _act(fails, fatal)


def _act(fails: int, fatal: bool) -> list[int]:
    me = current_step()
    journal.append((me.path, me.attempt))
    if me.attempt <= fails:
        raise (FatalError if fatal else OSError)(f"attempt {me.attempt}")
    return [fails]


STEPS = {"a": a, "b": b}


@flow
async def program(nodes: list[Any]) -> list[Any]:
    return await _run(nodes)


async def _run(nodes: list[Node]) -> list[Any]:
    return [await _node(node) for node in nodes]


async def _node(node: Node) -> Any:
    kind, *rest = node
    if kind in STEPS:
        return await STEPS[kind](*rest)
    if kind == "sleep":
        return await sleep(rest[0])
    if kind == "wait":
        return await wait_for(rest[0], timeout=rest[1])
    if kind == "gather":
        return list(await gather(*[_run(branch) for branch in rest[0]]))
    if kind == "bug":
        raise ValueError("the flow's own")
    body, other = rest
    if kind == "finally":
        try:
            return await _run(body)
        finally:
            await _run(other)
    try:
        return await _run(body)
    except (StepFailed, SignalTimeout) as error:
        return [type(error).__name__, str(error), await _run(other)]


step_nodes = st.tuples(st.sampled_from("ab"), st.integers(0, 4), st.sampled_from([False, False, True])).map(list)
waits = st.tuples(st.just("wait"), st.sampled_from("xy"), st.sampled_from([None, 5, 50])).map(list)
sleeps = st.tuples(st.just("sleep"), st.integers(0, 20)).map(list)
leaves = st.one_of(step_nodes, step_nodes, step_nodes, sleeps, waits, st.just(["bug"]))


def deeper(nodes: st.SearchStrategy[Node]) -> st.SearchStrategy[Node]:
    some = st.lists(nodes, max_size=3)
    gathers = st.lists(some, max_size=3).map(lambda branches: ["gather", branches])
    guards = st.tuples(st.sampled_from(["try", "finally"]), some, some).map(list)
    return gathers | guards


programs = st.lists(st.recursive(leaves, deeper, max_leaves=8), min_size=1, max_size=4)
schedules = st.lists(st.integers(0, 59), max_size=40)


def normal(cp: Checkpoint) -> tuple[object, ...]:
    return (
        cp.execution_id, cp.meta, cp.input, cp.seed, cp.status, cp.rev, dict(cp.open), oldest_first(cp.facts),
        sorted(oldest_first(cp.attempts)), cp.fact_count, dict(cp.signals), cp.applied, cp.cancelling, cp.failed_path,
        dict(cp.left), cp.error, cp.failures, cp.result, cp.started_at, cp.ended_at,
    )  # fmt: skip


class Model:
    """A run, and what was true of it before."""

    def __init__(self, nodes: list[Node]) -> None:
        journal.clear()
        self.run = LocalRun(program, {"nodes": nodes})
        self.results: dict[str, bytes] = {}
        self.ran = 0
        self.retries = 0
        self.check()
        self.run.begin()
        self.check()

    def moves(self, may_cancel: bool) -> list[Callable[[], object]]:
        run = self.run
        found: list[Callable[[], object]] = [lambda p=p: run.finish(p) for p in sorted(run.running)]  # type: ignore[misc]
        found += [lambda p=p: run.fire(p) for p in sorted(run.timers)]  # type: ignore[misc]
        found += [lambda n=n: run.signal(n, n) for n in "xy"]  # type: ignore[misc]
        found += [lambda p=p: run.feed(run.execute(p)) for p in sorted(run.running)]  # type: ignore[misc]
        found.append(lambda: run.advance(0.5))
        found.append(self.retry)
        if may_cancel:
            found.append(run.cancel)
        return found

    def retry(self) -> None:
        if self.retries < 3:
            self.retries += 1
            self.run.retry()

    def winding(self) -> bool:
        return any(op.winding for op in self.run.checkpoint.open.values())

    def end(self) -> None:
        for _ in range(2000):
            if self.run.ended or self.run.checkpoint.status == "parked":
                return
            if not self.run.step_once():
                for op in list(self.run.checkpoint.open.values()):
                    self.run.signal(op.name, op.name)
            self.check()
        raise AssertionError("it never ends")

    def check(self) -> None:
        run, cp = self.run, self.run.checkpoint
        opened = {k[2:]: decode_open(v) for k, v in run.row.items() if k.startswith("p:")}
        facts = {k[2:]: decode_fact(v) for k, v in run.row.items() if k.startswith("r:")}
        # What is recorded stays, and does not run again.
        done = {path: bytes(fact.value) for path, fact in facts.items() if fact.status == "completed"}
        assert {path: done.get(path) for path in self.results} == self.results
        assert not [path for path, _ in journal[self.ran :] if path in self.results]
        self.results, self.ran = done, len(journal)
        assert sorted(fact.seq for fact in facts.values()) == sorted({fact.seq for fact in facts.values()})
        # One token per path, for ever.
        left = {} if cp.error is None else cp.error.open
        for held in (opened, facts, left):
            for path, op in held.items():
                assert op.token == step_token(cp.seed, path)
        # Budgets, and delays over their floors.
        for op in opened.values():
            assert op.kind != "step" or 0 <= op.failures < POLICY.max_attempts
        for attempt in (decode_attempt(v) for k, v in run.row.items() if k.startswith("a:")):
            if attempt.due_at is not None:
                assert attempt.due_at - attempt.ended_at >= 1000 * POLICY.floor(1)
        # An ended row declares nothing; an unfinished one has something that moves it on.
        assert cp.status != "parked", cp.error
        if cp.terminal:
            assert not opened
            assert not run.running
            assert not run.timers
        elif cp.status != "queued":
            assert run.running or run.timers or any(op.kind == "signal" for op in opened.values())
            busy = {path for path, op in opened.items() if op.status == "running"}
            assert busy == set(run.running)
            assert cp.status == ("running" if busy else "waiting")
            due = {path: op.due_at for path, op in opened.items() if op.due_at is not None}
            assert set(run.timers) == set(due)
        # The row is the checkpoint, whichever way it was written.
        assert normal(row.parse(cp.execution_id, run.row, bytes(32))) == normal(cp)
        apart = {"status", "rev", "updated_at", "cancelling"}
        superseded = {"r:" + path for path, fact in facts.items() if fact.superseded}
        whole = {k: v for k, v in row.fields_of(cp) if k not in apart}
        assert {k: v for k, v in run.row.items() if k not in apart | superseded} == whole
        assert int(run.row["rev"]) == cp.rev == len(run.commits) + 1
        json.dumps(run.show())


@pytest.mark.slow
@settings(max_examples=400, deadline=None, derandomize=True, suppress_health_check=[HealthCheck.too_slow])
@given(programs, schedules, st.booleans())
def test_the_invariants_hold_after_every_turn(nodes: list[Node], schedule: list[int], may_cancel: bool) -> None:
    model = Model(nodes)
    for number in schedule:
        if number >= 52:
            model.run.reload(clean=number % 2 == 0)
        else:
            moves = model.moves(may_cancel)
            moves[number % len(moves)]()
        model.check()
    model.end()
    event(f"ended {model.run.checkpoint.status}")
    model.retry()
    model.check()
    model.end()


def outcome(nodes: list[Node], schedule: list[int], may_cancel: bool, reloads: set[int], clean: bool) -> object:
    model = Model(nodes)
    for turn, number in enumerate(schedule):
        if turn in reloads and not model.winding():
            model.run.reload(clean=clean)
            model.check()
        moves = model.moves(may_cancel)
        moves[number % len(moves)]()
        model.check()
    model.end()
    cp = model.run.checkpoint
    ran = sorted(journal)
    error = None if cp.error is None else (cp.error.type, cp.error.message, cp.error.attempts, sorted(cp.error.open))
    return cp.status, cp.result, error, model.results, ran, model.run.now_ms


@pytest.mark.slow
@settings(max_examples=250, deadline=None, derandomize=True, suppress_health_check=[HealthCheck.too_slow])
@given(programs, schedules, st.booleans(), st.sets(st.integers(0, 39), max_size=8), st.booleans())
def test_a_run_that_was_rebuilt_ends_like_one_that_lived(
    nodes: list[Node], schedule: list[int], may_cancel: bool, reloads: set[int], clean: bool
) -> None:
    lived = outcome(nodes, schedule, may_cancel, set(), clean)
    assert outcome(nodes, schedule, may_cancel, reloads, clean) == lived
