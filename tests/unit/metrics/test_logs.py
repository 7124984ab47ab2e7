"""Log lines: what they say, and what they never show."""

from __future__ import annotations

import io
import json
import logging
import sys
from itertools import permutations
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from urllib.parse import quote

import pytest
from msgspec.structs import replace

from stepwell.core import events
from stepwell.core import redact as redact_module
from stepwell.core.errors import UsageError
from stepwell.core.redact import Secrets, hide_secrets, redact
from stepwell.core.throttle import FIRST, FIRST_OF_ENDS
from stepwell.flow.context import StepContext, running_step
from stepwell.metrics import logs
from stepwell.metrics.formatting import JsonFormatter, KeyValueFormatter, utc_ms
from stepwell.metrics.logs import LogSubscriber, setup_logging
from stepwell.metrics.telling import FIELDS, LEVELS, group_of, said

SECRET = 'hunter"2\\é'


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
        " step=charge path=charge#2 attempt=2 max_attempts=5 kind=error"
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
        "execution parked: not deployed here; to do: run all workers with the flow checkout:"
        " it goes on once the one in charge has it",
        "execution parked: crashed; to do: mend what the traceback shows, then: stepwell retry order-7",
    ]


def test_in_text_the_fields_do_not_say_again_what_the_sentence_has_word_for_word() -> None:
    fields = {"shard": "w/0", "error": "SIGKILL", "detail": "killed by SIGKILL", "cause": "killed"}
    made = record("shard %s died: %s", "w/0", "killed by SIGKILL", fields=fields)
    assert KeyValueFormatter().format(made).endswith("shard w/0 died: killed by SIGKILL shard=w/0 cause=killed")
    assert fields.items() <= json.loads(JsonFormatter().format(made)).items()
    other = record("shard %s died", "w/0", fields=fields)
    assert KeyValueFormatter().format(other).endswith('error=SIGKILL detail="killed by SIGKILL" cause=killed')


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
    assert (
        "INFO    calling bank execution=order-7 flow=checkout step=charge path=charge#2 attempt=3 key=order-7:t0\n"
        in stream.getvalue()
    )


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


def test_of_many_alike_the_first_are_logged_and_the_rest_is_counted(failed: events.AttemptFailed) -> None:
    now = [0.0]
    caught: list[tuple[int, str, dict[str, object]]] = []

    class Catch(logging.Handler):
        def emit(self, record: logging.LogRecord) -> None:
            caught.append((record.levelno, record.getMessage(), record.__dict__["fields"]))

    logger = logging.Logger("stepwell.events", logging.INFO)
    logger.addHandler(Catch())
    subscriber = LogSubscriber(logger, lambda: now[0])
    for n in range(4822):
        now[0] = n / 1000
        subscriber(replace(failed, execution_id=f"order-{n}"))
    subscriber(replace(failed, step="ship"))
    assert [fields["execution"] for _, _, fields in caught] == [*(f"order-{n}" for n in range(10)), "order-7"]
    now[0] = 5.0
    subscriber.tick()
    assert caught[-1] == (
        logging.WARNING,
        "and 4,812 more like this in the last 5.0 s",
        {
            "execution": "order-4821",
            "event": "AttemptFailed",
            "flow": "checkout",
            "step": "charge",
            "kind": "error",
            "left_out": 4812,
        },
    )


@pytest.mark.pain(20)
def test_of_executions_that_fail_far_more_are_logged_than_of_retries(gave_up: events.StepGaveUp) -> None:
    caught: list[dict[str, object]] = []

    class Catch(logging.Handler):
        def emit(self, record: logging.LogRecord) -> None:
            caught.append(record.__dict__["fields"])

    logger = logging.Logger("stepwell.events", logging.INFO)
    logger.addHandler(Catch())
    subscriber = LogSubscriber(logger, lambda: 0.0)
    for n in range(1200):
        where = (f"order-{n}", "checkout")
        subscriber(replace(gave_up, execution_id=where[0]))
        subscriber(events.ExecutionEnded(*where, "error", "flow raised", 5, 0, "StepFailed", "", ""))
        subscriber(events.ExecutionEnded(*where, "cancelled", "", 5, 0))
    ended = [fields for fields in caught if fields["event"] == "ExecutionEnded"]
    assert len([fields for fields in caught if fields["event"] == "StepGaveUp"]) == FIRST_OF_ENDS == 1000
    assert len([fields for fields in ended if fields["status"] == "error"]) == FIRST_OF_ENDS
    assert len([fields for fields in ended if fields["status"] == "cancelled"]) == FIRST
    subscriber.flush()
    assert [(fields["event"], fields["execution"], fields["left_out"]) for fields in caught[-3:]] == [
        ("StepGaveUp", "order-1199", 200),
        ("ExecutionEnded", "order-1199", 200),
        ("ExecutionEnded", "order-1199", 1190),
    ]


def test_what_goes_well_costs_no_call_at_info(one_of_each: list[events.Event], monkeypatch: pytest.MonkeyPatch) -> None:
    logger = logging.Logger("stepwell.events", logging.INFO)
    subscriber = LogSubscriber(logger)
    monkeypatch.setattr(logger, "isEnabledFor", lambda level: pytest.fail("asked"))
    monkeypatch.setattr(logger, "log", lambda *_: pytest.fail("logged"))
    for event in one_of_each:
        if isinstance(event, events.ExecutionBegan | events.StepCompleted | events.BackoffLeft | events.WaitEnded):
            subscriber(event)


def test_a_line_for_those_left_out_has_the_fields_of_those(one_of_each: list[events.Event]) -> None:
    for event in one_of_each:
        _, fields = said(event)
        assert dict(group_of(event)).items() <= {**fields, "event": type(event).__name__}.items(), event


def test_an_execution_that_is_parked_at_no_place_in_its_code_has_no_empty_path() -> None:
    _, fields = said(events.ExecutionParked("order-7", "checkout", "not deployed here", "no such flow", 0))
    assert "path" not in fields
    assert fields["reason"] == "not deployed here"


def test_every_kind_of_event_has_a_level_and_words(one_of_each: list[events.Event]) -> None:
    assert set(LEVELS) == set(events.EVENTS)
    for event in one_of_each:
        message, fields = said(event)
        assert message != type(event).__name__
        assert (fields["execution"], fields["flow"]) == ("order-7", "checkout")
        assert set(fields) <= set(FIELDS)


def test_a_flood_of_own_lines_is_limited_but_not_the_users(quiet_root: None) -> None:
    stream = io.StringIO()
    handler = setup_logging(stream=stream)
    handler.__dict__["_monotonic"] = lambda: 7.0
    for n in range(500):
        logging.getLogger("stepwell.supervisor").error("the actor of execution %s failed", n)
        logging.getLogger("stepwell.step").info("mine %d", n)
        logging.getLogger("shop").info("mine %d", n)
        logging.getLogger("stepwell.worker").info("shard %d runs, not mine", n)
    handler.close()
    lines = stream.getvalue().splitlines()
    assert sum("mine" in line for line in lines) == 1500
    assert sum("the actor of" in line for line in lines) == 10 + 1
    assert "and 490 more like this in the last" in lines[-1]
    assert 'like="the actor of execution 499 failed" left_out=490' in lines[-1]


@pytest.mark.pain(45)
def test_the_example_of_lines_left_out_is_not_cut_within_a_password(quiet_root: None) -> None:
    stream = io.StringIO()
    handler = setup_logging(stream=stream, secrets=["s3cret-key"])
    handler.__dict__["_monotonic"] = lambda: 7.0
    for before, secret in ((180, "https://user:s3cret@bank.invalid/"), (194, "s3cret-key")):
        for _ in range(20):
            logging.getLogger("stepwell.leases").warning("%s %s can't be reached", before * "x", secret)
        handler.close()
    assert stream.getvalue().count("left_out=10") == 2
    assert "s3c" not in stream.getvalue()


def test_what_recurs_is_told_again_in_each_window_though_nobody_ticks(
    quiet_root: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    now = [0.0]
    monkeypatch.setattr(logs, "time", SimpleNamespace(monotonic=lambda: now[0]))
    stream = io.StringIO()
    setup_logging(stream=stream)
    for second in range(60):
        now[0] = float(second)
        for _ in range(4):
            logging.getLogger("stepwell.metrics").warning("a probe failed")
    told = [line for line in stream.getvalue().splitlines() if line.endswith("a probe failed")]
    left_out = [int(line.rpartition("left_out=")[2]) for line in stream.getvalue().splitlines() if "left_out=" in line]
    assert len(told) == 10 * 12, "the first ten of each five seconds"
    assert left_out == [10] * 11, "and how many more there were, once the next ones begin"


def test_any_logger_within_a_step_says_where_it_is(quiet_root: None) -> None:
    stream = io.StringIO()
    setup_logging(json=True, stream=stream)
    token = running_step.set(StepContext("order-7", "checkout", "charge", "charge#2", 3, "t0", "order-7:t0", 9))
    logging.getLogger("shop.bank").warning("slow")
    running_step.reset(token)
    logging.getLogger("shop.bank").warning("slow")
    inside, outside = map(json.loads, stream.getvalue().splitlines())
    assert (inside["execution"], inside["step"], inside["attempt"]) == ("order-7", "charge", 3)
    assert "execution" not in outside


@pytest.mark.pain(45)
def test_declared_secrets_are_in_no_line_however_they_are_spelt(
    quiet_root: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(redact_module, "_declared", Secrets())
    hide_secrets(SECRET, "", "s3cr3t!")
    for as_json in (False, True):
        stream = io.StringIO()
        setup_logging(json=as_json, stream=stream)
        try:
            try:
                raise KeyError(SECRET)
            except KeyError as cause:
                raise ValueError(f"https://api.example/s3cr3t!/x?q={quote(SECRET)}") from cause
        except ValueError:
            logging.getLogger("shop").exception("no %s", SECRET, extra={"fields": {"deep": [{"x": SECRET}]}})
        for form in ("hunter", "s3cr3t"):
            assert form not in stream.getvalue()


@pytest.mark.parametrize("secrets", list(permutations(["tok_live", "tok_live_9f8e", "e_9f8e7d"])))
def test_of_secrets_that_hold_each_other_nothing_is_left(
    monkeypatch: pytest.MonkeyPatch, secrets: tuple[str, ...]
) -> None:
    monkeypatch.setattr(redact_module, "_declared", Secrets())
    hide_secrets(*secrets)
    assert redact("a tok_live_9f8e b tok_live c e_9f8e7d") == "a *** b *** c ***"


def test_a_secret_that_would_hide_half_of_each_text_is_refused() -> None:
    with pytest.raises(UsageError, match="fewer than 4"):
        hide_secrets("abc")


def table(heading: str) -> dict[str, str]:
    """A table of docs/logs.md: first cell to second."""
    page = (Path(__file__).resolve().parents[3] / "docs" / "logs.md").read_text(encoding="utf-8")
    rows = page.split(f"| {heading} |", 1)[1].split("\n\n", 1)[0].splitlines()[2:]
    cells = [[cell.strip() for cell in row.strip("|").split("|")] for row in rows]
    return {first.strip("`"): second for first, second, *_ in cells}


def test_the_page_on_logs_has_each_event_with_its_level() -> None:
    told = {name: level.split(";")[0] for name, level in table("event").items()}
    assert told == {kind.__name__: logging.getLevelName(level) for kind, level in LEVELS.items()}


def test_the_page_on_logs_has_each_field_with_its_meaning() -> None:
    assert table("field") == FIELDS
