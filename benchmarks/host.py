"""The measured process: a worker as `stepwell run` makes one, and a pipe by which it is asked about itself.

It answers each line on stdin with one line of JSON on stdout, and ends with its stdin.
"""

from __future__ import annotations

import gc
import json
import os
import subprocess
import sys
import time
from collections.abc import Mapping
from pathlib import Path
from types import TracebackType
from typing import Any, Self, TextIO

from benchmarks.flows import FLOWS
from benchmarks.pace import one_at_a_time
from stepwell import Worker
from stepwell.metrics.logs import setup_logging
from stepwell.worker.process import calm_the_collector

__all__ = ["Host"]

ROOT = Path(__file__).resolve().parent.parent


class Host:
    """Starts the process, whose worker has these `settings`, and asks it. Its logs go to `log`.

    Raises:
        RuntimeError: the process ended; the message ends with its last words.
    """

    def __init__(self, url: str, log: Path, settings: Mapping[str, float]) -> None:
        self._log = log
        with log.open("ab") as sink:
            self._process = subprocess.Popen(
                [sys.executable, "-m", "benchmarks.host", url, json.dumps(settings)],
                cwd=ROOT,
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=sink,
                text=True,
            )
        self._read()

    @property
    def pid(self) -> int:
        """The process' id, for a profiler."""
        return self._process.pid

    def cpu_seconds(self) -> float:
        """CPU time that the process has used so far."""
        return float(self._ask("cpu"))

    def rss_bytes(self) -> int:
        """Its resident memory after a garbage collection."""
        return int(self._ask("rss"))

    def executions(self) -> int:
        """Executions in its memory."""
        return int(self._ask("executions"))

    def latencies(self, count: int) -> list[float]:
        """Milliseconds of so many executions, one at a time, by a client in that process."""
        return [float(ms) for ms in self._ask(f"latencies {count}")]

    def close(self) -> None:
        """Let the worker drain and end."""
        if self._process.poll() is None and self._process.stdin is not None:
            self._process.stdin.close()
        self._process.wait(60)

    def _ask(self, question: str) -> Any:
        assert self._process.stdin is not None
        self._process.stdin.write(question + "\n")
        self._process.stdin.flush()
        return self._read()

    def _read(self) -> Any:
        assert self._process.stdout is not None
        line = self._process.stdout.readline()
        if not line:
            tail = self._log.read_text(errors="replace")[-2000:]
            raise RuntimeError(f"the worker ended with code {self._process.wait(60)}:\n{tail}")
        return json.loads(line)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, tb: TracebackType | None) -> None:
        self.close()


def main(url: str, settings: str, questions: TextIO, answers: TextIO) -> None:
    """The process itself."""
    setup_logging()
    with Worker(FLOWS, redis=url, metrics_port=0, metrics_host="127.0.0.1", **json.loads(settings)) as worker:
        calm_the_collector()  # as `stepwell run` does
        _say(answers, "ready")
        for line in questions:
            _say(answers, _answer(worker, line.split()))


def _answer(worker: Worker, question: list[str]) -> object:
    match question:
        case ["cpu"]:
            return time.process_time()
        case ["rss"]:
            gc.collect()
            return _rss_bytes()
        case ["executions"]:
            return worker.shard.executions
        case ["latencies", count]:
            return one_at_a_time(worker.url, int(count))
    raise ValueError(f"no such question: {question}")


def _rss_bytes() -> int:
    try:
        return int(Path("/proc/self/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")
    except OSError:
        shown = subprocess.run(["ps", "-o", "rss=", "-p", str(os.getpid())], capture_output=True, text=True, check=True)
        return int(shown.stdout) * 1024


def _say(answers: TextIO, answer: object) -> None:
    answers.write(json.dumps(answer) + "\n")
    answers.flush()


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2], sys.stdin, sys.stdout)
