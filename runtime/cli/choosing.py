"""Which executions a command is about: those that are named, or all of a status and a flow once a person agrees."""

from __future__ import annotations

import sys
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Annotated, Final

import typer

from stepwell.cli.durations import When
from stepwell.cli.session import Session
from stepwell.core.errors import UsageError
from stepwell.core.names import check_execution_id
from stepwell.core.similar import did_you_mean

if TYPE_CHECKING:
    from stepwell.client import Client, Page

__all__ = [
    "ALL_MAX",
    "Agreed",
    "BackingOff",
    "Choice",
    "DryRun",
    "Filter",
    "OfAttributes",
    "OfError",
    "OfFlow",
    "OfStatus",
    "OfStep",
    "Since",
    "SomeIds",
    "Until",
    "agree",
    "find",
    "nothing_found",
]

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
OfError = Annotated[
    str | None,
    typer.Option("--error", metavar="TYPE", help="Of those, only the ones that failed for it.", show_default=False),
]
OfAttributes = Annotated[
    list[str] | None,
    typer.Option("--attr", metavar="NAME=VALUE", help="Of those, only the ones with it.", show_default=False),
]
Since = Annotated[
    str | None,
    typer.Option(
        "--since", metavar="TIME", help="Of those, only the ones from then on.", show_default=False, parser=When()
    ),
]
Until = Annotated[
    str | None,
    typer.Option(
        "--until", metavar="TIME", help="Of those, only the ones up to then.", show_default=False, parser=When()
    ),
]
BackingOff = Annotated[
    bool, typer.Option("--backing-off", help="Instead of ids: all of which a step waits for its next attempt.")
]
OfStep = Annotated[
    str | None,
    typer.Option(
        "--step", metavar="NAME", help="With --backing-off: only those of which this step does.", show_default=False
    ),
]
Agreed = Annotated[bool, typer.Option("--yes", "-y", help="Do it to many without asking.")]
DryRun = Annotated[bool, typer.Option("--dry-run", help="Only say which they would be.")]


@dataclass(frozen=True, slots=True)
class Filter:
    """What `list` takes to choose executions by; None: anything."""

    status: str | None = None
    flow: str | None = None
    error: str | None = None
    attributes: Mapping[str, str] | None = None
    since: str | None = None
    until: str | None = None
    backing_off: bool = False
    step: str | None = None

    def __post_init__(self) -> None:
        if self.step is not None and not self.backing_off:
            raise UsageError("--step chooses among those that back off: give --backing-off, too, or leave it out")

    def page(self, client: Client, status: str | None, limit: int, cursor: str | None) -> Page:
        """Those that fit, of that status."""
        return client.list(
            status,
            self.flow,
            limit,
            error=self.error,
            attributes=self.attributes,
            since=self.since,
            until=self.until,
            cursor=cursor,
            backing_off=self.backing_off,
            step=self.step,
        )

    @property
    def words(self) -> str:
        """In words."""
        pairs = [f"{name}={value}" for name, value in (self.attributes or {}).items()]
        pairs += [f"the error {self.error}"] if self.error else []
        said = {
            "of status": self.status,
            "of flow": self.flow,
            "in backoff of step": self.step,
            "in backoff": "" if self.backing_off and not self.step else None,
            "with": " and ".join(pairs) or None,
            "since": self.since,
            "until": self.until,
        }
        return " ".join(f"{word} {value}".rstrip() for word, value in said.items() if value is not None)


@dataclass(frozen=True, slots=True)
class Choice:
    """What was asked for. `statuses`: of which those are that are chosen without one.

    Raises UsageError where that is not said clearly.
    """

    ids: Sequence[str]
    of: Filter
    statuses: Sequence[str]

    def __post_init__(self) -> None:
        chosen = self.of != Filter()
        if not self.ids and not chosen:
            raise UsageError(
                "name executions, or give --status, --flow, --error, --attr or --backing-off for all of those"
            )
        if self.ids and chosen:
            raise UsageError("options such as --status choose among all executions: leave them out, or the ids")
        for each in self.ids:
            check_execution_id(each)

    @property
    def words(self) -> str:
        """What they have in common, for people."""
        if self.of.backing_off:
            return self.of.words
        return replace(self.of, status=self.of.status or " or ".join(self.statuses)).words


def nothing_found(client: Client, words: str, flow: str | None) -> str:
    """The remark; where living workers know no flow of that name, but one of a similar name, it asks for that one."""
    said = f"there is no execution {words}".rstrip()
    known = {str(name) for worker in client.workers() for name in worker.get("flows", ())} if flow else set()
    meant = "" if flow is None or flow in known else did_you_mean(flow, sorted(known), 3)
    return f"{said} ({meant})" if meant else said


def find(client: Client, choice: Choice) -> list[str]:
    """Their ids, each once; those first that reached their status first, or are due first."""
    if choice.ids:
        return list(dict.fromkeys(choice.ids))
    if choice.of.backing_off:
        return list(dict.fromkeys(execution_id for _, execution_id in _all(client, choice.of.status, choice.of)))
    found: list[tuple[int, str]] = []
    for status in (choice.of.status,) if choice.of.status is not None else choice.statuses:
        found += _all(client, status, choice.of)
    return list(dict.fromkeys(execution_id for _, execution_id in sorted(found)))[:ALL_MAX]


def _all(client: Client, status: str | None, of: Filter) -> Iterator[tuple[int, str]]:
    """When each was written last, and its id."""
    cursor: str | None = None
    left = ALL_MAX
    while left > 0:
        page = of.page(client, status, min(PAGE, left), cursor)
        yield from ((each["updated_at"] or 0, each["id"]) for each in page)
        left -= len(page)
        cursor = page.cursor
        if cursor is None:
            return


def agree(own: Session, what: str, count: int, yes: bool) -> bool:
    """Whether `what` may be done to so many that nobody named: there are none, or a person says so. Raises UsageError
    where none can be asked."""
    if yes or not count:
        return True
    if own.json or not sys.stdin.isatty() or not sys.stderr.isatty():
        raise UsageError(f"this would {what}: give --yes to do it, or --dry-run to see them")
    return typer.confirm(f"{what}?", err=True)
