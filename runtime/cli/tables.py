"""Lines and columns that fit a screen: cut by the cells that characters take, and never steered by what they show."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from rich.cells import cell_len, set_cell_size
from rich.text import Text

from stepwell.core.escapes import code_of, escaped

__all__ = ["Cell", "Column", "Rows", "fitted", "harmless", "shortened", "table"]

GAP: Final = 2
LEAST: Final = 4
FLOW_LEAST: Final = 3
SHOWN_MAX: Final = 300

Cell = tuple[str, str]
"""A text and its style."""
Rows = Sequence[Sequence[Cell]]


@dataclass(frozen=True, slots=True)
class Column:
    """`share`: how much of the room that is left a column of texts gets; 0: as much as it needs, always. `spare`: it is
    left out where the screen is too narrow for all. `place`: its texts are flow/path, and it is the flow that is
    shortened first."""

    title: str
    share: int = 0
    right: bool = False
    spare: bool = False
    place: bool = False


def harmless(text: str, ascii_only: bool = False) -> str:
    """The text's beginning, escaped as everywhere; `ascii_only`: and what the screen lacks is shown by its code."""
    shown = escaped(text[:SHOWN_MAX])
    return "".join(c if c.isascii() else code_of(c) for c in shown) if ascii_only else shown


def fitted(text: str, width: int, right: bool = False, ascii_only: bool = False) -> str:
    """The text on exactly so many cells: filled up, or with its end left out."""
    size = cell_len(text)
    if size > width:
        return "" if width <= 0 else set_cell_size(text, width - 1) + ("~" if ascii_only else "…")
    return " " * (width - size) + text if right else text + " " * (width - size)


def table(columns: Sequence[Column], rows: Rows, width: int, ascii_only: bool = False) -> list[Text]:
    """A heading and the rows, in at most `width` cells."""
    shown = [[(harmless(text, ascii_only), style) for text, style in row] for row in rows]
    spare = [place for place, column in enumerate(columns) if column.spare]
    while _least(columns, shown) > width and spare:
        place = spare.pop()
        columns = [*columns[:place], *columns[place + 1 :]]
        shown = [[*row[:place], *row[place + 1 :]] for row in shown]
    widths = _widths(columns, shown, width)
    heading: list[Cell] = [(column.title, "dim" if place else "bold") for place, column in enumerate(columns)]
    lines = []
    for row in (heading, *shown):
        line = Text(no_wrap=True, overflow="crop")
        for (text, style), column, size in zip(row, columns, widths, strict=True):
            line.append(" " * (GAP if line.plain else 0))
            shorter = shortened(text, size, ascii_only) if column.place else text
            line.append(fitted(shorter, size, column.right, ascii_only), style)
        line.rstrip()
        line.truncate(width)
        lines.append(line)
    return lines


def shortened(place: str, width: int, ascii_only: bool) -> str:
    """flow/path with the middle of the flow left out; where even the path is too long, with the middle of all."""
    if cell_len(place) <= width:
        return place
    flow, slash, path = place.partition("/")
    room = width - cell_len(slash + path)
    kept, end = (flow, slash + path) if slash and room >= FLOW_LEAST else (place, "")
    left = (room if end else width) - 1
    last = left // 2
    return set_cell_size(kept, max(0, left - last)) + ("~" if ascii_only else "…") + kept[len(kept) - last :] + end


def _sizes(columns: Sequence[Column], rows: Rows) -> list[int]:
    return [
        max([cell_len(column.title), *(cell_len(row[place][0]) for row in rows)])
        for place, column in enumerate(columns)
    ]


def _least(columns: Sequence[Column], rows: Rows) -> int:
    """How wide it is where texts have no more room than their headings."""
    sizes = zip(columns, _sizes(columns, rows), strict=True)
    cells = [min(size, max(LEAST, cell_len(column.title))) if column.share else size for column, size in sizes]
    return sum(cells) + GAP * (len(columns) - 1)


def _widths(columns: Sequence[Column], rows: Rows, width: int) -> list[int]:
    sizes = _sizes(columns, rows)
    widths = [0 if column.share else size for column, size in zip(columns, sizes, strict=True)]
    left = width - GAP * (len(columns) - 1) - sum(widths)
    flexible = [place for place, column in enumerate(columns) if column.share]
    # Those that need less than their share leave the rest to the others; a heading is shown whole.
    for place in sorted(flexible, key=lambda each: sizes[each] / columns[each].share):
        shares = sum(columns[each].share for each in flexible if not widths[each])
        least = max(LEAST, cell_len(columns[place].title))
        widths[place] = min(sizes[place], max(least, left * columns[place].share // shares))
        left -= widths[place]
    return widths
