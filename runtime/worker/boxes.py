"""Where a worker's black boxes lie: a private folder of its own, which a later worker clears away if this one can't."""

from __future__ import annotations

import fcntl
import os
import shutil
import tempfile
from pathlib import Path
from typing import Final

__all__ = ["BoxFolder"]

_PREFIX: Final = "stepwell-boxes-"
_LOCK: Final = "lock"


class BoxFolder:
    """Made with the object, gone with `close`. Folders that killed workers of this user have left are removed: the
    kernel has freed their locks."""

    def __init__(self, root: Path | None = None) -> None:
        root = Path(tempfile.gettempdir()) if root is None else root
        _clear(root)
        self._path = Path(tempfile.mkdtemp(prefix=_PREFIX, dir=root))
        # It has its name once it is held: whoever clears away in that moment must not take the folder for a dead one's.
        draft = self._path / f"{_LOCK}.new"
        self._lock = os.open(draft, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        fcntl.flock(self._lock, fcntl.LOCK_EX)
        draft.rename(self._path / _LOCK)

    def box(self, index: int, life: int) -> Path:
        """The file of a shard's process."""
        return self._path / f"{index}-{life}"

    def close(self) -> None:
        """Remove all boxes. Closing twice is harmless."""
        if self._lock >= 0:
            shutil.rmtree(self._path, ignore_errors=True)
            os.close(self._lock)
            self._lock = -1


def _clear(root: Path) -> None:
    for folder in root.glob(f"{_PREFIX}*"):
        try:
            lock = os.open(folder / _LOCK, os.O_RDWR | os.O_CLOEXEC | os.O_NOFOLLOW)
        except OSError:  # another user's, or one that is being made or removed just now
            continue
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            shutil.rmtree(folder, ignore_errors=True)
        except BlockingIOError:
            continue
        finally:
            os.close(lock)
