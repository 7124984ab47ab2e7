"""Doing one thing to many: how far it is while it lasts, and when it is over, what was refused and why."""

from __future__ import annotations

import re
import sys
from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ThreadPoolExecutor, wait
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from functools import partial
from typing import Final

from stepwell.cli.session import Session
from stepwell.core.errors import StepwellError, StoreError
from stepwell.core.messages import message_of

__all__ = ["Tally", "counted", "do_all", "each_in_turn", "progress", "some_of"]

AT_ONCE: Final = 8
"""So many are under way at a time: each waits for its answer."""
REASONS_MAX: Final = 5
NAMES_MAX: Final = 3
"""So many are named for each reason; `--json` has all."""


@dataclass
class Tally:
    """What became of those that were asked for. `waiting` and `refused`: by id, the reason."""

    total: int
    done: list[str] = field(default_factory=list)
    waiting: dict[str, str] = field(default_factory=dict)
    refused: dict[str, str] = field(default_factory=dict)

    @property
    def touched(self) -> int:
        """Of how many it is known what became of them."""
        return len(self.done) + len(self.waiting) + len(self.refused)

    def summary(self, thing: str, done: str) -> str:
        """A line of how many, and one for each reason: `15 refused (a, b, c, ...): it has ended (completed)`."""
        whole, all_of_them = len(self.done) == self.total, counted(self.total, thing)
        head = f"{done} {all_of_them}" if whole else f"{done} {len(self.done):,} of {all_of_them}"
        left = self.total - self.touched
        lines = [f"{head}; {left:,} not touched" if left else head]
        for word, those in (("not applied yet", self.waiting), ("refused", self.refused)):
            reasons: defaultdict[str, list[str]] = defaultdict(list)
            for name, reason in those.items():
                reasons[_plain(reason, name)].append(name)
            told = sorted(reasons.items(), key=lambda each: (-len(each[1]), each[0]))
            lines += [
                f"{len(names):,} {word} ({some_of(sorted(names))}): {reason}" for reason, names in told[:REASONS_MAX]
            ]
            others = sum(len(names) for _, names in told[REASONS_MAX:])
            lines += [f"{others:,} {word} for other reasons"] if others else []
        return "\n".join(lines)

    def shown(self) -> dict[str, object]:
        """The same for `--json`."""
        return {
            "total": self.total,
            "done": self.done,
            "waiting": [{"id": thing, "note": reason} for thing, reason in self.waiting.items()],
            "refused": [{"id": thing, "reason": reason} for thing, reason in self.refused.items()],
        }


@contextmanager
def progress(own: Session, what: str, total: int) -> Iterator[Callable[[], None]]:
    """How many of `total` are over, on a person's terminal (stderr) and nowhere else; call what it gives for each."""
    if own.json or not sys.stderr.isatty():
        yield lambda: None
        return
    from stepwell.cli.bars import bars

    with bars() as shown:
        yield shown.bar(what, total).step if shown is not None else lambda: None


def do_all(
    own: Session, what: str, ids: Sequence[str], act: Callable[[str], str], told: Callable[[Tally], str]
) -> Tally:
    """Do it to all, several at a time. `act` returns why it is not applied yet, or nothing; what it refuses is counted.

    Where it can't go on (Redis is away, Ctrl-C) those under way end, and it is said how far it has got, by `told`.
    Raises StoreError, KeyboardInterrupt.
    """
    tally = Tally(len(ids))
    left = iter(ids)
    under_way: dict[Future[str], str] = {}
    with (
        _says_how_far(own, tally, told),
        _notes_the_last(tally, under_way),
        progress(own, what, len(ids)) as step,
        ThreadPoolExecutor(AT_ONCE) as pool,
    ):
        while True:
            for thing in left:
                under_way[pool.submit(act, thing)] = thing
                if len(under_way) >= AT_ONCE:
                    break
            if not under_way:
                return tally
            over, _ = wait(under_way, return_when=FIRST_COMPLETED)
            for future in over:
                _note(tally, under_way.pop(future), future.result)
                step()


def each_in_turn(
    own: Session, what: str, ids: Sequence[str], act: Callable[[str], str], told: Callable[[Tally], str]
) -> Tally:
    """The same, one after the other: an order that is meant is kept."""
    tally = Tally(len(ids))
    with _says_how_far(own, tally, told), progress(own, what, len(ids)) as step:
        for thing in ids:
            _note(tally, thing, partial(act, thing))
            step()
    return tally


@contextmanager
def _says_how_far(own: Session, tally: Tally, told: Callable[[Tally], str]) -> Iterator[None]:
    try:
        yield
    except (KeyboardInterrupt, StoreError):
        own.remark(told(tally))
        raise


@contextmanager
def _notes_the_last(tally: Tally, under_way: dict[Future[str], str]) -> Iterator[None]:
    """Also what became of those that were under way when it could not go on: they have ended by then."""
    try:
        yield
    except (KeyboardInterrupt, StoreError):
        for future, thing in under_way.items():
            with suppress(KeyboardInterrupt, StoreError):
                if future.done():
                    _note(tally, thing, future.result)
        raise


def _note(tally: Tally, thing: str, result: Callable[[], str]) -> None:
    try:
        waits = result()
    except StoreError:
        raise
    except StepwellError as error:
        tally.refused[thing] = message_of(error)
    else:
        if waits:
            tally.waiting[thing] = waits
        else:
            tally.done.append(thing)


def _plain(reason: str, thing: str) -> str:
    """The reason without what names this one, so that equal ones are told together; the line names them."""
    _, refused, why = reason.partition(f"{thing} refused: ")
    named = rf"(?<![\w-])['\"]?{re.escape(thing)}['\"]?(?![\w-])"
    return re.sub(named, "it", re.sub(rf"\bno ([a-z ]+?) {named}", r"no such \1", why if refused else reason))


def counted(count: int, thing: str) -> str:
    """So many of them, in words: `1 execution`, `1,024 executions`."""
    return f"{count:,} {thing if count == 1 else f'{thing}s'}"


def some_of(names: Sequence[str]) -> str:
    """The first few of them, and whether there are more."""
    return ", ".join([*names[:NAMES_MAX], *(["..."] if len(names) > NAMES_MAX else [])])
