"""What is printed: colours where they are seen, nothing that steers a terminal, tables that fit."""

from __future__ import annotations

import io
import json
import sys
import unicodedata
from collections.abc import Callable
from pathlib import Path

import pytest

from stepwell.cli.session import Session, columns, cut, open_client, plain
from stepwell.cli.tables import harmless
from stepwell.core.errors import UsageError


class Screen(io.TextIOWrapper):
    """A stdout that may be a terminal, with an encoding."""

    def __init__(self, terminal: bool, encoding: str = "utf-8") -> None:
        self.raw_bytes = io.BytesIO()
        super().__init__(self.raw_bytes, encoding=encoding, write_through=True)
        self._terminal = terminal

    def isatty(self) -> bool:
        return self._terminal

    @property
    def text(self) -> str:
        return self.raw_bytes.getvalue().decode(self.encoding)


Show = Callable[..., Screen]


@pytest.fixture
def show(monkeypatch: pytest.MonkeyPatch) -> Show:
    """`show(terminal, encoding)` makes stdout a screen."""
    monkeypatch.delenv("NO_COLOR", raising=False)
    monkeypatch.setenv("TERM", "xterm")

    def showing(terminal: bool, encoding: str = "utf-8") -> Screen:
        made = Screen(terminal, encoding)
        monkeypatch.setattr("sys.stdout", made)
        return made

    return showing


LINE = [("charge  ", ""), ("failed", "bad")]


def test_a_terminal_gets_colours(show: Show) -> None:
    screen = show(True)
    Session().answer_lines([LINE])
    assert screen.text == "charge  \x1b[31mfailed\x1b[0m\n"


@pytest.mark.parametrize(("name", "value"), [("NO_COLOR", "1"), ("TERM", "dumb")])
def test_a_terminal_without_colours_gets_none(
    show: Show, monkeypatch: pytest.MonkeyPatch, name: str, value: str
) -> None:
    screen = show(True)
    monkeypatch.setenv(name, value)
    Session().answer_lines([LINE])
    assert screen.text == "charge  failed\n"


def test_a_pipe_gets_plain_text_of_a_fixed_width(show: Show) -> None:
    screen = show(False)
    own = Session()
    own.answer_lines([LINE])
    assert screen.text == "charge  failed\n"
    assert own.width == 100


def test_what_the_encoding_lacks_is_replaced(show: Show) -> None:
    screen = show(False, "ascii")
    own = Session()
    own.answer_lines([[("Ärger █", "bad")]])
    assert own.ascii
    assert screen.text == "?rger ?\n"


def test_json_is_one_line_for_a_pipe(show: Show) -> None:
    screen = show(False)
    Session().answer_json({"a": ["Ä"]})
    assert screen.text == '{"a": ["Ä"]}\n'


def test_json_is_indented_for_a_person(show: Show) -> None:
    screen = show(True)
    Session().answer_json({"a": 1})
    assert screen.text == '{\n  "a": 1\n}\n'


def test_a_remark_steers_no_terminal_and_shows_no_password(capsys: pytest.CaptureFixture[str]) -> None:
    Session().remark("one\ntwo \x1b[2J redis://:hunter2@db")
    assert capsys.readouterr().err == "one\ntwo \\x1b[2J redis://:***@db\n"


# Apart, as JSON makes one character of two halves.
HIDDEN = "-".join(
    c for c in map(chr, range(sys.maxunicode + 1)) if unicodedata.category(c) in {"Cc", "Cf", "Zl", "Zp", "Cs"}
).replace("\n", "")


@pytest.mark.parametrize("terminal", [True, False])
def test_whatever_is_answered_steers_no_terminal_and_hides_nothing(
    show: Show, terminal: bool, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """By its kind in Unicode: all that steers or is not seen."""
    monkeypatch.setenv("NO_COLOR", "1")
    screen = show(terminal)
    own = Session()
    own.answer(f"one{HIDDEN}\ntwo")
    own.answer_lines([[(HIDDEN, "bad")]])
    own.answer_encoded(json.dumps(HIDDEN, ensure_ascii=False))
    own.answer_json({HIDDEN: [HIDDEN]})
    own.remark(HIDDEN)
    lines = [*screen.text.split("\n"), *capsys.readouterr().err.split("\n")]
    assert all(line.isprintable() for line in lines)
    assert json.loads(lines[3]) == HIDDEN
    assert harmless(HIDDEN).isprintable()


def test_a_table_cuts_its_last_column_only() -> None:
    rows = [["ID", "REASON"], ["a-long-id", "one\ntwo " + "x" * 50]]
    assert [plain(line) for line in columns(rows, 30)] == ["ID         REASON", "a-long-id  one\\ntwo xxxxxxxxx…"]
    assert columns([], 30) == []


def test_on_a_narrow_screen_a_table_leaves_out_what_it_can_spare() -> None:
    rows = [["ID", "AT", "REASON", "WHAT"], ["a-long-id", "2026-01-02T03:04:05", "no such execution", "{}" * 9]]

    def heading(width: int) -> list[str]:
        shown = [plain(line) for line in columns(rows, width, ("WHAT", "AT"))]
        assert all(len(line) <= width for line in shown)
        return shown[0].split()

    assert heading(80) == ["ID", "AT", "REASON", "WHAT"]
    assert heading(60) == ["ID", "AT", "REASON"]
    assert heading(40) == ["ID", "REASON"]
    assert heading(23) == ["ID", "REASON"]


def test_columns_are_as_wide_as_what_is_shown_and_texts_look_as_in_the_live_view() -> None:
    odd = "a\u200b\n\xad\u3000\ue000\U000e0001é日"
    rows = [["ID", "FLOW", "STATUS"], [odd, "f\x1b", "ok"], ["b", "f", "ok"]]
    heading, first, second = [plain(line) for line in columns(rows, 200)]
    assert first == "a\\u200b\\n\\xad\\u3000\\ue000\\U000e0001é日  f\\x1b  ok"
    assert heading.index("STATUS") == first.rindex("ok") == second.rindex("ok")
    assert first.split("  ")[0] == harmless(odd)


def test_cutting_says_that_something_is_left_out() -> None:
    assert (cut("12345", 5), cut("123456", 5)) == ("12345", "1234…")


def test_a_look_into_a_wrong_folder_makes_no_data_there(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match=r"no data in .*/wrong: give their folder"):
        open_client(None, tmp_path / "wrong", "stepwell")
    assert not (tmp_path / "wrong").exists()
