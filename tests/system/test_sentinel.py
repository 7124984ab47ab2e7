"""Sentinels fail over while flows run: every connection follows, and no execution is lost."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Iterable
from pathlib import Path

import pytest
from system.support.sentinels import Watched
from system.support.stage import HANG_SECONDS, Stage, WorkerProcess

from stepwell import Client
from stepwell.client import AsyncClient

PASSWORD = "pri%mary@:/pw"
SENTINEL_PASSWORD = "s3ntinel"


def all_end(stage: Stage, client: Client, worker: WorkerProcess, ids: Iterable[str]) -> None:
    """All end as they should, under one key for each step."""
    for each in ids:
        assert client.result(each, timeout=HANG_SECONDS) == [worker.shard, "after!"]
        for path in ("held", "quick"):
            assert len({run.key for run in stage.journal.runs(each, path)}) == 1
    assert client.dead_letters() == []


@pytest.mark.pain(11)
def test_a_failover_that_was_asked_for_costs_no_attempt(sentinel_stage: Stage, watched: Watched) -> None:
    stage = sentinel_stage
    worker = stage.worker().ready()
    with stage.client() as client:
        ids = [client.start("holding", {"gate": "go"}, f"e{number}") for number in range(12)]
        for each in ids:
            stage.ran(each, "held")
        former = watched.primary
        for _ in range(2):  # there and back again
            watched.fail_over()
        assert watched.primary is former
        ids += [client.start("holding", {"gate": "go"}, f"later-{number}") for number in range(6)]
        stage.open("go")
        all_end(stage, client, worker, ids)
        steps = [step for each in ids for step in client.describe(each)["steps"]]
        assert {(len(step["attempts"]), step["interruptions"]) for step in steps} == {(1, 0)}
    assert "Traceback" not in worker.err


@pytest.mark.pain(11)
def test_clients_wait_while_sentinels_still_name_a_server_that_has_become_a_replica(watched: Watched) -> None:
    pauses = []

    def pause(seconds: float) -> None:
        pauses.append(seconds)
        with watched.primary.admin() as admin:
            admin.execute_command("REPLICAOF", "NO", "ONE")

    async def async_pause(seconds: float) -> None:
        pause(seconds)

    def demote() -> None:
        with watched.primary.admin() as admin:
            admin.execute_command("REPLICAOF", "127.0.0.1", "1")

    async def start() -> str:
        async with AsyncClient(watched.url) as client:
            client._wire._sleep = async_pause
            await client.start("holding", {"gate": "go"}, "before-async")
            demote()
            return await client.start("holding", {"gate": "go"}, "async")

    with Client(watched.url) as client:
        client._wire._sleep = pause
        client.start("holding", {"gate": "go"}, "before")
        demote()
        assert client.start("holding", {"gate": "go"}, "blocking") == "blocking"
    assert asyncio.run(start()) == "async"
    assert pauses == [0.05, 0.05]


@pytest.mark.pain(11)
def test_a_primary_that_dies_is_replaced_under_load_and_nothing_is_lost(
    sentinel_stage: Stage, watched: Watched
) -> None:
    stage = sentinel_stage
    worker = stage.worker().ready()

    async def wait_for(each: str) -> object:
        async with AsyncClient(stage.url) as client:
            return await client.result(each, timeout=HANG_SECONDS)

    with stage.client() as client:
        ids = [client.start("holding", {"gate": "go"}, f"e{number}") for number in range(30)]
        for each in ids:
            stage.ran(each, "held")
        bumpy = [client.start("bumpy", {"failures": 3}, f"b{number}") for number in range(10)]
        with watched.primary.admin() as admin:
            assert admin.wait(1, 60_000) == 1, "the replica knows of all of them"
        stage.open("go")
        former = watched.lose_primary()
        former.start(watched.primary.port)
        assert asyncio.run(wait_for(ids[0])) == [worker.shard, "after!"]
        all_end(stage, client, worker, ids)
        assert [client.result(each, timeout=HANG_SECONDS) for each in bumpy] == [4] * 10
        assert {line["id"] for line in client.list("completed", limit=1000)} == {*ids, *bumpy}
    assert "Traceback" not in worker.err
    assert worker.process.poll() is None


def test_sentinels_and_servers_may_have_passwords_of_their_own(stage: Stage, tmp_path: Path) -> None:
    folder = tmp_path / "guarded"
    folder.mkdir()
    guarded = Watched(folder, password="pw", sentinel_password=SENTINEL_PASSWORD).start()
    try:
        stage.url = guarded.url
        worker = stage.worker().ready()
        started = stage.command("start", "chain", "--wait", "--redis", guarded.url)
        assert (started.returncode, started.stdout.strip().splitlines()[-1:]) == (0, ["3"]), started.stderr
        wrong = stage.command("list", "--redis", guarded.url.replace(SENTINEL_PASSWORD, "no"))
        assert wrong.returncode == 2
        assert "Sentinel" in wrong.stderr
        assert SENTINEL_PASSWORD not in worker.out + worker.err + wrong.stderr
    finally:
        guarded.stop()


def test_a_name_that_sentinels_do_not_know_and_sentinels_that_are_away_are_told(
    sentinel_stage: Stage, watched: Watched
) -> None:
    stage = sentinel_stage
    unknown = stage.command("list", "--json", "--redis", watched.url.replace("/main", "/other"))
    assert unknown.returncode == 2
    assert "know no primary named 'other': correct the name" in json.loads(unknown.stdout)["error"]["message"]
    straight = stage.command(
        "list", "--redis", f"redis://127.0.0.1:{watched.sentinel().get_connection_kwargs()['port']}"
    )
    assert straight.returncode == 2
    watched.stop()
    away = stage.command("list", "--redis", watched.url)
    assert away.returncode == 2
    assert "has no Sentinel that answers" in away.stderr
