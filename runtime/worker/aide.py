"""What a worker's parent does for its shards besides watching them: their processes, their boxes, their server."""

from __future__ import annotations

import logging
from collections.abc import Callable
from pathlib import Path

from stepwell.actors.boxreport import read_box
from stepwell.metrics.segments import SheetFile
from stepwell.metrics.totals import Totals
from stepwell.store.namespace import Namespace
from stepwell.worker import control as c
from stepwell.worker.background import Background
from stepwell.worker.boxes import BoxFolder
from stepwell.worker.config import WorkerConfig
from stepwell.worker.examination import Examination, remove_box
from stepwell.worker.fleet import Fleet
from stepwell.worker.hangs import Hangs
from stepwell.worker.identity import host_info
from stepwell.worker.opening import Station
from stepwell.worker.settings import settings_of
from stepwell.worker.slots import Cause, Slot
from stepwell.worker.spawn import Handle, SpawnedShard

logger = logging.getLogger("stepwell.worker")
__all__ = ["ParentsAide"]


class ParentsAide:
    """The hands of a `Fleet`. `post` lets the parent's loop make a call."""

    fleet: Fleet

    def __init__(
        self,
        flows: tuple[str, ...],
        log: c.LogSettings,
        config: WorkerConfig,
        post: Callable[[Callable[[], None]], None],
        totals: Totals,
    ) -> None:
        self._flows = flows
        self._log = log
        self._config = config
        self._post = post
        self._totals = totals
        self._boxes = BoxFolder()
        self._hangs = Hangs()
        self._examiner = Background("stepwell-examiner", post)
        self._reviver = Background("stepwell-reviver", post)
        self._reviving = False
        self._station: Station | None = None
        self._namespace: Namespace | None = None

    def begin(self, station: Station, namespace: Namespace) -> None:
        """The server is fit: let the shards that live begin, and all later ones."""
        self._station, self._namespace = station, namespace
        for slot, handle in self.fleet.living():
            self._send_begin(slot, handle)

    def spawn(self, slot: Slot) -> Handle:
        """Start a process, and tell it all that is known by now."""
        self._make_sheet(slot)
        handle = SpawnedShard(slot.index)
        handle.send(c.Load(slot.index, self._flows, self._log))
        self._send_begin(slot, handle)
        return handle

    def busy_seconds(self, slot: Slot) -> float:
        """For how long the shard has been at one turn, as it was at the last look."""
        return self._hangs.busy_seconds(self._box(slot))

    def look_at_boxes(self) -> None:
        """Read the boxes of the living."""
        for slot, _ in self.fleet.living():
            self._hangs.look(self._box(slot))

    def examine(self, slot: Slot) -> None:
        """Find out what killed it, free its leases, and tell the fleet."""
        index, life, box = slot.index, slot.life, self._box(slot)
        self._hangs.forget(box)
        if self._station is None or self._namespace is None or not slot.host_info:
            self._post(lambda: self.fleet.examined(index, life, named=False))
            return
        examination = Examination(
            self._station.url, self._namespace, slot.name, slot.host_info, read_box(box), slot.hung_at
        )
        remove_box(box)
        self._examiner.do(examination.run, lambda named: self.fleet.examined(index, life, named))

    def in_trouble(self) -> None:
        """Revive the embedded server, if it is one and it is dead."""
        if self._station is None or self._reviving:
            return
        self._reviving = True
        self._reviver.do(self._station.revive, self._revived)

    def close(self) -> None:
        """Remove the boxes."""
        self._boxes.close()

    def _send_begin(self, slot: Slot, handle: Handle) -> None:
        station, namespace = self._station, self._namespace
        if station is not None and namespace is not None:
            handle.send(
                c.Begin(
                    station.url,
                    namespace.keys.namespace,
                    namespace.partitions,
                    namespace.secret,
                    namespace.created_ms,
                    settings_of(
                        self._config,
                        slot.name,
                        str(self._box(slot)),
                        host_info(),
                        str(self._boxes.sheet(slot.index)),
                        slot.life,
                    ),
                    str(namespace.durability),
                )
            )

    def _make_sheet(self, slot: Slot) -> None:
        try:
            self._totals.attach(slot.index, SheetFile(self._boxes.sheet(slot.index)))
        except OSError as error:  # it says so itself, when it finds none
            logger.debug("no sheet for shard %s: %s", slot.name, error)

    def _revived(self, moved: bool) -> None:
        self._reviving = False
        if moved:
            self.fleet.replace(Cause("failed", "the embedded server was started again at another place"))

    def _box(self, slot: Slot) -> Path:
        return self._boxes.box(slot.index, slot.life)
