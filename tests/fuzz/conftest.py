"""Fuzz tests: their hang limit grows with the number of examples they are to try."""

from __future__ import annotations

import pytest
from fuzz.budget import SCALE

HANG_SECONDS = 120


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        if "/fuzz/" in item.path.as_posix() and not item.get_closest_marker("hang_limit"):
            item.add_marker(pytest.mark.hang_limit(HANG_SECONDS * max(1, SCALE)))
