"""A storm over several shards: they come, leave, die and freeze between any two turns, with all the usual faults."""

from __future__ import annotations

from typing import Any

from sim.harness import SimShard, World
from sim.storm import Storm

NAMES = ["a/0", "a/1", "b/0", "c/0"]


class SharingStorm(Storm):
    """See the module's docstring. `gentle`: shards only come and go, and nothing breaks."""

    def __init__(self, world: World, *, gentle: bool = False) -> None:
        super().__init__(world)
        self.gentle = gentle
        self.leaving: list[SimShard] = []

    def blow(self, turns: int) -> None:
        for _ in range(turns):
            if not self._staying():
                self._join()
            super().blow(1)
            self._end_of_drains()

    def calm(self) -> None:
        """No more faults: everything comes to its end."""
        world = self.world
        world.weather.down = False
        world.weather.lose.clear()
        world.doomed = False
        for shard in list(world.frozen):
            world.thaw(shard)
        if not self._staying():
            self._join()
        for shard in world.shards:
            shard.judge(lambda _request: None)
        for _ in range(40):
            world.run_for(12.0)
            self._end_of_drains()
            open_ids = [i for i in self.plans if not world.ended(i)]
            if not open_ids:
                return
            for execution_id in open_ids:
                for name in ("red", "blue"):
                    self.commands.append(world.signal(execution_id, name, name.upper()))
        raise AssertionError(f"they never end: {[(i, world.show(i)['open']) for i in open_ids]}")

    def _staying(self) -> list[SimShard]:
        return [shard for shard in self.world.shards if shard not in self.leaving]

    def _acts(self) -> list[Any]:
        if self.gentle:
            often = [self._nothing] * 3 + [self._start] * 3 + [self._signal] * 3
            return [*often, self._join, self._leave]
        return [*super()._acts(), *[self._join] * 2, self._leave, self._crash, self._freeze, self._thaw, self._let_pass]

    def _join(self) -> None:
        world = self.world
        taken = {shard.shard_id for shard in (*world.shards, *world.frozen)}
        free = [name for name in NAMES if name not in taken]
        if free and len(world.shards) < 3 and not world.weather.down:
            shard = world.shard(shard_id=self.chance.choice(free), **self._options())
            if not self.gentle:
                shard.judge(self._judge)
            self.faults.append("join")

    def _options(self) -> dict[str, Any]:
        """Drawn for each shard that joins."""
        return {"max_running": self.chance.choice([3, 1000])}

    def _leave(self) -> None:
        staying = self._staying()
        if len(staying) > 1 or (staying and not self.gentle):
            shard = self.chance.choice(staying)
            shard.leave()
            self.leaving.append(shard)
            self.faults.append("leave")

    def _end_of_drains(self) -> None:
        """Who has handed over all ends; in a rough storm grace may be over before that."""
        for shard in list(self.leaving):
            if shard not in self.world.shards:
                if shard not in self.world.frozen:
                    self.leaving.remove(shard)
                continue
            impatient = not self.gentle and self.chance.random() < 0.02
            if (shard.holdings.partitions() and not impatient) or not shard.mirror.idle:
                continue
            if self.world.weather.down or self.world.weather.lose:
                continue
            if shard.holdings.partitions():
                shard.drain()
                self.faults.append("grace over")
            self.leaving.remove(shard)
            self.world.doomed = False
            shard.release()

    def _crash(self) -> None:
        world = self.world
        if not world.shards or self.chance.random() < 0.5:
            return
        shard = self.chance.choice(world.shards)
        world.crash(shard)
        if world.weather.down or self.chance.random() < 0.5:
            world.dead_hosts.discard(shard.host)
            self.faults.append("machine dies")
        else:
            world.post_mortem(shard)
            self.faults.append("crash")

    def _freeze(self) -> None:
        if len(self.world.shards) > 1:
            self.world.freeze(self.chance.choice(self.world.shards))
            self.faults.append("freeze")

    def _thaw(self) -> None:
        if self.world.frozen and len(self.world.shards) < 3:
            self.world.thaw(self.chance.choice(self.world.frozen))

    def _let_pass(self) -> None:
        self.world.run_for(self.chance.choice([1.0, 11.0]))
