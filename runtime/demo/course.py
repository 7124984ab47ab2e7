"""The course of the demo: start orders, kill the worker, let budgets run out, repair, retry, and look at the log."""

from __future__ import annotations

import http.client
import time
from collections import Counter
from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from urllib.parse import urlsplit

import msgspec

from stepwell.client import Client
from stepwell.core.status import CANCELLED, COMPLETED, ERROR, PARKED, TERMINAL
from stepwell.demo import flows
from stepwell.demo.evidence import Evidence, Exhausted, Kill, order_seen
from stepwell.demo.ledger import read_effects, read_requests, tally
from stepwell.demo.processes import Child, DemoBroken
from stepwell.demo.screen import Screen

__all__ = ["Course", "Plan"]

POLL_SECONDS = 0.1
HANG_SECONDS = 180.0  # without any progress
HELD_MIN = 8  # a few more than must run at a kill
HELD_SECONDS = 60.0  # the receiver's gate and the requests themselves are more patient than that


@dataclass(frozen=True, slots=True)
class Plan:
    """What is to happen.

    Attributes:
        seed: decides what the receiver does to which request.
        orders: how many executions.
        kills: numbers of effects at which the worker is killed.
        module: where the worker finds the flow `order`.
    """

    seed: int = 7
    orders: int = 50
    kills: tuple[int, ...] = (30, 100)
    module: str = flows.__name__

    @property
    def effects(self) -> int:
        """How many side effects there are when all is done: one of each step."""
        return self.orders * len(flows.STEPS)


class Course:
    """One run of the demo in an empty directory. Use it in a `with` block: it ends every process it started. `check`
    is called between looks, and may raise."""

    def __init__(self, plan: Plan, home: Path, screen: Screen, check: Callable[[], None]) -> None:
        self._check = check
        self._plan = plan
        self._home = home
        self._screen = screen
        self._data = home / "data"
        self._ledger = home / "receiver.sqlite"
        self._orders = [f"order-{number:02d}" for number in range(1, plan.orders + 1)]
        self._kills: list[Kill] = []
        self._exhausted: list[Exhausted] = []
        self._retried: list[str] = []
        self._workers = 0
        self._stack = ExitStack()

    def __enter__(self) -> Course:
        return self

    def __exit__(self, *_: object) -> None:
        self._stack.close()

    def run(self) -> Evidence:
        """Go all the way. Raises DemoBroken (or another StepwellError) if it can't be gone."""
        self._receiver, self._url = self._start_receiver()
        # The embedded server outlives killed workers, as this client uses it too.
        self._client = self._stack.enter_context(Client(data_dir=self._data))
        self._worker = self._start_worker()
        kills = iter(self._plan.kills)
        self._hold_from(next(kills, None))
        for order in self._orders:
            self._client.start(flows.order_flow, {"order": order, "receiver": self._url}, order)
        self._screen.event(f"{len(self._orders)} orders started, of {len(flows.STEPS)} steps each")
        for effects in self._plan.kills:
            self._until(partial(self._has_effects, effects), f"{effects} side effects")
            self._kill_worker(next(kills, None))
        self._until(self._all_ended, "the end of every execution")
        self._retry_failed()
        self._until(self._all_completed, "the completion of every execution")
        seen = [order_seen(self._client.describe(order)) for order in self._orders]
        worker_exit = self._worker.stop()
        self._screen.event("all orders are completed; the worker was asked to stop")
        return Evidence(
            orders=self._orders,
            policies={step.name: step.retry for step in flows.STEPS},
            requests=read_requests(self._ledger),
            effects=read_effects(self._ledger),
            kills=self._kills,
            exhausted=self._exhausted,
            retried=self._retried,
            seen=seen,
            worker_exit=worker_exit,
        )

    def _start_receiver(self) -> tuple[Child, str]:
        steps = ",".join(step.name for step in flows.STEPS)
        arguments = ["--ledger", str(self._ledger), "--seed", str(self._plan.seed)]
        arguments += ["--orders", ",".join(self._orders), "--steps", steps]
        child = Child("receiver", "stepwell.demo.receiver", arguments, self._home / "receiver.log")
        self._stack.callback(child.kill)
        url = child.first_line()
        self._screen.event(f"a receiver with bad habits listens at {url}")
        return child, url

    def _start_worker(self) -> Child:
        self._workers += 1
        log = self._home / f"worker-{self._workers}.log"
        child = Child("worker", "stepwell.demo.work", [self._plan.module, "--data", str(self._data)], log)
        self._stack.callback(child.kill)
        child.first_line()
        self._screen.event(f"worker {self._workers} works (process {child.pid})")
        return child

    def _hold_from(self, effects: int | None) -> None:
        """Let the receiver hold requests from so many effects on: we may be slow to see them. None: let all go."""
        self._control("release" if effects is None else f"hold/{effects}")

    def _kill_worker(self, following: int | None) -> None:
        """SIGKILL the worker while the receiver holds requests of several steps; then start another. `following`: at
        how many effects that will be done again."""
        deadline = time.monotonic() + HELD_SECONDS
        while (held := self._control("held")) < HELD_MIN and time.monotonic() < deadline:
            self._pause()
        sent = time.monotonic()
        self._worker.kill()
        self._kills.append(Kill(sent, time.monotonic()))
        self._hold_from(following)
        self._screen.event(f"killed worker {self._workers} (SIGKILL) while the receiver held {held} requests")
        self._worker = self._start_worker()

    def _retry_failed(self) -> None:
        failed = [str(each["id"]) for each in self._client.list(status=ERROR, limit=self._plan.orders)]
        for order in sorted(failed):
            described = self._client.describe(order)
            where = (described["error"] or {}).get("failed_step") or {"path": "none", "attempts": 0}
            step = next((s for s in order_seen(described).steps if s.path == where["path"]), None)
            key, interruptions = (step.key, step.interruptions) if step is not None else ("", 0)
            self._exhausted.append(Exhausted(order, str(where["path"]), key, int(where["attempts"]), interruptions))
        names = ", ".join(f"{each.order} ({each.step})" for each in self._exhausted)
        self._screen.event(f"{len(failed)} executions used up a budget and ended in error: {names or 'none'}")
        self._control("repair")
        self._screen.event("the receiver was repaired; `retry` of each")
        for order in sorted(failed):
            outcome = self._client.retry(order, timeout=HANG_SECONDS)
            if outcome.applied:
                self._retried.append(order)

    def _statuses(self) -> Counter[str]:
        statuses = Counter(str(each["status"]) for each in self._client.list(limit=self._plan.orders))
        parked = [str(each["id"]) for each in self._client.list(status=PARKED, limit=1)] if statuses[PARKED] else []
        if parked:
            error = self._client.describe(parked[0])["error"] or {}
            raise DemoBroken(f"{parked[0]} is parked: {error.get('type')}: {error.get('message')}")
        return statuses

    def _has_effects(self, at_least: int) -> bool:
        return tally(self._ledger).effects >= at_least

    def _all_ended(self) -> bool:
        return sum(count for status, count in self._statuses().items() if status in TERMINAL) == len(self._orders)

    def _all_completed(self) -> bool:
        statuses = self._statuses()
        if statuses[ERROR] and self._all_ended():
            raise DemoBroken(f"{statuses[ERROR]} executions ended in error after they were retried")
        return statuses[COMPLETED] + statuses[CANCELLED] == len(self._orders)

    def _until(self, reached: Callable[[], bool], what: str) -> None:
        """Poll, and show how far it is. Raises DemoBroken if nothing happens for too long or a process has ended."""
        deadline = time.monotonic() + HANG_SECONDS
        before: object = None
        while not reached():
            self._receiver.require_alive()
            self._worker.require_alive()
            counted, statuses = tally(self._ledger), self._statuses()
            if (counted, statuses) != before:
                before, deadline = (counted, statuses), time.monotonic() + HANG_SECONDS
            shown = ", ".join(f"{statuses[status]} {status}" for status in sorted(statuses))
            self._screen.progress(
                counted.effects,
                self._plan.effects,
                f"requests {counted.requests}, answers lost {counted.resets}; orders: {shown}",
            )
            if time.monotonic() > deadline:
                raise DemoBroken(f"{what} did not come, and nothing happened for {HANG_SECONDS:g} s; orders: {shown}")
            self._pause()

    def _control(self, what: str) -> int:
        address = urlsplit(self._url)
        connection = http.client.HTTPConnection(address.hostname or "", address.port, timeout=HANG_SECONDS)
        try:
            connection.request("POST", f"/control/{what}")
            held: int = msgspec.json.decode(connection.getresponse().read(), type=dict[str, int])["held"]
        except OSError as error:
            self._receiver.require_alive()
            raise DemoBroken(f"the receiver does not answer: {error}") from error
        finally:
            connection.close()
        return held

    def _pause(self) -> None:
        self._check()
        time.sleep(POLL_SECONDS)
