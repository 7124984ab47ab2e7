"""Everything at once: kills, freezes, restarts and resets, drawn by a seed, while 300 executions of five steps run."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from system.support.effects import EffectReceiver
from system.support.servers import Server
from system.support.stage import Stage
from system.support.storm import ServerFaults, Storm

SEED = int(os.environ.get("STEPWELL_TEST_STORM_SEED", "20261129"))
SECONDS = float(os.environ.get("STEPWELL_TEST_STORM_SECONDS", "60"))


@pytest.mark.pain(1, 4, 5, 7, 8, 9, 10, 35, 40)
@pytest.mark.hang_limit(600)
def test_a_storm_loses_nothing_and_doubles_nothing(
    processes: Any, tmp_path: Path, eventually: Callable[..., Any]
) -> None:
    server = Server(processes, tmp_path / "server", eventually).start()

    def restart() -> None:
        server.kill()
        server.start()

    def reset() -> None:
        with server.admin() as admin:
            admin.execute_command("CLIENT", "KILL", "TYPE", "normal", "SKIPME", "yes")

    folder = tmp_path / "stage"
    folder.mkdir()
    stage = Stage(processes, folder, eventually, server.url)
    with EffectReceiver() as receiver:
        storm = Storm(stage, receiver, ServerFaults(restart, reset), SEED, SECONDS)
        try:
            storm.blow()
            storm.check()
            print(storm.told)
        finally:
            stage.end()
