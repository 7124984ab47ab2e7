"""What callers use: start executions, wait for results, look at them, send them commands."""

from __future__ import annotations

from stepwell.client.async_client import AsyncClient
from stepwell.client.client import Client
from stepwell.client.commanding import CommandResult
from stepwell.client.searching import Page
from stepwell.store.events import Gap, Seen

__all__ = ["AsyncClient", "Client", "CommandResult", "Gap", "Page", "Seen"]
