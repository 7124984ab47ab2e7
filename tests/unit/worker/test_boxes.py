"""Black boxes leave nothing behind, also where their worker was killed."""

from __future__ import annotations

import fcntl
import os
from pathlib import Path

import pytest

from stepwell.worker.boxes import BoxFolder


def names(root: Path) -> list[str]:
    return sorted(path.name for path in root.iterdir())


def test_a_folder_is_private_and_gone_when_it_is_closed(tmp_path: Path) -> None:
    folder = BoxFolder(tmp_path)
    box = folder.box(1, 2)
    box.write_bytes(b"x")
    assert box.parent.stat().st_mode & 0o077 == 0
    assert folder.box(1, 3) != box
    folder.close()
    folder.close()
    assert names(tmp_path) == []


@pytest.mark.pain(42)
def test_what_a_killed_worker_left_is_removed_by_the_next_and_the_livings_stays(tmp_path: Path) -> None:
    living, killed = BoxFolder(tmp_path), BoxFolder(tmp_path)
    killed.box(0, 1).write_bytes(b"x")
    os.close(killed._lock)  # as the kernel does
    later = BoxFolder(tmp_path)
    assert names(tmp_path) == sorted(path.box(0, 0).parent.name for path in (living, later))
    living.close()
    later.close()


def test_one_that_is_being_made_is_left_alone(tmp_path: Path) -> None:
    (tmp_path / "stepwell-boxes-new").mkdir()
    (tmp_path / "stepwell-boxes-file").write_text("")
    BoxFolder(tmp_path).close()
    assert names(tmp_path) == ["stepwell-boxes-file", "stepwell-boxes-new"]


def test_a_lock_that_is_a_link_is_not_followed(tmp_path: Path) -> None:
    (tmp_path / "stepwell-boxes-trap").mkdir()
    target = tmp_path / "target"
    target.write_text("")
    (tmp_path / "stepwell-boxes-trap" / "lock").symlink_to(target)
    BoxFolder(tmp_path).close()
    assert (tmp_path / "stepwell-boxes-trap").is_dir()


def test_it_is_held_as_long_as_the_worker_lives(tmp_path: Path) -> None:
    folder = BoxFolder(tmp_path)
    with (folder.box(0, 0).parent / "lock").open() as other, pytest.raises(BlockingIOError):
        fcntl.flock(other, fcntl.LOCK_EX | fcntl.LOCK_NB)
    folder.close()
