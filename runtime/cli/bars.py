"""How far something long is, in bars: done of all, how fast, how long it still takes. On a person's terminal alone."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final

from rich.console import Console
from rich.progress import BarColumn, Progress, ProgressColumn, Task, TaskID, TextColumn, TimeRemainingColumn
from rich.table import Column
from rich.text import Text

__all__ = ["Bar", "Bars", "bars", "speed_text"]

TICKING_PERIOD: Final = 30.0
"""The speed is that of the last so many seconds."""
STILL_PERIOD: Final = 3600.0


class Bar:
    """One row: how many of `total` are done."""

    def __init__(self, shown: Progress, task: TaskID) -> None:
        self._shown = shown
        self._task = task

    def step(self) -> None:
        """One more is done."""
        self._shown.advance(self._task)
        self._drawn()

    def reach(self, done: float, note: str = "") -> None:
        """So many are done; `note`: what else there is to say."""
        self._shown.update(self._task, completed=done, note=note)
        self._drawn()

    def again(self, what: str, total: float) -> None:
        """It begins anew, with something else."""
        self._shown.reset(self._task, total=total, description=what)
        self._drawn()

    def _drawn(self) -> None:
        if not self._shown.live.auto_refresh:
            self._shown.refresh()


class Bars:
    """The rows. `answers` is what prints to stdout meanwhile: above them, where both are one screen."""

    def __init__(self, shown: Progress, answers: Console) -> None:
        self.answers = answers
        self._shown = shown

    def bar(self, what: str, total: float, *, counts: bool = True) -> Bar:
        """A new row. `counts`: its numbers are of things that are counted, so that they are shown."""
        return Bar(self._shown, self._shown.add_task(what, total=total, counts=counts, note=""))


@contextmanager
def bars(*, ticking: bool = True) -> Iterator[Bars | None]:
    """Bars, for as long as the block lasts; None where stderr is no terminal.

    `ticking`: they are drawn by a thread, ten times a second; else only when something changes, where what is measured
    must not be disturbed.
    """
    if not sys.stderr.isatty():
        yield None
        return
    answers = Console()
    one_screen = sys.stdout.isatty()
    columns = (
        TextColumn("{task.description}", markup=False),
        BarColumn(bar_width=24),
        _Count(),
        _Speed(),
        TimeRemainingColumn(),
        TextColumn(
            "{task.fields[note]}", markup=False, table_column=Column(ratio=1, no_wrap=True, overflow="ellipsis")
        ),
    )
    with Progress(
        *columns,
        console=answers if one_screen else Console(stderr=True),
        auto_refresh=ticking,
        speed_estimate_period=TICKING_PERIOD if ticking else STILL_PERIOD,
        transient=True,
        redirect_stdout=one_screen,
        expand=True,
    ) as shown:
        yield Bars(shown, answers)


def speed_text(per_second: float) -> str:
    """How fast, with two digits at least: `1,200/s`, `4.2/s`, `30/min`."""
    if per_second >= 10:
        return f"{per_second:,.0f}/s"
    if per_second >= 1:
        return f"{per_second:.1f}/s"
    per_minute = per_second * 60
    return f"{per_minute:.0f}/min" if per_minute >= 10 else f"{per_minute:.1f}/min"


class _Count(ProgressColumn):
    def render(self, task: Task) -> Text:
        if not task.fields["counts"]:
            return Text("")
        return Text(f"{task.completed:,.0f}/{task.total or 0:,.0f}", style="progress.download")


class _Speed(ProgressColumn):
    def render(self, task: Task) -> Text:
        speed = task.finished_speed or task.speed
        shown = task.fields["counts"] and speed is not None
        return Text(speed_text(speed) if shown and speed is not None else "", style="progress.data.speed")
