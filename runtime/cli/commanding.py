"""A command to one execution or to many: sending it, and telling what became of it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, Literal

import typer

from stepwell.cli.bulk import Tally, counted, do_all
from stepwell.cli.choosing import ALL_MAX, Choice, agree, find, nothing_found
from stepwell.cli.session import Session
from stepwell.core.errors import UsageError
from stepwell.core.status import CANCELLED, COMPLETED, ERROR, PARKED, QUEUED, RUNNING, WAITING

if TYPE_CHECKING:
    from stepwell.client import Client, CommandResult

__all__ = ["SOME_REFUSED", "command", "tell"]

Verb = Literal["retry", "cancel"]

DONE: Final = {"retry": "retried", "cancel": "cancelled"}
DOING: Final = {"retry": "retrying", "cancel": "cancelling"}
SOME_REFUSED: Final = 1
WAIT_SECONDS: Final = 10.0
OF_NO_USE: Final[dict[Verb, dict[str, str]]] = {
    "retry": {
        QUEUED: "those have not begun yet and start by themselves",
        COMPLETED: "those have completed; start new executions to run them again",
        CANCELLED: "those were cancelled; start new executions to run them again",
    },
    "cancel": {
        COMPLETED: "those have completed, and nothing of them is left to cancel",
        ERROR: "those have failed, and nothing of them goes on unless somebody retries it",
        CANCELLED: "those are cancelled already",
    },
}
"""Why a command to all of a status would be refused by each of them."""
INSTEAD: Final[dict[Verb, str]] = {
    "retry": "did you mean --status error?",
    "cancel": "without --status it takes all that have not ended",
}


def command(own: Session, client: Client, verb: Verb, choice: Choice, *, yes: bool, dry_run: bool) -> None:
    """Send it to those that are chosen, and tell what became of it.

    Raises typer.Exit with 1 where some of many refused, UsageError for a status of which all would refuse; of a single
    one as the client does.
    """
    why = OF_NO_USE[verb].get(choice.of.status or "")
    if why is not None:
        raise UsageError(f"{verb} of all {choice.of.status} ones can do nothing: {why} ({INSTEAD[verb]})")
    send = client.retry if verb == "retry" else client.cancel
    if len(choice.ids) == 1 and not dry_run:
        tell(own, verb, choice.ids[0], send(choice.ids[0]))
        return
    ids = find(client, choice)
    if dry_run:
        _list(own, verb, ids, choice)
        return
    if not ids:
        own.remark(nothing_found(client, choice.words, choice.of.flow))
    what = f"{verb} {counted(len(ids), 'execution')} {choice.words}"
    if not (choice.ids or agree(own, what, len(ids), yes)):
        own.remark("nothing was done")
        return
    idle = client.why_idle()
    if idle:
        own.remark(idle)

    def told(tally: Tally) -> str:
        return tally.summary("execution", DONE[verb])

    def act(execution_id: str) -> str:
        result = send(execution_id, 0.0 if idle else WAIT_SECONDS)
        return "" if result.applied else result.note

    tally = do_all(own, DOING[verb], ids, act, told)
    if own.json:
        own.answer_json({"command": verb, **tally.shown()})
    elif ids:
        own.answer(told(tally))
    if not choice.ids and len(ids) == ALL_MAX:
        own.remark(f"that were the first {ALL_MAX:,}; the same command again takes the next")
    if tally.refused:
        raise typer.Exit(SOME_REFUSED)


def tell(own: Session, verb: str, execution_id: str, told: CommandResult) -> None:
    """What became of a command to one execution."""
    if own.json:
        own.answer_json({"id": execution_id, "applied": told.applied, "status": told.status, "note": told.note})
        return
    if told.applied is None:
        own.answer(f"{verb} of {execution_id} was sent, but not applied yet (it is {told.status}): {told.note}")
        return
    if verb == "cancel" and told.note:
        # That is the only note that a cancel has.
        still = "" if told.status == CANCELLED else f", and is {told.status} still"
        own.answer(f"cancel of {execution_id} changed nothing: {told.note}{still}")
        return
    note = f": {told.note}" if told.note else ""
    if verb == "retry" and told.status in (ERROR, PARKED):
        ended = "it has ended in error again" if told.status == ERROR else "it is parked again"
        own.answer(f"retry of {execution_id} done{note}, but {ended}: see `stepwell show {execution_id}`")
        return
    own.answer(f"{verb} of {execution_id} done{note}; it is {told.status} now")


def _list(own: Session, verb: Verb, ids: list[str], choice: Choice) -> None:
    if own.json:
        own.answer_json({"command": verb, "ids": ids})
        return
    for each in ids:
        own.answer(each)
    # A retry ends backoffs, and whether each of them is in one is known only when it is asked.
    unsure = verb == "retry" and choice.of.status in (WAITING, RUNNING) and not choice.of.backing_off
    own.remark(f"{'at most ' if unsure else ''}{counted(len(ids), 'execution')} would be {DONE[verb]}")
