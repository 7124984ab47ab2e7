"""Writes that count when they are on the disk or on replicas: real workers, clients and servers."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import redis
from system.support.servers import Server
from system.support.stage import HANG_SECONDS, Stage


def refusal(stage: Stage, *options: str) -> str:
    worker = stage.worker(*options)
    assert worker.finish() == 2
    assert "Traceback" not in worker.err
    return worker.err


def waits(admin: redis.Redis, command: str) -> int:
    found: dict[str, Any] = admin.info("commandstats").get(f"cmdstat_{command}", {})
    return int(found.get("calls", 0))


def test_a_promise_that_the_server_can_not_keep_is_refused_with_what_to_change(
    served: Stage, admin: redis.Redis
) -> None:
    assert "0 replicas connected, not 2" in refusal(served, "--durability", "replicated", "--replicas", "2")
    assert "relaxed, aof, replicated" in refusal(served, "--durability", "always")
    admin.config_set("appendonly", "no")
    assert "CONFIG SET appendonly yes" in refusal(served, "--durability", "aof")


def test_with_aof_workers_and_clients_wait_for_the_disk(served: Stage, admin: redis.Redis) -> None:
    admin.config_set("appendfsync", "always")
    worker = served.worker("--durability", "aof").ready()
    served.eventually(lambda: worker.metric("stepwell_guarantee_info", durability="aof") > 0, "the metric says so")
    with served.client() as client:  # is told nothing: it follows the namespace
        before = waits(admin, "waitaof")
        client.start("holding", {"gate": "go"}, "e1")
        served.ran("e1", "held")
        assert waits(admin, "waitaof") >= before + 2, "for the start, and for the step's declaration"
        served.open("go")
        assert client.result("e1", timeout=HANG_SECONDS)[1] == "after!"
    assert "write with durability aof, not relaxed" in refusal(served, "--durability", "relaxed")
    assert worker.metric("stepwell_not_safe_total") == 0


def test_with_replicas_nothing_is_built_upon_what_they_do_not_have(
    served: Stage, server: Server, admin: redis.Redis, processes: Any, tmp_path: Path, eventually: Any
) -> None:
    admin.config_set("repl-diskless-sync-delay", "0")
    replica = Server(processes, tmp_path / "replica").start()

    def follow() -> None:
        with replica.admin() as its:
            its.execute_command("REPLICAOF", "127.0.0.1", str(server.port))
        in_step = lambda: admin.info("replication").get("slave0", {}).get("state") == "online"  # noqa: E731
        eventually(in_step, "the replica is in step")

    follow()
    worker = served.worker("--durability", "replicated").ready()
    with served.client() as client:
        client.start("holding", {"gate": "go"}, "e1")
        served.ran("e1", "held")
        replica.kill()
        served.open("go")
        served.eventually(lambda: worker.metric("stepwell_not_safe_total") > 0, "the worker notices")
        assert served.journal.runs(path="quick") == []
        # The server, too, may be held up while it waits.
        errors = worker.metric("stepwell_redis_errors_total")
        assert errors <= worker.metric("stepwell_redis_errors_total", kind="timeout"), "the connection is well"
        replica.start()
        follow()
        assert client.result("e1", timeout=HANG_SECONDS) == [worker.shard, "after!"]
    assert [served.journal.attempts("e1", path) for path in ("held", "quick")] == [[1], [1]]
