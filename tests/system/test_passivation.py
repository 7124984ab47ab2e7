"""What rests leaves the memory of a real worker, and comes back."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

from system.support.processes import HANG_SECONDS

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
            eventually(
                lambda: len(client.list("waiting")) + len(client.list("completed")) == 12, "all wait, or have napped"
            )
            eventually(lambda: worker.shard.executions <= 1, "all but one left memory")
            assert client.signal("e0", "word", "go", timeout=HANG_SECONDS).applied
            assert client.result("e0", timeout=HANG_SECONDS) == "go"
            assert client.result("n1", timeout=HANG_SECONDS) == "awake"
        with Worker([listens, naps], data=tmp_path) as worker:
            eventually(lambda: worker.shard.ready, "it owns partitions")
            for each in ids[1:]:
                client.signal(each, "word", each, timeout=HANG_SECONDS)
            assert [client.result(each, timeout=HANG_SECONDS) for each in ids[1:]] == ids[1:]
            assert client.result("n2", timeout=HANG_SECONDS) == "awake"
            eventually(lambda: worker.shard.executions == 0, "nobody is left in memory")
        assert client.dead_letters() == []
