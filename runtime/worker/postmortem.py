"""After a shard's death: its black box is made into strikes and interrupted steps, and its partitions are free."""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass

import redis

from stepwell.actors.boxreport import BoxAttempt, BoxReport
from stepwell.actors.verdict import Verdict, judge
from stepwell.core.records import CutShort
from stepwell.store.keys import Keys
from stepwell.store.leases import LeaseHolder, LeaseStore, parse_lease
from stepwell.store.members import Members
from stepwell.store.scripts import Scripts
from stepwell.store.suspects import Loss, SuspectStore
from stepwell.store.workers import WorkerRegistry

__all__ = ["Findings", "examine"]


@dataclass(frozen=True, slots=True)
class Findings:
    """What was found, and done about it.

    Attributes:
        partitions: they are free now.
        cause: how the shard died, as far as it is known.
        struck: the execution or the inbox entry that got a strike; empty: none.
        interrupted: steps that count as cut short; None: it is not known which ran.
        named: those of them that were at work: they run in processes of their own from now on.
    """

    partitions: tuple[int, ...]
    cause: str
    struck: str = ""
    interrupted: int | None = None
    named: tuple[BoxAttempt, ...] = ()

    def sentence(self) -> str:
        """For the log."""
        if not self.partitions and not self.struck and self.interrupted is None:
            return f"{self.cause}; it held no partition (any more)"
        parts = [f"{self.cause}; partitions freed: {len(self.partitions)}"]
        if self.struck:
            parts.append(f"{self.struck} was at work and gets a strike")
        if self.interrupted is None:
            parts.append("it is not known which steps ran: all that were open count as interrupted")
        else:
            parts.append(f"steps cut short: {self.interrupted}")
        if self.named:
            shown = ", ".join(f"{each.path} of {each.execution_id} (attempt {each.attempt})" for each in self.named[:5])
            more = f" and {len(self.named) - 5} more" if len(self.named) > 5 else ""
            parts.append(f"at work: {shown}{more}")
        return "; ".join(parts)


def examine(
    client: redis.Redis,
    keys: Keys,
    scripts: Scripts,
    host_info: str,
    report: BoxReport | None,
    shard_id: str = "",
    hung_at: str = "",
) -> Findings:
    """Say who was at work when the process `host_info` died, free its leases, and take it off the living.

    It may be repeated whenever its outcome is unknown: a box strikes each suspect once. `report` is read once, right
    after the death, and kept for the repetitions; None: no box can be read, so all open steps count as interrupted.
    `hung_at` is for people: the place in the code.

    Raises:
        StoreError: Redis is away, or refuses; try again.
    """
    verdict = judge(report, hung_at)
    leases = _leases_of(LeaseStore(client, keys, scripts), keys, host_info)
    losses = _losses(verdict, keys, leases)
    box_id = "" if report is None else report.box_id
    freed = SuspectStore(client, keys, scripts).reap(losses, box_id, verdict.cause) if losses else []
    registry = WorkerRegistry(client, keys, scripts)
    owners = {shard_id, *(holder.owner for _, holder in leases.values())} - {""}
    for owner in owners:
        registry.remove(owner)
    Members(client, keys, scripts).leave(*owners)
    entry = "" if verdict.entry is None else f"inbox entry {verdict.entry[1]} of partition {verdict.entry[0]}"
    return Findings(
        partitions=tuple(freed),
        cause=verdict.cause,
        struck=f"execution {verdict.execution}" if verdict.execution else entry,
        interrupted=None if verdict.cut is None else len(verdict.cut),
        named=tuple(attempt for attempt, named in verdict.cut or () if named),
    )


def _leases_of(store: LeaseStore, keys: Keys, host_info: str) -> dict[int, tuple[str, LeaseHolder]]:
    found: dict[int, tuple[str, LeaseHolder]] = {}
    for partition, value in store.read(range(keys.partitions)).items():
        holder = parse_lease(value)
        if holder is not None and holder.host_info == host_info:
            found[partition] = (value, holder)
    return found


def _losses(verdict: Verdict, keys: Keys, leases: dict[int, tuple[str, LeaseHolder]]) -> list[Loss]:
    """One for each partition that was held, and for those of struck suspects whose leases have lapsed."""
    executions: dict[int, tuple[str, ...]] = {}
    entries: dict[int, tuple[str, ...]] = {}
    if verdict.execution:
        executions[keys.partition_of(verdict.execution)] = (verdict.execution,)
    if verdict.entry is not None and verdict.entry[0] < keys.partitions:
        entries[verdict.entry[0]] = (verdict.entry[1],)
    cut = _cut_by_partition(verdict)
    losses = []
    for partition in sorted({*leases, *executions, *entries}):
        value, epoch = "", 0
        if partition in leases:
            value, epoch = leases[partition][0], leases[partition][1].epoch
        losses.append(
            Loss(
                partition,
                value,
                epoch,
                None if cut is None else cut.get(partition, {}),
                executions.get(partition, ()),
                entries.get(partition, ()),
            )
        )
    return losses


def _cut_by_partition(verdict: Verdict) -> dict[int, dict[str, tuple[CutShort, ...]]] | None:
    """By partition, then by execution."""
    if verdict.cut is None:
        return None
    cut: dict[int, dict[str, tuple[CutShort, ...]]] = defaultdict(dict)
    for attempt, named in verdict.cut:
        of = cut[attempt.partition]
        short = CutShort(attempt.token, attempt.attempt, named, attempt.path)
        of[attempt.execution_id] = (*of.get(attempt.execution_id, ()), short)
    return cut
