"""What `init` writes."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from stepwell.cli import main
from stepwell.cli.templates import flows
from stepwell.flow.lint import lint
from stepwell.testing import local_execution, run_local

ROOT = Path(__file__).resolve().parents[3]


def test_init_writes_the_example_and_says_what_comes_next(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["init", str(tmp_path / "shop")]) == 0
    assert (tmp_path / "shop" / "flows.py").read_text() == Path(flows.__file__).read_text()
    assert f"stepwell run {tmp_path}/shop/flows.py" in capsys.readouterr().out


def test_init_names_the_file_as_json(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["init", str(tmp_path), "--json"]) == 0
    assert json.loads(capsys.readouterr().out) == {"file": str(tmp_path / "flows.py")}


def test_init_overwrites_nothing(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "flows.py").write_text("mine")
    assert main(["init", str(tmp_path)]) == 2
    assert (tmp_path / "flows.py").read_text() == "mine"
    assert "exists already and is left as it is" in capsys.readouterr().err


def test_init_into_something_that_is_no_folder_is_refused(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "file").write_text("")
    assert main(["init", str(tmp_path / "file" / "deeper")]) == 2
    assert "Traceback" not in capsys.readouterr().err


def test_the_example_in_examples_is_the_one_that_init_writes() -> None:
    assert (ROOT / "examples" / "orders.py").read_text() == Path(flows.__file__).read_text()


@pytest.mark.parametrize("late", [False, True])
def test_the_example_runs_to_its_result(late: bool) -> None:
    approval = (30, "approval", {"by": "Ada"}) if late else ("approval", {"by": "Ada"})
    result = run_local(flows.checkout, {"order": "A1", "cents": 990}, execution_id="A1", signals=[approval])
    key = result["receipt"].pop("key")
    assert key.startswith("A1:")
    assert result == {
        "receipt": {"order": "A1", "cents": 990},
        "approved": {"by": "Ada"},
        "shipped": "A1 is on its way",
        "told": "the customer of A1 knows",
    }


def test_the_example_gives_its_shelf_back_when_the_charge_fails() -> None:
    run = local_execution(flows.checkout, {"order": "A1", "cents": 0}).run()
    shown = run.show()
    assert shown["status"] == "error"
    assert [(step["path"], step["status"]) for step in shown["steps"]] == [
        ("reserve", "completed"),
        ("charge", "failed"),
        ("release", "completed"),
    ]
    assert "trying again won't help" in shown["error"]["message"]


def test_the_example_is_free_of_what_flows_must_leave_to_steps() -> None:
    assert lint(flows.checkout) == []
