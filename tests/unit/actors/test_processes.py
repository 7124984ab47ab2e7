"""Steps in processes of their own: what reaches them and comes back, how they die, how many there are, their end."""

from __future__ import annotations

import asyncio
import os
import signal
import socket
import sys
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import msgspec
import pytest
from unit.actors import isolated
from unit.actors.isolated import Order, hear, say
from unit.actors.runner_stage import HOUR_MS, an_hour_passes
from unit.actors.told import WaitingBox

from stepwell import step
from stepwell.actors.holdings import Holdings
from stepwell.actors.kit.clock import SystemClock
from stepwell.actors.messages import StepDone, StepErred, StepHeld
from stepwell.actors.processes import handle, wire
from stepwell.actors.processes.handle import StepProcess
from stepwell.actors.runner import StepOrder, StepRunner, processes
from stepwell.core import redact
from stepwell.core.limits import Limits
from stepwell.flow.context import StepContext
from stepwell.flow.loader import load_module
from stepwell.flow.operations import StepCall
from stepwell.store.leases import Grant

pytestmark = [pytest.mark.threads, pytest.mark.hang_limit(150)]
HANG_SECONDS = 50.0
PARTITION = 3


class Stage:
    """A running StepRunner with two step processes."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._orders = 0
        self.clock = SystemClock()
        self.holdings = Holdings(self.clock.monotonic)
        self.holdings.hold(Grant(PARTITION, 1, "lease", True, 0), self.clock.monotonic() + 3600)
        self.runner = StepRunner(self.clock, self.holdings, lambda _: None, threads=2, limits=Limits(processes=2))
        self.runner.begin()

    def pipe(self) -> str:
        self._orders += 1
        path = self._folder / f"pipe-{self._orders}"
        os.mkfifo(path)
        return str(path)

    def start(
        self, of: Any, *args: Any, lane: bool = False, path: str = "", attempt: int = 1, **kwargs: Any
    ) -> WaitingBox:
        self._orders += 1
        box = WaitingBox()
        path = path or f"{of.name}#{self._orders}"
        context = StepContext("e1", "f", of.name, path, attempt, "token", "e1:token", 7)
        order = StepOrder(PARTITION, "lease", StepCall(of, args, kwargs), context, lane)
        self.runner.start(order, box)  # type: ignore[arg-type]
        return box

    def outcome(self, of: Any, *args: Any, **options: Any) -> Any:
        return self.start(of, *args, **options).next()

    def value(self, of: Any, *args: Any, **options: Any) -> Any:
        done = self.outcome(of, *args, **options)
        assert isinstance(done, StepDone), done
        return of.decode_result(done.value)


@pytest.fixture
def stage(tmp_path: Path) -> Iterator[Stage]:
    made = Stage(tmp_path)
    yield made
    made.runner.stop(5.0)


@pytest.fixture(scope="module")
def warm(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Stage]:
    """One for tests that end no process."""
    made = Stage(tmp_path_factory.mktemp("warm"))
    yield made
    made.runner.stop(5.0)


def is_gone(pid: int) -> bool:
    """Whether there is no such process, not even a zombie."""
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return True
    return False


# What reaches a body, and what comes back.


def test_a_body_runs_elsewhere_and_its_process_serves_again(warm: Stage) -> None:
    first = warm.value(isolated.pid)
    assert first != os.getpid()
    assert warm.value(isolated.pid) == first
    assert warm.value(isolated.async_pid) == first
    assert warm.runner.running == 0


def test_arguments_come_as_they_are_annotated(warm: Stage) -> None:
    a, b, c = Order("a"), Order("b"), Order("c")
    assert warm.value(isolated.typed, a, b, x=c) == ["Ordera", "Orderb", "Orderc"]
    assert warm.value(isolated.echo, (1, {"order": Order("a", 5)})) == [1, {"order": {"id": "a", "cents": 5}}]


@pytest.mark.parametrize("of", [isolated.told, isolated.told_async])
def test_a_body_knows_its_attempt_key_and_deadline(warm: Stage, of: Any) -> None:
    before = time.monotonic()  # the shard's own clock also counts what the host has slept
    *known, deadline = warm.value(of, path="told", attempt=3)
    assert known == ["e1", "told", 3, "e1:token", 7]
    assert before + 20 < deadline < time.monotonic() + 30


@pytest.mark.parametrize(
    ("how", "type_", "retryable", "reason"),
    [
        ("retry after", "RetryAfter", True, ""),
        ("fatal", "FatalError", False, "fatal"),
        ("declined", "Declined", False, "give_up_on"),
        ("other", "OSError", True, ""),
        ("exit", "SystemExit", True, ""),
    ],
)
def test_what_a_body_raises_is_judged_by_its_policy(
    warm: Stage, how: str, type_: str, retryable: bool, reason: str
) -> None:
    erred = warm.outcome(isolated.fail, how)
    assert isinstance(erred, StepErred)
    assert (erred.error.type, erred.retryable, erred.error.reason) == (type_, retryable, reason)
    assert erred.error.where.startswith("actors/isolated.py:")
    assert erred.error.where.endswith(" in fail")
    assert erred.retry_after == (7.0 if how == "retry after" else None)
    assert "secret" not in erred.error.message
    assert isinstance(warm.outcome(isolated.pid), StepDone)


@pytest.mark.parametrize("lane", [False, True])
def test_what_was_declared_secret_in_the_shard_is_in_no_error_of_a_process_that_never_loads_that_module(
    stage: Stage, monkeypatch: pytest.MonkeyPatch, lane: bool
) -> None:
    monkeypatch.setattr(redact, "_declared", redact.Secrets())
    redact.hide_secrets("s3cr3t-of-main")
    erred = stage.outcome(isolated.fail_saying, "no to s3cr3t-of-main", lane=lane)
    assert (erred.error.type, erred.error.message) == ("ValueError", "no to ***")


def test_arguments_that_do_not_fit_the_function_are_final(warm: Stage) -> None:
    erred = warm.outcome(isolated.pid, 1, 2)
    assert (erred.error.type, erred.error.reason, erred.retryable) == ("TypeError", "arguments", False)
    wrong = warm.outcome(isolated.typed, "no order")
    assert (wrong.error.type, wrong.retryable) == ("PayloadError", False)
    assert wrong.error.message.startswith("argument 1 of step typed does not fit: ")


def test_an_argument_or_result_that_is_no_json_names_its_place(warm: Stage) -> None:
    argument = warm.outcome(isolated.echo, value=[object()])
    assert (argument.error.type, argument.retryable) == ("PayloadError", False)
    assert argument.error.message.startswith(
        "argument 'value' of step echo can't be passed to a process of its own: $[0] is of type object"
    )
    result = warm.outcome(isolated.no_json)
    assert (result.error.type, result.retryable) == ("PayloadError", False)
    assert result.error.message.startswith("the result of step no_json can't be stored: $ is of type object")


def test_large_values_pass_and_a_huge_result_is_refused_with_its_size(warm: Stage) -> None:
    megabyte = 1024 * 1024
    assert len(warm.value(isolated.result_of_size, megabyte - 2)) == megabyte - 2
    erred = warm.outcome(isolated.result_of_size, 20 * megabyte)
    assert "is too large: 20,971,522 bytes" in erred.error.message
    erred = warm.outcome(isolated.echo, "x" * 5 * megabyte)  # it got there, and is too large to come back
    assert "the result of step echo is too large: 5,242,882 bytes" in erred.error.message


@pytest.mark.pain(37)
def test_a_process_has_nothing_of_ours_but_its_connection(warm: Stage) -> None:
    with socket.socket() as listening, socket.socket() as other:
        listening.set_inheritable(True)
        other.set_inheritable(True)
        ours = {os.fstat(listening.fileno()).st_ino, os.fstat(other.fileno()).st_ino}
        world = warm.value(isolated.world)
    assert not ours & set(world["inodes"])
    assert world["group"] == world["pid"]
    assert world["stdin"] == ""
    assert world["argv"] == ["stepwell-step"]
    assert world["title"] == f"stepwell: steps of {os.getpid()}"


# Code.


def test_a_function_made_inside_a_function_goes_by_value(warm: Stage) -> None:
    surcharge = 5

    @step(isolation="process")
    def priced(order: Order) -> Order:
        return Order(order.id, order.cents + surcharge)

    assert warm.value(priced, Order("a", 1)) == Order("a", 6)


def test_a_step_with_other_options_finds_its_body_by_name(warm: Stage) -> None:
    variant = isolated.typed.with_options(name="another", timeout=20)
    assert warm.value(variant, Order("a")) == ["Ordera"]  # the lock in its module can't be sent


def test_types_made_inside_a_function_go_by_value(warm: Stage) -> None:
    @dataclass
    class WaitingBox:
        size: int

    def body(box):  # type: ignore[no-untyped-def]
        return WaitingBox(box.size + 1)

    body.__annotations__ = {"box": WaitingBox, "return": WaitingBox}
    bigger = step(name="bigger", isolation="process")(body)
    assert bigger.decode_result(b'{"size":1}') == WaitingBox(1)  # msgspec has looked at the class
    assert warm.value(bigger, WaitingBox(2)) == WaitingBox(3)
    assert warm.value(bigger, WaitingBox(3)) == WaitingBox(4)


def test_a_struct_that_can_not_be_imported_is_said_at_once(warm: Stage) -> None:
    class WaitingBox(msgspec.Struct):
        size: int

    @step(isolation="process")
    def bigger(size: int) -> int:
        return WaitingBox(size).size

    erred = warm.outcome(bigger, 1)
    assert (erred.error.type, erred.retryable) == ("DefinitionError", False)
    assert "WaitingBox can't be sent" in erred.error.message


def test_code_that_can_not_be_sent_is_said_at_once(warm: Stage) -> None:
    lock = threading.Lock()

    @step(isolation="process")
    def locked() -> None:
        with lock:
            pass

    erred = warm.outcome(locked)
    assert (erred.error.type, erred.retryable) == ("DefinitionError", False)
    assert erred.error.message.startswith("step locked can't run in a process of its own: ")
    assert erred.error.message.endswith("; move it, and what it needs, to a module")


def test_a_module_that_the_process_can_not_import_fails_the_attempt(warm: Stage, tmp_path: Path) -> None:
    file = tmp_path / "short_lived.py"
    file.write_text("from stepwell import step\n@step(isolation='process')\ndef lost() -> None: ...\n")
    lost = load_module(str(file)).lost
    file.unlink()
    try:
        erred = warm.outcome(lost)
    finally:
        sys.path.remove(str(tmp_path))
    assert (erred.error.type, erred.retryable) == ("ModuleNotFoundError", True)
    assert erred.error.message.startswith("step lost could not be loaded in its process: ")
    assert isinstance(warm.outcome(isolated.pid), StepDone)


# Death.


@pytest.mark.pain(36)
@pytest.mark.parametrize(
    ("how", "number", "said"),
    [
        ("exit", 137, "its process ended with exit code 137"),
        ("exit", 0, "its process ended with exit code 0"),
        ("kill", signal.SIGKILL, "its process was killed by signal 9 (SIGKILL; out of memory?)"),
        ("kill", signal.SIGSEGV, f"its process was killed by signal {signal.SIGSEGV:d} (SIGSEGV)"),
        ("close", 0, "its process ended with exit code 1"),
    ],
)
def test_a_process_that_dies_is_a_failed_attempt_that_says_how(stage: Stage, how: str, number: int, said: str) -> None:
    erred = stage.outcome(isolated.die, how, number, path="die")
    assert (erred.error.type, erred.retryable) == ("StepCrashed", True)
    assert erred.error.message == f"step die of execution e1: {said}"
    assert isinstance(stage.outcome(isolated.pid), StepDone)


@pytest.mark.pain(36)
def test_a_child_that_keeps_the_connection_does_not_hide_a_death(stage: Stage) -> None:
    entered, gate = stage.pipe(), stage.pipe()
    erred = stage.outcome(isolated.leave_a_child, entered, gate, path="die")
    say(gate)
    assert erred.error.message == "step die of execution e1: its process ended with exit code 5"


class Ended:
    """What stands for a process that has ended."""

    pid = 1 << 22  # no process has it
    returncode = 5

    def wait(self) -> int:
        return self.returncode


@pytest.mark.pain(36)
def test_who_waits_for_a_dead_process_is_told_while_another_one_holds_the_connection(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(handle, "LAST_WORDS_SECONDS", 0.0)
    monkeypatch.setattr(StepProcess, "_watch", lambda _process: None)

    async def dies() -> str:
        ours, held_by_another = socket.socketpair()
        with held_by_another:
            process = StepProcess(Ended(), *await asyncio.open_unix_connection(sock=ours))  # type: ignore[arg-type]
            asked = asyncio.create_task(process.ask(wire.Load(1, "body", b"")))
            await asyncio.sleep(0)
            assert process._asked
            process._reaped()
            for _ in range(100):
                await asyncio.sleep(0)
            told = asked.done()
            asked.cancel()
            (gone,) = await asyncio.gather(asked, return_exceptions=True)
            process._writer.transport.abort()
        assert told, "it waits on"
        return str(gone)

    assert asyncio.run(dies()) == "ended with exit code 5"


@pytest.mark.pain(36)
def test_a_killed_process_is_one_attempt_s_failure_and_no_other_s(stage: Stage) -> None:
    entered, gate, other_entered, other_gate = (stage.pipe() for _ in range(4))
    box = stage.start(isolated.held, entered, gate)
    pid = int(hear(entered))
    other = stage.start(isolated.held, other_entered, other_gate)
    hear(other_entered)
    os.kill(pid, signal.SIGKILL)
    assert box.next().error.type == "StepCrashed"
    assert is_gone(pid)
    say(other_gate, "well")
    assert other.next().value == b'"well"'


@pytest.mark.pain(36)
def test_an_idle_process_that_is_killed_is_nobody_s_failure(stage: Stage, monkeypatch: pytest.MonkeyPatch) -> None:
    lost = threading.Event()
    original = processes.ProcessPool._lost

    def observed(pool: processes.ProcessPool, process: StepProcess) -> None:
        original(pool, process)
        lost.set()

    monkeypatch.setattr(processes.ProcessPool, "_lost", observed)
    pid = stage.value(isolated.pid)
    os.kill(pid, signal.SIGKILL)
    assert lost.wait(HANG_SECONDS)
    assert stage.value(isolated.pid) != pid


@pytest.mark.pain(52)
def test_at_its_timeout_a_body_is_killed_with_what_it_started_and_then_told(stage: Stage) -> None:
    alive = stage.pipe()
    pid = stage.value(isolated.pid)
    # Open for writing as long as the child lives; on a busy machine it may be killed before it gets there.
    with open(os.open(alive, os.O_RDONLY | os.O_NONBLOCK)) as child:
        os.set_blocking(child.fileno(), True)
        erred = stage.outcome(isolated.hang_with_a_child, alive)
        assert (erred.error.type, erred.retryable) == ("StepTimeout", True)
        assert erred.error.message == "attempt took longer than 0.3 s; its process was killed"
        assert is_gone(pid)
        assert child.read() == ""
    assert isinstance(stage.outcome(isolated.pid), StepDone)


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_signal_to_each_process_of_a_service_cuts_nothing_short(stage: Stage, number: signal.Signals) -> None:
    entered, gate = stage.pipe(), stage.pipe()
    box = stage.start(isolated.held, entered, gate)
    os.kill(int(hear(entered)), number)
    say(gate, "well")
    assert box.next().value == b'"well"'


# How many.


def test_the_pool_bounds_what_runs_and_what_waits_can_be_withdrawn(stage: Stage) -> None:
    pipes = [(stage.pipe(), stage.pipe()) for _ in range(4)]
    boxes = [stage.start(isolated.held, *pair, path=f"held{n}") for n, pair in enumerate(pipes)]
    pids = {hear(pipes[0][0]), hear(pipes[1][0])}
    assert len(pids) == 2
    assert stage.runner.withdraw("e1", "held2", 1)
    assert not stage.runner.withdraw("e1", "held1", 1)
    say(pipes[0][1])
    assert hear(pipes[3][0]) in pids
    say(pipes[1][1])
    say(pipes[3][1])
    assert all(isinstance(boxes[n].next(), StepDone) for n in (0, 1, 3))
    assert boxes[2].empty
    assert stage.runner.running == 0


def test_a_running_body_is_adopted_and_its_outcome_kept_until_it_is_settled(stage: Stage) -> None:
    entered, gate = stage.pipe(), stage.pipe()
    first = stage.start(isolated.held, entered, gate, path="held")
    hear(entered)
    box = WaitingBox()
    assert stage.runner.adopt("e1", "held", 1, box)  # type: ignore[arg-type]
    say(gate)
    assert isinstance(box.next(), StepDone)
    assert first.empty
    assert isinstance(stage.outcome(isolated.held, entered, gate, path="held"), StepDone)
    stage.runner.settle("e1", "held", 1)
    assert not stage.runner.adopt("e1", "held", 1, box)  # type: ignore[arg-type]


def test_an_outcome_says_when_its_body_ended(stage: Stage) -> None:
    entered, gate = stage.pipe(), stage.pipe()
    box = stage.start(isolated.held, entered, gate)
    hear(entered)
    an_hour_passes(stage.clock)
    say(gate)
    done = box.next()
    assert isinstance(done, StepDone)
    assert done.started_at + HOUR_MS <= done.ended_at <= stage.clock.now_ms()
    box = stage.start(isolated.held, entered, gate)
    pid = int(hear(entered))
    an_hour_passes(stage.clock)
    os.kill(pid, signal.SIGKILL)
    erred = box.next()
    assert isinstance(erred, StepErred)
    assert erred.kind == "crash"
    assert erred.started_at is not None
    assert erred.started_at + HOUR_MS <= erred.ended_at <= stage.clock.now_ms()


def test_no_body_begins_on_a_lease_that_may_have_lapsed(stage: Stage) -> None:
    stage.holdings.extend(PARTITION, stage.clock.monotonic() - 1)
    assert isinstance(stage.outcome(isolated.pid), StepHeld)


def test_a_process_makes_room_for_a_fresh_one_after_many_attempts(
    stage: Stage, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(processes, "ATTEMPTS_MAX", 2)
    pids = [stage.value(isolated.pid) for _ in range(3)]
    assert pids[0] == pids[1] != pids[2]


def test_a_process_without_work_ends(stage: Stage, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(processes, "IDLE_SECONDS", 0.01)
    alive = stage.pipe()
    with open(os.open(alive, os.O_RDONLY | os.O_NONBLOCK)) as source:
        os.set_blocking(source.fileno(), True)
        stage.value(isolated.keep_open, alive)
        assert source.read() == ""


def test_without_a_process_to_have_an_attempt_is_held_and_can_be_asked_for_again(
    stage: Stage, monkeypatch: pytest.MonkeyPatch
) -> None:
    def none(*_arguments: object, **_options: object) -> None:
        raise BlockingIOError(11, "Resource temporarily unavailable")

    with monkeypatch.context() as patch:
        patch.setattr("stepwell.actors.processes.handle.subprocess.Popen", none)
        assert isinstance(stage.outcome(isolated.pid, path="pid"), StepHeld)
    assert isinstance(stage.outcome(isolated.pid, path="pid"), StepDone)


# The lane.


@pytest.mark.parametrize("of", [isolated.thread_pid, isolated.loop_pid, isolated.pid])
def test_an_order_for_the_lane_gets_a_fresh_process_for_itself(stage: Stage, of: Any) -> None:
    idle = stage.value(isolated.pid)
    pids = {stage.value(of, lane=True) for _ in range(2)}
    assert len(pids) == 2
    assert not pids & {idle, os.getpid()}
    assert stage.value(isolated.pid) == idle


def test_a_killer_in_the_lane_is_a_failed_attempt(stage: Stage) -> None:
    erred = stage.outcome(isolated.die_on_a_thread, lane=True, path="killer")
    assert erred.error.message == "step killer of execution e1: its process ended with exit code 137"


def test_the_lane_takes_four_at_once(stage: Stage) -> None:
    pipes = [(stage.pipe(), stage.pipe()) for _ in range(5)]
    boxes = [stage.start(isolated.lane_held, *pair, lane=True, path=f"held{n}") for n, pair in enumerate(pipes)]
    assert len({hear(entered) for entered, _ in pipes[:4]}) == 4
    assert stage.runner.withdraw("e1", "held4", 1)
    for _, gate in pipes[:4]:
        say(gate)
    assert all(isinstance(box.next(), StepDone) for box in boxes[:4])


def _unsendable() -> Any:
    lock = threading.Lock()

    @step
    def locked() -> int:
        with lock:
            return os.getpid()

    return locked


@pytest.mark.parametrize(
    "call", [lambda: (isolated.thread_pid, (1, 2)), lambda: (isolated.thread_pid, object()), lambda: (_unsendable(),)]
)
def test_what_would_be_another_thing_in_the_lane_runs_as_usual(stage: Stage, call: Callable[[], Any]) -> None:
    of, *args = call()
    assert stage.value(of, *args, lane=True) == os.getpid()


# The end.


def test_after_the_intake_is_closed_what_runs_ends_and_what_waits_never_begins(stage: Stage) -> None:
    pipes = [(stage.pipe(), stage.pipe()) for _ in range(3)]
    boxes = [stage.start(isolated.held, *pair) for pair in pipes]
    for entered, _ in pipes[:2]:
        hear(entered)
    idle = threading.Event()
    stage.runner.close_intake(idle.set)
    for _, gate in pipes[:2]:
        say(gate)
    assert idle.wait(HANG_SECONDS)
    assert [isinstance(box.next(), StepDone) for box in boxes[:2]] == [True, True]
    assert boxes[2].empty


def test_stop_kills_what_runs_drops_its_outcome_and_leaves_no_process(stage: Stage) -> None:
    entered, gate = stage.pipe(), stage.pipe()
    idle, before = stage.value(isolated.pid), threading.active_count()
    other = stage.start(isolated.held, entered, gate)
    busy = int(hear(entered))
    stage.runner.stop(HANG_SECONDS)
    assert is_gone(idle)
    assert is_gone(busy)
    assert other.empty
    assert threading.active_count() < before
    assert not stage.runner.start(
        StepOrder(PARTITION, "lease", StepCall(isolated.pid, (), {}), StepContext("e", "f", "p", "p", 1, "t", "k", 1)),
        WaitingBox(),  # type: ignore[arg-type]
    )
