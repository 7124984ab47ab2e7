"""What users and operators do to a world, drawn by chance, each time told to the model.

`Verbs.do(name, chance)` does one of `ACTS`; whatever it draws comes from that chance alone, and what is there.
`mend` is for the end, when nothing breaks any more: signals for those that wait, retries for those that are parked.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Any, TypeVar

import msgspec
from sim.explore import plans
from sim.explore.history import Command
from sim.explore.model import Model
from sim.explore.plans import SIGNALS, Plan
from sim.harness import World

from stepwell.store import letters
from stepwell.store.catalog import Catalog
from stepwell.store.link import LinkDown
from stepwell.store.replies import Created, Exists

T = TypeVar("T")
ACTS: dict[str, float] = {
    "start": 8,
    "start_again": 1,
    "burst": 1,
    "signal": 10,
    "repeat": 4,
    "cancel": 0.6,
    "retry": 4,
    "late": 1.5,
    "garbage": 0.5,
    "replay_letters": 1,
}
PATIENCE = 4
COMMANDS_MOST = 50  # for one execution: its row remembers the last 64


class Verbs:
    """See the module's docstring. `absent`: numbers of executions that nobody starts; `ingress`: shards read it."""

    def __init__(
        self,
        world: World,
        model: Model,
        seed: object,
        *,
        executions: int = 7,
        absent: frozenset[int] = frozenset(),
        ingress: bool = False,
    ) -> None:
        self.world = world
        self.model = model
        self.executions = executions
        self.ingress = ingress
        self.plans: dict[str, Plan] = {}
        self.numbers = 0
        self._started = 0
        self._lost = 0  # replies
        self._absent = absent
        self._seed = seed

    def do(self, name: str, chance: random.Random) -> None:
        """One of `ACTS`."""
        act: Callable[[random.Random], None] = getattr(self, "_" + name)
        act(chance)

    def plan(self, number: int) -> Plan:
        """The plan of execution `e<number>`, by the seed alone."""
        name = f"e{number}"
        if name not in self.plans:
            self.plans[name] = plans.draw(random.Random(f"{self._seed}/plan {number}"))
        return self.plans[name]

    def mend(self, chance: random.Random) -> list[str]:
        """Do what those that have not ended wait for; returns their names."""
        waiting = [name for name in self.model.plans if not self.world.ended(name)]
        for name in waiting:
            if not self.world.row(name):
                self._create(name, self.model.plans[name])
                continue
            shown = self.world.show(name)
            if shown["status"] == "parked":
                self._command(name, "retry")
            for each in shown["open"].values():
                if each["kind"] == "signal":
                    self._signal_to(name, each["name"])
            if chance.random() < 0.02:
                self._command(name, "cancel")
        return waiting

    # Starts.

    def _start(self, chance: random.Random) -> None:
        number = self._started
        if number >= self.executions:
            self._signal(chance)
            return
        self._started += 1
        if number in self._absent:
            return
        if self.ingress and chance.random() < 0.25:
            self._enter("", "start", id=f"e{number}", **self._input(self.plan(number)))
            self.model.started(f"e{number}", self.plan(number))
        else:
            self._create(f"e{number}", self.plan(number))

    def _burst(self, chance: random.Random) -> None:
        for _ in range(chance.randint(2, 4)):
            self._start(chance)

    def _start_again(self, chance: random.Random) -> None:
        known = [name for name in self.model.plans if self.world.row(name)]
        if not known:
            return
        name = chance.choice(known)
        mine = self.model.plans[name]
        other: Plan = {"flow": mine["flow"], "plan": [["sleep", 1], *mine["plan"]]}
        if self.ingress and chance.random() < 0.3:
            self._enter("", "start", id=name, **self._input(mine))
            entry = self._enter("", "start", id=name, **self._input(other))
            self.model.sent(Command(f"in-{entry}", name, "start"))
        elif chance.random() < 0.5:
            self._create(name, mine)
        else:
            reply = self._patiently(lambda: self.world.start(other["flow"], name, plan=other["plan"]))
            if isinstance(reply, Created) and self.model.lossy:
                self.model.plans[name] = other
            else:
                assert not isinstance(reply, Created), f"{name} was there, and was created again with another input"

    def _create(self, name: str, plan: Plan) -> None:
        fresh = name not in self.model.plans
        self.model.started(name, plan)
        reply = self._patiently(lambda: self.world.start(plan["flow"], name, plan=plan["plan"]))
        if reply is None:
            self.model.doubtful.add(name)
            return
        self.model.doubtful.discard(name)
        assert isinstance(reply, Created | Exists), f"{name}: a start was answered with {reply!r}"
        if isinstance(reply, Exists):
            lost = self._lost or self.ingress  # it may have found itself
            assert not fresh or lost, f"{name} was there before anybody started it"

    # Commands.

    def _any(self, chance: random.Random) -> str:
        """Any execution, now and then one that is not there (yet)."""
        known = list(self.model.plans)
        if not known or chance.random() < 0.03:
            return f"e{chance.randrange(self.executions + 1)}"
        going = [name for name in known if not self.world.ended(name)]
        return chance.choice(going if going and chance.random() < 0.7 else known)

    def _signal(self, chance: random.Random) -> None:
        name = self._any(chance)
        waits = [each["name"] for each in self._open(name) if each["kind"] == "signal"]
        if waits and chance.random() < 0.5:
            self._signal_to(name, chance.choice(waits), chance)
        else:
            self._signal_to(name, chance.choice(SIGNALS) if chance.random() < 0.95 else "strange", chance)

    def _open(self, name: str) -> list[dict[str, Any]]:
        return list(self.world.show(name)["open"].values()) if self.world.row(name) else []

    def _signal_to(self, execution_id: str, name: str, chance: random.Random | None = None) -> None:
        self.numbers += 1
        self._command(execution_id, "signal", name, self.numbers, chance)

    def _cancel(self, chance: random.Random) -> None:
        self._command(self._any(chance), "cancel", chance=chance)

    def _retry(self, chance: random.Random) -> None:
        wanted = [name for name in self.model.plans if self.world.status(name) in ("error", "parked")]
        name = chance.choice(wanted) if wanted and chance.random() < 0.6 else self._any(chance)
        self._command(name, "retry", chance=chance)

    def _late(self, chance: random.Random) -> None:
        ended = [name for name in self.model.plans if self.world.ended(name)]
        if ended:
            name = chance.choice(ended)
            kind = chance.choice(["cancel", "retry", "signal"])
            if kind == "signal":
                self._signal_to(name, chance.choice(SIGNALS), chance)
            else:
                self._command(name, kind, chance=chance)

    def _repeat(self, chance: random.Random) -> None:
        """An earlier command comes once more, under its own id."""
        known = [each for each in self.model.commands.values() if not each.command_id.startswith("in-")][-30:]
        if known:
            self._put(chance.choice(known))

    def _command(
        self, execution_id: str, kind: str, name: str = "", number: int = 0, chance: random.Random | None = None
    ) -> None:
        mine = sum(1 for each in self.model.commands.values() if each.execution_id == execution_id)
        if chance is not None and mine >= COMMANDS_MOST:
            return
        if kind == "retry":
            self.world.hurried.add(execution_id)
        if self.ingress and chance is not None and chance.random() < 0.2:
            given: dict[str, Any] = {"name": name, "payload": {"n": number}} if kind == "signal" else {}
            entry = self._enter(execution_id, kind, **given)
            self.model.sent(Command(f"in-{entry}", execution_id, kind, name, number))
        else:
            self._put(Command(f"c{len(self.model.commands)}", execution_id, kind, name, number))

    def _put(self, command: Command) -> None:
        data = {"name": command.name, "payload": {"n": command.number}} if command.kind == "signal" else {}
        sent = self._patiently(lambda: self.world.send(command.kind, command.execution_id, data, command.command_id))
        command.sure = command.sure and sent is not None
        self.model.sent(command)

    def _garbage(self, chance: random.Random) -> None:
        """An entry that is no command."""
        name = self._any(chance)
        command = Command(f"c{len(self.model.commands)}", name, "nonsense")
        kind = chance.choice(["nonsense", "signal"])
        sent = self._patiently(lambda: self.world.send(kind, name, ["no", "data"], command.command_id))
        command.sure = sent is not None
        self.model.sent(command)

    def _replay_letters(self, _chance: random.Random) -> None:
        """All dead letters go back to where they came from, the oldest first."""
        world = self.world
        for letter in reversed(Catalog(world.client, world.keys, world.scripts).dead(100)):
            query = letters.replay(world.keys, world.scripts, letter.source, letter.letter_id)
            entry = self._patiently(lambda query=query: query.parse(world._link.call(query.commands)))  # type: ignore[misc]
            known = self.model.commands.pop(f"in-{letter.entry}", None)
            if letter.source == letters.INGRESS and known is not None:  # its entry, and so its id, is a new one
                known.command_id = f"in-{entry}"
                known.sure = known.sure and entry is not None
            if known is not None:
                self.model.commands[known.command_id] = known

    def _enter(self, execution_id: str, kind: str, **fields: Any) -> str:
        """XADD into the ingress, as any program may do it."""
        given = {"type": kind, **({"execution": execution_id} if execution_id else {}), **fields}
        flat = {name: each if isinstance(each, str) else msgspec.json.encode(each) for name, each in given.items()}
        added: bytes = self.world.client.xadd(self.world.keys.ingress, flat)  # type: ignore[arg-type]
        return added.decode()

    @staticmethod
    def _input(plan: Plan) -> dict[str, Any]:
        return {"flow": plan["flow"], "input": {"plan": plan["plan"]}}

    def _patiently(self, ask: Callable[[], T]) -> T | None:
        """What a client does: again where the reply is lost. None where it never heard of it."""
        for _ in range(PATIENCE):
            try:
                return ask()
            except LinkDown:
                self._lost += 1
        return None
