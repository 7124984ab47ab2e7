"""One frame of `stepwell top`: what has to be looked at on top, then lists as long as the screen lets them be."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Final, TypeVar

from rich.console import Group
from rich.text import Text

from stepwell.cli.tables import Cell, Column, Rows, fitted, harmless, table
from stepwell.cli.timeline import duration, utc
from stepwell.core.advice import NO_WORKER
from stepwell.core.attention import notices
from stepwell.core.overview import BackingOff, LongStep, Overview, ShardState, SlowStep
from stepwell.core.status import TERMINAL

__all__ = ["Frame", "frame"]

T = TypeVar("T")

GOOD, BAD, BUSY, DIM = "green", "red", "yellow", "bright_black"
NOTICES_MAX: Final = 4
"""Lines of notices where the screen is low; the rest is counted."""
LOW: Final = 30
NAME_WHOLE: Final = 20
"""Names of shards up to that length are shown whole on any screen."""
MINUTE_MS: Final = 60_000


@dataclass(frozen=True, slots=True)
class Frame:
    """What a frame is drawn for.

    Attributes:
        width: columns.
        height: lines; None: as many as there are.
        now: the namespace's time, in ms.
        where: the server, without credentials.
        trouble: why there is nothing newer; empty where there is.
        keys: what keys do, for the last line; empty: there is none.
        ascii_only: draw with ASCII characters only.
    """

    width: int
    height: int | None
    now: int
    where: str = ""
    trouble: str = ""
    keys: str = ""
    ascii_only: bool = False


@dataclass(frozen=True, slots=True)
class _Section:
    """A list with its heading; `nothing` is said where it is empty, `total` how many there are in all."""

    title: str
    columns: Sequence[Column]
    rows: Rows
    nothing: str
    total: int = 0


def frame(seen: Overview, of: Frame) -> Group:
    """The frame: no line is wider than the screen, and there are no more lines than it has."""
    head = [*_head(seen, of), *_counts(seen, of.width)]
    said = _said(seen, of)
    foot = [_line((of.keys, DIM))] if of.keys else []
    sections = [_backoffs(seen, of), _longest(seen, of), _slowest(seen), _shards(seen, of)]
    room = None if of.height is None else of.height - len(head) - len(said) - len(foot)
    lines = [*head, *said, *_lists(sections, room, of)]
    if of.height is not None:
        lines = lines[: of.height - len(foot)]
        lines += [Text()] * (of.height - len(foot) - len(lines) if foot else 0)
    for line in lines:
        line.rstrip()
        line.truncate(of.width)
    return Group(*lines, *foot)


def _head(seen: Overview, of: Frame) -> list[Text]:
    left = f"stepwell  {seen.namespace}" + (f" at {of.where}" if of.where else "")
    at = utc(of.now)
    room = max(0, of.width - len(at) - 2)
    return [
        _line((fitted(harmless(left, of.ascii_only), room, ascii_only=of.ascii_only), "bold"), (f"  {at}", DIM)),
    ]


def _counts(seen: Overview, width: int) -> list[Text]:
    pieces: list[list[list[Cell]]] = [[], []]
    for status, counted in seen.executions.items():
        style = BAD if counted.count and status in ("error", "parked") else "" if counted.count else DIM
        change = _change(counted.per_second)
        cells: list[Cell] = [(f"{status} ", DIM), (f"{counted.count:,}", style), (f"{change}  ", DIM)]
        pieces[status in TERMINAL].append(cells)
    rate = seen.rate
    told = "?" if rate is None else _number(rate.steps), "?" if rate is None else _number(rate.retries)
    backlog = seen.inbox.entries
    age = "" if seen.inbox.oldest_at is None else f" ({_span(max(0, seen.at - seen.inbox.oldest_at))} old)"
    work: list[Cell] = [("steps ", DIM), (f"{told[0]}/s  ", ""), ("retries ", DIM), (f"{told[1]}/s  ", "")]
    if rate is not None:
        work += [("failures ", DIM), (f"{_number(rate.failures)}/s  ", "")]
    work += [("inbox ", DIM), (f"{backlog:,}{age}  ", "" if backlog else DIM)]
    work += [("ingress ", DIM), (f"{seen.inbox.ingress:,}", "" if seen.inbox.ingress else DIM)]
    return [*(_fitting(each, width) for each in pieces), _line(*work), _guarantee(seen, width)]


def _fitting(pieces: Sequence[list[Cell]], width: int) -> Text:
    """Where not all fit, those that are 0 make room."""
    whole = _line(*itertools.chain(*pieces))
    if len(whole.plain.rstrip()) <= width:
        return whole
    some = [cells for cells in pieces if cells[1][0] != "0"]
    return _line(*itertools.chain(*(some or pieces)))


def _guarantee(seen: Overview, width: int) -> Text:
    """A server of which the name has no room goes: half a version would be a wrong one."""
    labels = seen.guarantee
    promise = f"{seen.durability}, AOF {labels['aof']}" if labels.get("aof") else seen.durability
    found: list[Cell] = [("guarantee ", DIM), (harmless(promise), "")]
    if "kept" in labels:
        kept = labels["kept"] != "no"
        found.append((", kept" if kept else ", NOT KEPT", GOOD if kept else BAD))
    found.append(("  ", ""))
    whole = seen.partitions.held == seen.partitions.total
    found.append((f"{seen.partitions.held}/{seen.partitions.total}", "" if whole else BAD))
    found += [(" partitions  ", DIM), ("dead letters ", DIM)]
    found += [(f"{seen.dead_letters:,}  ", BUSY if seen.dead_letters else DIM)]
    server = harmless(labels.get("server", ""))
    whole_line = _line(*found, (server, DIM))
    return whole_line if len(whole_line) <= width else _line(*found)


def _said(seen: Overview, of: Frame) -> list[Text]:
    found = notices(seen)
    lines = [_line((f"! {harmless(of.trouble, of.ascii_only)}", BAD))] if of.trouble else []
    room = len(found) if of.height is None or of.height >= LOW else NOTICES_MAX - len(lines)
    if len(found) > room:
        found, left = found[: room - 1], len(found) - room + 1
    else:
        left = 0
    for each in found:
        lines.append(_line((f"! {harmless(each.text, of.ascii_only)}", BAD if each.level == "bad" else BUSY)))
    if left:
        lines.append(_line((f"! and {left} more: they show where the window is higher", BUSY)))
    return lines


def _lists(sections: Sequence[_Section], room: int | None, of: Frame) -> list[Text]:
    if room is not None:
        sections = _with_room(sections, room)
    wanted = [len(section.rows) for section in sections]
    if room is None:
        given, spaced = wanted, True
    else:
        left = room - len(sections)
        given = _dealt(wanted, left)
        spaced = left - sum(given) >= len(sections)
    lines: list[Text] = []
    for section, count in zip(sections, given, strict=True):
        lines += [Text()] if spaced else []
        lines += _list(section, count, of)
    return lines


def _with_room(sections: Sequence[_Section], room: int) -> Sequence[_Section]:
    """On a low screen a heading without a row tells nothing: first the empty lists go, then the last ones."""
    kept = list(sections)
    last_first = sections[::-1]
    for spare in (*(each for each in last_first if not each.rows), *(each for each in last_first if each.rows)):
        if len(kept) == 1 or sum(2 if section.rows else 1 for section in kept) <= room:
            break
        kept = [section for section in kept if section is not spare]
    return kept


def _dealt(wanted: Sequence[int], left: int) -> list[int]:
    """One line for each in turn, until there are none left or nobody wants more."""
    given = [0] * len(wanted)
    while left > 0 and given != list(wanted):
        for place, most in enumerate(wanted):
            if given[place] < most and left > 0:
                given[place] += 1
                left -= 1
    return given


def _list(section: _Section, count: int, of: Frame) -> list[Text]:
    if not section.rows:
        return [_line((section.title, "bold"), (f"  {section.nothing}", DIM))]
    total = max(section.total, len(section.rows))
    title = f"{section.title} {total:,}" if count == total else f"{section.title} {count:,} of {total:,}"
    columns = [replace(section.columns[0], title=title), *section.columns[1:]]
    return table(columns, section.rows[:count], of.width, of.ascii_only)


def _backoffs(seen: Overview, of: Frame) -> _Section:
    columns = [
        Column("", 3),
        Column("step", 3, place=True),
        Column("attempt", right=True),
        Column("due in", right=True),
        Column("last error", 4, spare=True),
    ]

    def row(each: BackingOff) -> list[Cell]:
        number = "" if each.attempt is None else str(each.attempt)
        of_all = "" if each.max_attempts is None or not number else f" of {each.max_attempts}"
        last = each.max_attempts is not None and each.attempt is not None and each.attempt >= each.max_attempts
        late = of.now - each.due_at
        due: Cell = (_span(-late), "") if late <= 0 else (f"{_span(late)} late", BAD if late > 5_000 else BUSY)
        error = each.error_type or ""
        said = f"{error}: {each.error}" if each.error else error
        return [
            (each.execution, ""),
            (_place(each.flow, each.path), ""),
            (number + of_all, BUSY if last else ""),
            due,
            (said, DIM),
        ]

    return _Section(
        "BACKING OFF",
        columns,
        _made(row, seen.backoffs.next),
        "nothing waits for another attempt",
        seen.backoffs.executions,
    )


def _longest(seen: Overview, of: Frame) -> _Section:
    columns = [
        Column("", 3),
        Column("step", 3, place=True),
        Column("attempt", right=True),
        Column("since", right=True),
        Column("shard", 2, spare=True),
    ]

    def row(each: LongStep) -> list[Cell]:
        since = max(0, of.now - each.since)
        return [
            (each.execution, ""),
            (_place(each.flow, each.path), ""),
            (str(each.attempt), ""),
            (_span(since), BUSY if since > MINUTE_MS else ""),
            (each.shard, DIM),
        ]

    running = sum(each.running or 0 for each in seen.shards)
    return _Section("RUNNING LONGEST", columns, _made(row, seen.longest), "no step runs", running)


def _slowest(seen: Overview) -> _Section:
    columns = [
        Column("", 6, place=True),
        Column("ended", right=True),
        Column("mean", right=True),
        Column("95 % within", right=True),
    ]

    def row(each: SlowStep) -> list[Cell]:
        within = "(longer)" if each.p95_ms is None else _span(each.p95_ms)
        return [
            (_place(each.flow, each.step), ""),
            (f"{each.completed:,}", ""),
            (_span(each.mean_ms), ""),
            (within, ""),
        ]

    return _Section("SLOWEST STEPS", columns, _made(row, seen.slowest), "none has ended in the last minute")


def _shards(seen: Overview, of: Frame) -> _Section:
    # A name's end tells the shards of one worker apart, and of usual names there is room for all of it.
    longest = max((len(each.name) for each in seen.shards), default=0)
    columns = [
        Column("", 3 if longest > NAME_WHOLE else 0, place=True),
        Column("state"),
        Column("partitions", right=True),
        Column("in memory", right=True, spare=True),
        Column("running", right=True),
        Column("steps/s", right=True, spare=True),
        Column("up", right=True),
        Column("host", 2, spare=True),
    ]

    def row(each: ShardState) -> list[Cell]:
        silent = f"silent {_span(each.silent_ms + max(0, of.now - seen.at))}"
        state: Cell = (
            (silent, BAD) if each.state == "silent" else (each.state, GOOD if each.state == "active" else BUSY)
        )
        queued = f" +{each.queued}" if each.queued else ""
        up = "" if each.started_at is None else _span(max(0, of.now - each.started_at))
        again = f" ({each.life})" if each.life is not None and each.life > 1 else ""
        return [
            (each.name, ""),
            state,
            (str(each.partitions), ""),
            (_known(each.executions), ""),
            ("" if each.running is None else f"{each.running}/{each.limit}{queued}", ""),
            ("" if each.steps_per_second is None else _number(each.steps_per_second), ""),
            (up + again, BUSY if again else ""),
            (f"{each.host} {each.pid or ''}".strip(), DIM),
        ]

    nothing = NO_WORKER if not seen.shards else ""
    return _Section("SHARDS", columns, _made(row, seen.shards), nothing)


def _made(row: Callable[[T], list[Cell]], entries: Sequence[T]) -> Rows:
    return [row(each) for each in entries]


def _place(flow: str, path: str | None) -> str:
    return flow if path is None else f"{flow}/{path}"


def _known(value: int | None) -> str:
    return "" if value is None else f"{value:,}"


def _change(per_second: float | None) -> str:
    return "" if not per_second else f" {'+' if per_second > 0 else '-'}{_number(abs(per_second))}/s"


def _number(value: float) -> str:
    return f"{value:,.0f}" if value >= 10 or value == int(value) else f"{value:.1f}"


def _span(ms: float) -> str:
    """A time that ticks: whole seconds, but tenths where it is short."""
    if ms < 1_000:
        return f"{ms:.0f} ms"
    return f"{ms / 1_000:.1f} s" if ms < 10_000 else duration(ms // 1_000 * 1_000)


def _line(*pieces: Cell) -> Text:
    line = Text(no_wrap=True, overflow="crop")
    for text, style in pieces:
        line.append(text, style)
    return line
