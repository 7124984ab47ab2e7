"""When a reader has to look ahead: virtual time jumps from due time to due time, and it must not miss what is cold."""

from __future__ import annotations

from typing import TYPE_CHECKING

from stepwell.core.limits import WAKE_AHEAD_SECONDS

if TYPE_CHECKING:
    from sim.harness import SimShard


def next_look(shard: SimShard) -> float | None:
    """The monotonic second at which the next execution comes into sight that the shard does not know; None: none."""
    dues: list[float] = []
    for partition, until in shard.reader._known_until.items():
        live = shard.world.keys.live(partition)
        if shard.world.client.type(live) not in (b"zset", b"none"):
            continue  # a stranger's key
        dues += [due for _, due in shard.world.client.zrangebyscore(live, f"({until}", "(+inf", 0, 1, True)]
    return sees_at(shard, min(dues)) if dues else None


def sees_at(shard: SimShard, due_ms: float) -> float:
    """The monotonic second at which a shard sees what is due then, and not in memory."""
    seconds = (due_ms - shard.clock.now_ms()) / 1000
    return max(shard.reader._look_due, shard.clock.monotonic() + seconds - WAKE_AHEAD_SECONDS)
