"""What earlier deaths of shards left against executions and inbox entries of our partitions: read with each grant."""

from __future__ import annotations

from stepwell.actors.holdings import Holdings
from stepwell.actors.left import LEFT_BOXED, LEFT_CLEAN, LEFT_UNKNOWN, Left
from stepwell.actors.messages import Park
from stepwell.core.status import PARK_KILLS_SHARD
from stepwell.store.leases import Grant
from stepwell.store.suspects import Strike, Suspect

__all__ = ["STRIKES_MAX", "Suspicions", "opened", "parking", "why_buried"]

STRIKES_MAX = 3
"""So many deaths, and it is not opened any more."""


class Suspicions:
    """The dispatcher's own copy: what it has dealt with counts no more, though the grant still says it."""

    def __init__(self, holdings: Holdings) -> None:
        self._holdings = holdings
        self._of: dict[int, _Partition] = {}

    def left(self, partition: int, execution_id: str) -> Left:
        """How an execution was left that nobody here has opened yet."""
        grant = self._holdings.grant(partition)
        if grant is None:
            return LEFT_CLEAN  # the partition is lost again: nothing will be written
        suspect = self._known(grant).executions.get(execution_id)
        if suspect is None:
            return LEFT_CLEAN if grant.clean else LEFT_BOXED if grant.boxed else LEFT_UNKNOWN
        # What was written down at an earlier death counts, however the owners since then went.
        known = grant.clean or grant.boxed
        return Left(grant.clean and not suspect.cut, suspect.cut if known else None, True, suspect.strike)

    def settle(self, partition: int, execution_id: str) -> None:
        """It is opened, or parked: only strikes that have not parked it are still held against it."""
        grant = self._holdings.grant(partition)
        if grant is None or not grant.suspects.executions:
            return
        executions = self._known(grant).executions
        suspect = executions.pop(execution_id, None)
        if suspect is not None and suspect.strike is not None and suspect.strike.count < STRIKES_MAX:
            executions[execution_id] = Suspect(suspect.strike)

    def entry(self, partition: int, entry_id: str) -> Strike | None:
        """What is held against an inbox entry; told once."""
        grant = self._holdings.grant(partition)
        return None if grant is None or not grant.suspects.entries else self._known(grant).entries.pop(entry_id, None)

    def unmet(self, partition: int) -> tuple[list[str], list[str]]:
        """Executions that are to be looked at, whether they have ended or not, and entries that the inbox did not have;
        told once, after the inbox was read."""
        grant = self._holdings.grant(partition)
        if grant is None:
            return [], []
        known = self._known(grant)
        if known.told:
            return [], []
        known.told = True
        entries, known.entries = list(known.entries), {}
        return list(known.executions), entries

    def _known(self, grant: Grant) -> _Partition:
        known = self._of.get(grant.partition)
        if known is None or known.epoch != grant.epoch:
            known = self._of[grant.partition] = _Partition(grant)
        return known


class _Partition:
    def __init__(self, grant: Grant) -> None:
        self.epoch = grant.epoch
        self.executions = dict(grant.suspects.executions)
        self.entries = dict(grant.suspects.entries)
        self.told = False


def parking(left: Left) -> Park | None:
    """Why an execution must not be opened; None: it may be."""
    strike = left.strike
    if strike is None or strike.count < STRIKES_MAX:
        return None
    return Park(PARK_KILLS_SHARD, f"{strike.count} shards died while it was loaded or driven; the last: {strike.cause}")


def opened(left: Left) -> Left:
    """The same for a second actor of it in this shard, which itself knows what runs."""
    if not left.suspect:
        return LEFT_CLEAN
    return Left(True, None, True, None if parking(left) is not None else left.strike)


def why_buried(strike: Strike) -> str:
    """Why an inbox entry is a dead letter without having been opened; empty: it may be opened."""
    if strike.count < STRIKES_MAX:
        return ""
    return f"{strike.count} shards died while it was read; the last: {strike.cause}"
