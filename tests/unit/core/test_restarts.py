"""A dead shard comes back, with growing pauses where it got nowhere; one that never gets anywhere ends the worker."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from stepwell.core.restarts import Death, RestartRules, Shard

RULES = RestartRules()
IN_VAIN = Death("killed by SIGSEGV")


def after(*deaths: Death) -> Shard:
    shard = Shard()
    for death in deaths:
        shard = RULES.after(shard, death)
    return shard


def test_pauses_grow_while_it_gets_nowhere() -> None:
    pauses = [RULES.pause(after(*[IN_VAIN] * n)) for n in range(1, 5)]
    assert pauses == [0.25, 0.5, 1.0, 2.0]


def test_a_shard_that_committed_something_comes_back_at_once() -> None:
    assert RULES.pause(after(IN_VAIN, IN_VAIN, Death("killed", committed=True))) == 0.0


def test_living_long_enough_forgives_what_was_before() -> None:
    assert after(IN_VAIN, Death("killed", lived=60.0)).in_vain == 0
    assert after(IN_VAIN, Death("killed", lived=59.9)).in_vain == 2


def test_a_death_whose_suspect_is_known_does_not_count_since_strikes_end_it() -> None:
    assert RULES.verdict(after(*[Death("hang", named=True)] * 50)) == ""


def test_it_gives_up_after_five_deaths_in_vain_and_names_the_last_causes() -> None:
    assert RULES.verdict(after(*[IN_VAIN] * 4)) == ""
    verdict = RULES.verdict(after(Death("a"), Death("b"), Death("c"), Death("c"), Death("d")))
    assert verdict == "died 5 times in a row without having committed anything: d; before that: c"


def test_a_commit_between_deaths_starts_the_count_anew() -> None:
    deaths = [IN_VAIN] * 4 + [Death("killed", committed=True)] + [IN_VAIN] * 4
    assert RULES.verdict(after(*deaths)) == ""
    assert RULES.verdict(after(*deaths, IN_VAIN)) != ""


@given(st.integers(min_value=1, max_value=10_000))
def test_the_pause_never_exceeds_its_cap(deaths: int) -> None:
    assert 0.25 <= RULES.pause(Shard(deaths)) <= 30.0
    assert RULES.pause(Shard(deaths)) <= RULES.pause(Shard(deaths + 1))
