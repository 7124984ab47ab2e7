"""Whatever text comes into a log line, by whatever way: it can't look like another line, and steers no terminal."""

from __future__ import annotations

import io
import json
import logging
import re
import sys
import unicodedata
from collections.abc import Callable
from types import TracebackType
from typing import TypeAlias

import pytest

from stepwell.metrics.formatting import JsonFormatter, KeyValueFormatter
from stepwell.metrics.logs import setup_logging

KINDS = {"Cc", "Cf", "Zl", "Zp"}
HIDDEN = "".join(c for c in map(chr, range(sys.maxunicode + 1)) if unicodedata.category(c) in KINDS)
"""What steers or is not seen, by its kind in Unicode."""
FORGED = "2026-11-30T03:00:00.000Z CRITICAL forged execution=FAKE"
# Each with a line of ours behind.
ENDS = ("\n", "\r", "\r\n", "\x0b", "\x0c", "\x1c", "\x1d", "\x1e", "\x85", "\u2028", "\u2029")
NASTY = "boom" + "".join(end + FORGED for end in ENDS) + "\x1b[2J\x9b2J\u202eabc\u2066" + HIDDEN
STEERS = re.compile(f"[{re.escape(HIDDEN.replace(chr(10), ''))}\ud800-\udfff]")
RECORD = re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z ")

ExcInfo: TypeAlias = tuple[type[BaseException], BaseException, TracebackType | None]
Way: TypeAlias = Callable[[logging.LogRecord], None]


def record() -> logging.LogRecord:
    return logging.LogRecord("stepwell.test", logging.WARNING, __file__, 1, "all is well", None, None)


def raised(error: BaseException, cause: BaseException | None = None, context: BaseException | None = None) -> ExcInfo:
    try:
        try:
            if context is not None:
                raise context
        finally:
            raise error from cause if cause is not None else context
    except BaseException as caught:
        return type(caught), caught, caught.__traceback__


def with_note() -> BaseException:
    error = ValueError("plain")
    error.add_note(NASTY)
    return error


class OddText(Exception):
    def __str__(self) -> str:
        return NASTY


def message(made: logging.LogRecord) -> None:
    made.msg = NASTY


def arguments(made: logging.LogRecord) -> None:
    made.msg, made.args = "said %s and %r", (NASTY, {"k": NASTY})


def arguments_that_do_not_fit(made: logging.LogRecord) -> None:
    made.msg, made.args = NASTY + "%s %s", (NASTY,)


def a_field(made: logging.LogRecord) -> None:
    made.fields = {"detail": NASTY, "deep": [{"x": NASTY}], "error": ValueError(NASTY)}


def the_name_of_a_field(made: logging.LogRecord) -> None:
    made.fields = {NASTY: 1}


def the_loggers_name(made: logging.LogRecord) -> None:
    made.name = NASTY


def the_threads_name(made: logging.LogRecord) -> None:
    made.threadName = made.processName = made.taskName = NASTY


def the_levels_name(made: logging.LogRecord) -> None:
    made.levelname = NASTY


def an_exception(made: logging.LogRecord) -> None:
    made.exc_info = raised(ValueError(NASTY))


def an_exceptions_own_text(made: logging.LogRecord) -> None:
    made.exc_info = raised(OddText())


def the_name_of_an_exceptions_class(made: logging.LogRecord) -> None:
    made.exc_info = raised(type(NASTY.replace("\x00", ""), (Exception,), {"__module__": NASTY})("plain"))


def a_note(made: logging.LogRecord) -> None:
    made.exc_info = raised(with_note())


def a_cause(made: logging.LogRecord) -> None:
    made.exc_info = raised(ValueError("plain"), cause=OSError(NASTY))


def a_context(made: logging.LogRecord) -> None:
    made.exc_info = raised(ValueError("plain"), context=OSError(NASTY))


def a_group(made: logging.LogRecord) -> None:
    made.exc_info = raised(ExceptionGroup(NASTY, [ValueError(NASTY), with_note()]))


def a_line_of_code_that_does_not_compile(made: logging.LogRecord) -> None:
    made.exc_info = raised(SyntaxError("plain", (NASTY, 1, 2, NASTY)))


def the_text_of_an_exception_that_was_formatted_before(made: logging.LogRecord) -> None:
    made.exc_info, made.exc_text = raised(ValueError("plain")), NASTY


def the_text_of_an_exception_that_is_not_there(made: logging.LogRecord) -> None:
    made.exc_text = NASTY


def the_stack(made: logging.LogRecord) -> None:
    made.stack_info = "Stack (most recent call last):\n" + NASTY


WAYS: tuple[Way, ...] = (
    message,
    arguments,
    arguments_that_do_not_fit,
    a_field,
    the_name_of_a_field,
    the_loggers_name,
    the_threads_name,
    the_levels_name,
    an_exception,
    an_exceptions_own_text,
    the_name_of_an_exceptions_class,
    a_note,
    a_cause,
    a_context,
    a_group,
    a_line_of_code_that_does_not_compile,
    the_text_of_an_exception_that_was_formatted_before,
    the_text_of_an_exception_that_is_not_there,
    the_stack,
)


def check_text(written: str) -> None:
    assert STEERS.search(written) is None
    first, *below = written.split("\n")
    assert RECORD.match(first)
    assert all(line.startswith("  ") for line in below)
    assert len(written.splitlines()) == 1 + len(below)


def check_json(written: str) -> None:
    assert STEERS.search(written) is None
    assert len(written.splitlines()) == 1
    assert json.loads(written)["time"]


@pytest.mark.pain(45)
@pytest.mark.parametrize("way", WAYS)
def test_no_text_forges_a_line_or_steers_a_terminal(way: Way) -> None:
    made = record()
    way(made)
    check_text(KeyValueFormatter().format(made))
    check_json(JsonFormatter().format(made))


def test_what_the_lines_say_is_all_there() -> None:
    made = record()
    an_exception(made)
    fields: dict[str, object] = {"detail": NASTY}
    made.fields = fields
    line = json.loads(JsonFormatter().format(made))
    assert line["detail"] == NASTY
    assert line["traceback"].startswith("Traceback (most recent call last):\n")
    assert line["traceback"].endswith("ValueError: " + NASTY)
    text = KeyValueFormatter().format(made)
    assert "\n  Traceback (most recent call last):\n    File " in text
    assert f"\n  {FORGED}\\r{FORGED}\\r\n  {FORGED}\\x0b{FORGED}" in text


def test_a_step_that_logs_its_own_exception_forges_nothing(quiet_root: None) -> None:
    stream = io.StringIO()
    setup_logging(stream=stream)
    try:
        raise ValueError(NASTY)
    except ValueError:
        logging.getLogger("stepwell.step").exception("handled it")
    check_text(stream.getvalue().rstrip("\n"))


def test_an_exception_that_can_not_be_shown_at_all_is_named() -> None:
    class Hostile(Exception):
        @property
        def __notes__(self) -> list[str]:
            raise RuntimeError("no")

    made = record()
    made.exc_info = raised(Hostile())
    assert "Hostile" in KeyValueFormatter().format(made)
