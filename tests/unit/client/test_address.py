"""Where a client looks for its data, and the ids that it makes."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from stepwell.actors.kit.clock import VirtualClock
from stepwell.client import AsyncClient, Client
from stepwell.client.address import Address, resolve
from stepwell.client.ids import new_ids
from stepwell.core.errors import InvalidName, UsageError
from stepwell.core.names import check_execution_id


def test_what_is_given_comes_before_the_environment_and_a_url_before_a_directory():
    both = {"STEPWELL_REDIS_URL": "redis://env", "STEPWELL_DATA": "/env"}
    assert resolve("redis://given", None, both) == Address(url="redis://given")
    assert resolve(None, "/given", both) == Address(data_dir=Path("/given"))
    assert resolve(None, None, both) == Address(url="redis://env")
    assert resolve(None, None, {"STEPWELL_REDIS_URL": "", "STEPWELL_DATA": "/env"}) == Address(data_dir=Path("/env"))
    assert resolve(None, None, {}) == Address(data_dir=Path.cwd() / ".stepwell")


def test_a_url_and_a_directory_at_once_are_refused():
    with pytest.raises(UsageError, match="not both"):
        resolve("redis://given", "/given", {})


def test_the_environment_is_read_when_a_client_is_made(monkeypatch):
    monkeypatch.setenv("STEPWELL_REDIS_URL", "redis://:s3cret@later:7")
    client = AsyncClient()
    monkeypatch.setenv("STEPWELL_REDIS_URL", "redis://other")
    assert repr(client) == "AsyncClient('redis://:***@later:7', namespace='stepwell')"


def test_an_odd_namespace_is_refused_before_a_server_is_looked_for(tmp_path):
    with pytest.raises(InvalidName, match="namespace"):
        Client(data_dir=tmp_path / "data", namespace="no{pe")
    assert list(tmp_path.iterdir()) == []


def test_a_client_shows_no_password():
    with Client("redis://me:s3cret@localhost:1/0") as client:
        assert "s3cret" not in repr(client)


def test_ids_sort_by_the_time_of_their_making_and_are_version_7_uuids():
    clock = VirtualClock(start_ms=0x0123456789AB)
    made = []
    filling = iter([b"\xff" * 10, b"\x00" * 10, b"\xff" * 10])
    new_id = new_ids(clock, lambda count: next(filling)[:count])
    for _ in range(3):
        made.append(new_id())
        clock.advance(0.001)
    assert made[0] == "01234567-89ab-7fff-bfff-ffffffffffff"
    assert made == sorted(made)
    assert all(
        re.fullmatch(r"[0-9a-f]{8}-[0-9a-f]{4}-7[0-9a-f]{3}-[89ab][0-9a-f]{3}-[0-9a-f]{12}", each) for each in made
    )
    assert check_execution_id(made[1]) == made[1]


def test_ids_of_one_millisecond_differ():
    new_id = new_ids(VirtualClock())
    assert len({new_id() for _ in range(1000)}) == 1000


@pytest.mark.pain(45)
@pytest.mark.parametrize("given", ["redis://:hunter2@host:6379", Path("redis://:hunter2@host:6379")])
def test_a_url_is_no_folder_and_its_password_is_not_shown(given: str | Path) -> None:
    with pytest.raises(UsageError, match="is a URL") as caught:
        resolve(data_dir=given)
    assert "hunter2" not in str(caught.value)
    with pytest.raises(UsageError, match="is a URL"):
        resolve(environment={"STEPWELL_DATA": str(given)})
