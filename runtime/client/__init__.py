"""What callers use: start executions, wait for results, look at them, send them commands."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from stepwell.client.async_client import AsyncClient
    from stepwell.client.client import Client
    from stepwell.client.commanding import CommandResult
    from stepwell.client.searching import Page
    from stepwell.store.events import Gap, Seen

__all__ = ["AsyncClient", "Client", "CommandResult", "Gap", "Page", "Seen"]

_LATE = {
    "AsyncClient": "stepwell.client.async_client",
    "Client": "stepwell.client.client",
    "CommandResult": "stepwell.client.commanding",
    "Gap": "stepwell.store.events",
    "Page": "stepwell.client.searching",
    "Seen": "stepwell.store.events",
}


def __getattr__(name: str) -> object:
    # Workers use single modules of this package, and no client.
    from importlib import import_module

    if name in _LATE:
        return getattr(import_module(_LATE[name]), name)
    raise AttributeError(f"module 'stepwell.client' has no attribute {name!r}")
