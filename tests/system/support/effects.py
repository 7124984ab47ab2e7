"""A receiver that honours `Idempotency-Key`: one effect per key, and the same answer to whoever repeats it."""

from __future__ import annotations

import json
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any


class EffectReceiver(ThreadingHTTPServer):
    """Use it in a `with` block. `effects` maps each key to what came with it first; `mixed` has keys of two steps."""

    daemon_threads = True
    request_queue_size = 512

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self.url = f"http://127.0.0.1:{self.server_address[1]}/"
        self.effects: dict[str, dict[str, str]] = {}
        self.requests = 0
        self.mixed: set[str] = set()
        self._numbers: dict[str, int] = {}
        self._lock = threading.Lock()
        self._thread = threading.Thread(target=self.serve_forever, args=(0.05,), daemon=True)

    def receive(self, key: str, body: dict[str, str]) -> int:
        """The number of that key's effect."""
        with self._lock:
            self.requests += 1
            if self.effects.setdefault(key, body) != body:
                self.mixed.add(key)
            return self._numbers.setdefault(key, len(self._numbers))

    def handle_error(self, request: object, client_address: object) -> None:
        """Whoever asked may be dead by now."""

    def __enter__(self) -> EffectReceiver:
        self._thread.start()
        return self

    def __exit__(self, *_: Any) -> None:
        self.shutdown()
        self._thread.join()
        self.server_close()


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm = True
    server: EffectReceiver

    def do_POST(self) -> None:
        body = json.loads(self.rfile.read(int(self.headers.get("Content-Length") or 0)))
        answer = json.dumps({"effect": self.server.receive(self.headers.get("Idempotency-Key", ""), body)}).encode()
        self.send_response(200)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(answer)))
        self.end_headers()
        self.wfile.write(answer)

    def log_message(self, format: str, *args: object) -> None:
        """Nothing."""
