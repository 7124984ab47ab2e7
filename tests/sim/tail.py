"""A server that loses the last writes that it has acknowledged, as one does whose host dies before its disk has them.

`mark` remembers what the server has at this moment, `lose` brings that back. Whatever was written between is gone, for
everybody, whether it was acknowledged or not.
"""

from __future__ import annotations

import copy
from typing import Any

from sim.bodies import Run
from sim.harness import World

from stepwell.core import records
from stepwell.store.replies import Committed
from stepwell.store.requests import Commit


class Tail:
    """The tail of what a world's server was told."""

    def __init__(self, world: World) -> None:
        self._world = world
        self.marks: list[tuple[float, dict[bytes, Any]]] = []
        self.losses = 0

    def mark(self) -> None:
        """Everything until now is on the disk."""
        data = copy.deepcopy(self._world.server.dbs[0]._dict)
        self.marks.append((self._world.clock.monotonic(), data))

    def lose(self, seconds: float = 1.0) -> None:
        """Back to the earliest mark that is not older than that; to now, if there is none."""
        now = self._world.clock.monotonic()
        found = [data for at, data in self.marks if at >= now - seconds]
        self.marks.clear()
        if found:
            self.losses += 1
            kept = self._world.server.dbs[0]._dict
            kept.clear()
            kept.update(found[0])


class Witness:
    """Remembers what was acknowledged: no step of it may run again, and nothing of it may be missing in the end."""

    def __init__(self, world: World) -> None:
        self._world = world
        self._seen = 0
        self.facts: dict[tuple[str, str], bytes] = {}
        self.keys: dict[tuple[str, str], set[str]] = {}
        world.ledger.on_run.append(self._body_begins)

    def _listen(self) -> None:
        for sent in self._world.sent[self._seen :]:
            request = sent.request
            if isinstance(request, Commit) and isinstance(sent.reply, Committed):
                for field, raw in request.sets:
                    if field.startswith("r:"):
                        self.facts[request.execution_id, field] = raw
        self._seen = len(self._world.sent)

    def _body_begins(self, run: Run) -> None:
        self._listen()
        recorded = self.facts.get((run.execution_id, "r:" + run.path))
        assert recorded is None, f"{run.execution_id} {run.path} is recorded and runs again"
        self.keys.setdefault((run.execution_id, run.path), set()).add(run.key)

    def check(self) -> None:
        """To be called when all has ended."""
        self._listen()
        assert all(len(keys) == 1 for keys in self.keys.values())
        for (execution_id, field), raw in self.facts.items():
            stored = self._world.row(execution_id).get(field)
            assert stored is not None, f"{execution_id}: the acknowledged {field} is gone"
            was, now = records.decode_fact(raw), records.decode_fact(stored)
            assert (was.seq, was.status, bytes(was.value)) == (now.seq, now.status, bytes(now.value))
