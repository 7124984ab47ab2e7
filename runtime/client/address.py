"""Where the data are: a Redis URL, or the data directory of an embedded server."""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from stepwell.core.errors import UsageError
from stepwell.core.redact import redact_url
from stepwell.store.durability import Durability, parse_durability
from stepwell.store.embedded import DEFAULT_DATA_DIR, EmbeddedServer

__all__ = ["DURABILITY_VARIABLE", "Address", "Place", "promised", "resolve"]

_URL = re.compile(r"[a-z][a-z+]+:/", re.IGNORECASE)
URL_VARIABLE = "STEPWELL_REDIS_URL"
DATA_VARIABLE = "STEPWELL_DATA"
DURABILITY_VARIABLE = "STEPWELL_DURABILITY"


@dataclass(frozen=True, slots=True)
class Address:
    """Exactly one of the two: the URL of a server, or the directory whose embedded server is used."""

    url: str | None = None
    data_dir: Path | None = None


def resolve(
    url: str | None = None, data_dir: str | Path | None = None, environment: Mapping[str, str] | None = None
) -> Address:
    """What is given, else `STEPWELL_REDIS_URL`, else the embedded server of `STEPWELL_DATA` or `./.stepwell`.

    Raises UsageError where both are given.
    """
    known = os.environ if environment is None else environment
    if url is not None and data_dir is not None:
        raise UsageError("give either the URL of a Redis server or the data directory of an embedded one, not both")
    if url is not None:
        return Address(url=url)
    if data_dir is not None:
        return Address(data_dir=_folder(data_dir))
    if known.get(URL_VARIABLE):
        return Address(url=known[URL_VARIABLE])
    return Address(data_dir=_folder(known.get(DATA_VARIABLE) or DEFAULT_DATA_DIR))


def _folder(given: str | Path) -> Path:
    """Its path. Raises UsageError for a URL: as a path it would be shown with its password."""
    if _URL.match(str(given)):
        raise UsageError(
            f"the data directory is a folder, and {redact_url(str(given))} is a URL: give it as that of a Redis server"
        )
    return Path(given).absolute()


def promised(
    text: str | None = None, replicas: int | None = None, environment: Mapping[str, str] | None = None
) -> Durability | None:
    """When a write counts as acknowledged: as given, else `STEPWELL_DURABILITY`; None: as the namespace has it.

    Raises UsageError for what is no mode.
    """
    known = os.environ if environment is None else environment
    named = text or known.get(DURABILITY_VARIABLE) or ("replicated" if replicas is not None else "")
    return parse_durability(named, replicas) if named else None


class Place:
    """An address in use: it keeps the embedded server, where there is one, running until it is left."""

    def __init__(self, address: Address) -> None:
        self._server = None if address.data_dir is None else EmbeddedServer.use(address.data_dir)
        self.url = address.url or (self._server.url if self._server else "")

    def revive(self) -> bool:
        """Start the embedded server again if it died; whether its URL has changed."""
        if self._server is None:
            return False
        before, self.url = self.url, self._server.revive()
        return self.url != before

    def leave(self) -> None:
        """Stop using it; the last user of an embedded server stops it. Leaving twice is harmless."""
        if self._server is not None:
            self._server.leave()
