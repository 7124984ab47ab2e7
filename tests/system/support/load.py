"""A scripted load: what of each kind of failure, retry, wait and end happens, so that every metric has something."""

from __future__ import annotations

import os
import signal
from typing import Any

from system.support.prometheus import Prometheus
from system.support.stage import SUPPORT, Stage, WorkerProcess
from system.support.told import ToldReceiver

from stepwell import Client

FLOWS = SUPPORT / "asked.py"
SHARDS = 2
PARTITIONS = 64

# Flow, how many executions, and what their step does at each attempt.
PLANS: tuple[tuple[str, int, list[str]], ...] = (
    ("asked", 20, ["ok"]),
    ("asked", 8, ["error", "ok"]),
    ("asked", 4, ["error", "error", "ok"]),
    ("asked", 3, ["error"]),
    ("asked", 2, ["fatal"]),
    ("asked", 2, ["unfit"]),
    ("asked", 3, ["later", "ok"]),
    ("asked_in_time", 3, ["hang", "ok"]),
    ("asked_in_time", 1, ["hang"]),
    ("asked_once_in_time", 2, ["hang"]),
    ("asked_on_a_thread", 4, ["ok"]),
    ("asked_on_a_thread", 3, ["error", "ok"]),
    ("asked_on_a_thread", 2, ["error"]),
    ("asked_on_a_thread", 2, ["hold"]),
    ("asked_apart", 1, ["crash", "ok"]),
    ("asked_apart", 1, ["hold"]),
)
HERE = frozenset({"asked_to_rest", "asked_to_wait", *(flow for flow, *_ in PLANS)})
"""All flows that the worker has."""
BROUGHT_BACK = ["error", "error", "error", "error", "ok"]
"""It fails at its last attempt, and works when a person has brought it back."""
RESTING = ["error", "ok"]
HELD, RESTED, AWAITED = 3, 4, 3
"""How many go on in the middle of it: bodies that are held, executions that back off, that wait for a signal."""


class Load:
    """`begin` brings the worker into the middle of it, `end` to its end: then nothing runs or waits any more."""

    def __init__(self, stage: Stage, receiver: ToldReceiver) -> None:
        self.stage = stage
        self.receiver = receiver
        self.ids: list[str] = []
        self.worker: WorkerProcess

    def start_worker(self) -> WorkerProcess:
        """A worker of two shards that own all partitions."""
        self.worker = self.stage.worker("--shards", str(SHARDS), flows=FLOWS).ready()
        self.stage.eventually(lambda: len(self.worker.shards) == SHARDS, "all shards run")
        return self.worker

    def lose_a_shard(self, prometheus: Prometheus) -> None:
        """Kill an idle one, and wait until another one runs in its place and what it owned was seen to."""
        os.kill(self.worker.shards[0], signal.SIGKILL)
        prometheus.wait_until('sum(stepwell_shard_restarts_total{cause="killed"})', 1)
        self.settle(prometheus)

    def settle(self, prometheus: Prometheus) -> None:
        """Wait until all shards run and have their shares: nothing is about to move from one to another, which would
        wake up what waits."""
        prometheus.wait_until('sum(stepwell_shards{state="running"})', SHARDS)
        prometheus.wait_until("sum(stepwell_leases_held)", PARTITIONS)
        prometheus.wait_until("count(stepwell_leases_held > 0)", SHARDS)
        self.stage.eventually(self.stage.settled, "all shards own their shares")

    def begin(self) -> None:
        """Start all; when it returns, only those go on that are held, rest, wait, or are parked."""
        held = set()
        with self.stage.client() as client, self.stage.server() as server:
            for flow, count, plan in PLANS:
                for _ in range(count):
                    name = self._start(client, flow, {"url": self.receiver.url, "plan": plan})
                    held |= {name} if plan == ["hold"] else set()
            for _ in range(2):
                self._start(client, "asked", {"url": self.receiver.url, "plan": BROUGHT_BACK}, "back")
            for _ in range(RESTED):
                self._start(client, "asked_to_rest", {"url": self.receiver.url, "plan": RESTING}, "rest")
            for _ in range(2):
                self._start(client, "asked_to_wait", {}, "wait")
            client.start("asked_of_nobody", {}, "parked", unchecked=True)
            self.ids.append("parked")
            server.xadd("stepwell:ingress", {"type": "start", "flow": "asked_to_wait", "id": "ingress", "input": "{}"})
            self.ids.append("ingress")
            server.xadd("stepwell:ingress", {"type": "no such type"})
            waits = {f"rest-{number}" for number in range(RESTED)} | {"wait-0", "wait-1", "ingress"}
            assert (len(held), len(waits)) == (HELD, RESTED + AWAITED)
            amid = {"running": held, "waiting": waits, "parked": {"parked"}}
            self.stage.eventually(lambda: self._only(client, amid), f"only these go on: {amid}")

    def end(self) -> None:
        """Let go of all, and wait for the end of all."""
        self.receiver.release.set()
        with self.stage.client() as client:
            assert client.retry("rest-0").applied
            assert client.retry("rest-1").applied
            assert client.cancel("rest-2").applied
            assert client.cancel("rest-3").applied
            for name in ("wait-0", "wait-1", "ingress"):
                assert client.signal(name, "go").applied
            assert client.cancel("parked").applied
            for name in ("back-0", "back-1"):
                assert client.retry(name).applied
            for _ in range(5):  # so that what there was before grows, too
                self._start(client, "asked", {"url": self.receiver.url, "plan": ["error", "ok"]})
            [letter] = client.dead_letters()
            client.drop_letter(letter["id"])
            self.stage.eventually(lambda: self._only(client, {}), "all have ended")

    def rows(self) -> dict[str, dict[str, bytes]]:
        """What is recorded of each execution."""
        return self.stage.rows(self.ids)

    def _start(self, client: Client, flow: str, given: dict[str, Any], name: str = "") -> str:
        name = f"{name or flow}-{sum(each.startswith(f'{name or flow}-') for each in self.ids)}"
        client.start(flow, given, name)
        self.ids.append(name)
        return name

    def _only(self, client: Client, going_on: dict[str, set[str]]) -> bool:
        """Whether these have these statuses and all others have ended. Lists that are read one after the other may
        both lack what moves from one to the other, but nothing leaves those of what has ended."""

        def listed(*statuses: str) -> set[str]:
            return {each["id"] for status in statuses for each in client.list(status, limit=1000)}

        ended = listed("completed", "error", "cancelled")
        named = set().union(*going_on.values())
        return ended == set(self.ids) - named and all(listed(status) == ids for status, ids in going_on.items())
