"""A server that refuses the handshake or breaks the protocol: the link is down, whatever the error is called."""

from __future__ import annotations

import asyncio

import pytest
from redis import exceptions as rx

from stepwell.store.async_link import AsyncLink
from stepwell.store.keys import Keys
from stepwell.store.link import Link, LinkDown
from stepwell.store.requests import Load
from stepwell.store.scripts import Scripts

ERRORS = [
    rx.ResponseError("BUSY Redis is busy running a script. You can only call SCRIPT KILL or SHUTDOWN NOSAVE."),
    rx.NoPermissionError("this user has no permissions to run the 'client|setname' command"),
    rx.AuthenticationError("invalid username-password pair or user is disabled."),
    rx.BusyLoadingError("Redis is loading the dataset in memory"),
    rx.InvalidResponse("Protocol error, got 'H' as reply type byte"),
    rx.MaxConnectionsError("Too many connections"),
    rx.TimeoutError("Timeout reading from socket"),
    rx.ConnectionError("Connection reset by peer"),
    rx.RedisError("an error of a kind to come"),
    OSError("no route to host"),
]
MOMENTS = ["handshake", "sending", "reading"]
# What stands for one command only: the server's answer to it.
ANSWERS = (rx.ResponseError, rx.BusyLoadingError)


class Broken:
    """A client, its pool and its connection, that raise `error` at one moment and are whole but for that."""

    def __init__(self, moment, error):
        self.moment, self.error = moment, error
        self.taken = self.released = self.disconnected = 0
        self.connection_pool = self

    def get_connection_kwargs(self):
        return {}

    def reach(self, moment):
        if moment == self.moment:
            raise self.error

    def get_connection(self):
        self.reach("handshake")
        self.taken += 1
        return self

    def release(self, connection):
        self.released += 1

    def send_packed_command(self, command):
        self.reach("sending")

    def read_response(self, *, disconnect_on_error):
        self.reach("reading")
        return b"PONG"

    def disconnect(self):
        self.disconnected += 1


class AsyncBroken(Broken):
    """Its asyncio twin."""

    async def get_connection(self):
        return super().get_connection()

    async def release(self, connection):
        super().release(connection)

    async def send_packed_command(self, command):
        super().send_packed_command(command)

    async def read_response(self, *, disconnect_on_error):
        return super().read_response(disconnect_on_error=disconnect_on_error)

    async def disconnect(self, nowait):
        super().disconnect()


@pytest.fixture(params=["threads", "asyncio"])
def ping(request):
    """Sends two commands over such a client; the client and what came back."""

    def send(moment, error):
        if request.param == "threads":
            client = Broken(moment, error)
            return client, lambda: Link(client, Keys(), Scripts()).call([["PING"], ["PING"]])
        client = AsyncBroken(moment, error)
        return client, lambda: asyncio.run(AsyncLink(client, Scripts()).call([["PING"], ["PING"]]))

    return send


@pytest.mark.parametrize("moment", MOMENTS)
@pytest.mark.parametrize("error", ERRORS, ids=lambda error: type(error).__name__)
def test_whatever_stands_between_us_and_an_answer_is_a_link_that_is_down(ping, error, moment):
    if moment == "reading" and isinstance(error, ANSWERS):
        pytest.skip("this is an answer")
    client, send = ping(moment, error)
    with pytest.raises(LinkDown) as down:
        send()
    assert down.value.__cause__ is error
    assert str(error) in str(down.value)
    assert client.released == client.disconnected == client.taken, "no half-read connection serves again"


def test_a_whole_client_answers(ping):
    client, send = ping("never", None)
    assert send() == [b"PONG", b"PONG"]
    assert (client.released, client.disconnected) == (1, 0)


@pytest.mark.parametrize("error", [error for error in ERRORS if isinstance(error, ANSWERS)], ids=lambda e: str(e)[:9])
def test_an_error_that_answers_a_command_keeps_the_connection(error):
    client = Broken("reading", error)
    (reply,) = Link(client, Keys(), Scripts()).execute([Load("e1")])
    assert type(reply).__name__ in ("Refused", "Broken")
    assert (client.released, client.disconnected) == (1, 0)
