"""What a worker is called: partitions follow its name, so who keeps it gets the same ones after a restart."""

from __future__ import annotations

import fcntl
import os
import re
import secrets
import socket
from pathlib import Path

from stepwell.core.errors import UsageError

__all__ = ["WorkerName", "shard_id"]

_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.:-]{0,63}")
_SLOTS_MAX = 1000
_RANDOM_BYTES = 4


class WorkerName:
    """The name of one worker, for as long as it runs; `leave` lets a later one have it.

    It is `given`, or kept in the embedded server's data directory (where each of several workers at once has a name of
    its own), or made of the host's name and a random part.

    Raises:
        UsageError: the given name has odd characters, or the data directory can't be written.
    """

    def __init__(self, given: str | None = None, data_dir: Path | None = None) -> None:
        self._lock: int | None = None
        if given is not None:
            if not _NAME.fullmatch(given):
                raise UsageError(
                    "expected a worker id of 1 to 64 letters, digits or '_.:-', starting with a letter or digit,"
                    f" got {given!r}"
                )
            self.id = given
        elif data_dir is not None:
            self.id = self._kept(data_dir / "workers")
        else:
            self.id = f"{_host()}-{secrets.token_hex(_RANDOM_BYTES)}"

    def leave(self) -> None:
        """Give the name up. Leaving twice is harmless."""
        lock, self._lock = self._lock, None
        if lock is not None:
            os.close(lock)

    def _kept(self, folder: Path) -> str:
        """The first name in the folder that no living worker has; a killed one's lock is freed by the kernel."""
        try:
            folder.mkdir(mode=0o700, exist_ok=True)
            for slot in range(_SLOTS_MAX):
                lock = os.open(folder / str(slot), os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
                try:
                    fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
                except BlockingIOError:
                    os.close(lock)
                    continue
                self._lock = lock
                return _read_or_write(lock)
        except OSError as error:
            raise UsageError(
                f"the worker's name can't be kept in {folder} ({error.strerror}): make it writable"
            ) from error
        raise UsageError(f"{_SLOTS_MAX} workers run on the data directory {folder.parent}: give this one a --worker-id")


def shard_id(worker_id: str, index: int) -> str:
    """The name of a worker's shard, from 0."""
    return f"{worker_id}/{index}"


def _read_or_write(file: int) -> str:
    known = os.pread(file, 200, 0).decode("utf-8", "replace").strip()
    if _NAME.fullmatch(known):
        return known
    made = f"{_host()}-{secrets.token_hex(_RANDOM_BYTES)}"
    os.ftruncate(file, 0)
    os.pwrite(file, f"{made}\n".encode(), 0)
    os.fsync(file)
    return made


def _host() -> str:
    """The host's name as far as it fits into one of ours."""
    return re.sub(r"[^A-Za-z0-9_.-]", "-", socket.gethostname())[:40].lstrip("_.-") or "localhost"
