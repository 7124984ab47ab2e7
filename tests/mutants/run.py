"""Applies each mutant to a copy of the product and runs its tests: they must fail.

A mutant is one TOML file: `pains` (rows of docs/pains.md), `why` (the fault that it is), `file`, `old` (occurs once),
`new`, `tests` (ids of pytest), and perhaps `needs` (a program that its tests need; where it is not on PATH, and CI is
not set, the mutant is left out). Before that all these tests run once on the product as it is: they must pass.

Each runs in a fork of a process that has imported all but the product (`warm.py`): that is most of a small test's time.

Usage: python tests/mutants/run.py [--verbose] [NAME...], a name being that of a file without `.toml`.
Exit 1 if a mutant survives, if its `old` no longer fits, or if a test fails without any mutant.
"""

from __future__ import annotations

import compileall
import contextlib
import importlib.util
import json
import os
import queue
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import time
import tomllib
from collections.abc import Iterable
from concurrent.futures import Executor, ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from subprocess import PIPE

ROOT = Path(__file__).resolve().parents[2]
HERE = Path(__file__).resolve().parent
REAPER = ROOT / "tests" / "reaper.py"
PACKAGES = {"runtime": "", "actors": "actors", "metrics": "metrics"}  # folder -> place below `stepwell`
HANG_SECONDS = 150
HUNG = 98
BASELINE_SECONDS = 600
AT_ONCE = max(2, min(8, os.cpu_count() or 2))  # a container may show many cores and give it two of them
LANES = AT_ONCE + 1  # a test that its mutant keeps waiting needs no core
# A mutant is a fault that a person could have made: it must load, and speak of nothing that does not exist.
NO_FAULT = re.compile(r"^E +((?:Name|Import|Syntax|Indentation)Error: .*)$", re.MULTILINE)


@dataclass(frozen=True, slots=True)
class Mutant:
    """One small fault."""

    name: str
    pains: tuple[int, ...]
    why: str
    file: str
    old: str
    new: str
    tests: tuple[str, ...]
    needs: str = ""

    @property
    def can_be_judged(self) -> bool:
        """Whether its tests find what they need; in CI they must."""
        return not self.needs or bool(os.environ.get("CI")) or shutil.which(self.needs) is not None


@dataclass(frozen=True, slots=True)
class Verdict:
    """What became of a mutant; `problem` is empty if its tests caught it, `shown` is what they said."""

    mutant: Mutant
    problem: str
    shown: str = ""
    seconds: float = 0.0


def read_mutants(names: Iterable[str] = ()) -> list[Mutant]:
    """All mutants, or those named; ValueError for a name that there is not."""
    wanted = set(names)
    known = {path.stem: path for path in sorted(HERE.glob("*.toml"))}
    if wanted - set(known):
        raise ValueError(f"no such mutant: {', '.join(sorted(wanted - set(known)))}")
    return [read_mutant(path) for name, path in known.items() if not wanted or name in wanted]


def read_mutant(path: Path) -> Mutant:
    """The mutant in one file."""
    data = tomllib.loads(path.read_text(encoding="utf-8"))
    return Mutant(
        name=path.stem,
        pains=tuple(data.pop("pains")),
        tests=tuple(data.pop("tests")),
        **data,
    )


def problem_of(mutant: Mutant) -> str:
    """Why the mutant can't be applied; empty if it can."""
    misfit = misfit_of(mutant.file, mutant.old)
    if misfit:
        return misfit
    missing = [test for test in mutant.tests if not (ROOT / test.partition("::")[0]).is_file()]
    return f"no such test file: {', '.join(missing)}" if missing else ""


def misfit_of(file: str, old: str) -> str:
    """Why `old` can't be replaced in that file of the product; empty if it can."""
    target = ROOT / file
    if not target.is_file():
        return f"there is no {file}"
    count = target.read_text(encoding="utf-8").count(old)
    return "" if count == 1 else f"its `old` occurs {count} times in {file}, expected once: adapt it"


def judge(mutant: Mutant, sound: Path, lanes: Lanes) -> Verdict:
    """Run the mutant's tests on a mutated copy of the sound product."""
    problem = problem_of(mutant)
    if problem:
        return Verdict(mutant, problem)
    began = time.monotonic()
    with tempfile.TemporaryDirectory(prefix="mutant-") as folder:
        mutate(sound, Path(folder), [(mutant.file, mutant.old, mutant.new)])
        code, said = lanes.run(mutant.tests, Path(folder), HANG_SECONDS)
    seconds = time.monotonic() - began
    if code == HUNG:
        return Verdict(mutant, "", f"its tests hang: stopped after {HANG_SECONDS} s", seconds)
    if code != 1:
        return Verdict(mutant, f"its tests did not fail (pytest's exit code is {code})\n{said}", said, seconds)
    broken = NO_FAULT.search(said)
    return Verdict(mutant, f"it is no fault but nonsense: {broken[1]}" if broken else "", said, seconds)


def mutate(sound: Path, site: Path, changes: Iterable[tuple[str, str, str]]) -> None:
    """Put a copy of the sound product below `site`, with `(file, old, new)` changed in it."""
    shutil.copytree(sound / "stepwell", site / "stepwell", copy_function=os.link)
    for file, old, new in changes:
        target = site / "stepwell" / PACKAGES[file.partition("/")[0]] / file.partition("/")[2]
        Path(importlib.util.cache_from_source(str(target))).unlink(missing_ok=True)
        text = target.read_text(encoding="utf-8").replace(old, new)
        target.unlink()  # not the sound one, of which it is a link
        target.write_text(text, encoding="utf-8")


def copy_product(site: Path) -> None:
    """Put the product below `site` as it is installed, compiled."""
    for folder, place in PACKAGES.items():
        ignore = shutil.ignore_patterns("__pycache__")
        shutil.copytree(ROOT / folder, site / "stepwell" / place, ignore=ignore, dirs_exist_ok=True)
    compileall.compile_dir(site, quiet=2)


class Lanes:
    """Processes of `warm.py`, so many that run tests at once; to be closed."""

    def __init__(self, count: int) -> None:
        command = [sys.executable, "-m", "mutants.warm"]
        env = {**os.environ, "PYTHONPATH": str(ROOT / "tests")}
        self._all = [
            subprocess.Popen(command, cwd=ROOT, env=env, stdin=PIPE, stdout=PIPE, text=True) for _ in range(count)
        ]
        self._free: queue.SimpleQueue[subprocess.Popen[str]] = queue.SimpleQueue()
        for process in self._all:
            self._free.put(process)

    def run(self, tests: Iterable[str], site: Path, limit: float) -> tuple[int, str]:
        """Pytest's exit code with the product in `site` (HUNG if it took longer), and the end of what it said."""
        process = self._free.get()
        assert process.stdin is not None
        assert process.stdout is not None
        with tempfile.TemporaryDirectory(prefix="mutant-tests-") as scratch:
            request = {"tests": list(tests), "site": str(site), "scratch": scratch, "limit": limit}
            print(json.dumps(request), file=process.stdin, flush=True)
            answer = process.stdout.readline()
            if not answer:
                raise RuntimeError("the process that runs tests has ended")
            self._free.put(process)
            said = Path(scratch, "said").read_text(encoding="utf-8", errors="replace")
        return int(answer), "\n".join(said.splitlines()[-40:])

    def close(self) -> None:
        """End them, each after the tests that it is at."""
        for process in self._all:
            with process:
                assert process.stdin is not None
                process.stdin.close()


def baseline(mutants: list[Mutant], sound: Path, lanes: Lanes, pool: Executor) -> str:
    """What fails without any mutant; empty if all is well."""
    files: dict[str, list[str]] = {}
    for test in dict.fromkeys(test for mutant in mutants for test in mutant.tests):
        files.setdefault(test.partition("::")[0], []).append(test)
    # Real processes and servers take longest.
    order = sorted(files, key=lambda file: ("/system/" not in file, -len(files[file])))
    found = pool.map(lambda file: lanes.run(files[file], sound, BASELINE_SECONDS), order)
    return "\n".join(said or "they hang" for code, said in found if code != 0)


def main(arguments: list[str]) -> int:
    """Judge mutants, some at a time; report each."""
    verbose = "--verbose" in arguments
    try:
        mutants = read_mutants(name for name in arguments if name != "--verbose")
    except ValueError as error:
        print(error)
        return 1
    for mutant in mutants:
        if not mutant.can_be_judged:
            print(f"left out {mutant.name}: {mutant.needs} is not on PATH")
    mutants = [mutant for mutant in mutants if mutant.can_be_judged]
    signal.signal(signal.SIGTERM, signal.default_int_handler)  # so that the copies are removed
    with (
        tempfile.TemporaryDirectory(prefix="mutant-none-") as folder,
        contextlib.closing(Lanes(LANES)) as lanes,
        ThreadPoolExecutor(LANES) as pool,
    ):
        sound = Path(folder)
        copy_product(sound)
        began = time.monotonic()
        try:
            failing = baseline([mutant for mutant in mutants if not problem_of(mutant)], sound, lanes, pool)
            if failing:
                print(f"tests fail without any mutant:\n{failing}\n0 passed, {len(mutants)} failed")
                return 1
            print(f"all tests pass without mutants ({time.monotonic() - began:.0f} s)", flush=True)
            bad = 0
            for verdict in pool.map(lambda mutant: judge(mutant, sound, lanes), mutants):
                report(verdict, verbose)
                bad += bool(verdict.problem)
        except KeyboardInterrupt:
            pool.shutdown(wait=False, cancel_futures=True)
            raise
    print(f"{len(mutants) - bad} passed, {bad} failed")
    return 1 if bad else 0


def report(verdict: Verdict, verbose: bool) -> None:
    """Say what became of a mutant."""
    mutant = verdict.mutant
    word = "SURVIVED" if verdict.problem else "caught"
    pains = ",".join(map(str, mutant.pains))
    print(f"{word:<8} {pains:>7} {verdict.seconds:5.1f} s  {mutant.name}: {verdict.problem or mutant.why}")
    if verbose and not verdict.problem:
        said = [line for line in verdict.shown.splitlines() if line.startswith(("E  ", "FAILED", "its tests"))]
        print("\n".join(f"{'':26}{line[:160]}" for line in said[-6:]))
    sys.stdout.flush()


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
