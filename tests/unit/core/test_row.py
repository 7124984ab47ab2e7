"""Rows: a checkpoint survives the way to Redis and back, and a damaged row is a named state."""

from __future__ import annotations

import pytest

from stepwell import Retry, StepFailed, flow, gather, sleep, step, wait_for
from stepwell.core.checkpoint import Checkpoint, oldest_first
from stepwell.core.row import UnreadableRow, fields_of, parse
from stepwell.core.rules.steps import ATTEMPTS_KEPT
from stepwell.testing import LocalRun, local_execution

SECRET = bytes(32)


@step(retry=Retry(max_attempts=100, base=0))
def hopeless() -> None:
    raise OSError("down")


@step
def add(a: int, b: int) -> int:
    return a + b


@flow
async def rich() -> int:
    one = await add(1, 2)
    await gather(hopeless(), sleep(60), wait_for("go", timeout=90))
    return one


@flow
async def patient() -> int:
    try:
        await hopeless()
    except StepFailed as failure:
        return failure.attempts
    return 0


def in_the_middle() -> LocalRun:
    run = local_execution(rich, execution_id="order-7", secret=SECRET)
    for _ in range(60):
        run.step_once()
    run.signal("early", {"x": 1})
    return run


def normal(cp: Checkpoint) -> tuple[object, ...]:
    """A checkpoint without what only memory knows: the order of failed attempts of different steps, counters of
    things that are gone."""
    return (
        cp.execution_id, cp.meta, cp.input, cp.seed, cp.status, cp.rev, dict(cp.open), oldest_first(cp.facts),
        sorted(oldest_first(cp.attempts)), cp.fact_count, dict(cp.signals), cp.applied, cp.cancelling, cp.failed_path,
        dict(cp.left), cp.error, cp.failures, cp.result, cp.started_at, cp.ended_at,
    )  # fmt: skip


def restored(cp: Checkpoint) -> Checkpoint:
    fields = {**dict(fields_of(cp)), "status": cp.status.encode(), "rev": str(cp.rev).encode()}
    return parse(cp.execution_id, fields, SECRET)


def test_a_row_written_bit_by_bit_and_a_row_written_whole_are_the_same() -> None:
    run = in_the_middle()
    whole = dict(fields_of(run.checkpoint))
    apart = {"status", "rev", "updated_at"}
    assert {k: v for k, v in run.row.items() if k not in apart} == whole


def test_a_restored_row_gives_the_same_checkpoint() -> None:
    cp = in_the_middle().checkpoint
    assert normal(restored(restored(cp))) == normal(restored(cp))
    assert {field for field, _ in fields_of(cp)} >= {"flow", "input_hash", "created_at"}, "a start compares these"


def test_only_the_first_and_the_last_attempts_are_kept() -> None:
    run = LocalRun(patient).run()
    kept = [int(field.rpartition(":")[2]) for field in run.row if field.startswith("a:")]
    assert sorted(kept) == [*range(1, ATTEMPTS_KEPT + 1), *range(101 - ATTEMPTS_KEPT, 101)]
    assert run.result() == 100
    whole = [field for field, _ in fields_of(run.checkpoint) if field.startswith("a:")]
    assert sorted(whole) == sorted(f"a:hopeless:{n}" for n in kept)


@pytest.mark.parametrize(
    ("field", "raw", "told"),
    [
        ("meta", None, "meta"),
        ("meta", b"{", "meta"),
        ("meta", b'{"flow":"f","created_at":1,"input_hash":"","format":99}', "format 99.*upgrade this worker"),
        ("input", None, "input"),
        ("status", b"dancing", "unknown status 'dancing'"),
        ("status", None, "status"),
        ("rev", b"many", "many"),
        ("started_at", b"soon", "soon"),
        ("p:hopeless", b'{"kind":"dragon"}', "p:hopeless"),
        ("r:add", b"\xff\xfe", "r:add"),
        ("r:add", b"[" * 100_000, "r:add"),
        ("a:gather.0/hopeless:1", b"null", "a:gather.0/hopeless:1"),
        ("s:x", b"{}", "s:x"),
        ("applied", b"{}", "times"),
        ("error", b"[]", "times"),
    ],
)
def test_a_damaged_row_is_named_with_its_field(field: str, raw: bytes | None, told: str) -> None:
    fields = dict(in_the_middle().row)
    if raw is None:
        del fields[field]
    else:
        fields[field] = raw
    with pytest.raises(UnreadableRow, match=f"order-7.*{told}"):
        parse("order-7", fields, SECRET)


def test_fields_that_a_person_added_are_ignored() -> None:
    run = in_the_middle()
    run.row["note"] = b"looked into this"
    assert normal(parse("order-7", run.row, SECRET)) == normal(restored(run.checkpoint))


def test_appending_to_a_history_shares_what_was_there() -> None:
    run = local_execution(rich)
    before = run.checkpoint.attempts
    run.step_once()
    run.step_once()
    after = run.checkpoint.attempts
    assert after is not None
    assert after[2] is before
