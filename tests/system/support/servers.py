"""Servers of the test's own: started, killed and started again on one port, with their data."""

from __future__ import annotations

import socketserver
import threading
from pathlib import Path
from typing import Any

import redis
from system.support.programs import KEEPS_ALL_WHEN_KILLED, Program, wait

from benchmarks.ports import free_port
from stepwell.store.connect import connect
from stepwell.store.embedded import server_binary


class Server:
    """One server on one port, with an append-only file and perhaps a password."""

    def __init__(self, processes: Any, folder: Path, password: str = "") -> None:
        self._processes = processes
        self._folder = folder
        self._password = password
        self.program: Program
        self.port = free_port()
        self.url = f"redis://{f':{password}@' if password else ''}127.0.0.1:{self.port}/0"
        folder.mkdir()

    def start(self) -> Server:
        """Start it and wait until it answers."""
        self.launch()
        self.wait()
        return self

    def wait(self) -> None:
        """Until it answers."""
        with self.admin() as client:
            wait(client.ping, f"the server on port {self.port} answers", self.program)

    def launch(self, **given: object) -> None:
        """Start it, with settings beside the usual ones (`_` for `-`); it may still be loading its data."""
        settings: dict[str, object] = {
            "port": self.port,
            "bind": "127.0.0.1",
            "dir": self._folder,
            "save": "",
            **KEEPS_ALL_WHEN_KILLED,
            "auto-aof-rewrite-percentage": 0,  # one file, however much a quick machine writes
            "enable-debug-command": "no",
        }
        if self._password:
            settings["requirepass"] = self._password
        settings |= {name.replace("_", "-"): value for name, value in given.items()}
        options = [part for name, value in settings.items() for part in (f"--{name}", str(value))]
        self.program = Program([server_binary(), *options], self._folder / "log", self._processes.start)

    def kill(self) -> None:
        """`kill -9`, and wait for its end. It loses nothing, unless it was started with another `appendfsync`."""
        self.program.kill()

    def admin(self) -> redis.Redis:
        """A connection that may do everything."""
        return connect(self.url)


class OldServer:
    """Speaks the protocol and says that it is a Redis of long ago; it keeps nothing."""

    INFO = (
        "redis_version:5.0.14\r\nredis_mode:standalone\r\nrole:master\r\nmaxmemory:0\r\nmaxmemory_policy:noeviction\r\n"
    )

    def __init__(self) -> None:
        self._server = socketserver.ThreadingTCPServer(("127.0.0.1", 0), _OldHandler)
        self._server.daemon_threads = True
        self._thread = threading.Thread(target=self._server.serve_forever, args=(0.05,), daemon=True)
        self.url = f"redis://127.0.0.1:{self._server.server_address[1]}"

    def __enter__(self) -> OldServer:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._server.shutdown()
        self._thread.join()
        self._server.server_close()


class _OldHandler(socketserver.StreamRequestHandler):
    def handle(self) -> None:
        while head := self.rfile.readline():
            words = []
            for _ in range(int(head[1:])):
                size = int(self.rfile.readline()[1:])
                words.append(self.rfile.read(size + 2)[:-2].decode())
            self.wfile.write(self._answer(words[0].upper()))

    def _answer(self, command: str) -> bytes:
        if command == "PING":
            return b"+PONG\r\n"
        if command == "INFO":
            return f"${len(OldServer.INFO)}\r\n{OldServer.INFO}\r\n".encode()
        if command in ("CLIENT", "SELECT", "SET"):
            return b"+OK\r\n"
        if command == "CONFIG":
            return b"*0\r\n"
        return b"-ERR unknown command\r\n"
