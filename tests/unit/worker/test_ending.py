"""The end of a worker: by a signal, by a failure, and where stopping itself goes wrong."""

from __future__ import annotations

import logging
import os
import signal
import threading
from collections.abc import Iterator
from typing import Any

import pytest

from stepwell import Worker, flow, step
from stepwell.worker import worker as worker_module

HANG_SECONDS = 50.0


@step
async def fine() -> int:
    return 1


@flow
async def calm() -> int:
    return await fine()


class Shard:
    """A shard that raises where it is told to, and notes what was asked of it."""

    def __init__(self, **errors: Exception) -> None:
        self.asked: list[str] = []
        self._errors = errors

    def drain(self, _grace: float, _hurry: threading.Event) -> None:
        self._reach("drain")

    def give_up(self) -> None:
        self._reach("give up")

    def stop(self) -> None:
        self._reach("stop")

    def _reach(self, what: str) -> None:
        self.asked.append(what)
        error = self._errors.get("drain" if what == "give up" else what)
        if error is not None:
            raise error


class Station:
    """Where the worker is; it notes that it was left."""

    left = False

    def leave(self) -> None:
        self.left = True


@pytest.fixture
def worker() -> Worker:
    made = Worker([calm], redis="redis://localhost:1")
    made._station = Station()  # type: ignore[assignment]
    return made


ERRORS: list[dict[str, Exception]] = [
    {"drain": RuntimeError("drain broke")},
    {"stop": RuntimeError("stop broke")},
    {"drain": RuntimeError("drain broke"), "stop": RuntimeError("stop broke")},
]


@pytest.mark.parametrize("errors", ERRORS, ids=lambda errors: "+".join(errors))
@pytest.mark.parametrize("failed_before", [True, False])
def test_a_worker_that_can_t_stop_in_good_order_still_leaves_and_says_why(
    worker: Worker, errors: dict[str, Exception], failed_before: bool, caplog: pytest.LogCaptureFixture
) -> None:
    station: Any = worker._station
    shard = Shard(**errors)
    worker._shard = shard  # type: ignore[assignment]
    if failed_before:
        worker._failed("the dispatcher failed")
    worker.end()
    with caplog.at_level(logging.INFO):
        assert worker.wait() == 1
    assert shard.asked == ["give up" if failed_before else "drain", "stop"], "a failed part is no drain"
    assert station.left
    [last] = [record for record in caplog.records if record.levelno == logging.CRITICAL]
    assert ("the dispatcher failed" if failed_before else "broke") in last.getMessage()
    assert all(record.exc_info is None for record in caplog.records), "a traceback is for those who ask for it"


def test_stopping_by_oneself_tells_what_went_wrong_and_leaves_all_the_same(worker: Worker) -> None:
    station: Any = worker._station
    worker._shard = Shard(stop=RuntimeError("stop broke"))  # type: ignore[assignment]
    with pytest.raises(RuntimeError, match="stop broke"):
        worker.stop()
    assert station.left
    worker.stop()


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_ends_the_wait_and_a_second_one_ends_the_process(
    worker: Worker, number: signal.Signals, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    exits: list[int] = []
    monkeypatch.setattr(os, "_exit", exits.append)
    worker._signalled(number, None)
    assert exits == []
    with caplog.at_level(logging.INFO):
        assert worker.wait() == 0
    assert f"got {number.name}: draining" in caplog.text
    worker._signalled(number, None)
    assert exits == [128 + number]


def test_a_signals_handler_takes_no_lock_and_writes_no_log(worker: Worker, monkeypatch: pytest.MonkeyPatch) -> None:
    """It may interrupt the thread that holds the very lock: what it did not release it can't take."""

    class Held:
        def __enter__(self) -> None:
            raise AssertionError("the handler waits for itself")

        def __exit__(self, *_: object) -> None: ...

        acquire = __enter__

    for value in vars(worker).values():
        if isinstance(value, threading.Event):
            monkeypatch.setattr(value, "_cond", Held())
    monkeypatch.setattr(worker_module, "logger", None)
    worker._signalled(signal.SIGTERM, None)


@pytest.fixture
def handlers() -> Iterator[None]:
    """Puts back whoever heard of signals before."""
    before = {number: signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)}
    yield
    for number, handler in before.items():
        signal.signal(number, handler)


@pytest.mark.threads
@pytest.mark.usefixtures("handlers")
@pytest.mark.parametrize("how", ["signal", "signal to another thread", "end", "failure"])
def test_a_wait_that_has_begun_is_ended(worker: Worker, how: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(worker_module, "LOOK_SECONDS", 0.01)
    begun = threading.Event()
    get = worker._wake.get

    class Wake:
        put = worker._wake.put

        def get(self, timeout: float) -> None:
            begun.set()
            get(timeout=timeout)

    def end() -> None:
        begun.wait(HANG_SECONDS)
        if how == "signal":
            os.kill(os.getpid(), signal.SIGTERM)
        elif how == "signal to another thread":
            signal.pthread_kill(threading.get_ident(), signal.SIGTERM)
        elif how == "end":
            worker.end()
        else:
            worker._failed("on purpose")

    worker._wake = Wake()  # type: ignore[assignment]
    worker.install_signals()
    other = threading.Thread(target=end, daemon=True)
    other.start()
    assert worker.wait() == (1 if how == "failure" else 0)
    other.join(HANG_SECONDS)
