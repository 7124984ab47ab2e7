"""Send one request, with the step's idempotency key, and judge the answer."""

from __future__ import annotations

import asyncio
from collections.abc import Collection, Mapping
from sys import maxsize
from typing import Any

import httpx

from stepwell.core import codec
from stepwell.core.clock import Clock
from stepwell.core.durations import seconds
from stepwell.core.errors import PayloadError
from stepwell.core.messages import message_of
from stepwell.core.redact import redact_url
from stepwell.core.retry import Retry
from stepwell.flow.context import running_step
from stepwell.flow.definitions import step
from stepwell.flow.tracing import outgoing_headers
from stepwell.http import connections
from stepwell.http.answer import Response, problem, response_of
from stepwell.http.errors import HttpError, HttpRefused

__all__ = ["request", "send"]

KEY_HEADER = "Idempotency-Key"
ERROR_BODY_BYTES = 16 * 1024  # of an answer that is an error only the beginning is read

Params = Mapping[str, Any]


async def send(
    method: str,
    url: str,
    *,
    headers: Mapping[str, str] | None = None,
    params: Params | None = None,
    json: object = None,
    form: Params | None = None,
    content: str | bytes | None = None,
    timeout: float = 30.0,
    follow_redirects: bool = False,
    accept: Collection[int] = (),
    max_bytes: int = codec.PAYLOAD_BYTES_MAX,
    clock: Clock | None = None,
) -> Response:
    """Send one request from inside a step; its failure is that attempt's failure.

    The step's idempotency key goes along as `Idempotency-Key`. A step that sends several requests to one receiver
    must give each a key of its own, or the receiver takes the second for a repeat of the first. What the step is
    traced under, if it is, goes along as `traceparent`.

    Args:
        method: `GET`, `POST`, ...
        url: absolute; `user:password@` becomes basic authentication.
        headers: added to ours; an `Idempotency-Key` or `Authorization` here wins.
        params: added to the URL's query.
        json: body as JSON (anything that a step may return); None for no such body.
        form: body as a submitted form.
        content: body as it is.
        timeout: seconds until the whole answer must be here.
        follow_redirects: follow up to 20; off by default, since a redirected POST may arrive as a GET, or twice.
        accept: statuses beside 2xx that are no error, such as 404 for "look whether it is there".
        max_bytes: largest body that is accepted.
        clock: reads a date in `Retry-After` should the answer have no `Date`.

    Raises:
        RetryAfter: an answer that is worth another try and says when (429 or 503, say).
        HttpError: 408, 425, 429, 5xx, no connection, timeout: worth another try.
        HttpRefused: any other status, or a request that can't be sent: final.
        PayloadError: the body of a good answer is over `max_bytes`, or `json` can't be encoded: final.
    """
    limit = seconds(timeout, "the timeout of a request", above=True, error=HttpRefused)
    built, auth, what = _build(method, url, headers, params, json, form, content)
    answer, body, whole = await _exchange(built, auth, what, limit, follow_redirects, accept, max_bytes)
    response = response_of(answer.status_code, answer.headers, body)
    failure = problem(what, response, accept, clock)
    if failure is not None:
        raise failure
    if not whole:
        raise PayloadError(
            f"{what} answered with a body over the limit of {max_bytes:,} bytes;"
            " ask for less, or fetch it in a step of your own that stores it elsewhere"
        )
    return response


@step(name="http.request", retry=Retry(max_attempts=5, base=0.5))
async def request(
    method: str,
    url: str,
    *,
    headers: Mapping[str, str] | None = None,
    params: Params | None = None,
    json: object = None,
    form: Params | None = None,
    content: str | bytes | None = None,
    timeout: float = 30.0,
    follow_redirects: bool = False,
    accept: Collection[int] = (),
) -> Response:
    """A step that sends one request; arguments and errors are those of `send`.

    `request.with_options(name="charge", retry=Retry(...))` gives a step with a name and a policy of its own.
    """
    return await send(
        method,
        url,
        headers=headers,
        params=params,
        json=json,
        form=form,
        content=content,
        timeout=timeout,
        follow_redirects=follow_redirects,
        accept=accept,
    )


async def _exchange(
    built: httpx.Request,
    auth: httpx.BasicAuth | None,
    what: str,
    timeout: float,
    follow_redirects: bool,
    accept: Collection[int],
    max_bytes: int,
) -> tuple[httpx.Response, bytes, bool]:
    """The answer, its body, and whether that is the whole body."""
    try:
        async with asyncio.timeout(timeout):
            kept = await connections.of_this_loop()
            async with kept.client(built.url) as client:
                built.extensions = {"timeout": httpx.Timeout(timeout).as_dict()}
                for name, value in client.headers.items():
                    built.headers.setdefault(name, value)
                answer = await client.send(built, auth=auth, follow_redirects=follow_redirects, stream=True)
                good = answer.is_success or answer.status_code in accept
                return answer, *await _read(answer, max_bytes if good else ERROR_BODY_BYTES)
    except (TimeoutError, httpx.TimeoutException) as error:
        raise HttpError(f"no answer within {timeout:g} s from {what}") from error
    except (httpx.LocalProtocolError, httpx.UnsupportedProtocol):
        # Its own message would show the header, which may be a credential.
        raise HttpRefused(f"{what} can't be sent: a header, the method or the URL is not allowed in HTTP") from None
    except httpx.TooManyRedirects as error:
        raise HttpRefused(f"{what} was redirected more than 20 times") from error
    except httpx.RequestError as error:
        reason = message_of(error, 300) or "the connection broke"
        raise HttpError(f"no answer from {what}: {type(error).__name__}: {reason}") from error


def _build(
    method: str,
    url: str,
    headers: Mapping[str, str] | None,
    params: Params | None,
    json: object,
    form: Params | None,
    content: str | bytes | None,
) -> tuple[httpx.Request, httpx.BasicAuth | None, str]:
    """The request, its authentication, and how messages name it (no query, no credentials)."""
    address, auth = _address(method, url)
    what = f"{method} {address.scheme}://{address.netloc.decode('ascii', 'replace')}{address.path}"
    if sum(body is not None for body in (json, form, content)) > 1:
        raise HttpRefused(f"{what} can't be sent: give one of json, form and content, not several")
    if json is not None:
        content = codec.encode(json, f"the json of {what}", maxsize)
    try:
        sent = httpx.Headers(dict(headers or {}))
        if json is not None:
            sent.setdefault("Content-Type", "application/json")
        running = running_step.get(None)
        if running is not None:
            sent.setdefault(KEY_HEADER, running.idempotency_key)
            for name, value in outgoing_headers().items():
                sent.setdefault(name, value)
        if params:
            address = address.copy_merge_params(dict(params))
        body = None if form is None else dict(form)
        built = httpx.Request(method.upper(), address, headers=sent, content=content, data=body)
    except (ValueError, TypeError, AttributeError) as error:
        raise HttpRefused(f"{what} can't be sent: {type(error).__name__} in its headers, params or body") from None
    return built, None if "Authorization" in sent else auth, what


def _address(method: str, url: str) -> tuple[httpx.URL, httpx.BasicAuth | None]:
    try:
        parsed = httpx.URL(url)
    except (httpx.InvalidURL, TypeError, ValueError):
        parsed = None
    if parsed is None or parsed.scheme not in ("http", "https") or not parsed.host:
        shown = redact_url(url).partition("?")[0] if isinstance(url, str) else repr(type(url))
        raise HttpRefused(f"{method} {shown} can't be sent: expected an address like https://host/path")
    auth = httpx.BasicAuth(parsed.username, parsed.password) if parsed.userinfo else None
    # Out of the URL, so that no log of the HTTP library shows it.
    return parsed.copy_with(userinfo=b"", fragment=None), auth


async def _read(answer: httpx.Response, limit: int) -> tuple[bytes, bool]:
    """At most `limit` bytes of the body, and whether that is all of it."""
    body = bytearray()
    try:
        async for chunk in answer.aiter_bytes():
            body += chunk
            if len(body) > limit:
                return bytes(body[:limit]), False
        return bytes(body), True
    finally:
        await answer.aclose()
