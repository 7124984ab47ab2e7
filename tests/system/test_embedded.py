"""The embedded server under real processes: races, kills and last users."""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import redis
from system.support.processes import ends, kill, lives
from system.support.written import written

from stepwell.core.errors import StoreUnfit, StoreUnreachable
from stepwell.store.check import check_server, require_fit
from stepwell.store.connect import connect
from stepwell.store.embedded import EmbeddedServer, Waiting, server_binary

WRITTEN = "the server has written what it acknowledged"
# A user of the data directory argv[1]: says "using URL PID", then leaves when its stdin ends and says what came of it.
USER = """
import sys
from pathlib import Path
from stepwell.store.connect import connect
from stepwell.store.embedded import EmbeddedServer

for _ in range(int(sys.argv[2])):
    with EmbeddedServer.use(Path(sys.argv[1])) as server:
        with connect(server.url) as client:
            pid = client.info("server")["process_id"]
            client.incr("uses")
        print("using", server.url, pid, flush=True)
        if sys.argv[2] == "1":
            sys.stdin.read()
        print("left", server.leave(), flush=True)
"""


class User:
    """One process that uses the embedded server until it is let go."""

    def __init__(self, process: subprocess.Popen[str]) -> None:
        self.process = process

    def server(self) -> int:
        """Wait until it has a server that answers; the server's process id."""
        word, self.url, pid = self.line().split()
        assert word == "using"
        return int(pid)

    def line(self) -> str:
        assert self.process.stdout
        assert self.process.stderr
        line = self.process.stdout.readline()
        assert line, self.process.stderr.read()
        return line

    def leave(self) -> bool:
        """Let it leave; whether it was the one that stopped the server."""
        assert self.process.stdin
        self.process.stdin.close()
        word, stopped = self.line().split()
        assert (word, self.process.wait()) == ("left", 0)
        return stopped == "True"


@pytest.fixture
def data(tmp_path: Path) -> Iterator[Path]:
    path = tmp_path / "data"
    yield path
    for name in path.parent.glob("*/server.json"):
        facts = json.loads(name.read_text())
        with contextlib.suppress(ProcessLookupError, TypeError):
            os.kill(facts["pid"], signal.SIGKILL)
        shutil.rmtree(Path(facts["socket"]).parent, ignore_errors=True)


@pytest.fixture
def user(processes: Any, data: Path) -> Callable[[], User]:
    return lambda: User(processes.start([sys.executable, "-c", USER, data, "1"], stdin=subprocess.PIPE))


def servers(data: Path) -> int:
    """How many processes were ever started on this data: each says so once in the log."""
    return (data / "server.log").read_text().count("Ready to accept connections")


@pytest.mark.parametrize("round_number", range(10))
def test_two_commands_that_start_at_once_share_one_server(
    user: Callable[[], User], data: Path, round_number: int
) -> None:
    first, second = user(), user()
    pids = {first.server(), second.server()}
    assert len(pids) == 1
    assert first.url == second.url
    assert servers(data) == 1
    leaver, last = (first, second) if round_number % 2 else (second, first)
    assert leaver.leave() is False
    assert lives(*pids)
    assert last.leave() is True
    ends(*pids)


def test_many_that_come_and_go_at_once_always_find_a_working_server(processes: Any, data: Path) -> None:
    each = 8
    crowd = [processes.start([sys.executable, "-c", USER, data, str(each)]) for _ in range(5)]
    for process in crowd:
        output, errors = process.communicate()
        assert (process.returncode, errors, output.count("using")) == (0, "", each)
    with EmbeddedServer.use(data) as server, connect(server.url) as client:
        assert client.get("uses") == b"%d" % (each * len(crowd))


def test_the_last_user_stops_the_server_and_the_data_survive(user: Callable[[], User], data: Path) -> None:
    only = user()
    pid = only.server()
    socket = Path(json.loads((data / "server.json").read_text())["socket"])
    assert only.leave() is True
    ends(pid)
    assert not socket.parent.exists()
    assert not (data / "server.json").exists()
    with EmbeddedServer.use(data) as server, connect(server.url) as client:
        assert client.get("uses") == b"1"


def test_a_killed_server_is_started_again_with_its_data_at_the_same_address(
    data: Path, eventually: Callable[..., Any]
) -> None:
    with EmbeddedServer.use(data) as server, connect(server.url) as client:
        client.set("kept", "yes")
        before, pid = server.url, client.info("server")["process_id"]
        eventually(lambda: written(client), WRITTEN)
        kill(pid)
        assert server.revive() == before
        assert client.get("kept") == b"yes"
        assert client.info("server")["process_id"] != pid


def test_the_next_user_starts_a_killed_server_again(
    user: Callable[[], User], data: Path, eventually: Callable[..., Any]
) -> None:
    first = user()
    pid = first.server()
    with connect(first.url) as client:
        eventually(lambda: written(client), WRITTEN)
    kill(pid)
    second = user()
    assert second.server() != pid
    with connect(second.url) as client:
        assert client.get("uses") == b"2"
    assert first.leave() is False
    assert second.leave() is True


def test_a_killed_user_leaves_a_server_that_the_next_one_adopts_and_stops(user: Callable[[], User], data: Path) -> None:
    first = user()
    pid = first.server()
    os.killpg(first.process.pid, signal.SIGKILL)
    first.process.wait()
    assert lives(pid)
    second = user()
    assert second.server() == pid
    assert second.leave() is True
    ends(pid)


def test_the_server_is_durable_private_and_fit(data: Path) -> None:
    with EmbeddedServer.use(data) as server, connect(server.url) as client:
        facts = check_server(client)
        require_fit(facts)
        assert facts.warnings == ()
        assert (facts.aof_enabled, facts.appendfsync, facts.maxmemory_policy) == (True, "everysec", "noeviction")
        assert next(iter(client.config_get("save").values())) in ("", b"")
        assert int(client.info("server")["tcp_port"]) == 0
        socket = Path(json.loads((data / "server.json").read_text())["socket"])
        assert socket.parent.stat().st_mode & 0o077 == 0
        assert len(os.fsencode(socket)) <= 100
        open_to_others = [path for path in data.rglob("*.aof") if path.stat().st_mode & 0o077]
        assert open_to_others == []
        assert (data / ".gitignore").read_text() == "*\n"
        os.kill(client.info("server")["process_id"], 0)


def test_odd_directory_names_work(tmp_path: Path, data: Path) -> None:
    odd = tmp_path / ("da ta'\"?#%é" + "x" * 120)
    with EmbeddedServer.use(odd) as server, connect(server.url) as client:
        client.set("kept", "yes")
    with EmbeddedServer.use(odd) as server, connect(server.url) as client:
        assert client.get("kept") == b"yes"


def test_a_copied_directory_gets_a_server_of_its_own(tmp_path: Path, data: Path) -> None:
    with EmbeddedServer.use(data) as server, connect(server.url) as client:
        client.set("where", "original")
        shutil.copytree(data, tmp_path / "copy")
        with EmbeddedServer.use(tmp_path / "copy") as other, connect(other.url) as stranger:
            assert other.url != server.url
            stranger.set("where", "copy")
        assert client.get("where") == b"original"


def test_a_moved_directory_keeps_its_server(tmp_path: Path, data: Path) -> None:
    with EmbeddedServer.use(data) as server:
        data.rename(tmp_path / "moved")
        with EmbeddedServer.use(tmp_path / "moved") as other:
            assert other.url == server.url
        (tmp_path / "moved").rename(data)


def test_leaving_stops_the_own_server_even_if_the_directory_was_removed_and_made_again(data: Path) -> None:
    first = EmbeddedServer.use(data)
    with connect(first.url) as client:
        pid = client.info("server")["process_id"]
    shutil.rmtree(data)
    with EmbeddedServer.use(data) as second, connect(second.url) as client:
        assert second.url != first.url
        assert first.leave() is True
        assert client.ping()
    ends(pid)


def test_a_removed_lock_file_does_not_let_a_second_server_open_the_data(data: Path) -> None:
    with EmbeddedServer.use(data):
        (data / "server.lock").unlink()
        with pytest.raises(StoreUnfit, match=r"its server\.lock was removed: end it with `kill [0-9]+`"):
            EmbeddedServer.use(data)


def test_a_server_that_dies_at_its_start_shows_its_last_words(data: Path) -> None:
    with EmbeddedServer.use(data) as server, connect(server.url) as client:
        client.set("kept", "yes")
    [increment] = data.glob("appendonlydir/*.incr.aof")
    increment.write_bytes(b"*garbage\r\n" + increment.read_bytes())
    with pytest.raises(StoreUnreachable, match=r"(?s)ended with code 1 at its start; .*Bad file format"):
        EmbeddedServer.use(data)


@pytest.mark.parametrize(("deaths", "works"), [(2, True), (3, False)])
def test_a_server_killed_while_it_starts_is_started_again_within_limits(
    tmp_path: Path, data: Path, deaths: int, works: bool
) -> None:
    mortal = tmp_path / "mortal"
    mortal.write_text(
        f'#!/bin/sh\necho "one life" >> {tmp_path}/lives\n'
        f'[ $(wc -l < {tmp_path}/lives) -gt {deaths} ] || kill -9 $$\nexec {server_binary()} "$@"\n'
    )
    mortal.chmod(0o700)
    if works:
        with EmbeddedServer.use(data, binary=mortal) as server, connect(server.url) as client:
            assert client.ping()
    else:
        with pytest.raises(StoreUnreachable, match="was killed by signal 9 at its start"):
            EmbeddedServer.use(data, binary=mortal)
    assert (tmp_path / "lives").read_text().count("one life") == 3


def test_loading_is_waited_for_with_progress(data: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with EmbeddedServer.use(data) as server, connect(server.url) as client:
        client.set("kept", "yes")
    answers = iter([redis.exceptions.BusyLoadingError("Redis is loading"), redis.exceptions.BusyLoadingError("again")])
    ping, seen = redis.Redis.ping, list[str]()

    def loading_twice(client: redis.Redis) -> Any:
        pong = ping(client)
        if error := next(answers, None):
            raise error
        return pong

    monkeypatch.setattr(redis.Redis, "ping", loading_twice)
    with EmbeddedServer.use(data, waiting=Waiting(progress=seen.append)) as server:
        assert connect(server.url).get("kept") == b"yes"
    assert seen == [f"the embedded server in {data} loads its data: 0 %"]


def test_a_server_of_another_make_serves_from_path(data: Path) -> None:
    found = os.environ.get("STEPWELL_TEST_REDIS_SERVER") or shutil.which("redis-server")
    if not found:
        pytest.skip("no redis-server: `make test-system` installs one")
    with EmbeddedServer.use(data, binary=Path(found)) as server, connect(server.url) as client:
        client.set("kept", "yes")
        require_fit(check_server(client))
    with EmbeddedServer.use(data, binary=Path(found)) as server, connect(server.url) as client:
        assert client.get("kept") == b"yes"


def test_leaving_twice_is_harmless_and_what_was_left_can_not_be_revived(data: Path) -> None:
    server = EmbeddedServer.use(data)
    assert server.leave() is True
    assert server.leave() is False
    with pytest.raises(Exception, match="was left already"):
        server.revive()


def test_two_users_in_one_process_count_as_two(data: Path) -> None:
    first, second = EmbeddedServer.use(data), EmbeddedServer.use(data)
    assert first.leave() is False
    with connect(second.url) as client:
        assert client.ping()
    assert second.leave() is True
