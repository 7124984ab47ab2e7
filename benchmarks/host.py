"""The measured process: a worker as `stepwell run` makes one, and a pipe by which it is asked about itself.

It answers each line on stdin with one line of JSON on stdout, and ends with its stdin.
"""

from __future__ import annotations

import gc
import json
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Mapping
from pathlib import Path
from types import TracebackType
from typing import Any, Self, TextIO

from benchmarks.flows import FLOWS
from benchmarks.pace import one_at_a_time
from stepwell import Worker
from stepwell.client.address import Address
from stepwell.metrics.logs import setup_logging
from stepwell.store.durability import parse_durability
from stepwell.worker.config import WorkerConfig
from stepwell.worker.control import LogSettings
from stepwell.worker.parent import Parent
from stepwell.worker.process import calm_the_collector

__all__ = ["Host"]

ENDPOINT: Any = {"metrics_port": 0, "metrics_host": "127.0.0.1"}
ROOT = Path(__file__).resolve().parent.parent


class Host:
    """Starts the process, whose worker has these `settings`, and asks it. Its logs go to `log`.

    With `shards` among the settings it is the parent of so many processes, as `stepwell run --shards` has them, and
    answers for all of them; without, the only shard is a `Worker` in the process itself.

    Raises:
        RuntimeError: the process ended; the message ends with its last words.
    """

    def __init__(self, url: str, log: Path, settings: Mapping[str, float | str]) -> None:
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
        """CPU time that the process, or its shards, have used so far."""
        return float(self._ask("cpu"))

    def rss_bytes(self) -> int:
        """Its resident memory after a garbage collection; with shards all of theirs and its own, as it is."""
        return int(self._ask("rss"))

    def metrics_port(self) -> int:
        """The port of /metrics."""
        return int(self._ask("port"))

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
    known = json.loads(settings)
    shards = known.pop("shards", 0)
    if shards:
        if "durability" in known:
            known["durability"] = parse_durability(known["durability"])
        sys.exit(_be_parent(WorkerConfig(Address(url=url), **ENDPOINT, **known), shards, questions, answers))
    with Worker(FLOWS, redis=url, **ENDPOINT, **known) as worker:
        calm_the_collector()  # as `stepwell run` does
        _say(answers, "ready")
        for line in questions:
            _say(answers, _answer(worker, line.split()))


def _be_parent(config: WorkerConfig, shards: int, questions: TextIO, answers: TextIO) -> int:
    parent = Parent(config, ["benchmarks.flows"], shards, LogSettings())
    parent.install_signals()
    parent.start()
    threading.Thread(target=_answer_for, args=(parent, questions, answers), daemon=True).start()
    return parent.wait()


def _answer_for(parent: Parent, questions: TextIO, answers: TextIO) -> None:
    _say(answers, "ready")
    for line in questions:
        pids = [handle.pid for _, handle in parent.fleet.living()]
        match line.split():
            case ["cpu"]:
                _say(answers, sum(_cpu_seconds(pid) for pid in pids))
            case ["rss"]:
                _say(answers, sum(_rss_bytes(pid) for pid in (os.getpid(), *pids)))
            case ["port"]:
                _say(answers, parent.metrics_port)
            case ["executions"]:
                _say(answers, parent.metric("stepwell_executions_in_memory"))
            case _:
                raise ValueError(f"no such question: {line}")
    os.kill(os.getpid(), signal.SIGTERM)


def _answer(worker: Worker, question: list[str]) -> object:
    match question:
        case ["cpu"]:
            return time.process_time()
        case ["rss"]:
            gc.collect()
            return _rss_bytes(os.getpid())
        case ["port"]:
            return worker.metrics_port
        case ["executions"]:
            return worker.shard.executions
        case ["latencies", count]:
            return one_at_a_time(worker.url, int(count))
    raise ValueError(f"no such question: {question}")


def _rss_bytes(pid: int) -> int:
    try:
        return int(Path(f"/proc/{pid}/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")
    except OSError:
        return int(_shown(pid, "rss")) * 1024


def _cpu_seconds(pid: int) -> float:
    try:
        fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
        return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")
    except OSError:
        minutes, _, seconds = _shown(pid, "time").rpartition(":")
        return float(seconds) + sum(60.0**power * int(part) for power, part in enumerate(minutes.split(":")[::-1], 1))


def _shown(pid: int, what: str) -> str:
    command = ["ps", "-o", f"{what}=", "-p", str(pid)]
    return subprocess.run(command, capture_output=True, text=True, check=True).stdout.strip()


def _say(answers: TextIO, answer: object) -> None:
    answers.write(json.dumps(answer) + "\n")
    answers.flush()


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2], sys.stdin, sys.stdout)
