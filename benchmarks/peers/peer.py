"""What a peer is: what has to be installed and started, how it is configured, and what it promises."""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import Enum

__all__ = ["Command", "Kind", "Peer", "Recovery", "Server", "Skip"]

Command = tuple[str, ...]
"""Words with places in them: `{python}`, `{bin}` and `{modules}` of the peer's own environment, `{here}` for its
scripts, `$NAME` for a variable of its environment."""


class Skip(Exception):
    """A peer can't be measured here; the text says why, and what would help."""


class Kind(Enum):
    """What a finished step is worth after a crash."""

    FLOWS = "durable flow"
    QUEUE = "queue, chained tasks: not a durable flow"


class Server(Enum):
    """What keeps a peer's state."""

    REDIS = "Redis"
    POSTGRES = "Postgres"
    RESTATE = "Restate"
    FILE = "SQLite file"


@dataclass(frozen=True, slots=True)
class Recovery:
    """How a peer is run when its worker is killed, where that differs from the other workloads.

    `settings` says which timeouts decide how soon lost work is noticed. Without a `worker` or `load` of its own it has
    the usual ones. With `self_starting` the worker finds the flows to run by itself, and nobody submits any.
    """

    settings: str
    worker: Command | None = None
    load: Command | None = None
    workers: int | None = None
    ready: int | None = None
    environment: dict[str, str] = field(default_factory=dict)
    self_starting: bool = False


@dataclass(frozen=True, slots=True)
class Peer:
    """One system. Its scripts lie in the folder `scripts` beside this module (its `name` unless given).

    `workers` processes are started by `worker`; together they say `ready` times that they are. `loads` processes are
    started by `load`: with more than one each gets its share of the flows. Where `worker` is None, the load runs its
    flows itself, as such a system is used within an application.
    """

    name: str
    title: str
    kind: Kind
    server: Server
    load: Command
    step: str
    durability: str
    settings: str
    recovery: Recovery
    least_flows: int = 20  # fewer would measure how often it polls
    prepare: Command | None = None  # run once, when the server answers
    worker: Command | None = None
    workers: int = 1
    ready: int = 1
    loads: int = 1
    python: tuple[str, ...] = ()
    node: tuple[str, ...] = ()
    shows: tuple[str, ...] = ()  # the packages whose versions the table shows
    environment: dict[str, str] = field(default_factory=dict)
    scripts: str = ""
    server_settings: dict[str, str] = field(default_factory=dict)

    @property
    def folder(self) -> str:
        """The folder of its scripts."""
        return self.scripts or self.name
