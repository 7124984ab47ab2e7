"""A shard put together: what it goes without where the disk is full."""

from __future__ import annotations

import logging
from pathlib import Path

import pytest

from stepwell.actors.blackbox import NO_BOX
from stepwell.core.limits import Limits
from stepwell.worker import hosting
from stepwell.worker.hosting import ShardSettings


def settings(box: Path | str) -> ShardSettings:
    return ShardSettings("rack-7/0", Limits(), 4, str(box))


def test_a_shard_has_the_box_it_is_told(tmp_path: Path) -> None:
    hosting.box_of(settings(tmp_path / "box")).turn("order-1", 1.0)
    assert (tmp_path / "box").exists()
    assert hosting.box_of(settings("")) is NO_BOX


def test_a_shard_that_can_have_no_box_works_without_one_and_says_so(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    with caplog.at_level(logging.WARNING):
        assert hosting.box_of(settings(tmp_path / "removed" / "box")) is NO_BOX
    [said] = caplog.messages
    assert "shard rack-7/0 has no black box" in said
    assert "No such file or directory" in said
    assert "set TMPDIR" in said
