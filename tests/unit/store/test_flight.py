"""Replies that came along with one: taken straight out of redis-py's reader, and sorted as redis-py would."""

from __future__ import annotations

from types import SimpleNamespace
from typing import cast

import hiredis
import pytest
import redis
from redis.exceptions import AuthenticationError, BusyLoadingError, ReadOnlyError, ResponseError

from stepwell.store.flight import Flight, LinkDown, Parcel

KINDS = {"NOAUTH": AuthenticationError, "LOADING": BusyLoadingError, "READONLY": ReadOnlyError}


def told(message: str) -> Exception:
    return KINDS.get(message.split(" ", 1)[0], ResponseError)(message)


class Wire:
    """A pool of one connection, to which replies come in these pieces; redis-py's part of it as far as it matters."""

    def __init__(self, pieces: list[bytes], protocol: int = 2) -> None:
        reader = hiredis.Reader(replyError=told, notEnoughData=object())
        self._parser = SimpleNamespace(_reader=reader)
        self._pieces = pieces
        self.protocol = protocol
        self.waits = 0
        self.closed = False
        self.released = False

    def get_connection(self) -> Wire:
        return self

    def release(self, _connection: Wire) -> None:
        self.released = True

    def send_packed_command(self, _command: list[bytes]) -> None:
        pass

    def disconnect(self) -> None:
        self.closed = True

    def read_response(self, *, disconnect_on_error: bool) -> object:
        self.waits += 1
        reply = self._parser._reader.gets()
        while type(reply) is object:
            if not self._pieces:
                raise redis.ConnectionError("Connection closed by server.")
            self._parser._reader.feed(self._pieces.pop(0))
            reply = self._parser._reader.gets()
        if isinstance(reply, Exception):
            raise reply
        return reply


def land(wire: Wire, answers: int) -> list[object]:
    return Flight(cast(redis.ConnectionPool, wire), Parcel([["PING"]] * answers)).land()


def test_replies_are_waited_for_once_a_piece_and_come_whole_and_in_order():
    wire = Wire([b":1\r\n:2\r\n$3\r\nab", b"c\r\n", b"*2\r\n:4\r\n$-1\r\n$0\r\n\r\n:6\r\n"])
    assert land(wire, 6) == [1, 2, b"abc", [4, None], b"", 6]
    assert (wire.waits, wire.closed, wire.released) == (3, False, True)


def test_no_more_is_taken_than_was_asked_for():
    wire = Wire([b":1\r\n:2\r\n:3\r\n"])
    assert land(wire, 2) == [1, 2]
    assert wire._parser._reader.gets() == 3


@pytest.mark.parametrize("place", [0, 1])
@pytest.mark.parametrize(("message", "closes"), [("LOADING wait", False), ("WRONGTYPE x", False), ("READONLY r", True)])
def test_error_replies_stay_in_their_places(place: int, message: str, closes: bool):
    pieces = [b":1\r\n", b":3\r\n"]
    pieces.insert(place, f"-{message}\r\n".encode())
    wire = Wire([b"".join(pieces)])
    raws = land(wire, 3)
    assert isinstance(raws.pop(place), KINDS.get(message.split(" ", 1)[0], ResponseError))
    assert raws == [1, 3]
    assert (wire.closed, wire.released) == (closes, True)


@pytest.mark.parametrize("before", [0, 1, 2])
def test_a_server_that_wants_a_password_now_is_a_broken_link(before: int):
    wire = Wire([b":1\r\n" * before + b"-NOAUTH Authentication required.\r\n:9\r\n"])
    with pytest.raises(LinkDown, match=f"after {before} of 4 replies: NOAUTH"):
        land(wire, 4)
    assert (wire.closed, wire.released) == (True, True)


def test_a_connection_that_ends_between_replies_is_a_broken_link():
    wire = Wire([b":1\r\n:2\r\n$5\r\nab"])
    with pytest.raises(LinkDown, match="after 2 of 3 replies"):
        land(wire, 3)
    assert wire.closed


def test_with_resp3_redis_py_reads_each_reply_since_pushes_are_its_business():
    wire = Wire([b":1\r\n#f\r\n:3\r\n"], protocol=3)
    assert land(wire, 3) == [1, False, 3]
    assert wire.waits == 3
