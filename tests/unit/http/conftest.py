"""A receiver without sockets, and a step context to send from."""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import Awaitable, Callable, Iterator
from typing import Any

import httpx
import pytest

from stepwell.flow.context import StepContext, running_step
from stepwell.http import Response, connections, send

Handler = Callable[[httpx.Request], httpx.Response | Awaitable[httpx.Response]]
KEY = "order-7:0123456789abcdef"


class Receiver:
    """Answers by `handler` and remembers the requests; `opened` counts the clients that were made."""

    def __init__(self) -> None:
        self.handler: Handler = lambda request: httpx.Response(200, text="fine")
        self.requests: list[httpx.Request] = []
        self.opened = 0

    def client(self, _tls: ssl.SSLContext) -> httpx.AsyncClient:
        self.opened += 1
        made = self._new_client(_tls)
        made._transport = httpx.MockTransport(self._handle)
        return made

    _new_client = staticmethod(connections.new_client)

    def _handle(self, request: httpx.Request) -> Any:
        self.requests.append(request)
        return self.handler(request)

    def answers(self, *answers: httpx.Response | Exception) -> None:
        """Give these answers, one after the other."""
        waiting = list(answers)

        def handler(_request: httpx.Request) -> httpx.Response:
            answer = waiting.pop(0)
            if isinstance(answer, Exception):
                raise answer
            return answer

        self.handler = handler


@pytest.fixture
def receiver(monkeypatch: pytest.MonkeyPatch) -> Receiver:
    made = Receiver()
    monkeypatch.setattr(connections, "new_client", made.client)
    monkeypatch.setattr(httpx, "create_ssl_context", lambda: False)  # nothing here speaks TLS
    return made


@pytest.fixture
def in_step() -> Iterator[StepContext]:
    """The test runs as the body of a step."""
    context = StepContext("order-7", "checkout", "charge", "charge", 2, "t0", KEY, 9)
    token = running_step.set(context)
    yield context
    running_step.reset(token)


@pytest.fixture
def sent(receiver: Receiver) -> Callable[..., Response]:
    """`sent("POST", url, ...)`: the answer, on an event loop of its own."""

    def call(*args: Any, **options: Any) -> Response:
        return asyncio.run(send(*args, **options))

    return call
