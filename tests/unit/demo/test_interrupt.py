"""No signal is missed, wherever it comes."""

from __future__ import annotations

import signal
from collections.abc import Iterator

import pytest

from stepwell.demo.interrupt import Interrupt

SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


@pytest.fixture
def heeded() -> Iterator[None]:
    """As in a terminal: whoever runs the tests may have them ignored."""
    before = {number: signal.signal(number, signal.default_int_handler) for number in SIGNALS}
    yield
    for number, handler in before.items():
        signal.signal(number, handler)


class Finalized:
    def __init__(self, number: signal.Signals) -> None:
        self._number = number

    def __del__(self) -> None:
        self._clear_away()

    def _clear_away(self) -> None:
        signal.raise_signal(self._number)


@pytest.mark.parametrize("number", SIGNALS)
def test_a_signal_interrupts_at_once(number: signal.Signals, heeded: None) -> None:
    before = signal.getsignal(number)
    with pytest.raises(KeyboardInterrupt), Interrupt():
        signal.raise_signal(number)
    assert signal.getsignal(number) is before


@pytest.mark.parametrize("number", SIGNALS)
def test_a_signal_amid_a_finalizer_interrupts_at_the_next_look(number: signal.Signals, heeded: None) -> None:
    with Interrupt() as interrupt:
        interrupt.check()
        made = Finalized(number)
        del made
        with pytest.raises(KeyboardInterrupt):
            interrupt.check()


def test_what_is_ignored_stays_ignored(heeded: None) -> None:
    signal.signal(signal.SIGHUP, signal.SIG_IGN)
    with Interrupt() as interrupt:
        signal.raise_signal(signal.SIGHUP)
        interrupt.check()
