"""The events streams on every server: what the scripts add is what is read, by blocking and asyncio clients."""

from __future__ import annotations

import asyncio
import re
import threading

import fakeredis
import pytest
import redis.asyncio
from redis.asyncio.retry import Retry as AsyncRetry
from redis.backoff import NoBackoff

from stepwell.client import AsyncClient, Client
from stepwell.core import events
from stepwell.core.records import encode
from stepwell.store.events import KEPT, PAGE, Gap, Seen
from stepwell.store.scripts import Scripts

URL = "redis://example.invalid"


def step(execution_id: str, n: int) -> events.Event:
    return events.CommandDone(execution_id, "checkout", f"c{n}", True, "", 1, "x")


def commands(found: list[Seen | Gap]) -> list[tuple[str, str]]:
    return [(each.event.execution_id, each.event.command) for each in found if isinstance(each, Seen)]


@pytest.fixture
def client(store):
    with Client(URL, namespace="t", partitions=4, connect=lambda url: store.connect()) as made:
        yield made


def commit(store, execution_id: str, *told: events.Event, rev: int = 1) -> None:
    """As an owner writes."""
    request = store.commit(execution_id, expected_rev=rev, rev=rev + 1, commit_id=f"c{rev}", event=encode(told))
    store.execute(request)


def add(store, execution_id: str, n: int) -> None:
    store.client.xadd(store.keys.events(store.keys.partition_of(execution_id)), {"e": encode([step(execution_id, n)])})


def test_what_commits_tell_is_read_in_order_over_all_partitions(store, client):
    store.hold()
    ids = [f"e{n}" for n in range(12)]
    for execution_id in ids:
        store.execute(store.create(execution_id))
        commit(store, execution_id, step(execution_id, 1), step(execution_id, 2))
    found = list(client.events(follow=False))
    assert [each.at for each in found] == sorted(each.at for each in found)
    assert sorted(commands(found)) == sorted((each, f"c{n}") for each in ids for n in (1, 2))
    assert commands(list(client.events("e3", follow=False))) == [("e3", "c1"), ("e3", "c2")]


def test_who_follows_is_told_what_comes(store, client):
    store.hold()
    store.execute(store.create("e1"))
    following = client.events(since=0)
    found: list[Seen | Gap] = []
    began = threading.Event()

    def follow() -> None:
        began.set()
        found.extend(next(following) for _ in range(2))

    add(store, "e1", 0)
    first = next(client.events("e1"))
    assert isinstance(first, Seen)
    # `since=0` looks at the streams' ends when it begins: wait until it has, by what it does not show.
    thread = threading.Thread(target=follow, daemon=True)
    thread.start()
    began.wait(10)
    nth = 0
    while thread.is_alive():
        nth += 1
        add(store, "e1", nth)
        thread.join(0.05)
    said = [int(command[1:]) for _, command in commands(found)]
    assert said == [said[0], said[0] + 1]
    assert said[0] > 0


def test_more_than_a_page_is_read_whole(store, client):
    for n in range(2 * PAGE + 10):
        add(store, "e1", n)
    assert commands(list(client.events(follow=False))) == [("e1", f"c{n}") for n in range(2 * PAGE + 10)]


def test_a_stream_that_was_cut_says_so(store, client):
    key = store.keys.events(store.keys.partition_of("e1"))
    pipe = store.client.pipeline(transaction=False) if not hasattr(store.client, "masters") else None
    for n in range(KEPT + 300):
        (pipe or store.client).xadd(key, {"e": encode([step("e1", n)])})
    if pipe is not None:
        pipe.execute()
    store.client.execute_command("XTRIM", key, "MAXLEN", str(KEPT))
    gap, first = list(client.events(follow=False))[:2]
    assert isinstance(gap, Gap)
    assert isinstance(first, Seen)
    assert (gap.partition, gap.before) == (store.keys.partition_of("e1"), first.entry)


def test_the_scripts_keep_as_many_as_is_told():
    sources = Scripts().sources
    for script in ("commit", "create"):
        assert re.findall(r"'MAXLEN', '~', '(\d+)'", sources[script]) == [str(KEPT)]


@pytest.mark.one_server
def test_the_asyncio_client_follows_as_well(store):
    kwargs = store.client.connection_pool.connection_kwargs

    def connect(url: str) -> redis.asyncio.Redis:
        retry = AsyncRetry(NoBackoff(), 0)
        if isinstance(store.client, fakeredis.FakeRedis):
            return fakeredis.FakeAsyncRedis(server=kwargs["server"], retry=retry)
        return redis.asyncio.Redis(unix_socket_path=kwargs["path"], retry=retry)

    async def follow() -> list[Seen | Gap]:
        async with AsyncClient(URL, namespace="t", partitions=4, connect=connect) as made:
            return [each async for each in made.events(follow=False)]

    for n in range(5):
        add(store, f"e{n}", n)
    assert sorted(commands(asyncio.run(follow()))) == [(f"e{n}", f"c{n}") for n in range(5)]
