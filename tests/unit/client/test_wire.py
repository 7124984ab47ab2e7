"""For how long a conversation has had no answer."""

from __future__ import annotations

from stepwell.actors.kit.clock import VirtualClock
from stepwell.client.moves import Ask, Hear, Recover
from stepwell.client.wire import Trouble


def test_trouble_counts_from_the_first_of_the_moves_in_a_row_that_were_not_answered():
    clock = VirtualClock()
    trouble = Trouble(clock)

    def move(made, seconds, answered):
        trouble.sends(made)
        clock.advance_to(clock.monotonic() + seconds)
        if answered:
            trouble.answered(made)
        else:
            trouble.failed()

    move(Ask([]), 1, answered=True)
    assert trouble.seconds == 0
    move(Ask([]), 5, answered=False)
    move(Recover(0.5), 0.5, answered=True)
    move(Ask([]), 5, answered=False)
    assert trouble.seconds == 10.5
    move(Ask([]), 1, answered=True)
    move(Hear(5), 3, answered=False)
    assert trouble.seconds == 3
