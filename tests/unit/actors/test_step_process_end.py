"""The end of a step process whose shard has gone before it."""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import sys
from pathlib import Path

import pytest
from unit.actors import isolated
from unit.actors.isolated import hear, say

from stepwell.actors.processes import child, code, wire
from stepwell.flow.arguments import pack
from stepwell.flow.context import StepContext
from stepwell.flow.operations import StepCall

pytestmark = [pytest.mark.threads, pytest.mark.hang_limit(150)]

# The guard is a thread like any other: it may come too late.
WITHOUT_A_GUARD = """
import json, sys, threading
sys.path[:] = json.loads(sys.argv[2])
from stepwell.actors.processes import child
child._end_with = lambda connection: threading.Event().wait()
child.main(int(sys.argv[1]))
"""


@pytest.fixture
def pipes(tmp_path: Path) -> list[str]:
    made = [str(tmp_path / name) for name in ("entered", "alive", "gate")]
    for each in made:
        os.mkfifo(each)
    return made


@pytest.mark.pain(36)
def test_a_body_that_ends_after_its_shard_leaves_no_program_behind(pipes: list[str]) -> None:
    entered, alive, gate = pipes
    ours, its = socket.socketpair()
    with its:
        process = subprocess.Popen(
            [sys.executable, "-c", WITHOUT_A_GUARD, str(its.fileno()), json.dumps(sys.path)],
            pass_fds=[its.fileno()],
            process_group=0,
        )
    body = isolated.end_before_a_child
    context = StepContext("e1", "f", body.name, body.name, 1, "token", "e1:token", 7)
    run = wire.Run(1, context, pack(StepCall(body, (entered, alive, gate), {})))
    with ours:
        for message in (wire.Hello(os.getpid()), wire.Load(1, body.name, code.dump(body)), run):
            ours.sendall(wire.frame(message))
        with open(alive) as program:
            hear(entered)
            ours.close()
            say(gate)
            ended = process.wait()
            if ended != -signal.SIGKILL:  # it has ended alone: nobody else will end the program
                os.killpg(process.pid, signal.SIGKILL)
            assert ended == -signal.SIGKILL, "the program lives"
            assert program.read() == ""


class Closed(socket.socket):
    """What a body has closed by its number, which is nobody's now."""

    def fileno(self) -> int:
        return 1 << 20


def test_a_guard_that_comes_after_a_body_has_closed_the_connection_ends_nobody(monkeypatch: pytest.MonkeyPatch) -> None:
    ended: list[str] = []
    monkeypatch.setattr(child, "_end_group", lambda: ended.append("killed"))
    with Closed() as connection:
        child._end_with(connection)
    assert ended == []
    ours, its = socket.socketpair()
    ours.close()
    with its:
        child._end_with(its)
    assert ended == ["killed"]
