"""Which executions a command is about: those that are named, or all of a status and a flow once a person agrees."""

from __future__ import annotations

import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, Final

import typer

from stepwell.cli.session import Session
from stepwell.core.errors import UsageError
from stepwell.core.names import check_execution_id

if TYPE_CHECKING:
    from stepwell.client import Client

__all__ = ["ALL_MAX", "Agreed", "Choice", "DryRun", "OfFlow", "OfStatus", "SomeIds", "agree", "find"]

ALL_MAX: Final = 100_000
"""More are not taken at once; those that are left are found by the next run."""
PAGE: Final = 1000

SomeIds = Annotated[
    list[str] | None, typer.Argument(metavar="[ID]...", help="The executions' ids.", show_default=False)
]
OfStatus = Annotated[
    str | None, typer.Option("--status", metavar="S", help="Instead of ids: all of this status.", show_default=False)
]
OfFlow = Annotated[
    str | None, typer.Option("--flow", metavar="NAME", help="Instead of ids: all of this flow.", show_default=False)
]
Agreed = Annotated[bool, typer.Option("--yes", "-y", help="Do it to many without asking.")]
DryRun = Annotated[bool, typer.Option("--dry-run", help="Only say which they would be.")]


@dataclass(frozen=True, slots=True)
class Choice:
    """What was asked for. `statuses`: of which those are that are chosen by flow alone.

    Raises UsageError where that is not said clearly.
    """

    ids: Sequence[str]
    status: str | None
    flow: str | None
    statuses: Sequence[str]

    def __post_init__(self) -> None:
        if not self.ids and self.status is None and self.flow is None:
            raise UsageError("name executions, or give --status or --flow for all of those")
        if self.ids and (self.status is not None or self.flow is not None):
            raise UsageError("--status and --flow choose among all executions: leave them out, or the ids")
        for each in self.ids:
            check_execution_id(each)

    @property
    def words(self) -> str:
        """What they have in common, for people."""
        status = self.status or " or ".join(self.statuses)
        return f"of status {status}" + (f" and flow {self.flow}" if self.flow is not None else "")


def find(client: Client, choice: Choice) -> list[str]:
    """Their ids, each once; those first that reached their status first."""
    if choice.ids:
        return list(dict.fromkeys(choice.ids))
    found: list[tuple[int, str]] = []
    for status in (choice.status,) if choice.status is not None else choice.statuses:
        found += _all(client, status, choice.flow)
    return list(dict.fromkeys(execution_id for _, execution_id in sorted(found)))[:ALL_MAX]


def _all(client: Client, status: str, flow: str | None) -> Iterator[tuple[int, str]]:
    """When each was written last, and its id."""
    cursor: str | None = None
    left = ALL_MAX
    while left > 0:
        page = client.list(status, flow, PAGE, cursor=cursor)
        yield from ((each["updated_at"] or 0, each["id"]) for each in page)
        left -= len(page)
        cursor = page.cursor
        if cursor is None:
            return


def agree(own: Session, verb: str, choice: Choice, count: int, yes: bool) -> bool:
    """Whether it may be done to so many: they were named, or a person says so. Raises UsageError where none can be
    asked."""
    if choice.ids or yes or not count:
        return True
    what = f"{verb} {count:,} {'execution' if count == 1 else 'executions'} {choice.words}"
    if own.json or not sys.stdin.isatty() or not sys.stderr.isatty():
        raise UsageError(f"this would {what}: give --yes to do it, or --dry-run to see them")
    return typer.confirm(f"{what}?", err=True)
