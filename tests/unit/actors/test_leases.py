"""Leases: what may be acted on, and until when; what is taken, renewed, lost and given back."""

from __future__ import annotations

import pytest
from unit.actors.lease_stage import PARTITIONS, Stage, run_until, waits

from stepwell.actors.leases import MARGIN_SECONDS, RENEW_SECONDS, RETRY_SECONDS
from stepwell.actors.messages import PartitionLost
from stepwell.actors.store_events import Fenced, PartitionGained, PartitionGone
from stepwell.core.spells import CALM_SECONDS
from stepwell.store.leases import TTL_MS


@pytest.fixture
def stage() -> Stage:
    return Stage()


def test_free_partitions_are_taken_and_told(stage: Stage) -> None:
    stage.leases.round()
    assert stage.holdings.partitions() == stage.gained == [0, 1, 2]
    assert all(stage.holdings.may_act(p) for p in range(PARTITIONS))
    assert stage.ticks == 1


def test_a_master_that_is_away_costs_its_own_leases_only_and_is_tried_again_soon(stage: Stage) -> None:
    stage.store.silent = {1}
    stage.leases.round()
    assert stage.holdings.partitions() == [0, 2]
    stage.store.silent = set()
    stage.leases.round()
    assert stage.holdings.partitions() == [0, 1, 2]
    stage.store.silent = {2}
    before = {partition: stage.acts_until(partition) for partition in range(PARTITIONS)}
    stage.clock.advance(4.0)
    stage.leases.round()
    assert stage.acts_until(0) > before[0]
    assert stage.acts_until(2) == before[2]
    assert stage.lost == [], "whether another one has it is not known"
    assert stage.leases._due == stage.clock.monotonic() + RETRY_SECONDS
    stage.store.silent = set()
    stage.leases.round()
    assert stage.acts_until(2) > before[2]
    assert stage.leases._due == stage.clock.monotonic() + RENEW_SECONDS


def test_what_may_be_acted_on_counts_from_the_sending_of_the_request(stage: Stage) -> None:
    stage.store.seconds = 2.0
    stage.leases.round()
    # 2 s for the time and 2 s for the look around, then the request is sent.
    assert stage.acts_until(0) == pytest.approx(4.0 + TTL_MS / 1000 - MARGIN_SECONDS)
    sent = stage.clock.monotonic() + 2.0
    stage.leases.round()
    assert stage.acts_until(0) == pytest.approx(sent + TTL_MS / 1000 - MARGIN_SECONDS)


def test_without_a_renewal_nothing_may_be_acted_on_before_the_lease_lapses(stage: Stage) -> None:
    stage.leases.round()
    stage.clock.advance(TTL_MS / 1000 - MARGIN_SECONDS - 0.01)
    assert stage.holdings.may_act(1)
    stage.clock.advance(0.02)
    assert not stage.holdings.may_act(1)
    assert stage.holdings.lease(1) is not None, "it may still be ours: only the server can tell"


def test_a_renewal_that_fails_is_tried_again_soon(stage: Stage) -> None:
    stage.leases.round()
    until = stage.acts_until(0)
    assert stage.leases._due == RENEW_SECONDS
    stage.store.down = True
    stage.clock.advance(RENEW_SECONDS)
    stage.leases.run_once()
    assert stage.acts_until(0) == until
    assert (stage.troubles, stage.ticks) == (1, 1)
    assert stage.leases._due == stage.clock.monotonic() + RETRY_SECONDS
    stage.store.down = False
    stage.clock.advance(RETRY_SECONDS)
    stage.leases.run_once()
    assert stage.acts_until(0) > until


def test_a_server_that_refuses_every_other_round_is_told_once(stage: Stage, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level("INFO", "stepwell.leases")
    stage.leases.round()
    caplog.clear()
    for _ in range(100):
        for stage.store.down in (True, False):
            stage.clock.advance(RENEW_SECONDS)
            stage.leases.round()
    stage.clock.advance(CALM_SECONDS)
    stage.leases.round()
    told = [(line.levelname, line.getMessage()) for line in caplog.records]
    assert [level for level, _ in told] == ["WARNING", "INFO", "WARNING", "INFO"]
    assert told[0][1].endswith("trying again every 0.5 s")
    assert told[1][1] == "leases are renewed again, after 3.0 s"
    assert told[2][1].endswith("this comes and goes: told next when it is over for 30 s")
    assert told[3][1] == "leases are renewed again, after 597.0 s"


def test_a_lost_partition_is_dropped_told_and_asked_for_again(stage: Stage) -> None:
    stage.leases.round()
    stage.store.lost = {1}
    stage.leases.round()
    assert stage.lost == [1]
    assert stage.told == [PartitionLost(1)]
    assert [e for e in stage.events if not isinstance(e, PartitionGained)] == [
        Fenced(1, lost=True),
        PartitionGone(1, "lost"),
    ]
    assert stage.checked == [(1, None)]
    assert stage.holdings.partitions() == [0, 2]
    stage.store.lost = set()
    del stage.store.held[1]
    stage.leases.round()
    assert stage.gained == [0, 1, 2, 1]


def test_a_fenced_write_makes_it_look_at_once_and_tells_the_mirror(stage: Stage) -> None:
    stage.leases.round()
    stage.leases.recheck(2)
    stage.leases.run_once()
    assert stage.checked == [(2, stage.holdings.lease(2))]
    assert [e for e in stage.events if not isinstance(e, PartitionGained)] == [Fenced(2, lost=False)]


def test_partitions_that_another_one_has_now_are_one_line(stage: Stage, caplog: pytest.LogCaptureFixture) -> None:
    stage.leases.round()
    stage.store.lost = {0, 1, 2}
    caplog.clear()
    stage.leases.round()
    [line] = caplog.records
    assert (line.levelname, line.getMessage()) == ("WARNING", "other holds what is not ours any more: 3 partitions")
    assert line.__dict__["fields"]["which"] == "0-2"


def test_one_partition_is_told_as_one(stage: Stage, caplog: pytest.LogCaptureFixture) -> None:
    stage.leases.round()
    stage.store.lost = {1}
    caplog.clear()
    stage.leases.round()
    [line] = caplog.records
    assert line.getMessage() == "other holds what is not ours any more: 1 partition"
    assert line.__dict__["fields"]["which"] == "1"


def test_leases_that_lapsed_are_one_line_and_no_fenced_writes(stage: Stage, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level("INFO", "stepwell.leases")
    stage.leases.round()
    stage.store.lapsed = {0, 2}
    caplog.clear()
    stage.leases.round()
    [line] = caplog.records
    assert line.getMessage() == "leases had lapsed or were lost, nobody else had taken them: ours again in 2 partitions"
    assert line.__dict__["fields"]["which"] == "0, 2"
    assert stage.checked == [(0, stage.holdings.lease(0)), (2, stage.holdings.lease(2))]
    assert [e for e in stage.events if not isinstance(e, PartitionGained)] == []


def test_a_suspect_that_is_not_held_is_checked_too(stage: Stage) -> None:
    stage.store.held = {2: "other|1|i|elsewhere,boot,1,1"}
    stage.leases.round()
    stage.leases.recheck(2)
    stage.leases.run_once()
    assert stage.checked == [(2, None)]


@pytest.mark.pain(48)
def test_the_lease_of_a_dead_process_is_taken_over_at_once(stage: Stage) -> None:
    stage.store.held = {0: "x|1|i|dead,boot,9,9", 1: "x|1|i|alive,boot,9,9", 2: "garbage"}
    stage.leases.round()
    assert stage.holdings.partitions() == [0]


def test_all_is_given_back_at_the_end(stage: Stage) -> None:
    stage.leases.round()
    stage.leases.release()
    assert stage.store.released == [0, 1, 2]
    assert stage.holdings.partitions() == []
    stage.leases.release()
    assert stage.store.released == [0, 1, 2]


def test_what_comes_too_late_is_given_back_as_it_was_got(stage: Stage) -> None:
    stage.store.unclean = {1}
    stage.store.meanwhile["acquire"] = stage.leases.release
    stage.leases.round()
    assert stage.holdings.partitions() == []
    assert stage.store.held == {}
    assert stage.store.released == [0, 2]
    assert stage.store.unclean == {1}, "what the dead one left is still to be seen to"


@pytest.fixture
def waiting(stage: Stage) -> Stage:
    """A stage after its first round, whose rounds wait in virtual time."""
    return waits(stage)


def test_a_suspect_does_not_make_it_spin_while_redis_is_away(waiting: Stage) -> None:
    waiting.store.down = True
    waiting.leases.recheck(2)
    rounds = run_until(waiting, 10.0)
    assert rounds == waiting.troubles
    assert 10 / RETRY_SECONDS <= rounds <= 10 / RETRY_SECONDS + 2
    waiting.store.down = False
    waiting.leases.run_once()
    assert waiting.checked == [(2, waiting.holdings.lease(2))]


@pytest.mark.parametrize("suspects", [[], [1]])
def test_nobody_hurries_a_round_that_failed(waiting: Stage, suspects: list[int]) -> None:
    waiting.store.down = True
    for partition in suspects:
        waiting.leases.recheck(partition)
    waiting.leases.hurry()
    waiting.leases.run_once()
    assert waiting.troubles == 1
    for _ in range(50):
        waiting.leases.hurry()
        for partition in suspects:
            waiting.leases.recheck(partition)
        waiting.leases.run_once()
    assert waiting.troubles == 1, "no time has passed"
    waiting.clock.advance(RETRY_SECONDS)
    waiting.leases.run_once()
    assert waiting.troubles == 2


def test_after_a_good_round_it_can_be_hurried(waiting: Stage) -> None:
    waiting.store.down = True
    waiting.leases.hurry()
    waiting.leases.run_once()
    waiting.store.down = False
    waiting.clock.advance(RETRY_SECONDS)
    waiting.leases.run_once()
    before = waiting.store.exchanges
    waiting.leases.hurry()
    waiting.leases.run_once()
    assert waiting.store.exchanges > before


@pytest.mark.parametrize("moment", ["time", "renew", "acquire"])
def test_a_round_that_is_under_way_when_all_is_given_back_keeps_nothing(stage: Stage, moment: str) -> None:
    stage.store.held = {1: "other|1|i|elsewhere,boot,1,1"}
    stage.leases.round()
    del stage.store.held[1]  # free: the next round asks for it
    stage.store.meanwhile[moment] = stage.leases.release
    stage.leases.round()
    assert stage.store.meanwhile == {}, "the moment came"
    assert stage.holdings.partitions() == []
    assert stage.store.held == {}, "nothing is held at the server either"
    assert stage.ticks == 1, "it does not say that it lives"
    stage.leases.round()
    assert stage.holdings.partitions() == []
    assert stage.told == []


def test_a_round_that_fails_after_all_was_given_back_calls_for_no_help(stage: Stage) -> None:
    stage.leases.round()
    stage.leases.release()
    stage.store.down = True
    stage.leases.round()
    assert stage.troubles == 0


def test_the_tick_gets_the_servers_time_of_its_round(stage: Stage) -> None:
    stage.store.seconds = 0.5
    stage.leases.round()
    assert stage.told_ms == [stage.clock._start_ms + 500]
