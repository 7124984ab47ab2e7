"""Who starts executions and sends commands in an explored world, and what must have become of all that."""

from __future__ import annotations

import random
from typing import TYPE_CHECKING

from sim.storm import POLICY, Plan, draw_plan, expected
from sim.tempest import FLOWS

from stepwell.core.status import PARK_KILLS_SHARD

if TYPE_CHECKING:
    from sim.explore.run import Exploration

SIGNALS = ("red", "blue")


class Users:
    """See the module's docstring."""

    def __init__(self, run: Exploration) -> None:
        self._run = run
        self._world = run.world
        self.plans: dict[str, Plan] = {}
        self.flows: dict[str, int] = {}
        self.commands: list[str] = []
        self.cancelled: set[str] = set()

    def start(self, chance: random.Random) -> str:
        if len(self.plans) >= self._world.setting.executions or self._world.weather.down:
            return ""
        name = f"e{len(self.plans)}"
        self.plans[name] = draw_plan(chance)
        self.flows[name] = chance.randrange(len(FLOWS))
        self.start_again(name)
        return f"{name} is started: {FLOWS[self.flows[name]].name} {self.plans[name]}"

    def start_again(self, name: str) -> None:
        flow, plan = FLOWS[self.flows[name]], self.plans[name]
        self._world.patiently(lambda: self._world.start(flow, name, plan=plan))
        self._run.promises.began(name)

    def again(self, chance: random.Random) -> str:
        name = self._some(chance)
        if name is None:
            return ""
        self.start_again(name)
        return f"{name} is started again"

    def signal(self, chance: random.Random) -> str:
        name = self._some(chance)
        return "" if name is None else self._signal(name, chance.choice(SIGNALS))

    def _signal(self, name: str, signal: str) -> str:
        self.commands.append(self._world.signal(name, signal, signal.upper()))
        return f"{name} is sent the signal {signal}"

    def cancel(self, chance: random.Random) -> str:
        name = self._some(chance)
        if name is None:
            return ""
        self.cancelled.add(name)
        self.commands.append(self._world.cancel(name))
        return f"{name} is cancelled"

    def retry(self, chance: random.Random) -> str:
        name = self._some(chance)
        if name is None:
            return ""
        self.commands.append(self._world.retry(name))
        return f"{name} is retried"

    def _some(self, chance: random.Random) -> str | None:
        if not self.plans or self._world.weather.down:
            return None
        return chance.choice(sorted(self.plans))

    # The end.

    def forgot(self) -> None:
        """Commands of a lost second are gone with it."""
        self.commands.clear()

    def open(self) -> list[str]:
        return [name for name in self.plans if not self._world.ended(name)]

    def help(self) -> None:
        """What a person would do for those that wait."""
        world = self._world
        for name in self.open():
            row = world.row(name)
            if not row:
                self.start_again(name)
            elif row["status"] == b"parked":
                assert world.show(name)["error"]["type"] == PARK_KILLS_SHARD
                self.commands.append(world.retry(name))
            else:
                for signal in SIGNALS:
                    if any(each["name"] == signal for each in world.show(name)["open"].values()):
                        self._signal(name, signal)

    def check(self) -> None:
        """What must have become of it all."""
        world = self._world
        self._run.promises.commands_answered(self.commands)
        for name, plan in self.plans.items():
            shown = world.show(name)
            if shown["status"] == "cancelled":
                assert name in self.cancelled
                continue
            assert shown["status"] == "completed", f"{name}: {shown['error']}"
            assert shown["result"] == expected(plan), name
            for each in shown["steps"]:
                seen = world.ledger.attempts(name, each["path"])
                assert len(set(seen)) <= POLICY.max_attempts
                assert seen[0] == 1
