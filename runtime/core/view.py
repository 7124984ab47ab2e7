"""What people see of an execution: a row's fields as plain data, the shape of `show --json`.

Times are whole milliseconds since the epoch on the namespace's clock; payloads are decoded JSON.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Mapping
from typing import Any

from stepwell.core import codec, records
from stepwell.core.records import STEP, Attempt, Fact, LeftOpen, Meta, OpenOp, Signal, TerminalError
from stepwell.core.status import QUEUED, STEP_CANCELLED
from stepwell.core.token import idempotency_key
from stepwell.core.tracing import read_traceparent

Described = OpenOp | Fact | LeftOpen
_ELEMENT = re.compile(r"(?P<name>[^#]+?)(?:#(?P<count>[0-9]+))?(?:\.(?P<branch>[0-9]+))?")


def view(execution_id: str, fields: Mapping[str, bytes]) -> dict[str, Any]:
    """The execution that a row holds.

    A damaged row gives what can be read of it, and `unreadable` says what can't and why (else it is absent).
    `steps` are in order of declaration, each with its kept attempts and how often one was cut short (`interruptions`:
    by crashes, and by a worker's end, which `drains` counts); `waits` are sleeps and signals; `signals` came and are
    kept, since nothing waits for them yet. `trace` is there if it was started within one: that one's id.
    """
    row = _Row(fields)
    meta = row.one("meta", records.decode_meta) or Meta("", 0, "")
    root = meta.root or execution_id
    error: TerminalError | None = row.one("error", records.decode_error)
    operations, attempts = _operations(row, error)
    order = _declaration_order(operations)
    shown: dict[str, Any] = {
        "id": execution_id,
        "flow": meta.flow or row.text("flow"),
        "attributes": meta.attributes or {},
        "status": row.text("status") or QUEUED,
        "input": row.one("input", codec.decode_foreign),
        "result": row.one("result", codec.decode_foreign),
        "rev": row.number("rev"),
        "created_at": meta.created_at or row.number("created_at"),
        "updated_at": row.number("updated_at"),
        "started_at": row.number("started_at"),
        "ended_at": row.number("ended_at"),
        "cancelling": "cancelling" in fields,
        "steps": [
            _step(path, operations[path], root, attempts.get(path, {}))
            for path in order
            if operations[path].kind == STEP
        ],
        "waits": [_wait(path, operations[path]) for path in order if operations[path].kind != STEP],
        "open": {path: _open(op) for path in order if isinstance(op := operations[path], OpenOp)},
        "signals": _signals(row),
        "error": None if error is None else error_shown(error),
        "failures": [error_shown(failure) for failure in row.one("failures", records.decode_failures) or ()],
    }
    caller = read_traceparent(meta.trace)
    if caller is not None:
        shown["trace"] = f"{caller.trace_id:032x}"
    if row.unreadable:
        shown["unreadable"] = row.unreadable
    return shown


class _Row:
    """Reads fields and remembers the first one that can't be read."""

    def __init__(self, fields: Mapping[str, bytes]) -> None:
        self.fields = fields
        self.unreadable = "" if "meta" in fields else "the field meta is missing"

    def decoded(self, field: str, raw: bytes | str, decode: Callable[[Any], Any]) -> Any:
        """The value of a field; None where it can't be read."""
        try:
            return decode(raw)
        except codec.UNREADABLE as error:
            self.unreadable = self.unreadable or f"the field {field} is malformed: {error}"
            return None

    def one(self, field: str, decode: Callable[[Any], Any]) -> Any:
        """The value of a field; None where it is absent or can't be read."""
        raw = self.fields.get(field)
        return None if raw is None else self.decoded(field, raw, decode)

    def number(self, field: str) -> int | None:
        """A whole number."""
        value: int | None = self.one(field, int)
        return value

    def text(self, field: str) -> str:
        """Text; empty where it is absent."""
        return self.fields.get(field, b"").decode("utf-8", "replace")


def _operations(row: _Row, error: TerminalError | None) -> tuple[dict[str, Described], dict[str, dict[int, Attempt]]]:
    """All operations by path (open ones hide superseded facts), and the kept attempts by path and number."""
    found: dict[str, Described] = dict(error.open) if error is not None else {}
    opened: dict[str, Described] = {}
    attempts: dict[str, dict[int, Attempt]] = {}
    for field, raw in row.fields.items():
        kind, path = field[:2], field[2:]
        if kind == "r:":
            fact: Fact | None = row.decoded(field, raw, _decode_fact)
            if fact is not None and not fact.superseded:
                found[path] = fact
        elif kind == "p:":
            op: OpenOp | None = row.decoded(field, raw, records.decode_open)
            if op is not None:
                opened[path] = op
        elif kind == "a:":
            attempt: Attempt | None = row.decoded(field, raw, records.decode_attempt)
            if attempt is not None:
                attempts.setdefault(path.rpartition(":")[0], {})[attempt.n] = attempt
    return {**found, **opened}, attempts


def _decode_fact(raw: bytes) -> Fact:
    """A fact whose value can be shown."""
    fact = records.decode_fact(raw)
    if bytes(fact.value):
        codec.decode_foreign(fact.value)
    return fact


def _decode_signal(raw: bytes) -> Signal:
    """A signal whose payload can be shown."""
    signal = records.decode_signal(raw)
    codec.decode_foreign(signal.payload)
    return signal


def _step(path: str, op: Described, root: str, failed: dict[int, Attempt]) -> dict[str, Any]:
    tries = [_attempt(failed[n]) for n in sorted(failed)]
    result = None
    finished_at = None
    status = STEP_CANCELLED if isinstance(op, LeftOpen) else op.status
    if isinstance(op, Fact):
        finished_at = op.ended_at
        if bytes(op.value):
            result = codec.decode_plain(op.value)
            tries.append(_try(op.attempt, op.started_at, op.ended_at))
    shown: dict[str, Any] = {
        "path": path,
        "status": status,
        "token": op.token,
        "key": idempotency_key(root, op.token),
        "result": result,
        "attempts": tries,
        "declared_at": op.declared_at,
        "started_at": tries[0]["started_at"] if tries else None,
        "finished_at": finished_at,
        "interruptions": op.cuts,
        "drains": op.drains,
    }
    if isinstance(op, OpenOp) and op.lane:
        shown["set_apart"] = True
    if isinstance(op, Fact) and op.error is not None:
        shown["error"] = _failure(op.error)
    return shown


def _attempt(attempt: Attempt) -> dict[str, Any]:
    shown = _try(attempt.n, attempt.started_at, attempt.ended_at)
    shown["error"] = _failure(attempt.error)
    shown["due_at"] = attempt.due_at
    return shown


def _try(n: int, started_at: int | None, ended_at: int) -> dict[str, Any]:
    return {"n": n, "started_at": started_at, "ended_at": ended_at, "error": None, "due_at": None}


def _wait(path: str, op: Described) -> dict[str, Any]:
    ended_at = op.ended_at if isinstance(op, Fact) else None
    return {
        "path": path,
        "kind": op.kind,
        "name": op.name,
        "status": STEP_CANCELLED if isinstance(op, LeftOpen) else op.status,
        "declared_at": op.declared_at,
        "due_at": None if isinstance(op, Fact) else op.due_at,
        "finished_at": ended_at,
        "payload": codec.decode_plain(op.value) if isinstance(op, Fact) and bytes(op.value) else None,
    }


def _open(op: OpenOp) -> dict[str, Any]:
    return {
        "kind": op.kind,
        "token": op.token,
        "attempt": op.attempt,
        "due_at": op.due_at,
        "name": op.name,
        "status": op.status,
        "declared_at": op.declared_at,
        "winding_up": op.winding,
    }


def error_shown(error: TerminalError) -> dict[str, Any]:
    """A terminal error as plain data: `type message attempts failed_step open compensated detail at`."""
    failed = error.failed_step
    return {
        "type": error.type,
        "message": error.message,
        "attempts": error.attempts,
        "failed_step": None
        if failed is None
        else {"path": failed.path, "token": failed.token, "attempts": failed.attempts},
        "open": {
            path: {
                "kind": left.kind,
                "token": left.token,
                "attempts": left.attempts,
                "status": left.status,
                "due_at": left.due_at,
                "name": left.name,
            }
            for path, left in error.open.items()
        },
        "compensated": error.compensated,
        "detail": error.detail,
        "at": error.at,
    }


def _failure(failure: records.Failure) -> dict[str, Any]:
    return {"type": failure.type, "message": failure.message, "reason": failure.reason, "where": failure.where}


def _signals(row: _Row) -> list[dict[str, Any]]:
    kept: dict[int, Signal] = {}
    for field, raw in row.fields.items():
        if field.startswith("s:"):
            seq: int | None = row.decoded(field, field[2:], int)
            signal: Signal | None = row.decoded(field, raw, _decode_signal)
            if seq is not None and signal is not None:
                kept[seq] = signal
    return [
        {"name": signal.name, "at": signal.at, "payload": codec.decode_plain(signal.payload)}
        for _, signal in sorted(kept.items(), key=lambda each: each[0])
    ]


def _declaration_order(operations: Mapping[str, Described]) -> list[str]:
    """Paths by time of declaration. Within one millisecond what was recorded first was declared first, and the
    branches of a gather stand in their order."""
    first_seq: dict[str, float] = {}
    for path, op in operations.items():
        seq = op.seq if isinstance(op, Fact) else math.inf
        for prefix in _groups(path):
            first_seq[prefix] = min(seq, first_seq.get(prefix, math.inf))

    def key(path: str) -> tuple[Any, ...]:
        places = tuple(
            (first_seq[group], *_natural(element))
            for group, element in zip(_groups(path), path.split("/"), strict=True)
        )
        return (operations[path].declared_at, places)

    return sorted(operations, key=key)


def _groups(path: str) -> list[str]:
    """For each element of a path, the path up to it without the number of its branch."""
    groups: list[str] = []
    above = ""
    for element in path.split("/"):
        groups.append(above + _without_branch(element))
        above += element + "/"
    return groups


def _without_branch(element: str) -> str:
    head, dot, branch = element.rpartition(".")
    return head if dot and branch.isdigit() else element


def _natural(element: str) -> tuple[str, int, int]:
    match = _ELEMENT.fullmatch(element)
    if match is None:
        return element, 0, 0
    return match["name"], int(match["count"] or 1), int(match["branch"] or 0)
