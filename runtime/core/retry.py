"""The retry policy: how often, how long, and which errors.

Delay after failed attempt k: `floor = min(cap, base * factor**(k-1))`, then `floor * (1 + jitter * U)` with
U in [0, 1) from token and attempt. Never under its floor, growing until the cap.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

from stepwell.core.durations import seconds
from stepwell.core.errors import DefinitionError, FatalError, PayloadError, RetryAfter
from stepwell.core.token import unit_interval

MAX_ATTEMPTS_LIMIT = 1_000_000
JITTER_MAX = 10.0

_DURATIONS = ("base", "cap", "retry_after_max")
_RANGES = {"factor": (1.0, 1e6), "jitter": (0.0, JITTER_MAX)}


@dataclass(frozen=True, slots=True)
class Retry:
    """A step's retry policy.

    Attributes:
        max_attempts: tries of one logical step, the first one included (>= 1).
        base: seconds of the first delay.
        factor: growth of the delay per attempt (1 = constant).
        cap: seconds that the delay's floor never exceeds.
        jitter: share of the floor that is added at most, spread evenly (0 = none).
        retry_after_max: seconds that a `RetryAfter` may ask for at most.
        give_up_on: exception classes that end the step at once.
        retry_on: exception classes that are tried again; any other `Exception` ends the step at once. What is none, as
            `SystemExit` or `CancelledError`, is tried again like these.

    Raises:
        DefinitionError: a value is out of range, or 1 < factor < 1 + jitter (delays could shrink).
    """

    max_attempts: int = 5
    base: float = 1.0
    factor: float = 2.0
    cap: float = 60.0
    jitter: float = 0.2
    retry_after_max: float = 3600.0
    give_up_on: tuple[type[BaseException], ...] = ()
    retry_on: tuple[type[BaseException], ...] = (Exception,)

    def __post_init__(self) -> None:
        if type(self.max_attempts) is not int or not 1 <= self.max_attempts <= MAX_ATTEMPTS_LIMIT:
            raise DefinitionError(
                f"expected Retry max_attempts to be a whole number from 1 to {MAX_ATTEMPTS_LIMIT},"
                f" got {self.max_attempts!r}"
            )
        for name in _DURATIONS:
            given = seconds(getattr(self, name), f"Retry {name}", error=DefinitionError)
            object.__setattr__(self, name, given)  # frozen
        for name, (least, most) in _RANGES.items():
            value = getattr(self, name)
            if isinstance(value, bool) or not isinstance(value, int | float) or not least <= value <= most:
                raise DefinitionError(f"expected Retry {name} to be a number from {least:g} to {most:g}, got {value!r}")
        if 1 < self.factor < 1 + self.jitter:
            raise DefinitionError(
                f"Retry factor {self.factor:g} is under 1 + jitter ({1 + self.jitter:g}): delays could shrink;"
                " raise factor or lower jitter"
            )
        for name in ("give_up_on", "retry_on"):
            classes = getattr(self, name)
            if not isinstance(classes, tuple) or not all(_is_exception_class(c) for c in classes):
                raise DefinitionError(f"expected Retry {name} to be a tuple of exception classes, got {classes!r}")

    def floor(self, failure: int) -> float:
        """Least delay in seconds after the `failure`-th failed attempt (from 1) of the budget."""
        if not self.base:
            return 0.0
        try:
            grown = self.base * float(self.factor) ** (failure - 1)
        except OverflowError:
            grown = math.inf
        return min(float(self.cap), grown)

    def bounds(self, failure: int) -> tuple[float, float]:
        """Least and most delay in seconds after the `failure`-th failed attempt of the budget."""
        floor = self.floor(failure)
        return floor, floor * (1 + self.jitter)

    def delay(self, token: str, attempt: int, failure: int | None = None, retry_after: float | None = None) -> float:
        """Exact delay in seconds after failed attempt number `attempt` of the step with this token.

        `failure` counts within the current budget (the attempt number unless a manual retry renewed the
        budget). `retry_after` is what the error asked for: the longer of both counts, up to `retry_after_max`.
        """
        floor = self.floor(attempt if failure is None else failure)
        own = floor * (1 + self.jitter * unit_interval(token, attempt))
        if retry_after is None or math.isnan(retry_after):
            return own
        return max(own, min(max(retry_after, 0.0), self.retry_after_max))

    def schedule(self, token: str) -> list[float]:
        """The exact delays in seconds between the attempts of a step with this token (first 100 at most)."""
        return [self.delay(token, k) for k in range(1, min(self.max_attempts, 101))]


def _is_exception_class(value: object) -> bool:
    return isinstance(value, type) and issubclass(value, BaseException)


@dataclass(frozen=True, slots=True)
class Verdict:
    """What an error means for its step: try again (not before `retry_after` seconds, if given) or give up."""

    retryable: bool
    retry_after: float | None = None
    reason: str = ""


def classify(error: BaseException, policy: Retry) -> Verdict:
    """Judge one attempt's error by the policy.

    Order: `FatalError`, payload and definition errors end the step, then `give_up_on`, then `RetryAfter`, then
    `retry_on`. Errors outside `Exception` (a step that calls `sys.exit`) count as failed attempts like any other.
    """
    if isinstance(error, FatalError):
        return Verdict(False, reason="fatal")
    if isinstance(error, PayloadError):
        return Verdict(False, reason="payload")
    if isinstance(error, DefinitionError):
        return Verdict(False, reason="definition")
    if isinstance(error, policy.give_up_on):
        return Verdict(False, reason="give_up_on")
    if isinstance(error, RetryAfter):
        return Verdict(True, retry_after=error.seconds)
    if isinstance(error, policy.retry_on) or not isinstance(error, Exception):
        return Verdict(True)
    return Verdict(False, reason="not in retry_on")
