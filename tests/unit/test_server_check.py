"""A server is refused where a promise could not be kept, and only there."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any, cast

import fakeredis
import pytest
import redis
from redis import exceptions as rx

from stepwell.core.errors import StoreUnfit, StoreUnreachable
from stepwell.store import check
from stepwell.store.check import ServerFacts, check_server, require_fit
from stepwell.store.connect import connect
from stepwell.store.slots import SLOTS, SlotMap, slot_of

GOOD_INFO: dict[str, object] = {
    "redis_version": "7.0.15",
    "redis_mode": "standalone",
    "role": "master",
    "cluster_enabled": 0,
    "maxmemory": 0,
    "maxmemory_policy": "noeviction",
    "used_memory": 1000,
    "aof_enabled": 1,
}


class Server:
    """Answers as a server with this INFO would; `errors` says what a command is refused with."""

    def __init__(self, info: dict[str, object], errors: dict[str, Exception]) -> None:
        self._info = GOOD_INFO | info
        self._errors = errors
        self._real = connect("redis://:pw@db.example")

    def __getattr__(self, name: str) -> Any:
        return getattr(self._real, name)

    def _answer(self, command: str, answer: object) -> Any:
        if command in self._errors:
            raise self._errors[command]
        return answer

    def ping(self) -> Any:
        return self._answer("ping", True)

    def info(self) -> Any:
        return self._answer("info", self._info)

    def config_get(self, name: str) -> Any:
        return self._answer("config_get", {name.encode(): b"everysec" if name == "appendfsync" else b"noeviction"})

    def set(self, key: str, value: bytes, px: int) -> Any:
        return self._answer("set", True)


def facts(changed: dict[str, object] | None = None, /, **errors: Exception) -> ServerFacts:
    return check_server(cast("redis.Redis", Server(changed or {}, errors)))


def test_a_good_server_passes_without_a_warning() -> None:
    found = facts()
    require_fit(found)
    assert found.warnings == ()
    assert (found.title, found.role, found.appendfsync) == ("Redis 7.0.15", "primary", "everysec")


@pytest.mark.parametrize("version", ["5.0.14", "6.0.20", "6.1.240"])
def test_an_old_redis_is_refused(version: str) -> None:
    with pytest.raises(StoreUnfit, match=rf"too old \(Redis {version}\): Redis 6.2 or newer"):
        require_fit(facts({"redis_version": version}))


@pytest.mark.parametrize("version", ["6.2.0", "6.2.14", "7.4.1-rc1", "8.2.1", "255.255.255", 7.2])
def test_a_redis_from_6_2_on_is_taken(version: str) -> None:
    require_fit(facts({"redis_version": version}))


@pytest.mark.parametrize(("version", "fits"), [("7.2.5", False), ("8.0.1", True), ("9.1.2", True)])
def test_valkey_counts_its_own_version(version: str, fits: bool) -> None:
    found = facts({"redis_version": "7.2.4", "server_name": "valkey", "valkey_version": version})
    assert found.title == f"Valkey {version}"
    if fits:
        require_fit(found)
    else:
        with pytest.raises(StoreUnfit, match="too old"):
            require_fit(found)


@pytest.mark.parametrize("policy", ["allkeys-lru", "volatile-lru", "volatile-ttl", "allkeys-random"])
def test_an_evicting_server_is_refused_with_the_command_that_ends_it(policy: str) -> None:
    with pytest.raises(StoreUnfit, match="CONFIG SET maxmemory-policy noeviction"):
        require_fit(facts({"maxmemory": 1 << 30, "maxmemory_policy": policy}))


def test_an_evicting_policy_without_a_limit_is_a_warning() -> None:
    found = facts({"maxmemory_policy": "allkeys-lru"})
    require_fit(found)
    assert "as soon as a maxmemory is set" in found.warnings[0]


@pytest.mark.parametrize(
    ("info", "says"),
    [
        ({"role": "slave", "master_host": "p", "master_port": 6379}, r"URL of its primary \(p:6379\)"),
        ({"redis_mode": "sentinel"}, "is a Sentinel"),
    ],
)
def test_a_server_in_a_role_that_can_not_serve_is_refused(info: dict[str, object], says: str) -> None:
    with pytest.raises(StoreUnfit, match=says):
        require_fit(facts(info))


@pytest.mark.parametrize(
    ("error", "says"),
    [
        (rx.OutOfMemoryError("command not allowed"), "is full"),
        (rx.ResponseError("MISCONF Errors writing to the AOF file"), "can't save to its disk"),
        (rx.ReadOnlyError("You can't write"), "read-only replica"),
    ],
)
def test_a_server_that_refuses_the_test_write_is_refused(error: Exception, says: str) -> None:
    found = facts(set=error)
    with pytest.raises(StoreUnfit, match=says):
        require_fit(found)


@pytest.mark.parametrize("command", ["ping", "info", "config_get", "set"])
def test_a_lost_connection_is_no_answer_to_any_question(command: str) -> None:
    with pytest.raises(StoreUnreachable, match=r"redis://db\.example:6379 closed the connection"):
        facts(**{command: rx.ConnectionError("Connection closed by server.")})


def test_what_a_managed_service_hides_is_a_warning() -> None:
    refused = rx.NoPermissionError("no permissions to run the 'config|get' command")
    found = facts({"maxmemory_policy": ""}, config_get=refused, ping=refused)
    require_fit(found)
    assert found.appendfsync is None
    assert [warning.split(" is unknown")[0] for warning in found.warnings] == [
        "the maxmemory-policy",
        "the appendfsync setting",
    ]


def test_a_stand_in_without_info_and_config_passes_as_unknown() -> None:
    found = check_server(fakeredis.FakeRedis())
    require_fit(found)
    assert (found.version, found.role, found.write_error) == (None, None, None)
    assert any("INFO" in warning for warning in found.warnings)


@pytest.mark.parametrize("change", [lambda f: replace(f, version=None), lambda f: replace(f, role=None)])
def test_unknown_facts_are_no_reason_to_refuse(change: Callable[[ServerFacts], ServerFacts]) -> None:
    require_fit(change(facts()))


class Cluster:
    """The masters of a cluster, each with its INFO, and the slots that they serve."""

    clustered = True

    def __init__(self, *infos: dict[str, object], served: int = SLOTS) -> None:
        share = served // len(infos)
        self.nodes = {(f"n{number}", 7000): Recorder(info, {}) for number, info in enumerate(infos)}
        self._slots = SlotMap(
            [(number * share, (number + 1) * share - 1, address) for number, address in enumerate(self.nodes)]
        )

    def learn(self) -> SlotMap:
        return self._slots

    def node(self, address: tuple[str, int]) -> Any:
        return self.nodes[address]


class Recorder(Server):
    """A server that remembers which key it was tried with."""

    probed = ""

    def set(self, key: str, value: bytes, px: int) -> Any:
        self.probed = key
        return super().set(key, value, px)


def cluster_facts(monkeypatch: pytest.MonkeyPatch, cluster: Cluster) -> ServerFacts:
    monkeypatch.setattr(check, "masters_of", lambda _client: cluster)
    return facts()


def test_every_master_of_a_cluster_is_asked_and_tried_with_a_key_of_its_own(monkeypatch: pytest.MonkeyPatch) -> None:
    cluster = Cluster({"cluster_enabled": 1}, {"cluster_enabled": 1, "aof_enabled": 0}, served=SLOTS)
    found = cluster_facts(monkeypatch, cluster)
    require_fit(found)
    assert [server.address for server in found.servers] == ["redis://n0:7000", "redis://n1:7000"]
    assert [cluster.learn().master_of(slot_of(node.probed)) for node in cluster.nodes.values()] == list(cluster.nodes)
    assert ["append-only file is off" in warning for warning in found.warnings] == [True]


@pytest.mark.parametrize(
    ("wrong", "says"),
    [
        ({"maxmemory": 1 << 30, "maxmemory_policy": "allkeys-lru"}, "at redis://n1:7000 may evict data"),
        ({"redis_version": "6.0.9"}, "at redis://n1:7000 is too old"),
    ],
)
def test_one_unfit_master_makes_a_cluster_unfit_and_is_named(
    monkeypatch: pytest.MonkeyPatch, wrong: dict[str, object], says: str
) -> None:
    with pytest.raises(StoreUnfit, match=says):
        require_fit(cluster_facts(monkeypatch, Cluster({}, wrong)))


def test_a_cluster_whose_slots_nobody_serves_is_unfit(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(StoreUnfit, match="serves only 16000 of 16384 slots"):
        require_fit(cluster_facts(monkeypatch, Cluster({}, {}, served=16000)))
