"""What fills a store for a benchmark looks as if its owners had written it."""

from __future__ import annotations

import fakeredis
import pytest
from redis.backoff import NoBackoff
from redis.retry import Retry as Retrying
from sim.harness import World

from benchmarks import filled
from benchmarks.filled import Finished, checkpoint, finished, restoring
from benchmarks.listing import BACKOFFS, filters
from benchmarks.unfinished import Unfinished, unfinished
from stepwell import FatalError, Retry, flow, step, wait_for
from stepwell.core.attributes import Attributes
from stepwell.core.checkpoint import Checkpoint
from stepwell.core.row import parse
from stepwell.flow.definitions import FlowLike
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


@step(retry=Retry(base=3600, cap=3600))
async def charge(n: int) -> None:
    raise ConnectionError("no")


@flow(name="ship")
async def waits(n: int, fails: bool) -> None:
    if fails:
        await charge(n)
    await wait_for("approval")


def really_written(
    monkeypatch: pytest.MonkeyPatch, code: FlowLike, given: Attributes, fails: bool
) -> tuple[set[str], set[str]]:
    """Fields and lists of an execution that a shard has brought as far as it comes; kinds of them, without ids and
    values."""
    monkeypatch.setattr(World, "attributes_of", lambda self, execution_id: given)
    world = World([code])
    world.shard()
    world.start(code, "e1", n=7, fails=fails)
    world.run(lambda: world.ended("e1") or world.row("e1").get("status") == b"waiting")
    world.settle()
    try:
        return set(world.row("e1")), lists_of(world.client, "e1")
    finally:
        world.close()


def lists_of(client: fakeredis.FakeRedis, execution_id: str) -> set[str]:
    keys = [key.decode() for key in client.scan_iter() if client.type(key) == b"zset"]
    return {key.partition("}:")[2] for key in keys if client.zscore(key, execution_id) is not None}


def filled_in(cp: Checkpoint) -> tuple[set[str], set[str], Checkpoint]:
    """Fields and lists of that, and what a shard would read."""
    client = fakeredis.FakeRedis(server=fakeredis.FakeServer(version=(6, 2)), retry=Retrying(NoBackoff(), 0))
    keys = Keys()
    for part in keys.parts:
        client.set(part.lease, filled.LEASE)
    (reply,) = Link(client, keys, Scripts()).execute([restoring(keys, cp)])
    assert isinstance(reply, Committed)
    row = {name.decode(): value for name, value in client.hgetall(keys.row(cp.execution_id)).items()}
    return set(row), lists_of(client, cp.execution_id), parse(cp.execution_id, row, filled.SECRET)


@pytest.mark.parametrize("error", ["", "FatalError"])
def test_what_is_filled_in_has_the_shape_of_what_a_shard_writes(monkeypatch: pytest.MonkeyPatch, error: str) -> None:
    of = Finished(7, "checkout", "pro", error)
    assert of.meta.attributes is not None
    fields, lists, read = filled_in(checkpoint(of))
    assert really_written(monkeypatch, checkout, of.meta.attributes, bool(error)) == (fields, lists)
    assert read.status == ("error" if error else "completed")


@pytest.mark.parametrize("error", ["", "ConnectionError"])
def test_what_waits_has_the_shape_of_what_a_shard_writes(monkeypatch: pytest.MonkeyPatch, error: str) -> None:
    cp = Unfinished(7, "ship", "pro", error).checkpoint
    assert cp.meta.attributes is not None
    fields, lists, read = filled_in(cp)
    assert really_written(monkeypatch, waits, cp.meta.attributes, bool(error)) == (fields, lists)
    assert any("backoff" in name for name in lists) == bool(error)
    assert (read.status, read.open) == ("waiting", cp.open)


def test_every_filter_of_the_benchmark_finds_some() -> None:
    made = list(finished(100_000))
    assert len({each.execution_id for each in made}) == len(made)
    assert {each.flow for each in made} == {"checkout", "ship", "refund", "audit"}
    shares = {name: sum(each.error == name for each in made) / len(made) for name in filled.ENDS}
    assert shares == {name: pytest.approx(share / 1000, rel=0.3) for name, share in filled.ENDS.items()}
    for name, wanted in filters(len(made)).items():
        assert any(_fits(each, wanted) for each in made), name


def test_three_of_ten_that_wait_back_off_after_each_of_the_errors_that_are_looked_for() -> None:
    made = list(unfinished(100_000))
    assert sum(bool(each.error) for each in made) / len(made) == pytest.approx(0.3, rel=0.02)
    assert {wanted["error"] for wanted in BACKOFFS.values() if wanted} <= {each.error for each in made}


def _fits(of: Finished, wanted: object) -> bool:
    assert isinstance(wanted, dict)
    attributes = of.meta.attributes or {}
    return (
        wanted.get("flow") in (None, of.flow)
        and wanted.get("error") in (None, of.error)
        and wanted.get("status") in (None, "error" if of.error else "completed")
        and all(attributes[name] == value for name, value in wanted.get("attributes", {}).items())
    )
