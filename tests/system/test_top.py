"""`stepwell top` on real workers: what it shows is what the rows say, and the terminal is as it was afterwards."""

from __future__ import annotations

import fcntl
import itertools
import json
import os
import pty
import re
import select
import struct
import subprocess
import sys
import termios
import time
from collections import Counter
from collections.abc import Iterator
from typing import Any

import pytest
from system.support.stage import HANG_SECONDS, Stage

from stepwell.core.overview import Overview

WIDTH, HEIGHT = 80, 24
LEAVES_SCREEN = b"\x1b[?1049l"
SHOWS_CURSOR = b"\x1b[?25h"


def glance(stage: Stage) -> dict[str, Any]:
    done = stage.command("top", *stage.where, "--once", "--json")
    assert done.returncode == 0, done
    found: dict[str, Any] = json.loads(done.stdout)
    return found


def whole(found: dict[str, Any]) -> bool:
    """Whether it has what the shards say every now and then, each for itself, and that all but one step has ended."""
    return bool(
        found["rate"]
        and [(each["execution"], each["path"]) for each in found["longest"]] == [("held", "held")]
        and {each["flow"] for each in found["slowest"]} >= {"chain"}
        and [shard["state"] for shard in found["shards"]] == ["active", "active"]
        and sum(shard["partitions"] for shard in found["shards"]) == 64
    )


class Terminal:
    """A command on a terminal of its own."""

    def __init__(self, stage: Stage, *arguments: str) -> None:
        self._ours, self.theirs = pty.openpty()
        fcntl.ioctl(self.theirs, termios.TIOCSWINSZ, struct.pack("HHHH", HEIGHT, WIDTH, 0, 0))
        self.before = termios.tcgetattr(self.theirs)
        environment = {name: value for name, value in stage.environment.items() if name not in ("COLUMNS", "LINES")}
        self.process = subprocess.Popen(
            [sys.executable, "-m", "stepwell.cli", *arguments],
            stdin=self.theirs,
            stdout=self.theirs,
            stderr=self.theirs,
            env={**environment, "TERM": "xterm-256color"},
            start_new_session=True,
            preexec_fn=self._take_terminal,
        )
        self.shown = b""

    def _take_terminal(self) -> None:
        fcntl.ioctl(0, termios.TIOCSCTTY, 0)  # so that Ctrl-C reaches it

    def wait_for(self, words: bytes) -> None:
        """Read until these words have been shown."""
        deadline = time.monotonic() + HANG_SECONDS
        while words not in self.shown:
            assert self.process.poll() is None, self.shown
            assert time.monotonic() < deadline, self.shown
            self._read()

    def press(self, key: bytes) -> None:
        os.write(self._ours, key)

    def finish(self) -> int:
        """Read on until it has ended; its exit code."""
        deadline = time.monotonic() + HANG_SECONDS
        while self.process.poll() is None:
            assert time.monotonic() < deadline, self.shown
            self._read()
        while self._read():
            pass
        return self.process.returncode

    def _read(self) -> bytes:
        if not select.select([self._ours], [], [], 0.1)[0]:
            return b""
        read = os.read(self._ours, 65536)
        self.shown += read
        return read

    def end(self) -> None:
        if self.process.poll() is None:
            self.process.kill()
            self.process.wait()
        os.close(self._ours)
        os.close(self.theirs)


@pytest.fixture
def terminal(served: Stage) -> Iterator[Terminal]:
    made = Terminal(served, "top", *served.where, "--interval", "0.2")
    yield made
    made.end()


def test_what_it_shows_is_what_the_rows_say(served: Stage) -> None:
    worker = served.worker("--shards", "2").ready()
    served.eventually(served.settled, "both shards hold their shares")
    with served.client() as client:
        for number in range(6):
            client.start("rester", {}, f"rest-{number}")
        client.start("holding", {"gate": "never"}, "held")
        served.ran("held", "held")
        for number in range(6):
            served.eventually(
                lambda n=number: client.describe(f"rest-{n}")["open"].get("resting", {}).get("status") == "backoff",
                f"rest-{number} backs off",
            )
        numbers = itertools.count()

        def look() -> dict[str, Any]:
            """What is shown; of steps those are shown that have ended in the last minute."""
            client.result(client.start("chain", {"words": 3}, f"done-{next(numbers)}"), HANG_SECONDS)
            found = glance(served)
            return found if whole(found) else {}

        seen = served.eventually(look, "the shards have told it")
        rows = {each["id"]: client.describe(each["id"]) for each in client.list(limit=1000)}
    statuses = Counter(row["status"] for row in rows.values())
    assert {status: told["count"] for status, told in seen["executions"].items() if told["count"]} == statuses
    waiting = {each["execution"]: each for each in seen["backoffs"]["next"]}
    assert seen["backoffs"]["executions"] == len(waiting) == 6
    assert [each["due_at"] for each in waiting.values()] == sorted(each["due_at"] for each in waiting.values())
    for execution_id, told in waiting.items():
        row = rows[execution_id]
        opened = row["open"][told["path"]]
        assert (told["due_at"], told["attempt"], told["max_attempts"]) == (opened["due_at"], 2, 2)
        [step] = row["steps"]
        assert told["error_type"] == step["attempts"][-1]["error"]["type"]
    assert seen["partitions"]["held"] == 64
    assert {shard["pid"] for shard in seen["shards"]} == set(worker.shards.values())
    assert seen["guarantee"]["kept"] == "yes"
    assert set(seen) == set(Overview.__struct_fields__)


def test_without_a_worker_it_says_so(served: Stage) -> None:
    with served.client() as client:
        client.start("chain", {}, "waits", unchecked=True)
    done = served.command("top", *served.where, "--once")
    assert "! no worker is running: start one with `stepwell run FILE` (1 execution)" in done.stdout
    assert done.returncode == 0


def test_a_shard_that_was_started_again_is_told(served: Stage) -> None:
    worker = served.worker("--worker-id", "w").ready()  # a host's name may be longer than a line
    os.kill(worker.shard, 9)
    told = r"! shard w/0 was started again \d+ s ago \(process 2\)"
    served.eventually(lambda: re.search(told, served.command("top", *served.where).stdout), "it is told, for a minute")


@pytest.mark.parametrize("key", [b"q", b"\x03"], ids=["q", "Ctrl-C"])
def test_the_live_view_ends_at_a_key_and_leaves_the_terminal_as_it_was(
    served: Stage, terminal: Terminal, key: bytes
) -> None:
    served.worker().ready()
    with served.client() as client:
        client.start("rester", {}, "rest-1")
    terminal.wait_for(b"q quits")
    terminal.wait_for(b"rest-1")
    assert termios.tcgetattr(terminal.theirs) != terminal.before
    terminal.press(b"x")
    terminal.press(key)
    assert terminal.finish() == 0
    assert termios.tcgetattr(terminal.theirs) == terminal.before
    assert terminal.shown.rindex(LEAVES_SCREEN) > terminal.shown.rindex(b"rest-1")
    assert SHOWS_CURSOR in terminal.shown[terminal.shown.rindex(b"rest-1") :]
    assert b"Traceback" not in terminal.shown


def test_the_live_view_outlives_its_server(served: Stage, terminal: Terminal, server: Any) -> None:
    terminal.wait_for(b"q quits")
    server.kill()
    terminal.wait_for(b" s old: ")
    terminal.press(b"q")
    assert terminal.finish() == 0
