"""Runs pytest in forks of one process that has imported what tests import, except for the product.

It reads one request a line, `{"tests": [...], "site": folder, "scratch": folder, "limit": seconds}`, and answers each
with a line that holds pytest's exit code (`HUNG` for tests that were stopped at the limit). The product is that in
`site`; what was said is in `SAID` below `scratch`, where the tests keep their temporary files, too.
"""

from __future__ import annotations

import atexit
import gc
import importlib
import json
import os
import signal
import sys
import tempfile
import traceback
from collections.abc import Sequence
from pathlib import Path
from types import FrameType
from typing import NoReturn

import _pytest.config
import pytest
import reaper

ROOT = Path(__file__).resolve().parents[2]
HUNG = 98
SAID = "said"
# Plugins are named here: pytest would complain that it can't rewrite those which are imported already.
OPTIONS = ["-q", "-x", "--tb=short", "-p", "no:cacheprovider", "-p", "_hypothesis_pytestplugin"]
IMPORTED = (
    *(f"_pytest.{name}" for name in _pytest.config.default_plugins),
    "asyncio",
    "cloudpickle",
    "fakeredis",
    "httpx",
    "hypothesis.internal.conjecture.engine",
    "hypothesis.strategies",
    "lupa",
    "msgspec",
    "multiprocessing.spawn",
    "opentelemetry.sdk.trace",
    "prometheus_client",
    "pykka",
    "redis.cluster",
    "redis.sentinel",
    "rich.live",
    "rich.progress",
    "rich.table",
    "typer.testing",
    "yaml",
)


def main() -> None:
    """Answer requests until there are no more."""
    os.environ |= {"PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1", "PYTHONDONTWRITEBYTECODE": "1"}
    sys.dont_write_bytecode = True
    for name in IMPORTED:
        importlib.import_module(name)
    if "stepwell" in sys.modules:
        raise RuntimeError("the product is imported already, so that no mutant would be seen")
    gc.freeze()
    for line in iter(sys.stdin.readline, ""):
        request = json.loads(line)
        pid = os.fork()
        if pid == 0:
            _answer(request["tests"], Path(request["site"]), Path(request["scratch"]), request["limit"])
        print(os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]), flush=True)


def _answer(tests: Sequence[str], site: Path, scratch: Path, limit: float) -> NoReturn:
    """In a process of its own, with all that the tests start below it, and without what they leave behind."""
    with open(scratch / SAID, "wb") as out, open(os.devnull, "rb") as nothing:
        for stream, number in ((nothing, 0), (out, 1), (out, 2)):
            os.dup2(stream.fileno(), number)
    signal.signal(signal.SIGALRM, _stop)
    signal.setitimer(signal.ITIMER_REAL, limit)
    code = 1
    try:
        code = reaper.reap(lambda: _fork(tests, site, scratch))
    except SystemExit as end:
        code = int(end.code or 0)
    finally:
        _exit(code)


def _stop(_number: int, _frame: FrameType | None) -> NoReturn:
    raise SystemExit(HUNG)


def _fork(tests: Sequence[str], site: Path, scratch: Path) -> int:
    pid = os.fork()
    if pid:
        return pid
    code = 1
    try:
        signal.signal(signal.SIGALRM, signal.SIG_DFL)
        signal.signal(signal.SIGTERM, signal.SIG_DFL)
        os.environ |= {"PYTHONPATH": str(site), "TMPDIR": str(scratch)}
        tempfile.tempdir = None
        # As `python -m pytest` has it: where it is run, and then PYTHONPATH.
        sys.path[:] = [str(ROOT), str(site), *(path for path in sys.path if Path(path) not in (ROOT, ROOT / "tests"))]
        code = int(pytest.main([*OPTIONS, *tests]))
        atexit._run_exitfuncs()
    except BaseException:
        traceback.print_exc()
    finally:
        _exit(code)


def _exit(code: int) -> NoReturn:
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(code)


if __name__ == "__main__":
    main()
