"""Flows whose steps run in processes of their own; journal and gates are those of `subject`."""

from __future__ import annotations

import ctypes
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

from subject import GATE_POLL_SECONDS, QUICK, note, quick, wait_until_open

from stepwell import Retry, flow, gather, step

DYING_SECONDS = 2.0


def leave_word(name: str, word: object) -> None:
    """A file beside the gates, written at once."""
    folder = Path(os.environ["STEPWELL_TEST_GATES"])
    unfinished = folder / f".{name}"
    unfinished.write_text(str(word))
    unfinished.rename(folder / name)


def start_child() -> int:
    """A process of the body's own, in its group, that runs until it is killed."""
    return subprocess.Popen([sys.executable, "-c", "import signal; signal.pause()"]).pid


def lives(pid: int) -> bool:
    """Whether there is such a process; one that is dead, and whose new parent has not reaped it yet, does not live."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except (FileNotFoundError, ProcessLookupError):
        return False


def outlives_its_kill(pid: int) -> bool:
    """Whether a process that should have been killed lives: on a busy machine it may need a moment to die of that."""
    deadline = time.monotonic() + DYING_SECONDS
    while lives(pid) and time.monotonic() < deadline:
        time.sleep(GATE_POLL_SECONDS)
    return lives(pid)


@step(isolation="process", retry=QUICK)
def held_apart(gate: str) -> int:
    """Runs until its gate is open; answers the process that it ran in."""
    note()
    wait_until_open(gate)
    return os.getpid()


@step(isolation="process", retry=QUICK)
async def held_apart_async(gate: str) -> int:
    """The same with an event loop, which it blocks."""
    note()
    wait_until_open(gate)
    return os.getpid()


@step(isolation="process", retry=Retry(max_attempts=3, base=0.05))
def killer() -> None:
    """Ends its process."""
    note()
    os._exit(137)


@step(isolation="process", retry=QUICK, timeout=5.0)
def overtime() -> bool:
    """Starts a child and hangs; the next attempt answers whether that child lives. On a busy machine an attempt may be
    too late before it gets there."""
    note()
    word = Path(os.environ["STEPWELL_TEST_GATES"]) / "child"
    if not word.exists():
        leave_word("child", start_child())
        signal.pause()
    return outlives_its_kill(int(word.read_text()))


@step(isolation="process", retry=QUICK)
def stubborn(never_lets_go: bool) -> None:
    """Never ends; it has a child, or holds the interpreter's lock for ever."""
    if never_lets_go:
        note()
        ctypes.PyDLL(None).pause()
    leave_word("child", start_child())
    note()
    signal.pause()


@flow
async def apart(gate: str) -> list[int]:
    """Two steps in processes at once."""
    return await gather(held_apart(gate), held_apart_async(gate))


@flow
async def one_apart(gate: str) -> list[object]:
    """A step in a process, and one after it."""
    return [await held_apart(gate), await quick("after")]


@flow
async def killing() -> None:
    """A step that ends its process each time."""
    await killer()


@flow
async def late() -> bool:
    """A step that is too late once."""
    return await overtime()


@flow
async def stuck(never_lets_go: bool = False) -> None:
    """A step that never ends."""
    await stubborn(never_lets_go)


@flow
async def innocent() -> str:
    """Nothing of note."""
    return await quick("well")


@step(retry=Retry(max_attempts=3, base=0.05))
def shard_killer() -> None:
    """Ends the process that it runs in: that of its shard, until it is set apart."""
    note()
    os._exit(137)


@flow
async def shard_killing() -> None:
    """A step that ends its shard."""
    await shard_killer()
