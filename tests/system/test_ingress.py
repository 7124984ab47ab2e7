"""The ingress with real workers and servers: entries of any program have their effect once, whoever dies meanwhile."""

from __future__ import annotations

import json
import signal
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import redis
from system.support.servers import Server
from system.support.stage import HANG_SECONDS, Stage

KEY = "stepwell:ingress"
GROUP = "stepwell"


@pytest.fixture
def served(processes: Any, tmp_path: Path, eventually: Callable[..., Any]) -> Iterator[tuple[Stage, redis.Redis]]:
    """A stage on a server of its own, and a connection to it."""
    server = Server(processes, tmp_path / "server").start()
    folder = tmp_path / "stage"
    folder.mkdir()
    made = Stage(processes, folder, server.url)
    with server.admin() as admin:
        yield made, admin
    made.end()


def add(admin: redis.Redis, **fields: Any) -> str:
    return admin.xadd(KEY, {k: v if isinstance(v, str | bytes) else json.dumps(v) for k, v in fields.items()}).decode()


def statuses(stage: Stage) -> dict[str, int]:
    found: dict[str, int] = {}
    with stage.client() as client:
        for each in client.list(limit=10_000):
            found[each["status"]] = found.get(each["status"], 0) + 1
    return found


def nothing_left(admin: redis.Redis) -> bool:
    return admin.xlen(KEY) == 0 and admin.xpending(KEY, GROUP)["pending"] == 0


def test_what_was_written_before_any_worker_came_is_started(
    served: tuple[Stage, redis.Redis], eventually: Callable[..., Any]
) -> None:
    stage, admin = served
    derived = add(admin, type="start", flow="holding", input={"gate": "g"})
    add(admin, type="start", flow="holding", id="mine", input={"gate": "g"})
    stage.open("g")
    worker = stage.worker().ready()
    with stage.client() as client:
        assert client_result(client, eventually, "mine")[1] == "after!"
        assert client_result(client, eventually, f"in-{derived}")[1] == "after!"
    eventually(lambda: nothing_left(admin), "the ingress is empty")
    worker.counts("stepwell_ingress_total", 2, verb="start")
    worker.signal(signal.SIGTERM)
    assert worker.finish() == 0
    assert admin.xinfo_consumers(KEY, GROUP) == [], "who leaves takes its consumer along"


def client_result(client: Any, eventually: Callable[..., Any], execution_id: str) -> Any:
    def found() -> bool:
        return any(each["id"] == execution_id for each in client.list())

    eventually(found, f"{execution_id} is there")
    return client.result(execution_id, timeout=HANG_SECONDS)


@pytest.mark.pain(13, 29)
def test_workers_killed_while_they_take_in_lose_and_double_nothing(
    served: tuple[Stage, redis.Redis], eventually: Callable[..., Any]
) -> None:
    stage, admin = served
    stage.open("g")
    first, second = stage.worker(), stage.worker()
    first.ready(), second.ready()
    total = 300
    for number in range(total):
        add(admin, type="start", flow="holding", id=f"e{number}", input={"gate": "g"})
        if number == total // 3:
            first.kill()
            third = stage.worker()
        if number == 2 * total // 3:
            third.kill()
    eventually(lambda: nothing_left(admin), "the ingress is empty")
    eventually(lambda: statuses(stage) == {"completed": total}, "all have completed")
    with stage.client() as client:
        assert client.dead_letters() == []
    keys = {(run.execution, run.path): run.key for run in stage.journal.runs()}
    assert all(keys[run.execution, run.path] == run.key for run in stage.journal.runs())
    assert len(keys) == 2 * total


@pytest.mark.pain(31)
def test_garbage_and_a_foreign_key_harm_no_worker(
    served: tuple[Stage, redis.Redis], eventually: Callable[..., Any]
) -> None:
    stage, admin = served
    stage.open("g")
    admin.set(KEY, "not a stream")
    worker = stage.worker().ready()
    worker.wait_for("the ingress can't be read")
    with stage.client() as client:
        client.start("holding", {"gate": "g"}, "direct")
        assert client.result("direct", timeout=HANG_SECONDS)[1] == "after!"
    admin.delete(KEY)
    admin.xadd(KEY, {b"\xff\xfe": b"\x00" * 2_000_000})
    admin.xadd(KEY, {"type": "start", "flow": "holding", "input": "{"})
    add(admin, type="start", flow="holding", id="after", input={"gate": "g"})
    with stage.client() as client:
        assert client_result(client, eventually, "after")[1] == "after!"
        eventually(lambda: len(client.dead_letters()) == 2, "both are dead letters")
        assert {letter["kind"] for letter in client.dead_letters(partition="ingress")} == {"malformed"}
    assert worker.process.poll() is None


def test_dead_letters_are_listed_shown_replayed_and_dropped(
    served: tuple[Stage, redis.Redis], eventually: Callable[..., Any]
) -> None:
    stage, admin = served
    stage.open("g")
    stage.worker().ready()
    add(admin, type="signal", execution="late", name="approval", payload={"by": "me"})
    add(admin, type="start", flow="holding", input={"gaet": "g"})
    with stage.client() as client:
        eventually(lambda: len(client.dead_letters()) == 2, "both are dead letters")

    def dead(*arguments: str) -> Any:
        done = stage.command("dead", *arguments, "--json", "--redis", str(stage.url))
        assert done.returncode == 0, done.stdout + done.stderr
        return json.loads(done.stdout)

    [misfit] = dead("list", "--partition", "ingress")
    assert "lacks gate" in misfit["reason"]
    assert dead("show", misfit["id"]) == misfit
    assert dead("drop", misfit["id"]) == {"dropped": [misfit["id"]]}
    [command] = dead("list")
    assert (command["kind"], command["fields"]["data"]["payload"]) == ("no such execution", {"by": "me"})
    add(admin, type="start", flow="journey", id="late", input={"word": "a"})
    with stage.client() as client:
        eventually(lambda: any(each["id"] == "late" for each in client.list()), "it is there")
        assert dead("replay", "--all", "--reason", "no such execution", "--yes") == {
            "replayed": [command["id"]],
            "refused": [],
        }
        assert client.result("late", timeout=HANG_SECONDS)["approval"] == {"by": "me"}
    assert dead("list") == []
    gone = stage.command("dead", "replay", command["id"], "--redis", str(stage.url))
    assert (gone.returncode, "no dead letter" in gone.stderr) == (2, True)
