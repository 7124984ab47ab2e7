"""What a worker is told is checked at once."""

from __future__ import annotations

from typing import Any

import pytest

from stepwell.client.address import resolve
from stepwell.core.errors import UsageError
from stepwell.core.limits import Limits
from stepwell.worker.config import WorkerConfig

ADDRESS = resolve("redis://localhost:6379", None)


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("max_running", 0),
        ("max_steps", 0),
        ("max_steps", True),
        ("max_in_memory", 0.5),
        ("processes", 0),
        ("passivate_after", 9.9),
        ("passivate_after", float("inf")),
        ("passivate_after", "30"),
    ],
)
def test_a_limit_out_of_range_is_refused_by_its_name(name: str, value: Any) -> None:
    with pytest.raises(UsageError, match=f"expected {name} to be"):
        WorkerConfig(ADDRESS, **{name: value})


def test_each_shard_gets_the_limits_that_were_given() -> None:
    config = WorkerConfig(ADDRESS, max_running=1, max_steps=2, max_in_memory=3, passivate_after=40, processes=5)
    assert config.limits == Limits(running=1, steps=2, in_memory=3, passivate_after=40, processes=5)
    assert WorkerConfig(ADDRESS).limits == Limits()
