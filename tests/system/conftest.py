"""System tests: real processes and servers. They wait for what they expect, never for a time to pass."""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Generator, Iterator
from pathlib import Path
from typing import Any

import pytest
import redis
from system.support.cluster import Cluster
from system.support.processes import Processes, eventually
from system.support.prometheus import Prometheus
from system.support.sentinels import Watched
from system.support.servers import Server
from system.support.stage import Stage

HANG_SECONDS = 600
TAIL_CHARACTERS = 20_000


@pytest.hookimpl(tryfirst=True)
def pytest_itemcollected(item: pytest.Item) -> None:
    """Processes start slowly on a loaded machine: a limit that only a hang reaches."""
    if Path(__file__).parent in item.path.parents and not item.get_closest_marker("hang_limit"):
        item.add_marker(pytest.mark.hang_limit(HANG_SECONDS))


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item: pytest.Item) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    """What the workers of a failed test have said is a part of its report."""
    report = yield
    stage = getattr(item, "funcargs", {}).get("stage")
    if report.failed and isinstance(stage, Stage):
        report.sections.append(("what its workers said", stage.said[-TAIL_CHARACTERS:]))
    return report


@pytest.fixture(name="eventually")
def _eventually() -> Callable[..., Any]:
    """`eventually(check, "what")` calls `check` until it answers something true, and returns that."""
    return eventually


@pytest.fixture
def processes(tmp_path: Path) -> Iterator[Processes]:
    """A starter of processes that are killed when the test ends."""
    starter = Processes(tmp_path)
    yield starter
    starter.end()


@pytest.fixture
def sockets() -> Iterator[Path]:
    """A folder whose path is short enough for sockets; pytest's own are too long where the temporary folder's is long.
    Ask for it before `processes`, so that whoever uses it has ended when it goes."""
    with tempfile.TemporaryDirectory(prefix="stepwell-", ignore_cleanup_errors=True) as name:
        yield Path(name)


@pytest.fixture
def stage(processes: Processes, tmp_path: Path) -> Iterator[Stage]:
    """A data directory with workers, commands and clients on it; its embedded server ends with the test."""
    made = Stage(processes, tmp_path)
    yield made
    made.end()


@pytest.fixture
def server(processes: Processes, tmp_path: Path) -> Server:
    """A server of the test's own."""
    return Server(processes, tmp_path / "server").start()


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
