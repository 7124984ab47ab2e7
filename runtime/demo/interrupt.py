"""Ctrl-C, SIGTERM and a lost terminal, none of which may be missed."""

from __future__ import annotations

import signal
import threading
from collections.abc import Callable
from types import FrameType, TracebackType
from typing import TypeAlias

__all__ = ["Interrupt"]

_Handler: TypeAlias = Callable[[int, FrameType | None], object] | int | None
_SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


class Interrupt:
    """In its `with` block a signal raises KeyboardInterrupt at once; or at the next `check`, where it came amid a
    finalizer, which would swallow it. Elsewhere than on the main thread it does nothing."""

    def __init__(self) -> None:
        self._asked = False
        self._before: dict[signal.Signals, _Handler] = {}

    def __enter__(self) -> Interrupt:
        if threading.current_thread() is threading.main_thread():
            heeded = [number for number in _SIGNALS if signal.getsignal(number) is not signal.SIG_IGN]
            self._before = {number: signal.signal(number, self._come) for number in heeded}
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        for number, handler in self._before.items():
            signal.signal(number, handler)

    def check(self) -> None:
        """Raises KeyboardInterrupt if a signal has come."""
        if self._asked:
            raise KeyboardInterrupt

    def _come(self, _number: int, frame: FrameType | None) -> None:
        self._asked = True
        while frame is not None:
            if frame.f_code.co_name == "__del__":
                return
            frame = frame.f_back
        raise KeyboardInterrupt
