"""Masters that did not answer are left alone for a while, and then have to prove that they live."""

from __future__ import annotations

import pytest

from stepwell.store.flight import LinkDown
from stepwell.store.outages import MOST_SECONDS, Outages

A, B = ("a", 1), ("b", 2)


class Watch:
    now = 100.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def watch() -> Watch:
    return Watch()


@pytest.fixture
def outages(watch: Watch) -> Outages:
    return Outages(watch)


def test_nobody_is_suspected_at_first(outages: Outages) -> None:
    assert not outages.must_prove(A)
    assert list(outages.all) == []


def test_whoever_failed_is_left_alone_and_then_tested(outages: Outages, watch: Watch) -> None:
    assert outages.failed(A)
    with pytest.raises(LinkDown):
        outages.must_prove(A)
    assert not outages.failed(A), "it was not even tried"
    assert not outages.must_prove(B)
    watch.now += 0.26
    assert outages.must_prove(A)
    outages.clear(A)
    assert not outages.must_prove(A)


def test_the_pauses_grow_to_a_limit_and_begin_anew_after_an_answer(outages: Outages, watch: Watch) -> None:
    def pause() -> float:
        assert outages.failed(A)
        began = watch.now
        while True:
            try:
                outages.must_prove(A)
            except LinkDown:
                watch.now += 0.0625
            else:
                return watch.now - began

    assert [pause() for _ in range(6)] == [0.25, 0.5, 1.0, 2.0, 2.0, 2.0]
    assert MOST_SECONDS == 2.0
    outages.clear(A)
    assert pause() == 0.25


def test_who_serves_what_is_asked_now_and_then_only(outages: Outages, watch: Watch) -> None:
    assert outages.may_look()
    assert not outages.may_look()
    watch.now += 0.25
    assert outages.may_look()
