"""Durations: what is taken, and what is refused in words, wherever one may be given."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from datetime import timedelta
from typing import Any

import pytest

from stepwell import Retry, RetryAfter, days, flow, hours, minutes, sleep, step, wait_for
from stepwell.actors.kit.clock import VirtualClock
from stepwell.client.address import Address
from stepwell.client.talk import Talk
from stepwell.core.durations import parsed, seconds
from stepwell.core.errors import DefinitionError, StepwellError, UsageError
from stepwell.http import send
from stepwell.testing import LocalRun
from stepwell.worker.config import WorkerConfig
from stepwell.worker.worker import Worker

ODD = [
    float("nan"),
    float("inf"),
    float("-inf"),
    -1,
    -0.001,
    3.3e9,
    10**400,
    -(10**5000),
    True,
    "5",
    timedelta(days=-1),
]


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("90", 90), ("90s", 90), ("1.5", 1.5), (".5", 0.5), ("10m", 600), ("2h", 7200), ("1h30m", 5400),
        ("1d", 86_400), ("0", 0), ("250ms", 0.25), (" 5 ", 5), ("1000000000", 1e9),
    ],
)  # fmt: skip
def test_texts(text: str, expected: float) -> None:
    assert parsed(text, "it") == expected


@pytest.mark.parametrize(
    "text",
    [
        "",
        "m",
        "-5m",
        "-5",
        "ago",
        "2h ago",
        "90s AGO",
        "now",
        "Now",
        "1e9",
        "1e400",
        "nan",
        "inf",
        "-inf",
        "9" * 40,
        "2026-01-01",
        "9999999w",
        "٣x",
    ],
)
def test_a_text_that_is_none_is_refused_with_examples(text: str) -> None:
    with pytest.raises(UsageError, match=r"expected it to be a number of seconds from 0 to 3.2e9 .*90s, 10m or 1h30m"):
        parsed(text, "it")


@pytest.mark.parametrize(
    "given", ODD, ids=lambda each: f"{type(each).__name__} {each!s:.9}" if each != -(10**5000) else ""
)
def test_what_is_no_duration_is_refused(given: object) -> None:
    with pytest.raises(UsageError, match=r"expected the wait to be a number of seconds from 0 to 3\.2e9") as refused:
        seconds(given, "the wait")
    assert len(str(refused.value)) < 200


def test_bounds_and_what_lies_on_them() -> None:
    assert seconds(timedelta(minutes=2), "it") == 120.0
    assert seconds(3.2e9, "it") == 3.2e9
    assert seconds(0, "it") == 0.0
    with pytest.raises(UsageError, match="above 0, up to 5, got 0"):
        seconds(0, "it", above=True, most=5)
    with pytest.raises(DefinitionError, match="from 10 to 20, got 9"):
        seconds(9, "it", least=10, most=20, error=DefinitionError)


@flow
async def nothing() -> None: ...


def _step(given: Any) -> object:
    return step(timeout=given)(len)


def _talk() -> Talk:
    return Talk("t", 1, VirtualClock())


async def _run(awaitable: Any) -> object:
    return await awaitable


def _at_once(awaitable: Any) -> object:
    """Drive what must refuse before it waits for anything."""
    coroutine = _run(awaitable)
    try:
        return coroutine.send(None)
    finally:
        coroutine.close()


PLACES: dict[str, Callable[[Any], object]] = {
    "Client.result": lambda given: next(_talk().result("e1", given)),
    "Client.retry": lambda given: next(_talk().retry("e1", given)),
    "Client.cancel": lambda given: next(_talk().cancel("e1", given)),
    "Client.signal": lambda given: next(_talk().signal("e1", "go", None, given)),
    "Client.events": lambda given: _talk().events("e1", given, True, False),
    "step(timeout)": _step,
    "Retry(base)": lambda given: Retry(base=given),
    "Retry(cap)": lambda given: Retry(cap=given),
    "Retry(retry_after_max)": lambda given: Retry(retry_after_max=given),
    "sleep": sleep,
    "sleep(minutes)": lambda given: sleep(minutes=given),
    "sleep(hours)": lambda given: sleep(hours=given),
    "sleep(days)": lambda given: sleep(days=given),
    "minutes": minutes,
    "hours": hours,
    "days": days,
    "wait_for(timeout)": lambda given: wait_for("go", timeout=given),
    "http.send(timeout)": lambda given: _at_once(send("GET", "http://localhost", timeout=given)),
    "LocalRun.signal_later": lambda given: LocalRun(nothing).signal_later(given, "go"),
    "WorkerConfig(grace)": lambda given: WorkerConfig(Address(url="redis://x"), grace=given),
    "WorkerConfig(passivate_after)": lambda given: WorkerConfig(Address(url="redis://x"), passivate_after=given),
}


@pytest.mark.parametrize("place", PLACES)
@pytest.mark.parametrize(
    "given", [float("nan"), float("inf"), -1, 10**400, 1e11], ids=["nan", "inf", "-1", "huge", "1e11"]
)
def test_every_duration_of_the_python_api_refuses_what_is_none(place: str, given: float) -> None:
    with pytest.raises(StepwellError, match="to be a number of seconds"):
        PLACES[place](given)


def test_no_duration_of_the_clients_is_left_out() -> None:
    durations = {"timeout", "grace", "passivate_after", "base", "cap", "retry_after_max", "seconds"}
    found = set()
    for owner in (Talk, LocalRun):
        for name, function in inspect.getmembers(owner, inspect.isfunction):
            if durations & set(inspect.signature(function).parameters) and not name.startswith("_"):
                found.add(f"{owner.__name__.replace('Talk', 'Client')}.{name}")
    assert found - {"LocalRun.advance"} <= set(PLACES)  # which may go back


def test_a_clock_may_be_set_back_but_not_to_nowhere() -> None:
    run = LocalRun(nothing)
    run.advance(-3600)
    for given in (float("nan"), float("-inf"), 10**400):
        with pytest.raises(UsageError, match="to be a number of seconds"):
            run.advance(given)


@flow
async def patient() -> None:
    await wait_for("go")


def _signalled_at(given: Any) -> int:
    run = LocalRun(patient)
    run.signal_later(given, "go")
    return run.run().now_ms


def _advanced_to(given: Any) -> int:
    run = LocalRun(patient)
    run.advance(given)
    return run.now_ms


def _waits_for(given: Any) -> object:
    operation: Any = wait_for("go", timeout=given)
    return operation.seconds


def _config(**given: Any) -> tuple[object, ...]:
    config = WorkerConfig(Address(url="redis://x"), **given)
    return config.grace, config.passivate_after, config.limits


def _drained_for(given: Any) -> list[object]:
    drained: list[object] = []

    class Shard:
        def drain(self, grace: object, _hurry: object) -> int:
            drained.append(grace)
            return 0

        def stop(self) -> None: ...

    worker = Worker(patient, redis="redis://x")
    worker.__dict__["_shard"] = Shard()
    worker.stop(given)
    return drained


TAKEN: dict[str, Callable[[Any], object]] = {
    "Client.events": lambda given: vars(_talk().events("e1", given, True, False))["_since"],
    "step(timeout)": lambda given: step(timeout=given)(len).timeout,
    "Retry(base)": lambda given: Retry(base=given, cap=1e6).schedule("t"),
    "Retry(cap)": lambda given: Retry(cap=given).schedule("t"),
    "Retry(retry_after_max)": lambda given: Retry(retry_after_max=given).delay("t", 1, retry_after=1e6),
    "RetryAfter": lambda given: RetryAfter(given).seconds,
    "sleep": lambda given: repr(sleep(given)),
    "wait_for(timeout)": _waits_for,
    "LocalRun.signal_later": _signalled_at,
    "LocalRun.advance": _advanced_to,
    "WorkerConfig(grace)": lambda given: _config(grace=given),
    "WorkerConfig(passivate_after)": lambda given: _config(passivate_after=given),
    "Worker.stop": _drained_for,
}
TAKEN_ELSEWHERE = {"Client.result", "Client.retry", "Client.cancel", "Client.signal", "http.send(timeout)"}
IN_UNITS = {"sleep(minutes)", "sleep(hours)", "sleep(days)", "minutes", "hours", "days"}


@pytest.mark.parametrize("given", [timedelta(seconds=12.5), timedelta(minutes=20)], ids=str)
@pytest.mark.parametrize("place", TAKEN)
def test_a_timedelta_is_what_its_seconds_are(place: str, given: timedelta) -> None:
    assert TAKEN[place](given) == TAKEN[place](given.total_seconds())


def test_where_units_are_counted_a_timedelta_is_itself() -> None:
    given: Any = timedelta(minutes=20)
    for place in IN_UNITS:
        assert repr(PLACES[place](given)) in ("1200.0", "sleep(1200)"), place


def test_every_place_that_takes_a_duration_is_tried_with_a_timedelta() -> None:
    assert set(PLACES) <= set(TAKEN) | TAKEN_ELSEWHERE | IN_UNITS
