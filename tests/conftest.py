"""What every suite shares: no test may hang for ever, and what is set around them decides nothing."""

from __future__ import annotations

import contextlib
import json
import os
import re
import signal
import time
from collections.abc import Generator
from types import FrameType

import pytest
from hypothesis import HealthCheck, settings

# How long an example takes, to draw it too, is up to who else works there; and each run tries the same ones, so that
# none is refused for what it has not changed. (`make fuzz` draws fresh ones of what strangers write.)
settings.register_profile("any machine", deadline=None, derandomize=True, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("any machine")
# Proxies, collectors of spans, colours, how wide the terminal is: of one machine, or of who works there. What tests
# start inherits it, so it is taken away here, before any of them.
SURROUNDINGS = re.compile(
    r"OTEL_.*|STEPWELL_(?!TEST_|FUZZ_|BENCH_).*|(?i:\w+_proxy)|TRACEPARENT|TRACESTATE|BAGGAGE|REAPER_GRACE_SECONDS"
    r"|NO_COLOR|(?:FORCE|CLICOLOR|TTY|TYPER|CLICK)_.*|(?:PY_)?(?:FORCE_)?COLOR|COLORTERM|COLUMNS|LINES"
    r"|PYTHON(?:WARNINGS|DEVMODE|ASYNCIODEBUG|VERBOSE|INSPECT|TRACEMALLOC|FAULTHANDLER|MALLOC|NODEBUGRANGES|STARTUP)"
)
_taken = {name: os.environ.pop(name) for name in list(os.environ) if SURROUNDINGS.fullmatch(name)}
# What fetches something has need of proxies. A variable, as processes that run a share of the tests begin without them.
_proxies = {name: value for name, value in _taken.items() if name.lower().endswith("_proxy")}
os.environ.setdefault("STEPWELL_TEST_PROXIES", json.dumps(_proxies))
HANG_SECONDS = 60.0
STARVED_SHARE = 0.05
STARVED_LIMITS = 5
_monotonic, _process_time = time.monotonic, time.process_time  # whatever a test puts in their place


class HungTest(BaseException):
    """A test waited past its hang limit; a BaseException, so that no `except Exception` on the way keeps it."""


def pytest_sessionstart() -> None:
    """Who ends the tests by SIGTERM, as `timeout` does, gets their fixtures' processes and servers ended too."""
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    signal.signal(signal.SIGINT, signal.default_int_handler)  # a shell's background ignores it, and tests inherit that


def is_starved(worked: float, elapsed: float, limit: float) -> bool:
    """Whether a test that reached its limit was kept from working by a busy machine: what waits uses next to no CPU."""
    return worked < limit and worked > STARVED_SHARE * elapsed and elapsed < STARVED_LIMITS * limit


@contextlib.contextmanager
def _limited(item: pytest.Item) -> Generator[None, None, None]:
    marker = item.get_closest_marker("hang_limit")
    seconds = float(marker.args[0]) if marker else HANG_SECONDS
    began, cpu_began = _monotonic(), _process_time()

    def interrupt(_number: int, _frame: FrameType | None) -> None:
        elapsed = _monotonic() - began
        if not is_starved(_process_time() - cpu_began, elapsed, seconds):
            raise HungTest(f"still busy after {elapsed:.1f} s")

    before = signal.signal(signal.SIGALRM, interrupt)
    signal.setitimer(signal.ITIMER_REAL, seconds, seconds)
    try:
        yield
    except HungTest as hung:
        raise AssertionError(str(hung)) from hung
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)


@pytest.hookimpl(wrapper=True)
def pytest_runtest_setup(item: pytest.Item) -> Generator[None, object, object]:
    """Fails fixtures that are still busy at the hang limit (60 s, or what the `hang_limit` marker says)."""
    with _limited(item):
        return (yield)


@pytest.hookimpl(wrapper=True)
def pytest_runtest_call(item: pytest.Item) -> Generator[None, object, object]:
    """Fails a test that is still busy at its hang limit."""
    with _limited(item):
        return (yield)


@pytest.hookimpl(wrapper=True)
def pytest_runtest_teardown(item: pytest.Item) -> Generator[None, object, object]:
    """Fails fixtures that don't end: who was interrupted at a hang limit may have left a lock taken."""
    with _limited(item):
        return (yield)
