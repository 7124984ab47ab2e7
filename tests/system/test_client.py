"""Clients and the embedded server: it is started, revived and stopped by those who use it."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

from system.support.processes import kill
from system.support.written import written

from stepwell.client import AsyncClient, Client

USE = """
import sys
from stepwell.client import Client
client = Client(data_dir=sys.argv[1])
print(client.start("checkout", {"n": 1}, "e1"))
"""


def kill_server(data_dir: Path) -> None:
    kill(json.loads((data_dir / "server.json").read_text())["pid"])


def test_a_client_whose_embedded_server_died_starts_it_again_with_its_data(
    tmp_path: Path, eventually: Callable[..., Any]
) -> None:
    with Client(data_dir=tmp_path) as client:
        client.start("checkout", {"n": 1}, "before")
        eventually(lambda: written(client._wire._client), "the server has written what it acknowledged")
        kill_server(tmp_path)
        client.start("checkout", {"n": 1}, "after")
        assert {line["id"] for line in client.list()} == {"before", "after"}


def test_a_wait_goes_on_over_the_death_of_the_embedded_server(tmp_path: Path, eventually: Callable[..., Any]) -> None:
    async def use() -> None:
        async with AsyncClient(data_dir=tmp_path) as client:
            await client.start("checkout", {"n": 1}, "e1")
            wait = asyncio.create_task(client.result("e1"))
            await asyncio.to_thread(subscribed)
            await asyncio.to_thread(keep)
            kill_server(tmp_path)
            await asyncio.to_thread(subscribed)
            await asyncio.to_thread(end)
            assert await wait == 7

    def subscribed() -> None:
        with Client(data_dir=tmp_path) as other:
            redis = other._wire._client
            while not _channels(redis):
                other.workers()

    def keep() -> None:
        with Client(data_dir=tmp_path) as other:
            eventually(lambda: written(other._wire._client), "the server has written what it acknowledged")

    def end() -> None:
        with Client(data_dir=tmp_path) as other:
            (row,) = other._wire._client.keys("*:x:e1")
            other._wire._client.hset(row, mapping={"status": "completed", "result": b"7"})
            for channel in _channels(other._wire._client):
                other._wire._client.publish(channel, "completed")

    asyncio.run(use())


def _channels(redis: Any) -> list[bytes]:
    return list(redis.pubsub_channels("*:ended:e1"))


def test_a_program_that_forgets_to_close_its_client_leaves_no_server(tmp_path: Path, processes: Any) -> None:
    for _ in range(2):
        process = processes.python(USE, str(tmp_path / "data"))
        out, err = process.communicate()
        assert (out, err) == ("e1\n", "")
        assert not (tmp_path / "data" / "server.json").exists(), "the last user stopped it"
