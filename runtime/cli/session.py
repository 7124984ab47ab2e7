"""One run of a command: how it speaks to its user, and the options that many commands share."""

from __future__ import annotations

import json
import os
import shutil
import sys
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Final, TextIO

import typer

from stepwell.core.errors import InvalidName, UsageError
from stepwell.core.escapes import escaped, escaped_json
from stepwell.core.redact import redact
from stepwell.store.keys import check_namespace

if TYPE_CHECKING:
    from stepwell.client.address import Address
    from stepwell.client.client import Client

__all__ = [
    "LAST_LEAST",
    "NAMESPACE",
    "Data",
    "Json",
    "Line",
    "Namespace",
    "Redis",
    "Session",
    "Verbose",
    "VerboseLogs",
    "columns",
    "cut",
    "open_client",
    "plain",
    "resolved",
    "session",
]

Line = Sequence[tuple[str, str]]
"""A line for the screen: pieces of text, each with a style (a key of `STYLES`)."""

NAMESPACE: Final = "stepwell"
PIPED_WIDTH: Final = 100
LAST_LEAST: Final = 12
"""So many characters a table's last column keeps, however narrow the screen is."""
STYLES: Final[dict[str, str | None]] = {
    "": None,
    "good": "green",
    "bad": "red",
    "busy": "yellow",
    "dim": "bright_black",
}


@dataclass
class Session:
    """What the options say about output, and the output itself. stdout is for answers, stderr for remarks."""

    json: bool = False
    verbose: bool = False

    def answer(self, text: str) -> None:
        """Print lines of the answer."""
        print(_harmless(text))

    def answer_json(self, value: object) -> None:
        """Print the answer as one JSON document."""
        self.answer_encoded(json.dumps(value, indent=2 if sys.stdout.isatty() else None, ensure_ascii=False))

    def answer_encoded(self, document: str) -> None:
        """Print an answer that is JSON already."""
        print("\n".join(map(escaped_json, document.split("\n"))))

    def answer_lines(self, lines: Iterable[Line]) -> None:
        """Print lines, in colours where a terminal shows them; what its encoding lacks is replaced."""
        coloured = sys.stdout.isatty() and not os.environ.get("NO_COLOR") and os.environ.get("TERM") != "dumb"
        encoding = sys.stdout.encoding or "utf-8"
        for line in lines:
            safe = [(escaped(piece), style) for piece, style in line]
            text = "".join(_styled(piece, style) if coloured else piece for piece, style in safe).rstrip()
            print(text.encode(encoding, "replace").decode(encoding))

    def flush(self) -> None:
        """Let a reader see now what was printed."""
        sys.stdout.flush()

    def remark(self, text: str) -> None:
        """Print something that is not the answer, without credentials."""
        print(_harmless(redact(text)), file=sys.stderr)

    def fail(self, text: str, kind: str, **more: object) -> None:
        """Print why the command did not succeed."""
        if self.json:
            self.answer_json({"error": {"type": kind, "message": redact(text), **more}})
        else:
            self.remark(f"stepwell: {text}")

    @property
    def on_screen(self) -> bool:
        """Whether a person's terminal shows the answer."""
        return sys.stdout.isatty()

    @property
    def width(self) -> int:
        """Columns that drawings may have."""
        return shutil.get_terminal_size((PIPED_WIDTH, 24)).columns if self.on_screen else PIPED_WIDTH

    @property
    def text_width(self) -> int:
        """Columns after which texts are cut: where no screen is too narrow for them, nothing is."""
        return self.width if self.on_screen else sys.maxsize

    @property
    def ascii(self) -> bool:
        """Whether the output can show ASCII only."""
        return not _shows(sys.stdout, "█·✗▶─…")


def session(context: typer.Context) -> Session:
    """The session of a command's context."""
    found = context.find_root().obj
    assert isinstance(found, Session)
    return found


def _harmless(text: str) -> str:
    """The lines of a text, with nothing in them that steers a terminal or is not seen."""
    return "\n".join(map(escaped, text.split("\n")))


def plain(line: Line) -> str:
    """A line's text."""
    return "".join(text for text, _ in line).rstrip()


def columns(rows: Sequence[Sequence[str]], width: int, spare: Sequence[str] = ()) -> list[Line]:
    """A table whose first row is its heading. Where a line would be wider than `width`, columns with these headings are
    left out, one after the other, and the last column is cut."""
    if not rows:
        return []
    shown = [[escaped(cell) for cell in row] for row in rows]
    for title in ["", *spare]:
        if title in shown[0]:
            place = shown[0].index(title)
            shown = [[*row[:place], *row[place + 1 :]] for row in shown]
        widths = [max(len(row[place]) for row in shown) for place in range(len(shown[0]))]
        left = sum(widths[:-1]) + 2 * (len(widths) - 1)
        if left + min(LAST_LEAST, widths[-1]) <= width:
            break
    lines: list[Line] = []
    for number, row in enumerate(shown):
        cells = [cell.ljust(size) for cell, size in zip(row[:-1], widths[:-1], strict=True)]
        last = cut(row[-1], max(LAST_LEAST, width - left))
        lines.append([("  ".join([*cells, last]).rstrip(), "dim" if number == 0 else "")])
    return lines


def cut(text: str, width: int) -> str:
    """The text, with its end left out where it has more than `width` characters."""
    return text if len(text) <= width else f"{text[: max(0, width - 1)]}…"


def open_client(redis: str | None, data: Path | None, namespace: str, *, new: bool = False) -> Client:
    """The client of the server and namespace that the options name. Unless `new`, an embedded server must have been
    there before: a look into a wrong folder shall not make data there. Raises UsageError then."""
    from stepwell.client import Client

    address = resolved(redis, data)
    if address.data_dir is not None and not new and not address.data_dir.exists():
        raise UsageError(
            f"there are no data in {address.data_dir}: give their folder (--data), or a server (--redis),"
            " or begin with `stepwell run` or `start`"
        )
    return Client(address.url, data_dir=address.data_dir, namespace=namespace)


def resolved(redis: str | None, data: Path | None) -> Address:
    """Where the data are, by option, environment or default."""
    from stepwell.client.address import resolve

    return resolve(redis, data)


def _styled(text: str, style: str) -> str:
    colour = STYLES[style]
    return text if colour is None else typer.style(text, fg=colour)


def _shows(stream: TextIO, text: str) -> bool:
    try:
        text.encode(stream.encoding or "utf-8")
    except (UnicodeEncodeError, LookupError):
        return False
    return True


def _set_json(context: typer.Context, value: bool) -> bool:
    session(context).json |= value
    return value


def _set_verbose(context: typer.Context, value: bool) -> bool:
    session(context).verbose |= value
    return value


def _namespace(name: str) -> str:
    try:
        return check_namespace(name)
    except InvalidName as error:
        raise typer.BadParameter(str(error)) from error


Redis = Annotated[
    str | None,
    typer.Option(
        "--redis",
        metavar="URL",
        help="A redis, rediss, unix or redis+sentinel URL; by default $STEPWELL_REDIS_URL, else an embedded server.",
        rich_help_panel="Where the data are",
    ),
]
Data = Annotated[
    Path | None,
    typer.Option(
        "--data",
        metavar="DIR",
        help="Folder of the embedded server; by default $STEPWELL_DATA, else ./.stepwell.",
        rich_help_panel="Where the data are",
    ),
]
Namespace = Annotated[
    str,
    typer.Option(
        "--namespace",
        metavar="NAME",
        help="What the keys there begin with; several namespaces share a server without touching each other.",
        parser=_namespace,
        rich_help_panel="Where the data are",
    ),
]
Json = Annotated[
    bool,
    typer.Option("--json", help="Print JSON, errors too.", callback=_set_json, is_eager=True),
]
Verbose = Annotated[
    bool,
    typer.Option("--verbose", "-v", help="Show tracebacks.", callback=_set_verbose, is_eager=True),
]
VerboseLogs = Annotated[
    bool,
    typer.Option(
        "--verbose", "-v", help="Log what is on DEBUG, too; show tracebacks.", callback=_set_verbose, is_eager=True
    ),
]
