"""Processes that count on sheets and are killed at any moment, while this one reads: `python sheet_storm.py FOLDER SEED
MANY`. Prints what came of it as JSON.

Each process says on a pipe what it is about to count, and that it has counted it.
"""

from __future__ import annotations

import itertools
import json
import os
import random
import signal
import sys
from pathlib import Path
from typing import Any

from stepwell.metrics.instruments import COMMIT_BATCH_SIZE, INBOX_LENGTH, STEP_ATTEMPTS, STEP_DURATION
from stepwell.metrics.rendering import samples_of
from stepwell.metrics.scraping import Scrapes
from stepwell.metrics.segments import SheetFile
from stepwell.metrics.sheet import Sheet
from stepwell.metrics.totals import Totals

PLACES = 4
STEPS = 40
ABOUT_TO, HAS = b"a", b"h"


def count(path: Path, say: int, seed: int) -> None:
    """Count until killed."""
    chance = random.Random(seed)
    sheet = Sheet.open(path)
    sheet.level(INBOX_LENGTH).set(1)
    steps = chance.sample(range(STEPS), STEPS)
    for step in itertools.cycle(steps):
        os.write(say, ABOUT_TO)
        sheet.count(STEP_ATTEMPTS, "flow", f"step{step}", "ok").inc(1, f"execution-{step}")
        os.write(say, HAS)
        sheet.spread(STEP_DURATION, "flow", f"step{step}").observe(chance.random() * 100, f"execution-{step}")
        sheet.spread(COMMIT_BATCH_SIZE).observe(step)


class Storm:
    """What was seen."""

    def __init__(self, folder: Path, seed: int) -> None:
        self.folder = folder
        self.chance = random.Random(seed)
        self.totals = Totals()
        own = Sheet.in_memory()
        self.totals.attach(-1, own.source)
        self.scrapes = Scrapes(self.totals, own)
        self.last: dict[tuple[str, ...], float] = {}
        self.went_down: list[str] = []
        self.said = {ABOUT_TO: 0, HAS: 0}
        self.wrong: list[str] = []
        self.untold: set[int] = set()
        self.series: list[int] = []
        self.memory: list[int] = []
        self.files: list[tuple[int, int]] = []

    def look(self) -> float:
        """Read all; what is counted now."""
        counted = 0.0
        levels = 0.0
        now: dict[tuple[str, ...], float] = {}
        for name, labels, value in samples_of(self.totals.take()):
            if name == INBOX_LENGTH.full_name:
                levels = value
            elif not name.startswith("stepwell_exposition"):
                now[name, *labels.values()] = value
            if name == STEP_ATTEMPTS.full_name:
                counted += value
        self.went_down += [
            f"{key}: {value} to {now.get(key)}" for key, value in self.last.items() if now.get(key, 0) < value
        ]
        if levels > 1 + len(self.untold):
            self.wrong.append(f"{levels} processes have a level, and one lives")
        self.last = now
        return counted

    def life(self, number: int) -> None:
        """One process, from its start to its end."""
        place = number % PLACES
        file = SheetFile(self.folder / f"{place}.sheet")
        self.totals.attach(place, file)
        self.untold.discard(place)
        listen, say = os.pipe()
        seed = self.chance.random()
        child = os.fork()
        if child == 0:
            try:
                count(self.folder / f"{place}.sheet", say, hash(seed))
            finally:
                os._exit(1)  # only after an error: it is killed
        os.close(say)
        for until in sorted(self.chance.choice([0, 1, 5, 25, 150]) for _ in range(2)):
            heard = 0
            while heard < until:
                words = self.hear(listen)
                assert words, "it ended by itself"
                heard += words
            self.look()
        os.kill(child, signal.SIGKILL)
        self.look()
        os.waitpid(child, 0)
        while self.hear(listen):
            continue
        os.close(listen)
        self.look()
        if self.chance.random() < 0.2:  # its successor comes without that its end was told
            self.untold.add(place)
        else:
            self.totals.end(place)
        counted = self.look()
        if not self.said[HAS] <= counted <= self.said[ABOUT_TO]:
            self.wrong.append(f"life {number}: {counted} counted, {self.said[HAS]} to {self.said[ABOUT_TO]} told")
        self.said[HAS] = self.said[ABOUT_TO] = int(counted)

    def hear(self, listen: int) -> int:
        """What the process says; how many words."""
        words = os.read(listen, 4096)
        for word in self.said:
            self.said[word] += words.count(word)
        return len(words)

    def measure(self) -> None:
        """How much there is by now."""
        self.scrapes.answer("application/openmetrics-text", "gzip")
        self.series.append(len(self.last))
        self.memory.append(int(Path("/proc/self/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE"))
        sizes = [each.stat().st_size for each in self.folder.iterdir()]
        self.files.append((len(sizes), sum(sizes)))


def main(folder: str, seed: str, many: str) -> dict[str, Any]:
    """All of it."""
    storm = Storm(Path(folder), int(seed))
    for number in range(int(many)):
        storm.life(number)
        if number % 20 == 19:
            storm.measure()
    return {
        "counted": storm.said[HAS],
        "went_down": storm.went_down[:5],
        "wrong": storm.wrong[:5],
        "series": storm.series,
        "memory": storm.memory,
        "files": storm.files,
    }


if __name__ == "__main__":
    json.dump(main(*sys.argv[1:]), sys.stdout)
