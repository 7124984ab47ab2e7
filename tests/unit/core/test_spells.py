"""Of a trouble its begin and its end are told; of one that comes and goes, once."""

from __future__ import annotations

import pytest

from stepwell.core.spells import CALM_SECONDS, Begin, Spells


def test_an_outage_is_told_when_it_begins_and_when_it_is_over():
    spells = Spells()
    assert spells.works(1) is None
    assert [spells.fails(now) for now in (2, 3, 4)] == [Begin.NEW, Begin.KNOWN, Begin.KNOWN]
    assert spells.works(7.5) == 5.5
    assert spells.works(8) is None
    assert spells.fails(7.5 + CALM_SECONDS) is Begin.NEW, "that is another one"
    assert spells.works(40) == 2.5


def test_one_that_comes_and_goes_is_told_once_and_when_it_has_stayed_away():
    spells = Spells()
    told: list[object] = []
    for now in range(10, 1000):
        if now % 6 < 3:
            told.append(spells.fails(now))
        else:
            told.append(spells.works(now))
    said = [each for each in told if each not in (None, Begin.KNOWN)]
    assert said == [Begin.NEW, 3, Begin.RESTLESS], "and then nothing, for a thousand seconds"
    assert spells.works(1000) is None
    assert spells.works(999 + CALM_SECONDS - 1) is None
    assert spells.works(999 + CALM_SECONDS) == 999 - 12, "from its very begin to when it stayed away"
    assert spells.fails(999 + CALM_SECONDS + 1) is Begin.NEW


@pytest.mark.parametrize("again", [1, CALM_SECONDS - 1])
def test_whatever_comes_back_before_it_has_stayed_away_starts_the_wait_anew(again):
    spells = Spells()
    spells.fails(0)
    spells.works(1)
    assert spells.fails(2) is Begin.RESTLESS
    assert spells.works(3) is None
    assert spells.fails(3 + again) is Begin.KNOWN
    assert spells.works(4 + again) is None
    assert spells.works(3 + CALM_SECONDS) is None
    assert spells.works(4 + again + CALM_SECONDS) == 4 + again
