"""The Mirror's rounds: batches, order, repetition, refusals, fences, failpoints."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import pytest
from unit.actors.told import Box

from stepwell.actors import mirror as mirror_module
from stepwell.actors.failpoints import AFTER_REPLY, BEFORE_SEND, FailAt, Failpoints
from stepwell.actors.messages import Drop, RowRead, Written
from stepwell.actors.mirror import Mirror
from stepwell.actors.store_events import BatchWritten, NotSafeYet, StoreEvent, StoreTrouble
from stepwell.core.spells import CALM_SECONDS
from stepwell.store.link import LinkDown, NotDurable
from stepwell.store.replies import Committed, Fenced, Loaded, Refused, Reply
from stepwell.store.requests import Commit, DeadLetter, Load, Revive

COMMITTED = Committed()
Request = Any


class Server:
    """Answers every request with OK unless a test says otherwise for the next batches."""

    def __init__(self) -> None:
        self.batches: list[list[Request]] = []
        self.answers: list[Callable[[Request], Reply] | Exception] = []

    def execute(self, requests: Sequence[Request]) -> list[Reply]:
        self.batches.append(list(requests))
        answer = self.answers.pop(0) if self.answers else fine
        if isinstance(answer, Exception):
            raise answer
        return [answer(request) for request in requests]


def fine(request: Request) -> Reply:
    return Loaded({"rev": b"1"}) if isinstance(request, Load) else COMMITTED


class Stage:
    def __init__(self, failpoints: Failpoints | None = None) -> None:
        self.now = 100.0
        self.server = Server()
        self.pauses: list[float] = []
        self.events: list[StoreEvent] = []
        self.fenced: list[int] = []
        options = {} if failpoints is None else {"failpoints": failpoints}
        self.mirror = Mirror(
            self.server, self.pauses.append, lambda: self.now, self.events.append, self.fenced.append, **options
        )
        self.box = Box()

    def send(self, *requests: Request) -> None:
        for request in requests:
            self.mirror.send(self.box, request)  # type: ignore[arg-type]

    def rounds(self, count: int = 1) -> None:
        for _ in range(count):
            self.mirror.run_once(0)


@pytest.fixture
def stage() -> Stage:
    return Stage()


def commit(name: str, size: int = 1, lease: str = "mine", partition: int = 3) -> Commit:
    return Commit(partition, name, lease, 1, f"c-{name}", 0, [("r:x", b"x" * size)], "running", "running")


def letter(name: str) -> DeadLetter:
    return DeadLetter(3, "mine", name, "malformed", "odd", 0)


def names(batches: list[list[Request]]) -> list[list[str]]:
    return [[getattr(request, "execution_id", "") for request in batch] for batch in batches]


def test_what_waits_goes_out_in_one_batch_and_each_sender_hears_its_reply(stage: Stage) -> None:
    stage.send(commit("a"), Load("b"), commit("c"))
    stage.mirror.send(None, letter("1-0"))
    assert not stage.mirror.idle
    stage.rounds()
    assert len(stage.server.batches) == 1
    assert stage.box.told == [Written(COMMITTED), RowRead("b", Loaded({"rev": b"1"})), Written(COMMITTED)]
    assert stage.mirror.idle
    [written] = stage.events
    assert isinstance(written, BatchWritten)
    assert len(written.replies) == 4


def test_a_round_without_anything_to_send_sends_nothing(stage: Stage) -> None:
    stage.rounds()
    stage.mirror.wake()
    stage.rounds()
    assert stage.server.batches == []
    assert stage.events == []


def test_batches_are_bounded_by_count_and_by_bytes(stage: Stage, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(mirror_module, "BATCH_REQUESTS_MAX", 3)
    stage.send(*[commit(str(n)) for n in range(7)])
    stage.rounds(3)
    assert [len(batch) for batch in stage.server.batches] == [3, 3, 1]
    monkeypatch.setattr(mirror_module, "BATCH_REQUESTS_MAX", 256)
    monkeypatch.setattr(mirror_module, "BATCH_BYTES_MAX", 2000)
    stage.send(*[commit(str(n), size=1500) for n in range(4)])
    stage.rounds(2)
    assert [len(batch) for batch in stage.server.batches[3:]] == [2, 2]


def test_a_batch_whose_fate_is_unknown_is_sent_again_first_and_in_order(stage: Stage) -> None:
    stage.server.answers = [LinkDown("broke"), LinkDown("broke")]
    stage.send(commit("a"), commit("b"))
    stage.rounds()
    stage.send(commit("c"))
    assert not stage.mirror.idle
    stage.rounds(2)
    assert names(stage.server.batches) == [["a", "b"], ["a", "b", "c"], ["a", "b", "c"]]
    assert len(stage.box.told) == 3
    assert [event.reason for event in stage.events if isinstance(event, StoreTrouble)] == ["broke", "broke"]


def test_a_server_that_refuses_every_other_batch_is_told_once(stage: Stage, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level("INFO", "stepwell.mirror")
    for number in range(100):
        stage.server.answers = [lambda request: Refused("command not allowed", "OOM")]
        stage.send(commit(str(number)))
        stage.rounds()
        stage.now += 1
        stage.rounds()
        stage.now += 1
    assert len(stage.box.told) == 100, "each was written in the end"
    stage.rounds()
    assert [line.levelname for line in caplog.records] == ["WARNING", "INFO", "WARNING"]
    stage.now += CALM_SECONDS
    for _ in range(2):
        stage.rounds()  # there is nothing to send, and the end is told all the same, once
    told = [line.getMessage() for line in caplog.records]
    assert told[1] == "Redis acknowledges writes again, after 1.0 s"
    assert told[2].endswith("; this comes and goes: told next when it is over for 30 s")
    assert told[3:] == ["Redis acknowledges writes again, after 199.0 s"]


def test_pauses_grow_while_the_trouble_lasts_and_begin_anew_after_it(stage: Stage) -> None:
    stage.server.answers = [LinkDown("x")] * 7
    stage.send(commit("a"))
    stage.rounds(8)
    stage.server.answers = [LinkDown("x")]
    stage.send(commit("b"))
    stage.rounds(2)
    assert stage.pauses == [0.05, 0.1, 0.2, 0.5, 1.0, 1.0, 1.0, 0.05]


def test_only_what_was_refused_is_sent_again(stage: Stage) -> None:
    stage.server.answers = [lambda request: Refused("full", "OOM") if request.execution_id == "b" else COMMITTED]
    stage.send(commit("a"), commit("b"), commit("c"))
    stage.rounds()
    assert len(stage.box.told) == 2
    stage.rounds()
    assert names(stage.server.batches) == [["a", "b", "c"], ["b"]]
    assert len(stage.box.told) == 3


def away(*partitions: int) -> Callable[[Request], Reply]:
    """The master of a cluster that holds these partitions can't be reached."""
    return lambda request: (
        Refused("the master a:1 is away", "UNREACHABLE") if request.partition in partitions else COMMITTED
    )


def test_a_master_that_is_away_holds_up_nothing_but_its_own(stage: Stage) -> None:
    stage.server.answers = [away(4)] * 9
    stage.send(commit("a"), commit("b", partition=4))
    stage.rounds()
    stage.send(commit("c"))
    stage.rounds()
    assert names(stage.server.batches) == [["a", "b"], ["c"]], "what is new need not wait"
    assert stage.pauses == []
    assert not stage.mirror.idle
    stage.now += 0.05
    stage.rounds(2)
    assert names(stage.server.batches)[2:] == [["b"]]
    stage.now += 0.09
    stage.rounds()
    stage.send(commit("d"))
    stage.rounds()
    assert names(stage.server.batches)[3:] == [["d"]], "the pauses grow, though others are served meanwhile"
    stage.server.answers = []
    stage.now += 0.02
    stage.rounds()
    assert stage.mirror.idle
    assert len(stage.box.told) == 4
    assert [event.reason for event in stage.events if isinstance(event, StoreTrouble)] == ["the master a:1 is away"] * 2


def test_what_waits_for_a_master_does_not_crowd_out_the_others(stage: Stage, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(mirror_module, "BATCH_REQUESTS_MAX", 4)
    stage.server.answers = [away(4)] * 99
    stage.send(*[commit(str(n), partition=4) for n in range(8)])
    stage.rounds(2)
    for number in range(3):
        stage.now += 2.0
        stage.send(commit(f"new{number}"))
        stage.rounds()
        assert stage.box.told == [Written(COMMITTED)] * (number + 1)
    again = [name for batch in names(stage.server.batches)[2:] for name in batch if "new" not in name]
    assert again == ["0", "1", "2", "3", "4", "5"], "all of them take turns"


def fence(request: Request) -> Reply:
    return Fenced("other")


def test_what_was_fenced_waits_until_the_lease_was_looked_at(stage: Stage) -> None:
    stage.server.answers = [fence]
    stage.send(commit("a"), commit("b", partition=4))
    stage.rounds(2)
    assert stage.fenced == [3, 4]
    assert stage.box.told == []
    assert len(stage.server.batches) == 1
    stage.mirror.lease_checked(3, "mine")
    stage.rounds()
    assert names(stage.server.batches)[1:] == [["a"]]
    stage.mirror.lease_checked(4, None)
    stage.rounds()
    assert len(stage.server.batches) == 2, "the partition is lost: its writes are forgotten"
    assert stage.box.told == [Written(COMMITTED), Drop()], "and who waits for them is told"


def test_what_an_earlier_lease_fenced_is_never_sent_again(stage: Stage) -> None:
    stage.server.answers = [fence]
    stage.send(commit("old", lease="before"), commit("new", lease="now"))
    stage.rounds()
    stage.mirror.lease_checked(3, "now")
    stage.rounds(3)
    assert names(stage.server.batches)[1:] == [["new"]]
    assert stage.box.told == [Drop(), Written(COMMITTED)]
    assert stage.mirror.idle


def test_who_asked_for_a_row_of_somebody_else_hears_of_a_lost_partition_by_itself(stage: Stage) -> None:
    stage.server.answers = [fence]
    stage.send(Revive(3, "gone", "mine", 1, "c-1", 0, "waiting", "0", [], "f", (0, "")))
    stage.rounds()
    stage.mirror.lease_checked(3, None)
    stage.rounds()
    assert (stage.box.told, len(stage.server.batches)) == ([], 1)


def test_failpoints_surround_each_sending_of_a_commit() -> None:
    reached: list[str] = []

    class Spy(Failpoints):
        active = True

        def reached(self, name: str) -> None:
            reached.append(name)

    stage = Stage(Spy())
    stage.server.answers = [LinkDown("lost")]
    stage.send(commit("a"), Load("b"))
    stage.rounds(2)
    assert reached == [BEFORE_SEND, BEFORE_SEND, AFTER_REPLY]


def test_fail_at_acts_once_at_its_number() -> None:
    acted: list[str] = []
    failpoints = FailAt(AFTER_REPLY, 2, lambda: acted.append("now"))
    stage = Stage(failpoints)
    for name in "abc":
        stage.send(commit(name))
        stage.rounds()
        assert len(acted) == (0 if name == "a" else 1)
    assert failpoints.counts == {BEFORE_SEND: 3, AFTER_REPLY: 3}


def test_what_is_executed_but_not_safe_in_time_is_not_acknowledged_and_sent_again(stage):
    stage.server.answers = [NotDurable("0 of 1 replicas have it"), NotDurable("0 of 1 replicas have it")]
    order = commit("a")
    stage.send(order)
    stage.rounds(2)
    assert stage.box.told == []
    assert stage.events == [NotSafeYet(), NotSafeYet()], "no trouble of the connection"
    stage.rounds()
    assert stage.server.batches == [[order]] * 3
    assert stage.box.told == [Written(COMMITTED)]
