"""What is set on the machine, or by who works there, decides nothing in a test."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import conftest
import pytest


@pytest.mark.parametrize(
    "name",
    [
        "OTEL_EXPORTER_OTLP_ENDPOINT",
        "OTEL_SDK_DISABLED",
        "STEPWELL_REDIS_URL",
        "STEPWELL_DATA",
        "http_proxy",
        "HTTPS_PROXY",
        "all_proxy",
        "TRACEPARENT",
        "NO_COLOR",
        "FORCE_COLOR",
        "COLUMNS",
        "PYTHONWARNINGS",
    ],
)
def test_what_would_change_how_the_product_works_is_taken_away(name: str) -> None:
    assert conftest.SURROUNDINGS.fullmatch(name)


@pytest.mark.parametrize(
    "name",
    ["STEPWELL_TEST_REDIS_SERVER", "STEPWELL_FUZZ_SCALE", "PATH", "PYTHONPATH", "PYTHONHASHSEED", "TMPDIR", "CI"],
)
def test_what_tests_are_told_and_what_finds_programs_stays(name: str) -> None:
    assert not conftest.SURROUNDINGS.fullmatch(name)


def test_what_fetches_something_is_told_of_the_proxies_all_the_same() -> None:
    told = "import json, os, conftest; print(os.environ['STEPWELL_TEST_PROXIES'], os.environ.get('https_proxy'))"
    surroundings = {"https_proxy": "http://127.0.0.1:9", "PYTHONPATH": str(Path(conftest.__file__).parent)}
    without = {name: value for name, value in os.environ.items() if name != "STEPWELL_TEST_PROXIES"}
    done = subprocess.run(
        [sys.executable, "-c", told], env={**without, **surroundings}, capture_output=True, check=True
    )
    assert done.stdout.decode().strip() == '{"https_proxy": "http://127.0.0.1:9"} None'


def test_nothing_of_it_is_left() -> None:
    assert [name for name in os.environ if conftest.SURROUNDINGS.fullmatch(name)] == []
