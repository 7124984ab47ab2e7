"""`stepwell doctor` on real servers, good ones and misconfigured ones, and the same as a worker's metric."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from system.support.servers import OldServer, Server
from system.support.stage import Stage

from stepwell.store.namespace import open_namespace


def doctor(stage: Stage, *arguments: str) -> tuple[int, dict[str, Any]]:
    done = stage.command("doctor", "--json", *arguments)
    assert done.returncode in (0, 1), done.stdout + done.stderr
    return done.returncode, json.loads(done.stdout)


def texts(told: dict[str, Any], level: str) -> list[str]:
    return [each["text"] for each in told["findings"] if each["level"] == level]


def test_an_embedded_server_with_a_worker_keeps_its_promises(stage: Stage) -> None:
    worker = stage.worker().ready()
    code, told = doctor(stage, "--data", str(stage.data))
    assert (code, texts(told, "broken"), texts(told, "warning")) == (0, [], [])
    assert told["guarantee"]["aof"] == "everysec"
    assert any("the last second or two" in text for text in texts(told, "ok"))
    stage.eventually(lambda: worker.metric("stepwell_guarantee_info", kept="yes", aof="everysec") == 1, "the metric")
    shown = stage.command("doctor", "--data", str(stage.data))
    assert (shown.returncode, shown.stdout.splitlines()[-1]) == (0, "the promises can be kept")


@pytest.mark.pain(15)
def test_a_server_that_may_evict_or_has_no_replicas_is_found_out(stage: Stage, server: Server) -> None:
    with server.admin() as admin:
        assert doctor(stage, "--redis", server.url)[0] == 0
        admin.config_set("maxmemory-policy", "allkeys-lru")
        assert any(
            "as soon as a maxmemory is set" in text
            for text in texts(doctor(stage, "--redis", server.url)[1], "warning")
        )
        admin.config_set("maxmemory", "200mb")
        code, told = doctor(stage, "--redis", server.url)
        assert (code, told["ok"], told["guarantee"]["eviction"]) == (1, False, "allkeys-lru")
        assert any("may evict" in text for text in texts(told, "broken"))
        admin.config_set("maxmemory-policy", "noeviction")
        code, told = doctor(stage, "--redis", server.url, "--durability", "replicated:2")
        assert (code, ["has 0 replicas" in text for text in texts(told, "broken")]) == (1, [True])
        admin.config_set("min-replicas-to-write", "1")
        code, told = doctor(stage, "--redis", server.url)
        assert code == 1
        assert any("min-replicas-to-write" in text for text in texts(told, "broken"))


def test_a_durability_without_an_append_only_file_is_found_out(stage: Stage, server: Server) -> None:
    with server.admin() as admin:
        admin.config_set("appendonly", "no")
        code, told = doctor(stage, "--redis", server.url)
        assert code == 0, "relaxed promises no more than the server does"
        assert any("since the last snapshot" in text for text in texts(told, "ok"))
        assert any("append-only file is off" in text for text in texts(told, "warning"))
        assert doctor(stage, "--redis", server.url, "--durability", "aof")[0] == 1


def test_a_read_only_replica_and_an_old_server_are_found_out(
    stage: Stage, server: Server, processes: Any, tmp_path: Path, eventually: Callable[..., Any]
) -> None:
    replica = Server(processes, tmp_path / "replica").start()
    with replica.admin() as admin:
        admin.execute_command("REPLICAOF", "127.0.0.1", server.port)
        eventually(lambda: admin.info("replication")["master_link_status"] == "up", "the replica is in step")
    with server.admin() as admin:
        eventually(lambda: admin.info("replication").get("slave0", {}).get("state") == "online", "its primary sees it")
    code, told = doctor(stage, "--redis", replica.url)
    assert code == 1
    assert any("read-only replica" in text for text in texts(told, "broken"))
    code, told = doctor(stage, "--redis", server.url)
    assert (code, told["guarantee"]["replicas"]) == (0, "1")
    assert any(text.startswith("failover to a replica") for text in texts(told, "ok"))
    with OldServer() as old:
        code, told = doctor(stage, "--redis", old.url)
        assert code == 1
        assert any("too old" in text for text in texts(told, "broken"))


def test_a_namespace_of_another_size_is_found_out(stage: Stage, server: Server) -> None:
    with server.admin() as admin:
        open_namespace(admin, "stepwell", 8, new_secret=lambda: b"s" * 32)
    assert doctor(stage, "--redis", server.url, "--partitions", "8")[0] == 0
    code, told = doctor(stage, "--redis", server.url, "--partitions", "64")
    assert (code, ["64 are expected" in text for text in texts(told, "broken")]) == (1, [True])


def test_a_server_that_can_not_be_asked_is_said_in_one_sentence(stage: Stage) -> None:
    done = stage.command("doctor", "--redis", "redis://:secret@127.0.0.1:1/0")
    assert done.returncode == 2
    assert "refused the connection" in done.stderr
    assert "secret" not in done.stderr
