"""Who wrote a lease, and whether that process is certainly gone."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest

from stepwell.worker.identity import host_info, is_dead

needs_proc = pytest.mark.skipif(not Path("/proc/self/stat").exists(), reason="only Linux tells when a process began")


def info_with(**changes: str) -> str:
    """This process' own information with some parts changed."""
    parts = dict(zip(("host", "boot", "pid", "start"), host_info().split(","), strict=True))
    return ",".join({**parts, **changes}.values())


def test_a_living_process_is_not_dead() -> None:
    assert not is_dead(host_info())


@pytest.mark.pain(48)
def test_a_killed_process_is_dead() -> None:
    child = subprocess.Popen(["sleep", "600"])
    info = info_with(pid=str(child.pid), start="1")
    child.kill()
    child.wait()
    assert is_dead(info)


@needs_proc
@pytest.mark.pain(48)
def test_another_process_with_the_same_pid_is_not_the_one_that_wrote() -> None:
    assert is_dead(info_with(start="1"))


@pytest.mark.pain(48)
@pytest.mark.parametrize(
    "info",
    [
        info_with(host="elsewhere", start="1"),
        info_with(boot="another-boot", start="1"),
        info_with(pid="many"),
        "nonsense",
        "",
    ],
    ids=["other host", "other boot", "no pid", "nonsense", "nothing"],
)
def test_what_can_not_be_known_is_not_dead(info: str) -> None:
    assert not is_dead(info)


@needs_proc
@pytest.mark.pain(48)
def test_a_killed_process_that_nobody_reaped_is_dead() -> None:
    child = subprocess.Popen(["sleep", "600"])
    start = Path(f"/proc/{child.pid}/stat").read_text().rpartition(")")[2].split()[19]
    info = info_with(pid=str(child.pid), start=start)
    assert not is_dead(info)
    child.kill()
    os.waitid(os.P_PID, child.pid, os.WEXITED | os.WNOWAIT)
    assert is_dead(info)
    child.wait()
