"""Linux: a process hears of its parent's end though none of its Python code may come to run."""

from __future__ import annotations

import ctypes
import signal
import sys

__all__ = ["hear_of_parents_end"]

_PR_SET_PDEATHSIG = 1


def hear_of_parents_end() -> None:
    """Have at most a second left once the parent has ended.

    The signal of the parent's death is SIGHUP; its handler is `alarm` of the C library, called with the signal's
    number: one second for a thread of ours that sees the end as well and takes along what this process has started,
    then SIGALRM ends us, though a body never lets go of the interpreter. (SIGKILL would leave orphans behind.)

    It counts the thread that made this process: that must be one which lives as long as the parent. Ask afterwards
    whether the parent still lives: what ended before is not told.
    """
    if sys.platform != "linux":
        return
    library = ctypes.CDLL(None)
    library.signal.argtypes = [ctypes.c_int, ctypes.c_void_p]
    library.signal.restype = ctypes.c_void_p
    library.signal(signal.SIGALRM, ctypes.c_void_p(0))  # whoever started us may have left it ignored
    library.signal(signal.SIGHUP, ctypes.cast(library.alarm, ctypes.c_void_p))
    signal.pthread_sigmask(signal.SIG_UNBLOCK, (signal.SIGHUP, signal.SIGALRM))
    library.prctl(_PR_SET_PDEATHSIG, int(signal.SIGHUP), 0, 0, 0)
