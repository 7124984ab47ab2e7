"""`dead list | show | replay | drop`: what could not be applied, and what becomes of it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated

import typer

from stepwell.cli.bulk import Tally, counted, each_in_turn, some_of
from stepwell.cli.choosing import Agreed, DryRun, agree
from stepwell.cli.commanding import SOME_REFUSED
from stepwell.cli.looking import Limit
from stepwell.cli.session import (
    NAMESPACE,
    Data,
    Json,
    Namespace,
    Redis,
    Session,
    Verbose,
    columns,
    cut,
    open_client,
    session,
)
from stepwell.cli.timeline import compact, utc
from stepwell.core.errors import UnknownLetter, UsageError
from stepwell.core.letters import LETTER_KINDS, to_do

if TYPE_CHECKING:
    from pathlib import Path

    from stepwell.client.client import Client
    from stepwell.client.reading import Dicts

__all__ = ["add_to", "drop", "listing", "replay", "show"]

LetterIds = Annotated[
    list[str] | None, typer.Argument(metavar="[ID]...", help="Letters, as `dead list` names them.", show_default=False)
]
Reason = Annotated[
    str | None, typer.Option("--reason", metavar="KIND", help=f"Only those of this kind: {', '.join(LETTER_KINDS)}.")
]
Words = Annotated[
    str | None, typer.Option("--text", metavar="WORDS", help="Only those with this text in the sentence that says why.")
]
Partition = Annotated[
    str | None, typer.Option("--partition", metavar="N", help="Only those of partition N, or of the `ingress`.")
]
All = Annotated[bool, typer.Option("--all", help="All that --reason, --text and --partition choose, or simply all.")]

REPLAYED = "replayed"
ALL_MAX = 1_000_000
WHAT_MAX = 200
"""Characters of an entry in the list; `dead show` has all that is kept."""


def add_to(app: typer.Typer) -> None:
    """Register the commands."""
    group = typer.Typer(
        name="dead",
        help="Look at commands and starts that could not be applied; replay or drop them.",
        no_args_is_help=True,
        epilog='Examples:\n\nstepwell dead list\n\nstepwell dead replay --all --reason "no such execution"',
    )
    group.command(name="list", epilog='Example:\n\nstepwell dead list --reason "no such execution"')(listing)
    group.command(epilog="Example:\n\nstepwell dead show 7:1795970866600-0")(show)
    group.command(
        epilog="Examples:\n\nstepwell dead replay 7:1795970866600-0\n\nstepwell dead replay --all --partition ingress"
    )(replay)
    group.command(epilog="Example:\n\nstepwell dead drop --all --reason malformed")(drop)
    app.add_typer(group)


def listing(
    context: typer.Context,
    reason: Reason = None,
    text: Words = None,
    partition: Partition = None,
    limit: Limit = 100,
    redis: Redis = None,
    data: Data = None,
    namespace: Namespace = NAMESPACE,
    json: Json = False,
    verbose: Verbose = False,
) -> None:
    """List dead letters, newest first, with the reason of each."""
    own = session(context)
    with open_client(redis, data, namespace) as client:
        found = client.dead_letters(limit, reason=reason, partition=partition, text=text)
    if own.json:
        own.answer_json(found)
        return
    if not found:
        own.remark(
            "there are no dead letters"
            if (reason, text, partition) == (None, None, None)
            else "there are no such letters"
        )
        return
    rows = [["ID", "AT", "KIND", "REASON", "WHAT"]]
    rows += [[e["id"], _at(e["at"]), e["kind"], e["reason"], cut(compact(e["fields"]), WHAT_MAX)] for e in found]
    own.answer_lines(columns(rows, own.text_width, ("WHAT", "AT")))
    if len(found) == limit:
        own.remark(f"the newest {limit}; --limit shows more")


def show(
    context: typer.Context,
    id: Annotated[str, typer.Argument(metavar="ID", help="A letter, as `dead list` names it.")],
    redis: Redis = None,
    data: Data = None,
    namespace: Namespace = NAMESPACE,
    json: Json = False,
    verbose: Verbose = False,
) -> None:
    """Show a dead letter with all that its entry held."""
    own = session(context)
    with open_client(redis, data, namespace) as client:
        found = client.dead_letter(id)
    if own.json:
        own.answer_json(found)
        return
    place = "the ingress" if found["partition"] is None else f"the inbox of partition {found['partition']}"
    lines = [("letter", found["id"]), ("reason", f"{found['reason']} ({found['kind']})"), ("buried", _at(found["at"]))]
    lines += [("entry", f"{found['entry']} of {place}"), *((f"  {n}", _text(v)) for n, v in found["fields"].items())]
    own.answer_lines([[(f"{name:<12}", "dim"), (value, "")] for name, value in lines])
    own.remark(f"to do: {to_do(found['kind'], id, found['cut'])}")


def replay(
    context: typer.Context,
    ids: LetterIds = None,
    every: All = False,
    reason: Reason = None,
    text: Words = None,
    partition: Partition = None,
    yes: Agreed = False,
    dry_run: DryRun = False,
    redis: Redis = None,
    data: Data = None,
    namespace: Namespace = NAMESPACE,
    json: Json = False,
    verbose: Verbose = False,
) -> None:
    """Send letters again: each goes back to where it came from and is applied as if it came now."""
    chosen = _Choice(ids or [], every, reason, text, partition)
    if dry_run:
        _tell_chosen(session(context), redis, data, namespace, chosen, REPLAYED)
        return
    with open_client(redis, data, namespace) as client:
        _each(session(context), client, chosen, _Verb("replay", "replaying", REPLAYED, client.replay_letter), yes)


def drop(
    context: typer.Context,
    ids: LetterIds = None,
    every: All = False,
    reason: Reason = None,
    text: Words = None,
    partition: Partition = None,
    yes: Agreed = False,
    dry_run: DryRun = False,
    redis: Redis = None,
    data: Data = None,
    namespace: Namespace = NAMESPACE,
    json: Json = False,
    verbose: Verbose = False,
) -> None:
    """Remove letters for good."""
    chosen = _Choice(ids or [], every, reason, text, partition)
    if dry_run:
        _tell_chosen(session(context), redis, data, namespace, chosen, "dropped")
        return
    with open_client(redis, data, namespace) as client:
        _each(
            session(context), client, chosen, _Verb("drop", "dropping", "dropped", client.drop_letter, " for good"), yes
        )


@dataclass(frozen=True, slots=True)
class _Verb:
    """What is done to a letter, and how that is called."""

    name: str
    doing: str
    done: str
    act: Callable[[str], None]
    how: str = ""


class _Choice:
    """Which letters a command is about: some ids, or all that fit. Raises UsageError where that is not said clearly."""

    def __init__(
        self, ids: list[str], every: bool, reason: str | None, text: str | None, partition: str | None
    ) -> None:
        if bool(ids) == every:
            raise UsageError("name letters, or give --all (with --reason, --text or --partition: all of those)")
        if ids and (reason, text, partition) != (None, None, None):
            raise UsageError("--reason, --text and --partition choose among --all: leave them out, or the ids")
        self.every = every
        self._ids = ids
        self._reason = reason
        self._text = text
        self._partition = partition

    @property
    def words(self) -> str:
        """What they have in common, for people; begins with a space."""
        of = "" if self._partition is None else f" of {'partition ' if self._partition.isdigit() else 'the '}"
        kind = "" if self._reason is None else f" for the reason {self._reason!r}"
        words = "" if self._text is None else f" with {self._text!r} in what is said of them"
        return f"{of}{self._partition or ''}{kind}{words}"

    def find(self, client: Client) -> list[str]:
        """Their ids; the oldest first where all are taken: an order that was meant is kept."""
        return list(self._ids) if self._ids else [str(letter["id"]) for letter in self._all(client)]

    def read(self, client: Client) -> dict[str, bool]:
        """The ids in this order, and of which only a part is kept. Raises UnknownLetter for one that is named."""
        letters = [client.dead_letter(each) for each in self._ids] if self._ids else self._all(client)
        return {str(letter["id"]): bool(letter["cut"]) for letter in letters}

    def _all(self, client: Client) -> Dicts:
        found = client.dead_letters(ALL_MAX, reason=self._reason, partition=self._partition, text=self._text)
        return found[::-1]


def _tell_chosen(
    own: Session, redis: str | None, data: Path | None, namespace: str, chosen: _Choice, done: str
) -> None:
    """Which letters they would be. Raises UnknownLetter for a named one that is not there."""
    with open_client(redis, data, namespace) as client:
        found = chosen.read(client)
    cut = [letter_id for letter_id, is_cut in found.items() if is_cut and done == REPLAYED]
    ids = [letter_id for letter_id in found if letter_id not in set(cut)]
    if own.json:
        own.answer_json({"ids": ids})
    else:
        own.answer_lines([(letter_id, "")] for letter_id in ids)
        own.remark(f"{counted(len(ids), 'dead letter')} would be {done}")
    if cut:
        own.remark(f"{len(cut):,} can't be ({some_of(cut)}): only a part of the entry is kept")


def _each(own: Session, client: Client, chosen: _Choice, verb: _Verb, yes: bool) -> None:
    gone: set[str] = set()

    def told(tally: Tally) -> str:
        return tally.summary("dead letter", verb.done)

    ids = chosen.find(client)
    if len(ids) == 1 and not chosen.every:
        verb.act(ids[0])
        own.answer_json({verb.done: ids}) if own.json else own.answer(f"{verb.done} {ids[0]}")
        return
    what = f"{verb.name} {counted(len(ids), 'dead letter')}{chosen.words}{verb.how}"
    if chosen.every and not agree(own, what, len(ids), yes):
        own.remark("nothing was done")
        return

    def each(letter_id: str) -> str:
        try:
            verb.act(letter_id)
        except UnknownLetter:
            if not chosen.every:
                raise
            gone.add(letter_id)  # somebody else was faster
        return ""

    tally = each_in_turn(own, verb.doing, ids, each, told)
    tally.done = [letter_id for letter_id in tally.done if letter_id not in gone]
    tally.total -= len(gone)
    if own.json:
        own.answer_json({verb.done: tally.done, "refused": tally.shown()["refused"]})
    else:
        own.answer(told(tally))
    if tally.refused:
        raise typer.Exit(SOME_REFUSED)


def _at(at: int | None) -> str:
    return "" if at is None else utc(at)


def _text(value: object) -> str:
    return value if isinstance(value, str) else compact(value)
