"""The nodes of a Redis Cluster as one client knows them: who serves what, and whom to ask.

How one speaks to them is the business of `cluster` and its asyncio twin.
"""

from __future__ import annotations

import itertools
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from typing import Generic, Protocol, TypeVar

from redis.exceptions import RedisError

from stepwell.store.flight import LinkDown
from stepwell.store.outages import Outages
from stepwell.store.slots import Address, SlotMap

__all__ = ["Nodes", "of_node", "seed_of", "slots_in", "unanswered"]


class _Pool(Protocol):
    """What is used of redis-py's connection pools."""

    @property
    def connection_kwargs(self) -> Mapping[str, object]: ...


P = TypeVar("P", bound=_Pool)


class Nodes(ABC, Generic[P]):
    """What is known of the cluster that a client's server belongs to, and a pool of connections to each node.

    Nothing is asked before it is needed: a server that is no cluster never hears of this.
    """

    def __init__(self, pool: P, seeds: Sequence[Address] = (), monotonic: Callable[[], float] = time.monotonic) -> None:
        self._pool = pool
        self.seeds = seeds
        self._slots: SlotMap | None = None
        self._pools: dict[Address, P] = {}
        self._outages = Outages(monotonic)
        self._turn = itertools.count()

    @abstractmethod
    def _pool_to(self, node: Address, **settings: float) -> P:
        """New connections to a node, as those of the client but for these settings."""

    @property
    def clustered(self) -> bool:
        """Whether the server is known to belong to a cluster: it said so, or several hosts were given."""
        return self._slots is not None or len(self.seeds) > 1

    def pool_of(self, master: Address) -> P:
        """The connections to one master."""
        pool = self._pools.get(master)
        if pool is None:
            pool = self._pools.setdefault(master, self._pool_to(master))
        return pool

    def _some_pool(self, masters: Sequence[Address]) -> P:
        """Connections to one of them, another one each time, if it can be to one that answers."""
        usable = [master for master in masters if master not in self._outages.all] or masters
        return self.pool_of(usable[next(self._turn) % len(usable)]) if usable else self._pool

    def _askable(self, first: Address | None) -> list[tuple[Address, P]]:
        """Whom to ask: the best informed, masters that answer, those that were given, those that did not answer."""
        known = self._slots.masters if self._slots else ()
        outages = self._outages.all
        good = [(master, self.pool_of(master)) for master in known if master not in outages]
        if len(self.seeds) > 1:
            given = [(seed, self.pool_of(seed)) for seed in self.seeds if seed not in known]
        else:
            seed = seed_of(self._pool.connection_kwargs)
            given = [] if seed in outages else [(seed, self._pool)]
        good[:0] = [] if first is None else [(first, self.pool_of(first))]
        return good + given + [(master, self.pool_of(master)) for master in known if master in outages]

    def _take_over(self, slots: SlotMap) -> list[P]:
        """What is so from now on; the pools to nodes that are no masters any more, to be closed."""
        self._slots = slots
        others = [node for node in self._pools if node not in slots.masters and node not in self.seeds]
        return [self._pools.pop(node) for node in others]


def slots_in(raw: object, node: Address) -> SlotMap:
    """Who serves what, by a node's reply. Raises RedisError, ValueError or TypeError where it does not tell."""
    if isinstance(raw, RedisError):
        raise raw
    return SlotMap.read(raw, node)


def unanswered(error: Exception | None) -> LinkDown:
    """Nobody says who serves what; `error` is why the last one does not."""
    if error is None:
        return LinkDown("no connection to Redis: no node of the cluster is known", sent=False)
    if isinstance(error, LinkDown):
        return error
    down = LinkDown(f"no node says who serves what in the cluster: {error}", sent=False)
    down.__cause__ = error
    return down


def seed_of(kwargs: Mapping[str, object]) -> Address:
    """The node that a connection with these settings goes to."""
    return (str(kwargs.get("host") or "localhost"), int(str(kwargs.get("port") or 6379)))


def of_node(kwargs: Mapping[str, object], node: Address, **others: float) -> dict[str, object]:
    """A connection's settings, for another node of the same cluster, and with some others."""
    same = {name: value for name, value in kwargs.items() if name != "path"}
    return {**same, "host": node[0], "port": node[1], **others}
