"""A batch on its way through a cluster: who gets what, what is sent again, and what never is."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from redis.exceptions import (
    AskError,
    ClusterDownError,
    MovedError,
    NoScriptError,
    OutOfMemoryError,
    RedisError,
    TryAgainError,
)

from stepwell.store.replies import MasterLost, Refused, failure
from stepwell.store.requests import Command
from stepwell.store.routing import Routing
from stepwell.store.scripts import Scripts
from stepwell.store.slots import SLOTS, Address, SlotMap, slot_of

A, B, C = ("a", 7000), ("b", 7001), ("c", 7002)
SCRIPTS = Scripts()
LOADS = SCRIPTS.load_commands()
# "{6}" and "{2}" lie in A's slots, "{1}" in B's.
KEYS = {A: "{6}:x", B: "{1}:x"}
Answer = Callable[[Address, Command], object]


def slots() -> SlotMap:
    return SlotMap([(0, 8191, A), (8192, SLOTS - 1, B)])


def get(master: Address, name: str = "") -> Command:
    return ["GET", KEYS[master] + name]


class Travel:
    """Sends a batch through a cluster whose nodes answer as `answer` says, and keeps who was sent what."""

    def __init__(self, commands: list[Command], answer: Answer, down: tuple[Address, ...] = ()) -> None:
        self.slots = slots()
        self.sent: list[tuple[Address, list[Command]]] = []
        self.routing = Routing(commands, SCRIPTS)
        while pipelines := self.routing.round(self.slots, down):
            for pipeline in pipelines:
                self.sent.append((pipeline.master, pipeline.commands))
                if pipeline.master in down:
                    self.routing.lost(pipeline, ConnectionError("refused"))
                else:
                    raws = [answer(pipeline.master, command) for command in pipeline.commands]
                    self.routing.answered(pipeline, raws, self.slots)

    @property
    def replies(self) -> list[object]:
        return self.routing.replies


def fine(master: Address, command: Command) -> object:
    return (master[0], command[-1])


def script(master: Address) -> Command:
    return ["EVALSHA", SCRIPTS.unlist, 1, KEYS[master]]


def with_text(master: Address) -> Command:
    return ["EVAL", SCRIPTS.sources["unlist"], 1, KEYS[master]]


def lacking(master: Address, command: Command) -> object:
    """A master that forgets its scripts again and again."""
    return NoScriptError("none") if command[0] == "EVALSHA" else fine(master, command)


def moved(slot_key: str, to: Address) -> MovedError:
    return MovedError(f"{slot_of(slot_key)} {to[0]}:{to[1]}")


def test_the_keys_of_these_tests_lie_where_they_should() -> None:
    assert [slots().master_of(slot_of(KEYS[master])) for master in (A, B)] == [A, B]


def test_each_master_gets_one_pipeline_in_the_order_of_the_batch_and_replies_are_sorted_back() -> None:
    travel = Travel([get(A, "1"), get(B, "1"), get(A, "2"), ["TIME"], get(B, "2")], fine)
    assert travel.sent == [(A, [get(A, "1"), get(A, "2"), ["TIME"]]), (B, [get(B, "1"), get(B, "2")])]
    assert travel.replies == [
        ("a", "{6}:x1"), ("b", "{1}:x1"), ("a", "{6}:x2"), ("a", "TIME"), ("b", "{1}:x2"),
    ]  # fmt: skip
    assert travel.routing.moved is None
    assert not travel.routing.stale


@pytest.mark.pain(14)
def test_only_what_moved_is_sent_again_and_in_its_order() -> None:
    gone = {"{6}:x2", "{6}:x3"}

    def answer(master: Address, command: Command) -> object:
        return moved("{6}:x", C) if master == A and command[-1] in gone else fine(master, command)

    travel = Travel([get(A, "1"), get(A, "2"), get(B), get(A, "3")], answer)
    assert travel.sent[2:] == [(C, [get(A, "2"), get(A, "3")])]
    assert travel.replies == [("a", "{6}:x1"), ("c", "{6}:x2"), ("b", "{1}:x"), ("c", "{6}:x3")]
    assert travel.routing.moved == C
    assert travel.slots.master_of(slot_of("{6}:x")) == C, "whoever comes next knows"


def test_a_node_that_names_no_host_means_itself() -> None:
    def answer(master: Address, command: Command) -> object:
        return MovedError(f"{slot_of('{6}:x')} :7009") if master == A else fine(master, command)

    assert Travel([get(A)], answer).sent[1] == (("a", 7009), [get(A)])


@pytest.mark.pain(14)
def test_what_is_asked_elsewhere_once_is_not_remembered() -> None:
    def answer(master: Address, command: Command) -> object:
        if master == A:
            return AskError(f"{slot_of('{6}:x')} b:7001") if command[-1] == "{6}:x1" else fine(master, command)
        return "OK" if command == ["ASKING"] else fine(master, command)

    travel = Travel([get(A, "1"), get(A, "2")], answer)
    assert travel.sent[1:] == [(B, [["ASKING"], get(A, "1")])]
    assert travel.replies == [("b", "{6}:x1"), ("a", "{6}:x2")]
    assert travel.slots.master_of(slot_of("{6}:x")) == A
    assert travel.routing.moved is None


def test_a_map_from_a_node_that_has_not_heard_of_a_move_does_not_send_in_circles() -> None:
    routing = Routing([get(A)], SCRIPTS)
    [pipeline] = routing.round(slots(), ())
    routing.answered(pipeline, [moved(KEYS[A], B)], slots())
    [pipeline] = routing.round(slots(), ())
    assert pipeline.master == B


def test_a_master_that_lacks_a_script_gets_all_and_then_only_what_it_refused() -> None:
    scripts = [script(A), get(A), script(B)]
    travel = Travel(scripts, lacking)
    assert travel.sent[2:] == [(A, [*LOADS, with_text(A)]), (B, [*LOADS, with_text(B)])]
    assert travel.replies == [("a", KEYS[A]), ("a", KEYS[A]), ("b", KEYS[B])]


def test_a_script_that_is_asked_for_where_it_is_not_loaded_is_asked_for_again() -> None:
    def answer(master: Address, command: Command) -> object:
        if master == A:
            return AskError(f"{slot_of(KEYS[A])} b:7001")
        return lacking(master, command)

    travel = Travel([script(A)], answer)
    assert travel.sent[1:] == [(B, [["ASKING"], script(A)]), (B, [*LOADS, ["ASKING"], with_text(A)])]
    assert travel.replies == [("b", KEYS[A])]


@pytest.mark.parametrize("raw", [OutOfMemoryError("full"), TryAgainError("split"), ClusterDownError("down"), b"OK"])
def test_what_may_have_been_executed_or_must_wait_is_not_sent_again(raw: object) -> None:
    travel = Travel([get(A)], lambda _master, _command: raw)
    assert len(travel.sent) == 1
    assert travel.replies == [raw]
    assert travel.routing.stale is isinstance(raw, ClusterDownError)


def test_a_master_that_is_lost_costs_its_own_commands_only() -> None:
    travel = Travel([get(A, "1"), get(B), get(A, "2"), ["TIME"]], fine, down=(A,))
    assert [type(reply) for reply in travel.replies] == [MasterLost, tuple, MasterLost, tuple]
    assert travel.replies[3] == ("b", "TIME"), "the time is asked of one that lives"
    assert travel.routing.stale
    lost = travel.replies[0]
    assert isinstance(lost, RedisError)
    refused = failure(lost)
    assert isinstance(refused, Refused)
    assert (refused.kind, refused.reason) == ("UNREACHABLE", "the master a:7000 has not acknowledged it: refused")


def test_a_slot_that_moves_for_ever_is_tried_again_later() -> None:
    travel = Travel([get(A)], lambda master, _command: moved(KEYS[A], B if master == A else A))
    assert 4 <= len(travel.sent) <= 10
    assert isinstance(travel.replies[0], TryAgainError)


def test_a_slot_that_nobody_serves_is_refused_and_looked_for() -> None:
    routing = Routing([get(A), get(B)], SCRIPTS)
    [pipeline] = routing.round(SlotMap([(8192, SLOTS - 1, B)]), ())
    assert pipeline.master == B
    assert isinstance(routing.replies[0], ClusterDownError)
    assert routing.stale
