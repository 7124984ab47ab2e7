"""Black boxes leave nothing behind, also where their worker was killed."""

from __future__ import annotations

import errno
import fcntl
import os
import tempfile
from collections.abc import Callable
from pathlib import Path

import pytest

from stepwell.core.errors import UsageError
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


def test_one_whose_worker_was_killed_while_it_made_or_removed_it_is_removed_too(tmp_path: Path) -> None:
    (tmp_path / "stepwell-box-begun").mkdir()
    (tmp_path / "stepwell-box-half").mkdir()
    (tmp_path / "stepwell-box-half" / "0-1").write_bytes(b"x")
    BoxFolder(tmp_path).close()
    assert names(tmp_path) == []


def held_by_another(path: Path) -> None:
    fcntl.flock(os.open(path, os.O_RDONLY), fcntl.LOCK_EX)


@pytest.mark.parametrize("meanwhile", [Path.rmdir, held_by_another])
def test_one_that_is_cleared_away_before_it_is_held_is_made_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, meanwhile: Callable[[Path], None]
) -> None:
    real, made = tempfile.mkdtemp, list[str]()

    def making(**options: str) -> str:
        made.append(real(**options))
        if len(made) == 1:
            meanwhile(Path(made[0]))
        return made[-1]

    monkeypatch.setattr(tempfile, "mkdtemp", making)
    folder = BoxFolder(tmp_path)
    assert [str(folder.box(0, 0).parent)] == made[1:]
    folder.close()


def test_one_that_is_removed_between_its_opening_and_its_lock_is_made_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    real = fcntl.flock

    def locking(file: int, operation: int) -> None:
        monkeypatch.undo()
        [path] = tmp_path.iterdir()
        path.rmdir()
        real(file, operation)

    monkeypatch.setattr(fcntl, "flock", locking)
    folder = BoxFolder(tmp_path)
    assert folder.box(0, 0).parent.is_dir()
    folder.close()


def test_where_the_file_system_has_no_locks_boxes_are_kept_all_the_same(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refusing(_file: int, _operation: int) -> None:
        raise OSError(errno.ENOLCK, os.strerror(errno.ENOLCK))

    monkeypatch.setattr(fcntl, "flock", refusing)
    one, another = BoxFolder(tmp_path), BoxFolder(tmp_path)
    assert len(names(tmp_path)) == 2
    one.close()
    another.close()
    assert names(tmp_path) == []


def test_neither_files_nor_links_are_taken_for_a_workers_folder(tmp_path: Path) -> None:
    (tmp_path / "elsewhere").mkdir()
    (tmp_path / "stepwell-box-file").write_text("")
    (tmp_path / "stepwell-box-link").symlink_to(tmp_path / "elsewhere")
    BoxFolder(tmp_path).close()
    assert names(tmp_path) == ["elsewhere", "stepwell-box-file", "stepwell-box-link"]


def test_it_is_held_as_long_as_the_worker_lives(tmp_path: Path) -> None:
    folder = BoxFolder(tmp_path)
    other = os.open(folder.box(0, 0).parent, os.O_RDONLY)
    with pytest.raises(BlockingIOError):
        fcntl.flock(other, fcntl.LOCK_EX | fcntl.LOCK_NB)
    os.close(other)
    folder.close()


def test_no_temporary_directory_at_all_is_one_clear_sentence(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match=r"no temporary directory can be used .* set TMPDIR to one that is writable"):
        BoxFolder(tmp_path / "nowhere")
