"""Acknowledgements that wait for the disk or for replicas, on real servers."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any
from unittest.mock import ANY

import pytest

from stepwell import AsyncClient, Client
from stepwell.core.errors import StoreUnreachable
from stepwell.store.check import check_server
from stepwell.store.durability import Durability
from stepwell.store.link import Link, NotDurable
from stepwell.store.requests import Committed, Created, Exists, Load

pytestmark = pytest.mark.real_server


def durable(store, mode, replicas=0):
    return Link(store.connect(), store.keys, store.scripts, Durability(mode, replicas))


def changes(store) -> int:
    return store.client.info("persistence")["rdb_changes_since_last_save"]


def rewrites(store) -> bool:
    told = store.client.info("persistence")
    return bool(told["aof_rewrite_in_progress"] or told["aof_rewrite_scheduled"])


@pytest.fixture
def aof(store):
    """A store whose server keeps an append-only file, written to the disk at each write."""
    facts = check_server(store.client)
    if facts.name == "redis" and (facts.version or ()) < (7, 2):
        pytest.skip(f"{facts.title} has no WAITAOF")
    store.client.config_set("appendfsync", "always")
    store.client.config_set("appendonly", "yes")
    while rewrites(store):  # until that is over the server calls nothing written
        continue
    yield store
    store.client.config_set("appendonly", "no")


def test_with_aof_a_batch_is_acknowledged_when_it_is_on_the_disk(aof):
    link = durable(aof, "aof")
    assert link.execute([aof.create()]) == [Created()]
    request = aof.commit()
    assert link.execute([request, Load("e1")])[0] == Committed(seq=ANY)
    assert link.execute([request]) == [Committed(dup=True, seq=ANY)]


def test_with_aof_a_server_without_append_only_file_acknowledges_nothing(store):
    with pytest.raises(NotDurable):
        durable(store, "aof").execute([store.create()])
    assert store.row()["status"] == b"queued", "it was executed all the same"


def test_replicas_that_are_not_there_acknowledge_nothing(store, monkeypatch):
    monkeypatch.setattr("stepwell.store.durability.WAIT_MS", 1)
    link = durable(store, "replicated", 1)
    with pytest.raises(NotDurable, match="0 of 1 replicas"):
        link.execute([store.create()])
    with pytest.raises(NotDurable):
        link.execute([store.commit()])
    assert store.link.execute([store.commit()]) == [Committed(dup=True, seq=ANY)]
    assert link.call([["GET", "x"]]) == [None], "the connection serves on"


def test_what_is_repeated_is_written_again_so_that_a_wait_covers_it(store):
    store.execute(store.create())
    before = changes(store)
    assert isinstance(store.execute(store.create()), Exists)
    assert changes(store) == before + 1, "the same start"
    store.execute(store.create(input_hash="other"))
    assert changes(store) == before + 1, "somebody else's"
    commit, restore = store.commit(), store.restore()
    store.execute(commit)
    before = changes(store)
    assert store.execute(commit).dup
    assert changes(store) == before + 1
    store.execute(restore)
    before = changes(store)
    assert store.execute(restore).dup
    assert changes(store) == before + 1


def url_of(store):
    path = store.client.get_connection_kwargs().get("path")
    if path is None:
        pytest.skip("a cluster counts commands on each master")
    return f"unix://{path}"


@pytest.fixture
def waits(store, monkeypatch) -> Callable[[], list[str]]:
    """What clients have waited for, in short: the server's own count of commands."""
    monkeypatch.setattr("stepwell.store.durability.WAIT_MS", 1)

    def calls() -> list[str]:
        stats: dict[str, Any] = store.client.info("commandstats")
        return [name for name in ("wait", "waitaof") if f"cmdstat_{name}" in stats]

    store.client.config_resetstat()
    return calls


@pytest.mark.parametrize("said", ["the namespace", "the caller", "the environment"])
def test_clients_wait_as_the_namespaces_workers_do_or_as_they_are_told(store, waits, monkeypatch, said):
    store.client.hset("t:meta", mapping={"format": 1, "partitions": 4})
    if said == "the namespace":
        store.client.hset("t:meta", "durability", "replicated:1")
    if said == "the environment":
        monkeypatch.setenv("STEPWELL_DURABILITY", "replicated:1")
    options = {"namespace": "t", "durability": "replicated" if said == "the caller" else None}
    with Client(url_of(store), **options) as client:
        with pytest.raises(StoreUnreachable, match="0 of 1 replicas"):
            client.start("checkout", {}, "e1", unchecked=True)
        assert waits() == ["wait"]
        store.client.config_resetstat()
        assert client.describe("e1")["status"] == "queued", "it was executed all the same"
        assert waits() == [], "reading waits for nobody"

    async def start() -> None:
        async with AsyncClient(url_of(store), **options) as other:
            with pytest.raises(StoreUnreachable, match="0 of 1 replicas"):
                await other.signal("e1", "word", timeout=60)

    asyncio.run(start())
    assert waits() == ["wait"]


def test_clients_of_a_relaxed_namespace_wait_for_nothing(store, waits):
    with Client(url_of(store), namespace="t") as client:
        client.start("checkout", {}, "e1", unchecked=True)
    assert waits() == []
