"""A shard put together: what it goes without where the disk is full."""

from __future__ import annotations

import logging
from pathlib import Path

import pytest

from stepwell.actors.blackbox import NO_BOX
from stepwell.core.limits import Limits
from stepwell.metrics.instruments import HEALED_EXECUTIONS
from stepwell.metrics.segments import SheetFile
from stepwell.metrics.sheetreader import SheetReader
from stepwell.worker import hosting
from stepwell.worker.settings import ShardSettings


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


def test_a_shard_counts_on_the_sheet_that_was_made_for_it(tmp_path: Path) -> None:
    file = SheetFile(tmp_path / "0.sheet")
    hosting.sheet_of(ShardSettings("w/0", Limits(), 4, sheet=str(tmp_path / "0.sheet"))).count(HEALED_EXECUTIONS).inc()
    reader = SheetReader(file.read)
    reader.look()
    assert len(reader.series) == 1
    file.close()


def test_a_shard_whose_sheet_could_not_be_made_works_without_one_and_says_so(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    with caplog.at_level(logging.WARNING):
        sheet = hosting.sheet_of(ShardSettings("rack-7/0", Limits(), 4, sheet=str(tmp_path / "0.sheet")))
    sheet.count(HEALED_EXECUTIONS).inc()
    [said] = caplog.messages
    assert "metrics of shard rack-7/0 are not shown" in said
    assert "set TMPDIR" in said
