"""Who was it? What a black box says about the death of its shard, as strikes and interrupted steps.

Where it is certain what killed the shard (a turn that hung, a fatal signal whose thread is known), only that counts and
nobody else is blamed. Elsewhere all steps whose bodies ran were interrupted, those at work are named, and whoever was
being driven gets a strike, unless the step loop was at work: what it ran was the more likely one.
"""

from __future__ import annotations

from dataclasses import dataclass

from stepwell.actors.boxreport import BoxAttempt, BoxReport

__all__ = ["HANG_SECONDS", "Verdict", "judge"]

HANG_SECONDS = 10.0
"""A turn of the scheduler that takes longer is a hang: the shard is killed."""
BEAT_SECONDS_MAX = 8.0
"""A process whose other threads have been silent for longer was stopped, or somebody held the interpreter."""


@dataclass(frozen=True, slots=True)
class Verdict:
    """`execution` or `entry` (partition, id) gets a strike. `cut`: the interrupted attempts, each with whether it is
    named; None: it is not known which ran. `cause` is for people."""

    cause: str
    execution: str = ""
    entry: tuple[int, str] | None = None
    cut: tuple[tuple[BoxAttempt, bool], ...] | None = None


def judge(report: BoxReport | None, hung_at: str = "") -> Verdict:
    """The verdict on a death; without a report nothing is known. `hung_at` is where in the code it hung, if known."""
    if report is None:
        return Verdict("it died")
    seconds = report.turn_seconds(report.read_at)
    if seconds >= HANG_SECONDS:
        cause = f"it hung for {seconds:.0f} s{f' {hung_at}' if hung_at else ''}"
        alone = report.read_at - report.beat_at < BEAT_SECONDS_MAX
        return _driver(report, cause) if alone else _unclear(report, cause)
    if report.fault is not None:
        at = f" at {report.fault.where}" if report.fault.where else ""
        return _fault(report, report.fault.thread, f"{report.fault.what}{at}")
    return _unclear(report, "it died")


def _fault(report: BoxReport, thread: int, cause: str) -> Verdict:
    if thread == report.scheduler_thread:
        return _driver(report, cause)
    if thread == report.loop_thread:
        guilty = [attempt for attempt in report.attempts if attempt.at_work == "loop"]
    else:
        guilty = [attempt for attempt in report.attempts if attempt.at_work == "thread" and attempt.thread == thread]
    if guilty:
        return Verdict(cause, cut=tuple((attempt, True) for attempt in guilty))
    return Verdict(cause, cut=_all_that_ran(report))


def _driver(report: BoxReport, cause: str) -> Verdict:
    return Verdict(cause, report.driven, report.entry, ())


def _unclear(report: BoxReport, cause: str) -> Verdict:
    by_loop = any(attempt.at_work == "loop" for attempt in report.attempts)
    execution = "" if by_loop else report.driven
    return Verdict(cause, execution, None if by_loop else report.entry, _all_that_ran(report))


def _all_that_ran(report: BoxReport) -> tuple[tuple[BoxAttempt, bool], ...] | None:
    if not report.complete:
        return None
    return tuple((attempt, bool(attempt.at_work)) for attempt in report.attempts)
