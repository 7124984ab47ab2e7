"""`list --backing-off`: who waits for a next attempt, as a table or JSON."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from types import ModuleType
from typing import Any

import pytest
from unit.cli.conftest import Run

from stepwell.cli import looking
from stepwell.cli.session import Session
from stepwell.client import Page


class FakeClient:
    """Has one page for whoever asks, and remembers what it was asked."""

    def __init__(self, page: Page) -> None:
        self.page = page
        self.asked: list[tuple[Any, ...]] = []

    def list(self, *arguments: Any, **options: Any) -> Page:
        self.asked.append((*arguments, *options.values()))
        return self.page

    def workers(self) -> list[Any]:
        return [{"id": "w", "flows": {"checkout": {}, "refund": {}}}]

    def why_idle(self) -> str:
        return ""

    def __enter__(self) -> FakeClient:
        return self

    def __exit__(self, *_: object) -> None: ...


@pytest.fixture
def run(run_of: Callable[[ModuleType, str], Run]) -> Run:
    return run_of(looking, "list")


LISTED = {"id": "A1", "flow": "checkout", "status": "waiting", "created_at": 1, "updated_at": 2, "error": None}
DUE = 1_767_323_050_000
BACKOFF = {
    "path": "gather.1/charge",
    "step": "charge",
    "attempt": 3,
    "max_attempts": 5,
    "due_at": DUE,
    "error_type": "HttpError",
    "error": "503 of the bank",
    "others": 0,
}


def test_what_backs_off_is_listed_with_its_step_its_attempt_its_error_and_when_it_is_due(run: Run) -> None:
    waits = {**LISTED, "backoff": BACKOFF, "attributes": {"customer": "c7"}}
    unknown = {"max_attempts": None, "error_type": None, "error": None, "due_at": DUE - 9_000, "others": 2}
    late = {**LISTED, "attributes": {}, "id": "B", "backoff": {**BACKOFF, **unknown}}
    client = FakeClient(Page([late, waits], "c0ffee", 2, DUE - 2_500))
    options = ["--backing-off", "--flow", "checkout", "--step", "charge", "--attr", "customer=c7"]
    code, out, err = run(client, *options)
    assert (code, err) == (0, "go on with --cursor c0ffee\n")
    assert [re.split(" {2,}", line) for line in out.splitlines()] == [
        ["ID", "DUE IN", "ATTEMPT", "STEP", "customer", "LAST ERROR"],
        ["B", "6.5 s late", "3", "checkout/gather.1/charge and 2 more"],
        ["A1", "2.5 s", "3 of 5", "checkout/gather.1/charge", "c7", "HttpError: 503 of the bank"],
    ]
    asked = (None, "checkout", 100, None, {"customer": "c7"}, None, None, None, True, "charge")
    assert client.asked[0] == asked
    answer = json.loads(run(client, *options, "--json")[1])
    assert (answer["executions"][1]["backoff"], answer["at"]) == (BACKOFF, DUE - 2_500)


@pytest.mark.parametrize(
    ("flow", "path", "step"),
    [
        ("checkout", "charge", "checkout/charge"),
        ("monthly-settlement-of-accounts", "charge", "mont…nts/charge"),
        ("checkout", "gather.1/reserve-at-the-warehouse", "checkou…rehouse"),
    ],
)
def test_what_backs_off_fits_a_small_screen_with_generated_ids_too(
    run: Run, monkeypatch: pytest.MonkeyPatch, flow: str, path: str, step: str
) -> None:
    monkeypatch.setattr(Session, "text_width", 80)
    name = "019b3a52-8f0e-7a31-9f2b-3c1d5e7f9a0b"
    page = [
        {**LISTED, "id": name, "flow": flow, "attributes": {"customer": "c7"}, "backoff": {**BACKOFF, "path": path}},
        {**LISTED, "id": name, "attributes": {}, "backoff": {**BACKOFF, "path": "pay", "due_at": DUE - 14_000}},
    ]
    client = FakeClient(Page(page, None, 2, DUE - 2_500))
    lines = run(client, "--backing-off")[1].splitlines()
    assert max(map(len, lines)) <= 80
    assert re.split(" {2,}", lines[0]) == ["ID", "DUE IN", "STEP", "LAST ERROR"]
    assert re.split(" {2,}", lines[1]) == [name, "2.5 s", step, "HttpError: …"]
    assert re.split(" {2,}", lines[2])[1:3] == ["11.5 s late", "checkout/pay"]
    with_attributes = run(client, "--backing-off", "--attr", "customer=c7")[1].splitlines()
    assert max(map(len, with_attributes)) <= 80


def test_where_nothing_backs_off_it_is_said_as_it_was_asked(run: Run) -> None:
    nothing = FakeClient(Page())
    assert run(nothing, "--backing-off")[2] == "there is no execution in backoff\n"
    asked = run(nothing, "--backing-off", "--flow", "f", "--step", "charge", "--error", "Down")
    assert asked[2] == "there is no execution of flow f in backoff of step charge with the error Down\n"


def test_of_a_flow_that_nobody_knows_one_of_a_similar_name_is_asked_for(run: Run) -> None:
    nothing = FakeClient(Page())
    assert run(nothing, "--flow", "chekout")[2] == "there is no execution of flow chekout (did you mean checkout?)\n"
    assert run(nothing, "--flow", "checkout")[2] == "there is no execution of flow checkout\n"
    assert run(nothing, "--flow", "payroll")[2] == "there is no execution of flow payroll\n"
