"""Why no worker is seen at work."""

from __future__ import annotations

from stepwell.client.facts import NamespaceView
from stepwell.client.moves import Conversation, peek
from stepwell.core.advice import no_worker
from stepwell.core.errors import StoreError
from stepwell.store.memory import memory

__all__ = ["why_idle"]


def why_idle(view: NamespaceView) -> Conversation[str]:
    """A sentence with what to do; empty where a worker lives."""
    facts = yield from view.read()
    return "" if facts.workers else (yield from _unseen())


def _unseen() -> Conversation[str]:
    """The sentence for where no worker has shown a sign of life."""
    try:
        return no_worker((yield from peek(memory())))
    except StoreError:
        return no_worker(None)
