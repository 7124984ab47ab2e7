"""Redis servers that can't serve: each is one clear sentence that names what to do, and never a password."""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import socket
import subprocess
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import redis
from system.support.processes import HANG_SECONDS
from system.support.programs import Program, wait

from benchmarks.ports import free_port
from stepwell import Client
from stepwell.core.advice import NO_WORKER
from stepwell.core.attention import Notice, notices
from stepwell.core.errors import StoreError, StoreUnfit, StoreUnreachable
from stepwell.store.check import ServerFacts, check_server, require_fit
from stepwell.store.connect import async_connect, connect, explain
from stepwell.store.embedded import server_binary

PASSWORD = "s3cret-pw"


class Servers:
    """Starts servers on sockets in one directory and knows when they answer."""

    def __init__(self, processes: Any, folder: Path) -> None:
        self._processes = processes
        self._folder = folder

    def start(self, name: str, *settings: str) -> str:
        """Start a server with extra settings; the URL of its socket, without credentials."""
        path = self._folder / name
        base = ["--port", "0", "--save", "", "--dir", str(self._folder), "--unixsocket", str(path)]
        log = self._folder / f"{name}.log"
        program = Program([server_binary(), *base, *settings], log, self._processes.start)

        def answers() -> bool:
            refusals = (redis.AuthenticationError, redis.ResponseError)
            with connect(f"unix://{path}") as client, contextlib.suppress(*refusals):
                client.ping()
            return True

        wait(answers, f"{name} answers", program)
        return f"unix://{path}"


@pytest.fixture
def servers(sockets: Path, processes: Any) -> Servers:
    return Servers(processes, sockets)


def glance(url: str) -> list[Notice]:
    with Client(url) as client:
        return notices(client.overview())


def checked(url: str) -> ServerFacts:
    with connect(url, socket_timeout=HANG_SECONDS) as client:
        facts = check_server(client)
    require_fit(facts)
    return facts


def refused(url: str, kind: type[StoreError]) -> str:
    """The one sentence that a person sees."""
    with pytest.raises(kind) as caught:
        checked(url)
    assert type(caught.value) is kind
    sentence = str(caught.value)
    assert "\n" not in sentence
    assert PASSWORD not in sentence
    return sentence


def test_nothing_listens_there() -> None:
    sentence = refused(f"redis://:{PASSWORD}@127.0.0.1:{free_port()}", StoreUnreachable)
    assert "refused the connection: start it, or correct the address" in sentence


def test_no_such_socket(tmp_path: Path) -> None:
    assert "no such socket" in refused(f"unix://{tmp_path}/none.sock", StoreUnreachable)


def test_a_host_that_does_not_exist() -> None:
    assert "host name can't be resolved" in refused("redis://no-such-host.invalid", StoreUnreachable)


def test_a_missing_and_a_wrong_password(servers: Servers) -> None:
    url = servers.start("auth", "--requirepass", PASSWORD)
    assert "wants a password: give it in the URL" in refused(url, StoreUnreachable)
    assert "refused the user name or password" in refused(f"{url}?password=not-{PASSWORD}", StoreUnreachable)
    assert "refused the user name or password" in refused(
        url.replace("unix://", f"unix://nobody:{PASSWORD}@"), StoreUnreachable
    )
    assert checked(f"{url}?password={PASSWORD}").name == "valkey"


def test_a_password_where_none_is_set(servers: Servers) -> None:
    assert "leave it out" in refused(f"{servers.start('open')}?password={PASSWORD}", StoreUnreachable)


def test_the_async_client_fails_with_the_same_sentences(servers: Servers) -> None:
    url = servers.start("auth", "--requirepass", PASSWORD)

    async def sentence(url: str) -> str:
        async with async_connect(url) as client:
            with pytest.raises(redis.RedisError) as caught:
                await client.ping()
        return str(explain(caught.value, url))

    wrong = asyncio.run(sentence(f"{url}?password=not-{PASSWORD}"))
    assert "refused the user name or password" in wrong
    assert PASSWORD not in wrong
    assert "refused the connection" in asyncio.run(sentence(f"redis://:{PASSWORD}@127.0.0.1:{free_port()}"))
    assert "no such socket" in asyncio.run(sentence("unix:///no/such.sock"))


def test_a_user_with_too_few_rights(servers: Servers) -> None:
    url = servers.start("acl")
    with connect(url) as admin:
        admin.execute_command("ACL", "SETUSER", "app", "on", f">{PASSWORD}", "~*", "+@all", "-set")
        admin.execute_command("ACL", "SETUSER", "shy", "on", f">{PASSWORD}", "~*", "+@all", "-@admin", "-info", "-ping")
    assert glance(url.replace("unix://", f"unix://shy:{PASSWORD}@")) == [], "it need not say how full it is"
    limited = refused(url.replace("unix://", f"unix://app:{PASSWORD}@"), StoreUnfit)
    assert "'set' command): extend its rights with ACL SETUSER" in limited
    facts = checked(url.replace("unix://", f"unix://shy:{PASSWORD}@"))
    assert facts.version is None
    assert len(facts.warnings) == 3


def test_a_database_number_that_does_not_exist(servers: Servers) -> None:
    url = servers.start("small", "--databases", "2")
    assert "no database with that number" in refused(f"{url}?db=7", StoreUnreachable)


def test_a_replica_names_its_primary(servers: Servers, eventually: Any) -> None:
    port = free_port()
    servers.start("primary", "--port", str(port), "--bind", "127.0.0.1", "--repl-diskless-sync-delay", "0")
    url = servers.start("replica", "--replicaof", "127.0.0.1", str(port))
    with connect(url) as replica:
        eventually(lambda: replica.info("replication")["master_link_status"] == "up", "the replica is in step")
    assert f"read-only replica: give the URL of its primary (127.0.0.1:{port})" in refused(url, StoreUnfit)


def test_a_replica_that_lost_its_primary(servers: Servers) -> None:
    settings = ("--replicaof", "127.0.0.1", str(free_port()), "--replica-serve-stale-data", "no")
    assert "replica" in refused(servers.start("orphan", *settings), StoreUnfit)


def test_a_full_server_works_again_when_it_has_memory(servers: Servers) -> None:
    url = servers.start("full", "--maxmemory-policy", "noeviction")
    with connect(url) as client, Client(url) as caller:
        assert caller.why_idle() == NO_WORKER
        for number in range(20):
            client.set(f"filler{number}", b"x" * 100_000)
        client.config_set("maxmemory", "2mb")  # less than is used by far: what it frees by and by makes no room
        assert "is full (its maxmemory is used up): raise maxmemory" in refused(url, StoreUnfit)
        script = client.register_script("return redis.call('SET', KEYS[1], '1')")
        with pytest.raises(redis.RedisError) as in_script:
            script(keys=["more"])
        assert "is full" in str(explain(in_script.value, url))
        assert any("Redis is full" in notice.text for notice in glance(url))
        assert caller.why_idle().startswith("no worker can be seen, as Redis is full (")
        client.config_set("maxmemory", "100mb")
    assert checked(url).maxmemory == 100 << 20


def test_an_evicting_server_is_told_the_command_that_ends_it(servers: Servers) -> None:
    url = servers.start("evicting", "--maxmemory", "10mb", "--maxmemory-policy", "allkeys-lru")
    assert "run CONFIG SET maxmemory-policy noeviction" in refused(url, StoreUnfit)
    with connect(url) as client:
        client.config_set("maxmemory-policy", "noeviction")
    assert checked(url).maxmemory_policy == "noeviction"


def test_a_server_that_wants_replicas_it_does_not_have(servers: Servers) -> None:
    assert "min-replicas-to-write" in refused(servers.start("lonely", "--min-replicas-to-write", "1"), StoreUnfit)


def test_a_cluster_node_that_serves_nothing(servers: Servers) -> None:
    port = str(free_port())
    settings = ("--port", port, "--bind", "127.0.0.1", "--cluster-enabled", "yes", "--cluster-port", str(free_port()))
    assert "has no masters that serve slots" in refused(servers.start("node", *settings), StoreUnfit)


def test_something_else_listens_there(processes: Any) -> None:
    web = (
        "import http.server, sys; s = http.server.HTTPServer(('127.0.0.1', 0), http.server.BaseHTTPRequestHandler); "
        "print(s.server_port, flush=True); s.serve_forever()"
    )
    process = processes.python(web, stderr=subprocess.DEVNULL)
    port = process.stdout.readline().strip()
    assert "does not speak the Redis protocol" in refused(f"redis://:{PASSWORD}@127.0.0.1:{port}", StoreUnreachable)


def test_tls_against_a_server_without_it(servers: Servers) -> None:
    port = free_port()
    servers.start("plain", "--port", str(port), "--bind", "127.0.0.1")
    url = f"rediss://:{PASSWORD}@127.0.0.1:{port}"
    with connect(url, socket_timeout=0.5, connect_timeout=0.5) as client, pytest.raises(StoreUnreachable) as caught:
        check_server(client)
    assert "redis://" in str(caught.value).partition("rediss://")[2]
    assert PASSWORD not in str(caught.value)


def test_what_takes_connections_and_says_nothing_is_asked_once_by_who_never_met_it() -> None:
    with socket.socket() as silent:
        silent.bind(("127.0.0.1", 0))
        silent.listen(16)
        silent.settimeout(0)
        url = f"redis://:{PASSWORD}@127.0.0.1:{silent.getsockname()[1]}"
        with (
            Client(url, connect=partial(connect, socket_timeout=0.2)) as client,
            pytest.raises(StoreUnreachable, match=r"did not answer .*is it Redis") as caught,
        ):
            client.list()
        assert PASSWORD not in str(caught.value)
        silent.accept()[0].close()
        with pytest.raises(BlockingIOError):
            silent.accept()


def test_a_stopped_server_is_given_up_at_the_timeout(servers: Servers) -> None:
    url = servers.start("stopped")
    with connect(url) as client:
        pid = client.info("server")["process_id"]
        os.kill(pid, signal.SIGSTOP)
        with (
            connect(url, socket_timeout=0.2) as hurried,
            pytest.raises(StoreUnreachable, match="did not answer in time"),
        ):
            check_server(hurried)
        os.kill(pid, signal.SIGCONT)
        assert checked(url)
