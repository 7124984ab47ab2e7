"""What a black box says, read by another process: after its shard's death, or while it lives, to see whether it hangs.

Whatever the file holds, reading it raises nothing but what the file system raises: a slot that makes no sense is left
out, and the report says that it is not complete.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from stepwell.actors.boxlayout import (
    ATTEMPT,
    ATTEMPT_SIZE,
    ATTEMPTS_AT,
    BY_LOOP,
    ENTRY,
    ENTRY_AT,
    HEADER,
    ID_MAX,
    MAGIC,
    ON_THREAD,
    PATH_MAX,
    TOKEN_MAX,
    TURN,
    TURN_AT,
    fault_path,
)
from stepwell.actors.kit.clock import monotonic
from stepwell.core.names import is_execution_id
from stepwell.flow.attempt import LIBRARY_FOLDERS

__all__ = ["BoxAttempt", "BoxReport", "Fault", "parse_box", "read_box"]

_NOT_THEIRS: Final = ("<", *LIBRARY_FOLDERS)
_FAULT_BYTES_MAX: Final = 1_000_000
_LOOKS: Final = 3
_CURRENT_THREAD = re.compile(r"Current thread 0x([0-9a-f]+)")
_FRAME = re.compile(r'File "([^"]*)", line (\d+) in (\S+)')
_ENTRY_ID = re.compile(r"\d{1,20}-\d{1,20}\Z")


@dataclass(frozen=True, slots=True)
class BoxAttempt:
    """A step's attempt whose body had begun and not ended.

    `at_work`: its own code was running: `loop` resumed it at that moment, or it held a `thread`; empty: it waited.
    """

    partition: int
    execution_id: str
    token: str
    path: str
    attempt: int
    at_work: str = ""
    thread: int = 0


@dataclass(frozen=True, slots=True)
class Fault:
    """What the interpreter wrote about a fatal signal: the thread that met it, and where it was."""

    what: str
    thread: int
    where: str = ""


@dataclass(frozen=True, slots=True)
class BoxReport:
    """What a shard worked on.

    Attributes:
        box_id: tells this box from every other one.
        pid: the process that wrote it.
        read_at: when it was read (monotonic seconds).
        beat_at: when another thread than the scheduler's has shown last that it runs.
        turn: the actor at work on the scheduler's thread, and since when (monotonic seconds); None while idle.
        entry: partition and id of the inbox entry that is being taken apart.
        attempts: steps whose bodies run.
        complete: whether all that run are among them.
        scheduler_thread: the thread that runs the actors.
        loop_thread: the thread that resumes async steps.
        fault: the fatal signal that ended the process, if it was one that the interpreter could tell of.
    """

    box_id: str
    pid: int
    read_at: float = 0.0
    beat_at: float = 0.0
    turn: tuple[str, float] | None = None
    entry: tuple[int, str] | None = None
    attempts: tuple[BoxAttempt, ...] = ()
    complete: bool = True
    scheduler_thread: int = 0
    loop_thread: int = 0
    fault: Fault | None = None

    @property
    def driven(self) -> str:
        """The execution that was being loaded or driven; empty if none was."""
        name = "" if self.turn is None else self.turn[0]
        return name if is_execution_id(name) else ""  # the shard's own actors have names that are no ids

    def turn_seconds(self, now: float) -> float:
        """How long the actor at work has been at it, at that second of the monotonic clock; 0 while nobody is."""
        return 0.0 if self.turn is None else max(0.0, now - self.turn[1])


def read_box(path: Path) -> BoxReport | None:
    """The report of the box at `path`; None if there is none, or none that makes sense."""
    try:
        with path.open("rb") as file:
            for _ in range(_LOOKS):
                file.seek(0)
                first = file.read()
                file.seek(0)
                # What changes between two looks was being written.
                if file.read(ATTEMPTS_AT)[TURN_AT:] == first[TURN_AT:ATTEMPTS_AT]:
                    break
                first = _without_turn(first)
    except OSError:
        return None
    return parse_box(first, monotonic(), _fault(fault_path(path)))


def parse_box(raw: bytes, read_at: float, fault: Fault | None = None) -> BoxReport | None:
    """The same of the file's content."""
    if len(raw) < ATTEMPTS_AT:
        return None
    magic, box_id, pid, slots, used, unslotted, scheduler, loop, beat = HEADER.unpack_from(raw)
    if magic != MAGIC:
        return None
    attempts: list[BoxAttempt] = []
    complete = unslotted == 0 and used <= slots
    for slot in range(min(used, (len(raw) - ATTEMPTS_AT) // ATTEMPT_SIZE)):
        at = ATTEMPTS_AT + slot * ATTEMPT_SIZE
        if raw[at + ATTEMPT.size - 1]:
            attempt = _attempt(raw, at)
            if attempt is None:
                complete = False
            else:
                attempts.append(attempt)
    return BoxReport(
        box_id=box_id.hex(),
        pid=pid,
        read_at=read_at,
        beat_at=beat,
        turn=_turn(raw),
        entry=_entry(raw),
        attempts=tuple(attempts),
        complete=complete,
        scheduler_thread=scheduler,
        loop_thread=loop,
        fault=fault,
    )


def _without_turn(raw: bytes) -> bytes:
    return raw[:TURN_AT] + bytes(ATTEMPTS_AT - TURN_AT) + raw[ATTEMPTS_AT:]


def _turn(raw: bytes) -> tuple[str, float] | None:
    since, length, name, state = TURN.unpack_from(raw, TURN_AT)
    known = _text(name, length, ID_MAX) if state == 1 else None
    return None if not known or not 0 <= since < 1e15 else (known, since)


def _entry(raw: bytes) -> tuple[int, str] | None:
    partition, length, entry_id, state = ENTRY.unpack_from(raw, ENTRY_AT)
    known = _text(entry_id, length, 64) if state == 1 else None
    return (partition, known) if known is not None and _ENTRY_ID.match(known) else None


def _attempt(raw: bytes, at: int) -> BoxAttempt | None:
    fields = ATTEMPT.unpack_from(raw, at)
    partition, attempt, id_length, token_length, path_length, raw_id, raw_token, raw_path, thread, work, state = fields
    execution_id = _text(raw_id, id_length, ID_MAX)
    token = _text(raw_token, token_length, TOKEN_MAX)
    if state != 1 or work not in _AT_WORK or token is None or not attempt or not is_execution_id(execution_id):
        return None
    path = raw_path[: min(path_length, PATH_MAX)].decode(errors="replace")
    return BoxAttempt(partition, execution_id, token, path, attempt, _AT_WORK[work], thread)


_AT_WORK: Final = {0: "", BY_LOOP: "loop", ON_THREAD: "thread"}


def _text(raw: bytes, length: int, most: int) -> str | None:
    if not 0 < length <= most:
        return None
    try:
        text = raw[:length].decode()
    except UnicodeDecodeError:
        return None
    return text if text.isprintable() else None


def _fault(path: Path) -> Fault | None:
    try:
        with path.open("rb") as file:
            text = file.read(_FAULT_BYTES_MAX).decode(errors="replace")
    except OSError:
        return None
    thread = _CURRENT_THREAD.search(text)
    if thread is None:
        return None
    places = _FRAME.findall(text[thread.end() :].partition("\n\n")[0])
    where = next((f"{file}:{line} in {name}" for file, line, name in places if not file.startswith(_NOT_THEIRS)), "")
    return Fault(text.partition("\n")[0].removeprefix("Fatal Python error: ")[:200], int(thread[1], 16), where)
