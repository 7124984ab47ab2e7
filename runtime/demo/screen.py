"""What a person sees: events while it runs, then one table per step."""

from __future__ import annotations

import statistics
import time
from collections import Counter
from collections.abc import Sequence

from rich.console import Console
from rich.table import Table

from stepwell.cli.bars import Bar
from stepwell.core.retry import Retry
from stepwell.demo.delays import Delay, measured
from stepwell.demo.evidence import Evidence

__all__ = ["Screen", "step_table"]

PROGRESS_SECONDS = 2.0  # between two lines where there is no terminal
WIDTH = 72


class Screen:
    """Prints events with the seconds since the start; how far it is shows a bar, or without one a line now and then."""

    def __init__(self, console: Console, bar: Bar | None = None) -> None:
        self.console = console
        self._bar = bar
        self._started = time.monotonic()
        self._progress = ""
        self._shown_at = self._started

    def event(self, text: str) -> None:
        """Something happened."""
        self.console.print(f"{self._seconds()}  {text}", highlight=False, markup=False, soft_wrap=True)

    def progress(self, done: int, total: int, more: str) -> None:
        """So many side effects of all, and what else there is to say; may be called often."""
        if self._bar is not None:
            self._bar.reach(done, more)
            return
        text = f"side effects {done}/{total}, {more}"
        if text != self._progress and time.monotonic() - self._shown_at >= PROGRESS_SECONDS:
            self._progress, self._shown_at = text, time.monotonic()
            self.event(text)

    def tables(self, evidence: Evidence) -> None:
        """One table per step."""
        delays = measured(evidence)
        for step, policy in evidence.policies.items():
            self.console.print()
            self.console.print(step_table(step, policy, evidence, [d for d in delays if d.pair[1] == step]))

    def _seconds(self) -> str:
        return f"{time.monotonic() - self._started:6.1f} s"


def step_table(step: str, policy: Retry, evidence: Evidence, delays: Sequence[Delay]) -> Table:
    """How often the step was tried, how long the runtime waited in between, and what the receiver counted."""
    requests = [request for request in evidence.requests if request.step == step]
    effects = Counter(effect.order for effect in evidence.effects if effect.step == step)
    seen = [found for order in evidence.seen for found in order.steps if found.path == step]
    resets = sum(request.reset_after_recording for request in requests)
    table = Table(
        title=f"{step}: {len(seen)} steps, {sum(len(s.attempts) for s in seen)} attempts, {len(requests)} requests",
        caption=f"{len({request.key for request in requests})} distinct keys, {effects.total()} side effects"
        f" (at most {max(effects.values(), default=0)} per order)\n{resets} answers lost after the effect"
        + _apart(delays),
        title_justify="left",
        caption_justify="left",
        width=WIDTH,
    )
    for name in ("attempt", "made", "delay before: floor", "least", "median", "most"):
        table.add_column(name, justify="right")
    for number in range(1, max((len(found.attempts) for found in seen), default=0) + 1):
        made = sum(number in found.attempts for found in seen)
        waits = [d.seconds for d in delays if d.attempt == number - 1 and not d.asked and not d.across_kill]
        table.add_row(str(number), str(made), *_delay_cells(number, policy, waits))
    return table


def _apart(delays: Sequence[Delay]) -> str:
    """Delays that say nothing of the policy: measured and judged too, but not in the table."""
    asked = [delay.seconds for delay in delays if delay.asked and not delay.across_kill]
    across = [delay.seconds for delay in delays if delay.across_kill]
    shown = f"\ndelays by Retry-After: {len(asked)} ({_range(asked)})" if asked else ""
    return shown + (f"\ndelays during which the worker was killed: {len(across)} ({_range(across)})" if across else "")


def _range(values: Sequence[float]) -> str:
    return f"{min(values):.3f} to {max(values):.3f} s"


def _delay_cells(number: int, policy: Retry, waits: Sequence[float]) -> list[str]:
    failure = (number - 2) % policy.max_attempts + 1
    if number == 1:
        return []
    if failure == policy.max_attempts:
        return ["by `retry`"]
    measures = (min(waits), statistics.median(waits), max(waits)) if waits else ()
    return [f"{value:.3f}" for value in (policy.floor(failure), *measures)]
