"""A Redis Cluster of three masters: all works over all slots; slots move, masters die and hang, nothing is lost."""

from __future__ import annotations

import asyncio
import itertools
import json
import signal
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import pytest
from system.support.cluster import Cluster, Node
from system.support.servers import Server
from system.support.stage import HANG_SECONDS, Stage, WorkerProcess

from stepwell import Client, ExecutionFailed
from stepwell.client import AsyncClient
from stepwell.core.partition import partition_of
from stepwell.store.keys import Keys

KEYS = Keys("stepwell")


def owner_of(cluster: Cluster, execution_id: str) -> Node:
    """The master that holds an execution."""
    return cluster.owner(KEYS.row(execution_id))


def ids_on(cluster: Cluster, node: Node, prefix: str, count: int) -> list[str]:
    """Ids of executions that this master holds."""
    owners = [owner_of(cluster, f"{prefix}-{number}") for number in range(count * 12)]
    found = [f"{prefix}-{number}" for number, owner in enumerate(owners) if owner is node]
    assert len(found) >= count
    return found[:count]


def not_home(cluster: Cluster) -> tuple[Node, list[Node]]:
    """A master that serves neither the facts of the namespace nor what has no key; and the others."""
    needed = {cluster.owner(KEYS.meta).port, cluster.owner(KEYS.workers).port, cluster.nodes[0].port}
    for node in cluster.nodes:
        if node.port not in needed:
            return node, [other for other in cluster.nodes if other is not node]
    return cluster.nodes[2], cluster.nodes[:2]


def ended_once(stage: Stage, client: Client, worker: WorkerProcess, ids: Iterable[str]) -> None:
    """All end, and each step's body ran once."""
    for each in ids:
        assert client.result(each, timeout=HANG_SECONDS) == [worker.shard, "after!"]
        assert stage.journal.attempts(each, "held") == [1]
        assert stage.journal.attempts(each, "quick") == [1]


@pytest.mark.pain(14)
def test_all_that_a_client_can_ask_for_works_over_all_slots(cluster_stage: Stage, cluster: Cluster) -> None:
    stage = cluster_stage
    worker = stage.worker().ready()
    with stage.client() as client:
        chains = [client.start("chain", {"words": 3}) for _ in range(120)]
        assert {owner_of(cluster, each).port for each in chains} == {node.port for node in cluster.nodes}
        assert len({partition_of(each, 64) for each in chains}) > 40
        trips = [client.start("journey", {"word": "hello"}) for _ in range(6)]
        sleepers = [client.start("sleeper") for _ in range(6)]
        failing = [client.start("failing") for _ in range(4)]
        for each in trips:
            client.signal(each, "approval", {"by": "Ada"}, timeout=HANG_SECONDS)
        for each in sleepers:
            client.cancel(each, timeout=HANG_SECONDS)
        assert [client.result(each, timeout=HANG_SECONDS) for each in chains] == [3] * 120
        assert [client.result(each, timeout=HANG_SECONDS)["approval"] for each in trips] == [{"by": "Ada"}] * 6
        for each in failing:
            with pytest.raises(ExecutionFailed):
                client.result(each, timeout=HANG_SECONDS)
            client.retry(each, timeout=HANG_SECONDS)
            stage.eventually(lambda each=each: client.describe(each)["status"] == "error", f"{each} fails again")
        assert len(client.list("completed", limit=1000)) == 126
        assert {line["id"] for line in client.list("cancelled")} == set(sleepers)
        assert client.dead_letters() == []
        assert [each["id"] for each in client.workers()] != []
        stage.eventually(lambda: client.overview().partitions.held == 64, "it is told that all partitions are held")
        seen = client.overview()
        assert (seen.executions["completed"].count, seen.unread) == (126, "")
    for each in chains:
        assert [len(stage.journal.runs(each, path)) for path in ("quick", "quick#2", "quick#3")] == [1, 1, 1]
    assert "Traceback" not in worker.err


def test_commands_work_with_any_node_or_several_and_say_what_is_wrong(
    cluster_stage: Stage, cluster: Cluster, processes: Any, tmp_path: Path
) -> None:
    stage = cluster_stage
    stage.url = cluster.urls
    stage.worker().ready()
    for number, node in enumerate(cluster.nodes):
        url = f"redis://127.0.0.1:{node.port}"
        started = stage.command("start", "chain", "--id", f"c{number}", "--wait", "--redis", url)
        assert started.returncode == 0, started.stderr
        shown = stage.command("show", f"c{number}", "--json", "--redis", cluster.urls)
        assert json.loads(shown.stdout)["status"] == "completed"
    listed = stage.command("list", "--json", "--redis", cluster.url)
    assert {line["id"] for line in json.loads(listed.stdout)["executions"]} == {"c0", "c1", "c2"}
    numbered = stage.command("list", "--redis", f"{cluster.url}/1")
    assert numbered.returncode == 2
    assert "leave the number at the end of the URL out" in numbered.stderr
    alone = Server(processes, tmp_path / "alone").start()
    for command in (["list"], ["start", "chain"]):
        wrong = stage.command(*command, "--redis", f"redis://127.0.0.1:{alone.port},127.0.0.1:{alone.port}")
        assert wrong.returncode == 2
        assert "is no Redis Cluster, though its URL names several hosts" in wrong.stderr


@pytest.mark.pain(14)
def test_slots_that_move_under_load_lose_and_double_nothing(cluster_stage: Stage, cluster: Cluster) -> None:
    stage = cluster_stage
    worker = stage.worker().ready()
    stage.open("go")
    with stage.client() as client:
        ids: list[str] = []
        numbers = itertools.count()

        def load(count: int) -> None:
            for _ in range(count):
                ids.append(client.start("holding", {"gate": "go"}, f"move-{next(numbers)}"))

        load(30)
        moved = {partition_of(each, 64) for each in ids}
        for partition in sorted(moved)[:12]:
            cluster.move(KEYS.lease(partition))
            load(6)
        ended_once(stage, client, worker, ids)
        assert client.dead_letters() == []
        assert len(client.list("completed", limit=1000)) == len(ids)
    assert "Traceback" not in worker.err
    assert worker.metric("stepwell_mirror_divergence_total") == 0


@pytest.mark.parametrize("gone", ["killed", "hung"])
def test_a_master_that_is_away_holds_up_its_own_executions_only(
    cluster_stage: Stage, cluster: Cluster, gone: str
) -> None:
    stage = cluster_stage
    worker = stage.worker().ready()
    lost, others = not_home(cluster)
    with stage.client() as client:
        held_up = ids_on(cluster, lost, "there", 5)
        for each in held_up:
            client.start("holding", {"gate": "go"}, each)
            stage.ran(each, "held")
        if gone == "killed":
            lost.kill()
        else:
            lost.signal(signal.SIGSTOP)
        stage.open("go")
        fine = [each for other in others for each in ids_on(cluster, other, "here", 10)]
        for each in fine:
            client.start("holding", {"gate": "go"}, each)
        ended_once(stage, client, worker, fine)
        seen = client.overview()
        assert seen.executions["completed"].count == len(fine), "what can be asked is told"
        assert seen.unread
        assert stage.journal.runs(held_up[0], "quick") == [], "what is not recorded is not built upon"
        [counted] = ids_on(cluster, others[0], "counted", 1)
        client.start("holding", {"gate": "later"}, counted)
        stage.eventually(lambda: worker.metric("stepwell_executions", status="running") == 1, "the others are counted")
        if gone == "killed":
            cluster.restart(lost)
        else:
            lost.signal(signal.SIGCONT)
            cluster.wait_until_whole()
        stage.open("later")
        ended_once(stage, client, worker, [*held_up, counted])
        assert client.dead_letters() == []
    assert "Traceback" not in worker.err
    assert worker.process.poll() is None


def test_masters_that_are_restarted_one_after_another_cost_no_attempt(cluster_stage: Stage, cluster: Cluster) -> None:
    stage = cluster_stage
    stage.url = cluster.urls
    worker = stage.worker().ready()
    with stage.client() as client:
        ids = [client.start("holding", {"gate": "go"}, f"hold-{number}") for number in range(30)]
        for each in ids:
            stage.ran(each, "held")
        bumpy = [client.start("bumpy", {"failures": 3}, f"bump-{number}") for number in range(12)]
        for node in cluster.nodes:
            node.kill()
            cluster.restart(node)
        stage.open("go")
        ended_once(stage, client, worker, ids)
        assert [client.result(each, timeout=HANG_SECONDS) for each in bumpy] == [4] * 12
        assert client.dead_letters() == []
    assert "Traceback" not in worker.err


def test_both_clients_wait_for_results_while_the_node_of_their_url_is_away(
    cluster_stage: Stage, cluster: Cluster
) -> None:
    stage = cluster_stage
    home = cluster.owner(KEYS.meta)
    other = next(node for node in cluster.nodes if node not in (home, cluster.owner(KEYS.workers)))
    worker = stage.worker().ready()

    async def wait_for(each: str) -> object:
        async with AsyncClient(f"redis://127.0.0.1:{other.port}") as client:
            await client.start("holding", {"gate": "go"}, each)
            waiting = asyncio.create_task(client.result(each, timeout=HANG_SECONDS))
            await asyncio.to_thread(stage.ran, each, "held")
            await asyncio.to_thread(other.kill)
            await asyncio.to_thread(stage.open, "go")
            return await waiting

    ids = ids_on(cluster, home, "wait", 2)
    with Client(f"redis://127.0.0.1:{other.port}") as blocking:
        blocking.start("holding", {"gate": "go"}, ids[0])
        stage.ran(ids[0], "held")
        assert asyncio.run(wait_for(ids[1])) == [worker.shard, "after!"]
        assert blocking.result(ids[0], timeout=HANG_SECONDS) == [worker.shard, "after!"]
