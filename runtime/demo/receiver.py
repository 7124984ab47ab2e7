"""The receiver: an HTTP server that honours `Idempotency-Key` and has bad habits. A process of its own.

`POST /<step>` with `{"order": ..., "step": ...}` records that step's effect, once per key; the same key gets the same
answer. `POST /control/...` is how the demo holds requests, lets them go, and repairs what is broken: `hold/30` holds
them from the thirtieth effect on, however late the demo learns of it.
"""

from __future__ import annotations

import argparse
import math
import os
import socket
import struct
import sys
import threading
import time
from collections.abc import Sequence
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import msgspec

from stepwell.demo.flows import ATTEMPT_HEADER
from stepwell.demo.gate import Gate
from stepwell.demo.habits import RETRY_AFTER_SECONDS, Habit, Habits
from stepwell.demo.ledger import RESET, Ledger

__all__ = ["Receiver", "main"]

# With a linger time of 0 a close sends RST, as a crashed machine or a dropped connection would look.
_LINGER_NONE = struct.pack("ii", 1, 0)
_STATUS = {Habit.UNAVAILABLE: 503, Habit.BUSY: 503, Habit.TOO_MANY: 429}


class _Body(msgspec.Struct):
    order: str
    step: str


class Receiver(ThreadingHTTPServer):
    """Listens on a free port of the loopback interface; see the module's docstring."""

    daemon_threads = True
    request_queue_size = 256

    def __init__(self, ledger: Ledger, habits: Habits, pause: float = 0.02) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self.ledger = ledger
        self.habits = habits
        self.gate = Gate()
        self.repaired = False
        self.pause = pause
        self._hold_from = math.inf
        self._holding = threading.Lock()

    @property
    def url(self) -> str:
        """Where it listens."""
        return f"http://127.0.0.1:{self.server_address[1]}"

    def control(self, what: str) -> int:
        """Do what the demo asks for; how many requests are held."""
        verb, _, effects = what.partition("/")
        if verb in ("hold", "release"):
            with self._holding:
                self._hold_from = int(effects) if verb == "hold" else math.inf
                self.gate.open()
            self.hold_if_due()
        elif verb == "repair":
            self.repaired = True
        return self.gate.waiting

    def hold_if_due(self) -> None:
        """Hold requests from now on, if so many effects have been recorded as the demo has said."""
        with self._holding:
            if self.ledger.effects >= self._hold_from:
                self.gate.close()

    def handle_error(self, request: socket.socket | tuple[bytes, socket.socket], client_address: object) -> None:
        """Stay silent where the peer has gone: its worker was killed. Anything else is shown."""
        if not isinstance(sys.exception(), ConnectionError):
            super().handle_error(request, client_address)


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm = True
    server: Receiver

    def do_POST(self) -> None:
        raw = self.rfile.read(int(self.headers.get("Content-Length") or 0))
        if self.path.startswith("/control/"):
            held = self.server.control(self.path.removeprefix("/control/"))
            self._answer(200, {"held": held})
            return
        try:
            body = msgspec.json.decode(raw, type=_Body)
        except msgspec.MsgspecError as error:
            self._answer(400, {"error": str(error)})
            return
        self._serve(body)

    def _serve(self, body: _Body) -> None:
        receiver = self.server
        key = self.headers.get("Idempotency-Key", "")
        attempt = int(self.headers.get(ATTEMPT_HEADER, "0"))
        number, earlier = receiver.ledger.arrived(body.order, body.step, key, attempt)
        habit = receiver.habits.habit((body.order, body.step), earlier, receiver.repaired)
        if receiver.pause:
            time.sleep(receiver.pause)
        # A held request has its effect recorded before or after the wait: both must come out right.
        late = number % 3 == 0
        if late:
            receiver.gate.wait()
        receipt = ""
        if habit in (Habit.GOOD, Habit.RESET):
            receipt = receiver.ledger.effect(number, body.order, body.step, key)
            receiver.hold_if_due()
        if not late:
            receiver.gate.wait()
        if habit is Habit.RESET:
            receiver.ledger.ended(number, RESET)
            self._reset()
            return
        status = _STATUS.get(habit, 200)
        asked = RETRY_AFTER_SECONDS if habit in (Habit.BUSY, Habit.TOO_MANY) else 0
        receiver.ledger.ended(number, str(status), asked)
        if status == 200:
            self._answer(200, {"receipt": receipt})
        else:
            self._answer(status, {"error": "bad habit"}, {"Retry-After": str(asked)} if asked else {})

    def _answer(self, status: int, content: dict[str, str | int], headers: dict[str, str] | None = None) -> None:
        body = msgspec.json.encode(content)
        self.send_response(status)
        for name, value in {"Content-Type": "application/json", **(headers or {})}.items():
            self.send_header(name, value)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def _reset(self) -> None:
        self.close_connection = True
        self.connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _LINGER_NONE)
        os.close(self.connection.detach())

    def log_message(self, format: str, *args: object) -> None:
        """Nothing: the ledger is the log."""


def main(argv: Sequence[str] | None = None) -> int:
    """Serve until stdin ends, which it also does when the demo dies. Prints the URL first."""
    parser = argparse.ArgumentParser(prog="stepwell.demo.receiver", description=__doc__)
    parser.add_argument("--ledger", type=Path, required=True)
    parser.add_argument("--seed", type=int, required=True)
    parser.add_argument("--orders", required=True, help="separated by commas")
    parser.add_argument("--steps", required=True, help="separated by commas")
    given = parser.parse_args(argv)
    ledger = Ledger(given.ledger, time.monotonic)
    with Receiver(ledger, Habits(given.seed, given.orders.split(","), given.steps.split(","))) as receiver:
        threading.Thread(target=receiver.serve_forever, args=(0.05,), daemon=True).start()
        print(receiver.url, flush=True)
        sys.stdin.buffer.read()
        receiver.shutdown()
    ledger.close()
    return 0


if __name__ == "__main__":
    sys.exit(main())
