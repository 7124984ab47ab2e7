"""What fills a store for a benchmark looks as if its owners had written it."""

from __future__ import annotations

import fakeredis
import pytest
from redis.backoff import NoBackoff
from redis.retry import Retry
from sim.harness import World

from benchmarks import filled
from benchmarks.filled import Finished, finished, restoring
from benchmarks.listing import filters
from stepwell import FatalError, flow, step
from stepwell.core.attributes import Attributes
from stepwell.core.row import parse
from stepwell.store.keys import Keys
from stepwell.store.link import Link
from stepwell.store.replies import Committed
from stepwell.store.scripts import Scripts


@step
async def noop(n: int, fails: bool) -> dict[str, int]:
    if fails:
        raise FatalError("no")
    return {"turn": n}


@flow
async def checkout(n: int, fails: bool) -> dict[str, int]:
    return await noop(n, fails)


def really_written(monkeypatch: pytest.MonkeyPatch, given: Attributes, fails: bool) -> tuple[set[str], set[str]]:
    """Fields and lists of an execution that a shard has brought to its end; kinds of them, without ids and values."""
    monkeypatch.setattr(World, "attributes_of", lambda self, execution_id: given)
    world = World([checkout])
    world.shard()
    world.start(checkout, "e1", n=7, fails=fails)
    world.run(lambda: world.ended("e1"))
    world.settle()
    try:
        return set(world.row("e1")), lists_of(world.client, "e1")
    finally:
        world.close()


def lists_of(client: fakeredis.FakeRedis, execution_id: str) -> set[str]:
    keys = [key.decode() for key in client.scan_iter() if client.type(key) == b"zset"]
    return {key.partition("}:")[2] for key in keys if client.zscore(key, execution_id) is not None}


@pytest.mark.parametrize("error", ["", "FatalError"])
def test_what_is_filled_in_has_the_shape_of_what_a_shard_writes(monkeypatch: pytest.MonkeyPatch, error: str) -> None:
    of = Finished(7, "checkout", "pro", error)
    given = of.meta.attributes
    assert given is not None
    fields, lists = really_written(monkeypatch, given, bool(error))
    client = fakeredis.FakeRedis(server=fakeredis.FakeServer(version=(6, 2)), retry=Retry(NoBackoff(), 0))
    keys = Keys()
    for part in keys.parts:
        client.set(part.lease, filled.LEASE)
    (reply,) = Link(client, keys, Scripts()).execute([restoring(keys, of)])
    assert isinstance(reply, Committed)
    row = {name.decode(): value for name, value in client.hgetall(keys.row(of.execution_id)).items()}
    assert fields == set(row)
    assert lists_of(client, of.execution_id) == lists
    assert parse(of.execution_id, row, filled.SECRET).status == ("error" if error else "completed")


def test_every_filter_of_the_benchmark_finds_some() -> None:
    made = list(finished(100_000))
    assert len({each.execution_id for each in made}) == len(made)
    assert {each.flow for each in made} == {"checkout", "ship", "refund", "audit"}
    shares = {name: sum(each.error == name for each in made) / len(made) for name in filled.ENDS}
    assert shares == {name: pytest.approx(share / 1000, rel=0.3) for name, share in filled.ENDS.items()}
    for name, wanted in filters(len(made)).items():
        assert any(_fits(each, wanted) for each in made), name


def _fits(of: Finished, wanted: object) -> bool:
    assert isinstance(wanted, dict)
    attributes = of.meta.attributes or {}
    return (
        wanted.get("flow") in (None, of.flow)
        and wanted.get("error") in (None, of.error)
        and wanted.get("status") in (None, "error" if of.error else "completed")
        and all(attributes[name] == value for name, value in wanted.get("attributes", {}).items())
    )
