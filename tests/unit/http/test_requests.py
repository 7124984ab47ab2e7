"""What is sent: keys, bodies, credentials; and how connections are kept."""

from __future__ import annotations

import asyncio
import base64
from dataclasses import dataclass
from datetime import timedelta
from typing import Any

import httpx
import pytest
from msgspec.structs import replace
from spans import Collected

import stepwell.http
from stepwell import Retry, flow
from stepwell.core.errors import ExecutionFailed
from stepwell.flow.context import StepContext, running_step
from stepwell.http import HttpError, HttpRefused, connections, send
from stepwell.http.connections import IDLE_MAX, IDLE_SECONDS, Connections
from stepwell.testing import local_execution, run_local

TRACE = "00-0af7651916cd43dd8448eb211c80319c-"
URL = "https://pay.example/charges"


def test_the_steps_key_goes_along(sent: Any, receiver: Any, in_step: StepContext) -> None:
    sent("POST", URL, json={})
    assert receiver.requests[0].headers["Idempotency-Key"] == in_step.idempotency_key


def test_a_key_of_the_callers_own_wins_in_any_case(sent: Any, receiver: Any, in_step: StepContext) -> None:
    sent("POST", URL, headers={"idempotency-KEY": "mine"})
    assert receiver.requests[0].headers.get_list("Idempotency-Key") == ["mine"]


def test_outside_a_step_there_is_no_key(sent: Any, receiver: Any) -> None:
    sent("POST", URL)
    assert "Idempotency-Key" not in receiver.requests[0].headers


def traced(context: StepContext) -> StepContext:
    return replace(context, traceparent=f"{TRACE}b7ad6b7169203331-01", tracestate="vendor=1")


def test_what_the_step_is_traced_under_goes_along(sent: Any, receiver: Any, in_step: StepContext) -> None:
    sent("POST", URL)
    token = running_step.set(traced(in_step))
    sent("POST", URL)
    running_step.reset(token)
    before, after = (request.headers for request in receiver.requests)
    assert "traceparent" not in before
    assert (after["traceparent"], after["tracestate"]) == (f"{TRACE}b7ad6b7169203331-01", "vendor=1")


def test_a_span_that_the_body_has_made_goes_along_in_its_place(sent: Any, receiver: Any, in_step: StepContext) -> None:
    token = running_step.set(traced(in_step))
    with Collected().provider.get_tracer("users").start_as_current_span("mine") as span:
        sent("POST", URL)
        sent("POST", URL, headers={"Traceparent": "mine"})
    running_step.reset(token)
    of = span.get_span_context()
    first, second = (request.headers for request in receiver.requests)
    assert first["traceparent"] == f"00-{of.trace_id:032x}-{of.span_id:016x}-{of.trace_flags:02x}"
    assert second.get_list("traceparent") == ["mine"], "a header of the caller's own wins"


def test_bodies_are_sent_as_they_are_asked_for(sent: Any, receiver: Any) -> None:
    @dataclass
    class Order:
        id: int
        note: str

    sent("post", URL, json=Order(7, "größer"))
    sent("POST", URL, form={"amount": 5, "to": "a b"})
    sent("POST", URL, content=b"raw", headers={"Content-Type": "text/csv"})
    sent("POST", URL, json=[1], headers={"content-type": "application/vnd.x+json"})
    bodies = [(r.method, r.content, r.headers.get("Content-Type")) for r in receiver.requests]
    assert bodies == [
        ("POST", '{"id":7,"note":"größer"}'.encode(), "application/json"),
        ("POST", b"amount=5&to=a+b", "application/x-www-form-urlencoded"),
        ("POST", b"raw", "text/csv"),
        ("POST", b"[1]", "application/vnd.x+json"),
    ]


def test_params_are_added_to_the_query(sent: Any, receiver: Any) -> None:
    sent("GET", URL + "?a=1", params={"b": "x y"})
    assert str(receiver.requests[0].url) == URL + "?a=1&b=x+y"


def test_credentials_in_the_address_become_a_header(sent: Any, receiver: Any) -> None:
    sent("GET", "https://us%40er:p%2Fw@pay.example/x#frag")
    request = receiver.requests[0]
    assert request.headers["Authorization"] == "Basic " + base64.b64encode(b"us@er:p/w").decode()
    assert str(request.url) == "https://pay.example/x"


def test_an_authorization_header_wins_over_the_address(sent: Any, receiver: Any) -> None:
    sent("GET", "https://user:pw@pay.example", headers={"authorization": "Bearer t"})
    assert receiver.requests[0].headers["Authorization"] == "Bearer t"


def test_redirects_are_followed_only_when_asked(sent: Any, receiver: Any) -> None:
    moved = httpx.Response(307, headers={"Location": "https://new.example/charges"})
    receiver.answers(moved, moved, httpx.Response(200, text="done"))
    with pytest.raises(HttpRefused, match="follow_redirects=True"):
        sent("POST", URL, json={"a": 1})
    assert sent("POST", URL, json={"a": 1}, follow_redirects=True).text == "done"
    assert [r.url.host for r in receiver.requests] == ["pay.example", "pay.example", "new.example"]
    assert receiver.requests[2].content == b'{"a":1}'


def test_endless_redirects_are_final(sent: Any, receiver: Any) -> None:
    receiver.handler = lambda request: httpx.Response(302, headers={"Location": URL})
    with pytest.raises(HttpRefused, match="more than 20 times"):
        sent("GET", URL, follow_redirects=True)


def test_cookies_of_one_execution_never_reach_another(receiver: Any) -> None:
    receiver.handler = lambda request: httpx.Response(200, headers={"Set-Cookie": "session=1; Path=/"})

    async def twice() -> None:
        await send("GET", URL)
        await send("GET", URL)

    asyncio.run(twice())
    assert receiver.opened == 1
    assert "Cookie" not in receiver.requests[1].headers


def test_connections_are_kept_for_the_next_request_to_the_same_origin(receiver: Any) -> None:
    async def run() -> None:
        for _ in range(3):
            await send("GET", URL)
        assert receiver.opened == 1
        await send("GET", "http://pay.example/charges")
        await send("GET", "https://pay.example:8443/charges")
        assert receiver.opened == 3
        await asyncio.gather(*[send("GET", URL) for _ in range(5)])
        assert (await connections.of_this_loop()).waiting == receiver.opened

    asyncio.run(run())


def test_a_refusal_keeps_the_connection_and_a_broken_one_is_closed(receiver: Any) -> None:
    async def run() -> None:
        receiver.answers(
            httpx.Response(404), httpx.Response(503), httpx.ReadError("reset"), httpx.Response(200)
        )  # fmt: skip
        for _ in range(3):
            with pytest.raises(stepwell.http.HttpError):
                await send("GET", URL)
        assert receiver.opened == 1
        await send("GET", URL)
        assert receiver.opened == 2

    asyncio.run(run())


def test_a_cancelled_request_gives_its_connection_up(receiver: Any) -> None:
    async def run() -> None:
        kept = Connections()
        async with kept.client(httpx.URL(URL)) as client:
            pass
        holding = asyncio.ensure_future(_hold(kept))
        await asyncio.sleep(0)
        assert kept.waiting == 0
        holding.cancel()
        with pytest.raises(asyncio.CancelledError):
            await holding
        assert kept.waiting == 0
        assert client.is_closed

    async def _hold(kept: Connections) -> None:
        async with kept.client(httpx.URL(URL)):
            await asyncio.Event().wait()

    asyncio.run(run())


def test_connections_end_with_their_loop(receiver: Any) -> None:
    async def run() -> Connections:
        await send("GET", URL)
        kept = await connections.of_this_loop()
        assert kept.waiting == 1
        return kept

    first, second = asyncio.run(run()), asyncio.run(run())
    assert first is not second
    assert (first.waiting, second.waiting) == (0, 0)


def test_aclose_closes_what_waits_and_what_comes_back_later(receiver: Any) -> None:
    async def run() -> None:
        kept = await connections.of_this_loop()
        async with kept.client(httpx.URL(URL)) as used:
            await send("GET", URL)
            await stepwell.http.aclose()
            assert kept.waiting == 0
        assert used.is_closed
        await send("GET", URL)
        assert await connections.of_this_loop() is not kept
        await stepwell.http.aclose()
        await stepwell.http.aclose()

    asyncio.run(run())


def test_idle_connections_are_few_and_do_not_grow_old(receiver: Any) -> None:
    async def run() -> None:
        loop = asyncio.get_running_loop()
        started, offset = loop.time(), 0.0
        loop.time = lambda: started + offset  # type: ignore[method-assign]
        kept = Connections()
        held = [kept.client(httpx.URL(f"https://h{n}.example")) for n in range(IDLE_MAX + 10)]
        clients = [await one.__aenter__() for one in held]
        for one in held:
            await one.__aexit__(None, None, None)
        assert kept.waiting == IDLE_MAX
        assert sum(client.is_closed for client in clients) == 10
        offset = IDLE_SECONDS + 1
        async with kept.client(httpx.URL(URL)):
            pass
        assert kept.waiting == 1
        assert all(client.is_closed for client in clients)

    asyncio.run(run())


def test_request_is_a_step_that_a_flow_awaits(receiver: Any) -> None:
    receiver.answers(
        httpx.Response(503),
        httpx.Response(429, headers={"Retry-After": "60"}),
        httpx.Response(200, text='{"id": 7}', headers={"Content-Type": "application/json"}),
        httpx.Response(200, text="{}"),
    )

    @flow
    async def pay(amount: int) -> int:
        answer = await stepwell.http.request("POST", URL, json={"amount": amount})
        await stepwell.http.request("POST", URL, json={"amount": amount})
        return answer.json()["id"]

    run = local_execution(pay, {"amount": 5}).run()
    run.close()
    assert run.result() == 7
    keys = [request.headers["Idempotency-Key"] for request in receiver.requests]
    assert len(set(keys[:3])) == 1
    assert keys[3] != keys[0]
    steps = run.show()["steps"]
    assert [step["path"] for step in steps] == ["http.request", "http.request#2"]
    first, second = steps[0]["attempts"][:2]
    assert first["due_at"] - first["ended_at"] >= 500
    assert second["due_at"] - second["ended_at"] >= 60_000
    assert [r.content for r in receiver.requests] == [b'{"amount":5}'] * 4


def test_a_refused_request_ends_its_step_at_once(receiver: Any) -> None:
    receiver.handler = lambda request: httpx.Response(402, text="no money")

    @flow
    async def pay() -> None:
        await stepwell.http.request("POST", URL)

    with pytest.raises(ExecutionFailed, match=r"402 Payment Required from POST [^ ]+: no money"):
        run_local(pay)
    assert len(receiver.requests) == 1


def test_with_options_gives_a_step_of_its_own(receiver: Any) -> None:
    receiver.handler = lambda request: httpx.Response(500)
    charge = stepwell.http.request.with_options(name="charge", retry=Retry(max_attempts=2, base=0.1), timeout=9)
    assert (charge.name, charge.retry.max_attempts, charge.timeout) == ("charge", 2, 9.0)
    same = stepwell.http.request.with_options()
    assert (same.name, same.retry, same.timeout) == ("http.request", stepwell.http.request.retry, None)

    @flow
    async def pay() -> None:
        await charge("POST", URL)

    with pytest.raises(ExecutionFailed, match="500 Internal Server Error from "):
        run_local(pay)
    assert len(receiver.requests) == 2


def test_a_timedelta_is_as_long_a_timeout_as_its_seconds(receiver: Any) -> None:
    def handler(request: httpx.Request) -> httpx.Response:
        assert request.extensions["timeout"]["read"] == 12.5
        raise httpx.ReadTimeout("")

    receiver.handler = handler
    for given in (timedelta(seconds=12.5), 12.5):
        with pytest.raises(HttpError, match=r"^no answer within 12\.5 s from "):
            asyncio.run(send("GET", URL, timeout=given))
