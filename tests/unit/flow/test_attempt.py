"""One attempt: its arguments are copies, its context says who it is, its errors are judged and cleaned."""

from __future__ import annotations

import json
import re
import threading
from typing import Any

import pytest

from stepwell import FatalError, Retry, RetryAfter, StepTimeout, current_step, flow, gather, sleep, step
from stepwell.core.errors import PayloadError, UsageError
from stepwell.core.messages import MESSAGE_CHARS_MAX, message_of
from stepwell.flow.attempt import copied_arguments, failure_of
from stepwell.flow.operations import StepCall
from stepwell.testing import LocalRun, run_local


@step
def takes(a: object, b: object = None) -> object:
    return len(a) + 1  # type: ignore[arg-type]


@step
async def takes_async(a: int) -> int:
    return a + None  # type: ignore[operator]


def caught(call: Any) -> BaseException:
    try:
        call()
    except BaseException as error:
        return error
    raise AssertionError("it did not raise")


async def _sent(coroutine: Any) -> None:
    await coroutine


def test_wrong_arguments_are_terminal() -> None:
    for call in (lambda: takes.fn(), lambda: takes.fn(1, 2, 3), lambda: takes.fn(1, c=2)):
        judged = failure_of(caught(call), takes)
        assert (judged.retryable, judged.error.reason, judged.error.type) == (False, "arguments", "TypeError")
    judged = failure_of(caught(lambda: takes_async.fn()), takes_async)
    assert (judged.retryable, judged.error.reason) == (False, "arguments")


def test_a_type_error_inside_of_the_body_is_a_failed_attempt() -> None:
    assert failure_of(caught(lambda: takes.fn(5)), takes).retryable
    assert failure_of(caught(lambda: _sent(takes_async.fn(5)).send(None)), takes_async).retryable
    assert failure_of(TypeError("from afar, without a traceback"), takes).retryable


def test_wrong_arguments_end_the_step_after_one_attempt() -> None:
    @flow
    async def wrong() -> None:
        await takes()  # type: ignore[call-arg]

    error = run_local(wrong, raise_on_error=False)
    assert (error["attempts"], error["failed_step"]["path"]) == (1, "takes")
    assert "missing 1 required positional argument: 'a'" in error["message"]


def test_what_an_error_asks_for_is_passed_on() -> None:
    assert failure_of(RetryAfter(7), takes).retry_after == 7
    assert failure_of(FatalError("no"), takes).error.reason == "fatal"


class Unspeakable(Exception):
    def __str__(self) -> str:
        raise RuntimeError("no words")


@pytest.mark.parametrize(
    ("error", "text"),
    [
        (ValueError("plain"), "plain"),
        (ValueError(), ""),
        (ValueError("http://me:secret@host/x?token=abc&y=1"), "http://:***@host/x?token=***&y=1"),
        (ValueError("redis://:p@ss/word@host"), "redis://:***@host"),
        (OSError(2, "gone", "caf\udce9"), "[Errno 2] gone: 'caf\\udce9'"),
        (ValueError("bad \udce9 name"), "bad ? name"),
        (Unspeakable(), "(its own text could not be made: RuntimeError)"),
        (ValueError("x" * 5000), "x" * (MESSAGE_CHARS_MAX - 1) + "…"),
    ],
    ids=lambda v: type(v).__name__ if isinstance(v, Exception) else None,
)
def test_a_message_is_fit_for_rows_and_screens(error: Exception, text: str) -> None:
    assert message_of(error) == text


def test_a_step_with_an_unspeakable_error_still_fails_in_an_orderly_way() -> None:
    @step(retry=Retry(max_attempts=2))
    def mute() -> None:
        raise Unspeakable

    @flow
    async def silent() -> None:
        await mute()

    assert run_local(silent, raise_on_error=False)["type"] == "Unspeakable"


def test_a_step_that_exits_is_a_failed_attempt() -> None:
    @step(retry=Retry(max_attempts=2))
    def leaves() -> None:
        raise SystemExit(3)

    @flow
    async def exits() -> None:
        await leaves()

    error = run_local(exits, raise_on_error=False)
    assert (error["type"], error["attempts"]) == ("SystemExit", 2)


def test_a_body_that_changes_its_arguments_does_not_change_what_the_flow_holds() -> None:
    @step(retry=Retry(max_attempts=3))
    def greedy(items: list[int], *, more: dict[str, list[int]]) -> int:
        items.append(len(items))
        more["x"].append(1)
        if current_step().attempt < 3:
            raise OSError("again")
        return len(items) + len(more["x"])

    @flow
    async def holds() -> list[object]:
        items, more = [1], {"x": [1]}
        got = await greedy(items, more=more)
        return [items, more, got]

    assert run_local(holds) == [[1], {"x": [1]}, 4]


def test_plain_values_are_passed_as_they_are() -> None:
    text = "x" * 1000
    args, kwargs = copied_arguments(StepCall(takes, (text, 1, None, b"x"), {"b": 2.5}))
    assert args[0] is text
    assert (args[1:], kwargs) == ((1, None, b"x"), {"b": 2.5})


def test_an_argument_that_can_not_be_copied_is_named() -> None:
    with pytest.raises(PayloadError, match="argument 2 of step takes can't be copied: it is of type lock"):
        copied_arguments(StepCall(takes, (1, threading.Lock()), {}))
    with pytest.raises(PayloadError, match="argument 'b' of step takes"):
        copied_arguments(StepCall(takes, (1,), {"b": {"deep": threading.Lock()}}))


def test_an_argument_that_can_not_be_copied_ends_the_step_at_once() -> None:
    @flow
    async def shares() -> None:
        await takes(threading.Lock())

    error = run_local(shares, raise_on_error=False)
    assert (error["type"], error["attempts"]) == ("PayloadError", 1)


def test_a_body_knows_who_it_is() -> None:
    seen = []

    @step(name="named")
    async def body() -> None:
        seen.append(current_step())

    @flow
    async def around() -> None:
        await body()

    run = LocalRun(around, execution_id="order-7").run()
    (me,) = seen
    assert (me.execution_id, me.flow, me.step, me.path, me.attempt) == ("order-7", "around", "named", "named", 1)
    assert me.idempotency_key == f"order-7:{me.token}" == run.show()["steps"][0]["key"]
    assert me.logger.extra["key"] == me.idempotency_key
    with pytest.raises(UsageError, match="inside the body of a running @step"):
        current_step()


def test_an_attempt_over_its_timeout_is_a_retryable_failure() -> None:
    assert failure_of(StepTimeout("slow"), takes).retryable


def test_every_attempt_gets_the_arguments_that_the_flow_called_it_with() -> None:
    got: list[list[int]] = []

    @step(retry=Retry(max_attempts=2, base=1.0, jitter=0.0))
    async def send(items: list[int]) -> None:
        got.append(list(items))
        items.append(99)
        if len(got) == 1:
            raise ValueError("once")

    @step
    async def other() -> int:
        return 2

    @flow
    async def shop() -> None:
        items = [1]

        async def add() -> None:
            items.append(await other())

        await gather(send(items), add())

    run_local(shop)
    assert got == [[1], [1]]


@step
def parses() -> object:
    return json.loads("{")


@step
def sleeps_oddly() -> None:
    sleep(-1)


def test_a_failure_says_where_the_users_own_code_was() -> None:
    here = re.compile(r"flow/test_attempt\.py:\d+ in (\w+)")
    for call, names in (
        (lambda: takes.fn(1), "takes"),
        (lambda: parses.fn(), "parses"),  # the library raises it, the step called the library
        (lambda: sleeps_oddly.fn(), "sleeps_oddly"),  # ours raises it
    ):
        found = here.fullmatch(failure_of(caught(call), takes).error.where)
        assert found is not None
        assert found[1] == names


def test_a_failure_outside_of_the_users_code_has_no_place() -> None:
    assert failure_of(ValueError("never raised"), takes).error.where == ""
    judged = failure_of(caught(lambda: takes.fn()), takes)
    assert (judged.error.reason, judged.error.where) == ("arguments", "")
