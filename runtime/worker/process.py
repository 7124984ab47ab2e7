"""What suits a process that is a worker or a shard and nothing else."""

from __future__ import annotations

import gc
import logging
import math
import os
import signal
import sys
from pathlib import Path
from types import FrameType
from typing import Final, NoReturn

import setproctitle

from stepwell.actors.processes.bereavement import hear_of_parents_end

__all__ = [
    "DRAINING_SIGNALS",
    "calm_the_collector",
    "cores",
    "die_with_parent",
    "exit_now",
    "kill_group",
    "lead_group",
    "leave_signals_to_parent",
    "set_title",
]

DRAINING_SIGNALS: Final = (signal.SIGINT, signal.SIGTERM)


def cores() -> int:
    """How many cores this process may use: those it may run on, and not more than its control group is given."""
    usable = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    try:
        quota, period = Path("/sys/fs/cgroup/cpu.max").read_text().split()
        return max(1, min(usable, math.ceil(int(quota) / int(period))))
    except (OSError, ValueError, ZeroDivisionError):  # no control group, no limit
        return usable


def calm_the_collector() -> None:
    """Collect seldom: a worker holds many long-lived objects and makes few cycles, so full collections take long
    (tens of milliseconds with 10,000 executions) and find little."""
    gc.collect()
    gc.freeze()
    gc.set_threshold(20_000, 20, 50)


def set_title(role: str, name: str) -> None:
    """Let `ps` say what this process is: `stepwell: shard rack-7/0`."""
    setproctitle.setproctitle(f"stepwell: {role} {name}")


def die_with_parent(parent: int) -> None:
    """End when that parent ends, where the kernel can tell of it (Linux): after a second at most, so that who reads
    what the parent says, and sees its end too, can kill all that this process has started."""
    hear_of_parents_end()
    if os.getppid() != parent:  # it ended before that
        kill_group(os.getpid())


def lead_group() -> None:
    """Make this process the leader of a group of its own, out of reach of the terminal's signals; whatever it starts
    is killed with it."""
    os.setsid()


def leave_signals_to_parent() -> None:
    """Neither Ctrl-C nor SIGTERM ends this process: its parent decides. What it starts does not inherit that."""
    for number in DRAINING_SIGNALS:
        signal.signal(number, _pass)
    signal.pthread_sigmask(signal.SIG_UNBLOCK, DRAINING_SIGNALS)


def kill_group(leader: int) -> None:
    """SIGKILL a process and all that it has started. It must not have been waited for, lest another has its number."""
    for kill in (os.killpg, os.kill):  # it may not lead its group yet
        try:
            kill(leader, signal.SIGKILL)
        except ProcessLookupError:
            continue
        except PermissionError:  # macOS: of a group in which only the dead are left
            continue


def exit_now(code: int) -> NoReturn:
    """End without waiting for threads, with all that was logged and printed: bodies of steps may outlive a grace."""
    logging.shutdown()
    sys.stdout.flush()
    os._exit(code)


def _pass(_number: int, _frame: FrameType | None) -> None:
    pass
