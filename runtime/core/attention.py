"""What of an overview a person has to look at, the worst first, and what to do about it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, Literal

import msgspec

from stepwell.core.advice import NO_WORKER
from stepwell.core.limits import LANE_SIZE
from stepwell.core.overview import Overview, ShardState
from stepwell.core.status import PARKED, TERMINAL

__all__ = ["Notice", "notices"]

OVERDUE_MS: Final = 5_000
BACKLOG_SECONDS: Final = 10
RESTARTED_MS: Final = 60_000
SILENT_NAMED: Final = 2


class Notice(msgspec.Struct, frozen=True):
    """One sentence; `bad`: something does not work, `warning`: something waits for a person."""

    level: Literal["bad", "warning"]
    text: str


def notices(seen: Overview) -> list[Notice]:
    """All that is out of the ordinary."""
    return [Notice("bad", text) for text in _bad(seen)] + [Notice("warning", text) for text in _warnings(seen)]


def _bad(seen: Overview) -> list[str]:
    found = []
    if seen.memory is not None and seen.memory.full:
        found.append(f"Redis is full ({seen.memory.told}): it refuses writes, all waits; raise its maxmemory")
    working = any(each.state != "silent" for each in seen.shards)
    waiting = sum(counted.count for status, counted in seen.executions.items() if status not in TERMINAL)
    if not working and waiting:
        found.append(f"{_nobody(seen)} ({waiting} {_executions(waiting)})")
    if seen.guarantee.get("kept") == "no":
        found.append("a promise can't be kept; `stepwell doctor` says which")
    if seen.unread:
        found.append(f"not all can be read: {seen.unread}")
    found += _silent([each for each in seen.shards if each.state == "silent"])
    free = seen.partitions.total - seen.partitions.held
    if working and free > 0:
        found.append(f"{free} of {seen.partitions.total} partitions have no owner")
    return found


def _nobody(seen: Overview) -> str:
    """Shards that Redis takes no writes of look as dead from here: it is full, or has become read-only, say."""
    if not seen.shards:
        return NO_WORKER
    return "no worker runs (`stepwell run FILE`), or Redis takes no writes: `stepwell doctor`"


def _silent(shards: Sequence[ShardState]) -> list[str]:
    """A few by name; of many (a worker that keeps dying takes another name each time) one line."""
    if len(shards) <= SILENT_NAMED:
        return [f"shard {each.name} is silent for {each.silent_ms / 1000:.0f} s" for each in shards]
    latest = sorted(shards, key=lambda each: each.silent_ms)
    names = ", ".join(each.name for each in latest[:SILENT_NAMED])
    return [
        f"{len(shards)} shards are silent, the latest for {latest[0].silent_ms / 1000:.0f} s:"
        f" {names} and {len(shards) - SILENT_NAMED} more"
    ]


def _warnings(seen: Overview) -> list[str]:
    found = []
    if seen.memory is not None and seen.memory.nearly_full:
        found.append(f"Redis is nearly full ({seen.memory.told}): raise its maxmemory")
    working = any(each.state != "silent" for each in seen.shards)
    first = seen.backoffs.next[:1]
    for each in seen.shards:
        if each.state != "silent" and (each.inbox_lag or 0) > BACKLOG_SECONDS:
            found.append(
                f"shard {each.name} has not applied an entry of its inboxes for {each.inbox_lag:.0f} s: its log says"
                " why"
            )
    if working and first and seen.at - first[0].due_at > OVERDUE_MS:
        late = (seen.at - first[0].due_at) / 1000
        found.append(f"retries are overdue by up to {late:.0f} s: first that of {first[0].execution}")
    for each in seen.shards:
        if each.life is not None and each.life > 1 and each.started_at is not None:
            ago = seen.at - each.started_at
            if ago <= RESTARTED_MS and each.state != "silent":
                found.append(
                    f"shard {each.name} was started again {max(0, ago) / 1000:.0f} s ago (process {each.life})"
                )
    apart = sum(each.waits_apart or 0 for each in seen.shards)
    if apart:
        who, wait, their = ("step", "waits", "its") if apart == 1 else ("steps", "wait", "their")
        found.append(
            f"{apart} {who} that may have killed a shard {wait} for a process of {their} own: each shard runs"
            f" {LANE_SIZE} at once"
        )
    parked = seen.executions.get(PARKED)
    if parked is not None and parked.count:
        verb = "needs" if parked.count == 1 else "need"
        found.append(f"{parked.count} {_executions(parked.count)} {verb} a person: stepwell list --status parked")
    if seen.dead_letters:
        found.append(
            f"{seen.dead_letters} dead {'letter' if seen.dead_letters == 1 else 'letters'}: stepwell dead list"
        )
    return found


def _executions(count: int) -> str:
    return "execution" if count == 1 else "executions"
