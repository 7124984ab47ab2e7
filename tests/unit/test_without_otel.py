"""OpenTelemetry is an extra: nothing needs it, and nothing loads it before spans are to be made."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

EVERYTHING = """
import importlib, pkgutil, sys
import stepwell
SPANS = {"stepwell.metrics.traces", "stepwell.metrics.providers", "stepwell.metrics.exporting"}
for package in ("", ".actors", ".actors.processes", ".actors.runner", ".cli", ".client", ".flow", ".http", ".metrics",
                ".worker"):
    parent = importlib.import_module("stepwell" + package)
    for found in pkgutil.iter_modules(parent.__path__, parent.__name__ + "."):
        if found.name not in SPANS and not found.name.endswith("__main__"):
            importlib.import_module(found.name)
"""
# redis-py loads a part of it by itself, where it is installed.
BY_REDIS = "import sys, redis\nbefore = set(sys.modules)\n"
LOADED = 'print(sorted(name for name in set(sys.modules) - before if name.startswith("opentelemetry")))'
RUN = """
import sys
sys.modules["opentelemetry"] = None
from stepwell.cli import main
sys.exit(main())
"""

pytestmark = [pytest.mark.threads, pytest.mark.slow]


def run(code: str, *arguments: str, **environment: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-c", code, *arguments],
        env={**os.environ, **environment},
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )


def test_no_module_loads_it() -> None:
    done = run(BY_REDIS + EVERYTHING + LOADED)
    assert (done.returncode, done.stdout.strip()) == (0, "[]"), done.stderr


def test_every_module_loads_without_it() -> None:
    done = run('import sys; sys.modules["opentelemetry"] = None' + EVERYTHING)
    assert (done.returncode, done.stderr) == (0, "")


def test_a_worker_that_is_to_make_spans_without_it_says_what_to_install() -> None:
    done = run(RUN, "run", "flows.py", "--otel")
    assert done.returncode == 2
    assert "pip install 'stepwell[otel]'" in done.stderr
    assert "Traceback" not in done.stderr
