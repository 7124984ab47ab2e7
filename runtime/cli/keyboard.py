"""Single keys from a terminal, without echo; the terminal is as it was afterwards, however that comes."""

from __future__ import annotations

import os
import select
import sys
import termios
import tty
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from types import TracebackType

__all__ = ["Keyboard"]


class Keyboard:
    """Reads stdin key by key while the `with` block lasts, if it is a terminal. Ctrl-C stays a signal."""

    def __init__(self) -> None:
        self._fd = -1
        self._restore: Callable[[], None] | None = None

    def __enter__(self) -> Keyboard:
        try:
            fd = sys.stdin.fileno()
            if os.isatty(fd):
                self._restore = partial(termios.tcsetattr, fd, termios.TCSAFLUSH, termios.tcgetattr(fd))
                self._fd = fd
                tty.setcbreak(fd)
        except (OSError, ValueError, termios.error):
            self._restore = None  # no stdin, or one that can't be set: then there are no keys
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, tb: TracebackType | None) -> None:
        restore, self._restore = self._restore, None
        if restore is not None:
            with suppress(OSError, termios.error):  # the terminal is gone
                restore()

    @property
    def works(self) -> bool:
        """Whether keys can be heard."""
        return self._restore is not None

    def pressed(self, seconds: float) -> str:
        """The keys that were pressed until now, or else within so many seconds; empty if none was. Where none can be
        heard it only waits."""
        if not self.works:
            select.select([], [], [], seconds)
            return ""
        if not select.select([self._fd], [], [], seconds)[0]:
            return ""
        raw = os.read(self._fd, 64)
        if not raw:  # the terminal is gone
            raise KeyboardInterrupt
        return raw.decode("ascii", "replace")
