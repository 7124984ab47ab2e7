"""Rows: a checkpoint as the fields of one Redis hash, and back."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from typing import Final

import msgspec
from msgspec.structs import replace

from stepwell.core import records
from stepwell.core.checkpoint import NO_SIGNALS, NONE_LEFT, Chain, Checkpoint, newest_first, oldest_first
from stepwell.core.errors import StepwellError
from stepwell.core.formats import FORMAT
from stepwell.core.rules.steps import ATTEMPTS_KEPT
from stepwell.core.status import COMPLETED, ERROR, OP_WAITING, QUEUED, STATUSES, STEP_BACKOFF
from stepwell.core.token import step_token, token_seed

REV_MAX: Final = 10**40
_DIGITS_MAX: Final = len(str(REV_MAX))
_OF_LATER: Final = frozenset({"applied", "cancelling", "failed", "left", "error", "failures", "result"})
"""Fields that the row of a new execution has not."""


class UnreadableRow(StepwellError):
    """A row is not what this version writes: damaged, or written by a newer version."""


def parse(execution_id: str, fields: Mapping[str, bytes], secret: bytes, reads: int = FORMAT) -> Checkpoint:
    """The checkpoint that a row holds. `reads`: the newest format that is read.

    Raises:
        UnreadableRow: a field is missing or malformed; the message names it.
    """
    field = "meta"
    try:
        meta = records.decode_meta(fields["meta"])
        if meta.format > reads:
            raise UnreadableRow(
                f"row of {execution_id} has format {meta.format}, this version reads up to {reads}: upgrade this worker"
            )
        meta = replace(meta, flow=sys.intern(meta.flow))  # one string for all executions of a flow
        opened: dict[str, records.OpenOp] = {}
        signals: dict[int, records.Signal] = {}
        facts: list[tuple[int, str, bytes]] = []
        attempts: list[tuple[int, str, bytes]] = []
        top_seq = 0
        for field, raw in fields.items():
            kind = field[:2]
            if kind == "p:":
                opened[field[2:]] = records.decode_open(raw)
            elif kind == "r:":
                fact = records.decode_fact(raw)
                top_seq = max(top_seq, fact.seq)
                if not fact.superseded:
                    facts.append((fact.seq, field[2:], raw))
            elif kind == "a:":
                n = records.decode_attempt(raw).n
                if field.rpartition(":")[2] != str(n):
                    raise ValueError(f"it holds attempt {n}")
                attempts.append((n, field, raw))
            elif kind == "s:":
                signals[_whole(field[2:].encode(), REV_MAX)] = records.decode_signal(raw)
        field = "status, rev or times"
        cp = _assemble(execution_id, fields, secret, meta, opened, signals, facts, attempts, top_seq)
        field = "what it all says"
        _check(cp)
        return cp
    except UnreadableRow:
        raise
    except (KeyError, ValueError, RecursionError, msgspec.MsgspecError) as error:
        raise UnreadableRow(f"row of {execution_id} is unreadable at {field}: {error}") from error


def _assemble(
    execution_id: str,
    fields: Mapping[str, bytes],
    secret: bytes,
    meta: records.Meta,
    opened: dict[str, records.OpenOp],
    signals: dict[int, records.Signal],
    facts: list[tuple[int, str, bytes]],
    attempts: list[tuple[int, str, bytes]],
    top_seq: int,
) -> Checkpoint:
    status = fields["status"].decode()
    if status not in STATUSES:
        raise ValueError(f"unknown status {status!r:.40}")
    error = fields.get("error")
    # In two parts: a call with more than 15 names costs ten times as much.
    cp = Checkpoint(
        execution_id=execution_id,
        meta=meta,
        input=fields["input"],
        seed=token_seed(execution_id, meta.run, secret),
        status=status,
        rev=_whole(fields["rev"], REV_MAX),
        seq=top_seq,
        open=dict(sorted(opened.items(), key=lambda item: item[1].declared_at)),
        facts=_chain(facts),
        attempts=_chain(attempts),
        fact_count=len(facts),
        started_at=_time(fields, "started_at"),
        ended_at=_time(fields, "ended_at"),
    )
    if not signals and _OF_LATER.isdisjoint(fields):
        return cp
    return replace(
        cp,
        signals=dict(sorted(signals.items())) if signals else NO_SIGNALS,
        signal_seq=max(signals, default=0),
        applied=records.decode_names(fields.get("applied", b"[]")),
        cancelling="cancelling" in fields,
        failed_path=fields.get("failed", b"").decode(),
        left=records.decode_left(fields["left"]) if "left" in fields else NONE_LEFT,
        error=records.decode_error(error) if error is not None else None,
        failures=records.decode_failures(fields.get("failures", b"[]")),
        result=fields.get("result"),
    )


def _chain(entries: list[tuple[int, str, bytes]]) -> Chain:
    chain: Chain = None
    for _, field, raw in sorted(entries):
        chain = (field, raw, chain)
    return chain


def _time(fields: Mapping[str, bytes], name: str) -> int | None:
    raw = fields.get(name)
    return None if raw is None else _whole(raw, records.TIME_MAX)


def _whole(raw: bytes, most: int) -> int:
    """A whole number as we write it: what is written otherwise is not ours, and would not compare."""
    if not raw.isdigit() or len(raw) > _DIGITS_MAX or (raw[:1] == b"0" and raw != b"0") or int(raw) > most:
        raise ValueError(f"expected a whole number up to {most}, got {raw[:40]!r}")
    return int(raw)


def _check(cp: Checkpoint) -> None:
    """Refuse what is well-formed and still no rule of ours writes: going on from there could do anything.

    Raises:
        ValueError: says what does not go together.
    """
    if cp.terminal and cp.open:
        raise ValueError(f"it is {cp.status}, but {min(cp.open)} is open")
    if cp.status == QUEUED and (cp.open or cp.facts):
        raise ValueError("it is queued, but has begun")
    if (cp.status == ERROR and cp.error is None) or (cp.status == COMPLETED and cp.result is None):
        raise ValueError(f"it is {cp.status}, but does not say {'why' if cp.status == ERROR else 'what came out'}")
    for path, op in cp.open.items():
        is_step = op.kind == records.STEP
        if is_step == (op.status == OP_WAITING) or (is_step and op.attempt <= op.budget_from):
            raise ValueError(f"p:{path} is a {op.kind} that is {op.status}, at attempt {op.attempt}")
        if op.due_at is None and (op.status == STEP_BACKOFF or op.kind == records.TIMER):
            raise ValueError(f"p:{path} waits for a time, but does not say which")
        _check_token(cp, path, op)
    for path, left in (*cp.left.items(), *(cp.error.open.items() if cp.error is not None else ())):
        _check_token(cp, path, left)


def _check_token(cp: Checkpoint, path: str, op: records.OpenOp | records.LeftOpen) -> None:
    """A body that runs under another token is another step to its receiver."""
    if op.token != step_token(cp.seed, path, op.generation):
        raise ValueError(f"the token of {path} is not its own")


def fields_of(cp: Checkpoint) -> list[tuple[str, bytes]]:
    """All fields that a row of this checkpoint holds, but `rev`, `commit`, `status` and `updated_at`, which
    the scripts write. Used to restore a row that Redis lost."""
    fields = [
        ("meta", records.encode(cp.meta)),
        ("input", cp.input),
        ("flow", cp.meta.flow.encode()),
        ("input_hash", cp.meta.input_hash.encode()),
        ("created_at", str(cp.meta.created_at).encode()),
    ]
    fields += [("p:" + path, records.encode(op)) for path, op in cp.open.items()]
    fields += [("r:" + path, raw) for path, raw in oldest_first(cp.facts)]
    fields += [(f"s:{seq}", records.encode(signal)) for seq, signal in cp.signals.items()]
    fields += _kept_attempts(cp.attempts)
    if cp.applied:
        fields.append(("applied", records.encode(cp.applied)))
    if cp.cancelling:
        fields.append(("cancelling", b"1"))
    if cp.failed_path:
        fields.append(("failed", cp.failed_path.encode()))
    if cp.left:
        fields.append(("left", records.encode(dict(cp.left))))
    if cp.error is not None:
        fields.append(("error", records.encode(cp.error)))
    if cp.failures:
        fields.append(("failures", records.encode(cp.failures)))
    if cp.result is not None:
        fields.append(("result", cp.result))
    for name, at in (("started_at", cp.started_at), ("ended_at", cp.ended_at)):
        if at is not None:
            fields.append((name, str(at).encode()))
    return fields


def _kept_attempts(chain: Chain) -> list[tuple[str, bytes]]:
    kept: list[tuple[str, bytes]] = []
    latest: dict[str, int] = {}
    for field, raw in newest_first(chain):
        path, _, number = field.rpartition(":")
        n = int(number)
        last = latest.setdefault(path, n)
        if n <= ATTEMPTS_KEPT or n > last - ATTEMPTS_KEPT:
            kept.append((field, raw))
    kept.reverse()
    return kept
