"""What a worker's parent does right after a shard's death: it lets its black box be heard, whatever Redis is up to."""

from __future__ import annotations

import logging
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from stepwell.actors.boxlayout import fault_path
from stepwell.actors.boxreport import BoxReport
from stepwell.core.errors import StoreError
from stepwell.metrics.saying import say
from stepwell.store.leases import TTL_MS
from stepwell.store.namespace import Namespace
from stepwell.store.scripts import Scripts
from stepwell.worker.opening import connector
from stepwell.worker.postmortem import Findings, examine

__all__ = ["Examination", "remove_box"]

PAUSE_SECONDS: Final = 0.5
# What is found later than its leases can live still counts as strikes, so it is tried for longer than that.
PATIENCE_SECONDS: Final = 3 * TTL_MS / 1000
logger = logging.getLogger("stepwell.worker")


@dataclass(frozen=True, slots=True)
class Examination:
    """One death: which shard, which process, what its box said, and at which place of the code it hung, if it did."""

    url: str
    namespace: Namespace
    shard_id: str
    host_info: str
    report: BoxReport | None
    hung_at: str = ""

    def run(self) -> bool:
        """Free its leases and write down its suspects, again and again while Redis is away.

        Whether a suspect was named: strikes will end what killed it.
        """
        deadline = time.monotonic() + PATIENCE_SECONDS
        while True:
            try:
                findings = self._examine()
            except StoreError as error:
                if time.monotonic() >= deadline:
                    told = "what killed shard %s could not be written down: %s"
                    of = {"shard": self.shard_id, "error": error}
                    say(logger, "ShardExamined", told, self.shard_id, error, level=logging.ERROR, of=of)
                    return False
                time.sleep(PAUSE_SECONDS)
                continue
            say(
                logger,
                "ShardExamined",
                "shard %s: %s",
                self.shard_id,
                findings.sentence(),
                shard=self.shard_id,
                partitions=len(findings.partitions),
                steps=findings.interrupted,
            )
            return bool(findings.struck or findings.named)

    def _examine(self) -> Findings:
        client = connector(self.url)("examiner")
        try:
            return examine(
                client, self.namespace.keys, Scripts(), self.host_info, self.report, self.shard_id, self.hung_at
            )
        finally:
            client.close()


def remove_box(path: Path) -> None:
    """Clear away a box that was read."""
    for each in (path, fault_path(path)):
        each.unlink(missing_ok=True)
