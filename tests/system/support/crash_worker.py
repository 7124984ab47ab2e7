"""A worker that kills itself at a failpoint: `crash_worker.py DATA NAMESPACE PARTITIONS [POINT NUMBER]`.

Without a point it runs until SIGTERM; then it prints how often each failpoint was reached, as JSON.
"""

from __future__ import annotations

import json
import os
import signal
import sys
from pathlib import Path

import subject

from stepwell.actors.failpoints import FailAt
from stepwell.worker.worker import Worker


def die() -> None:
    """As `kill -9`: nothing is flushed, closed or said."""
    os.kill(os.getpid(), signal.SIGKILL)


def main(data: str, namespace: str, partitions: str, point: str = "", number: str = "0") -> int:
    """Run a worker."""
    failpoints = FailAt(point, int(number), die)
    worker = Worker(
        [subject.journey],
        data=Path(data),
        namespace=namespace,
        partitions=int(partitions),
        grace=5.0,
        failpoints=failpoints,
    )
    code = worker.run()
    print(json.dumps(failpoints.counts), flush=True)
    return code


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
