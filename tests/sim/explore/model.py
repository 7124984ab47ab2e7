"""The model: what generated flows must have done, whatever the weather, computed by rules of its own.

It is told what was started and sent (`started`, `sent`); `check(world)` looks at the world and raises AssertionError
where it is none that this allows. What chance decides (a timeout or the signal, a cancel or the result) is taken from
the record, and everything else has to fit it.

`lossy`: the server has lost writes: commands and starts of that time may be gone, and steps may have run again, but for
those that were recorded under a lease that still holds. Keys, results, budgets and ends must be right even so.
`exact`: all clocks agree, so times can be compared.
"""

from __future__ import annotations

from sim.explore.history import Command, History, take
from sim.explore.judging import TERMINAL, Verdict, expect, refusals
from sim.explore.plans import Plan
from sim.harness import World


class Model:
    """See the module's docstring."""

    def __init__(self, *, lossy: bool = False, exact: bool = True) -> None:
        self.lossy = lossy
        self.exact = exact
        self.plans: dict[str, Plan] = {}
        self.commands: dict[str, Command] = {}
        self.doubtful: set[str] = set()  # starts that may never have come to the server

    def started(self, execution_id: str, plan: Plan) -> None:
        """It was started, or will be: its entry is in the ingress."""
        self.plans.setdefault(execution_id, plan)

    def sent(self, command: Command) -> None:
        """A command was sent; once more, if it is known. What is not `sure` may never have come to the server."""
        known = self.commands.setdefault(command.command_id, command)
        known.sure = known.sure or command.sure

    def entered(self, command: Command) -> None:
        """It is an entry of the ingress, and named by that. Who had the name before is lost: the server forgot it."""
        lost = self.commands.get(command.command_id)
        if lost is not None:
            self.commands[f"{command.command_id}, lost with {len(self.commands)} sent"] = lost
        self.commands[command.command_id] = command

    def history(self, world: World) -> History:
        """What the world shows now."""
        known = {name: plan for name, plan in self.plans.items() if name not in self.doubtful or world.row(name)}
        return take(world, known, self.commands, self.lossy, self.exact)

    def check(self, world: World, *, over: bool = True) -> None:
        """Compare the world with what must have happened. `over`: nothing is left to do, all has to have ended."""
        judge(self.history(world), over=over)


def judge(history: History, *, over: bool = True) -> None:
    """The rules. Raises AssertionError with a sentence."""
    for execution_id in history.plans:
        record = history.records.get(execution_id)
        if record is None:
            expect(history.lossy or not over, execution_id, "an execution", "none")
            continue
        Verdict(history, record).judge()
        listed = history.listed.get(execution_id, [])
        expect(listed == [record.status], f"{execution_id}: the lists that it is on", [record.status], listed)
        if over:
            expect(record.status in TERMINAL, f"{execution_id}: its status when all is over", "an end", record.status)
    for execution_id in history.listed:
        expect(execution_id in history.plans, f"{execution_id}: on the lists", "nobody started it", "it is there")
    for execution_id in history.bodies:
        expect(execution_id in history.plans, f"{execution_id}: bodies", "nobody started it", "some ran")
    _witnessed(history)
    _commands(history, over)


def _witnessed(history: History) -> None:
    """Whatever the server lost: what was acknowledged to a shard that still holds it is there."""
    for (execution_id, path), fact in history.witnessed.items():
        record = history.records.get(execution_id)
        what = f"{execution_id} {path}: acknowledged, so it"
        expect(record is not None, what, "is in its row", "no row")
        assert record is not None
        found = record.facts.get(path) or record.superseded.get(path)
        expect(found is not None, what, "is recorded", "not")
        assert found is not None
        same = all(found.get(name) == fact.get(name) for name in ("seq", "status", "value", "error", "token"))
        expect(same, what, f"is recorded as {fact}", found)


def _commands(history: History, over: bool) -> None:
    """Each had its effect once, or is a dead letter with a reason, or (not `over`) waits."""
    for command in history.commands:
        what = f"{command.execution_id}: command {command.command_id} ({command.kind})"
        made = command.applications
        if not history.lossy:
            expect(len(made) < 2, f"{what}: effects", "one", made)
        if over and not history.lossy:
            expect(made or command.buried or not command.sure, what, "an outcome or a dead letter", "neither")
        if command.buried and not made:
            known = command.execution_id in history.plans and not command.command_id.startswith("g")
            known = known and command.kind != "start"
            expect(not known or history.lossy or _strange(command), f"{what}: a dead letter", "none", command.buried)
        if made and not made[0].applied:
            for why, held in refusals(command):
                expect(held, f"{what}: refused", why, made[0])
    if over:
        expect(not history.inbox, "the inboxes when all is over", "nothing", history.inbox)


def _strange(command: Command) -> bool:
    """Reasons to bury a command to a known execution: it came before the start, or the row was closed."""
    return any(text in command.buried for text in ("there is no execution", "is parked, and its row was not read"))
