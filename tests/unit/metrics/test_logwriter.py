"""Log lines never keep the one who logs waiting, and none is lost without a word."""

from __future__ import annotations

import contextlib
import logging
import os
import select
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from stepwell.metrics import logwriter
from stepwell.metrics.logwriter import PatientHandler


class Pipe:
    """A handler on a pipe that nobody reads until told to."""

    def __init__(self) -> None:
        self.out, number = os.pipe()
        self.stream = os.fdopen(number, "w")
        self.handler = PatientHandler(self.stream, lambda count: f"{count} left out")
        self.logger = logging.Logger("test")
        self.logger.addHandler(self.handler)

    def fill(self) -> int:
        """Lines until the pipe is full; how many."""
        lines = 0
        while not self.handler.waiting:
            assert lines < 10_000, "no pipe holds so much"
            self.logger.info("line %d %s", lines, "x" * 200)
            lines += 1
        return lines

    def read(self, until: str) -> list[str]:
        text = ""
        while until not in text:
            text += os.read(self.out, 65536).decode()
        return text.splitlines()

    def close(self) -> None:
        drain = threading.Thread(target=self._drain, daemon=True)
        drain.start()
        self.handler.flush()
        self.handler.close()
        self.stream.close()
        drain.join()
        os.close(self.out)

    def _drain(self) -> None:
        while os.read(self.out, 65536):
            pass


@pytest.fixture
def pipe(monkeypatch: pytest.MonkeyPatch) -> Iterator[Pipe]:
    monkeypatch.setattr(logwriter, "FLUSH_SECONDS", 50.0)  # whoever writes may be held up for longer than is waited
    made = Pipe()
    yield made
    made.close()


def test_a_line_that_fits_is_in_the_pipe_when_the_call_is_over(pipe: Pipe) -> None:
    pipe.logger.info("hello")
    assert pipe.handler.waiting == 0
    assert os.read(pipe.out, 100) == b"hello\n"


@pytest.mark.pain(20)
@pytest.mark.hang_limit(15)
def test_a_pipe_that_another_process_fills_in_the_same_moment_keeps_nobody_waiting(
    pipe: Pipe, monkeypatch: pytest.MonkeyPatch
) -> None:
    full = 0

    class Poll:
        def poll(self, _timeout: int) -> list[tuple[int, int]]:
            """There was room, and then there is none."""
            nonlocal full
            other = os.open(f"/proc/self/fd/{pipe.stream.fileno()}", os.O_WRONLY | os.O_NONBLOCK)
            with contextlib.suppress(BlockingIOError):
                while True:
                    full += os.write(other, b"y" * 4096)
            os.close(other)
            return [(pipe.stream.fileno(), select.POLLOUT)]

    monkeypatch.setattr(pipe.handler, "_poll", Poll())
    pipe.logger.info("mine")
    assert full > 0
    assert pipe.read(until="mine")[-1] == "y" * full + "mine"


@pytest.mark.pain(20)
@pytest.mark.hang_limit(15)
def test_a_full_pipe_keeps_nobody_waiting_and_loses_nothing(pipe: Pipe) -> None:
    lines = pipe.fill()
    for n in range(lines, lines + 500):
        pipe.logger.info("line %d %s", n, "x" * 200)
    pipe.logger.info("last")
    read = pipe.read(until="last")
    assert [line.split()[1] for line in read[:-1]] == [str(n) for n in range(lines + 500)]


def test_what_is_left_out_is_counted(pipe: Pipe, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(logwriter, "BACKLOG_BYTES_MAX", 5_000)
    lines = pipe.fill()
    for n in range(lines, lines + 100):
        pipe.logger.info("line %d %s", n, "x" * 200)
    read = pipe.read(until="left out")
    told = int(read[-1].split()[0])
    assert len(read) - 1 + told == lines + 100
    assert told > 0


def test_after_a_jam_lines_are_written_at_once_again(pipe: Pipe) -> None:
    pipe.fill()
    reader = threading.Thread(target=pipe.read, args=("marker",))
    reader.start()
    pipe.logger.info("marker")
    reader.join()
    pipe.handler.flush()
    pipe.logger.info("again")
    assert pipe.handler.waiting == 0
    assert os.read(pipe.out, 100) == b"again\n"


def test_a_long_traceback_waits_for_nobody_either(pipe: Pipe) -> None:
    pipe.logger.info("x" * 300_000)  # more than any pipe holds
    pipe.logger.info("last")
    assert [len(line) for line in pipe.read(until="last")] == [300_000, 4]


def test_a_file_is_written_at_once_whatever_the_length(tmp_path: Path) -> None:
    with (tmp_path / "log").open("w") as stream:
        handler = PatientHandler(stream, str)
        logger = logging.Logger("test")
        logger.addHandler(handler)
        logger.info("x" * 300_000)
        assert handler.waiting == 0
        assert (tmp_path / "log").stat().st_size == 300_001


def test_a_reader_that_is_gone_harms_nobody() -> None:
    made = Pipe()
    os.close(made.out)
    made.logger.info("to nobody")
    made.handler.flush()
    made.stream.close()
