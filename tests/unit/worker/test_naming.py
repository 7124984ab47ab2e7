"""What a worker is called: it keeps its name where it can, and no two at once share one."""

from __future__ import annotations

from pathlib import Path

import pytest

from stepwell.core.errors import UsageError
from stepwell.core.ownership import worker_of
from stepwell.worker import naming
from stepwell.worker.naming import WorkerName, shard_id


def test_a_given_name_is_taken_as_it_is(tmp_path: Path) -> None:
    assert WorkerName("rack-7", tmp_path).id == "rack-7"
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("name", ["", "a/b", "a|b", "-a", "a b", "é", "x" * 65, "a\n"])
def test_a_name_that_would_not_fit_into_a_lease_is_refused(name: str) -> None:
    with pytest.raises(UsageError, match="worker id of 1 to 64"):
        WorkerName(name)


def test_a_worker_on_a_data_directory_has_the_same_name_after_a_restart(tmp_path: Path) -> None:
    first = WorkerName(None, tmp_path)
    first.leave()
    first.leave()
    assert WorkerName(None, tmp_path).id == first.id


def test_workers_at_once_on_one_data_directory_have_names_of_their_own(tmp_path: Path) -> None:
    workers = [WorkerName(None, tmp_path) for _ in range(3)]
    names = [worker.id for worker in workers]
    assert len(set(names)) == 3
    workers[1].leave()
    assert WorkerName(None, tmp_path).id == names[1]


def test_a_name_that_was_cut_off_while_it_was_written_is_made_anew(tmp_path: Path) -> None:
    first = WorkerName(None, tmp_path)
    first.leave()
    (tmp_path / "workers" / "0").write_text("\x00\x00")
    second = WorkerName(None, tmp_path)
    second.leave()
    assert second.id != first.id
    assert WorkerName(None, tmp_path).id == second.id


def test_a_folder_that_can_t_be_used_is_named(tmp_path: Path) -> None:
    (tmp_path / "workers").write_text("in the way")
    with pytest.raises(UsageError, match=str(tmp_path)):
        WorkerName(None, tmp_path)


def test_without_a_directory_each_start_has_another_name() -> None:
    assert WorkerName().id != WorkerName().id


@pytest.mark.parametrize("host", ["db.example.org", "mac|book,1", "___", "", "x" * 200, "über"])
def test_any_host_name_makes_a_name_that_is_allowed(host: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(naming.socket, "gethostname", lambda: host)
    made = WorkerName().id
    assert WorkerName(made).id == made


def test_a_shard_is_named_after_its_worker() -> None:
    assert shard_id("rack-7", 2) == "rack-7/2"
    assert worker_of("rack-7/2") == "rack-7"
    assert worker_of("someone") == "someone"
