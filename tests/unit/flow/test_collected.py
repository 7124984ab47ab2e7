"""Drivers that only the garbage collector finds, in the midst of driving others."""

from __future__ import annotations

import asyncio
import gc
import weakref
from collections.abc import Iterator
from contextvars import ContextVar

import pytest

from stepwell import flow, step, wait_for
from stepwell.flow.definitions import FlowLike
from stepwell.testing import LocalRun, local_execution

ambient = [ContextVar[int](f"ambient_{n}") for n in range(3)]


@pytest.fixture(autouse=True)
def _eager_collector() -> Iterator[None]:
    before = gc.get_threshold()
    for variable in ambient:
        variable.set(1)
    yield
    gc.set_threshold(*before)


@flow
async def waiting() -> object:
    return await wait_for("never")


class Forgotten:
    """A cycle around a run, so that no count of references frees it."""

    def __init__(self, of: FlowLike = waiting) -> None:
        self.me = self
        self.run: LocalRun = local_execution(of)


@pytest.mark.parametrize("eagerness", [1, 3, 7])
def test_a_driver_that_is_collected_while_another_drives_harms_neither(eagerness: int) -> None:
    gc.set_threshold(eagerness, 1, 1)
    for _ in range(1500):
        for _ in range(4):
            Forgotten()
        run = local_execution(waiting)
        run.signal("never", 1)
        assert run.result() == 1


@step
async def looked_up() -> int:
    return 1


@flow
async def looking() -> object:
    await looked_up()
    return await wait_for("never")


def test_a_run_that_only_the_collector_finds_closes_its_event_loop(monkeypatch: pytest.MonkeyPatch) -> None:
    """The suite turns warnings of unclosed sockets, and errors in finalizers, into failures."""
    # Older than the run: the collector comes to the loop's sockets first.
    loops = [asyncio.new_event_loop()]
    seen = weakref.ref(loops[0])
    monkeypatch.setattr(asyncio, "new_event_loop", loops.pop)
    Forgotten(looking).run.step_once()
    assert not loops
    gc.collect()
    assert seen() is None
