"""What a world shows of its executions: plain data, which a model can judge, and a test can spoil."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from sim.bodies import Run
from sim.explore.plans import Plan
from sim.harness import World

from stepwell.store.catalog import Catalog
from stepwell.store.replies import Committed
from stepwell.store.requests import Commit

Json = dict[str, Any]


@dataclass
class Application:
    """A commit that held the effect of a command."""

    commit_id: str
    at_ms: int
    applied: bool
    status: str
    reason: str


@dataclass
class Command:
    """A command that was sent, what for, and what became of it. `number`: the payload of a signal."""

    command_id: str
    execution_id: str
    kind: str
    name: str = ""
    number: int = 0
    applications: list[Application] = field(default_factory=list)
    place: int = -1  # in the order in which commands were applied
    buried: str = ""  # why it is a dead letter
    sure: bool = True  # whether it came to the server

    @property
    def accepted(self) -> bool:
        """Whether it had its effect."""
        return bool(self.applications) and self.applications[0].applied

    @property
    def at_ms(self) -> int:
        """When it was applied."""
        return self.applications[0].at_ms


@dataclass
class Record:
    """An execution as its row and `show` have it."""

    execution_id: str
    status: str
    input: Json
    facts: dict[str, Json]
    superseded: dict[str, Json]
    attempts: dict[str, dict[int, Json]]
    open: dict[str, Json]
    signals: list[Json]
    error: Json | None
    failures: list[Json]
    result: Any
    started: bool
    shown: dict[str, Json]  # the steps of `show`, by path


@dataclass
class History:
    """All of it. `crashes`: how many shards died. `lossy`: the server has lost writes. `exact`: all clocks agree."""

    secret: bytes
    plans: dict[str, Plan]
    records: dict[str, Record]
    bodies: dict[str, list[Run]]
    commands: list[Command]
    listed: dict[str, list[str]]
    inbox: list[Mapping[str, str]]
    witnessed: dict[tuple[str, str], Json]  # facts that were acknowledged to who still holds them
    recorded: dict[tuple[str, str], int]  # when the commit was decided on that wrote a fact (ms)
    crashes: int = 0
    lossy: bool = False
    exact: bool = True


_FACT = {"kind": "step", "status": "completed", "attempt": 1, "interruptions": 0, "cancel": False, "error": None}
_OPEN = {"attempt": 0, "name": "", "due_at": None, "interruptions": 0, "winding": ""}


def record_of(world: World, execution_id: str) -> Record | None:
    """One execution, read as anybody could; None where there is none."""
    row = world.row(execution_id)
    if not row:
        return None
    facts: dict[str, Json] = {}
    superseded: dict[str, Json] = {}
    attempts: dict[str, dict[int, Json]] = {}
    opened: dict[str, Json] = {}
    signals: dict[int, Json] = {}
    for name, raw in row.items():
        kind, rest = name[:2], name[2:]
        if kind == "r:":
            fact = {**_FACT, **json.loads(raw)}
            (superseded if fact.get("superseded") else facts)[rest] = fact
        elif kind == "a:":
            path, _, number = rest.rpartition(":")
            attempts.setdefault(path, {})[int(number)] = json.loads(raw)
        elif kind == "p:":
            opened[rest] = {**_OPEN, **json.loads(raw)}
        elif kind == "s:":
            signals[int(rest)] = json.loads(raw)
    shown = world.show(execution_id)
    return Record(
        execution_id,
        row["status"].decode(),
        json.loads(row["input"]),
        facts,
        superseded,
        attempts,
        opened,
        [signals[seq] for seq in sorted(signals)],
        json.loads(row["error"]) if "error" in row else None,
        json.loads(row.get("failures", b"[]")),
        json.loads(row["result"]) if "result" in row else None,
        "started_at" in row,
        {each["path"]: each for each in shown["steps"]},
    )


def take(world: World, plans: Mapping[str, Plan], commands: Mapping[str, Command], lossy: bool, exact: bool) -> History:
    """Look at a world."""
    _applications(world, commands)
    bodies: dict[str, list[Run]] = {}
    for run in world.ledger.runs:
        bodies.setdefault(run.execution_id, []).append(run)
    listed: dict[str, list[str]] = {}
    for status, members in world.statuses().items():
        for execution_id in members:
            listed.setdefault(execution_id, []).append(status)
    found = {each: record for each in plans if (record := record_of(world, each)) is not None}
    return History(
        world.namespace.secret,
        dict(plans),
        found,
        bodies,
        list(commands.values()),
        listed,
        world.inbox(),
        _witnessed(world),
        _recorded(world),
        len(world.dead) + len(world.frozen),
        lossy,
        exact,
    )


def _witnessed(world: World) -> dict[tuple[str, str], Json]:
    """Facts that Redis acknowledged to a shard, by execution and path, where that one holds the same lease still."""
    held = {part.number: (world.client.get(part.lease) or b"").decode() for part in world.keys.parts}
    facts: dict[tuple[str, str], Json] = {}
    for sent in world.sent:
        request = sent.request
        if (
            isinstance(request, Commit)
            and isinstance(sent.reply, Committed)
            and request.lease == held[request.partition]
        ):
            for field, raw in request.sets:
                if field.startswith("r:"):
                    facts[request.execution_id, field[2:]] = {**_FACT, **json.loads(raw)}
    # What a retry has superseded may be replaced at any time.
    return {step: fact for step, fact in facts.items() if not fact.get("superseded")}


def _recorded(world: World) -> dict[tuple[str, str], int]:
    """When each fact came into its row, by execution and path."""
    return {
        (sent.request.execution_id, field[2:]): sent.request.now_ms
        for sent in world.sent
        if isinstance(sent.request, Commit) and isinstance(sent.truth, Committed)
        for field, _ in sent.request.sets
        if field.startswith("r:")
    }


def _applications(world: World, commands: Mapping[str, Command]) -> None:
    """What became of each command, by what was committed, and by the letters."""
    for command in commands.values():
        command.applications, command.place, command.buried = [], -1, ""
    place = 0
    for sent in world.sent:
        request = sent.request
        if not isinstance(request, Commit) or not isinstance(sent.truth, Committed):
            continue
        for applied in request.applied:
            known = commands.get(applied.command_id)
            if known is None or not applied.outcome:
                continue
            if request.commit_id not in {each.commit_id for each in known.applications}:
                told = json.loads(applied.outcome)
                known.applications.append(
                    Application(
                        request.commit_id, request.now_ms, told["applied"], told["status"], told.get("reason", "")
                    )
                )
                place += 1
                known.place = place if known.place < 0 else known.place
    for letter in Catalog(world.client, world.keys, world.scripts).dead(10_000):
        name = letter.fields.get("command", b"").decode() or f"in-{letter.entry}"
        if name in commands:
            commands[name].buried = letter.reason
