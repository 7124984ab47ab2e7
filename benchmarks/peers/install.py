"""Installing peers: each into an environment of its own below the cache, at the versions that the catalogue names."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

from benchmarks.peers.peer import Command, Peer, Skip

__all__ = ["Environment", "install"]

PATIENCE_SECONDS = 600.0
DONE = "installed.json"
HERE = Path(__file__).resolve().parent
ROOT = HERE.parent.parent


@dataclass(frozen=True, slots=True)
class Environment:
    """Where a peer's programs and scripts are."""

    python: Path
    bin: Path
    modules: Path
    here: Path

    def words(self, command: Command) -> list[str]:
        """A command with its places filled in."""
        places = {"python": self.python, "bin": self.bin, "modules": self.modules, "here": self.here}
        return [word.format_map(places) for word in command]

    def variables(self) -> dict[str, str]:
        """What every script of the peer finds in its environment. Its own folder comes before everything installed."""
        paths = [HERE / "kit", self.here]
        if self.python == Path(sys.executable):
            paths += [ROOT, *(Path(path) for path in os.environ.get("PYTHONPATH", "").split(os.pathsep) if path)]
        return {
            "PYTHONPATH": os.pathsep.join(str(path) for path in paths),
            "NODE_PATH": str(self.modules),
            "PYTHONUNBUFFERED": "1",
            "PYTHONDONTWRITEBYTECODE": "",
        }


def install(peer: Peer, cache: Path) -> Environment:
    """Make what is missing. Raises Skip with the reason when something can't be installed here."""
    home = cache / peer.folder
    here = HERE / peer.folder
    if not peer.python and not peer.node:
        return Environment(Path(sys.executable), Path(sys.executable).parent, home / "node_modules", here)
    made = Environment(home / "venv/bin/python", home / "venv/bin", home / "node_modules", here)
    wanted = {"python": list(peer.python), "node": list(peer.node), "interpreter": sys.version}
    if _done(home / DONE) == wanted:
        return made
    if home.exists():
        shutil.rmtree(home)
    home.mkdir(parents=True)
    print(f"{peer.name}: installing {' '.join((*peer.python, *peer.node))} ...", file=sys.stderr, flush=True)
    if peer.python:
        _run([sys.executable, "-m", "venv", str(home / "venv")], home, "a virtual environment can't be made")
        quiet = ["-q", "--disable-pip-version-check", "--no-input"]
        _run([str(made.python), "-m", "pip", "install", *quiet, *peer.python], home, "pip could not install it")
    if peer.node:
        npm = shutil.which("npm")
        if npm is None or shutil.which("node") is None:
            raise Skip("no npm and node found (Debian: apt-get install npm)")
        command = [npm, "install", "--no-audit", "--no-fund", "--no-save", "--prefix", str(home), *peer.node]
        _run(command, home, "npm could not install it")
    (home / DONE).write_text(json.dumps(wanted), encoding="utf-8")
    return made


def versions(peer: Peer, made: Environment) -> dict[str, str]:
    """The versions of the packages that `peer.shows` names, as they are installed."""
    found = {}
    for name in peer.shows:
        package = made.modules / name / "package.json"
        if package.is_file():
            found[name] = str(json.loads(package.read_text(encoding="utf-8"))["version"])
        elif made.python == Path(sys.executable):
            found[name] = _own_version(name)
        else:
            asked = f"import importlib.metadata as m; print(m.version({name!r}))"
            shown = subprocess.run([made.python, "-c", asked], capture_output=True, text=True, check=False)
            found[name] = shown.stdout.strip() or "?"
    return found


def _own_version(name: str) -> str:
    try:
        return version(name)
    except PackageNotFoundError:
        return "?"


def _done(marker: Path) -> object:
    try:
        return json.loads(marker.read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return None


def _run(command: Sequence[str], folder: Path, failed: str) -> None:
    """Run to the end; Skip with the last line that tells something."""
    log = folder / "install.log"
    with log.open("ab") as sink:
        try:
            subprocess.run(command, stdout=sink, stderr=sink, check=True, timeout=PATIENCE_SECONDS, cwd=folder)
        except (OSError, subprocess.SubprocessError) as error:
            raise Skip(f"{failed}: {reason(log.read_text(errors='replace')) or error}") from error


def reason(log: str) -> str:
    """The line of an installer's log that says what was wrong: the first error of pip or npm, else the last line."""
    lines = [line.strip() for line in log.splitlines() if line.strip()]
    errors = [line for line in lines if line.lower().startswith(("error", "npm err", "npm error"))]
    return (errors or lines[-1:] or [""])[0][:300]
