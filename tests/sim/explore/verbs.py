"""What users and operators do to a world, drawn by chance, each time told to the model.

`Verbs.do(name, chance)` does one of `ACTS` and returns what it did, in words ('' where there was nothing to do).
Whatever it draws comes from that chance alone, and from what is there; the plan of an execution comes from the seed.
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
from sim.explore.plans import SIGNALS, Plan, input_of
from sim.harness import World

from stepwell.store import letters
from stepwell.store.catalog import Catalog
from stepwell.store.letters import Letter
from stepwell.store.link import LinkDown
from stepwell.store.replies import Created, Exists

T = TypeVar("T")
ACTS: dict[str, float] = {
    "start": 10,
    "burst": 2,
    "again": 1.5,
    "signal": 10,
    "cancel": 1,
    "retry": 3,
    "repeat": 2.5,
    "late": 1,
    "garbage": 0.5,
    "replay": 1,
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
        self.began: Callable[[str], None] = lambda _name: None  # hears of each start
        self._plans: dict[int, Plan] = {}
        self._absent = absent
        self._seed = seed
        self._started = 0
        self._numbers = 0
        self._lost = 0  # replies
        self._chances: dict[str, int] = {}  # retries by hand that are left for those that fail

    def do(self, name: str, chance: random.Random) -> str:
        """One of `ACTS`."""
        act: Callable[[random.Random], str] = getattr(self, name)
        return act(chance)

    def plan(self, number: int) -> Plan:
        """The plan of execution `e<number>`, by the seed alone."""
        if number not in self._plans:
            chance = random.Random(f"{self._seed}/plan {number}")
            plan = self._plans[number] = plans.draw(chance)
            odd = chance.random()
            if odd < 0.03:
                plan["misfit"] = True
            elif odd < 0.05:
                plan["flow"] = plans.ELSEWHERE
        return self._plans[number]

    def unended(self) -> list[str]:
        """Executions that have not come to their end."""
        return [name for name in self.model.plans if not self.world.ended(name)]

    def open(self) -> list[str]:
        """The same, and those that have failed and shall be tried once more."""
        return [name for name in self.model.plans if not self.world.ended(name) or self._can_be_retried(name)]

    def unread(self) -> int:
        """Entries that nobody has taken in from the ingress."""
        return self.world.client.xlen(self.world.keys.ingress)

    def _can_be_retried(self, name: str) -> bool:
        if self.world.status(name) != "error":
            return False
        if name not in self._chances:
            self._chances[name] = random.Random(f"{self._seed}/chances {name}").choice([0, 1, 1, 2])
        return self._chances[name] > 0

    def mend(self, chance: random.Random) -> list[str]:
        """Do what those that have not ended wait for; returns their names."""
        waiting = self.open()
        for name in waiting:
            if self.world.ended(name):
                self._chances[name] -= 1
                self._command(name, "retry")
                continue
            if not self.world.row(name):
                self._create(name, self.model.plans[name])
                continue
            shown = self.world.show(name)
            if shown["flow"] == plans.ELSEWHERE:
                self._command(name, "cancel")
            elif shown["status"] == "parked":
                self._command(name, "retry")
            for each in shown["open"].values():
                if each["kind"] == "signal":
                    self._signal_to(name, each["name"])
            if chance.random() < 0.02:
                self._command(name, "cancel")
        return waiting

    # Starts.

    def start(self, chance: random.Random) -> str:
        """The next execution."""
        number = self._started
        if number >= self.executions:
            return ""
        self._started += 1
        name, plan = f"e{number}", self.plan(number)
        if number in self._absent:
            return ""
        how = ""
        if self.ingress and chance.random() < 0.25 and not plan.get("misfit"):
            self.model.started(name, plan)
            self._enter("start", id=name, **_input(plan))
            self.began(name)
            how = "through the ingress "
        else:
            self._create(name, plan)
        return f"{name} is started {how}({plan['flow']}): {plan['plan']}"

    def burst(self, chance: random.Random) -> str:
        """Several at once."""
        return "; ".join(filter(None, [self.start(chance) for _ in range(chance.randint(2, 5))]))

    def again(self, chance: random.Random) -> str:
        """One that was started before, with the same input or another one, which is refused."""
        known = [name for name in self.model.plans if self.world.row(name)]
        if not known:
            return ""
        name = chance.choice(known)
        mine = self.model.plans[name]
        other: Plan = {**mine, "plan": [["sleep", 1], *mine["plan"]]}
        if self.ingress and chance.random() < 0.3 and not mine.get("misfit"):
            self._enter("start", id=name, **_input(mine))
            entry = self._enter("start", id=name, **_input(other))
            self.model.entered(Command(f"in-{entry}", name, "start"))
            return f"{name} is started again through the ingress, also with another input"
        if chance.random() < 0.5:
            self._create(name, mine)
            return f"{name} is started again"
        reply = self._patiently(lambda: self.world.start(other["flow"], name, **input_of(other)))
        assert not isinstance(reply, Created), f"{name} was there, and was created again with another input"
        return f"{name} is started again with another input"

    def _create(self, name: str, plan: Plan) -> None:
        fresh = name not in self.model.plans
        self.model.started(name, plan)
        reply = self._patiently(lambda: self.world.start(plan["flow"], name, **input_of(plan)))
        self.began(name)
        if reply is None:
            if fresh:
                self.model.doubtful.add(name)
            return
        self.model.doubtful.discard(name)
        assert isinstance(reply, Created | Exists), f"{name}: a start was answered with {reply!r}"
        if isinstance(reply, Exists):
            lost = self._lost or self.ingress  # it may have found itself
            assert not fresh or lost, f"{name} was there before anybody started it"

    # Commands.

    def signal(self, chance: random.Random) -> str:
        """Most often one that somebody waits for, or will."""
        name = self._any(chance)
        row = self.world.row(name)
        open_now = self.world.show(name)["open"].values() if row else ()
        waits = [each["name"] for each in open_now if each["kind"] == "signal"]
        if waits and chance.random() < 0.5:
            return self._signal_to(name, chance.choice(waits), chance)
        if chance.random() < 0.12:
            colours = [chance.choice(SIGNALS) for _ in range(chance.randint(3, 9))]
            return "; ".join(self._signal_to(name, colour, chance) for colour in colours)
        return self._signal_to(name, chance.choice(SIGNALS) if chance.random() < 0.95 else "strange", chance)

    def cancel(self, chance: random.Random) -> str:
        """Any execution."""
        return self._command(self._any(chance), "cancel", chance=chance)

    def retry(self, chance: random.Random) -> str:
        """Most often one that has failed."""
        wanted = [name for name in self.model.plans if self.world.status(name) in ("error", "parked")]
        name = chance.choice(wanted) if wanted and chance.random() < 0.6 else self._any(chance)
        return self._command(name, "retry", chance=chance)

    def late(self, chance: random.Random) -> str:
        """A command to one that has ended."""
        ended = [name for name in self.model.plans if self.world.ended(name)]
        if not ended:
            return ""
        name = chance.choice(ended)
        kind = chance.choice(["cancel", "retry", "signal"])
        if kind == "signal":
            return self._signal_to(name, chance.choice(SIGNALS), chance)
        return self._command(name, kind, chance=chance)

    def repeat(self, chance: random.Random) -> str:
        """An earlier command comes once more, under its own id."""
        known = [each for each in self.model.commands.values() if each.command_id.startswith("c")][-30:]
        return f"once more: {self._put(chance.choice(known))}" if known else ""

    def garbage(self, chance: random.Random) -> str:
        """An entry that is no command."""
        name = self._any(chance)
        kind = chance.choice(["nonsense", "signal"])
        return self._put(Command(f"g{len(self.model.commands)}", name, kind), ["no", "data"])

    def replay(self, _chance: random.Random) -> str:
        """All dead letters go back to where they came from, the oldest first."""
        found = list(reversed(Catalog(self.world.client, self.world.keys, self.world.scripts).dead(100)))
        for letter in found:
            self._replay(letter)
        return f"{len(found)} dead letters are replayed" if found else ""

    def _replay(self, letter: Letter) -> None:
        world = self.world
        query = letters.replay(world.keys, world.scripts, letter.source, letter.letter_id)
        world.replays += 1
        entry = self._patiently(lambda: query.parse(world._link.call(query.commands)))
        known = self.model.commands.pop(f"in-{letter.entry}", None) if letter.source == letters.INGRESS else None
        if known is not None:  # its entry, and so its id, is a new one
            known.command_id = f"in-{entry}"
            known.sure = known.sure and entry is not None
            self.model.commands[known.command_id] = known

    def _any(self, chance: random.Random) -> str:
        """Any execution, now and then one that is not there (yet)."""
        known = list(self.model.plans)
        if not known or chance.random() < 0.03:
            return f"e{chance.randrange(self.executions + 1)}"
        going = self.unended()
        return chance.choice(going if going and chance.random() < 0.7 else known)

    def _signal_to(self, execution_id: str, name: str, chance: random.Random | None = None) -> str:
        self._numbers += 1
        return self._command(execution_id, "signal", name, self._numbers, chance)

    def _command(
        self, execution_id: str, kind: str, name: str = "", number: int = 0, chance: random.Random | None = None
    ) -> str:
        mine = sum(1 for each in self.model.commands.values() if each.execution_id == execution_id)
        if chance is not None and mine >= COMMANDS_MOST:
            return ""
        if kind == "retry":
            self.world.hurried.add(execution_id)
        if self.ingress and chance is not None and chance.random() < 0.2:
            given: dict[str, Any] = {"name": name, "payload": {"n": number}} if kind == "signal" else {}
            entry = self._enter(kind, execution=execution_id, **given)
            self.model.entered(Command(f"in-{entry}", execution_id, kind, name, number))
            return f"{execution_id} is sent {kind} {name} in-{entry} through the ingress"
        return self._put(Command(f"c{len(self.model.commands)}", execution_id, kind, name, number))

    def _put(self, command: Command, data: object = None) -> str:
        if data is None:
            data = {"name": command.name, "payload": {"n": command.number}} if command.kind == "signal" else {}
        sent = self._patiently(lambda: self.world.send(command.kind, command.execution_id, data, command.command_id))
        command.sure = command.sure and sent is not None
        self.model.sent(command)
        return f"{command.execution_id} is sent {command.kind} {command.name} {command.command_id}"

    # The way to the server.

    def _enter(self, kind: str, **fields: Any) -> str:
        """XADD into the ingress, as any program may do it."""
        given = {"type": kind, **fields}
        flat = {name: each if isinstance(each, str) else msgspec.json.encode(each) for name, each in given.items()}
        added: bytes = self.world.client.xadd(self.world.keys.ingress, flat)  # type: ignore[arg-type]
        return added.decode()

    def _patiently(self, ask: Callable[[], T]) -> T | None:
        """What a client does: again where the reply is lost. None where it never heard of it."""
        for _ in range(PATIENCE):
            try:
                return ask()
            except LinkDown:
                self._lost += 1
        return None


def _input(plan: Plan) -> dict[str, Any]:
    return {"flow": plan["flow"], "input": input_of(plan)}
