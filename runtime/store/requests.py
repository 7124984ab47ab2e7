"""What an execution's owner asks of the store: one struct per script, each a single command on the wire.

A request may be sent again whenever its reply was lost: every script recognises what it has done before.
Building the command is on the path of every step, so these are plain structs with precomputed key names.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import chain
from typing import Protocol

import msgspec

from stepwell.core.attributes import Attributes
from stepwell.core.transitions import Place
from stepwell.store.keys import Keys, PartitionKeys
from stepwell.store.lists import error_key, lists_of
from stepwell.store.replies import (
    Broken,
    Buried,
    Committed,
    Conflict,
    Created,
    Exists,
    Failure,
    Fenced,
    Forgotten,
    Loaded,
    Refused,
    Reply,
    Unlisted,
    decoded,
    fields_of,
    number,
    text,
)
from stepwell.store.scripts import Scripts

__all__ = [
    "DROP",
    "KEEP",
    "Applied",
    "Broken",
    "Buried",
    "Command",
    "Commit",
    "Committed",
    "Conflict",
    "Create",
    "Created",
    "DeadLetter",
    "Exists",
    "Failure",
    "Fenced",
    "Forget",
    "Load",
    "Loaded",
    "ReadRev",
    "Refused",
    "Reply",
    "Request",
    "Restore",
    "Revive",
    "Unlist",
]

Command = list[str | bytes | int]

KEEP = "keep"
DROP = "drop"

_BURIED = Buried()
_BURIED_BEFORE = Buried(dup=True)
_CREATED = Created()
_FORGOTTEN = Forgotten()
_NOTHING_MORE = ("",)  # of a commit that touches the row and its events alone


class Request(Protocol):
    """Something that Link can send: a full command, and what its reply means."""

    def args(self, keys: Keys, scripts: Scripts) -> Command:
        """The command with all its arguments."""
        ...

    def parse(self, raw: object) -> Reply:
        """What a reply that is no error means."""
        ...


class Applied(msgspec.Struct):
    """A command whose effect this commit holds.

    `entry_id` is its inbox entry ('' when it has none). A doorbell has no `command_id` and no `outcome`; of a command
    that has both, the outcome (JSON) is kept for an hour and published to whoever waits for it.
    """

    entry_id: str
    command_id: str = ""
    outcome: bytes = b""


class Commit(msgspec.Struct):
    """Writes what one decision changed in a row. `live` is `KEEP`, `DROP` or the next due time in ms as text.
    `rev`: the revision that it then has; 0 is the one after `expected_rev`.

    `forget`: what is held no more against the execution: `i` its interrupted steps, `x` its strikes, `xi` both.
    `place`: the time by which it is listed (ms), and the type of the error that it is listed for; `place_before` what
    both were. Only with them changes its place among those of its flow, of its attributes and of that error.
    `backoff`: '' leaves the list of those that back off as it is, `DROP` takes the execution off it, and a time in ms
    as text is when its first step that backs off is due.
    """

    partition: int
    execution_id: str
    lease: str
    expected_rev: int
    commit_id: str
    now_ms: int
    sets: list[tuple[str, bytes]]
    status_from: str
    status_to: str
    live: str = KEEP
    dels: Sequence[str] = ()
    applied: Sequence[Applied] = ()
    event: bytes = b""
    ended: bool = False
    forget: str = ""
    rev: int = 0
    flow: str = ""
    backoff: str = ""
    attributes: Attributes | None = None
    place_before: Place = (0, "")
    place: Place = (0, "")

    def args(self, keys: Keys, scripts: Scripts) -> Command:
        """The command; what this commit does not touch is left out."""
        part = keys.parts[self.partition]
        named: list[str] = [part.lease, part.row + self.execution_id, part.seq, part.events]
        dels = self.dels
        rest: Sequence[str | int] = _NOTHING_MORE
        tail: list[str | bytes] = []
        moved = self.status_from != self.status_to or self.place != self.place_before
        if moved or self.live != KEEP or self.applied or self.backoff or self.forget:
            named += (part.live, part.inbox)
            if self.applied:
                tail = self._applied(part, named)
            if self.forget:
                named.append(part.suspects)
            if self.backoff:
                named += (part.backoff, part.backoff_of + self.flow)
            leaves, stands = self._lists(part) if moved else ((), ())
            named += leaves
            named += stands
            rest = [
                len(self.applied),
                self.execution_id,
                self.live,
                self.status_to if self.status_from != self.status_to else "",
                part.ended + self.execution_id if self.ended else "",
                self.forget,
                self.backoff,
                len(leaves),
                len(stands),
                self.place[0],
            ]
        command: Command = [
            "EVALSHA",
            scripts.commit,
            len(named),
            *named,
            self.lease,
            self.expected_rev,
            self.rev or self.expected_rev + 1,
            self.commit_id,
            self.now_ms,
            self.event,
            len(dels),
            *rest,
        ]
        if dels:
            command += dels
        if tail:
            command += tail
        command += chain.from_iterable(self.sets)
        return command

    def _lists(self, part: PartitionKeys) -> tuple[Sequence[str], Sequence[str]]:
        """The lists that it leaves, and those on which it gets a place or another one."""
        stands = [part.by[self.status_to]]
        leaves = [part.by[self.status_from]] if self.status_from != self.status_to else []
        if self.place != self.place_before:
            stands += lists_of(part, self.flow, self.attributes)
            error, before = self.place[1], self.place_before[1]
            if error:
                stands.append(error_key(part, error))
            if before and before != error:
                leaves.append(error_key(part, before))
        return leaves, stands

    def _applied(self, part: PartitionKeys, named: list[str]) -> list[str | bytes]:
        tail: list[str | bytes] = []
        for done in self.applied:
            answered = bool(done.command_id and done.outcome)
            if answered:
                named.append(part.cmd + done.command_id)
            tail += (
                done.entry_id,
                done.outcome if answered else "",
                part.done + done.command_id if answered else "",
            )
        return tail

    def parse(self, raw: object) -> Reply:
        """Committed, Fenced or Conflict."""
        return Committed(False, raw) if type(raw) is int else _fenced_reply(raw)


class Restore(msgspec.Struct):
    """Brings back a row that Redis lost, as its owner remembers it.

    `fields` is the whole row but for `status rev commit updated_at`; `live` and `backoff` are `DROP` or a due time in
    ms as text. `place`: the time by which it is listed (ms), and the type of the error that it is listed for;
    `errors_before`: those for which it may have been.
    """

    partition: int
    execution_id: str
    lease: str
    rev: int
    commit_id: str
    now_ms: int
    status: str
    live: str
    fields: list[tuple[str, bytes]]
    flow: str
    place: Place
    backoff: str = DROP
    ended: bool = False
    attributes: Attributes | None = None
    errors_before: Sequence[str] = ()

    def args(self, keys: Keys, scripts: Scripts) -> Command:
        """The command, with every list among its keys on which the row as Redis has it may stand."""
        part = keys.parts[self.partition]
        stands = [part.by[self.status], *lists_of(part, self.flow, self.attributes)]
        if self.place[1]:
            stands.append(error_key(part, self.place[1]))
        before = [*part.by.values(), *(error_key(part, error) for error in self.errors_before)]
        named = [part.lease, part.row + self.execution_id, part.seq, part.live]
        named += (part.backoff, part.backoff_of + self.flow)
        named += [each for each in dict.fromkeys(before) if each not in stands]
        named += stands
        command: Command = [
            "EVALSHA",
            scripts.restore,
            len(named),
            *named,
            self.lease,
            self.rev,
            self.commit_id,
            self.now_ms,
            self.execution_id,
            self.live,
            self.status,
            len(stands),
            part.ended + self.execution_id if self.ended else "",
            self.backoff,
            self.place[0],
        ]
        command += chain.from_iterable(self.fields)
        return command

    def parse(self, raw: object) -> Reply:
        """Committed, Fenced or Conflict (the stored row is not older)."""
        return Committed(False, raw) if type(raw) is int else _fenced_reply(raw)


class Revive(Restore):
    """Brings back a row whose execution has left memory, as it was acknowledged then."""


class ReadRev(msgspec.Struct):
    """Reads the revision of a row."""

    execution_id: str

    def args(self, keys: Keys, scripts: Scripts) -> Command:
        """The command."""
        return ["HGET", keys.row(self.execution_id), "rev"]

    def parse(self, raw: object) -> Reply:
        """Loaded with that field alone, or none."""
        return Loaded({"rev": raw} if isinstance(raw, bytes) else {})


class Load(msgspec.Struct):
    """Reads a whole row."""

    execution_id: str

    def args(self, keys: Keys, scripts: Scripts) -> Command:
        """The command."""
        return ["HGETALL", keys.row(self.execution_id)]

    def parse(self, raw: object) -> Reply:
        """Loaded; without fields where there is no row."""
        try:
            return Loaded(fields_of(raw))
        except (TypeError, ValueError) as error:
            return Broken(f"the server answered {raw!r:.200} to HGETALL of {self.execution_id} ({error})")


class DeadLetter(msgspec.Struct):
    """Moves an inbox entry to the dead letters; `kind` is a word for `reason`, `outcome` answers the sender.
    `repeated`: it was sent before, and that may have been executed.
    """

    partition: int
    lease: str
    entry_id: str
    kind: str
    reason: str
    now_ms: int
    command_id: str = ""
    outcome: bytes = b""
    repeated: bool = False

    def args(self, keys: Keys, scripts: Scripts) -> Command:
        """The command."""
        part = keys.parts[self.partition]
        named = [part.dead, part.inbox, part.lease]
        answered = bool(self.command_id and self.outcome)
        if answered:
            named.append(part.cmd + self.command_id)
        return [
            "EVALSHA",
            scripts.dead_letter,
            len(named),
            *named,
            self.lease,
            self.entry_id,
            self.kind,
            self.reason,
            self.now_ms,
            self.outcome if answered else "",
            part.done + self.command_id if answered else "",
            "",
        ]

    def parse(self, raw: object) -> Reply:
        """Buried or Fenced."""
        if raw == b"OK":
            return _BURIED
        return _BURIED_BEFORE if raw == b"DUP" else _fenced_reply(raw)


class Unlist(msgspec.Struct):
    """Takes an execution that has no row off the lists of its partition. `flows`: those that it may be of.

    Lists of its attributes and errors, which nobody knows any more, keep its id; who reads them finds no row and
    passes over it.
    """

    partition: int
    execution_id: str
    lease: str
    flows: Sequence[str] = ()

    def args(self, keys: Keys, scripts: Scripts) -> Command:
        """The command."""
        part = keys.parts[self.partition]
        named = [part.lease, part.row + self.execution_id, part.backoff, part.live, *part.by.values()]
        named += [part.flow + flow for flow in self.flows]
        named += [part.backoff_of + flow for flow in self.flows]
        return ["EVALSHA", scripts.unlist, len(named), *named, self.lease, self.execution_id, len(self.flows)]

    def parse(self, raw: object) -> Reply:
        """Unlisted or Fenced."""
        return Unlisted(raw) if isinstance(raw, int) else decoded(raw, _fenced)


class Forget(msgspec.Struct):
    """Takes back what is held against executions (`x:<id>`, `i:<id>`) and inbox entries (`e:<entry id>`)."""

    partition: int
    lease: str
    fields: Sequence[str]

    def args(self, keys: Keys, scripts: Scripts) -> Command:
        """The command."""
        part = keys.parts[self.partition]
        return ["EVALSHA", scripts.suspects_forget, 2, part.lease, part.suspects, self.lease, *self.fields]

    def parse(self, raw: object) -> Reply:
        """Forgotten or Fenced."""
        return _FORGOTTEN if raw == b"OK" else decoded(raw, _fenced)


class Create(msgspec.Struct):
    """Makes a queued execution where none is; `fields` are written beside `flow input_hash status rev created_at`."""

    execution_id: str
    flow: str
    input_hash: str
    now_ms: int
    fields: list[tuple[str, bytes]]
    due_ms: int = 0
    event: bytes = b""
    attributes: Attributes | None = None

    def args(self, keys: Keys, scripts: Scripts) -> Command:
        """The command."""
        part = keys.parts[keys.partition_of(self.execution_id)]
        lists = lists_of(part, self.flow, self.attributes)
        command: Command = [
            "EVALSHA",
            scripts.create,
            5 + len(lists),
            part.row + self.execution_id,
            part.live,
            part.inbox,
            part.events,
            part.by["queued"],
            *lists,
            self.execution_id,
            self.flow,
            self.input_hash,
            self.now_ms,
            self.due_ms,
            self.event,
        ]
        command += chain.from_iterable(self.fields)
        return command

    def parse(self, raw: object) -> Reply:
        """Created or Exists."""
        return decoded(raw, _created)


def _created(answer: list[object]) -> Reply:
    if answer[0] == b"CREATED":
        return _CREATED
    if answer[0] == b"EXISTS":
        return Exists(text(answer[1]), text(answer[2]), text(answer[3]))
    raise ValueError("no such answer")


def _fenced_reply(raw: object) -> Reply:
    return decoded(raw, _fenced)


def _fenced(answer: list[object]) -> Reply:
    if answer[0] == b"FENCED":
        return Fenced(text(answer[1]))
    if answer[0] == b"CONFLICT":
        return Conflict(number(answer[1]), text(answer[2]))
    if answer[0] == b"DUP":
        return Committed(True, number(answer[1]))
    raise ValueError("no such answer")
