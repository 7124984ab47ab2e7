"""What `explain` says about a policy's delays."""

from __future__ import annotations

import json
import sys
from dataclasses import astuple
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from stepwell import Retry, flow, step
from stepwell.cli import explain, main
from stepwell.cli.explain import delays, total
from stepwell.cli.session import plain
from stepwell.cli.timeline import timeline
from stepwell.testing import local_execution

FLOWS = """
from stepwell import Retry, flow, step

@step(retry=Retry(max_attempts=4, base=1, factor=2, cap=2, jitter=0.5), timeout=9)
async def charge() -> None: ...

@step(retry=Retry(max_attempts=1))
async def once() -> None: ...

@step
async def unused() -> None: ...

@flow
async def checkout() -> None:
    await charge()
    await once()
"""


@pytest.fixture
def file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    """A file of flows in the current folder; modules stay loaded, so each test has a name of its own."""
    name = f"explained_{tmp_path.name}.py"
    (tmp_path / name).write_text(FLOWS)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", list(sys.path))
    return name


def test_equal_delays_stand_together_from_the_cap_on() -> None:
    policy = Retry(max_attempts=1000, base=1, factor=2, cap=4, jitter=0.5)
    assert [astuple(delay) for delay in delays(policy)] == [(1, 1, 1, 1.5), (2, 2, 2, 3), (3, 999, 4, 6)]
    assert total(policy) == (3 + 997 * 4, 1.5 * (3 + 997 * 4))


def test_a_single_attempt_has_no_delay() -> None:
    assert list(delays(Retry(max_attempts=1))) == []
    assert total(Retry(max_attempts=1)) == (0, 0)


@given(
    st.integers(1, 60),
    st.floats(0, 100),
    st.sampled_from([1.0, 1.5, 2.0, 10.0]),
    st.floats(0, 1000),
    st.floats(0, 0.5),
)
def test_the_rows_are_the_policys_bounds(attempts: int, base: float, factor: float, cap: float, jitter: float) -> None:
    policy = Retry(max_attempts=attempts, base=base, factor=factor, cap=cap, jitter=jitter)
    rows = [(k, (row.least, row.most)) for row in delays(policy) for k in range(row.first, row.last + 1)]
    assert rows == [(k, policy.bounds(k)) for k in range(1, attempts)]


def test_a_file_is_explained_step_by_step(file: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["explain", file]) == 0
    assert capsys.readouterr().out.splitlines() == [
        "flow checkout",
        "",
        "step charge: 4 attempts, each at most 9 s; delays from 1 s, times 2 up to 2 s, and up to 50% more",
        "  after attempt  least  most",
        "  1              1 s    1.5 s",
        "  2 to 3         2 s    3 s",
        "  in all         5 s    7.5 s",
        "",
        "step once: one attempt",
    ]


def test_json_has_the_same_numbers(file: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["explain", f"{file}:checkout", "--json"]) == 0
    [flow] = json.loads(capsys.readouterr().out)
    charge, once = flow["steps"]
    assert (charge["step"], charge["timeout"], charge["max_attempts"]) == ("charge", 9.0, 4)
    assert charge["delays"] == [
        {"first": 1, "last": 1, "least": 1.0, "most": 1.5},
        {"first": 2, "last": 3, "least": 2.0, "most": 3.0},
    ]
    assert charge["total"] == {"least": 5.0, "most": 7.5}
    assert once["delays"] == []


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["checkout"], "say where the flow is: stepwell explain checkout --from FILE_OR_MODULE"),
        (["chekout", "--from", "FILE"], "no flow is named 'chekout'; did you mean 'checkout'?"),
        (["FILE", "--id", "A1"], "give --id and --path together"),
        (["FILE", "--id", "A1", "--path", "refund"], "no step is named 'refund' in that flow; it has charge, once"),
        (["FILE", "--id", "a b", "--path", "charge"], "expected an execution id"),
    ],
)
def test_what_can_not_be_explained_is_said(
    file: str, capsys: pytest.CaptureFixture[str], arguments: list[str], said: str
) -> None:
    assert main(["explain", *[file if each == "FILE" else each for each in arguments]]) == 2
    assert said in capsys.readouterr().err


@step(retry=Retry(max_attempts=9, base=0.1234, jitter=0.3))
def charge() -> None:
    raise OSError("down")


@flow
async def paying() -> None:
    await charge()


def test_exact_delays_are_those_of_the_row_to_the_millisecond(monkeypatch: pytest.MonkeyPatch) -> None:
    run = local_execution(paying)
    recorded = []
    while not run.ended:
        run.step_once()
        recorded += [op.delay_ms for op in run.checkpoint.open.values() if op.status == "backoff"]
    token = run.show()["error"]["failed_step"]["token"]
    monkeypatch.setattr(explain, "_token", lambda *_: token)
    exact = explain._exact([paying], "local", "charge", None, None, "stepwell")
    assert [seconds * 1000 for seconds in exact.delays] == pytest.approx(recorded, abs=1e-6)
    rows = [plain(line).split()[1] for line in explain._exact_lines(exact)][2:]
    assert rows == [f"{ms / 1000:.3f}" for ms in recorded]
    shown = "\n".join(plain(line) for line in timeline(run.show(), run.now_ms, 100))
    assert [word in shown for word in [f"next after {row} s: OSError" for row in rows]] == [True] * 8
