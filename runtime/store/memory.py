"""How full the server is, as it tells."""

from __future__ import annotations

from stepwell.core.fullness import Memory
from stepwell.store.queries import Query, Raws
from stepwell.store.replies import Broken, Refused, text
from stepwell.store.requests import Command

__all__ = ["INFO", "memory", "memory_of"]

INFO: Command = ["INFO", "memory"]


def memory() -> Query[Memory | None]:
    """To be peeked at: None where the server has no limit, or does not tell (not every user may ask)."""

    def parse(raws: Raws) -> Memory | None:
        try:
            return None if isinstance(raws[0], Broken | Refused) else memory_of(raws[0])
        except (KeyError, ValueError):
            return None

    return Query([INFO], parse)


def memory_of(raw: object) -> Memory | None:
    """What a reply to `INFO` says; None where there is no limit. Raises ValueError or KeyError where it is none."""
    told = dict(line.split(":", 1) for line in text(raw).split() if ":" in line)
    limit = int(told.get("maxmemory", "0"))
    return Memory(int(told["used_memory"]), limit) if limit else None
