"""What always holds between rows, bodies and metrics: the rules M1 to M12 of docs/metrics.md, by their names.

M9 speaks of events; `tests/sim/counting.py` has it.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from typing import Final

from tally.numbers import Labels, Numbers, Tally, each_difference
from tally.rows import INTERRUPTED, TOLD_BY_ROWS

from stepwell.metrics import instruments as i
from stepwell.metrics.instruments import Instrument

_OF_ATTEMPTS: Final = {"ok": "M1", "retryable": "M2", "terminal": "M3", "timeout": "M2, M3", INTERRUPTED: "M5"}
_OF: Final = {
    i.STEP_RETRIES_SCHEDULED: "M4",
    i.STEP_FAILURES: "M3",
    i.STEP_CRASHES: "M2, M3",
    i.RETRY_BACKOFF: "M4",
    i.STEP_ATTEMPTS_LEFT: "M4",
    i.STEP_ATTEMPTS_TO_SUCCESS: "M8",
    i.STEP_DURATION: "M10",
    i.EXECUTIONS_ENDED: "M7",
    i.EXECUTION_DURATION: "M10",
    i.EXECUTION_QUEUE: "M7",
}


def broken_by_rows(known: Tally, shown: Numbers) -> list[str]:
    """Where metrics are not what the rows say (M1 to M5, M7, M8, M10: each series exactly; M6, M12), or not what other
    metrics say (M10)."""
    found = [
        f"{_rule(instrument, labels)}: {text}"
        for instrument, labels, text in each_difference(known, shown, TOLD_BY_ROWS)
        if instrument is not i.STEP_FAILURES or labels[-1] != "nondeterminism"  # a row forgets why it was parked
    ]
    over = shown.count(i.RETRY_WAKEUPS) + shown.count(i.BACKOFFS_ABANDONED)
    left = shown.count(i.STEP_RETRIES_SCHEDULED) - over
    if left != known.backing_off:
        found.append(f"M6: {left:g} backoffs are not over, and {known.backing_off} steps back off")
    late = shown.spreads.get(i.RETRY_LATENESS, {}).get(())
    observed = 0.0 if late is None else late.count
    if observed != known.later:
        found.append(f"M12: {observed:g} latenesses, and {known.later} later attempts have ended")
    return [*found, *_broken_within(shown)]


def _rule(instrument: Instrument, labels: Labels) -> str:
    return _OF_ATTEMPTS.get(labels[-1], "M1") if instrument is i.STEP_ATTEMPTS else _OF[instrument]


def _broken_within(shown: Numbers) -> Iterator[str]:
    ended = Counter[Labels]()
    for (flow, step, outcome), n in shown.counts.get(i.STEP_ATTEMPTS, {}).items():
        if outcome != INTERRUPTED:
            ended[flow, step] += int(n)
            ended[flow,] += int(n)
    over = Counter[Labels]()
    for (flow, _), n in shown.counts.get(i.EXECUTIONS_ENDED, {}).items():
        over[flow,] += int(n)
    for instrument, counts in ((i.STEP_DURATION, ended), (i.STEP_QUEUE, ended), (i.EXECUTION_DURATION, over)):
        width = len(instrument.labels)
        wanted = {labels: float(n) for labels, n in counts.items() if len(labels) == width}
        seen = {labels: spread.count for labels, spread in shown.spreads.get(instrument, {}).items()}
        if seen != wanted:
            yield f"M10: {instrument.full_name} has {seen}, and {wanted} have ended"


def broken_by_bodies(shown: Numbers, began: Counter[Labels], exactly: bool) -> list[str]:
    """M11, when nothing runs. `began`: bodies by flow and step. Not `exactly`: a body may have begun that nobody could
    tell of, or may begin twice."""
    counted, ended = Counter[Labels](), Counter[Labels]()
    for (flow, step, outcome), n in shown.counts.get(i.STEP_ATTEMPTS, {}).items():
        counted[flow, step] += int(n)
        ended[flow, step] += int(n) if outcome != INTERRUPTED else 0
    if (counted != began) if exactly else not ended <= began:
        return [f"M11: attempts {counted}, bodies {began}"]
    return []
