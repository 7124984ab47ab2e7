"""What waits to be let in: in which order, within which limits, how fast."""

from __future__ import annotations

import pytest

from stepwell.actors.admission import BURST, Admission, Comeback, Start


class Gate(Admission):
    """An Admission whose user counts who begins, as the dispatcher does."""

    def __init__(self, running_max: int = 1000, **flow_max: int) -> None:
        super().__init__(running_max, flow_max.get)
        self.flows: dict[str, str] = {}
        self._bells = 0

    def bell(self, execution_id: str, flow: str = "", partition: int = 0) -> str:
        self._bells += 1
        entry_id = f"{self._bells}-0"
        self.flows[execution_id] = flow
        self.ring(Start(execution_id, partition, entry_id, flow))
        return entry_id

    def let_in(self, now: float = 0.0) -> list[str]:
        found = []
        while (candidate := self.next(now)) is not None:
            found.append(candidate.execution_id)
            if isinstance(candidate, Start) or candidate.busy:
                self.began(self.flows.get(candidate.execution_id, ""))
        return found

    def ended(self, execution_id: str) -> None:
        self.rested(self.flows.get(execution_id, ""))


def test_starts_come_in_as_far_as_there_is_room_and_in_order() -> None:
    gate = Gate(2)
    for name in ("a", "b", "c"):
        gate.bell(name)
    assert gate.let_in() == ["a", "b"]
    assert gate.waiting
    gate.ended("a")
    assert gate.let_in() == ["c"]
    assert not gate.waiting


@pytest.mark.pain(44)
def test_the_one_start_of_a_flow_takes_the_next_free_place_before_the_crowd_of_another() -> None:
    gate = Gate(3)
    for n in range(10_000):
        gate.bell(f"a{n}", "crowd")
    assert gate.let_in() == ["a0", "a1", "a2"]
    gate.bell("b", "single")
    gate.ended("a0")
    first = gate.let_in()
    gate.ended("a1")
    assert "b" in first + gate.let_in()


@pytest.mark.pain(44)
def test_a_flow_at_its_own_limit_keeps_its_order_and_holds_up_nobody_else() -> None:
    gate = Gate(10, narrow=2)
    for n in range(4):
        gate.bell(f"n{n}", "narrow")
    for n in range(3):
        gate.bell(f"w{n}", "wide")
    assert sorted(gate.let_in()) == ["n0", "n1", "w0", "w1", "w2"]
    gate.ended("w0")
    assert gate.let_in() == []
    gate.ended("n1")
    assert gate.let_in() == ["n2"]
    gate.ended("n0")
    gate.ended("n2")
    assert gate.let_in() == ["n3"]


def test_what_is_overdue_comes_in_due_order_whatever_partition_it_is_of() -> None:
    gate = Gate()
    gate.bring_back(1, [("late", 900), ("latest", 999)], now_ms=1000)
    gate.bring_back(0, [("first", 0), ("middle", 500)], now_ms=1000)
    assert gate.let_in() == ["first", "middle", "late", "latest"]


def test_what_only_rests_needs_no_place_and_comes_in_due_order() -> None:
    gate = Gate(0)
    gate.bring_back(0, [("later", 3000), ("soon", 2000), ("overdue", 1000)], now_ms=1000)
    assert gate.next(0.0) == Comeback("soon", busy=False)
    assert gate.next(0.0) == Comeback("later", busy=False)
    assert gate.next(0.0) is None
    assert gate.knows("overdue")


def test_starts_and_what_is_overdue_take_turns() -> None:
    gate = Gate(1)
    gate.bring_back(0, [(f"o{n}", 0) for n in range(100)], now_ms=1)
    gate.bell("start")
    seen: list[str] = []
    for _ in range(3):
        seen += gate.let_in()
        gate.ended(seen[-1])
    assert "start" in seen


@pytest.mark.pain(4)
def test_a_herd_is_let_in_ever_faster_and_new_starts_don_t_wait_for_it() -> None:
    gate = Gate(100_000)
    gate.bring_back(0, [(f"o{n}", n) for n in range(10 * BURST)], now_ms=100_000)
    assert len(gate.let_in(7.0)) == BURST
    assert gate.ramp_until is not None
    assert gate.ramp_until > 7.0
    gate.bell("start")
    assert gate.let_in(7.0) == ["start"]
    counts = [len(gate.let_in(7.0 + seconds)) for seconds in (1, 2, 3, 4)]
    assert counts == [BURST, 2 * BURST, 4 * BURST, 2 * BURST]
    assert gate.ramp_until is None


def test_a_doorbell_that_waits_is_known_until_it_is_let_in() -> None:
    gate = Gate(0)
    entry = gate.bell("a")
    assert gate.has_entry(0, entry)
    assert not gate.has_entry(1, entry)
    assert gate.knows("a")
    gate._running_max = 1
    gate.let_in()
    assert not gate.has_entry(0, entry)
    assert not gate.knows("a")


def test_a_lost_partition_takes_what_waits_along() -> None:
    gate = Gate(0)
    kept = gate.bell("kept", "f", partition=1)
    lost = gate.bell("lost", "f", partition=0)
    gate.bring_back(0, [("lost too", 0), ("lost as well", 9)], now_ms=5)
    gate.bring_back(1, [("kept too", 0)], now_ms=5)
    gate.drop_partitions({0})
    assert gate.has_entry(1, kept)
    assert not gate.has_entry(0, lost)
    assert not any(gate.knows(each) for each in ("lost", "lost too", "lost as well"))
    gate._running_max = 10
    assert sorted(gate.let_in()) == ["kept", "kept too"]


def test_while_it_drains_nobody_comes_in() -> None:
    gate = Gate()
    gate.bell("a")
    gate.bring_back(0, [("b", 0), ("c", 9)], now_ms=5)
    gate.draining = True
    assert gate.let_in() == []
    assert gate.full


def test_a_flow_with_a_limit_waits_until_it_is_known_who_runs_already() -> None:
    gate = Gate(10, narrow=2)
    gate.recovering = True
    gate.bell("n0", "narrow")
    gate.bell("w0", "wide")
    assert gate.let_in() == ["w0"]
    gate.bring_back(0, [("came back", 0)], now_ms=5)
    gate.recovering = False
    assert gate.let_in() == ["came back"]
    gate.rested("")  # its row is read
    gate.began("narrow")
    assert gate.let_in() == ["n0"]
    gate.bell("n1", "narrow")
    assert gate.let_in() == []


def test_what_a_partition_that_leaves_has_waiting_never_comes_and_comes_once_when_it_is_back() -> None:
    gate = Gate(1000)
    for n in range(6):
        gate.ring(Start(f"e{n}", n % 2, f"{n}-0", "f"))
    gate.drop_partitions({0})
    assert [gate.has_entry(n % 2, f"{n}-0") for n in range(6)] == [False, True] * 3
    assert not gate.knows("e0")
    for n in (4, 2, 0):
        gate.ring(Start(f"e{n}", 0, f"{n}-0", "f"))
    assert sorted(gate.let_in()) == [f"e{n}" for n in range(6)]
    assert not gate.waiting
    assert gate.let_in() == []


def test_partitions_that_leave_one_by_one_cost_what_they_have_waiting_and_not_what_all_have(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    gate = Gate(1)
    looks: list[str] = []
    counts = Admission._counts
    monkeypatch.setattr(Admission, "_counts", lambda self, start: looks.append("") or counts(self, start))  # type: ignore[func-returns-value]
    for n in range(6400):
        gate.ring(Start(f"e{n}", n % 64, f"{n}-0", "f"))
    for partition in range(63):
        gate.drop_partitions({partition})
        for _ in range(3):  # which also come and go
            gate.ring(Start(f"p{partition}", partition, "1-1", "f"))
            gate.drop_partitions({partition})
    assert len(looks) < 3 * 6400
    assert gate.let_in() == ["e63"]
    gate.drop_partitions({63})
    assert not gate.waiting
    assert len(gate._starts) == 0, "nothing is kept of those that left"
