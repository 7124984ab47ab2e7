"""The command `stepwell demo`: runs the course, shows what came of it, and judges."""

from __future__ import annotations

import argparse
import shutil
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path

from rich.console import Console

from stepwell.cli.bars import Bars, bars
from stepwell.core.errors import StepwellError
from stepwell.demo.course import Course, Plan
from stepwell.demo.interrupt import Interrupt
from stepwell.demo.screen import Screen
from stepwell.demo.verdict import last_line, running_at, verify

__all__ = ["main", "run"]

INTERRUPTED = 130


def main(argv: Sequence[str] = ()) -> int:
    """Run the demo; see `stepwell.demo.main`."""
    parser = argparse.ArgumentParser(
        prog="stepwell demo",
        description="50 order flows through crashes, failures and lost replies: real processes, under a minute.",
    )
    parser.add_argument("--keep", action="store_true", help="keep the data, the logs and the receiver's ledger")
    parser.add_argument("--seed", type=int, default=Plan().seed, help="draws the receiver's bad habits")
    given = parser.parse_args(argv)
    return run(Plan(seed=given.seed), keep=given.keep)


def run(plan: Plan, *, keep: bool = False) -> int:
    """Run the demo with that plan: 0 if all held, 1 if something broke (and names it), 130 after Ctrl-C."""
    home = Path(tempfile.mkdtemp(prefix="stepwell-demo-"))
    try:
        with Interrupt() as interrupt:
            return _judged(plan, home, interrupt)
    except KeyboardInterrupt:
        print("demo: interrupted; its processes have ended", file=sys.stderr)
        return INTERRUPTED
    except StepwellError as error:
        print(f"demo: BROKEN: {error}", flush=True)
        return 1
    finally:
        if keep:
            print(f"data, logs and the receiver's ledger: {home}", file=sys.stderr)
        else:
            shutil.rmtree(home, ignore_errors=True)


def _judged(plan: Plan, home: Path, interrupt: Interrupt) -> int:
    with bars() as shown, Course(plan, home, _screen(plan, shown), interrupt.check) as course:
        evidence = course.run()
    Screen(Console()).tables(evidence)
    resets = sum(request.reset_after_recording for request in evidence.requests)
    running = ", ".join(str(len(running_at(kill, evidence))) for kill in evidence.kills)
    print(
        f"\n{len(evidence.kills)} kills of the worker (steps that ran then: {running or 'none'}),"
        f" {resets} answers lost after the effect, {len(evidence.retried)} budgets used up and retried"
    )
    problems = verify(evidence)
    for problem in problems:
        print(f"demo: BROKEN: {problem}")
    if problems:
        print("(`--keep` keeps the logs and the receiver's ledger)", file=sys.stderr)
        return 1
    print(last_line(evidence), flush=True)
    return 0


def _screen(plan: Plan, shown: Bars | None) -> Screen:
    if shown is None:
        return Screen(Console())
    return Screen(shown.answers, shown.bar("side effects", plan.effects))
