"""Log lines: what they say, and what they never show."""

from __future__ import annotations

import io
import json
import logging
import sys
from collections.abc import Iterator
from typing import Any

import pytest
from msgspec.structs import replace

from stepwell.core import events
from stepwell.flow.context import StepContext
from stepwell.metrics.formatting import JsonFormatter, KeyValueFormatter, utc_ms
from stepwell.metrics.logs import LogSubscriber, setup_logging

SECRET = 'hunter"2\\é'


@pytest.fixture
def quiet_root() -> Iterator[None]:
    """Gives the root logger back as it was."""
    root = logging.getLogger()
    level, handlers = root.level, list(root.handlers)
    yield
    root.setLevel(level)
    root.handlers[:] = handlers


def record(message: str, *args: object, fields: dict[str, object] | None = None, **more: Any) -> logging.LogRecord:
    made = logging.LogRecord("stepwell.test", logging.WARNING, __file__, 1, message, args, more.get("exc_info"))
    made.created = 1_767_605_400.125
    if fields is not None:
        made.fields = fields
    return made


def lines_of(event: events.Event, as_json: bool = False) -> tuple[logging.LogRecord, str]:
    caught: list[logging.LogRecord] = []

    class Catch(logging.Handler):
        def emit(self, record: logging.LogRecord) -> None:
            caught.append(record)

    logger = logging.Logger("stepwell.events", logging.INFO)
    logger.addHandler(Catch())
    LogSubscriber(logger)(event)
    assert len(caught) == 1
    caught[0].created = 1_767_605_400.125
    return caught[0], (JsonFormatter() if as_json else KeyValueFormatter()).format(caught[0])


def test_a_failed_attempt_is_logged_with_its_real_delay_and_due_time(failed: events.AttemptFailed) -> None:
    made, line = lines_of(failed)
    assert made.levelno == logging.WARNING
    assert line == (
        "2026-01-05T09:30:00.125Z WARNING attempt 2 of 5 failed, next in 0.812 s execution=order-7 flow=checkout"
        " step=charge path=charge#2 attempt=2 max_attempts=5"
        ' error="HttpError: POST https://pay.example/charges answered 503"'
        " delay_s=0.812 due=2026-01-05T09:30:00.125Z key=order-7:t0 event=AttemptFailed"
    )


def test_json_lines_carry_the_same_fields_with_their_types(failed: events.AttemptFailed) -> None:
    line = json.loads(lines_of(failed, as_json=True)[1])
    assert (line["time"], line["level"]) == ("2026-01-05T09:30:00.125Z", "WARNING")
    assert (line["attempt"], line["max_attempts"], line["delay_s"]) == (2, 5, 0.812)
    assert "retry_after" not in line
    assert line["due"] == utc_ms(failed.due_at)


def test_a_delay_that_the_error_asked_for_is_marked(failed: events.AttemptFailed) -> None:
    asked = replace(failed, asked=True)
    assert " retry_after=true key=" in lines_of(asked)[1]
    assert json.loads(lines_of(asked, as_json=True)[1])["retry_after"] is True


def test_an_execution_that_failed_is_an_error_with_its_reason_and_place() -> None:
    ended = events.ExecutionEnded(
        "order-7", "checkout", "error", "flow raised", 1500, 0, "KeyError", "'total'", "shop/flows.py:12 in checkout"
    )
    made, line = lines_of(ended)
    assert made.levelno == logging.ERROR
    assert line.endswith(
        'execution ended: error execution=order-7 flow=checkout status=error reason="flow raised"'
        ' error="KeyError: \'total\'" where="shop/flows.py:12 in checkout" duration_s=1.5 event=ExecutionEnded'
    )


def test_levels_follow_what_a_person_has_to_do(one_of_each: list[events.Event]) -> None:
    caught: dict[str, int] = {}
    logger = logging.Logger("stepwell.events", logging.DEBUG)

    class Catch(logging.Handler):
        def emit(self, record: logging.LogRecord) -> None:
            caught[name] = record.levelno

    logger.addHandler(Catch())
    subscriber = LogSubscriber(logger)
    for event in one_of_each:
        name = type(event).__name__
        subscriber(event)
    subscriber(events.CommandDone("order-7", "checkout", "retry", True, "", 0, "c1"))
    assert caught == {
        "ExecutionBegan": logging.DEBUG,
        "StepCompleted": logging.DEBUG,
        "ExecutionResumed": logging.INFO,
        "StepCancelled": logging.DEBUG,
        "WaitBegan": logging.DEBUG,
        "WaitEnded": logging.DEBUG,
        "BackoffLeft": logging.DEBUG,
        "BackoffResumed": logging.DEBUG,
        "RetryStarted": logging.DEBUG,
        "AttemptFailed": logging.WARNING,
        "StepGaveUp": logging.ERROR,
        "StepInterrupted": logging.WARNING,
        "ResultDropped": logging.WARNING,
        "ExecutionParked": logging.ERROR,
        "ExecutionEnded": logging.ERROR,
        "CommandDone": logging.INFO,
    }


def test_who_is_parked_is_logged_with_what_to_do_about_it(caplog: pytest.LogCaptureFixture) -> None:
    subscriber = LogSubscriber(logging.getLogger("stepwell.events"))
    subscriber(events.ExecutionParked("order-7", "checkout", "not deployed here", "known: pay", 0))
    subscriber(events.ExecutionParked("order-7", "checkout", "crashed", "KeyError", 0))
    assert [record.getMessage() for record in caplog.records] == [
        "execution parked: not deployed here; to do: run a worker that has the flow checkout: it goes on then",
        "execution parked: crashed; to do: mend what the traceback shows, then: stepwell retry order-7",
    ]


@pytest.mark.parametrize("formatter", [KeyValueFormatter([SECRET]), JsonFormatter([SECRET])])
def test_credentials_are_hidden_in_messages_fields_and_tracebacks(formatter: logging.Formatter) -> None:
    try:
        raise ValueError(f"redis://user:pw1@host said no to {SECRET} ({SECRET!r})")
    except ValueError:
        info = sys.exc_info()
    made = record(
        "connecting to %s with %s",
        "rediss://:pw2@host/0",
        SECRET,
        fields={"url": "https://u:pw3@api.example/?token=pw4", "held": [SECRET], f"f{SECRET}": {"k": "a://b:pw5@c"}},
        exc_info=info,
    )
    made.stack_info = f"Stack: http://u:pw6@host {SECRET}"
    line = formatter.format(made)
    for hidden in ("pw1", "pw2", "pw3", "pw4", "pw5", "pw6"):
        assert hidden not in line
    assert "hunter" not in line
    assert "ValueError" in line
    assert "Traceback" in line


def test_no_text_can_forge_a_second_line() -> None:
    made = record("one\n2026 ERROR two\r\x1b[31m\u2028", fields={"a": 'x y="z"\n', "b": "", "c": None, "d e": 1})
    line = KeyValueFormatter().format(made)
    assert len(line.splitlines()) == 1
    assert line.endswith('a="x y=\\"z\\"\\n" b="" c="" "d e"=1')
    assert "\x1b" not in line


def test_a_field_named_like_a_standard_member_does_not_replace_it() -> None:
    line = json.loads(JsonFormatter().format(record("hello", fields={"message": "other", "level": 3})))
    assert (line["message"], line["field.message"], line["level"], line["field.level"]) == (
        "hello", "other", "WARNING", 3,
    )  # fmt: skip


@pytest.mark.parametrize("formatter", [KeyValueFormatter(), JsonFormatter()])
def test_odd_records_are_logged_all_the_same(formatter: logging.Formatter) -> None:
    class Odd:
        def __repr__(self) -> str:
            raise RuntimeError("no text")

    for made in (
        record("needs %s and %s", "one"),
        record("surrogate \udc80", fields={"path": "\udc80"}),
        record("odd", fields={"odd": Odd()}),
        record("nan", fields={"n": float("nan")}),
    ):
        assert formatter.format(made).encode("utf-8")


def test_a_steps_own_logger_brings_its_place(quiet_root: None) -> None:
    stream = io.StringIO()
    setup_logging(stream=stream)
    context = StepContext("order-7", "checkout", "charge", "charge#2", 3, "t0", "order-7:t0", 9)
    context.logger.info("calling %s", "bank", extra=None)
    assert "INFO    calling bank execution=order-7 path=charge#2 attempt=3 key=order-7:t0\n" in stream.getvalue()


def test_setting_up_again_replaces_the_first_setup_only(quiet_root: None) -> None:
    foreign = logging.NullHandler()
    logging.getLogger().addHandler(foreign)
    first, second = io.StringIO(), io.StringIO()
    setup_logging(stream=first)
    setup_logging(json=True, level="WARNING", stream=second, secrets=["s3cret"])
    logging.getLogger("stepwell.x").info("not shown")
    logging.getLogger("somebody.else").error("s3cret")
    assert first.getvalue() == ""
    assert [json.loads(line)["message"] for line in second.getvalue().splitlines()] == ["***"]
    assert foreign in logging.getLogger().handlers


def test_the_http_library_does_not_log_whole_addresses(quiet_root: None) -> None:
    stream = io.StringIO()
    setup_logging(level=logging.DEBUG, stream=stream)
    logging.getLogger("httpx").info("HTTP Request: GET https://api.example/?q=private")
    assert stream.getvalue() == ""


@pytest.mark.parametrize(
    ("milliseconds", "text"),
    [
        (0, "1970-01-01T00:00:00.000Z"),
        (1_767_605_400_125, "2026-01-05T09:30:00.125Z"),
        (999, "1970-01-01T00:00:00.999Z"),
    ],
)
def test_times_are_shown_in_utc_to_the_millisecond(milliseconds: int, text: str) -> None:
    assert utc_ms(milliseconds) == text
