"""System tests: real processes and servers. They wait for what they expect, never for a time to pass."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest
import redis
from system.support.cluster import Cluster
from system.support.prometheus import Prometheus
from system.support.sentinels import Watched
from system.support.servers import Server
from system.support.stage import Stage

HANG_SECONDS = 300


@pytest.hookimpl(tryfirst=True)
def pytest_itemcollected(item: pytest.Item) -> None:
    """Processes start slowly on a loaded machine: a limit that only a hang reaches."""
    if Path(__file__).parent in item.path.parents and not item.get_closest_marker("hang_limit"):
        item.add_marker(pytest.mark.hang_limit(HANG_SECONDS))


@pytest.fixture
def eventually() -> Callable[..., Any]:
    """`eventually(check, "what")` calls `check` until it answers something true, and returns that."""

    def wait(check: Callable[[], Any], what: str, seconds: float = 60.0) -> Any:
        deadline = time.monotonic() + seconds
        while True:
            answer = check()
            if answer:
                return answer
            assert time.monotonic() < deadline, f"not within {seconds:g} s: {what}"
            time.sleep(0.02)

    return wait


class Processes:
    """Starts processes in groups of their own; none outlives its test."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self._started: list[subprocess.Popen[str]] = []

    def start(self, command: Sequence[str | Path], **options: Any) -> subprocess.Popen[str]:
        """Start a command in the test's directory; its stdout and stderr are text pipes unless told otherwise."""
        options = {
            "cwd": self.directory,
            "stdout": subprocess.PIPE,
            "stderr": subprocess.PIPE,
            "text": True,
            "start_new_session": True,
            **options,
        }
        process = subprocess.Popen([str(part) for part in command], **options)
        self._started.append(process)
        return process

    def python(self, code: str, *arguments: str, **options: Any) -> subprocess.Popen[str]:
        """Start this Python on a piece of code."""
        return self.start([sys.executable, "-c", code, *arguments], **options)

    def end(self) -> None:
        """Kill each group that is left and close the pipes."""
        for process in self._started:
            if process.poll() is None:
                os.killpg(process.pid, signal.SIGKILL)
            with process:
                process.wait()


@pytest.fixture
def processes(tmp_path: Path) -> Iterator[Processes]:
    """A starter of processes that are killed when the test ends."""
    starter = Processes(tmp_path)
    yield starter
    starter.end()


@pytest.fixture
def stage(processes: Processes, tmp_path: Path, eventually: Callable[..., Any]) -> Iterator[Stage]:
    """A data directory with workers, commands and clients on it; its embedded server ends with the test."""
    made = Stage(processes, tmp_path, eventually)
    yield made
    made.end()


@pytest.fixture
def server(processes: Processes, tmp_path: Path, eventually: Callable[..., Any]) -> Server:
    """A server of the test's own."""
    return Server(processes, tmp_path / "server", eventually).start()


@pytest.fixture
def served(stage: Stage, server: Server) -> Stage:
    """A stage on that server."""
    stage.url = server.url
    return stage


@pytest.fixture
def admin(server: Server) -> Iterator[redis.Redis]:
    """A client of that server."""
    with server.admin() as client:
        yield client


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[Cluster]:
    """A Redis Cluster of three masters."""
    folder = tmp_path / "cluster"
    folder.mkdir()
    made = Cluster(folder).start()
    yield made
    made.stop()


@pytest.fixture
def cluster_stage(stage: Stage, cluster: Cluster) -> Stage:
    """A stage on that cluster; its URL names one node."""
    stage.url = cluster.url
    return stage


@pytest.fixture
def watched(tmp_path: Path) -> Iterator[Watched]:
    """A primary with a replica, and the three Sentinels that watch them."""
    folder = tmp_path / "watched"
    folder.mkdir()
    made = Watched(folder).start()
    yield made
    made.stop()


@pytest.fixture
def sentinel_stage(stage: Stage, watched: Watched) -> Stage:
    """A stage on whoever is the primary there."""
    stage.url = watched.url
    return stage


@pytest.fixture
def prometheus(processes: Processes, tmp_path: Path, eventually: Callable[..., Any]) -> Prometheus:
    """A Prometheus that is yet to be started."""
    return Prometheus(processes, tmp_path / "prometheus", eventually)
