"""The storm with everything at once: shards that come, leave, die with and without a black box, and freeze, while
executions leave memory all the time, limits are small, and (if it `loses`) the server forgets its last second.
"""

from __future__ import annotations

from typing import Any

from sim.harness import World
from sim.sharing_storm import SharingStorm
from sim.storm import draw_plan, follow
from sim.tail import Tail

from stepwell import flow
from stepwell.core.limits import PASSIVATE_LEAST, Limits
from stepwell.store.replies import Refused
from stepwell.store.requests import Commit, Load, Request

EXECUTIONS = 9
REFUSED = Refused("loading the dataset in memory", "LOADING")


@flow
async def free(plan: list) -> list:  # type: ignore[type-arg]
    return await follow(plan)


@flow(max_running=2)
async def narrow(plan: list) -> list:  # type: ignore[type-arg]
    return await follow(plan)


@flow(max_running=1)
async def narrowest(plan: list) -> list:  # type: ignore[type-arg]
    return await follow(plan)


FLOWS = (free, narrow, narrowest)


class Tempest(SharingStorm):
    """See the module's docstring."""

    def __init__(self, world: World, *, gentle: bool = False, loses: bool = False) -> None:
        super().__init__(world, gentle=gentle)
        world.parents = False  # it draws for itself whether there is one
        self.tail = Tail(world) if loses else None
        self.flows: dict[str, int] = {}
        self.sent_at: dict[str, float] = {}

    def _acts(self) -> list[Any]:
        acts = [*super()._acts(), *[self._start] * 2, *[self._jump] * 3, self._nap]
        if self.tail is not None:
            acts += [self._mark, self._mark, self._lose_tail]
        return acts

    def _options(self) -> dict[str, Any]:
        chance = self.chance
        limits = Limits(
            running=chance.choice([1, 2, 3, 1000]),
            steps=chance.choice([1, 2, 1000]),
            in_memory=chance.choice([1, 3, 1000]),
            passivate_after=chance.choice([PASSIVATE_LEAST, 30]),
        )
        return {"limits": limits}

    def _start(self) -> None:
        if len(self.plans) < EXECUTIONS:
            execution_id = f"e{len(self.plans)}"
            self.plans[execution_id] = draw_plan(self.chance)
            self.flows[execution_id] = self.chance.randrange(len(FLOWS))
            self._start_again(execution_id)

    def _start_again(self, execution_id: str) -> None:
        self.world.start(FLOWS[self.flows[execution_id]], execution_id, plan=self.plans[execution_id])

    def _jump(self) -> None:
        """To the next instant at which something is due, without letting it happen."""
        due = self.world.next_due()
        if due is not None and due < self.world.clock.monotonic() + 45:
            self.world.clock.advance_to(max(due, self.world.clock.monotonic()))

    def _vanish_lease(self) -> None:
        """Where another one could take it at once, both would run the same attempt (with the same key)."""
        if len(self.world.shards) + len(self.world.frozen) == 1:
            super()._vanish_lease()

    def _nap(self) -> None:
        self.world.run_for(self.chance.choice([0.01, 0.3, 2.5, 12.0]))

    def _mark(self) -> None:
        assert self.tail is not None
        self.tail.mark()

    def _lose_tail(self) -> None:
        assert self.tail is not None
        losses = self.tail.losses
        self.tail.lose(self.chance.choice([0.5, 1.0, 2.0]))
        if self.tail.losses > losses:
            self.faults.append("lost tail")

    def _judge(self, request: Request) -> Any:
        verdict = super()._judge(request)
        if verdict is None and isinstance(request, Load | Commit) and self.chance.random() < 0.01:
            return REFUSED
        return verdict

    def calm(self) -> None:
        """No more faults: everything comes to its end, also what the server forgot."""
        if self.tail is not None:
            self.world.weather.down = self.world.doomed = False
            for execution_id in self.plans:
                if not self.world.row(execution_id):
                    self.world.run_for(8.0)
                    self._start_again(execution_id)
        super().calm()

    def check(self) -> None:
        if self.tail is not None:
            self.commands.clear()  # those of a lost second are gone with it
        super().check()
