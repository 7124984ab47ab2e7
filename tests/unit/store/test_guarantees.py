"""Every row of `doctor`: what it says of a fact, how bad that is, and what to do."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from stepwell.core.errors import StoreUnfit
from stepwell.store.check import ServerFacts, require_fit
from stepwell.store.durability import Durability
from stepwell.store.guarantees import Facts, NamespaceFacts, WorkerFacts, judge, labels, undone

MIB = 1024 * 1024
GOOD = ServerFacts(
    "redis://db.example:6379",
    name="valkey",
    version=(8, 1, 0),
    mode="standalone",
    role="primary",
    maxmemory=0,
    maxmemory_policy="noeviction",
    used_memory=5 * MIB,
    aof_enabled=True,
    appendfsync="always",
    replicas=0,
    min_replicas=0,
)
SPACE = NamespaceFacts("stepwell", 1, 64, executions={"completed": 5, "running": 0})
WORKERS = (WorkerFacts("w/0", "0.1", "relaxed"), WorkerFacts("w/1", "0.1", "relaxed"))


def facts(server: dict[str, Any] | None = None, **changes: Any) -> Facts:
    given: dict[str, Any] = {"namespace": SPACE, "workers": WORKERS, "version": "0.1", "clock_ms": {"db": 3.0}}
    return Facts(replace(GOOD, **(server or {})), **{**given, **changes})


def found(given: Facts, level: str) -> list[tuple[str, str]]:
    return [(each.topic, each.text) for each in judge(given) if each.level == level]


def test_where_all_is_well_nothing_is_wrong_and_all_is_told() -> None:
    given = facts()
    assert found(given, "broken") == found(given, "warning") == []
    told = dict(found(given, "ok"))
    assert set(told) == {
        "server", "memory", "durability", "replicas", "a crash undoes", "clock", "namespace", "workers"
    }  # fmt: skip
    assert told["namespace"] == "'stepwell' has 64 partitions: 5 completed"
    assert told["memory"] == "5 MiB used, no limit, policy noeviction"
    assert told["workers"] == "shards alive: 2"
    assert labels(given) == {
        "server": "Valkey 8.1.0",
        "topology": "single",
        "durability": "relaxed",
        "aof": "always",
        "eviction": "noeviction",
        "replicas": "0",
        "kept": "yes",
    }


@pytest.mark.pain(15)
@pytest.mark.parametrize(
    ("server", "said"),
    [
        ({"maxmemory": MIB, "maxmemory_policy": "allkeys-lru"}, "may evict data"),
        ({"maxmemory": MIB, "maxmemory_policy": "volatile-ttl"}, "may evict data"),
        ({"name": "redis", "version": (6, 0, 9)}, "too old (Redis 6.0.9)"),
        ({"name": "valkey", "version": (7, 2, 5)}, "too old (Valkey 7.2.5)"),
        ({"role": "replica", "primary": "other:6379"}, "read-only replica"),
        ({"mode": "sentinel"}, "is a Sentinel"),
        ({"write_error": StoreUnfit("it is full")}, "it is full"),
        ({"unserved_slots": 5, "masters": (GOOD,)}, "slots"),
        ({"masters": (GOOD, replace(GOOD, role="replica"))}, "read-only replica"),
        ({"min_replicas": 2, "replicas": 1}, "refuses writes until 2 replicas"),
    ],
)
def test_a_server_that_can_not_keep_a_promise_is_broken(server: dict[str, Any], said: str) -> None:
    given = facts(server)
    [(_, text)] = found(given, "broken")
    assert said in text
    assert labels(given)["kept"] == "no"


@pytest.mark.parametrize(
    "server",
    [{}, {"maxmemory": MIB, "maxmemory_policy": "allkeys-lru"}, {"role": "replica"}, {"version": (1, 0)}],
)
def test_a_worker_refuses_to_start_exactly_where_the_doctor_finds_the_server_broken(server: dict[str, Any]) -> None:
    refused = False
    try:
        require_fit(replace(GOOD, **server))
    except StoreUnfit:
        refused = True
    assert refused == bool(found(facts(server), "broken"))


@pytest.mark.parametrize(
    ("server", "mode", "said"),
    [
        ({"name": "redis", "version": (7, 0, 15)}, Durability("aof"), "has no WAITAOF"),
        ({"aof_enabled": False}, Durability("aof"), "no append-only file"),
        ({"appendfsync": "no"}, Durability("aof"), "appendfsync always"),
        ({"replicas": 1}, Durability("replicated", 2), "has 1 replicas connected, not 2"),
    ],
)
def test_a_durability_that_the_server_can_not_give_is_broken(
    server: dict[str, Any], mode: Durability, said: str
) -> None:
    given = facts(server, durability=mode, workers=())
    [(topic, text)] = found(given, "broken")
    assert (topic, said in text) == ("durability", True)
    if mode.mode == "aof":
        assert not any("each write waits for the disk" in each for each in undone(given)), "it is not in force"


KEPT = "nothing that was acknowledged"
MOSTLY = "nothing that was acknowledged (the kernel still writes it), or up to two seconds if the disk was behind"
CRASHES = [
    ({}, Durability(), KEPT, f"{KEPT} (the kernel still writes it)"),
    ({"appendfsync": "everysec"}, Durability(), "the last second or two", MOSTLY),
    ({"appendfsync": "no"}, Durability(), "30 seconds", f"{KEPT} (the kernel still writes it)"),
    ({"aof_enabled": False}, Durability(), "since the last snapshot", "since the last snapshot, if it makes any"),
    ({"appendfsync": None}, Durability(), "unknown", MOSTLY),
    (
        {"aof_enabled": None, "appendfsync": None},
        Durability(),
        "unknown",
        "does not say whether it keeps an append-only file",
    ),
    (
        {"appendfsync": "everysec"},
        Durability("aof"),
        "each write waits for the disk",
        f"{KEPT}: each write waits for the disk",
    ),
    ({"replicas": 1, "appendfsync": "everysec"}, Durability("replicated", 1), "second", MOSTLY),
]


@pytest.mark.parametrize(("server", "mode", "power", "kill"), CRASHES)
def test_what_a_crash_undoes_is_told_in_plain_words(
    server: dict[str, Any], mode: Durability, power: str, kill: str
) -> None:
    told = list(undone(facts(server, durability=mode)))
    assert told[0].startswith("power loss")
    assert power in told[0]
    assert told[1].startswith("kill -9")
    assert told[1].endswith(kill)
    assert "same idempotency keys" in told[-1]


def test_what_a_failover_undoes_is_told_where_there_can_be_one() -> None:
    assert not any("failover" in each for each in undone(facts()))
    relaxed = next(each for each in undone(facts({"replicas": 1})) if "failover" in each)
    assert "had not got yet" in relaxed
    safe = undone(facts({"replicas": 2}, durability=Durability("replicated", 2)))
    assert any("failover" in each and "nothing that was acknowledged" in each for each in safe)
    assert any("failover" in each for each in undone(facts(topology="sentinel")))


@pytest.mark.parametrize(
    ("changes", "topic", "said"),
    [
        ({"server": {"warnings": ("odd",)}}, "server", "odd"),
        ({"server": {"maxmemory": 5 * MIB}}, "memory", "nearly full"),
        ({"server": {"appendfsync": "everysec"}, "durability": Durability("aof")}, "durability", "100 ms"),
        ({"server": {"replicas": 1}, "topology": "sentinel"}, "replicas", "goes on taking writes"),
        ({"clock_ms": {"db": -5000.0}}, "clock", "5,000 ms behind this host"),
        ({"clock_ms": {"a": 0.0, "b": 900.0, "c": -1500.0}}, "clock", "1,500 ms behind"),
        ({"namespace": replace(SPACE, dead_letters=3)}, "dead letters", "3 commands or starts"),
        ({"namespace": replace(SPACE, ingress=3), "workers": ()}, "ingress", "3 entries wait there"),
        ({"workers": ()}, "workers", "none is running"),
    ],
)
def test_what_is_weaker_than_it_could_be_is_a_warning(changes: dict[str, Any], topic: str, said: str) -> None:
    given = facts(changes.pop("server", None), **changes)
    assert found(given, "broken") == []
    assert any(each[0] == topic and said in each[1] for each in found(given, "warning"))


@pytest.mark.pain(39)
def test_masters_whose_clocks_differ_are_told_of() -> None:
    assert any("differ by 2,400 ms" in text for _, text in found(facts(clock_ms={"a": 900.0, "b": -1500.0}), "warning"))
    assert not any("differ" in text for _, text in found(facts(clock_ms={"a": 900.0, "b": -900.0}), "warning"))


@pytest.mark.pain(47)
def test_workers_of_other_versions_are_told_of() -> None:
    others = (*WORKERS, WorkerFacts("x/0", "0.2", "relaxed"), WorkerFacts("y/0"))
    [(topic, text)] = found(facts(workers=others), "warning")
    assert topic == "workers"
    assert "0.1 (2), 0.2 (1), unknown (1)" in text
    assert [each.to_do for each in judge(facts(workers=others)) if each.level == "warning"] == ["finish the upgrade"]


@pytest.mark.pain(47)
def test_shards_that_read_different_formats_are_told_of_and_so_is_what_is_left_alone() -> None:
    ones = (WorkerFacts("a/0", "0.1", format=1), WorkerFacts("b/0", "0.1", format=1), WorkerFacts("c/0", "0.1"))
    assert found(facts(workers=ones), "warning") == []
    both = (*ones, WorkerFacts("d/0", "0.1", format=2))
    [(topic, text)] = found(facts(workers=both), "warning")
    assert (topic, text) == ("formats", "2 shards stand by, as 1 others read a newer format (2)")
    alone = tuple(replace(one, left_alone=3) for one in ones[:2])
    [(topic, text)] = found(facts(workers=alone), "warning")
    assert (topic, "6 rows or entries of a newer format are left alone" in text) == ("formats", True)


@pytest.mark.pain(47)
@pytest.mark.parametrize(
    ("space", "partitions", "said"),
    [
        (replace(SPACE, format=2), None, "made by a newer version"),
        (replace(SPACE, partitions=8), 64, "8 partitions, and 64 are expected"),
        (replace(SPACE, partitions=-1), 64, "-1 partitions"),
        (replace(SPACE, durability="paper"), None, "has durability paper"),
        (replace(SPACE, damage=("stepwell:ingress",)), None, "stepwell:ingress is not of the type"),
    ],
)
def test_a_namespace_that_does_not_fit_is_broken(space: NamespaceFacts, partitions: int | None, said: str) -> None:
    [(topic, text)] = found(facts(namespace=space, partitions=partitions), "broken")
    assert (topic in ("namespace", "durability"), said in text) == (True, True)


def test_a_namespace_that_nobody_has_made_is_no_problem() -> None:
    given = facts(namespace=NamespaceFacts("new"), partitions=64)
    assert found(given, "broken") == []
    assert dict(found(given, "ok"))["namespace"].startswith("'new' has not been made yet")


def test_a_namespace_of_another_durability_is_told_of() -> None:
    given = facts(namespace=replace(SPACE, durability="aof"))
    [(topic, text)] = found(given, "warning")
    assert (topic, "has durability aof, not relaxed" in text) == ("durability", True)
    assert found(facts(namespace=replace(SPACE, durability="relaxed")), "warning") == []


def test_servers_of_a_cluster_are_judged_each() -> None:
    masters = (GOOD, replace(GOOD, address="redis://b:1", appendfsync="everysec", replicas=2))
    given = facts({"masters": masters}, topology="cluster")
    assert labels(given) | {"aof": "mixed", "replicas": "0", "topology": "cluster"} == labels(given)
    assert sum(topic == "memory" for topic, _ in found(given, "ok")) == 2


@pytest.mark.parametrize("topology", ["cluster", "sentinel"])
def test_where_there_is_no_replica_nothing_is_advised_that_would_stop_all_writes(topology: Any) -> None:
    given = [each for each in judge(facts({"replicas": 0}, topology=topology)) if each.topic == "replicas"]
    assert [(each.level, each.to_do) for each in given] == [("ok", ""), ("warning", "connect one")]


@pytest.mark.parametrize("topology", ["single", "cluster", "sentinel"])
def test_labels_come_from_closed_sets(topology: Any) -> None:
    odd = facts(
        {"version": None, "aof_enabled": None, "maxmemory_policy": None, "replicas": None, "appendfsync": None},
        topology=topology,
    )
    assert labels(odd) == {
        "server": "Valkey of unknown version",
        "topology": topology,
        "durability": "relaxed",
        "aof": "unknown",
        "eviction": "unknown",
        "replicas": "unknown",
        "kept": "yes",
    }
