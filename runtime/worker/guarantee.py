"""Looks now and then whether the promises can still be kept: a server's settings may be changed while it runs."""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import Final

import redis

from stepwell.actors.store_events import GuaranteeSeen, StoreObserver
from stepwell.core.errors import StoreError
from stepwell.metrics.saying import say
from stepwell.store.check import check_server
from stepwell.store.durability import Durability
from stepwell.store.examination import topology_of
from stepwell.store.guarantees import Facts, judge, labels

__all__ = ["LOOK_SECONDS", "Guarantee"]

logger = logging.getLogger("stepwell.worker")
LOOK_SECONDS: Final = 60.0


class Guarantee:
    """What is in force, told to `observer` at the first look and whenever it has changed."""

    def __init__(
        self,
        client: redis.Redis,
        durability: Durability,
        probe_key: str,
        monotonic: Callable[[], float],
        observer: StoreObserver,
    ) -> None:
        self._client = client
        self._durability = durability
        self._probe_key = probe_key
        self._monotonic = monotonic
        self._observer = observer
        self._due = 0.0
        self._seen: dict[str, str] = {}
        self._told: set[str] = set()

    def look(self) -> None:
        """Ask the server, if the last answer is a minute old. Where it does not answer, what was seen last stays."""
        if self._monotonic() < self._due:
            return
        self._due = self._monotonic() + LOOK_SECONDS
        try:
            server = check_server(self._client, probe_key=self._probe_key)
        except StoreError as error:
            logger.debug("the server's settings can't be looked at: %s", error)
            return
        facts = Facts(server, self._durability, topology_of(self._client, server))
        found = labels(facts)
        if found != self._seen:
            self._seen = found
            self._observer(GuaranteeSeen(found))
        broken = {each.text for each in judge(facts) if each.level == "broken"}
        for text in sorted(broken - self._told):
            told = "a promise can't be kept any more: %s"
            say(logger, "GuaranteeSeen", told, text, level=logging.ERROR, kept="no", detail=text)
        self._told = broken
