"""The steps that generated flows are made of. Each acts by its script: one word for each attempt, then it succeeds.

Words: `ok`; `conn`, `key`, `exit` (it raises that); `after:S` (it asks for S seconds); `fatal`; `hang` (it never ends
by itself); `odd` (a result that can't be stored), `wrong` (it does not fit the annotation), `big` (it is too large).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

from sim.bodies import work

from stepwell import FatalError, Retry, RetryAfter, Step, current_step, step
from stepwell.flow.context import StepContext

HANG_SECONDS = 3600.0
PRIME = 1_000_003


@dataclass(frozen=True)
class Policy:
    """What the model knows of a step; its `Retry` is made of it, and never asked again."""

    most: int = 5
    base: float = 1.0
    factor: float = 2.0
    cap: float = 60.0
    jitter: float = 0.2
    asked_most: float = 3600.0
    final: tuple[type[BaseException], ...] = ()
    tried: tuple[type[BaseException], ...] = (Exception,)
    timeout: float | None = None
    typed: str = "dict"  # what the flow gets of its results
    waits: bool = True  # its body is async
    running: int | None = None  # bodies at once in a shard

    def retry(self) -> Retry:
        return Retry(self.most, self.base, self.factor, self.cap, self.jitter, self.asked_most, self.final, self.tried)


@dataclass
class Parcel:
    """A typed result: what is in it comes back as it is annotated."""

    v: int
    path: str
    attempt: int
    key: str
    at: datetime
    blob: bytes
    tags: set[int]
    pair: tuple[int, str]


POLICIES: dict[str, Policy] = {
    "steady": Policy(most=4, base=1, cap=8),
    "quick": Policy(most=3, base=0.5, jitter=0, waits=False),
    "eager": Policy(most=3, base=0, factor=1, jitter=0, running=1),
    "patient": Policy(most=3, base=5, factor=3, cap=40, jitter=0.5, asked_most=90),
    "flat": Policy(most=6, base=2, factor=1, jitter=1.0, waits=False),
    "once": Policy(most=1),
    "picky": Policy(most=4, base=1, final=(KeyError,), tried=(ConnectionError, TimeoutError)),
    "hasty": Policy(most=3, base=1, timeout=2.0),
    "parcel": Policy(most=3, base=1, typed="Parcel"),
    "blob": Policy(most=2, base=1, typed="bytes", waits=False),
    "stamp": Policy(most=2, base=1, typed="datetime"),
    "tags": Policy(most=2, base=1, typed="set", waits=False),
}


def value_of(label: str, given: int) -> int:
    """What a step makes of what it is given, whatever attempt does it."""
    total = given
    for character in label:
        total = (total * 131 + ord(character)) % PRIME
    return total


def word_of(script: list[str], attempt: int) -> str:
    """What an attempt is to do."""
    return script[attempt - 1] if attempt <= len(script) else "ok"


def told(label: str, attempt: int, key: str) -> str:
    """The message of an attempt that fails."""
    return f"{label} fails in attempt {attempt} of {key}"


def packed(kind: str, value: int, me: StepContext | None) -> object:
    """The result of a step, by what it is annotated with; `me` goes along where there is room for it."""
    path, attempt, key = ("", 0, "") if me is None else (me.path, me.attempt, me.idempotency_key)
    at = datetime.fromtimestamp(value, UTC)
    blob = value.to_bytes(3, "big")
    tags = {value % 7, value % 11, value % 13}
    if kind == "Parcel":
        return Parcel(value, path, attempt, key, at, blob, tags, (value % 5, "pair"))
    if kind == "bytes":
        return blob
    if kind == "datetime":
        return at
    if kind == "set":
        return tags
    return {"v": value, "path": path, "attempt": attempt, "key": key}


def _act(name: str, label: str, script: list[str], given: list[int]) -> Any:
    me = current_step()
    value = value_of(label, given[0])
    given.append(me.attempt)  # a copy is what a body gets: nobody must see this
    word, _, rest = word_of(script, me.attempt).partition(":")
    message = told(label, me.attempt, me.idempotency_key)
    if word == "conn":
        raise ConnectionError(message)
    if word == "key":
        raise KeyError(message)
    if word == "exit":
        raise SystemExit(message)
    if word == "after":
        raise RetryAfter(float(rest), message)
    if word == "fatal":
        raise FatalError(message)
    if word == "odd":
        return object()
    if word == "big":
        return "x" * (1024 * 1024)
    if word == "wrong":
        return ["no such thing"]
    return packed(POLICIES[name].typed, value, me)


_ANNOTATIONS: dict[str, object] = {
    "dict": dict[str, Any],
    "Parcel": Parcel,
    "bytes": bytes,
    "datetime": datetime,
    "set": set[int],
}


def _make(name: str, policy: Policy) -> Step[..., Any]:
    async def body(label: str, script: list[str], seconds: float, given: list[int]) -> Any:
        hangs = word_of(script, current_step().attempt) == "hang"
        if hangs or seconds:
            await work(HANG_SECONDS if hangs else seconds)
        return _act(name, label, script, given)

    def at_once(label: str, script: list[str], seconds: float, given: list[int]) -> Any:
        return _act(name, label, script, given)

    made: Callable[..., Any] = body if policy.waits else at_once
    made.__annotations__["return"] = _ANNOTATIONS[policy.typed]
    return step(name=name, retry=policy.retry(), timeout=policy.timeout, max_running=policy.running)(made)


STEPS: dict[str, Step[..., Any]] = {name: _make(name, policy) for name, policy in POLICIES.items()}
