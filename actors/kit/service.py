"""A thread of its own for what must block: reading Redis, renewing leases, writing batches."""

from __future__ import annotations

import threading
from collections.abc import Callable

from stepwell.actors.kit.supervision import OnCrash, traceback_text

__all__ = ["LoopThread"]


class LoopThread:
    """Calls `run_once` again and again on a daemon thread until it is stopped.

    `run_once` does one round and returns; it does its own waiting. `wake` makes a waiting round return early and
    may be called from any thread. Whatever a round raises ends the loop and goes to `on_crash(name, error, text)`.
    """

    def __init__(
        self,
        name: str,
        run_once: Callable[[], None],
        on_crash: OnCrash,
        wake: Callable[[], None] | None = None,
    ) -> None:
        self.name = name
        self._run_once = run_once
        self._on_crash = on_crash
        self._wake = wake
        self._stopping = False
        self._thread = threading.Thread(target=self._run, name=name, daemon=True)

    @property
    def is_alive(self) -> bool:
        """Whether the thread runs."""
        return self._thread.is_alive()

    @property
    def stopping(self) -> bool:
        """True once `stop` was called; a long round looks at it between its parts."""
        return self._stopping

    def start(self) -> None:
        """Start the thread; once only."""
        self._thread.start()

    def stop(self, timeout: float) -> bool:
        """Let the current round be the last and wait for it, at most `timeout` seconds; True if the thread is gone.

        May be repeated. Called by the round itself it does not wait and answers False.
        """
        self._stopping = True
        if self._thread is threading.current_thread():
            return False
        if self._thread.is_alive():
            if self._wake is not None:
                self._wake()
            self._thread.join(timeout)
        return not self._thread.is_alive()

    def _run(self) -> None:
        try:
            while not self._stopping:
                self._run_once()
        except BaseException as error:
            self._on_crash(self.name, error, traceback_text(error))
