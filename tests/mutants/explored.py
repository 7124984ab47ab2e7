"""Puts each fault of `sim/` into a copy of the product: the simulation must find it within 500 seeds.

A fault is one TOML file: `why` (what it is) and `changes`, each with `file`, `old` (occurs once) and `new`; `seed` is
where it was found last, and is tried first.

Usage: python -m mutants.explored [--write] [NAME...], a name being that of a file without `.toml`. `--write` looks for
the first seed of each, notes it, and writes the table of docs/sim-mutants.md. Exit 1 if a fault is not found, or if its
`old` does not fit.
"""

from __future__ import annotations

import argparse
import os
import re
import subprocess
import sys
import tempfile
import time
import tomllib
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

from mutants.run import AT_ONCE, HERE, REAPER, ROOT, copy_product, misfit_of, mutate

SEEDS = 500
HANG_SECONDS = 1200
PAGE = ROOT / "docs" / "sim-mutants.md"
_FOUND = re.compile(r"^seed (\d+) breaks a promise: (.*)$", re.MULTILINE)


@dataclass(frozen=True, slots=True)
class Fault:
    """One fault. `seed`: where it was found last; -1: nowhere yet."""

    name: str
    why: str
    changes: tuple[tuple[str, str, str], ...]
    seed: int

    @property
    def path(self) -> Path:
        """Its file."""
        return HERE / "sim" / f"{self.name}.toml"


@dataclass(frozen=True, slots=True)
class Finding:
    """What became of one. `problem` is empty if it was found at `seed`, by that broken `promise`."""

    fault: Fault
    problem: str = ""
    seed: int = -1
    promise: str = ""
    seconds: float = 0.0


def read_faults(names: Sequence[str] = ()) -> list[Fault]:
    """All faults, or those named; ValueError for a name that there is not."""
    known = {path.stem: path for path in sorted((HERE / "sim").glob("*.toml"))}
    if set(names) - set(known):
        raise ValueError(f"no such fault: {', '.join(sorted(set(names) - set(known)))}")
    return [_read(path) for name, path in known.items() if not names or name in names]


def _read(path: Path) -> Fault:
    data = tomllib.loads(path.read_text(encoding="utf-8"))
    changes = tuple((each["file"], each["old"], each["new"]) for each in data["changes"])
    return Fault(path.stem, data["why"], changes, data.get("seed", -1))


def find(fault: Fault, sound: Path, *, afresh: bool) -> Finding:
    """Look for a seed that breaks a promise: first where it was found before, unless `afresh`."""
    began = time.monotonic()
    with tempfile.TemporaryDirectory(prefix="fault-") as folder:
        site = Path(folder)
        if misfits := list(filter(None, [misfit_of(file, old) for file, old, _ in fault.changes])):
            return Finding(fault, "; ".join(misfits))
        mutate(sound, site, fault.changes)
        ranges = [f"0-{SEEDS - 1}"] if afresh or fault.seed < 0 else [f"{fault.seed}-{fault.seed}", f"0-{SEEDS - 1}"]
        for seeds in ranges:
            found = _explore(site, seeds)
            if isinstance(found, str):
                return Finding(fault, found, seconds=time.monotonic() - began)
            if found is None:
                continue
            seed, seconds = int(found[1]), time.monotonic() - began
            if _explore(sound, f"{seed}-{seed}") is not None:
                return Finding(fault, f"seed {seed} breaks a promise without it, too: {found[2]}", seconds=seconds)
            return Finding(fault, "", seed, found[2], seconds)
    return Finding(fault, f"not found within {SEEDS} seeds", seconds=time.monotonic() - began)


def _explore(site: Path, seeds: str) -> re.Match[str] | str | None:
    """The first seed that fails; None if none does; a text if the simulation itself came to nothing."""
    options = ["--seeds", seeds, "--jobs", "1", "--stop-at-first", "--no-shrink"]
    command = [sys.executable, str(REAPER), sys.executable, "-m", "sim.explore", *options]
    env = {**os.environ, "PYTHONPATH": f"{site}{os.pathsep}{ROOT / 'tests'}", "PYTHONDONTWRITEBYTECODE": "1"}
    try:
        done = subprocess.run(command, cwd=ROOT, env=env, capture_output=True, text=True, timeout=HANG_SECONDS)
    except subprocess.TimeoutExpired:
        return f"the simulation still ran after {HANG_SECONDS} s"
    if done.returncode == 0:
        return None
    return _FOUND.search(done.stdout) or f"the simulation failed:\n{done.stdout[-2000:]}{done.stderr[-2000:]}"


def main() -> int:
    """Look for each, some at a time."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("names", nargs="*", metavar="NAME")
    parser.add_argument("--write", action="store_true", help="note the first seed of each, and write the page")
    given = parser.parse_args()
    try:
        faults = read_faults(given.names)
    except ValueError as error:
        print(error)
        return 1
    findings = []
    with tempfile.TemporaryDirectory(prefix="fault-none-") as folder:
        sound = Path(folder)
        copy_product(sound)
        with ThreadPoolExecutor(AT_ONCE) as pool:
            for finding in pool.map(lambda fault: find(fault, sound, afresh=given.write), faults):
                findings.append(finding)
                _tell(finding)
    missed = sum(bool(finding.problem) for finding in findings)
    if given.write:
        for finding in findings:
            _note(finding)
        if not given.names:
            PAGE.write_text(page(findings), encoding="utf-8")
    print(f"{len(findings) - missed} found, {missed} not")
    return 1 if missed else 0


def _tell(finding: Finding) -> None:
    word = "NOT FOUND" if finding.problem else f"seed {finding.seed}"
    print(
        f"{word:<9} {finding.seconds:6.1f} s  {finding.fault.name}: {finding.problem or finding.promise[:140]}",
        flush=True,
    )


def _note(finding: Finding) -> None:
    if finding.problem:
        return
    text = re.sub(r"^seed = \d+\n", "", finding.fault.path.read_text(encoding="utf-8"), flags=re.MULTILINE)
    first, _, rest = text.partition("\n")
    finding.fault.path.write_text(f"{first}\nseed = {finding.seed}\n{rest}", encoding="utf-8")


def page(findings: Sequence[Finding]) -> str:
    """docs/sim-mutants.md."""
    lines = [
        "# Faults that the simulation must find",
        "",
        "Each of these was put into a copy of the product; `make sim` has to break a promise within 500 seeds."
        " `make sim-mutants` looks whether it still does, at the noted seed first. Those from 25 to 29 were written by"
        " somebody who had not seen the generator.",
        "",
        "| fault | what it is | first seed | the promise that broke there |",
        "|---|---|---:|---|",
    ]
    for finding in findings:
        seed = "not found" if finding.problem else str(finding.seed)
        promise = finding.promise.replace("|", "\\|")[:100]
        lines.append(f"| `{finding.fault.name}` | {finding.fault.why} | {seed} | {promise} |")
    return "\n".join(lines) + "\n"


if __name__ == "__main__":
    sys.exit(main())
