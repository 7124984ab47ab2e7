"""TLS, passwords and users with odd characters, on a real server: what works, and what each mistake is called."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from urllib.parse import quote

import pytest
import redis
from system.support.certificates import Authority
from system.support.cluster import Cluster, binary
from system.support.programs import Program, on_path, wait
from system.support.sentinels import Tls, Watched
from system.support.stage import HANG_SECONDS, Stage

from benchmarks.ports import free_port
from stepwell.client import AsyncClient
from stepwell.core.errors import StoreUnreachable
from stepwell.store.connect import connect, explain

USER = "us:er@/?#%é"
PASSWORD = "p:w@/?#%&=+é"
LOGIN = f"{quote(USER, safe='')}:{quote(PASSWORD, safe='')}"


@pytest.fixture(autouse=True)
def _tools() -> None:
    """Who makes certificates, and a server that speaks TLS: the embedded one does not."""
    on_path("openssl", "openssl")
    if not os.environ.get("STEPWELL_TEST_REDIS_SERVER"):
        on_path("redis-server", "redis-server")


class Guarded:
    """A server that speaks TLS on one port, plainly on none, and lets in one user."""

    def __init__(self, folder: Path, processes: Any, *, asks_for_certificates: bool) -> None:
        folder.mkdir()
        self.authority = Authority(folder)
        self.other = Authority(folder, "stranger")
        self.port = free_port()
        certificate, key = self.authority.issue("server", "DNS:localhost", "IP:127.0.0.1")
        self.client_certificate, self.client_key = self.authority.issue("client")
        settings = {
            "port": "0",
            "tls-port": str(self.port),
            "bind": "127.0.0.1",
            "dir": str(folder),
            "save": "",
            "appendonly": "yes",
            "tls-cert-file": str(certificate),
            "tls-key-file": str(key),
            "tls-ca-cert-file": str(self.authority.ca),
            "tls-auth-clients": "yes" if asks_for_certificates else "no",
        }
        words = [word for name, value in settings.items() for word in (f"--{name}", value)]
        program = Program([binary(), *words], folder / "log", processes.start)
        with self.admin() as admin:
            wait(admin.ping, f"the server on port {self.port} answers", program)
            admin.acl_setuser(
                USER, enabled=True, passwords=[f"+{PASSWORD}"], keys=["*"], channels=["*"], commands=["+@all"]
            )
            admin.execute_command("ACL", "SETUSER", "default", "off")

    def admin(self) -> redis.Redis:
        """A connection as the default user, before that is shut out."""
        return redis.Redis(
            port=self.port,
            ssl=True,
            ssl_ca_certs=str(self.authority.ca),
            ssl_certfile=str(self.client_certificate),
            ssl_keyfile=str(self.client_key),
        )

    def url(self, login: str = LOGIN, host: str = "127.0.0.1", **options: object) -> str:
        """Its URL with these options, and the authority among them."""
        said = {"ssl_ca_certs": self.authority.ca, **options}
        query = "&".join(f"{name}={value}" for name, value in said.items())
        return f"rediss://{login}@{host}:{self.port}?{query}"

    @property
    def own_certificate(self) -> dict[str, object]:
        """The options with which a client shows its own certificate."""
        return {"ssl_certfile": self.client_certificate, "ssl_keyfile": self.client_key}


@pytest.fixture(params=[False, True], ids=["", "client certificates"])
def guarded(request: pytest.FixtureRequest, tmp_path: Path, processes: Any) -> Guarded:
    return Guarded(tmp_path / "guarded", processes, asks_for_certificates=request.param)


def refusal(url: str) -> str:
    """What a person is told who connects with this URL."""
    with connect(url, socket_timeout=20, connect_timeout=20) as client:
        with pytest.raises((redis.RedisError, OSError)) as refused:
            client.ping()
        found = explain(refused.value, url)
    assert isinstance(found, StoreUnreachable)
    assert PASSWORD not in str(found)
    assert quote(PASSWORD, safe="") not in str(found)
    return str(found)


def test_workers_commands_and_both_clients_speak_tls_as_a_user_with_an_odd_name(stage: Stage, guarded: Guarded) -> None:
    stage.url = guarded.url(**guarded.own_certificate)
    worker = stage.worker().ready()
    started = stage.command("start", "chain", "--wait", "--redis", stage.url)
    assert (started.returncode, started.stdout.split()[-1:]) == (0, ["3"]), started.stderr

    async def chain() -> object:
        async with AsyncClient(guarded.url(host="localhost", **guarded.own_certificate)) as client:
            return await client.result(await client.start("chain", {"words": 2}))

    assert asyncio.run(chain()) == 2
    with stage.client() as client:
        assert client.result(client.start("chain", {"words": 4})) == 4
    for secret in (PASSWORD, quote(PASSWORD, safe=""), USER):
        assert secret not in worker.out + worker.err + started.stdout + started.stderr


@pytest.mark.parametrize("guarded", [False], ids=[""], indirect=True)
def test_each_mistake_with_tls_or_the_user_is_called_by_its_name(guarded: Guarded, tmp_path: Path) -> None:
    assert "certificate that is not trusted" in refusal(guarded.url(ssl_ca_certs=guarded.other.ca))
    assert "certificate that is not trusted" in refusal(f"rediss://{LOGIN}@127.0.0.1:{guarded.port}")
    assert "redis" in refusal(f"redis://{LOGIN}@127.0.0.1:{guarded.port}")
    assert "refused the user name or password" in refusal(guarded.url(f"{quote(USER, safe='')}:wrong"))
    assert "refused the user name or password" in refusal(guarded.url(f"other:{quote(PASSWORD, safe='')}"))
    with connect(guarded.url(ssl_cert_reqs="none", ssl_check_hostname="no", ssl_ca_certs=guarded.other.ca)) as client:
        assert client.ping()


@pytest.mark.parametrize("guarded", [True], ids=["client certificates"], indirect=True)
def test_a_server_that_wants_certificates_of_its_clients_says_so(guarded: Guarded) -> None:
    assert "ssl_certfile" in refusal(guarded.url())


def test_sentinels_and_the_servers_that_they_watch_are_used_by_tls(stage: Stage, tmp_path: Path) -> None:
    folder = tmp_path / "watched"
    folder.mkdir()
    authority = Authority(folder)
    certificate, key = authority.issue("server", "IP:127.0.0.1")
    watched = Watched(folder, password="pw", tls=Tls(certificate, key, authority.ca)).start()
    try:
        stage.url = watched.url
        worker = stage.worker().ready()
        with stage.client() as client:
            assert client.result(client.start("chain", {"words": 2}), timeout=HANG_SECONDS) == 2
            watched.fail_over()
            assert client.result(client.start("chain", {"words": 3}), timeout=HANG_SECONDS) == 3

            async def chain() -> object:
                async with AsyncClient(watched.url) as other:
                    return await other.result(await other.start("chain", {"words": 4}), timeout=HANG_SECONDS)

            assert asyncio.run(chain()) == 4
        assert "Traceback" not in worker.err
    finally:
        watched.stop()


@pytest.fixture
def tls_cluster(tmp_path: Path) -> Iterator[tuple[Cluster, Authority]]:
    """A cluster that speaks TLS to its clients, on ports of its own."""
    folder = tmp_path / "tls"
    folder.mkdir()
    authority = Authority(folder)
    certificate, key = authority.issue("server", "IP:127.0.0.1")
    made = Cluster(
        folder,
        requirepass="p/w",
        tls_cert_file=str(certificate),
        tls_key_file=str(key),
        tls_ca_cert_file=str(authority.ca),
        tls_auth_clients="no",
        tls_cluster="yes",
    )
    for node in made.nodes:
        node.offer_tls()
    yield made.start(), authority
    made.stop()


def test_a_cluster_is_used_by_tls_and_with_a_password(stage: Stage, tls_cluster: tuple[Cluster, Authority]) -> None:
    cluster, authority = tls_cluster
    stage.url = f"rediss://:p%2Fw@127.0.0.1:{cluster.nodes[1].tls_port}?ssl_ca_certs={authority.ca}"
    stage.worker().ready()
    with stage.client() as client:
        ids = [client.start("chain", {"words": 2}) for _ in range(20)]
        assert [client.result(each, timeout=HANG_SECONDS) for each in ids] == [2] * 20
    with cluster.nodes[0].admin() as admin:
        ports = {
            each["laddr"].rpartition(":")[2] for each in admin.client_list() if each["name"].startswith("stepwell")
        }
    assert ports == {str(cluster.nodes[0].tls_port)}, "nobody went around TLS"
