"""The black box: what is written is read as it was, garbage harms nobody, and a resumed coroutine stays one."""

from __future__ import annotations

import asyncio
import contextvars
import errno
import os
import random
import signal
import subprocess
import sys
import threading
from collections.abc import AsyncIterator, Coroutine
from pathlib import Path
from typing import Any

import pytest

from stepwell.actors import blackbox as blackbox_module
from stepwell.actors.blackbox import NO_BOX, BlackBox
from stepwell.actors.boxlayout import ATTEMPT_SIZE, ATTEMPTS_AT, fault_path
from stepwell.actors.boxreport import BoxAttempt, BoxReport, parse_box, read_box
from stepwell.flow.context import StepContext

SLOTS = 4


def context(number: int = 1, path: str = "charge") -> StepContext:
    return StepContext(f"order-{number}", "f", "charge", path, 2, f"{number:032x}", "k", 7)


class Box:
    """A black box in memory, and what a reader would say of it."""

    def __init__(self, slots: int = SLOTS) -> None:
        self.buffer = bytearray(ATTEMPTS_AT + slots * ATTEMPT_SIZE)
        self.box = BlackBox(self.buffer, b"0123456789abcdef", slots)

    def read(self) -> BoxReport:
        report = parse_box(bytes(self.buffer), 100.0)
        assert report is not None
        return report


def test_an_empty_box_says_that_nothing_was_at_work() -> None:
    report = Box().read()
    assert (report.turn, report.entry, report.attempts, report.complete) == (None, None, (), True)
    assert report.box_id == b"0123456789abcdef".hex()
    assert report.turn_seconds(100.0) == 0.0
    assert report.driven == ""


def test_a_turn_is_seen_with_its_actor_and_its_beginning_until_it_ends() -> None:
    made = Box()
    made.box.turn("order-1", 88.5)
    report = made.read()
    assert (report.turn, report.driven, report.turn_seconds(100.0)) == (("order-1", 88.5), "order-1", 11.5)
    made.box.turn(":dispatcher", 99.0)
    assert (made.read().turn, made.read().driven) == ((":dispatcher", 99.0), "")
    made.box.turn("x" * 128, 99.5)
    assert made.read().driven == "x" * 128
    made.box.idle()
    assert made.read().turn is None


def test_an_entry_is_seen_while_it_is_read() -> None:
    made = Box()
    made.box.reading(63, "1700000000000-18446744073709551615")
    assert made.read().entry == (63, "1700000000000-18446744073709551615")
    made.box.read()
    assert made.read().entry is None


def test_attempts_are_seen_from_their_beginning_to_their_end() -> None:
    made = Box()
    slots = [made.box.begin(number, context(number)) for number in (1, 2, 3)]
    made.box.on_thread(slots[2])
    made.box.end(slots[0])
    long = made.box.begin(5, context(5, "gather#2.0/" * 20))
    assert long == slots[0]
    thread = threading.get_ident()
    assert sorted(made.read().attempts, key=lambda each: each.partition) == [
        BoxAttempt(2, "order-2", f"{2:032x}", "charge", 2),
        BoxAttempt(3, "order-3", f"{3:032x}", "charge", 2, "thread", thread),
        BoxAttempt(5, "order-5", f"{5:032x}", ("gather#2.0/" * 20)[:76], 2),
    ]


def test_more_attempts_than_slots_make_the_report_incomplete_as_long_as_they_run() -> None:
    made = Box(2)
    slots = [made.box.begin(1, context(number)) for number in range(4)]
    assert slots[2:] == [-1, -1]
    for slot in slots[2:]:
        made.box.on_thread(slot)
        assert not made.read().complete
        made.box.end(slot)
    report = made.read()
    assert report.complete
    assert len(report.attempts) == 2


def test_a_file_that_is_no_box_has_no_report(tmp_path: Path) -> None:
    path = tmp_path / "box"
    assert read_box(path) is None
    for content in (b"", b"SWBOX", bytes(5000), b"x" * 5000):
        path.write_bytes(content)
        assert read_box(path) is None


def test_a_box_in_a_file_is_read_by_its_path_and_a_new_one_replaces_it(tmp_path: Path) -> None:
    path = tmp_path / "box"
    box = BlackBox.create(path, SLOTS)
    box.scheduler_is_here()
    box.turn("order-1", 1.5)
    box.begin(1, context())
    report = read_box(path)
    assert report is not None
    assert report.turn == ("order-1", 1.5)
    assert [attempt.execution_id for attempt in report.attempts] == ["order-1"]
    assert report.scheduler_thread == threading.get_ident()
    fault_path(path).write_text("Fatal Python error: Segmentation fault\n\nCurrent thread 0x00ff (most recent call ")
    BlackBox.create(path, SLOTS)
    fresh = read_box(path)
    assert fresh is not None
    assert (fresh.turn, fresh.attempts, fresh.fault) == (None, (), None)
    assert fresh.box_id != report.box_id


def test_a_box_is_written_in_full_or_not_at_all(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A hole in it that a full disk can't fill would be a fatal signal when it is written to."""
    room = 1000
    write = os.write

    def scarce(fd: int, data: memoryview) -> int:
        nonlocal room
        if not room:
            raise OSError(errno.ENOSPC, "No space left on device")
        written = write(fd, data[:room])
        room -= written
        return written

    path = tmp_path / "box"
    with monkeypatch.context() as patched:
        patched.setattr(blackbox_module.os, "write", scarce)
        with pytest.raises(OSError, match="No space left"):
            BlackBox.create(path, SLOTS)
    assert not path.exists()
    with monkeypatch.context() as patched:
        patched.setattr(blackbox_module.os, "write", lambda fd, data: write(fd, data[:777]))
        BlackBox.create(path, SLOTS).turn("order-1", 1.5)
    report = read_box(path)
    assert report is not None
    assert report.driven == "order-1"


def test_where_faults_can_not_be_noted_they_are_not(tmp_path: Path) -> None:
    box = BlackBox.create(tmp_path / "box", SLOTS)
    fault_path(tmp_path / "box").mkdir()
    box.catch_faults()


def test_a_fatal_signal_is_told_with_its_thread_and_the_place_in_the_user_s_code(tmp_path: Path) -> None:
    path = tmp_path / "box"
    BlackBox.create(path, SLOTS)
    fault_path(path).write_text(
        "Fatal Python error: Segmentation fault\n\n"
        "Thread 0x00007f01bb (most recent call first):\n"
        f'  File "{threading.__file__}", line 324 in wait\n\n'
        "Current thread 0x00007f01aa (most recent call first):\n"
        f'  File "{threading.__file__}", line 519 in string_at\n'
        '  File "/app/flows.py", line 12 in crasher\n'
        '  File "/app/other.py", line 1 in run\n\n'
        "Thread 0x00007f01cc (most recent call first):\n"
        '  File "/app/third.py", line 7 in third\n'
    )
    report = read_box(path)
    assert report is not None
    assert report.fault is not None
    assert (report.fault.what, report.fault.thread) == ("Segmentation fault", 0x7F01AA)
    assert report.fault.where == "/app/flows.py:12 in crasher"


@pytest.mark.parametrize("seed", range(300))
def test_whatever_lies_in_the_file_is_read_without_an_error_and_never_made_up(seed: int) -> None:
    chance = random.Random(seed)
    made = Box(8)
    made.box.turn("order-1", 5.0)
    made.box.reading(3, "5-1")
    for number in range(chance.randrange(9)):
        made.box.on_thread(made.box.begin(number, context(number)))
    whole = made.read()
    raw = bytearray(made.buffer)
    for _ in range(chance.choice((1, 10, 500))):
        raw[chance.randrange(24, len(raw))] = chance.randrange(256)
    report = parse_box(bytes(raw[: chance.choice((len(raw), chance.randrange(len(raw))))]), 100.0)
    if report is None:
        return
    assert report.turn_seconds(100.0) >= 0.0
    for attempt in report.attempts:
        assert attempt.attempt > 0
        assert attempt.at_work in ("", "loop", "thread")
        assert attempt.execution_id.isprintable()
    if not report.complete:
        return
    assert len(report.attempts) <= 8
    assert report.box_id == whole.box_id


def test_a_half_written_slot_is_empty() -> None:
    made = Box()
    made.box.begin(1, context(1))
    for end in range(ATTEMPTS_AT, ATTEMPTS_AT + ATTEMPT_SIZE - 2):
        torn = bytearray(made.buffer)
        torn[end : ATTEMPTS_AT + ATTEMPT_SIZE] = bytes(ATTEMPTS_AT + ATTEMPT_SIZE - end)
        report = parse_box(bytes(torn), 0.0)
        assert report is not None
        assert report.attempts == ()


# What the step loop resumes.


async def _once() -> None:
    future = asyncio.get_running_loop().create_future()
    asyncio.get_running_loop().call_soon(future.set_result, None)
    await future


class Watched:
    """Runs bodies through a box on a loop, and notes what a reader sees at each point."""

    def __init__(self) -> None:
        self.made = Box()
        self.seen: list[str] = []

    def look(self) -> None:
        self.seen.append(",".join(f"{a.execution_id}:{a.at_work}" for a in self.made.read().attempts))

    async def run(self, number: int, body: Coroutine[Any, Any, Any]) -> Any:
        slot = self.made.box.begin(1, context(number))
        try:
            return await self.made.box.resumed(slot, body)
        finally:
            self.made.box.end(slot)


def test_a_step_is_at_work_only_while_the_loop_resumes_it() -> None:
    watched = Watched()

    async def body() -> str:
        watched.look()
        await _once()
        watched.look()
        return "done"

    async def main() -> str:
        task = asyncio.ensure_future(watched.run(1, body()))
        while not task.done():
            await asyncio.sleep(0)
            watched.look()
        return await task

    assert asyncio.run(main()) == "done"
    assert "order-1:loop" in watched.seen
    assert "order-1:" in watched.seen
    assert watched.seen[-1] == ""
    assert watched.seen[0] == "order-1:loop"


def test_of_two_steps_only_the_one_that_runs_is_at_work() -> None:
    watched = Watched()

    async def body() -> None:
        await _once()
        watched.look()
        await _once()

    async def main() -> None:
        await asyncio.gather(watched.run(1, body()), watched.run(2, body()))

    asyncio.run(main())
    assert sorted(watched.seen) == ["order-1:,order-2:loop", "order-1:loop,order-2:"]


def test_errors_cancellation_and_timeouts_pass_as_they_are() -> None:
    watched = Watched()
    caught: list[str] = []

    async def raises() -> None:
        await _once()
        raise ValueError("no")

    async def cancelled() -> str:
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            watched.look()
            caught.append("cancelled")
            raise
        return ""

    async def times_out() -> str:
        try:
            async with asyncio.timeout(0):
                await asyncio.Event().wait()
        except TimeoutError:
            return "late"
        return ""

    async def main() -> None:
        with pytest.raises(ValueError, match="no"):
            await watched.run(1, raises())
        task = asyncio.ensure_future(watched.run(2, cancelled()))
        await asyncio.sleep(0)
        await asyncio.sleep(0)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        assert await watched.run(3, times_out()) == "late"
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(0):
                await watched.run(4, cancelled())

    asyncio.run(main())
    assert caught == ["cancelled", "cancelled"]
    assert watched.seen == ["order-2:loop", "order-4:loop"]
    assert watched.made.read().attempts == ()


def test_context_variables_and_async_generators_work_inside() -> None:
    watched = Watched()
    variable: contextvars.ContextVar[int] = contextvars.ContextVar("variable", default=0)

    async def numbers() -> AsyncIterator[int]:
        for number in range(3):
            await _once()
            yield number

    async def body() -> tuple[int, list[int]]:
        variable.set(variable.get() + 1)
        found = [number async for number in numbers()]
        return variable.get(), found

    async def main() -> None:
        variable.set(41)
        assert await watched.run(1, body()) == (42, [0, 1, 2])
        assert variable.get() == 42, "the same context, as by a plain await"

    asyncio.run(main())


def test_a_body_that_is_closed_runs_its_cleanup_and_is_marked_while_it_does() -> None:
    watched = Watched()

    async def body() -> None:
        try:
            await asyncio.Event().wait()
        finally:
            watched.look()

    async def main() -> None:
        outer = watched.run(1, body())
        outer.send(None)
        outer.close()

    asyncio.run(main())
    assert watched.seen == ["order-1:loop"]
    assert watched.made.read().attempts == ()


def test_no_box_hands_bodies_through() -> None:
    async def body() -> int:
        return 3

    coroutine = body()
    slot = NO_BOX.begin(1, context())
    assert NO_BOX.resumed(slot, coroutine) is coroutine
    assert asyncio.run(coroutine) == 3
    NO_BOX.end(slot)


@pytest.mark.threads
def test_a_real_fatal_signal_is_told_with_its_thread(tmp_path: Path) -> None:
    code = """
import ctypes, pathlib, sys, threading
from stepwell.actors.blackbox import BlackBox
box = BlackBox.create(pathlib.Path(sys.argv[1]), 4)
box.catch_faults()
gate = threading.Event()
def driven():
    box.scheduler_is_here()
    box.turn("order-1", 1.0)
    ctypes.string_at(0)
threading.Thread(target=gate.wait, daemon=True).start()
threading.Thread(target=driven).start()
"""
    (tmp_path / "flows.py").write_text(code)
    command = [sys.executable, str(tmp_path / "flows.py"), str(tmp_path / "box")]
    done = subprocess.run(command, check=False, timeout=60)
    assert done.returncode == -signal.SIGSEGV
    report = read_box(tmp_path / "box")
    assert report is not None
    assert report.fault is not None
    assert report.fault.what == "Segmentation fault"
    assert report.fault.thread == report.scheduler_thread
    assert report.fault.where.endswith("in driven")
