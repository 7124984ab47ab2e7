"""Each process loads what it is made of, and no more: what it loads besides is the time by which it starts later."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

pytestmark = [pytest.mark.threads, pytest.mark.slow]

SPAN_MAKERS = ("stepwell.metrics.traces", "stepwell.metrics.providers", "stepwell.metrics.exporting")
CLIENTS = ("stepwell.client.client", "stepwell.client.async_client", "stepwell.http", "httpx")
PAGES = ("prometheus_client", "http.server", "stepwell.metrics.exposition")
COMMANDS = ("stepwell.cli", "stepwell.demo", "typer", "rich")
ACTORS = (
    "pykka",
    "stepwell.actors.dispatcher",
    "stepwell.actors.runner",
    "stepwell.worker.child",
    "stepwell.worker.shard",
)
BY_VALUE = ("cloudpickle", "stepwell.actors.processes.by_value")
STORE = ("redis", "stepwell.store.connect", "stepwell.store.link")

# What begins each process, and what it has no use for (with all that lies below it).
PROCESSES = {
    "the help of the command line": (
        "import stepwell.cli.app",
        (*ACTORS, *BY_VALUE, *CLIENTS, *PAGES, *SPAN_MAKERS, *STORE, "asyncio", "stepwell.worker"),
    ),
    "a worker's parent": (
        "import stepwell.cli.app, stepwell.worker.parent",
        (*ACTORS, *BY_VALUE, *CLIENTS, *SPAN_MAKERS, "rich", "stepwell.flow.loader", "stepwell.worker.worker"),
    ),
    "a shard": (
        "import stepwell.worker.child",
        (*BY_VALUE, *CLIENTS, *COMMANDS, *PAGES, *SPAN_MAKERS, "stepwell.worker.parent", "stepwell.worker.worker"),
    ),
    "what a shard's process begins with": (
        "import stepwell.worker.spawned",
        (*ACTORS, *BY_VALUE, *CLIENTS, *COMMANDS, *PAGES, *SPAN_MAKERS, *STORE, "asyncio", "stepwell.metrics"),
    ),
    "a step process": (
        "import stepwell.actors.processes.child",
        (*ACTORS, *BY_VALUE, *CLIENTS, *COMMANDS, *PAGES, *SPAN_MAKERS, *STORE, "asyncio", "stepwell.worker"),
    ),
    "a file of flows": (
        "import stepwell",
        (*ACTORS, *BY_VALUE, *CLIENTS, *COMMANDS, *PAGES, *SPAN_MAKERS, *STORE, "asyncio", "stepwell.metrics"),
    ),
}


@pytest.mark.parametrize("process", PROCESSES)
def test_a_process_loads_nothing_that_it_has_no_use_for(process: str) -> None:
    begins, useless = PROCESSES[process]
    done = subprocess.run(
        [sys.executable, "-c", f"{begins}\nimport sys; print(*sys.modules, sep='\\n')"],
        env=dict(os.environ),
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    loaded = done.stdout.split()
    assert "stepwell" in loaded, done.stderr
    assert [each for each in loaded if any(each == name or each.startswith(f"{name}.") for name in useless)] == []


def test_what_processes_have_no_use_for_is_there_to_be_loaded() -> None:
    names = sorted({name for _, useless in PROCESSES.values() for name in useless})
    code = f"import importlib.util as u; print([each for each in {names} if u.find_spec(each) is None])"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60, check=False)
    assert done.stdout.strip() == "[]", done.stderr
