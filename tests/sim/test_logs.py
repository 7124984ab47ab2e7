"""A storm of failures: what the log tells, what it says it left out, and what the metrics count are the same."""

from __future__ import annotations

import json
import logging
from collections import Counter
from collections.abc import Callable

import pytest
from sim.harness import World

from stepwell import FatalError, Retry, current_step, flow, sleep, step
from stepwell.core.eventlog import kind_of
from stepwell.core.events import EVENTS
from stepwell.metrics.formatting import JsonFormatter
from stepwell.metrics.logs import LogSubscriber
from stepwell.metrics.rendering import samples_of
from stepwell.metrics.sheet import Sheet
from stepwell.metrics.subscriber import MetricsSubscriber
from stepwell.metrics.telling import level_of
from stepwell.metrics.totals import Totals

MakeWorld = Callable[..., World]
EXECUTIONS = 60


@step(retry=Retry(max_attempts=4, base=0.5))
async def shaky(n: int) -> int:
    if n % 3 == 0 or current_step().attempt < 3:
        raise ConnectionError(f"no {n}")
    return n


@step
async def strict(n: int) -> int:
    if n % 5 == 0:
        raise FatalError("never")
    return n


@flow
async def stormy(n: int) -> int:
    await strict(n)
    await sleep(seconds=1)
    return await shaky(n)


class Lines(logging.Handler):
    """Counts lines by kind of event, those that were left out too."""

    def __init__(self) -> None:
        super().__init__()
        self.setFormatter(JsonFormatter())
        self.written: Counter[str] = Counter()
        self.left_out: Counter[str] = Counter()

    def emit(self, record: logging.LogRecord) -> None:
        line = json.loads(self.format(record))
        if "left_out" in line:
            self.left_out[line["event"]] += line["left_out"]
        else:
            self.written[line["event"]] += 1


@pytest.mark.pain(20)
def test_lines_and_those_left_out_are_what_the_metrics_count(make_world: MakeWorld) -> None:
    world = make_world(stormy)
    lines, sheet = Lines(), Sheet.in_memory()
    logger = logging.Logger("stepwell.events", logging.INFO)
    logger.addHandler(lines)
    log = LogSubscriber(logger, world.clock.monotonic)
    count = MetricsSubscriber(sheet)

    def listen() -> None:
        shard = world.shard()
        for each in (log, count):
            shard.context.bus.subscribe(each)

    listen()
    ids = [f"e{n}" for n in range(EXECUTIONS)]
    for n, each in enumerate(ids):
        world.start(stormy, each, n=n)
    world.run(lambda: len(world.ledger.of("e1", "shaky")) == 1)
    world.crash()
    listen()
    world.cancel("e2")
    world.run(lambda: world.ended(*ids))
    for each in ids[::3]:
        world.retry(each)
    world.run(lambda: world.ended(*ids))
    world.run_for(30)
    log.flush()

    told = Counter(kind_of(event) for event in world.events if level_of(event) >= logging.INFO)
    assert lines.written + lines.left_out == told
    assert sum(lines.left_out.values()) > 0
    assert min(lines.written.values()) > 0

    totals = Totals()
    totals.attach(0, sheet.source)
    counted: Counter[str] = Counter()
    for name, labels, value in samples_of(totals.take()):
        counted[name] += int(value)
        if name == "stepwell_executions_total":
            counted[f"ended {labels['status']}"] += int(value)
    lines_in_all = lines.written + lines.left_out
    assert lines_in_all["AttemptFailed"] == counted["stepwell_step_retries_scheduled_total"] > 0
    assert lines_in_all["StepGaveUp"] == counted["stepwell_step_failures_total"] > 0
    assert lines_in_all["ExecutionEnded"] == counted["ended error"] + counted["ended cancelled"] > 0
    assert lines_in_all["CommandDone"] == counted["stepwell_commands_total"] > 0
    assert {kind.__name__ for kind in EVENTS} >= set(lines_in_all)
