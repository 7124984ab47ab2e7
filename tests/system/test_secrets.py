"""A password in the URL is seen by Redis alone."""

from __future__ import annotations

import signal
from pathlib import Path
from typing import Any
from urllib.parse import quote

import pytest
import redis
from system.support.servers import Server
from system.support.stage import Stage

from stepwell import Client
from stepwell.core.errors import StoreError

PASSWORD = "pa55/w#rd@ü"  # must be percent-encoded: each form of it is looked for
FORMS = (PASSWORD, quote(PASSWORD, safe=""), "pa55", "w#rd", "w%23rd")


@pytest.fixture
def server(processes: Any, tmp_path: Path) -> Server:
    made = Server(processes, tmp_path / "server", PASSWORD)
    made.url = f"redis://:{quote(PASSWORD, safe='')}@127.0.0.1:{made.port}/0"
    return made.start()


def contents(admin: redis.Redis) -> str:
    """Every key with all that it holds."""
    readers = {
        "string": lambda key: admin.get(key),
        "hash": lambda key: admin.hgetall(key),
        "stream": lambda key: admin.xrange(key),
        "zset": lambda key: admin.zrange(key, 0, -1),
        "set": lambda key: admin.smembers(key),
        "list": lambda key: admin.lrange(key, 0, -1),
    }
    return "\n".join(f"{key!r} {readers[admin.type(key).decode()](key)!r}" for key in admin.scan_iter("*"))


@pytest.mark.pain(45)
def test_the_password_is_in_no_output_row_metric_or_log(served: Stage, server: Server) -> None:
    worker = served.worker("--verbose").ready()
    said: list[str] = []

    def run(*arguments: str) -> None:
        done = served.command(*arguments, *served.where)
        said.extend([done.stdout, done.stderr])

    run("start", "chain", "--id", "c1", "--wait")
    run("start", "failing_later", "--id", "f1", "--wait", "--verbose")
    run("show", "f1")
    run("show", "f1", "--json")
    run("list", "--json")
    run("top", "--once")
    run("top", "--once", "--json")
    run("cancel", "c1", "--verbose")
    run("dead")
    with served.client() as client:
        said.append(repr(client))
        with server.admin() as admin:
            served.eventually(lambda: client.workers(), "the worker has a heartbeat")
            kept = contents(admin)
        said += [kept, *(worker.page(page)[1] for page in ("metrics", "healthz", "readyz"))]
        server.kill()
        worker.wait_for("can't be renewed")
        run("top", "--once", "--verbose")
        run("list", "--verbose")
        run("list", "--json")
        with Client(served.url) as late, pytest.raises(StoreError) as caught:
            late.describe("c1")
        said += [str(caught.value), repr(caught.value), repr(caught.value.__cause__)]
    worker.signal(signal.SIGTERM)
    worker.finish()
    said += [worker.out, worker.err]

    assert "c1" in kept  # the search looks at what it should
    assert "failing_later" in kept
    assert f"127.0.0.1:{server.port}" in worker.out
    for text in said:
        for form in FORMS:
            assert form not in text, f"{form} in: {text}"
