"""The HTTP step against a real server on real sockets: kept connections, resets, slow and broken answers."""

from __future__ import annotations

import asyncio
import gzip
import socket
import struct
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import httpx
import pytest
from system.support.processes import HANG_SECONDS

import stepwell.http
from benchmarks.ports import free_port
from stepwell import Retry, flow
from stepwell.http import HttpError, HttpRefused, connections, send
from stepwell.testing import run_local


class Receiver(ThreadingHTTPServer):
    """Remembers connections and the keys of what it recorded."""

    daemon_threads = True

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), Handler)
        self.url = f"http://127.0.0.1:{self.server_address[1]}"
        self.connections: set[object] = set()
        self.keys: list[str] = []
        self.ended = threading.Event()
        self.closed = threading.Semaphore(0)

    def shutdown_request(self, request: object) -> None:
        """Close a connection; whoever has it open at the other end knows of that now."""
        super().shutdown_request(request)
        self.closed.release()

    def handle_error(self, request: object, client_address: object) -> None:
        """A client that has gone is what these tests are about."""


class Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    server: Receiver

    def do_POST(self) -> None:
        self.server.connections.add(self.client_address)
        self.rfile.read(int(self.headers.get("Content-Length", 0)))
        self.server.keys.append(self.headers.get("Idempotency-Key", ""))
        getattr(self, "answer_" + self.path.strip("/"))()

    do_GET = do_POST

    def _say(self, status: int, body: bytes, **headers: str) -> None:
        self.send_response(status)
        for name, value in headers.items():
            self.send_header(name.replace("_", "-"), value)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def answer_ok(self) -> None:
        self._say(200, b'{"ok": true}', Content_Type="application/json")

    def answer_packed(self) -> None:
        self._say(200, gzip.compress(b"unpacked"), Content_Encoding="gzip", Content_Type="text/plain")

    def answer_busy(self) -> None:
        self._say(503, b"busy")

    def answer_reset_once(self) -> None:
        if len(self.server.keys) > 1:
            self.answer_ok()
            return
        self._reset()

    def answer_cut(self) -> None:
        self.send_response(200)
        self.send_header("Content-Length", "100")
        self.end_headers()
        self.wfile.write(b"half")
        self.close_connection = True

    def answer_trickle(self) -> None:
        self.send_response(200)
        self.send_header("Content-Length", "100000")
        self.end_headers()
        while not self.server.ended.wait(0.02):
            self.wfile.write(b".")

    def answer_garbage(self) -> None:
        self.wfile.write(b"this is no HTTP\r\n\r\n")
        self.close_connection = True

    def answer_hang_up_later(self) -> None:
        self.answer_ok()
        self.close_connection = True

    def _reset(self) -> None:
        self.connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        self.connection.close()
        self.close_connection = True

    def finish(self) -> None:
        if self.connection.fileno() >= 0:
            super().finish()

    def log_message(self, format: str, *args: object) -> None:
        """Nobody reads it."""


@pytest.fixture
def receiver() -> Iterator[Receiver]:
    server = Receiver()
    thread = threading.Thread(target=server.serve_forever, args=(0.05,), daemon=True)
    thread.start()
    yield server
    server.ended.set()
    server.shutdown()
    thread.join()
    server.server_close()


def test_requests_share_a_kept_connection_that_ends_with_the_loop(
    receiver: Receiver, monkeypatch: pytest.MonkeyPatch
) -> None:
    # However long a busy machine takes from one request to the next.
    monkeypatch.setattr(connections, "IDLE_SECONDS", HANG_SECONDS)
    monkeypatch.setattr(connections, "_ONE", httpx.Limits(keepalive_expiry=HANG_SECONDS))

    async def run() -> None:
        for _ in range(5):
            assert (await send("POST", receiver.url + "/ok", json={})).json() == {"ok": True}
        with pytest.raises(HttpError, match=r"503 Service Unavailable from GET [^ ]+: busy"):
            await send("GET", receiver.url + "/busy")
        assert (await send("GET", receiver.url + "/packed")).text == "unpacked"

    asyncio.run(run())
    assert len(receiver.connections) == 1


def test_a_kept_connection_that_the_server_closed_is_replaced(receiver: Receiver) -> None:
    async def run() -> None:
        for _ in range(3):
            await send("POST", receiver.url + "/hang_up_later")
            assert await asyncio.to_thread(receiver.closed.acquire, timeout=HANG_SECONDS)

    asyncio.run(run())
    assert len(receiver.connections) == 3


@pytest.mark.parametrize("path", ["reset_once", "cut", "garbage"])
def test_a_broken_answer_is_worth_another_try(receiver: Receiver, path: str) -> None:
    with pytest.raises(HttpError, match=r"no answer from POST [^ ]+: \w+Error") as caught:
        asyncio.run(send("POST", f"{receiver.url}/{path}"))
    assert not isinstance(caught.value, HttpRefused)
    assert len(receiver.keys) == 1  # one call is one request: nothing repeats it behind our back


def test_an_answer_that_trickles_in_ends_at_the_limit(receiver: Receiver) -> None:
    with pytest.raises(HttpError, match=r"no answer within 0\.5 s from "):
        asyncio.run(send("GET", receiver.url + "/trickle", timeout=0.5))


def test_nobody_listening_is_worth_another_try() -> None:
    with pytest.raises(HttpError, match=r"no answer from GET [^ ]+: ConnectError"):
        asyncio.run(send("GET", f"http://user:pw1@127.0.0.1:{free_port()}/?token=pw2"))


def test_a_header_that_http_forbids_is_final(receiver: Receiver) -> None:
    with pytest.raises(HttpRefused, match="not allowed in HTTP"):
        asyncio.run(send("GET", receiver.url + "/ok", headers={"X-Key": "two\nlines"}))
    assert receiver.keys == []


def test_a_reset_after_recording_is_tried_again_with_the_same_key(receiver: Receiver) -> None:
    charge = stepwell.http.request.with_options(name="charge", retry=Retry(base=0.0, cap=0.0))

    @flow
    async def pay() -> bool:
        answer = await charge("POST", receiver.url + "/reset_once", json={"amount": 5})
        return answer.json()["ok"]

    assert run_local(pay) is True
    assert len(receiver.keys) == 2
    assert len(set(receiver.keys)) == 1
    assert receiver.keys[0].startswith("local:")
