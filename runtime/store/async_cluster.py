"""The asyncio twin of `cluster`."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from functools import cached_property, partial
from typing import cast

import redis.asyncio
from redis.asyncio.client import PubSub
from redis.exceptions import RedisError

from stepwell.store.async_flight import carry, fly
from stepwell.store.cluster import PROBE_SECONDS, SLOTS_QUESTION
from stepwell.store.durability import RELAXED, Durability
from stepwell.store.flight import LinkDown, NotDurable, Parcel
from stepwell.store.nodes import Nodes, of_node, slots_in, unanswered
from stepwell.store.requests import Command
from stepwell.store.routing import Pipeline, Routing
from stepwell.store.scripts import Scripts
from stepwell.store.slots import Address, SlotMap

__all__ = ["AsyncMasters", "AsyncStoreClient", "async_masters_of", "new_async_pool"]


class AsyncMasters(Nodes[redis.asyncio.ConnectionPool]):
    """Talks to the masters of a cluster, for the tasks of one event loop."""

    async def exchange(
        self, commands: Sequence[Command], scripts: Scripts, durability: Durability = RELAXED
    ) -> list[object]:
        """One raw reply per command, as `Masters.exchange` gives them."""
        slots = self._slots or await self.learn()
        routing = Routing(commands, scripts)
        while pipelines := routing.round(slots, self._outages.all):
            parcels = [Parcel(pipeline.commands, durability) for pipeline in pipelines]
            await asyncio.gather(*map(partial(self._fly, routing=routing, slots=slots), pipelines, parcels))
            if routing.moved or (routing.stale and self._outages.may_look()):
                slots = await self._learn_again(slots, routing.moved)
                routing.moved, routing.stale = None, False
        return routing.replies

    async def learn(self, first: Address | None = None) -> SlotMap:
        """Ask the first node that answers, beginning with `first`, who serves what. Raises LinkDown if none does."""
        error: Exception | None = None
        for node, pool in self._askable(first):
            try:
                (raw,) = await fly(pool, SLOTS_QUESTION)
                slots = slots_in(raw, node)
            except (LinkDown, RedisError, ValueError, TypeError) as failed:
                error = failed
            else:
                for others in self._take_over(slots):
                    await others.disconnect(inuse_connections=False)
                return slots
        raise unanswered(error)

    def listening_pool(self) -> redis.asyncio.ConnectionPool:
        """Connections to some node, another one each time, for subscriptions: a message reaches all nodes."""
        return self._some_pool(self._slots.masters if self._slots else ())

    async def close(self) -> None:
        """Close all connections to masters."""
        for pool in list(self._pools.values()):
            await pool.disconnect()

    async def _fly(self, pipeline: Pipeline, parcel: Parcel, routing: Routing, slots: SlotMap) -> None:
        master = pipeline.master
        try:
            await self._require_alive(master)
            raws = await carry(self.pool_of(master), parcel)
        except NotDurable as error:
            routing.lost(pipeline, error)
        except LinkDown as error:
            routing.lost(pipeline, error)
            if self._outages.failed(master):
                await self.pool_of(master).disconnect(inuse_connections=False)
        else:
            self._outages.clear(master)
            routing.answered(pipeline, raws, slots)

    async def _require_alive(self, master: Address) -> None:
        if not self._outages.must_prove(master):
            return
        probe = self._pool_to(master, socket_timeout=PROBE_SECONDS, socket_connect_timeout=PROBE_SECONDS)
        try:
            await fly(probe, [["PING"]])
        finally:
            await probe.disconnect()

    async def _learn_again(self, slots: SlotMap, first: Address | None) -> SlotMap:
        try:
            return await self.learn(first)
        except LinkDown:
            return slots

    def _pool_to(self, node: Address, **settings: float) -> redis.asyncio.ConnectionPool:
        tls = issubclass(self._pool.connection_class, redis.asyncio.SSLConnection)
        return new_async_pool(
            connection_class=redis.asyncio.SSLConnection if tls else redis.asyncio.Connection,
            max_connections=self._pool.max_connections,
            **of_node(self._pool.connection_kwargs, node, **settings),
        )


# redis-py types some of these settings, and takes all from a mapping.
new_async_pool = cast(Callable[..., redis.asyncio.ConnectionPool], redis.asyncio.ConnectionPool)
_subscription = cast(Callable[..., PubSub], PubSub)


class AsyncStoreClient(redis.asyncio.Redis):
    """The asyncio twin of `StoreClient`."""

    @cached_property
    def masters(self) -> AsyncMasters:
        """What is known of the cluster, if there is one."""
        return AsyncMasters(self.connection_pool)

    @classmethod
    def on(cls, pool: redis.asyncio.ConnectionPool, seeds: Sequence[Address] = ()) -> AsyncStoreClient:
        """A client that owns this pool; several seeds mean a cluster."""
        client = cls(connection_pool=pool)
        client.auto_close_connection_pool = True
        client.masters = AsyncMasters(pool, seeds)
        return client

    def pubsub(self, **options: object) -> PubSub:
        """A subscription, in a cluster at any node that answers."""
        return _subscription(self.masters.listening_pool(), **options)

    async def aclose(self, close_connection_pool: bool | None = None) -> None:
        """Close all connections."""
        await super().aclose(close_connection_pool)
        await self.masters.close()
        manager = getattr(self.connection_pool, "sentinel_manager", None)
        for sentinel in manager.sentinels if manager is not None else ():
            await sentinel.aclose()


def async_masters_of(client: redis.asyncio.Redis) -> AsyncMasters:
    """What is known of a client's cluster; links that share a client share it."""
    return client.masters if isinstance(client, AsyncStoreClient) else AsyncMasters(client.connection_pool)
