"""The servers that keep the peers' state: each on a free loopback port, with its data in a folder that is removed."""

from __future__ import annotations

import os
import shutil
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from benchmarks.peers.peer import Peer, Server, Skip
from benchmarks.peers.processes import Process
from benchmarks.ports import free_port
from stepwell.core.errors import StoreUnreachable
from stepwell.store.embedded import server_binary

__all__ = ["Running", "postgres_version", "redis_version", "serve"]

START_SECONDS = 120.0
HOST = "127.0.0.1"
REDIS_SETTINGS = {"appendonly": "yes", "appendfsync": "everysec", "save": "", "maxmemory-policy": "noeviction"}
POSTGRES_FOLDERS = "/usr/lib/postgresql"


@dataclass(frozen=True, slots=True)
class Running:
    """A server that answers: what scripts need to reach it, and its process (None for a file)."""

    environment: Mapping[str, str]
    process: Process | None

    @property
    def roots(self) -> list[int]:
        """The processes whose CPU time is the server's."""
        return [] if self.process is None else [self.process.pid]


@contextmanager
def serve(peer: Peer, cache: Path, folder: Path) -> Iterator[Running]:
    """The peer's server for as long as the block lasts. Raises Skip if it can't be started."""
    if peer.server is Server.REDIS:
        with _redis(folder, peer.server_settings) as running:
            yield running
    elif peer.server is Server.POSTGRES:
        with _postgres(folder, peer.server_settings) as running:
            yield running
    elif peer.server is Server.RESTATE:
        with _restate(cache / peer.folder / "node_modules", folder) as running:
            yield running
    else:
        yield Running({"PEER_FILE": str(folder / "state.sqlite")}, None)


def redis_version() -> str:
    """Which server all Redis peers and we share, for example `valkey-server 9.1.2`."""
    try:
        binary = server_binary()
    except StoreUnreachable as error:
        raise Skip(str(error)) from error
    words = subprocess.run([binary, "--version"], capture_output=True, text=True, check=True).stdout.split()
    return f"{binary.name} {next((word[2:] for word in words if word.startswith('v=')), '')}".strip()


@contextmanager
def _redis(folder: Path, extra: Mapping[str, str]) -> Iterator[Running]:
    try:
        binary = server_binary()
    except StoreUnreachable as error:
        raise Skip(str(error)) from error
    port = free_port()
    given = {"port": str(port), "bind": HOST, "dir": str(folder), "daemonize": "no", **REDIS_SETTINGS, **extra}
    words = [word for name, value in given.items() for word in (f"--{name}", value)]
    with Process([str(binary), *words], folder / "redis.log") as process:
        _wait(process, lambda: _answers_ping(port))
        yield Running({"PEER_URL": f"redis://{HOST}:{port}", "PEER_PORT": str(port)}, process)


def _answers_ping(port: int) -> bool:
    try:
        with socket.create_connection((HOST, port), 1) as link:
            link.sendall(b"PING\r\n")
            return link.recv(16).startswith(b"+PONG")
    except OSError:
        return False


@contextmanager
def _postgres(folder: Path, extra: Mapping[str, str]) -> Iterator[Running]:
    """A cluster of its own. Postgres refuses to run as root: then it gets the user that its package has made."""
    binaries = _postgres_binaries()
    user = "postgres" if os.geteuid() == 0 else None
    data, port = folder / "postgres", free_port()
    data.mkdir(mode=0o700)
    if user is not None:
        try:
            shutil.chown(data, user, user)
        except LookupError as error:
            raise Skip(
                "Postgres does not run as root, and there is no user postgres: run this as another user"
            ) from error
        folder.chmod(0o711)  # its own folder only: what lies above is not ours
    made = subprocess.run(
        [binaries / "initdb", "-D", data, "-A", "trust", "-U", "postgres", "-E", "UTF8", "--locale=C", "--no-sync"],
        capture_output=True,
        text=True,
        user=user,
        group=user,
        extra_groups=None if user is None else [],
        cwd="/",
    )
    if made.returncode:
        raise Skip(f"initdb failed: {made.stderr.strip()[-300:]}")
    settings = {
        "port": str(port),
        "listen_addresses": HOST,
        "unix_socket_directories": str(data),
        "max_connections": "300",
    }
    words = [word for name, value in (settings | dict(extra)).items() for word in ("-c", f"{name}={value}")]
    command = [str(binaries / "postgres"), "-D", str(data), *words]
    with Process(command, folder / "postgres.log", cwd=data, user=user, stop=signal.SIGINT) as process:
        _wait(process, lambda: _postgres_ready(binaries, port))
        yield Running({"PEER_DSN": f"postgresql://postgres@{HOST}:{port}/postgres"}, process)


def _postgres_ready(binaries: Path, port: int) -> bool:
    asked = [str(binaries / "pg_isready"), "-q", "-h", HOST, "-p", str(port)]
    return subprocess.run(asked, check=False).returncode == 0


def _postgres_binaries() -> Path:
    """The folder that holds initdb, postgres and pg_isready: the newest of Debian's, else of PATH."""
    debian = sorted(Path(POSTGRES_FOLDERS).glob("*/bin"), key=lambda path: int(path.parent.name), reverse=True)
    on_path = [Path(found).resolve().parent] if (found := shutil.which("initdb")) else []
    for folder in [*debian, *on_path]:
        if all(os.access(folder / name, os.X_OK) for name in ("initdb", "postgres", "pg_isready")):
            return folder
    raise Skip("no Postgres found (Debian: apt-get install postgresql)")


def postgres_version() -> str:
    """For example `postgres 15.14`."""
    shown = subprocess.run([_postgres_binaries() / "postgres", "--version"], capture_output=True, text=True, check=True)
    return f"postgres {shown.stdout.split()[2]}"


@contextmanager
def _restate(modules: Path, folder: Path) -> Iterator[Running]:
    found = sorted(modules.glob("@restatedev/restate-server-*/bin/restate-server"))
    if not found:
        raise Skip(f"the npm package holds no restate-server for {sys.platform}")
    ingress, admin, node, service = (free_port() for _ in range(4))
    environment = {
        "RESTATE_INGRESS__BIND_ADDRESS": f"{HOST}:{ingress}",
        "RESTATE_ADMIN__BIND_ADDRESS": f"{HOST}:{admin}",
        "RESTATE_BIND_ADDRESS": f"{HOST}:{node}",
        "RESTATE_ADVERTISED_ADDRESS": f"http://{HOST}:{node}",
        "RESTATE_BASE_DIR": str(folder / "restate"),
        "RESTATE_LISTEN_MODE": "tcp",
        "RESTATE_LOG_FILTER": "warn",
        "RESTATE_DISABLE_TELEMETRY": "true",
    }
    with Process([str(found[0]), "--no-logo"], folder / "restate.log", environment) as process:
        _wait(process, lambda: _answers(ingress, "/restate/health") and _answers(admin, "/health"))
        yield Running(
            {"PEER_INGRESS": str(ingress), "PEER_ADMIN": str(admin), "PEER_SERVICE_PORT": str(service)},
            process,
        )


def _answers(port: int, path: str) -> bool:
    try:
        with socket.create_connection((HOST, port), 1) as link:
            link.sendall(f"GET {path} HTTP/1.1\r\nHost: {HOST}:{port}\r\nConnection: close\r\n\r\n".encode())
            return link.recv(64).split()[1:2] == [b"200"]
    except OSError:
        return False


def _wait(process: Process, check: Callable[[], bool]) -> None:
    deadline = time.monotonic() + START_SECONDS
    while not check():
        process.require_running()
        if time.monotonic() > deadline:
            raise Skip(f"the server did not answer within {START_SECONDS:g} s: {process.last_words()}")
        time.sleep(0.05)
