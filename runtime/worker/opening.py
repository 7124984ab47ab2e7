"""What a worker does once before anything runs: check the server, open the namespace, keep a copy of its secret."""

from __future__ import annotations

import logging
import secrets
from collections.abc import Callable

import redis

from stepwell.store.check import check_server, require_fit
from stepwell.store.connect import connect
from stepwell.store.embedded import read_secret, write_secret
from stepwell.store.namespace import SECRET_BYTES, Namespace, open_namespace
from stepwell.worker.config import WorkerConfig
from stepwell.worker.shard import SOCKET_TIMEOUT_SECONDS

__all__ = ["connector", "open_store"]

logger = logging.getLogger("stepwell.worker")


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
            logger.warning("%s", warning)
        return _open_namespace(client, config)
    finally:
        client.close()


def _open_namespace(client: redis.Redis, config: WorkerConfig) -> Namespace:
    data_dir = config.address.data_dir
    kept = None if data_dir is None else read_secret(data_dir)
    namespace = open_namespace(
        client, config.namespace, config.partitions, kept, new_secret=lambda: secrets.token_bytes(SECRET_BYTES)
    )
    if data_dir is not None and kept is None:
        write_secret(data_dir, namespace.secret)
    return namespace
