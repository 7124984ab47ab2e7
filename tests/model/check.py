"""Checks the model of the ownership protocol (ownership.pml) with Spin: all states within each set of bounds.

Each fault of `FAULTS` is put into the model by its macro and must give a counterexample: so the model can fail.

Usage: python tests/model/check.py [--deep] [NAME...], a name being that of bounds or of a fault. `--deep` takes larger
bounds too, and minutes. Exit 1 where a property does not hold, or where a fault is not found.
"""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
import tempfile
import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

MODEL = Path(__file__).resolve().parent / "ownership.pml"
AT_ONCE = 2
MEGABYTES = 3000
LIMIT_SECONDS = {False: 120, True: 1800}
GOES_ON = "Once the faults are over, the execution comes to its end, and Redis keeps that."


@dataclass(frozen=True, slots=True)
class Bounds:
    """How often what may happen. `lively`: that it goes on is looked at, too, with every process fair."""

    name: str
    why: str
    slow: int = 0
    crashes: int = 0
    resets: int = 0
    releases: int = 0
    losses: int = 0
    foreign: int = 0
    lively: bool = False
    deep: bool = False

    @property
    def macros(self) -> list[str]:
        """As spin is told them."""
        counts = ("slow", "crashes", "resets", "releases", "losses", "foreign")
        found = [f"-D{name.upper()}={getattr(self, name)}" for name in counts]
        return [*found, "-DGOES_ON"] if self.lively else found


@dataclass(frozen=True, slots=True)
class Fault:
    """One fault that a person could make in the product, and the bounds within which it must show."""

    macro: str
    why: str
    within: str


@dataclass(frozen=True, slots=True)
class Outcome:
    """What came of one run: `broken` is the property in words ('' if all hold), `story` how it came to that."""

    broken: str
    story: list[str]
    states: int
    seconds: float
    problem: str = ""


BOUNDS = [
    Bounds("zombie", "an owner is frozen past its deadline, a shard dies", slow=3, crashes=1),
    Bounds("replies", "an owner is frozen, a reply is lost or a request comes late", slow=3, resets=1),
    Bounds(
        "handover", "an owner is frozen, hands over; somebody writes without a lease", slow=3, releases=1, foreign=1
    ),
    Bounds("loss-zombie", "Redis forgets its last second while an owner is frozen", slow=2, losses=1),
    Bounds("loss-crash", "Redis forgets its last second, a shard dies", crashes=1, losses=1),
    Bounds(
        "loss-replies", "Redis forgets its last second, a reply is lost or a request comes late", resets=1, losses=1
    ),
    Bounds("loss-handover", "Redis forgets its last second around a handover", slow=1, releases=1, losses=1),
    Bounds("goes-on", "it ends though owners freeze and die", slow=2, crashes=1, lively=True),
    Bounds("goes-on-replies", "it ends though replies are lost", slow=3, resets=1, lively=True),
    Bounds("goes-on-loss", "it ends though Redis forgets its last second", losses=1, lively=True),
    Bounds("deep", "all but a lost second together", slow=2, crashes=1, resets=1, releases=1, foreign=1, deep=True),
    Bounds(
        "deep-loss", "a lost second, two dead shards, a lost reply", slow=1, crashes=1, resets=1, losses=1, deep=True
    ),
]

FAULTS = [
    Fault("NO_LEASE_CHECK", "a commit does not look at the lease", "loss-zombie"),
    Fault("NO_REV_CHECK", "a commit does not look at the revision", "replies"),
    Fault("STARTS_BEFORE_ACK", "a step starts before its declaration is acknowledged", "zombie"),
    Fault("FENCED_IGNORED", "FENCED counts as written", "zombie"),
    Fault("ALWAYS_HEALED", "CONFLICT with a newer row is healed, too", "handover"),
    Fault("NEVER_HEALED", "CONFLICT with an older row drops memory, too", "loss-replies"),
    Fault("RESTORE_OVERWRITES", "a restore does not look at the revision", "loss-replies"),
    Fault("BELIEVES_LAPSED_LEASE", "a step starts after the deadline of the lease", "zombie"),
    Fault("COUNTS_FROM_REPLY", "the deadline counts from the reply, not from the sending", "zombie"),
    Fault("EPOCH_COUNTS_ONLY", "an epoch is the stored one and 1, whatever the time", "loss-handover"),
    Fault("REVISIONS_COUNT_ONLY", "a revision is the one before and 1, whoever writes it", "loss-zombie"),
    Fault("LOADS_ON_LAPSED_LEASE", "a row that was read after the deadline is gone on with", "loss-zombie"),
    Fault("ANY_GRANT", "what was loaded under one grant goes on under the next one", "zombie"),
    Fault("TAKES_BACK_WHAT_IT_GAVE", "a grant that was given back is taken again", "loss-handover"),
    Fault("LOSS_UNNOTICED", "nobody compares rows when the count of writes went back", "loss-crash"),
    Fault("FORGETS_WHO_ENDED", "who has ended is forgotten at once", "loss-crash"),
    Fault("DUP_TELLS_NO_COUNT", "DUP does not tell the count of writes", "loss-replies"),
    Fault("NOT_SENT_AGAIN", "a write whose reply was lost is not sent again", "goes-on-replies"),
]


def run(bounds: Bounds, fault: str = "") -> Outcome:
    """All states within these bounds, or the first that breaks a property."""
    began = time.monotonic()
    macros = [*bounds.macros, *([f"-D{fault}"] if fault else [])]
    with tempfile.TemporaryDirectory(prefix="model-") as name:
        folder = Path(name)
        kind = ["-DNFAIR=4"] if bounds.lively else ["-DSAFETY"]
        _tool(folder, "spin", "-a", *macros, str(MODEL))
        options = ["-O0" if fault else "-O1", "-w", "-DCOLLAPSE", f"-DMEMLIM={MEGABYTES}", *kind]
        _tool(folder, "gcc", *options, "-o", "pan", "pan.c")
        how = ["-a", "-f"] if bounds.lively else ["-E"]
        command = ["./pan", *how, "-m200000", "-w23"]
        try:
            said = subprocess.run(
                command, cwd=folder, capture_output=True, text=True, timeout=LIMIT_SECONDS[bounds.deep], check=False
            ).stdout
        except subprocess.TimeoutExpired:
            return Outcome("", [], 0, time.monotonic() - began, "it takes too long")
        found = re.search(r"(\d+) states, stored", said)
        states = int(found[1]) if found else 0
        if re.search(r"errors: 0$", said, re.MULTILINE) and "too small" not in said and "MEMLIM" not in said:
            return Outcome("", [], states, time.monotonic() - began)
        trails = list(folder.glob("*.trail"))
        if not trails:
            return Outcome("", [], states, time.monotonic() - began, f"Spin did not come to an end:\n{said[-1500:]}")
        told = _tool(folder, "spin", "-k", trails[0].name, *macros, str(MODEL))
    return Outcome(_words(told), _story(told), states, time.monotonic() - began)


def _tool(folder: Path, *command: str) -> str:
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False)
    if done.returncode:
        sys.exit(f"{' '.join(command)} failed:\n{done.stdout}{done.stderr}")
    return done.stdout + done.stderr


def _words(told: str) -> str:
    """The property that broke: the comment above its assertion."""
    found = re.search(r"ownership\.pml:(\d+), Error: assertion violated", told)
    if found is None:
        return GOES_ON
    lines = MODEL.read_text(encoding="utf-8").splitlines()
    for line in reversed(lines[: int(found[1])]):
        comment = re.fullmatch(r"\s*/\* (.+) \*/", line)
        if comment:
            return comment[1]
    return "?"


def _story(told: str) -> list[str]:
    lines = [re.sub(r"^([01]): ", r"shard \1: ", line.strip()) for line in told.splitlines()]
    return [line for line in lines if line.startswith(("-- ", "shard ", "<<<<<START"))]


def check(bounds: Bounds) -> bool:
    """Look at all states within the bounds; say what came of it."""
    outcome = run(bounds)
    sound = not (outcome.broken or outcome.problem)
    figures = f"{outcome.states:>9,} states {outcome.seconds:5.1f} s"
    print(f"{'holds' if sound else 'BROKEN':<7} {figures}  {bounds.name}: {bounds.why}")
    _tell(outcome)
    return sound


def catch(fault: Fault) -> bool:
    """Look for a state in which the fault breaks a property."""
    bounds = next(each for each in BOUNDS if each.name == fault.within)
    outcome = run(bounds, fault.macro)
    figures = f"{outcome.states:>9,} states {outcome.seconds:5.1f} s"
    word = "found" if outcome.broken else "MISSED"
    print(f"{word:<7} {figures}  {fault.macro}: {fault.why}")
    print(f"{'':34}breaks: {outcome.broken or outcome.problem or 'nothing'}")
    if len(sys.argv) > 1:
        print("\n".join(f"{'':34}{line}" for line in outcome.story))
    sys.stdout.flush()
    return bool(outcome.broken)


def _tell(outcome: Outcome) -> None:
    if outcome.problem:
        print(f"        {outcome.problem}")
    if outcome.broken:
        print(f"        does not hold: {outcome.broken}")
        print("\n".join(f"        {line}" for line in outcome.story))
    sys.stdout.flush()


def main(arguments: list[str]) -> int:
    """Check the bounds, then the faults."""
    missing = [tool for tool in ("spin", "gcc") if shutil.which(tool) is None]
    if missing:
        print(f"make model needs {' and '.join(missing)} on PATH (Debian: apt-get install {' '.join(missing)})")
        return 1
    names = [each for each in arguments if each != "--deep"]
    unknown = set(names) - {each.name for each in BOUNDS} - {each.macro for each in FAULTS}
    if unknown:
        print(f"no such bounds or fault: {', '.join(sorted(unknown))}")
        return 1
    bounds = [each for each in BOUNDS if each.name in names or (not names and (not each.deep or "--deep" in arguments))]
    faults = [each for each in FAULTS if not names or each.macro in names]
    with ThreadPoolExecutor(AT_ONCE) as pool:
        held = list(pool.map(check, bounds))
        caught = list(pool.map(catch, faults))
    print(f"{sum(held)} of {len(held)} bounds hold, {sum(caught)} of {len(caught)} faults are found")
    return 0 if all(held) and all(caught) else 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
