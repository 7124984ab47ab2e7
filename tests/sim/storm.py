"""A seeded storm: random flows, and between any two turns of anybody a random fault or command.

`Storm(world).blow(turns)` draws everything from the world's seed, so a failing seed fails again in the same way.
"""

from __future__ import annotations

import random
from typing import Any

from sim.bodies import work
from sim.harness import ShardDied, SimShard, World

from stepwell import Retry, StepFailed, current_step, flow, gather, sleep, step, wait_for
from stepwell.actors import messages as m
from stepwell.core.status import PARK_KILLS_SHARD
from stepwell.store.requests import Commit, Request

Plan = list[Any]
POLICY = Retry(max_attempts=4, base=1, cap=8)


@step(retry=POLICY)
async def act(name: str, fails: int, seconds: float) -> str:
    """Fails in its first attempts, whatever happened to its process."""
    await work(seconds)
    if current_step().attempt <= fails:
        raise ConnectionError(f"{name} fails {fails} times")
    return name


async def follow(plan: Plan) -> list[object]:
    done: list[object] = []
    for kind, *given in plan:
        if kind == "act":
            done.append(await act(*given))
        elif kind == "try":
            try:
                done.append(await act(*given))
            except StepFailed as failed:
                done.append(f"{failed.attempts} attempts")
        elif kind == "sleep":
            await sleep(given[0])
        elif kind == "wait":
            done.append(await wait_for(given[0]))
        else:
            done.append(await gather(*[follow(branch) for branch in given[0]]))
    return done


@flow
async def planned(plan: list) -> list:  # type: ignore[type-arg]
    return await follow(plan)


def draw_plan(chance: random.Random, depth: int = 0) -> Plan:
    plan: Plan = []
    for number in range(chance.randint(1, 4)):
        kind = chance.choice(["act", "act", "act", "try", "sleep", "wait", "gather"])
        name = f"n{depth}{number}{chance.randrange(100)}"
        if kind in ("act", "try"):
            most = 3 if kind == "act" else 4
            plan.append([kind, name, chance.choice([0, 0, 1, most]), chance.choice([0, 0, 0.5, 3])])
        elif kind == "sleep":
            plan.append([kind, chance.choice([0, 1, 40])])
        elif kind == "wait":
            plan.append([kind, chance.choice(["red", "blue"])])
        elif depth < 2:
            plan.append([kind, [draw_plan(chance, depth + 1) for _ in range(chance.randint(0, 3))]])
    return plan


def expected(plan: Plan) -> list[object]:
    """What a plan results in, whatever the weather."""
    done: list[object] = []
    for kind, *given in plan:
        if kind in ("act", "try"):
            name, fails, _ = given
            done.append("4 attempts" if fails >= POLICY.max_attempts else name)
        elif kind == "wait":
            done.append(given[0].upper())
        elif kind == "gather":
            done.append([expected(branch) for branch in given[0]])
    return done


class Storm:
    """See the module's docstring."""

    def __init__(self, world: World) -> None:
        assert world.random is not None
        self.world = world
        self.chance = world.random
        self.plans: dict[str, Plan] = {}
        self.commands: list[str] = []
        self.cancelled: set[str] = set()
        self.faults: list[str] = []

    def blow(self, turns: int) -> None:
        """So many turns, each with a chance of something going wrong."""
        world, chance = self.world, self.chance
        for _ in range(turns):
            if not world.shards:
                world.shard(max_running=chance.choice([3, 1000])).judge(self._judge)
            for _ in range(chance.randint(1, 6)):
                for shard in list(world.shards):
                    world._one_round(shard)
            chance.choice(self._acts())()
            if chance.random() < 0.2:
                due = world.next_due()
                if due is not None and due < world.clock.monotonic() + 100:
                    world.clock.advance_to(max(due, world.clock.monotonic()))

    def calm(self) -> None:
        """No more faults: everything comes to its end."""
        world = self.world
        world.weather.down = False
        world.weather.lose.clear()
        world.doomed = False
        if not world.shards:
            world.shard()
        for shard in world.shards:
            shard.judge(lambda _request: None)
        for _ in range(60):
            world.run()
            world.clock.advance(6.0)  # a sweep and a round of leases
            world.run()
            open_ids = [i for i in self.plans if not world.ended(i)]
            if not open_ids:
                return
            for execution_id in open_ids:
                if world.status(execution_id) == "parked":
                    self.faults.append("parked by strikes")
                    assert world.show(execution_id)["error"]["type"] == PARK_KILLS_SHARD
                    self.commands.append(world.retry(execution_id))
                for name in ("red", "blue"):
                    self.commands.append(world.signal(execution_id, name, name.upper()))
        raise AssertionError(f"they never end: {[(i, world.show(i)['open']) for i in open_ids]}")

    def check(self) -> None:
        world = self.world
        world.audit.commands_answered(self.commands)
        for execution_id, plan in self.plans.items():
            shown = world.show(execution_id)
            if shown["status"] == "cancelled":
                assert execution_id in self.cancelled
                continue
            assert shown["status"] == "completed", f"{execution_id}: {shown['error']}"
            assert shown["result"] == expected(plan), execution_id
            for each in shown["steps"]:
                seen = world.ledger.attempts(execution_id, each["path"])
                assert len(set(seen)) <= POLICY.max_attempts
                assert seen[0] == 1

    def _acts(self) -> list[Any]:
        often = [self._nothing] * 4 + [self._start] * 2 + [self._signal] * 3
        return [*often, self._cancel, self._retry, self._crash, self._down, self._forget_actor, self._break_actor,
                self._vanish_lease, self._forget_scripts, self._lose, self._doom]  # fmt: skip

    def _nothing(self) -> None:
        self.world.weather.down = False

    def _start(self) -> None:
        if len(self.plans) < 8:
            execution_id = f"e{len(self.plans)}"
            self.plans[execution_id] = draw_plan(self.chance)
            self.world.start(planned, execution_id, plan=self.plans[execution_id])

    def _any_id(self) -> str | None:
        return self.chance.choice(sorted(self.plans)) if self.plans else None

    def _signal(self) -> None:
        if execution_id := self._any_id():
            name = self.chance.choice(["red", "blue"])
            self.commands.append(self.world.signal(execution_id, name, name.upper()))

    def _cancel(self) -> None:
        execution_id = self._any_id()
        if execution_id is not None and self.chance.random() < 0.2:
            self.cancelled.add(execution_id)
            self.commands.append(self.world.cancel(execution_id))

    def _retry(self) -> None:
        if execution_id := self._any_id():
            self.commands.append(self.world.retry(execution_id))

    def _crash(self) -> None:
        if self.world.shards and self.chance.random() < 0.5:
            self.faults.append("crash")
            self.world.crash()

    def _doom(self) -> None:
        """The shard dies in somebody's turn; its parent strikes whoever that was."""
        if self.chance.random() < 0.5:
            self.faults.append("crash in a turn")
            self.world.doomed = True

    def _down(self) -> None:
        self.faults.append("down")
        self.world.weather.down = True

    def _lose(self) -> None:
        self.faults.append("lost read")
        self.world.weather.lose.add(self.chance.choice(["inbox", "leases"]))

    def _forget_scripts(self) -> None:
        self.world.client.script_flush()

    def _vanish_lease(self) -> None:
        self.faults.append("lease")
        self.world.client.delete(self.chance.choice(self.world.keys.parts).lease)

    def _some_actor(self) -> tuple[SimShard, str] | None:
        for shard in self.world.shards:
            if shard.in_memory:
                return shard, self.chance.choice(shard.in_memory)
        return None

    def _forget_actor(self) -> None:
        if found := self._some_actor():
            shard, execution_id = found
            ref = shard.ref(execution_id)
            if ref is not None:
                self.faults.append("passivate")
                ref.tell(m.Passivate())

    def _break_actor(self) -> None:
        if found := self._some_actor():
            shard, execution_id = found
            ref = shard.ref(execution_id)
            if ref is not None:
                self.faults.append("rebuild")
                ref.tell("nonsense")

    def _judge(self, request: Request) -> Any:
        if not isinstance(request, Commit):
            return None
        drawn = self.chance.random()  # a storm has a dozen commits
        if drawn < 0.05:
            self.faults.append("crash at a commit")
            raise ShardDied
        if drawn < 0.06:
            return "down"
        return "lost" if drawn < 0.1 else None
