"""After a shard's death its parent writes down who was at work, and frees what it held."""

from __future__ import annotations

from collections.abc import Iterator

import fakeredis
import pytest
import redis
from redis.backoff import NoBackoff
from redis.retry import Retry

from stepwell.actors.boxreport import BoxAttempt, BoxReport
from stepwell.core.records import CutShort
from stepwell.store.keys import Keys
from stepwell.store.leases import Grant, LeaseStore
from stepwell.store.scripts import Scripts
from stepwell.store.suspects import Strike, Suspect
from stepwell.worker.postmortem import Findings, examine

DEAD, ALIVE = "host,boot,1,2", "host,boot,3,4"


class Scene:
    """Four partitions: the dead process held 0 and 1, another one holds 2."""

    def __init__(self, client: redis.Redis) -> None:
        self.client = client
        self.keys = Keys("t", 4)
        self.scripts = Scripts()
        self.leases = LeaseStore(client, self.keys, self.scripts)
        self.held = self.acquire(DEAD, 0, 1)
        self.acquire(ALIVE, 2)
        self.ids = {self.keys.partition_of(f"order-{n}"): f"order-{n}" for n in range(20)}

    def acquire(self, host_info: str, *partitions: int) -> list[Grant]:
        answers = self.leases.acquire(partitions, f"w/{host_info[10]}", "i", host_info, 10_000, 5)
        return [answer for answer in answers if isinstance(answer, Grant)]

    def examine(self, report: BoxReport | None) -> Findings:
        return examine(self.client, self.keys, self.scripts, DEAD, report, "w/1")

    def report(self, driven: str = "", *attempts: BoxAttempt) -> BoxReport:
        return BoxReport("ab", 1, 100.0, 99.0, (driven, 99.0) if driven else None, attempts=attempts)


@pytest.fixture
def scene() -> Iterator[Scene]:
    client = fakeredis.FakeRedis(server=fakeredis.FakeServer(version=(6, 2)), retry=Retry(NoBackoff(), 0))
    yield Scene(client)
    client.close()


def test_what_the_dead_process_held_is_free_and_nothing_else(scene: Scene) -> None:
    assert scene.examine(scene.report()).partitions == (0, 1)
    assert sorted(scene.leases.read(range(4))) == [2]
    assert [(grant.boxed, grant.clean) for grant in scene.acquire(ALIVE, 0, 1)] == [(True, False)] * 2


def test_what_ran_is_written_to_its_partition_and_who_was_driven_is_struck(scene: Scene) -> None:
    ran = BoxAttempt(0, scene.ids[0], "t1", "charge", 2, "thread", 9)
    waited = BoxAttempt(1, scene.ids[1], "t2", "ship", 1)
    findings = scene.examine(scene.report(scene.ids[1], ran, waited))
    zero, one = scene.acquire(ALIVE, 0, 1)
    assert zero.suspects.executions == {scene.ids[0]: Suspect(None, (CutShort("t1", 2, True, "charge"),))}
    assert one.suspects.executions == {
        scene.ids[1]: Suspect(Strike(1, "it died"), (CutShort("t2", 1, False, "ship"),)),
    }
    assert (findings.struck, findings.interrupted, findings.named) == (f"execution {scene.ids[1]}", 2, (ran,))
    assert f"charge of {scene.ids[0]} (attempt 2)" in findings.sentence()


def test_examined_again_it_changes_nothing(scene: Scene) -> None:
    report = scene.report(scene.ids[1], BoxAttempt(0, scene.ids[0], "t1", "charge", 2))
    scene.examine(report)
    before = [scene.client.hgetall(part.suspects) for part in scene.keys.parts]
    scene.examine(report)
    assert [scene.client.hgetall(part.suspects) for part in scene.keys.parts] == before
    assert [grant.boxed for grant in scene.acquire(ALIVE, 0, 1)] == [True, True]


def test_a_suspect_is_struck_though_its_lease_has_lapsed(scene: Scene) -> None:
    scene.client.delete(scene.keys.lease(1))
    findings = scene.examine(scene.report(scene.ids[1]))
    assert findings.partitions == (0,)
    (one,) = scene.acquire(ALIVE, 1)
    assert not one.boxed
    assert one.suspects.executions[scene.ids[1]].strike == Strike(1, "it died")


def test_without_a_box_the_leases_are_freed_all_the_same(scene: Scene) -> None:
    findings = scene.examine(None)
    assert (findings.partitions, findings.interrupted, findings.struck) == ((0, 1), None, "")
    assert [grant.boxed for grant in scene.acquire(ALIVE, 0, 1)] == [False, False]
    assert "not known which steps ran" in findings.sentence()


def test_of_a_shard_that_held_nothing_nobody_is_told_that_steps_were_interrupted(scene: Scene) -> None:
    scene.client.delete(scene.keys.lease(0), scene.keys.lease(1))
    assert scene.examine(None).sentence() == "it died; it held no partition (any more)"


def test_a_shard_that_held_nothing_leaves_the_living(scene: Scene) -> None:
    scene.client.delete(scene.keys.lease(0), scene.keys.lease(1))
    scene.client.hset(scene.keys.workers, "w/1", "{}")
    assert scene.examine(scene.report()).partitions == ()
    assert not scene.client.hexists(scene.keys.workers, "w/1")


def test_a_box_that_names_a_partition_that_does_not_exist_harms_nobody(scene: Scene) -> None:
    report = BoxReport(
        "ab", 1, 100.0, 99.0, (":dispatcher", 50.0), (999, "5-1"), (BoxAttempt(77, "order-1", "t", "p", 1),)
    )
    assert scene.examine(report).partitions == (0, 1)
