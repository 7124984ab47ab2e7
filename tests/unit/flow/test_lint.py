"""The warnings about flow code that belongs into steps."""

from __future__ import annotations

import sys
import time
from collections.abc import Iterator
from types import ModuleType
from typing import Any

import pytest

from stepwell import flow
from stepwell.flow.lint import lint
from stepwell.flow.loader import load_module
from stepwell.flow.source import steps_of

# A file of its own: no test may even look like one that waits.
DOUBTFUL = """
import asyncio
import datetime as dt
import random
import socket
import subprocess
import time
import urllib.request
import uuid
from datetime import datetime
from time import sleep as pause

import stepwell
from stepwell import flow, gather, sleep, step

MINE = random.Random(7)


@step
async def charge(order: str) -> str:
    time.sleep(0)  # a step may do anything
    return order


@step
def refund(order: str) -> None: ...


async def helper() -> float:
    return time.time()


@flow
async def clean(order: str) -> str:
    receipt = await charge(order)
    await sleep(hours=1)
    await gather(charge(order), charge("b"))
    stamp = uuid.uuid5(uuid.NAMESPACE_DNS, order)
    moment = datetime.fromtimestamp(1, tz=dt.UTC)
    try:
        await charge(order)
    finally:
        await refund(str(order))
    return f"{receipt} {stamp} {moment} {urllib.request.quote(order)} {max(1, 2)}"


@flow
async def by_module() -> None:
    time.sleep(1)


@flow
async def by_name() -> None:
    pause(1)


@flow
async def by_alias() -> dt.datetime:
    return dt.datetime.now(dt.UTC)


@flow
async def by_class() -> datetime:
    return datetime.utcnow()


@flow
async def by_local_import() -> None:
    from random import choice as pick

    import httpx

    httpx.get(pick(["http://localhost"]))


@flow
async def by_instance() -> float:
    return MINE.random()


@flow
async def by_bound_function() -> float:
    return random.random()


@flow
async def by_builtin() -> str:
    with open("/etc/hostname") as file:
        return file.read()


@flow
async def by_process() -> None:
    subprocess.run(["true"])


@flow
async def by_network() -> None:
    socket.create_connection(("localhost", 1))
    urllib.request.urlopen("http://localhost")


@flow
async def by_event_loop() -> None:
    await asyncio.sleep(0)
    await asyncio.gather(charge("a"))


@flow
async def by_uuid() -> str:
    return str(uuid.uuid4())


@flow
async def by_helper() -> float:
    return await helper()


@flow
async def by_nested_function() -> list[float]:
    def now() -> float:
        return time.monotonic()

    return [now() for _ in range(2)]


async def _forget() -> None: ...


@flow
async def untidy(order: str, undo) -> None:
    try:
        await charge(order)
    finally:
        print("over")
        await sleep(1)
        await _forget()
        if order:
            await refund(order)
            await undo()
        await gather(refund(order), refund("b"))


@flow
async def wide(order: str) -> None:
    await refund(order)
    await _inner(order)
    await stepwell.flow.lint.nothing()


async def _inner(order: str) -> None:
    await charge(order)
    await refund(order)
"""


@pytest.fixture(scope="module")
def flows(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ModuleType]:
    """The doubtful flows."""
    file = tmp_path_factory.mktemp("doubtful") / "doubtful_flows.py"
    file.write_text(DOUBTFUL)
    path = list(sys.path)
    yield load_module(str(file))
    sys.path[:] = path
    del sys.modules["doubtful_flows"]


CASES: list[tuple[str, list[str]]] = [
    ("by_module", ["time.sleep"]),
    ("by_name", ["time.sleep"]),
    ("by_alias", ["datetime.datetime.now"]),
    ("by_class", ["datetime.datetime.utcnow"]),
    ("by_local_import", ["httpx.get", "random.choice"]),
    ("by_instance", ["random.random"]),
    ("by_bound_function", ["random.random"]),
    ("by_builtin", ["open"]),
    ("by_process", ["subprocess.run"]),
    ("by_network", ["socket.create_connection", "urllib.request.urlopen"]),
    ("by_event_loop", ["asyncio.sleep", "asyncio.gather"]),
    ("by_uuid", ["uuid.uuid4"]),
    ("by_helper", ["time.time"]),
    ("by_nested_function", ["time.monotonic"]),
]


@pytest.mark.parametrize(("name", "calls"), CASES, ids=[name for name, _ in CASES])
def test_what_belongs_into_a_step_is_found(flows: ModuleType, name: str, calls: list[str]) -> None:
    assert [finding.what for finding in lint(getattr(flows, name))] == [f"calls {call}()" for call in calls]


def test_a_flow_of_steps_has_no_findings(flows: ModuleType) -> None:
    assert lint(flows.clean) == []


def test_a_finding_names_the_line_and_what_to_do_instead(flows: ModuleType) -> None:
    [finding] = lint(flows.by_module)
    line = DOUBTFUL.splitlines()[finding.line - 1]
    assert line.strip() == "time.sleep(1)"
    said = f"{flows.__file__}:{finding.line}: flow by_module calls time.sleep(): use `await stepwell.sleep(...)`, which"
    assert str(finding).startswith(said)


def test_a_finding_in_a_helper_names_the_helpers_line(flows: ModuleType) -> None:
    [finding] = lint(flows.by_helper)
    assert DOUBTFUL.splitlines()[finding.line - 1].strip() == "return time.time()"
    assert "@step" in finding.advice


def test_cleanup_that_is_no_step_is_found(flows: ModuleType) -> None:
    assert [finding.what for finding in lint(flows.untidy)] == [
        "calls print() under `finally:`",
        "calls sleep() under `finally:`",
        "calls _forget() under `finally:`",
    ]


def test_a_flow_without_source_has_no_findings() -> None:
    space: dict[str, Any] = {"flow": flow, "time": time}
    exec("@flow\nasync def made() -> None:\n    time.sleep(1)\n", space)
    assert lint(space["made"]) == []


def test_the_steps_of_a_flow_are_those_that_its_code_names(flows: ModuleType) -> None:
    assert [each.name for each in steps_of(flows.wide)] == ["refund", "charge"]
