"""An execution as a person reads it: a row per step, with its attempts and backoffs on a common time axis.

    charge   backoff    2   █·····✗··········
        key A1:3f0c…
        1  at 0.02 s, took 12 ms, next after 1.02 s: HttpError: 503
        2  at 1.05 s, took 9 ms, next in 1.3 s: HttpError: 503

A plain function of what `show --json` has. Lines are pieces of text with style names; times come in milliseconds.
"""

from __future__ import annotations

import json
import math
import re
import sys
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from stepwell.cli.session import Line, cut
from stepwell.core.advice import to_do
from stepwell.core.attributes import text_of
from stepwell.core.escapes import escaped
from stepwell.core.limits import LANE_SIZE
from stepwell.core.status import ERROR, PARKED, STEP_BACKOFF, STEP_CANCELLED
from stepwell.metrics.formatting import utc_ms

__all__ = ["Axis", "Row", "compact", "delay", "duration", "timeline", "utc"]

Shown = Mapping[str, Any]

BAR_MIN: Final = 10  # with less room than this the axis says nothing
ATTEMPT, FAILED, BUSY, BACKOFF, WAIT = "█", "✗", "▶", "·", "─"
_ASCII: Final = str.maketrans({ATTEMPT: "#", FAILED: "x", BUSY: ">", BACKOFF: ".", WAIT: "-", "…": "~"})
_STATUS_STYLES: Final = {
    **dict.fromkeys(("completed",), "good"),
    **dict.fromkeys(("error", "failed", "parked"), "bad"),
    **dict.fromkeys(("running", "waiting", "backoff", "ready", "queued"), "busy"),
}
_BRANCH: Final = re.compile(r"(^|/)gather(#[0-9]+)?\.[0-9]+/")  # of a path: what stands in a gather
_SLACK_MS: Final = 100  # the time line may be moved by less than this, unnoted, while a timer counts
_DRIFT: Final = 1_000  # and hosts' clocks differ by less than one part in this many
_UNITS: Final = (("d", 86_400_000, "h", 3_600_000), ("h", 3_600_000, "min", 60_000), ("min", 60_000, "s", 1_000))


@dataclass(frozen=True)
class Axis:
    """The time from `start` to `end` on `width` cells; no cells where there is no room for any."""

    start: int
    end: int
    width: int

    def cell(self, at: int) -> int:
        """The cell of a moment; the nearest one for what lies outside."""
        if self.end <= self.start:
            return 0
        place = (at - self.start) * (self.width - 1) // (self.end - self.start)
        return min(max(place, 0), self.width - 1)


@dataclass(frozen=True)
class Row:
    """One operation: `spans` are (begin, end, mark, mark of the last cell), those on top last."""

    path: str
    status: str
    tries: str
    spans: Sequence[tuple[int, int, str, str]]
    details: Sequence[Line]


def timeline(view: Shown, now_ms: int, width: int, ascii_only: bool = False, whole: bool = False) -> list[Line]:
    """The lines that show an execution in at most `width` columns (keys and commands are never cut).

    Args:
        view: what `describe` gives.
        now_ms: the time now, in milliseconds since the epoch.
        width: columns of the screen.
        ascii_only: draw with ASCII characters only.
        whole: cut no error's text, whatever the width.
    """
    room = sys.maxsize if whole else width
    lines = [*_head(view, now_ms, width), *_operations(view, now_ms, width, room), *_foot(view, width)]
    if ascii_only:
        return [[(text.translate(_ASCII), style) for text, style in line] for line in lines]
    return lines


def duration(ms: float) -> str:
    """A duration in milliseconds for people: `12 ms`, `1.25 s`, `3 min 20 s`, `2 d 4 h`."""
    if ms < 1_000:
        return f"{round(ms)} ms"
    if ms < 59_950:
        return f"{ms / 1_000:.3g} s"
    whole = round(ms / 1_000) * 1_000
    name, size, rest_name, rest_size = next(unit for unit in _UNITS if whole >= unit[1])
    rest = whole % size // rest_size
    return f"{whole // size} {name} {rest} {rest_name}" if rest else f"{whole // size} {name}"


def delay(ms: float) -> str:
    """A delay between attempts as log and row have it, to the millisecond: `1.250 s`."""
    return f"{math.ceil(ms) / 1_000:.3f} s"


def utc(ms: int | None) -> str:
    """A moment in UTC; empty where there is none."""
    return "" if ms is None else utc_ms(ms)


def _head(view: Shown, now: int, width: int) -> Iterator[Line]:
    status = view["status"]
    yield [(f"{view['id']}  flow {view['flow'] or '(unknown)'}  ", ""), (status, _STATUS_STYLES.get(status, ""))]
    created, ended = view["created_at"], view.get("ended_at")
    if created is not None:
        since = f"ended after {duration(ended - created)}" if ended else f"{duration(max(0, now - created))} ago"
        winding = ", being cancelled" if view.get("cancelling") and not ended else ""
        yield [(f"created {utc(created)}, {since}{_changed(view, now)}{winding}", "dim")]
    if view.get("attributes"):
        given = " ".join(f"{name}={text_of(value)}" for name, value in view["attributes"].items())
        yield [("found by", "dim"), (f" {cut(given, max(12, width - 9))}", "")]
    if view["input"] is not None:
        yield [("input   ", "dim"), (cut(compact(view["input"]), max(12, width - 8)), "")]
    if view.get("unreadable"):
        yield [("damaged ", "bad"), (str(view["unreadable"]), "")]


def _changed(view: Shown, now: int) -> str:
    """When anything of it was written last, while more is to come."""
    changed = view.get("updated_at")
    if view.get("ended_at") or changed is None or changed <= view["created_at"]:
        return ""
    return f", changed {duration(max(0, now - changed))} ago"


def _operations(view: Shown, now: int, width: int, room: int) -> Iterator[Line]:
    axis_end = _end(view, now)
    # What a wait led to may be declared in the millisecond in which the wait was.
    rows = [((w["declared_at"], w["finished_at"] is None), _wait_row(view, w, now, axis_end)) for w in view["waits"]]
    rows += [((step["declared_at"], True), _step_row(view, step, now, axis_end, room)) for step in view["steps"]]
    if not rows:
        return
    ordered = [row for _, row in sorted(rows, key=lambda each: each[0])]
    path_width = min(max(len("step"), *(len(row.path) for row in ordered)), max(12, width * 3 // 10))
    status_width = max(len("status"), *(len(row.status) for row in ordered))
    left = path_width + status_width + len("tries") + 6
    start = view["created_at"] if view["created_at"] is not None else min(at for (at, _), _ in rows)
    axis = Axis(start, axis_end, width - left if width - left >= BAR_MIN else 0)
    yield []
    yield [(f"{'step':{path_width}}  {'status':{status_width}}  tries  {_scale(axis)}", "dim")]
    for row in ordered:
        style = _STATUS_STYLES.get(row.status, "")
        shown = row.path if len(row.path) <= path_width else f"…{row.path[1 - path_width :]}"
        yield [
            (f"{shown:{path_width}}  ", ""),
            (f"{row.status:{status_width}}", style),
            (f"  {row.tries:>5}  ", ""),
            (_bar(row, axis), style),
        ]
        yield from row.details


def _end(view: Shown, now: int) -> int:
    """Where the axis ends: with the execution, else now or when the last backoff is over."""
    if view.get("ended_at"):
        return int(view["ended_at"])
    dues = [op["due_at"] for op in view["open"].values() if op["status"] == "backoff" and op["due_at"] is not None]
    return int(max([now, *dues]))


def _scale(axis: Axis) -> str:
    if not axis.width:
        return ""
    last = duration(axis.end - axis.start)
    return f"0{last:>{axis.width - 1}}"


def _bar(row: Row, axis: Axis) -> str:
    cells = [" "] * axis.width
    if axis.width:
        for begin, end, mark, last in row.spans:
            first, final = axis.cell(begin), axis.cell(max(begin, end))
            cells[first : final + 1] = [*[mark] * (final - first), last]
    return "".join(cells)


def _step_row(view: Shown, step: Shown, now: int, axis_end: int, room: int) -> Row:
    opened = view["open"].get(step["path"])
    attempts = step["attempts"]
    running = opened is not None and opened["status"] == "running"
    waits: list[tuple[int, int, str, str]] = []
    tries: list[tuple[int, int, str, str]] = []
    details: list[Line] = [[(f"    key {step['key']}", "dim")]]
    before = step["declared_at"]
    expected = 1
    for place, attempt in enumerate(attempts):
        if attempt["n"] > expected:
            details.append([(f"    …  {attempt['n'] - expected} more are not kept", "dim")])
        expected = attempt["n"] + 1
        began = attempt["started_at"] if attempt["started_at"] is not None else before
        ended, due = attempt["ended_at"], attempt["due_at"]
        tries.append((began, ended, ATTEMPT, FAILED if attempt["error"] else ATTEMPT))
        early = _ended_early(attempts[place : place + 2], running, now)
        if due is not None:
            before = due if early is None else early
            if step["status"] == STEP_CANCELLED and attempt is attempts[-1]:
                before = min(before, step["finished_at"] or axis_end)
            waits.append((ended, min(before, axis_end), BACKOFF, BACKOFF))
        if attempt["error"]:
            is_last = attempt is attempts[-1]
            due_now = opened["due_at"] if opened is not None and is_last and opened["status"] == STEP_BACKOFF else None
            next_one = _what_follows(attempt, now, early) if due_now is None else _what_is_next(view, due_now - now)
            then = (_why_no_more(view, step) if is_last else "") or next_one
            details.append(_attempt_line(view["created_at"], attempt, began, then, room))
    where = attempts[-1]["error"].get("where") if attempts and attempts[-1]["error"] else ""
    if where:
        details.append([(f"       raised at {where}", "dim")])
    if opened is not None and running:
        tries.append((min(before, now), now, ATTEMPT, BUSY))
        details.append([(f"    {opened['attempt']}  begun at most {duration(max(0, now - before))} ago", "busy")])
    if opened is not None and opened["status"] == "ready":
        details.append([(f"    {opened['attempt']}  has not begun", "busy")])
    if step["interruptions"]:
        apart = "; it runs in a process of its own now" if step.get("set_apart") else ""
        if apart and running:
            apart += f", or waits for one: a shard has {LANE_SIZE} at once"
        details.append([(f"    cut short {_by_what(step['interruptions'], step['drains'])}{apart}", "dim")])
    count = opened["attempt"] - (opened["status"] != "running") if opened is not None else expected - 1
    if opened is not None and opened["status"] == "backoff":
        count = expected - 1
    return Row(step["path"], step["status"], str(count), [*waits, *tries], details)


def _by_what(interruptions: int, drains: int) -> str:
    crashes = interruptions - drains
    by_crash = f"{_times(crashes)} by a crash" if crashes else ""
    by_drain = f"{_times(drains)} by a worker's end" if drains else ""
    return f"{by_crash} and {by_drain}" if by_crash and by_drain else by_crash or by_drain


def _ended_early(attempts: Sequence[Shown], running: bool, now: int) -> int | None:
    """When a `retry` ended the backoff after the first of two attempts; None where its timer did.

    The row doesn't tell which, and by the shared time line a timer may end a little early: only what is clearly early
    was a retry.
    """
    attempt, *following = attempts
    due = attempt["due_at"]
    began: int | None = now if running and not following else None
    for later in following:
        began = later["started_at"] if later["n"] == attempt["n"] + 1 else None
    if due is None or began is None:
        return None
    return began if due - began > max(_SLACK_MS, (due - attempt["ended_at"]) // _DRIFT) else None


def _why_no_more(view: Shown, step: Shown) -> str:
    """Why nothing follows the last attempt of a step that was cancelled; empty where it was not."""
    if step["status"] != STEP_CANCELLED:
        return ""
    # Without a cancel only a gather winds up; after one, the row tells it of what a retry would bring back.
    left = view["error"]["open"] if view["status"] == ERROR and view["error"] else ()
    by_gather = _BRANCH.search(step["path"]) and (not view["cancelling"] or step["path"] in left)
    return f"not tried again ({'a sibling of its gather failed' if by_gather else 'cancelled'})"


def _what_is_next(view: Shown, left: int) -> str:
    """After the last attempt of a step that backs off, `left` ms before it is due. No timer counts while its execution
    is parked: what is due by then is tried as soon as it goes on, anything else waits for what remains."""
    if view["status"] == PARKED:
        return f"next when it goes on, in {duration(left)} at the earliest" if left > 0 else "next when it goes on"
    return f"next in {duration(left)}" if left > 0 else f"next is overdue by {duration(-left)}"


def _what_follows(attempt: Shown, now: int, early: int | None) -> str:
    """After any other attempt. `early`: when a retry ended the backoff after it, if one did."""
    error, due, ended = attempt["error"], attempt["due_at"], attempt["ended_at"]
    if due is None:
        return f"gave up ({error['reason']})" if error.get("reason") else "gave up"
    if early is None:
        return f"next after {delay(max(0, due - ended))}"
    # Of an attempt that runs it is not kept when it began.
    after = "" if early == now else f" after {delay(max(0, early - ended))}"
    return f"next{after} (by retry)"


def _attempt_line(created: int | None, attempt: Shown, began: int, then: str, room: int) -> Line:
    at = f"at {duration(max(0, began - (created or began)))}"
    took = f", took {duration(attempt['ended_at'] - began)}" if attempt["started_at"] is not None else ""
    text = f"    {attempt['n']}  {at}{took}, {then}: "
    said = escaped(f"{attempt['error']['type']}: {attempt['error']['message']}")
    return [(text, "dim"), (cut(said, max(20, room - len(text))), "bad")]


def _wait_row(view: Shown, wait: Shown, now: int, axis_end: int) -> Row:
    ended = wait["finished_at"]
    still = wait["path"] in view["open"]
    end = ended if ended is not None else axis_end
    details: list[Line] = []
    if still:
        limit = _until(wait["due_at"], now, view["status"]) if wait["due_at"] else ""
        if wait["kind"] == "signal":
            send = f"send it: stepwell signal {view['id']} {wait['name']} --payload JSON"
            details.append([(f"    for the signal {wait['name']}{', ' * bool(limit)}{limit}; {send}", "dim")])
        elif limit:
            details.append([(f"    {limit}", "dim")])
    shown = f"{wait['path']} ({wait['name']})" if wait["kind"] == "signal" else wait["path"]
    return Row(shown, wait["status"], "", [(wait["declared_at"], end, WAIT, BUSY if still else WAIT)], details)


def _until(due: int, now: int, status: str) -> str:
    if due <= now:
        return f"until {utc(due)}, overdue by {duration(now - due)}"
    return f"until {utc(due)}, {duration(due - now)} more{', and until it goes on' if status == PARKED else ''}"


def _foot(view: Shown, width: int) -> Iterator[Line]:
    error, status, execution_id = view["error"], view["status"], view["id"]
    if status == "completed":
        yield []
        result = compact(view["result"])
        whole = f"stepwell result {execution_id}"
        shown = result if len(result) <= 10 * width else f"{cut(result, 2 * width)} (all of it: {whole})"
        yield [("result  ", "good"), (shown, "")]
    for kept in view.get("signals", ()):
        yield [(f"kept    signal {kept['name']}, since {utc(kept['at'])}: nothing waits for it", "dim")]
    for failure in view.get("failures", ()):
        yield [(f"failed before, at {utc(failure['at'])}, and retried: ", "dim"), (_said(failure), "dim")]
    if error is None:
        return
    yield []
    yield [("parked  " if status == "parked" else "error   ", "bad"), (_said(error), "")]
    for line in str(error.get("detail") or "").splitlines()[-20:]:
        yield [(f"        {line}", "dim")]
    failed = error["failed_step"]
    if failed is not None:
        yield [(f"        step {failed['path']}, tried {_times(failed['attempts'])}, token {failed['token']}", "dim")]
    others = [path for path in error["open"] if failed is None or path != failed["path"]]
    if others:
        yield [(f"        left open: {', '.join(others)}", "dim")]
    advice = to_do(execution_id, status, error, view["flow"] or "")
    if advice:
        yield [("to do   ", "busy"), (advice, "")]


def _said(error: Shown) -> str:
    return f"{error['type']}: {error['message']}" if error["message"] else str(error["type"])


def _times(count: int) -> str:
    return {1: "once", 2: "twice"}.get(count, f"{count} times")


def compact(value: object) -> str:
    """The value as JSON without spaces."""
    return json.dumps(value, ensure_ascii=False, separators=(",", ":"))
