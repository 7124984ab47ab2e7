"""The routing table where answers come late: rows that were asked for by a route which is gone."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest
from unit.actors.told import Box

from stepwell.actors import messages as m
from stepwell.actors.afterlife import Afterlife
from stepwell.actors.blackbox import NO_BOX
from stepwell.actors.dispatcher import LOAD_RETRY_SECONDS, Dispatcher
from stepwell.actors.holdings import Holdings
from stepwell.actors.kit.scheduler import VirtualScheduler
from stepwell.actors.newer import Newer
from stepwell.core.limits import Limits
from stepwell.flow.registry import Registry
from stepwell.store.inbox import Entry
from stepwell.store.keys import Keys
from stepwell.store.leases import Grant
from stepwell.store.replies import Broken, Loaded
from stepwell.store.requests import DeadLetter, Load, Unlist


class _Dispatcher(Dispatcher):
    """Its actors are boxes."""

    def __init__(self, shard: Any, started: list[tuple[dict[str, bytes], Box]]) -> None:
        super().__init__(shard)
        self.started = started

    def _spawn(self, _execution_id: str, fields: dict[str, bytes], *_: object) -> Any:
        box = Box()
        self.started.append((fields, box))
        return box


class Stage:
    """A dispatcher of one partition, whose Mirror answers when the test does."""

    def __init__(self, running_max: int = 10, limits: Limits | None = None) -> None:
        self.scheduler = VirtualScheduler()
        self.holdings = Holdings(self.scheduler.clock.monotonic)
        self.started: list[tuple[dict[str, bytes], Box]] = []
        self.sent: list[Any] = []
        self.events: list[Any] = []
        self.lost: list[int] = []
        self._entries = 0
        shard = SimpleNamespace(
            keys=Keys("t", 1),
            clock=self.scheduler.clock,
            holdings=self.holdings,
            observer=self.events.append,
            mirror=SimpleNamespace(send=lambda _ref, request: self.sent.append(request)),
            registry=Registry(),
            limits=limits or Limits(running=running_max),
            healer=Box(),
            afterlife=Afterlife(),
            box=NO_BOX,
            runner=SimpleNamespace(lose=self.lost.append),
            newer=Newer(),
        )
        self.ref = self.scheduler.spawn(_Dispatcher, shard, self.started, name="dispatcher")
        self.grant(1)

    def grant(self, epoch: int) -> None:
        self.holdings.hold(Grant(0, epoch, f"w|{epoch}|i|h", False, 0), 1e9)

    def tell(self, *messages: object) -> None:
        for message in messages:
            self.ref.tell(message)
        self.scheduler.run_until_idle()

    def bell(self, execution_id: str = "e1") -> m.InboxRead:
        self._entries += 1
        fields = {"type": b"start", "execution": execution_id.encode(), "at": b"1", "v": b"1"}
        return m.InboxRead([Entry(0, f"{self._entries}-1", fields)])

    def command(self, execution_id: str = "e1") -> m.InboxRead:
        self._entries += 1
        fields = {"type": b"cancel", "execution": execution_id.encode(), "command": b"c", "v": b"1"}
        return m.InboxRead([Entry(0, f"{self._entries}-1", fields)])

    def lose_and_regain(self) -> None:
        self.holdings.drop(0)
        self.tell(m.PartitionLost(0))
        self.grant(2)

    @property
    def rows(self) -> list[dict[str, bytes]]:
        """On which rows actors were started."""
        return [fields for fields, _ in self.started]

    @property
    def actor(self) -> Box:
        """The one that was started last."""
        return self.started[-1][1]

    def count(self, kind: type) -> int:
        return len([request for request in self.sent if isinstance(request, kind)])

    @property
    def dispatcher(self) -> Any:
        return self.ref._cell.actor


ROW = Loaded({"meta": b"{}"})
OLD_ROW = Loaded({"meta": b"old"})
recovery = m.Recover(0, [("e1", 0.0)])


@pytest.fixture
def stage() -> Stage:
    return Stage()


def test_an_actor_whose_partition_is_lost_is_dropped_and_its_row_read_again_when_that_is_regained(stage: Stage) -> None:
    stage.tell(stage.bell(), m.RowRead("e1", OLD_ROW))
    old = stage.actor
    stage.lose_and_regain()
    assert old.told[-1] == m.Drop()
    stage.tell(recovery, m.RowRead("e1", ROW))
    assert stage.rows == [OLD_ROW.fields, ROW.fields]
    assert stage.actor.told == [m.Doorbell()]


def test_a_row_that_was_read_before_a_partition_was_lost_starts_no_actor(stage: Stage) -> None:
    stage.tell(stage.bell())
    stage.lose_and_regain()
    stage.tell(recovery, m.RowRead("e1", OLD_ROW))
    assert stage.rows == []
    stage.tell(m.RowRead("e1", ROW))
    assert stage.rows == [ROW.fields]
    assert stage.dispatcher._loading == 0
    assert not stage.dispatcher._stale_rows


@pytest.mark.parametrize("times", [2, 3])
def test_a_partition_that_is_lost_again_and_again_leaves_one_actor(stage: Stage, times: int) -> None:
    for _ in range(times):
        stage.tell(recovery, m.RowRead("e1", ROW))
        stage.lose_and_regain()
    stage.tell(recovery, m.RowRead("e1", ROW))
    *before, last = [box for _, box in stage.started]
    assert [box.told[-1] for box in before] == [m.Drop()] * times
    assert last.told == [m.Doorbell()]


def test_a_row_that_is_to_be_read_again_is_not_read_for_the_next_route(stage: Stage) -> None:
    stage.tell(stage.bell(), m.RowRead("e1", Broken("ERR odd")))
    stage.lose_and_regain()
    stage.tell(recovery, m.RowRead("e1", ROW))
    loads = stage.count(Load)
    stage.scheduler.advance(2 * LOAD_RETRY_SECONDS)
    assert stage.count(Load) == loads
    assert len(stage.started) == 1


def test_a_row_that_can_t_be_read_for_long_holds_no_slot_while_it_waits() -> None:
    stage = Stage(running_max=1)
    stage.tell(stage.bell("e1"), stage.bell("e2"))
    assert [load.execution_id for load in stage.sent] == ["e1"]
    stage.tell(m.RowRead("e1", Broken("ERR odd")))
    assert [load.execution_id for load in stage.sent] == ["e1", "e2"]
    stage.scheduler.advance(LOAD_RETRY_SECONDS)
    assert [load.execution_id for load in stage.sent] == ["e1", "e2", "e1"]
    assert stage.dispatcher._admission.running == 2, "it will run as soon as it is read"
    assert stage.count(DeadLetter) == 0


def test_a_row_that_is_none_loses_its_mail_and_its_slot() -> None:
    stage = Stage(running_max=1)
    stage.tell(stage.bell("e1"), stage.command("e1"), stage.bell("e2"))
    stage.tell(m.RowRead("e1", Broken("WRONGTYPE Operation against a key holding the wrong kind of value")))
    letters = [request for request in stage.sent if isinstance(request, DeadLetter)]
    assert ["{t:0}:x:e1" in letter.reason and "WRONGTYPE" in letter.reason for letter in letters] == [True, True]
    assert [bool(letter.outcome) for letter in letters] == [False, True]
    assert [request.execution_id for request in stage.sent if isinstance(request, Load)] == ["e1", "e2"]
    stage.scheduler.advance(10 * LOAD_RETRY_SECONDS)
    assert stage.count(Load) == 2, "only a sweep looks again"


def test_only_what_was_listed_is_taken_off_the_lists(stage: Stage) -> None:
    stage.tell(stage.command("nobody"), m.RowRead("nobody", Loaded({})))
    assert stage.count(Unlist) == 0
    stage.tell(m.Recover(0, [("ghost", 0.0)]), m.RowRead("ghost", Loaded({})))
    assert [request for request in stage.sent if isinstance(request, Unlist)] == [Unlist(0, "ghost", "w|1|i|h", [])]


def test_an_actor_at_rest_keeps_the_place_of_the_doorbell_that_is_on_its_way_to_it() -> None:
    stage = Stage(running_max=1)
    stage.tell(stage.command("e1"), m.RowRead("e1", ROW))
    actor = stage.actor
    stage.tell(stage.bell("e1"), m.Busy("e1", False), stage.bell("e2"))
    assert stage.count(Load) == 1, "e2 waits"
    entry = actor.told[-1].entry_id
    stage.tell(m.EntriesDone("e1", 0, [entry]), m.Busy("e1", False))
    assert stage.count(Load) == 2


def test_a_doorbell_of_an_execution_that_has_an_actor_waits_for_a_slot_too() -> None:
    stage = Stage(running_max=1)
    stage.tell(stage.command("e1"), m.RowRead("e1", ROW), stage.bell("e2"))
    actor = stage.actor
    stage.tell(stage.bell("e1"))
    assert [type(mail) for mail in actor.told] == [m.CommandMail]
    stage.tell(m.RowRead("e2", Loaded({})))
    assert [type(mail) for mail in actor.told] == [m.CommandMail, m.Doorbell]


def test_a_second_doorbell_of_a_queued_execution_is_passed_on_too() -> None:
    stage = Stage(running_max=1)
    stage.tell(stage.bell("busy"), stage.bell("e1"), stage.bell("e1"))
    stage.tell(m.RowRead("busy", Loaded({})), m.RowRead("e1", ROW))
    actor = stage.actor
    assert [mail.entry_id for mail in actor.told] == ["2-1"]
    stage.tell(m.EntriesDone("e1", 0, ["2-1"]), m.Busy("e1", False))
    assert [mail.entry_id for mail in actor.told] == ["2-1", "3-1"]
    assert not stage.dispatcher._admission.waiting


def started(stage: Stage, execution_id: str = "e1") -> Box:
    """An execution that came by a doorbell, is in memory and rests."""
    stage.tell(stage.bell(execution_id), m.RowRead(execution_id, ROW))
    actor = stage.actor
    stage.tell(m.EntriesDone(execution_id, 0, [f"{stage._entries}-1"]), m.Busy(execution_id, False))
    return actor


@pytest.mark.pain(57)
def test_what_falls_due_while_its_actor_asks_to_leave_is_brought_back(stage: Stage) -> None:
    actor = started(stage)
    stage.tell(m.Recover(0, [("e1", 5000.0)]))
    assert stage.count(Load) == 1, "it is in memory"
    stage.tell(m.MayStop("e1", actor, 1))  # type: ignore[arg-type]
    assert actor.told[-1] == m.StopGranted()
    assert stage.count(Load) == 2
    stage.tell(m.RowRead("e1", ROW))
    assert len(stage.started) == 2


def test_what_ran_since_it_was_found_due_leaves_for_good(stage: Stage) -> None:
    actor = started(stage)
    stage.tell(m.Recover(0, [("e1", 5000.0)]), m.Busy("e1", True), m.Busy("e1", False))
    stage.tell(m.MayStop("e1", actor, 1))  # type: ignore[arg-type]
    assert actor.told[-1] == m.StopGranted()
    assert stage.count(Load) == 1


@pytest.mark.pain(38)
def test_beyond_the_bound_those_that_rest_longest_are_told_to_leave() -> None:
    stage = Stage(limits=Limits(in_memory=2))
    actors = [started(stage, f"e{n}") for n in range(4)]
    left = [n for n, actor in enumerate(actors) if m.Passivate() in actor.told]
    assert left == [0, 1]


def test_after_a_long_rest_an_actor_is_told_to_leave_once(stage: Stage) -> None:
    actor = started(stage)
    stage.scheduler.advance(29)
    stage.tell(m.LookAround())
    assert m.Passivate() not in actor.told
    stage.scheduler.advance(2)
    stage.tell(m.LookAround(), m.LookAround())
    assert actor.told.count(m.Passivate()) == 1


def test_what_a_sweep_saw_of_a_partition_that_is_lost_meanwhile_is_no_find(stage: Stage) -> None:
    stage.holdings.drop(0)
    stage.tell(m.PartitionLost(0), m.Swept([], ["e1"]), m.Recover(0, [("e2", 0.0)]))
    assert (stage.events, stage.sent, stage.lost) == ([], [], [0])
