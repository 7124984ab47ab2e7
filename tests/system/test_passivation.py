"""What rests leaves the memory of a real worker, and comes back."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

from stepwell import Client, Worker, flow, sleep, step, wait_for


@step
async def note(word: object) -> object:
    return word


@flow
async def listens() -> object:
    return await note(await wait_for("word"))


@flow
async def naps(seconds: float) -> object:
    await sleep(seconds)
    return await note("awake")


def test_what_rests_leaves_memory_and_comes_back_when_it_is_addressed_or_due(
    tmp_path: Path, eventually: Callable[..., Any]
) -> None:
    ids = [f"e{n}" for n in range(10)]
    with Client(data_dir=tmp_path) as client:
        for each in ids:
            client.start("listens", {}, each)
        for each in ("n1", "n2"):
            client.start("naps", {"seconds": 7}, each)
        with Worker([listens, naps], data=tmp_path, max_in_memory=1) as worker:
            eventually(lambda: len(client.list(status="waiting")) == 12, "all wait")
            eventually(lambda: worker.shard.executions <= 1, "all but one left memory")
            assert client.signal("e0", "word", "go").applied
            assert client.result("e0", timeout=60) == "go"
            assert client.result("n1", timeout=60) == "awake"
        with Worker([listens, naps], data=tmp_path) as worker:
            eventually(lambda: worker.shard.ready, "it owns partitions")
            for each in ids[1:]:
                client.signal(each, "word", each)
            assert [client.result(each, timeout=60) for each in ids[1:]] == ids[1:]
            assert client.result("n2", timeout=60) == "awake"
            eventually(lambda: worker.shard.executions == 0, "nobody is left in memory")
        assert client.dead_letters() == []
