"""The demo's processes: each in a session of its own, and none outlives the demo.

Each child's stdin is a pipe from here: when the demo dies in whatever way, the children read its end and stop.
"""

from __future__ import annotations

import os
import select
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

from stepwell.core.errors import StepwellError

__all__ = ["Child", "DemoBroken"]

# Only a hang takes so long, also on a busy machine.
START_SECONDS = 180.0
STOP_SECONDS = 120.0
TAIL_LINES = 15


class DemoBroken(StepwellError):
    """The demo can't go on: a process ended, or something never came. The message names it."""


class Child:
    """A Python module run as a process; what it says on stderr goes to a file."""

    def __init__(self, name: str, module: str, arguments: Sequence[str], log: Path) -> None:
        self.name = name
        self.log = log
        with log.open("ab") as stderr:
            self._process = subprocess.Popen(
                [sys.executable, "-P", "-m", module, *arguments],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=stderr,
                start_new_session=True,
                env=_environment(),
            )

    @property
    def pid(self) -> int:
        """Its process id."""
        return self._process.pid

    def first_line(self, seconds: float = START_SECONDS) -> str:
        """Wait for the line that says it is ready. Raises DemoBroken if it ends or is silent for so long."""
        pipe = self._process.stdout
        assert pipe is not None
        ready, _, _ = select.select([pipe], [], [], seconds)
        line = pipe.readline().decode().strip() if ready else ""
        if not line:
            reason = "ended before it was ready" if ready else f"was not ready within {seconds:g} s"
            raise DemoBroken(f"the {self.name} {reason}{self._tail()}")
        return line

    def require_alive(self) -> None:
        """Raise DemoBroken if it has ended by itself."""
        code = self._process.poll()
        if code is not None:
            raise DemoBroken(f"the {self.name} ended by itself with exit code {code}{self._tail()}")

    def kill(self) -> None:
        """SIGKILL it and wait until it is gone. Killing twice is harmless."""
        self._process.kill()
        self._process.wait()
        self._close()

    def stop(self) -> int:
        """Ask it to stop (SIGTERM) and return its exit code; killed if it does not stop in time."""
        self._process.terminate()
        try:
            return self._process.wait(STOP_SECONDS)
        except subprocess.TimeoutExpired:
            return -9
        finally:
            self.kill()

    def _close(self) -> None:
        for pipe in (self._process.stdin, self._process.stdout):
            if pipe is not None:
                pipe.close()

    def _tail(self) -> str:
        lines = self.log.read_text("utf-8", "replace").splitlines()[-TAIL_LINES:]
        return "; its last words:\n" + "\n".join(f"    {line}" for line in lines) if lines else ""


def _environment() -> dict[str, str]:
    """Ours, without what would lead the demo away from its own server and receiver."""
    kept = {name: value for name, value in os.environ.items() if not name.startswith("STEPWELL_")}
    return {**kept, "NO_PROXY": "127.0.0.1", "no_proxy": "127.0.0.1"}
