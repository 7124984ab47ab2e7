"""A worker's settings: one frozen object, checked once, passed down."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from stepwell.client.address import Address
from stepwell.core.durations import seconds
from stepwell.core.errors import UsageError
from stepwell.core.limits import GRACE_MOST, PASSIVATE_LEAST, Limits
from stepwell.core.partition import DEFAULT_PARTITIONS
from stepwell.metrics.tracing import wanted
from stepwell.store.durability import Durability

_LEAST: Final = {"partitions": 1, "max_running": 1, "max_steps": 1, "threads": 1, "max_in_memory": 1, "processes": 1}


@dataclass(frozen=True, slots=True)
class WorkerConfig:
    """What a worker is told.

    Attributes:
        address: the server's URL, or the folder of an embedded one.
        namespace: prefix of all keys.
        partitions: slices of a new namespace; an existing one must have as many.
        max_running: executions that run steps at once in a shard; more stay queued.
        max_steps: async step bodies at once in a shard; more wait their turn.
        threads: sync step bodies at once in a shard.
        processes: step bodies in processes of their own (`isolation="process"`) at once in a shard.
        max_in_memory: executions in the memory of a shard; beyond it those leave that have rested longest.
        passivate_after: seconds; what is to wait longer than that, or has waited so long for a signal, leaves memory.
        grace: seconds that running steps get to finish when the worker is stopped.
        durability: when a write counts as acknowledged; None: as the namespace has it.
        worker_id: what it is called; None: as `WorkerName` says.
        metrics_port: port of /metrics, /healthz and /readyz; None: not served; 0: any free one.
        metrics_port_else: the port where metrics_port is taken; None: then the worker does not start.
        metrics_host: address that the port is bound to.
        otel: whether spans are made; None: if `OTEL_*` variables or a tracer provider of the process say where they go.

    Raises:
        UsageError: a value is out of range, or spans are asked for and can't be made.
    """

    address: Address
    namespace: str = "stepwell"
    partitions: int = DEFAULT_PARTITIONS
    max_running: int = 1000
    max_steps: int = 1000
    threads: int = 32
    processes: int = 4
    max_in_memory: int = 20_000
    passivate_after: float = 30.0
    grace: float = 30.0
    durability: Durability | None = None
    worker_id: str | None = None
    metrics_port: int | None = None
    metrics_port_else: int | None = None
    metrics_host: str = "0.0.0.0"
    otel: bool | None = None

    @property
    def limits(self) -> Limits:
        """The bounds of each shard."""
        return Limits(self.max_running, self.max_steps, self.max_in_memory, self.passivate_after, self.processes)

    def __post_init__(self) -> None:
        for name, least in _LEAST.items():
            value = getattr(self, name)
            if type(value) is not int or value < least:
                raise UsageError(f"expected {name} to be a whole number >= {least}, got {value!r}")
        passivate_after = seconds(self.passivate_after, "passivate_after", least=PASSIVATE_LEAST)
        object.__setattr__(self, "grace", seconds(self.grace, "grace", most=GRACE_MOST))  # frozen
        object.__setattr__(self, "passivate_after", passivate_after)
        if self.otel:
            wanted(self.otel)
        port = self.metrics_port
        if port is not None and not 0 <= port <= 65535:
            raise UsageError(f"expected metrics_port to be a port from 0 to 65535, got {port!r}")
