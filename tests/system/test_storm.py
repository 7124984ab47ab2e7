"""Everything at once: kills, freezes, restarts and resets, drawn by a seed, while 300 executions of five steps run."""

from __future__ import annotations

import itertools
import os
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import pytest
import redis
from system.support.cluster import Cluster
from system.support.effects import EffectReceiver
from system.support.sentinels import Watched
from system.support.servers import Server
from system.support.stage import Stage
from system.support.storm import SHORT_SECONDS, ServerFaults, Storm

SEED = int(os.environ.get("STEPWELL_TEST_STORM_SEED", "20261129"))
SECONDS = float(os.environ.get("STEPWELL_TEST_STORM_SECONDS", "60"))


def weather(stage: Stage, faults: ServerFaults, seconds: float, *options: str) -> None:
    """Let a storm pass over a stage, and look whether all came out right."""
    with EffectReceiver() as receiver:
        storm = Storm(stage, receiver, faults, SEED, seconds, options=options)
        storm.blow()
        storm.check()
        print(storm.told)


def cut_connections(servers: Iterable[Callable[[], redis.Redis]]) -> None:
    for admin in servers:
        with admin() as client:
            client.execute_command("CLIENT", "KILL", "TYPE", "normal", "SKIPME", "yes")


@pytest.mark.pain(1, 4, 5, 7, 8, 9, 10, 35, 40)
@pytest.mark.hang_limit(900)
def test_a_storm_loses_nothing_and_doubles_nothing(
    processes: Any, tmp_path: Path, eventually: Callable[..., Any]
) -> None:
    server = Server(processes, tmp_path / "server").start()

    def restart() -> None:
        server.kill()
        server.start()

    folder = tmp_path / "stage"
    folder.mkdir()
    stage = Stage(processes, folder, server.url)
    try:
        weather(stage, ServerFaults(restart, lambda: cut_connections([server.admin])), SECONDS)
    finally:
        stage.end()


@pytest.mark.pain(14)
@pytest.mark.hang_limit(900)
def test_a_short_storm_over_a_cluster_loses_nothing_and_doubles_nothing(cluster_stage: Stage, cluster: Cluster) -> None:
    turns = itertools.cycle(cluster.nodes)
    cluster_stage.url = cluster.urls

    def restart() -> None:
        node = next(turns)
        node.kill()
        cluster.restart(node)

    def reset() -> None:
        cut_connections(node.admin for node in cluster.nodes)

    weather(cluster_stage, ServerFaults(restart, reset), SHORT_SECONDS)


@pytest.mark.pain(11)
@pytest.mark.hang_limit(900)
def test_a_short_storm_with_failovers_loses_nothing_and_doubles_nothing(
    sentinel_stage: Stage, watched: Watched
) -> None:
    def fail_over() -> None:
        """A worker that comes back finds a replica: without one it refuses to start with that durability."""
        watched.fail_over()

    def reset() -> None:
        cut_connections([watched.primary.admin])

    weather(sentinel_stage, ServerFaults(fail_over, reset, forgets=True), SHORT_SECONDS, "--durability", "replicated")
