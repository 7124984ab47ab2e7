"""The demo's worker: a process of its own that runs a module's flows until it is killed."""

from __future__ import annotations

import argparse
import importlib
import os
import sys
import threading
from collections.abc import Sequence
from pathlib import Path

from stepwell.flow.definitions import Flow, FlowLike
from stepwell.metrics.logs import setup_logging
from stepwell.worker.worker import Worker

__all__ = ["main"]


def main(argv: Sequence[str] | None = None) -> int:
    """Work until SIGTERM, or until stdin ends, which it also does when the demo dies. Prints `ready` first."""
    parser = argparse.ArgumentParser(prog="stepwell.demo.work", description=__doc__)
    parser.add_argument("flows", help="a module")
    parser.add_argument("--data", type=Path, required=True)
    given = parser.parse_args(argv)
    setup_logging()
    found: list[FlowLike] = [each for each in vars(importlib.import_module(given.flows)).values() if _is_flow(each)]
    worker = Worker(found, data=given.data, grace=5.0)
    worker.install_signals()
    worker.start()
    threading.Thread(target=_end_with_stdin, args=(worker,), daemon=True).start()
    print("ready", flush=True)
    return worker.wait()


def _is_flow(value: object) -> bool:
    return isinstance(value, Flow)


def _end_with_stdin(worker: Worker) -> None:
    # Not by sys.stdin: the interpreter's end would wait for the lock that a reading thread holds.
    while os.read(0, 1024):
        continue
    worker.end()


if __name__ == "__main__":
    sys.exit(main())
