"""Load: keeps so many executions in flight, cheaply, from a process that is not measured.

Creations go out in batches and ends are heard on one subscription. What the client library costs is measured by
`latency`.
"""

from __future__ import annotations

import itertools
import time
from collections.abc import Iterator, Mapping

import hiredis
import msgspec

from benchmarks.bare import Bare
from stepwell.client.starting import input_hash
from stepwell.core.records import Meta, encode
from stepwell.store.flight import pack
from stepwell.store.keys import Keys
from stepwell.store.requests import Command, Create
from stepwell.store.scripts import Scripts

__all__ = ["Load"]

BATCH = 64


class Load:
    """Starts executions of one flow on the server of `url`."""

    _runs = itertools.count(1)

    def __init__(self, url: str, keys: Keys, scripts: Scripts, flow: str, input: Mapping[str, object]) -> None:
        self._keys = keys
        self._scripts = scripts
        self._flow = flow
        self._input = msgspec.json.encode(dict(input))
        self._hash = input_hash(flow, self._input)
        self._url = url
        self.latest = ""
        """The execution that was created last."""

    def run(self, count: int, in_flight: int) -> float:
        """Let `count` executions run to their end, `in_flight` at a time; the seconds that took.

        Raises:
            RuntimeError: one could not be created, or did not complete.
            TimeoutError: none ended for a minute.
        """
        ids = self._ids(count)
        with Bare(self._url) as sending, Bare(self._url) as hearing:
            hearing.call("PSUBSCRIBE", "*:ended:*")
            began = time.perf_counter()
            self._create(sending, list(itertools.islice(ids, in_flight)))
            ended = 0
            while ended < count:
                news = hearing.ready()
                ended += len(news)
                for message in news:
                    self._expect_completed(message)
                self._create(sending, list(itertools.islice(ids, len(news))))
            return time.perf_counter() - began

    def create(self, count: int) -> list[str]:
        """Create `count` executions and wait for none; their ids."""
        ids = list(self._ids(count))
        with Bare(self._url) as sending:
            self._create(sending, ids)
        return ids

    def _ids(self, count: int) -> Iterator[str]:
        run = next(self._runs)
        return (f"{self._flow}-{run}-{number}" for number in range(count))

    def _create(self, sending: Bare, ids: list[str]) -> None:
        for start in range(0, len(ids), BATCH):
            chunk = ids[start : start + BATCH]
            self.latest = chunk[-1]
            for reply in sending.batch(pack([self._command(execution_id) for execution_id in chunk]), len(chunk)):
                if reply != [b"CREATED"]:
                    raise RuntimeError(f"an execution could not be created: the server answered {reply!r:.200}")

    def _command(self, execution_id: str) -> Command:
        now = time.time_ns() // 1_000_000
        fields = [("meta", encode(Meta(self._flow, now, self._hash))), ("input", self._input)]
        return Create(execution_id, self._flow, self._hash, now, fields).args(self._keys, self._scripts)

    def _expect_completed(self, message: object) -> None:
        if isinstance(message, hiredis.ReplyError) or not isinstance(message, list) or message[-1] != b"completed":
            raise RuntimeError(f"expected an execution to complete, the server told {message!r:.200}")
