"""Where a worker's black boxes and sheets lie: a private folder, which a later worker clears away if this one can't."""

from __future__ import annotations

import fcntl
import os
import shutil
import tempfile
from pathlib import Path
from typing import Final

from stepwell.core.errors import UsageError

__all__ = ["BoxFolder"]

_PREFIX: Final = "stepwell-box-"


class BoxFolder:
    """Made with the object, gone with `close`. Folders that killed workers of this user have left are removed: the
    kernel has freed their locks. The lock is on the folder itself, so there is no moment in which a kill leaves one
    that nobody would ever remove; cleaners of temporary files (systemd-tmpfiles) heed it, too.

    Raises:
        UsageError: there is no temporary directory that can be written to.
    """

    def __init__(self, root: Path | None = None) -> None:
        try:
            root = Path(tempfile.gettempdir()) if root is None else root
            _clear(root)
            self._path, self._lock = _made(root)
        except OSError as error:
            raise UsageError(
                f"no temporary directory can be used ({error}): make room there, or set TMPDIR to one that is writable"
            ) from error

    def box(self, index: int, life: int) -> Path:
        """The file of a shard's process."""
        return self._path / f"{index}-{life}"

    def sheet(self, index: int) -> Path:
        """The file of a shard's metrics, whichever process of it writes them."""
        return self._path / f"{index}.sheet"

    def close(self) -> None:
        """Remove all boxes. Closing twice is harmless."""
        if self._lock >= 0:
            shutil.rmtree(self._path, ignore_errors=True)
            os.close(self._lock)
            self._lock = -1


def _made(root: Path) -> tuple[Path, int]:
    while True:
        path = Path(tempfile.mkdtemp(prefix=_PREFIX, dir=root))
        try:
            lock = _open(path)
        except FileNotFoundError:
            continue
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:  # whoever clears away just now took it for a dead worker's
            os.close(lock)
            continue
        except OSError:  # no locks on this file system: nobody can clear away there either
            return path, lock
        if path.exists():
            return path, lock
        os.close(lock)


def _clear(root: Path) -> None:
    for folder in root.glob(f"{_PREFIX}*"):
        try:
            lock = _open(folder)
        except OSError:  # another user's, none of ours, or one that is being removed just now
            continue
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            shutil.rmtree(folder, ignore_errors=True)
        except OSError:  # its worker lives
            continue
        finally:
            os.close(lock)


def _open(folder: Path) -> int:
    return os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC)
