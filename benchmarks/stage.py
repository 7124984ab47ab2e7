"""What every measurement stands on: an embedded server of its own, a worker in its own process, and their meters."""

from __future__ import annotations

import re
import shutil
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Any, Self

import redis

from benchmarks.host import Host
from benchmarks.load import Load
from stepwell.store.connect import connect
from stepwell.store.embedded import EmbeddedServer
from stepwell.store.keys import Keys
from stepwell.store.scripts import Scripts

__all__ = ["Measured", "Stage", "Usage", "count", "server_facts"]

OURS = frozenset({"info", "config|get", "config|set", "zcard"})  # what the meters themselves send
SHOWN = ("appendonly", "appendfsync", "maxmemory-policy", "save", "io-threads")


@dataclass(frozen=True, slots=True)
class Usage:
    """Readings of all meters; the difference of two is what happened between them.

    `sent` counts commands from connections, `inside` those that scripts ran, `scripts` the script calls among `sent`.
    """

    shard_cpu: float
    redis_cpu: float
    redis_memory: int
    bytes_in: int
    sent: int
    inside: int
    scripts: int

    def since(self, before: Usage) -> Usage:
        """What was used since then."""
        pairs = {name: getattr(self, name) - getattr(before, name) for name in self.__slots__}
        return Usage(**pairs)


@dataclass(frozen=True, slots=True)
class Measured:
    """What a load took and used."""

    executions: int
    steps: int
    seconds: float
    used: Usage

    @property
    def rate(self) -> float:
        """Steps a second."""
        return self.steps / self.seconds

    @property
    def shard_ms(self) -> float:
        """CPU of the shards, ms a step."""
        return self.used.shard_cpu / self.steps * 1000

    @property
    def redis_ms(self) -> float:
        """CPU of the server, ms a step."""
        return self.used.redis_cpu / self.steps * 1000


class Stage:
    """Server and worker in a directory that is removed afterwards. AOF, metrics and logs on.

    One shard in the worker's own process; with `shards` among the `settings`, so many processes under a parent.
    `appendfsync` is the server's setting.
    """

    def __init__(self, appendfsync: str = "everysec", **settings: float | str) -> None:
        self._settings = settings
        self._dir = Path(tempfile.mkdtemp(prefix="stepwell-bench-"))
        try:
            self._server = EmbeddedServer.use(self._dir / "data")
        except BaseException:
            shutil.rmtree(self._dir)
            raise
        self.url = self._server.url
        self.keys = Keys()
        self.scripts = Scripts()
        self.redis: redis.Redis = connect(self.url, client_name="stepwell-bench")
        self.redis.config_set("appendfsync", appendfsync)
        self._inner = frozenset(
            name.lower() for text in self.scripts.sources.values() for name in re.findall(r"redis\.call\('(\w+)'", text)
        )
        try:
            self.host = self._new_host()
        except BaseException:
            self._leave()
            raise

    def _new_host(self) -> Host:
        return Host(self.url, self._dir / "worker.log", self._settings)

    def restart(self) -> tuple[float, float]:
        """Stop the worker and start another one: when it was started and when it was ready, in seconds by the clock."""
        self.host.close()
        began = time.time()
        self.host = self._new_host()
        return began, time.time()

    def ended(self, execution_id: str, patience: float) -> dict[bytes, bytes]:
        """The row of an execution that has completed, or will within so many seconds."""
        deadline = time.monotonic() + patience
        while True:
            row: dict[bytes, Any] = self.redis.hgetall(self.keys.row(execution_id))
            if row[b"status"] == b"completed":
                return row
            if time.monotonic() > deadline:
                raise TimeoutError(f"execution {execution_id} is {row[b'status'].decode()} after {patience:g} s")
            time.sleep(0.05)

    def usage(self) -> Usage:
        """Read all meters."""
        info = self._info()
        calls = {
            name.removeprefix("cmdstat_"): int(stat["calls"])
            for name, stat in info.items()
            if name.startswith("cmdstat_") and name.removeprefix("cmdstat_") not in OURS
        }
        return Usage(
            shard_cpu=self.host.cpu_seconds(),
            redis_cpu=float(info["used_cpu_user"]) + float(info["used_cpu_sys"]),
            redis_memory=int(info["used_memory"]),
            bytes_in=int(info["total_net_input_bytes"]),
            sent=sum(n for name, n in calls.items() if name not in self._inner),
            inside=sum(n for name, n in calls.items() if name in self._inner),
            scripts=calls.get("evalsha", 0),
        )

    def load(self, flow: str, **input: object) -> Load:
        """What starts executions of a flow with this input."""
        return Load(self.url, self.keys, self.scripts, flow, input)

    def measure(self, load: Load, executions: int, in_flight: int, steps: int) -> Measured:
        """Run a load to its end, each execution of so many steps, and read the meters before and after."""
        before = self.usage()
        seconds = load.run(executions, in_flight)
        return Measured(executions, executions * steps, seconds, self.usage().since(before))

    def facts(self) -> dict[str, str]:
        """What server that is, and what is promised."""
        return server_facts(self.redis) | {"durability": str(self._settings.get("durability", "relaxed"))}

    def stream_bytes(self) -> int:
        """Memory of the streams of events, which are capped."""
        return sum([self.redis.memory_usage(part.events, samples=0) or 0 for part in self.keys.parts])

    def count(self, status: str) -> int:
        """Executions of a status."""
        return count(self.redis, self.keys, status)

    @contextmanager
    def spare_server(self) -> Iterator[str]:
        """The URL of a second server, empty and with the same settings, for as long as the block lasts."""
        with EmbeddedServer.use(self._dir / "spare") as server:
            yield server.url

    def close(self) -> None:
        """End the worker, then the server."""
        try:
            self.host.close()
        finally:
            self._leave()

    def _leave(self) -> None:
        self.redis.close()
        self._server.leave()
        shutil.rmtree(self._dir, ignore_errors=True)

    def _info(self) -> dict[str, Any]:
        found: dict[str, Any] = self.redis.info("everything")
        return found

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, tb: TracebackType | None) -> None:
        self.close()


def server_facts(client: redis.Redis) -> dict[str, str]:
    """Kind, version and settings of a server, for a result's facts."""
    info: dict[str, Any] = client.info("server")
    kind, version = ("Valkey", info.get("valkey_version")) if "valkey_version" in info else ("Redis", None)
    settings: Any = client.config_get(*SHOWN)
    known = {_text(name): _text(value) for name, value in settings.items()}
    shown = ", ".join(f"{name} {known[name] or 'off'}" for name in SHOWN if name in known)
    return {"server": f"{kind} {version or info['redis_version']}, unix socket", "settings": shown}


def _text(value: str | bytes) -> str:
    return value.decode() if isinstance(value, bytes) else value


def count(client: redis.Redis, keys: Keys, status: str) -> int:
    """Executions of a status, in one round trip."""
    pipeline = client.pipeline(transaction=False)
    for part in keys.parts:
        pipeline.zcard(part.by[status])
    return sum(pipeline.execute())
