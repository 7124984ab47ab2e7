"""Which process on which boot of which host holds a lease, and whether it still lives."""

from __future__ import annotations

import os
import socket
from functools import cache
from importlib.metadata import version
from pathlib import Path


def host_info() -> str:
    """`host,boot,pid,start` of this process; the start time tells it from a later process with its pid."""
    return f"{_host()},{_boot()},{os.getpid()},{_state_and_start(os.getpid())[1]}"


@cache
def own_version() -> str:
    """The version of Stepwell that this process runs."""
    return version("stepwell")


def is_dead(info: str) -> bool:
    """Whether the process that wrote `info` is certainly gone: same host and boot, but no such process."""
    parts = info.split(",")
    if len(parts) != 4 or parts[:2] != [_host(), _boot()] or not parts[2].isdigit():
        return False
    state, start = _state_and_start(int(parts[2]))
    if state:
        return state in "ZX" or start != parts[3]
    try:
        os.kill(int(parts[2]), 0)
    except ProcessLookupError:
        return True
    except PermissionError:
        return False
    return False


@cache
def _host() -> str:
    """Host name and, on Linux, pid namespace: two containers may share all else and have the same pids."""
    name = socket.gethostname().replace(",", "-").replace("|", "-") or "localhost"
    try:
        return f"{name}/{Path('/proc/self/ns/pid').readlink().name.strip('pid:[]')}"
    except OSError:
        return name


@cache
def _boot() -> str:
    """Linux' id of the current boot; empty where there is none (then the host's name must do)."""
    try:
        return Path("/proc/sys/kernel/random/boot_id").read_text().strip()
    except OSError:
        return ""


def _state_and_start(pid: int) -> tuple[str, str]:
    """State (`Z`: dead and not reaped) and start time of a process in clock ticks since boot; empty if unknown."""
    try:
        stat = Path(f"/proc/{pid}/stat").read_text()
    except OSError:
        return "", ""
    fields = stat.rpartition(")")[2].split()
    return fields[0], fields[19]
