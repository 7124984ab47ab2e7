"""What a worker does once before anything runs: check the server, open the namespace, keep a copy of its secret."""

from __future__ import annotations

import logging
import secrets
from collections.abc import Callable
from typing import Final

import redis

from stepwell.client.address import Place
from stepwell.core.errors import StoreError
from stepwell.core.redact import redact_url
from stepwell.metrics.saying import say
from stepwell.store.check import ServerFacts, check_server, require_fit
from stepwell.store.connect import connect
from stepwell.store.durability import Durability, require_durable, slow_mode
from stepwell.store.embedded import read_secret, write_secret
from stepwell.store.leases import TTL_MS
from stepwell.store.namespace import SECRET_BYTES, Namespace, open_namespace
from stepwell.store.troubles import kind_of
from stepwell.worker.config import WorkerConfig
from stepwell.worker.naming import WorkerName

__all__ = ["Station", "connector", "open_store"]

logger = logging.getLogger("stepwell.worker")
SOCKET_TIMEOUT_SECONDS: Final = TTL_MS / 1000 * 0.3


def connector(url: str) -> Callable[[str], redis.Redis]:
    """Makes clients of that server, each with a name that `CLIENT LIST` shows."""
    return lambda name: connect(url, socket_timeout=SOCKET_TIMEOUT_SECONDS, client_name=f"stepwell-{name}")


def open_store(connect_as: Callable[[str], redis.Redis], config: WorkerConfig) -> Namespace:
    """Check the server and open the namespace, made new where there is none.

    Raises:
        StoreError: it can't be reached, or can't keep the promises.
    """
    client = connect_as("start")
    try:
        facts = check_server(client)
        require_fit(facts)
        for warning in facts.warnings:
            say(logger, "GuaranteeSeen", "%s", warning, level=logging.WARNING, detail=warning)
        if config.durability is not None:
            _require(config.durability, facts)
        namespace = _open_namespace(client, config)
        _require(namespace.durability, facts)
        for slow in {slow_mode(namespace.durability, each) for each in facts.servers} - {""}:
            say(logger, "GuaranteeSeen", "%s", slow, level=logging.WARNING, detail=slow)
        return namespace
    finally:
        client.close()


def _require(durability: Durability, facts: ServerFacts) -> None:
    for server in facts.servers:
        require_durable(durability, server)


class Station:
    """A worker's hold on its server and its name, from its start to its end.

    Raises:
        UsageError: the data directory or the name can't be used.
        StoreUnreachable: there is no embedded server, and none can be started.
    """

    def __init__(self, config: WorkerConfig) -> None:
        self._place = Place(config.address)
        self._where = config.address.data_dir
        try:
            self._name = WorkerName(config.worker_id, config.address.data_dir)
        except BaseException:
            self._place.leave()
            raise

    @property
    def url(self) -> str:
        """The server's URL."""
        return self._place.url

    @property
    def worker_id(self) -> str:
        """What the worker is called."""
        return self._name.id

    @property
    def where(self) -> str:
        """The server, for people: without credentials."""
        return redact_url(self.url) if self._where is None else f"embedded in {self._where}"

    def revive(self) -> bool:
        """The embedded server may have died: whoever uses it starts it again. Whether its URL has changed."""
        try:
            return self._place.revive()
        except StoreError as error:
            told = "the embedded server could not be started again: %s"
            say(logger, "StoreTrouble", told, error, part="server", kind=kind_of(error))
            return False

    def leave(self) -> None:
        """Let go of both. Leaving twice is harmless."""
        self._name.leave()
        self._place.leave()


def _open_namespace(client: redis.Redis, config: WorkerConfig) -> Namespace:
    data_dir = config.address.data_dir
    kept = None if data_dir is None else read_secret(data_dir)
    namespace = open_namespace(
        client,
        config.namespace,
        config.partitions,
        kept,
        new_secret=lambda: secrets.token_bytes(SECRET_BYTES),
        durability=config.durability,
    )
    if data_dir is not None and kept is None:
        write_secret(data_dir, namespace.secret)
    return namespace
