"""A worker's settings: one frozen object, checked once, passed down."""

from __future__ import annotations

from dataclasses import dataclass

from stepwell.client.address import Address
from stepwell.core.errors import UsageError
from stepwell.core.limits import Limits
from stepwell.core.partition import DEFAULT_PARTITIONS


@dataclass(frozen=True, slots=True)
class WorkerConfig:
    """What a worker is told.

    Attributes:
        address: the server's URL, or the folder of an embedded one.
        namespace: prefix of all keys.
        partitions: slices of a new namespace; an existing one must have as many.
        max_running: executions that run steps at once; more stay queued.
        threads: sync step bodies at once.
        grace: seconds that running steps get to finish when the worker is stopped.
        worker_id: what it is called; None: as `WorkerName` says.
        metrics_port: port of /metrics, /healthz and /readyz; None: not served; 0: any free one.
        metrics_host: address that the port is bound to.

    Raises:
        UsageError: a value is out of range.
    """

    address: Address
    namespace: str = "stepwell"
    partitions: int = DEFAULT_PARTITIONS
    max_running: int = 1000
    threads: int = 32
    grace: float = 30.0
    worker_id: str | None = None
    metrics_port: int | None = None
    metrics_host: str = "0.0.0.0"

    @property
    def limits(self) -> Limits:
        """The bounds of each shard."""
        return Limits(running=self.max_running)

    def __post_init__(self) -> None:
        for name, least in (("partitions", 1), ("max_running", 1), ("threads", 1)):
            value = getattr(self, name)
            if type(value) is not int or value < least:
                raise UsageError(f"expected {name} to be a whole number >= {least}, got {value!r}")
        if not isinstance(self.grace, int | float) or not 0 <= self.grace < 86_400:
            raise UsageError(f"expected grace to be a number of seconds from 0 to 86400, got {self.grace!r}")
        port = self.metrics_port
        if port is not None and not 0 <= port <= 65535:
            raise UsageError(f"expected metrics_port to be a port from 0 to 65535, got {port!r}")
