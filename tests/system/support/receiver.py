"""A server that steps call: what they post, with its `Idempotency-Key`, is answered with JSON."""

from __future__ import annotations

import json
import threading
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, Self


@dataclass(frozen=True)
class Answer:
    """What a request gets."""

    body: dict[str, Any]
    status: int = 200
    headers: dict[str, str] = field(default_factory=dict)


class Receiver(ThreadingHTTPServer):
    """Use it in a `with` block."""

    daemon_threads = True
    request_queue_size = 512

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self.url = f"http://127.0.0.1:{self.server_address[1]}/"
        self._lock = threading.Lock()
        self._thread = threading.Thread(target=self.serve_forever, args=(0.05,), daemon=True)

    def answer(self, key: str, told: dict[str, Any]) -> Answer:
        """To what came with a key ('' if with none). On a thread of its own."""
        raise NotImplementedError

    def handle_error(self, request: object, client_address: object) -> None:
        """Whoever asked may be dead by now."""

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.shutdown()
        self._thread.join()
        self.server_close()


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm = True
    server: Receiver

    def do_POST(self) -> None:
        told = json.loads(self.rfile.read(int(self.headers.get("Content-Length") or 0)))
        answer = self.server.answer(self.headers.get("Idempotency-Key", ""), told)
        body = json.dumps(answer.body).encode()
        self.send_response(answer.status)
        for name, value in answer.headers.items():
            self.send_header(name, value)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, format: str, *args: object) -> None:
        """Nothing."""
