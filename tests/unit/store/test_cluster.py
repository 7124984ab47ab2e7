"""A batch on a cluster of stand-ins: who is asked, who is left alone, what a master that is away costs the others."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

import hiredis
import pytest
import redis
import redis.asyncio
from redis.exceptions import MovedError, ResponseError

from stepwell.store import async_cluster, cluster
from stepwell.store.async_cluster import AsyncMasters
from stepwell.store.cluster import LATE_SECONDS, PROBE_SECONDS, Masters
from stepwell.store.durability import Durability
from stepwell.store.flight import LinkDown
from stepwell.store.replies import MasterLost
from stepwell.store.requests import Command
from stepwell.store.scripts import Scripts
from stepwell.store.slots import SLOTS, Address, slot_of

A, B, C = ("a", 7000), ("b", 7001), ("c", 7002)
KEYS = {A: "{6}:x", B: "{1}:x"}
SCRIPTS = Scripts()
Masterlike = Masters | AsyncMasters


class World:
    """The nodes, who is away or hangs, and all that was sent."""

    def __init__(self) -> None:
        self.now = 100.0
        self.ranges: list[tuple[int, int, Address]] = [(0, 8191, A), (8192, SLOTS - 1, B)]
        self.away: set[Address] = set()
        self.hung: set[Address] = set()
        self.unsafe: set[Address] = set()
        self.moved: dict[Address, Address] = {}
        self.sent: list[tuple[Address, list[str]]] = []
        self.patience: list[float] = []
        self.open = 0
        self.made: list[dict[str, Any]] = []

    def answer(self, node: Address, words: list[str]) -> object:
        if words == ["CLUSTER", "SLOTS"]:
            return [[first, last, [host.encode(), port, b"id"]] for first, last, (host, port) in self.ranges]
        if words[0] == "WAIT":
            return 0 if node in self.unsafe else 1
        if node in self.moved and words[0] == "GET":
            to = self.moved[node]
            return MovedError(f"{slot_of(words[1])} {to[0]}:{to[1]}")
        return f"{node[0]}:{words[-1]}".encode()

    @property
    def asked(self) -> list[tuple[str, str]]:
        """Who was sent what, without arguments."""
        return [(node[0], words[0]) for node, words in self.sent]


class Connection:
    """A connection to one node."""

    def __init__(self, world: World, node: Address) -> None:
        self.world, self.node = world, node
        self.words: list[list[str]] = []

    def send(self, packed: list[bytes]) -> None:
        reader = hiredis.Reader()
        reader.feed(b"".join(packed))
        while (command := reader.gets()) is not False:
            words = [word.decode() for word in command]
            self.words.append(words)
            self.world.sent.append((self.node, words))

    def receive(self) -> object:
        if self.node in self.world.hung:
            raise redis.TimeoutError("no answer")
        raw = self.world.answer(self.node, self.words.pop(0))
        if isinstance(raw, ResponseError):
            raise raw
        return raw


class Blocking(Connection):
    def send_packed_command(self, packed: list[bytes]) -> None:
        self.send(packed)

    def can_read(self, timeout: float) -> bool:
        self.world.patience.append(timeout)
        return self.node not in self.world.hung

    def read_response(self, **_: object) -> object:
        return self.receive()

    def disconnect(self) -> None: ...


class Awaited(Connection):
    async def send_packed_command(self, packed: list[bytes]) -> None:
        self.send(packed)

    async def read_response(self, **_: object) -> object:
        return self.receive()

    async def disconnect(self, **_: object) -> None: ...


class Pool:
    """Connections to one node. `socket_timeout` is among its settings, if it was given."""

    connection_class = redis.Connection
    max_connections = 9

    def __init__(self, world: World, **settings: Any) -> None:
        self.world = world
        self.connection_kwargs = settings
        self.node = (settings["host"], settings["port"])

    def get_connection(self) -> Connection:
        if self.node in self.world.away:
            raise redis.ConnectionError("refused")
        self.world.open += 1
        return Blocking(self.world, self.node)

    def release(self, connection: Connection) -> None:
        self.world.open -= 1

    def disconnect(self, inuse_connections: bool = True) -> None: ...


class AwaitedPool(Pool):
    connection_class = redis.asyncio.Connection

    async def get_connection(self) -> Connection:  # type: ignore[override]
        if self.node in self.world.away:
            raise redis.ConnectionError("refused")
        self.world.open += 1
        return Awaited(self.world, self.node)

    async def release(self, connection: Connection) -> None:  # type: ignore[override]
        self.world.open -= 1

    async def disconnect(self, inuse_connections: bool = True) -> None: ...  # type: ignore[override]


class Stage(World):
    """The masters as one client sees them, blocking or not."""

    def __init__(self, blocking: bool, monkeypatch: pytest.MonkeyPatch) -> None:
        super().__init__()
        self._kind = Pool if blocking else AwaitedPool

        def new_pool(connection_class: object, max_connections: object, **settings: Any) -> Pool:
            self.made.append(settings)
            return self._kind(self, **settings)

        monkeypatch.setattr(cluster, "new_pool", new_pool)
        monkeypatch.setattr(async_cluster, "new_async_pool", new_pool)
        self._maker: Callable[..., Masterlike] = Masters if blocking else AsyncMasters
        self.masters = self.using(A)

    def using(self, *seeds: Address) -> Masterlike:
        pool = self._kind(self, host=seeds[0][0], port=seeds[0][1])
        self.masters = self._maker(pool, seeds if len(seeds) > 1 else (), lambda: self.now)
        return self.masters

    def call(self, *commands: Command, durability: Durability | None = None) -> list[object]:
        answer: Any = self.masters.exchange(commands, SCRIPTS, *([durability] if durability else []))
        return answer if isinstance(answer, list) else asyncio.run(answer)


@pytest.fixture(params=["blocking", "asyncio"])
def stage(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Stage:
    return Stage(request.param == "blocking", monkeypatch)


def get(master: Address, name: str = "") -> Command:
    return ["GET", KEYS[master] + name]


def lost(replies: list[object]) -> list[bool]:
    return [isinstance(reply, MasterLost) for reply in replies]


def test_the_map_is_read_once_and_each_master_gets_its_share(stage: Stage) -> None:
    assert not stage.masters.clustered
    assert stage.call(get(A), get(B), get(A, "2")) == [b"a:{6}:x", b"b:{1}:x", b"a:{6}:x2"]
    assert stage.masters.clustered
    stage.call(get(B))
    assert stage.asked == [("a", "CLUSTER"), ("a", "GET"), ("a", "GET"), ("b", "GET"), ("b", "GET")]
    assert stage.open == 0


def test_of_several_hosts_one_that_answers_is_enough(stage: Stage) -> None:
    stage.away = {C}
    stage.using(C, B)
    assert stage.masters.clustered, "several hosts are a cluster, whoever answers"
    assert stage.call(get(A)) == [b"a:{6}:x"]
    assert stage.asked == [("b", "CLUSTER"), ("a", "GET")]


def test_where_nobody_can_be_asked_the_link_is_down(stage: Stage) -> None:
    stage.away = {A, B}
    stage.using(A, B)
    with pytest.raises(LinkDown, match="refused"):
        stage.call(get(A))


def test_who_knows_better_is_asked_for_the_new_map(stage: Stage) -> None:
    stage.call(get(A))
    stage.moved = {A: C}
    stage.ranges = [(0, 8191, C), (8192, SLOTS - 1, B)]
    stage.sent.clear()
    assert stage.call(get(A), get(B)) == [b"c:{6}:x", b"b:{1}:x"]
    assert stage.asked == [("a", "GET"), ("b", "GET"), ("c", "CLUSTER"), ("c", "GET")]
    assert stage.call(get(A)) == [b"c:{6}:x"]


@pytest.mark.pain(11)
def test_a_master_that_is_away_costs_its_own_commands_and_no_more_tries_for_a_while(stage: Stage) -> None:
    stage.call(get(A), get(B))
    stage.away = {B}
    stage.sent.clear()
    for _ in range(3):
        replies = stage.call(get(A), get(B), ["TIME"])
        assert lost(replies) == [False, True, False]
    assert [who for who in stage.asked if who == ("a", "CLUSTER")] == [("a", "CLUSTER")], "now and then only"
    stage.away = set()
    assert lost(stage.call(get(B))) == [True], "it is left alone for a moment"
    stage.now += 0.3
    assert stage.call(get(B)) == [b"b:{1}:x"]
    assert stage.asked[-2:] == [("b", "PING"), ("b", "GET")], "it has to prove itself first"
    probe = stage.made[-1]
    assert (probe["socket_timeout"], probe["host"]) == (PROBE_SECONDS, "b")
    assert stage.call(get(B)) == [b"b:{1}:x"]
    assert stage.asked[-1] == ("b", "GET")
    assert stage.asked[-2] == ("b", "GET")
    assert stage.open == 0


def test_a_failover_inside_the_cluster_is_followed(stage: Stage) -> None:
    stage.call(get(A), get(B))
    stage.away = {B}
    stage.ranges = [(0, 8191, A), (8192, SLOTS - 1, C)]
    assert lost(stage.call(get(B))) == [True], "what it did is unknown"
    assert stage.call(get(B)) == [b"c:{1}:x"]


def test_while_one_hangs_the_others_are_not_waited_for_twice(stage: Stage) -> None:
    if isinstance(stage.masters, AsyncMasters):
        pytest.skip("all are waited for at once")
    stage.call(get(A), get(B))
    stage.hung = {A}
    assert lost(stage.call(get(A), get(B))) == [True, False]
    assert stage.patience == [LATE_SECONDS]
    assert stage.open == 0


def test_what_has_no_key_goes_to_another_master_when_its_own_is_away(stage: Stage) -> None:
    assert stage.call(["TIME"]) == [b"a:TIME"]
    stage.away = {A}
    assert lost(stage.call(["TIME"])) == [True]
    assert stage.call(["TIME"]) == [b"b:TIME"]
    stage.away = set()
    stage.now += 10
    stage.call(get(A))
    assert stage.call(["TIME"]) == [b"a:TIME"]


def test_what_one_master_can_not_make_safe_is_not_acknowledged(stage: Stage) -> None:
    stage.unsafe = {B}
    add: dict[Address, Command] = {master: ["XADD", key, "*", "f", "v"] for master, key in KEYS.items()}
    assert lost(stage.call(add[A], add[B], durability=Durability("replicated", 1))) == [False, True]
    stage.unsafe = set()
    assert lost(stage.call(add[B], durability=Durability("replicated", 1))) == [False], "it is no outage"


def test_what_can_not_be_packed_is_sent_to_nobody(stage: Stage) -> None:
    stage.call(get(A))
    stage.sent.clear()
    with pytest.raises(TypeError):
        stage.call(get(A), ["GET", KEYS[B], object()])  # type: ignore[list-item]
    assert stage.sent == []
    assert stage.open == 0
