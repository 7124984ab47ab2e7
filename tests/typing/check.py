"""Compares what mypy and pyright say about `user_flow.py` with its comments.

Usage: `python tests/typing/check.py`, with stepwell importable by the checkers (MYPYPATH or installed). pyright is
left out, with a word about it, where it is not installed.
"""

from __future__ import annotations

import importlib.util
import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
from collections import defaultdict
from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path

USER_FILE = Path(__file__).resolve().parent / "user_flow.py"
ROOT = USER_FILE.parents[2]
PACKAGES = [os.path.abspath(path) for path in os.environ.get("MYPYPATH", "").split(os.pathsep) if path]


@dataclass
class Said:
    """What is said about each line: revealed types, and whether it is refused."""

    shows: dict[int, str] = field(default_factory=dict)
    refused: dict[int, str] = field(default_factory=lambda: defaultdict(str))


def expected(source: str) -> Said:
    """What the comments ask for."""
    said = Said()
    for number, line in enumerate(source.splitlines(), 1):
        if found := re.search(r"# shows: (.+)$", line):
            said.shows[number] = plain(found[1])
        elif line.endswith("# refused"):
            said.refused[number] = "refused"
    return said


def plain(shown: str) -> str:
    """A type without the names of modules, the way both checkers can be compared."""
    bare = re.sub(r"\b(?:\w+\.)+(\w+)", r"\1", shown.replace("?", ""))
    return " | ".join(sorted(bare.split(" | "))) if "[" not in bare else bare


def by_mypy() -> Said:
    """Run mypy --strict."""
    command = [sys.executable, "-m", "mypy", "--strict", "--no-error-summary", "--hide-error-context", "--no-pretty"]
    done = subprocess.run(
        [*command, "--cache-dir", str(ROOT / ".lint" / "mypy-user"), str(USER_FILE)],
        capture_output=True,
        text=True,
        check=False,
        cwd=USER_FILE.parent,
        env={**os.environ, "MYPYPATH": os.pathsep.join(PACKAGES)},
    )
    if done.returncode not in (0, 1):
        sys.exit(f"mypy failed:\n{done.stdout}{done.stderr}")
    said = Said()
    for line in done.stdout.splitlines():
        found = re.match(r".*user_flow\.py:(\d+): (error|note): (.*)", line)
        if not found:
            sys.exit(f"mypy says something unexpected: {line}")
        number, kind, text = int(found[1]), found[2], found[3]
        if revealed := re.match(r'Revealed type is "(.*)"', text):
            said.shows[number] = plain(revealed[1])
        elif kind == "error":
            said.refused[number] += text
    return said


def by_pyright() -> Said:
    """Run pyright in strict mode."""
    settings = {
        "include": [USER_FILE.name],
        "extraPaths": PACKAGES,
        "typeCheckingMode": "strict",
    }
    with tempfile.TemporaryDirectory() as folder:
        shutil.copy(USER_FILE, folder)
        (Path(folder) / "pyrightconfig.json").write_text(json.dumps(settings))
        done = subprocess.run(
            [sys.executable, "-m", "pyright", "--outputjson", "--pythonpath", sys.executable, "-p", folder],
            capture_output=True,
            text=True,
            check=False,
        )
    try:
        diagnostics = json.loads(done.stdout)["generalDiagnostics"]
    except (ValueError, KeyError):
        sys.exit(f"pyright failed:\n{done.stdout}{done.stderr}")
    said = Said()
    for each in diagnostics:
        number = each["range"]["start"]["line"] + 1
        if revealed := re.match(r'Type of ".*" is "(.*)"', each["message"], re.DOTALL):
            said.shows[number] = plain(revealed[1])
        elif each["severity"] == "error":
            said.refused[number] += each["message"].splitlines()[0]
    return said


def differences(wanted: Said, said: Said) -> Iterable[str]:
    """One sentence for each line that is not seen as it should be."""
    for number in sorted({*wanted.shows, *said.shows}):
        if wanted.shows.get(number) != said.shows.get(number):
            yield f"line {number}: shows {said.shows.get(number)}, expected {wanted.shows.get(number)}"
    for number in sorted({*wanted.refused, *said.refused}):
        if number not in said.refused:
            yield f"line {number}: accepted, expected to be refused"
        elif number not in wanted.refused:
            yield f"line {number}: refused: {said.refused[number]}"


def main() -> int:
    """Exit code 1 if a checker sees something else than the comments say."""
    wanted = expected(USER_FILE.read_text(encoding="utf-8"))
    problems = [f"mypy: {each}" for each in differences(wanted, by_mypy())]
    if importlib.util.find_spec("pyright"):
        problems += [f"pyright: {each}" for each in differences(wanted, by_pyright())]
    else:
        print("pyright is not installed: a user's file was checked by mypy alone")
    for problem in problems:
        print(f"{USER_FILE.relative_to(ROOT)}: {problem}", file=sys.stderr)
    print(f"a user's file: {len(wanted.shows)} types and {len(wanted.refused)} refusals as expected" * (not problems))
    return 1 if problems else 0


if __name__ == "__main__":
    sys.exit(main())
