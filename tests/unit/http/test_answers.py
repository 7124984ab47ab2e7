"""What an answer means for the step, and what is kept of it."""

from __future__ import annotations

import asyncio
import gzip
import pickle
import traceback
from collections.abc import Callable
from typing import Any

import httpx
import pytest

from stepwell.actors.kit.clock import VirtualClock
from stepwell.core import codec
from stepwell.core.errors import FatalError, PayloadError, RetryAfter
from stepwell.core.retry import Retry, classify
from stepwell.http import HttpError, HttpRefused, Response, send

URL = "https://user:pw1@pay.example/charges?token=pw2&a=1#frag"
SHOWN = "POST https://pay.example/charges"
DATE = "Mon, 05 Jan 2026 09:30:00 GMT"
Sent = Callable[..., Response]
Receiver = Any  # the fixture's class, which lives in conftest


@pytest.mark.parametrize("status", [408, 425, 429, 500, 501, 502, 503, 504, 599])
def test_a_status_that_may_pass_is_worth_another_try(sent: Sent, receiver: Receiver, status: int) -> None:
    receiver.answers(httpx.Response(status, text="try\nlater"))
    with pytest.raises(HttpError) as caught:
        sent("POST", URL)
    assert caught.value.status == status
    assert str(caught.value).startswith(f"{status} ")
    assert f" from {SHOWN}: " in str(caught.value)
    assert str(caught.value).endswith(": try later")
    assert classify(caught.value, Retry()).retryable


@pytest.mark.parametrize("status", [400, 401, 402, 404, 409, 410, 418, 422, 451, 300, 301, 304, 307, 499])
def test_any_other_refusal_is_final(sent: Sent, receiver: Receiver, status: int) -> None:
    receiver.answers(httpx.Response(status, text="x" * 2000))
    with pytest.raises(HttpRefused) as caught:
        sent("POST", URL)
    assert caught.value.status == status
    assert "x" * 500 in str(caught.value)
    assert "x" * 501 not in str(caught.value)
    assert isinstance(caught.value, FatalError)
    assert not classify(caught.value, Retry()).retryable


@pytest.mark.parametrize("status", [200, 201, 202, 204, 206])
def test_success_is_returned(sent: Sent, receiver: Receiver, status: int) -> None:
    receiver.answers(httpx.Response(status, text="" if status == 204 else "ok"))
    assert sent("POST", URL).status == status


def test_a_status_that_the_caller_accepts_is_success(sent: Sent, receiver: Receiver) -> None:
    receiver.answers(httpx.Response(404, text="not there"))
    assert sent("GET", URL, accept=(404,)).text == "not there"


@pytest.mark.parametrize(
    ("status", "headers", "seconds"),
    [
        (429, {"Retry-After": "7"}, 7),
        (503, {"Retry-After": " 0 "}, 0),
        (503, {"Retry-After": "1.5"}, 1.5),
        (500, {"Retry-After": "9" * 400}, float("inf")),
        (503, {"Retry-After": "Mon, 05 Jan 2026 09:30:40 GMT", "Date": DATE}, 40),
        (503, {"Retry-After": "Monday, 05-Jan-26 09:30:40 GMT", "Date": DATE}, 40),
        (503, {"Retry-After": "Mon Jan  5 09:30:40 2026", "Date": DATE}, 40),
        (429, {"Retry-After": "Mon, 05 Jan 2026 09:29:00 GMT", "Date": DATE}, 0),
        (429, {"Retry-After": "Mon, 05 Jan 2026 09:30:40 GMT"}, 25),  # by the clock, which is at 09:30:15
    ],
)
def test_an_answer_that_says_when_is_believed(
    sent: Sent, receiver: Receiver, status: int, headers: dict[str, str], seconds: float
) -> None:
    receiver.answers(httpx.Response(status, headers=headers, text="busy"))
    with pytest.raises(RetryAfter) as caught:
        sent("POST", URL, clock=VirtualClock(1_767_605_415_000))
    assert caught.value.seconds == seconds
    assert str(caught.value).startswith(f"{status} ")
    Retry().delay("t0", 1, retry_after=caught.value.seconds)


@pytest.mark.parametrize("asked", ["", "soon", "-5", "nan", "inf", "1e9", "²", "Mon, 99 Jan 2026 09:30:40 GMT", "\x00"])
def test_a_retry_after_that_says_nothing_leaves_the_delay_to_the_policy(
    sent: Sent, receiver: Receiver, asked: str
) -> None:
    receiver.answers(httpx.Response(503, headers=[(b"Retry-After", asked.encode()), (b"Date", DATE.encode())]))
    with pytest.raises(HttpError):
        sent("POST", URL)


def test_a_date_with_nothing_to_compare_it_to_leaves_the_delay_to_the_policy(sent: Sent, receiver: Receiver) -> None:
    receiver.answers(httpx.Response(503, headers={"Retry-After": DATE}))
    with pytest.raises(HttpError):
        sent("POST", URL)


@pytest.mark.parametrize(
    "broken",
    [
        httpx.ConnectError("[Errno 111] Connection refused"),
        httpx.ReadError(""),
        httpx.RemoteProtocolError("Server disconnected without sending a response."),
        httpx.ReadTimeout(""),
        httpx.ConnectTimeout("https://user:pw1@pay.example"),
        httpx.DecodingError("bad gzip"),
    ],
)
def test_no_answer_is_worth_another_try(sent: Sent, receiver: Receiver, broken: Exception) -> None:
    receiver.answers(broken)
    with pytest.raises(HttpError) as caught:
        sent("POST", URL)
    assert not isinstance(caught.value, FatalError)
    assert caught.value.status is None
    assert str(caught.value).startswith("no answer ")
    assert f" from {SHOWN}" in str(caught.value)


def test_an_answer_that_does_not_come_in_time_is_worth_another_try(receiver: Receiver) -> None:
    async def run() -> None:
        asked = asyncio.Event()

        async def silent(_request: httpx.Request) -> httpx.Response:
            asked.set()
            await asyncio.Event().wait()
            raise AssertionError

        # The limit runs out by the loop's own clock, which jumps instead of anybody waiting.
        loop = asyncio.get_running_loop()
        started, passed = loop.time(), 0.0
        loop.time = lambda: started + passed  # type: ignore[method-assign]
        receiver.handler = silent
        sending = asyncio.ensure_future(send("POST", URL, timeout=30))
        while not asked.is_set():
            await asyncio.sleep(0)
        passed = 29.9
        for _ in range(5):
            await asyncio.sleep(0)
        assert not sending.done()
        passed = 30.1
        with pytest.raises(HttpError, match=r"^no answer within 30 s from "):
            await sending

    asyncio.run(run())


@pytest.mark.parametrize(
    ("method", "url"),
    [
        ("GET", ""),
        ("GET", "pay.example/charges"),
        ("GET", "ftp://pay.example"),
        ("GET", "file:///etc/passwd"),
        ("GET", "https://"),
        ("GET", "https://user:p/w1@pay.example"),
        ("GET", "https://user:pw1@pay.example:notaport/?token=pw2"),
        ("GET", None),
        ("GET", 7),
    ],
)
def test_an_address_that_can_not_be_asked_is_final_and_hides_its_password(
    sent: Sent, receiver: Receiver, method: str, url: str
) -> None:
    with pytest.raises(HttpRefused, match="expected an address like https://host/path") as caught:
        sent(method, url)
    assert "w1" not in "".join(traceback.format_exception(caught.value))
    assert "pw2" not in str(caught.value)
    assert receiver.requests == []


@pytest.mark.parametrize(
    "options",
    [
        {"headers": {"X-Key": "pässword-\u20ac"}},
        {"headers": {"X-Key": 7}},
        {"headers": {7: "a"}},
        {"headers": "no mapping"},
        {"json": {}, "content": b""},
        {"json": {}, "form": {}},
        {"content": object()},
        {"params": 7},
    ],
)
def test_a_request_that_can_not_be_built_is_final(sent: Sent, receiver: Receiver, options: dict[str, object]) -> None:
    with pytest.raises(HttpRefused, match="can't be sent") as caught:
        sent("POST", URL, **options)
    assert "ssword" not in str(caught.value)
    assert receiver.requests == []


def test_json_that_can_not_be_encoded_is_final(sent: Sent, receiver: Receiver) -> None:
    with pytest.raises(PayloadError, match=r"the json of POST https://pay\.example/charges can't be stored"):
        sent("POST", URL, json={"a": object()})


def test_a_header_with_a_line_break_is_final_and_not_shown(sent: Sent, receiver: Receiver) -> None:
    password = "p" + "w3"  # a traceback shows source lines
    receiver.answers(httpx.LocalProtocolError(f"Illegal header value b'Bearer {password}\\n'"))
    with pytest.raises(HttpRefused) as caught:
        sent("POST", URL, headers={"Authorization": f"Bearer {password}\n"})
    assert "pw3" not in "".join(traceback.format_exception(caught.value))


def test_messages_show_neither_credentials_nor_query(sent: Sent, receiver: Receiver) -> None:
    receiver.answers(
        httpx.Response(400, text="no https://u:pw3@x.example/?secret=pw4"),
        httpx.Response(503, headers={"Retry-After": "5"}),
        httpx.ConnectError("can't reach https://user:pw1@pay.example/?token=pw2"),
    )
    for _ in range(3):
        with pytest.raises((HttpError, RetryAfter)) as caught:
            sent("POST", URL)
        assert SHOWN in str(caught.value)
        for hidden in ("pw1", "pw2", "pw3", "pw4", "user", "a=1", "frag"):
            assert hidden not in str(caught.value)


def test_a_body_over_the_limit_is_one_clear_final_error(sent: Sent, receiver: Receiver) -> None:
    receiver.handler = lambda request: httpx.Response(200, content=b"x" * 1001)
    assert len(sent("POST", URL, max_bytes=1001).text) == 1001
    with pytest.raises(PayloadError, match=r"POST https://pay\.example/charges .* over the limit of 1,000 bytes"):
        sent("POST", URL, max_bytes=1000)


def test_a_small_answer_that_unpacks_to_a_big_one_is_stopped(sent: Sent, receiver: Receiver) -> None:
    packed = gzip.compress(b"x" * 10_000_000)
    receiver.handler = lambda request: httpx.Response(200, headers={"Content-Encoding": "gzip"}, content=packed)
    with pytest.raises(PayloadError, match="over the limit"):
        sent("GET", URL)


@pytest.mark.parametrize(("status", "error"), [(500, HttpError), (404, HttpRefused)])
def test_a_long_error_page_does_not_hide_the_status(
    sent: Sent, receiver: Receiver, status: int, error: type[Exception]
) -> None:
    receiver.answers(httpx.Response(status, content=b"x" * 5_000_000))
    with pytest.raises(error, match=f"^{status} "):
        sent("GET", URL)


@pytest.mark.parametrize(
    ("content", "content_type", "text", "data"),
    [
        ("größer".encode(), "text/plain", "größer", b""),
        ("größer".encode("latin-1"), "text/plain; charset=ISO-8859-1", "größer", b""),
        ("größer".encode("utf-16"), 'text/plain; charset="utf-16"', "größer", b""),
        ("größer".encode(), "text/plain; charset=no-such", "größer", b""),
        (b"\xef\xbb\xbf{}", "application/json", "{}", b""),
        (b"plain", "", "plain", b""),
        (b"", "", "", b""),
        (b"\xff\xfe\x00\x89PNG", "image/png", "", b"\xff\xfe\x00\x89PNG"),
        (b"\\ud800", "text/plain; charset=unicode_escape", "\\ud800", b""),
        (b"00", "text/plain; charset=hex", "00", b""),
    ],
)
def test_a_body_is_text_where_it_can_be(
    sent: Sent, receiver: Receiver, content: bytes, content_type: str, text: str, data: bytes
) -> None:
    receiver.answers(httpx.Response(200, content=content, headers={"Content-Type": content_type}))
    answer = sent("GET", URL)
    assert (answer.text, answer.data) == (text, data)
    assert codec.decode(codec.encode(answer, "it"), codec.decoder(Response), "it") == answer


def test_headers_come_in_lower_case_and_repeated_ones_joined(sent: Sent, receiver: Receiver) -> None:
    receiver.answers(httpx.Response(200, headers=[("X-Id", "a"), ("x-id", "b"), ("ETag", '"7"')]))
    headers = sent("GET", URL).headers
    assert (headers["x-id"], headers["etag"]) == ("a, b", '"7"')


def test_json_is_read_from_the_text_or_refused_with_its_beginning() -> None:
    assert Response(200, {}, '{"id": 7}').json() == {"id": 7}
    with pytest.raises(PayloadError, match=r"status 200, text/html.*begins '<html>"):
        Response(200, {"content-type": "text/html"}, "<html>").json()
    with pytest.raises(PayloadError):
        Response(200, {}, "[" * 100_000).json()


@pytest.mark.pain(45)
def test_the_begin_of_an_answer_is_not_cut_within_a_password() -> None:
    text = 60 * "x" + " https://user:s3cret@bank.invalid/"
    with pytest.raises(PayloadError, match=r"begins 'x{60} https://:\*{3}@bank") as caught:
        Response(200, {}, text).json()
    assert "s3c" not in str(caught.value)


@pytest.mark.parametrize("error", [HttpError("m", 503), HttpError("m"), HttpRefused("m", 404)])
def test_errors_survive_a_trip_to_another_process(error: HttpError) -> None:
    back = pickle.loads(pickle.dumps(error))
    assert (type(back), str(back), back.status) == (type(error), "m", error.status)
