"""Parts of a shard that fail by a bug: in the process for which the gate `fail-PART` is opened, and in no other.

Journal and gates are those of `subject`.
"""

from __future__ import annotations

import fcntl
import os
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from subject import GATE_POLL_SECONDS, is_open, note

from stepwell import current_step, flow, step
from stepwell.actors.dispatcher import Dispatcher
from stepwell.actors.inbox import InboxReader
from stepwell.actors.leases import Leases
from stepwell.actors.mirror import Mirror

GATES = Path(os.environ["STEPWELL_TEST_GATES"])


def fails(part: str, method: Callable[..., Any]) -> Callable[..., Any]:
    """The same, until it is told to fail."""

    def call(*args: Any, **kwargs: Any) -> Any:
        if is_open(f"fail-{part}"):
            raise RuntimeError("a bug, on purpose")
        return method(*args, **kwargs)

    return call


MET_IN: dict[str, tuple[type, str]] = {
    "stepwell-mirror": (Mirror, "run_once"),
    "stepwell-inbox": (InboxReader, "run_once"),
    "stepwell-leases": (Leases, "run_once"),
    "dispatcher": (Dispatcher, "on_receive"),
}
for name, (owner, method) in MET_IN.items():
    setattr(owner, method, fails(name, getattr(owner, method)))


@step
def alone() -> str:
    """Locks a file as long as it runs, in which process ever: who else runs finds that."""
    with (GATES / f"lock-{current_step().execution_id}").open("w") as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            (GATES / "beside").touch()
            raise
        note()
        while not is_open("go"):
            time.sleep(GATE_POLL_SECONDS)
    return "done"


@flow
async def held() -> str:
    """Has one step, which runs alone."""
    return await alone()
