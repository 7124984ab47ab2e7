"""Applies each mutant to a copy of the product and runs its tests: they must fail.

A mutant is one TOML file: `pains` (rows of docs/pains.md), `why`, `file`, `old` (occurs once), `new`, `tests` (pytest ids).
Usage: python tests/mutants/run.py [NAME...]. Exit 1 if a mutant survives, or if its `old` no longer fits.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tempfile
import tomllib
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
HERE = Path(__file__).resolve().parent
HANG_SECONDS = 180


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


def read_mutants(names: list[str]) -> list[Mutant]:
    """All mutants, or those named."""
    found = []
    for path in sorted(HERE.glob("*.toml")):
        if names and path.stem not in names:
            continue
        data = tomllib.loads(path.read_text())
        found.append(
            Mutant(
                path.stem,
                tuple(data["pains"]),
                data["why"],
                data["file"],
                data["old"],
                data["new"],
                tuple(data["tests"]),
            )
        )
    return found


def problem_of(mutant: Mutant) -> str:
    """Why the mutant can't be applied; empty if it can."""
    text = (ROOT / mutant.file).read_text()
    count = text.count(mutant.old)
    if count != 1:
        return f"its `old` text occurs {count} times in {mutant.file}, expected once"
    missing = [test for test in mutant.tests if not (ROOT / test.partition("::")[0]).exists()]
    return f"no such test file: {', '.join(missing)}" if missing else ""


def survives(mutant: Mutant) -> str:
    """Run the mutant's tests on a mutated copy; the reason if they do not fail as tests."""
    with tempfile.TemporaryDirectory(prefix="mutant-") as folder:
        site = Path(folder)
        package = site / "stepwell"
        ignore = shutil.ignore_patterns("__pycache__")
        shutil.copytree(ROOT / "runtime", package, ignore=ignore)
        shutil.copytree(ROOT / "actors", package / "actors", ignore=ignore)
        shutil.copytree(ROOT / "metrics", package / "metrics", ignore=ignore)
        top, _, rest = mutant.file.partition("/")
        target = package / rest if top == "runtime" else package / top / rest
        target.write_text(target.read_text().replace(mutant.old, mutant.new))
        env = {**os.environ, "PYTHONPATH": str(site), "PYTHONDONTWRITEBYTECODE": "1"}
        command = [sys.executable, "-m", "pytest", "-q", "-x", "-p", "no:cacheprovider", *mutant.tests]
        try:
            done = subprocess.run(
                command, cwd=ROOT, env=env, capture_output=True, text=True, timeout=HANG_SECONDS, check=False
            )
        except subprocess.TimeoutExpired:
            return ""  # hanging is failing
    if done.returncode == 1:
        return ""
    tail = "\n".join(done.stdout.splitlines()[-5:])
    return f"its tests did not fail (pytest exit {done.returncode})\n{tail}"


def judge(mutant: Mutant) -> tuple[Mutant, str]:
    """The mutant and what is wrong with it; empty if its tests caught it."""
    return mutant, problem_of(mutant) or survives(mutant)


def main(names: list[str]) -> int:
    """Run mutants, two at a time; report each."""
    mutants = read_mutants(names)
    if not mutants:
        print("no such mutant")
        return 1
    bad = 0
    with ThreadPoolExecutor(2) as pool:
        for mutant, problem in pool.map(judge, mutants):
            bad += bool(problem)
            pains = " ".join(str(pain) for pain in mutant.pains)
            print(f"{'SURVIVED' if problem else 'caught  '} {mutant.name} (pains {pains}): {problem or mutant.why}", flush=True)
    print(f"{len(mutants) - bad} passed, {bad} failed")
    return 1 if bad else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
