"""A step that waits for a thread has not begun: a cancel, or a failing gather, sees to it that it never does."""

from __future__ import annotations

import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from system.support.processes import HANG_SECONDS

from stepwell import Client, FatalError, Worker, flow, gather, step


class Scene:
    """Flows whose steps are held by a gate, on a worker with one thread."""

    def __init__(self) -> None:
        self.gate = threading.Event()
        self.entered = threading.Event()
        self.ran: list[str] = []

        @step
        def busy() -> None:
            self.entered.set()
            assert self.gate.wait(HANG_SECONDS)

        @step
        def charge() -> None:
            self.ran.append("charge")

        @step
        async def breaks() -> None:
            raise FatalError("no")

        @flow
        async def blocker() -> None:
            await busy()

        @flow
        async def pays() -> None:
            await charge()

        @flow
        async def both() -> None:
            await gather(charge(), breaks())

        self.flows = [blocker, pays, both]


@pytest.fixture
def scene() -> Scene:
    return Scene()


@pytest.mark.pain(52)
@pytest.mark.parametrize(("name", "status"), [("pays", "cancelled"), ("both", "error")])
def test_a_step_that_waits_for_a_thread_never_begins_once_it_is_wound_up(
    scene: Scene, tmp_path: Path, eventually: Callable[..., Any], name: str, status: str
) -> None:
    with Worker(scene.flows, data=tmp_path / "data", threads=1) as worker, Client(worker.url) as client:
        client.start("blocker", execution_id="first")
        assert scene.entered.wait(HANG_SECONDS)
        client.start(name, execution_id="second")
        eventually(lambda: "charge" in str(client.describe("second")["steps"]), "charge is declared")
        if name == "pays":
            assert client.cancel("second", timeout=HANG_SECONDS).applied
        eventually(lambda: client.describe("second")["status"] == status, f"the execution is {status}")
        scene.gate.set()
        client.result("first", timeout=HANG_SECONDS)
    assert scene.ran == []
