"""The masters of a Redis Cluster, behind one client: a pool of plain connections to each, and who serves what.

redis-py refuses EVALSHA in a cluster's pipelines, so batches are cut up here: one pipeline per master, in flight to
all of them at once. A master that can't be reached costs its own commands only, and after the first time next to no
waiting: it is tried again with a short patience, every two seconds at most.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import cached_property
from typing import Final, cast

import redis
from redis.client import PubSub
from redis.exceptions import RedisError

from stepwell.store.durability import RELAXED, Durability
from stepwell.store.flight import Flight, LinkDown, NotDurable, Parcel
from stepwell.store.nodes import Nodes, of_node, slots_in, unanswered
from stepwell.store.requests import Command
from stepwell.store.routing import Pipeline, Routing
from stepwell.store.scripts import Scripts
from stepwell.store.slots import Address, SlotMap

__all__ = ["PROBE_SECONDS", "SLOTS_QUESTION", "Masters", "StoreClient", "masters_of", "new_pool"]

# How long a master that failed before may take to answer a PING, and any master once another has kept us waiting.
PROBE_SECONDS: Final = 0.5
LATE_SECONDS: Final = 0.05

SLOTS_QUESTION: Final[Sequence[Command]] = (["CLUSTER", "SLOTS"],)


class Masters(Nodes[redis.ConnectionPool]):
    """Talks to the masters of a cluster. Threads may share it."""

    def exchange(self, commands: Sequence[Command], scripts: Scripts, durability: Durability = RELAXED) -> list[object]:
        """One raw reply per command, in order; `MasterLost` stands for those of a master that can't be reached.

        Raises LinkDown if no node can be asked who serves what.
        """
        slots = self._slots or self.learn()
        routing = Routing(commands, scripts)
        while pipelines := routing.round(slots, self._outages.all):
            self._fly(pipelines, routing, slots, durability)
            if routing.moved or (routing.stale and self._outages.may_look()):
                slots = self._learn_again(slots, routing.moved)
                routing.moved, routing.stale = None, False
        return routing.replies

    def learn(self, first: Address | None = None) -> SlotMap:
        """Ask the first node that answers, beginning with `first`, who serves what. Raises LinkDown if none does."""
        error: Exception | None = None
        for node, pool in self._askable(first):
            try:
                (raw,) = Flight(pool, Parcel(SLOTS_QUESTION)).land()
                slots = slots_in(raw, node)
            except (LinkDown, RedisError, ValueError, TypeError) as failed:
                error = failed
            else:
                for others in self._take_over(slots):
                    others.disconnect(inuse_connections=False)
                return slots
        raise unanswered(error)

    def node(self, master: Address) -> redis.Redis:
        """A client of one master; its connections are closed with the others."""
        return redis.Redis(connection_pool=self.pool_of(master))

    def listening_pool(self) -> redis.ConnectionPool:
        """Connections to some node, another one each time, for subscriptions: a message reaches all nodes."""
        if not self.clustered:
            return self._pool
        return self._some_pool((self._slots or self.learn()).masters)

    def close(self) -> None:
        """Close all connections to masters."""
        for pool in list(self._pools.values()):
            pool.disconnect()

    def _fly(self, pipelines: Sequence[Pipeline], routing: Routing, slots: SlotMap, durability: Durability) -> None:
        """Send to all masters, then read from all: none waits for another."""
        parcels = [Parcel(pipeline.commands, durability) for pipeline in pipelines]
        flights: list[tuple[Pipeline, Flight]] = []
        try:
            for pipeline, parcel in zip(pipelines, parcels, strict=True):
                try:
                    self._require_alive(pipeline.master)
                    flights.append((pipeline, Flight(self.pool_of(pipeline.master), parcel)))
                except LinkDown as error:
                    self._fail(pipeline, routing, error)
            self._land(flights, routing, slots)
        finally:
            for _, flight in flights:
                flight.abandon()

    def _land(self, flights: list[tuple[Pipeline, Flight]], routing: Routing, slots: SlotMap) -> None:
        patience = None
        while flights:
            pipeline, flight = flights.pop(0)
            try:
                raws = flight.land(patience)
            except NotDurable as error:
                routing.lost(pipeline, error)
            except LinkDown as error:
                self._fail(pipeline, routing, error)
                # Whoever has not answered by now had as much time as the one that was waited for.
                patience = LATE_SECONDS
            else:
                self._outages.clear(pipeline.master)
                routing.answered(pipeline, raws, slots)

    def _fail(self, pipeline: Pipeline, routing: Routing, error: LinkDown) -> None:
        routing.lost(pipeline, error)
        if self._outages.failed(pipeline.master):
            self.pool_of(pipeline.master).disconnect(inuse_connections=False)

    def _require_alive(self, master: Address) -> None:
        """Raises LinkDown for one that failed a moment ago, or that fails the test which it has to pass after that."""
        if not self._outages.must_prove(master):
            return
        probe = self._pool_to(master, socket_timeout=PROBE_SECONDS, socket_connect_timeout=PROBE_SECONDS)
        try:
            Flight(probe, Parcel([["PING"]])).land()
        finally:
            probe.disconnect()

    def _learn_again(self, slots: SlotMap, first: Address | None) -> SlotMap:
        try:
            return self.learn(first)
        except LinkDown:
            return slots

    def _pool_to(self, node: Address, **settings: float) -> redis.ConnectionPool:
        tls = issubclass(self._pool.connection_class, redis.SSLConnection)
        return new_pool(
            connection_class=redis.SSLConnection if tls else redis.Connection,
            max_connections=self._pool.max_connections,
            **of_node(self._pool.connection_kwargs, node, **settings),
        )


# redis-py types some of these settings, and takes all from a mapping.
new_pool = cast(Callable[..., redis.ConnectionPool], redis.ConnectionPool)
_subscription = cast(Callable[..., PubSub], PubSub)


class StoreClient(redis.Redis):
    """A client of one server that may turn out to be a node of a cluster; closing it closes all its connections."""

    @cached_property
    def masters(self) -> Masters:
        """What is known of the cluster, if there is one."""
        return Masters(self.connection_pool)

    @classmethod
    def on(cls, pool: redis.ConnectionPool, seeds: Sequence[Address] = ()) -> StoreClient:
        """A client that owns this pool; several seeds mean a cluster."""
        client = cls(connection_pool=pool)
        client.auto_close_connection_pool = True
        client.masters = Masters(pool, seeds)
        return client

    def pubsub(self, **options: object) -> PubSub:
        """A subscription, in a cluster at any node that answers."""
        return _subscription(self.masters.listening_pool(), **options)

    def close(self) -> None:
        """Close all connections."""
        super().close()
        self.masters.close()
        manager = getattr(self.connection_pool, "sentinel_manager", None)
        if manager is not None:
            manager.close()


def masters_of(client: redis.Redis) -> Masters:
    """What is known of a client's cluster; links that share a client share it."""
    return client.masters if isinstance(client, StoreClient) else Masters(client.connection_pool)
