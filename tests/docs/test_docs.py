"""Every code block of the docs is run: Python in order per page, shell in one folder with a worker beside it."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))]
FENCE = re.compile(r"^```([^\n]*)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
PICTURES = {"text"}
HANG_SECONDS = 300  # what a page runs are processes, which take long to start on a busy machine


@dataclass(frozen=True)
class Block:
    """One fenced block: its language words and its text."""

    words: tuple[str, ...]
    text: str


def blocks_of(page: Path) -> list[Block]:
    """The fenced blocks of a page that hold code."""
    found = [Block(tuple(words.split()), text) for words, text in FENCE.findall(page.read_text())]
    assert all(block.words for block in found), f"{page.name} has a block without a language"
    return [block for block in found if block.words[0] not in PICTURES]


class Folder:
    """A fresh working folder with `stepwell` on PATH; background processes end with it."""

    def __init__(self, path: Path) -> None:
        self.path = path
        scripts = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
        kept = {k: v for k, v in os.environ.items() if not k.startswith("STEPWELL_")}
        self.env = {**kept, "PATH": scripts}
        self._background: list[subprocess.Popen[bytes]] = []

    def start(self, text: str) -> None:
        command = ["bash", "-c", f"exec {text.strip()}"]
        self._background.append(
            subprocess.Popen(command, cwd=self.path, env=self.env, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        )

    def run(self, command: list[str], text: str) -> None:
        done = subprocess.run(
            command, input=text, cwd=self.path, env=self.env, capture_output=True, text=True, timeout=HANG_SECONDS
        )
        assert done.returncode == 0, f"{text}\n--- exit {done.returncode}\n{done.stdout}\n{done.stderr}"

    def end(self) -> None:
        for process in self._background:
            process.send_signal(signal.SIGTERM)
            assert process.wait(HANG_SECONDS) == 0, "the background process did not end well"


@pytest.fixture
def folder(tmp_path: Path) -> Iterator[Folder]:
    made = Folder(tmp_path)
    yield made
    made.end()


@pytest.mark.slow
@pytest.mark.threads
@pytest.mark.hang_limit(3 * HANG_SECONDS)
@pytest.mark.parametrize("page", [p for p in PAGES if blocks_of(p)], ids=lambda page: page.name)
def test_every_block_of_a_page_runs(page: Path, folder: Folder) -> None:
    blocks = blocks_of(page)
    script = ""
    ran = 0
    for block in blocks:
        if block.words == ("python",):
            named = re.match(r"# (\S+\.py)\n", block.text)
            if named:
                (folder.path / named[1]).write_text(block.text)
            script += block.text + "\n"
            folder.run([sys.executable, "-"], script)
        elif block.words == ("sh", "background"):
            folder.start(block.text)
        elif block.words == ("sh",):
            folder.run(["bash", "-euo", "pipefail"], block.text)
        else:
            pytest.fail(f"{page.name} has a block of {' '.join(block.words)}, which is not run by this test")
        ran += 1
    assert ran == len(blocks)


def test_there_are_blocks_to_run() -> None:
    assert sum(len(blocks_of(page)) for page in PAGES) >= 10
