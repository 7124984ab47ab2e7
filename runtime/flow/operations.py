"""What a flow can wait for. Awaiting an operation yields it to the driver, which answers with its outcome."""

from __future__ import annotations

import inspect
import threading
from collections.abc import Awaitable, Generator
from datetime import timedelta
from typing import TYPE_CHECKING, Any, Generic, TypeVar, overload

from stepwell.core.durations import SECONDS_MAX
from stepwell.core.durations import seconds as checked_seconds
from stepwell.core.errors import DriverClosing, UsageError
from stepwell.core.names import check_name

if TYPE_CHECKING:
    from stepwell.flow.definitions import Step

T = TypeVar("T")
T1 = TypeVar("T1")
T2 = TypeVar("T2")
T3 = TypeVar("T3")
T4 = TypeVar("T4")
T5 = TypeVar("T5")


class Driving:
    """Marks that flow code runs under a driver; `closing`: it is being taken out of memory.

    It remembers the operations that were called and not awaited yet: a forgotten `await` must not go unnoticed.
    """

    __slots__ = ("_earlier", "_latest", "closing")

    def __init__(self) -> None:
        self.closing = False
        self._latest: Operation[Any] | None = None  # nearly always it is awaited at once
        self._earlier: dict[int, Operation[Any]] | None = None  # none most of the time: a dict costs 200 bytes a flow

    def called(self, operation: Operation[Any]) -> None:
        """The flow's code has made an operation."""
        if self._latest is not None:
            if self._earlier is None:
                self._earlier = {}
            self._earlier[id(self._latest)] = self._latest
        self._latest = operation

    def awaited(self, operation: object) -> None:
        """It waits for that operation, by itself or in a gather."""
        if operation is self._latest:
            self._latest = None
        elif self._earlier is not None:
            self._earlier.pop(id(operation), None)
            if not self._earlier:
                self._earlier = None

    def forgotten(self) -> list[Operation[Any]]:
        """Operations that the code has called and never awaited."""
        earlier = list((self._earlier or {}).values())
        return earlier if self._latest is None else [*earlier, self._latest]


class _Current(threading.local):
    """The driver whose flow code runs on this thread.

    No ContextVar: one that is set by a finaliser, while the collector runs inside `ContextVar.set`, ends the process
    (CPython 3.11), and a driver that is collected takes its code out of memory.
    """

    driver: Driving | None = None  # None outside of flow code


driving = _Current()


class Operation(Generic[T]):
    """Something that takes time and is recorded. Await it inside a flow."""

    __slots__ = ()

    def __await__(self) -> Generator[Operation[T], T, T]:
        state = driving.driver
        if state is None:
            raise UsageError(f"{self!r} was awaited outside a flow: call it inside an `async def` decorated with @flow")
        if state.closing:
            self._discard()
            raise DriverClosing
        state.awaited(self)
        return (yield self)

    def _discard(self) -> None:
        """It will never be waited for."""


NO_KWARGS: dict[str, object] = {}
"""Of all calls without any: nobody changes it, and while a step is open its call is held."""


class StepCall(Operation[T]):
    """One call of a step, with its arguments."""

    __slots__ = ("args", "kwargs", "step")

    def __init__(self, step: Step[..., T], args: tuple[Any, ...], kwargs: dict[str, object]) -> None:
        self.step = step
        self.args = args
        self.kwargs = kwargs or NO_KWARGS

    def __repr__(self) -> str:
        return f"step {self.step.name}"


class Sleep(Operation[None]):
    """A durable timer."""

    __slots__ = ("seconds",)

    def __init__(self, seconds: float) -> None:
        self.seconds = seconds

    def __repr__(self) -> str:
        return f"sleep({self.seconds:g})"


class WaitFor(Operation[Any]):
    """A wait for a signal."""

    __slots__ = ("name", "seconds")

    def __init__(self, name: str, seconds: float | None) -> None:
        self.name = name
        self.seconds = seconds

    def __repr__(self) -> str:
        return f"wait_for({self.name!r})"


class Gather(Operation[list[Any]]):
    """Several branches at once."""

    __slots__ = ("branches",)

    def __init__(self, branches: tuple[Awaitable[Any], ...]) -> None:
        self.branches = branches

    def __repr__(self) -> str:
        return f"gather of {len(self.branches)}"

    def _discard(self) -> None:
        for branch in self.branches:
            if inspect.iscoroutine(branch):
                branch.close()


def _made(operation: Operation[T]) -> Operation[T]:
    state = driving.driver
    if state is not None:
        state.called(operation)
    return operation


def minutes(n: float) -> float:
    """`n` minutes in seconds. Raises UsageError for a negative or odd number."""
    return _in_units(n, 60.0, "minutes()")


def hours(n: float) -> float:
    """`n` hours in seconds. Raises UsageError for a negative or odd number."""
    return _in_units(n, 3600.0, "hours()")


def days(n: float) -> float:
    """`n` days in seconds. Raises UsageError for a negative or odd number."""
    return _in_units(n, 86400.0, "days()")


def _in_units(n: float, unit: float, what: str) -> float:
    # What is no number fails the check as it is; a whole number beyond all floats would fail the product.
    fits = isinstance(n, int | float) and not isinstance(n, bool) and 0 <= n <= SECONDS_MAX
    return checked_seconds(n * unit if fits else n, what)


def sleep(
    seconds: float | timedelta = 0.0, *, minutes: float = 0.0, hours: float = 0.0, days: float = 0.0
) -> Operation[None]:
    """Wait durably: `await sleep(30)`, `await sleep(hours=1)`. Costs no thread; survives restarts.

    Raises:
        UsageError: a negative or odd duration.
    """
    total = checked_seconds(seconds, "sleep()")
    if minutes or hours or days:
        for n, unit in ((minutes, 60.0), (hours, 3600.0), (days, 86400.0)):
            total += _in_units(n, unit, "sleep()")
        total = checked_seconds(total, "sleep()")
    return _made(Sleep(total))


def wait_for(name: str, timeout: float | timedelta | None = None) -> Operation[Any]:
    """Wait for the signal `name` and return its payload (plain JSON data). A signal that came before is kept.

    Args:
        name: the signal's name.
        timeout: seconds (or a timedelta) after which `SignalTimeout` is raised; None waits for ever.
    """
    seconds = None if timeout is None else checked_seconds(timeout, "the timeout of wait_for()")
    return _made(WaitFor(check_name("signal", name), seconds))


@overload
def gather(b1: Awaitable[T1], b2: Awaitable[T2], /) -> Awaitable[tuple[T1, T2]]: ...
@overload
def gather(b1: Awaitable[T1], b2: Awaitable[T2], b3: Awaitable[T3], /) -> Awaitable[tuple[T1, T2, T3]]: ...
@overload
def gather(
    b1: Awaitable[T1], b2: Awaitable[T2], b3: Awaitable[T3], b4: Awaitable[T4], /
) -> Awaitable[tuple[T1, T2, T3, T4]]: ...
@overload
def gather(*branches: Awaitable[T]) -> Awaitable[list[T]]: ...
def gather(*branches: Awaitable[Any]) -> Awaitable[Any]:
    """Run operations (or `async def` helpers of the flow) side by side; returns their results in order.

    If one fails, nothing new starts, what runs ends and is recorded, then the failure is raised here.
    """
    for branch in branches:
        if not inspect.isawaitable(branch):
            raise UsageError(f"gather() takes what can be awaited, one by one, got {branch!r}: call gather(*branches)")
    return _made(Gather(branches))
