"""After a storm of failures that was planned attempt by attempt, every number is what plan, receiver and rows say."""

from __future__ import annotations

import json
import os
import random
import signal
import time
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Any

import pytest
from system.support import fate_plans
from system.support.fate_plans import Planned, coarse, late_starts, tally_of_plan, tally_of_record
from system.support.fates import Asked, FateReceiver
from system.support.scrapes import Scraper, looks_like_an_id, page_of
from system.support.stage import CLOCK_MOVES_MS, HANG_SECONDS, KEYS, SUPPORT, Stage
from tally.levels import ABSENT_AT_REST, OF_WORK
from tally.numbers import Numbers, Tally, differences
from tally.page import ACCEPTS, label_values, numbers_of
from tally.rows import TOLD_BY_ROWS, lateness_of, tally_of

from stepwell import Client, CommandRefused, ExecutionCancelled, ExecutionFailed
from stepwell.actors.runner.processes import LANE_SIZE
from stepwell.metrics import instruments as i
from stepwell.metrics.instruments import Instrument
from stepwell.store.inbox import InboxStore
from stepwell.store.scripts import Scripts

FLOWS = SUPPORT / "fated.py"
SEED = int(os.environ.get("STEPWELL_TEST_STORM_SEED", "20261130"))
HERE = frozenset({"route", "detour", "abreast", "talk", "fickle"})
NOWHERE = "nowhere"
TOLD_BY_PLAN = (
    i.STEP_ATTEMPTS,
    i.STEP_RETRIES_SCHEDULED,
    i.STEP_FAILURES,
    i.STEP_CRASHES,
    i.STEP_ATTEMPTS_LEFT,
    i.STEP_ATTEMPTS_TO_SUCCESS,
    i.EXECUTIONS_ENDED,
    i.BACKOFFS_ABANDONED,
)
TOLD_BY_HELPERS = (i.COMMANDS, i.EXECUTIONS_PARKED, i.DEAD_LETTERED, i.DUPLICATES_SUPPRESSED)


class Storm:
    """A worker with two shards, a receiver that knows a plan, and whoever helps executions that need it."""

    def __init__(self, stage: Stage, receiver: FateReceiver, client: Client, plan: Sequence[Planned]) -> None:
        self.stage = stage
        self.receiver = receiver
        self.client = client
        self.plan = plan
        self.worker = stage.worker("--shards", "2", "--processes", "16", flows=FLOWS).ready()
        stage.eventually(stage.settled, "both shards own their shares")
        self.expected = tally_of_plan(plan)
        self.by_id = {each.id: each for each in plan}
        self.extra: set[str] = set()  # executions that are in no plan

    # What people do.

    def start(self, plan: Iterable[Planned]) -> None:
        for each in plan:
            self.client.start(each.flow, {"url": self.receiver.url, "steps": each.input}, each.id)

    def end(self, execution: str, status: str) -> None:
        """Wait until it has ended so."""
        try:
            self.client.result(execution, timeout=HANG_SECONDS)
            found = "completed"
        except ExecutionFailed:
            found = "error"
        except ExecutionCancelled:
            found = "cancelled"
        assert found == status, f"{execution}: {self.client.describe(execution)}"

    def end_all(self, plan: Iterable[Planned]) -> None:
        for each in plan:
            self.end(each.id, each.ends[-1])

    def retry(self, execution: str) -> None:
        assert self.client.retry(execution, timeout=HANG_SECONDS).applied
        self.expected.count(i.COMMANDS, "retry", "applied")

    def cancel(self, execution: str) -> None:
        assert self.client.cancel(execution, timeout=HANG_SECONDS).applied
        self.expected.count(i.COMMANDS, "cancel", "applied")

    def signal(self, execution: str) -> None:
        assert self.client.signal(execution, "go", timeout=HANG_SECONDS).applied
        self.expected.count(i.COMMANDS, "signal", "applied")

    def refused(self, verb: str, act: Callable[[], Any]) -> None:
        with pytest.raises(CommandRefused):
            act()
        self.expected.count(i.COMMANDS, verb, "refused")

    def backs_off(self, execution: str, attempt: int, path: str = "patient") -> None:
        """Wait until its step waits for that attempt."""

        def waits() -> bool:
            found = self.client.describe(execution)["open"].get(path, {})
            return (found.get("status"), found.get("attempt")) == ("backoff", attempt)

        self.stage.eventually(waits, f"{execution} backs off before attempt {attempt}")

    def help_all(self) -> None:
        """All that the executions of `helped` need."""
        self.help_the_failed()
        self.help_the_waiting()
        self.receiver.release("cancelled")
        for name in ("cancelled-resting", "cancelled-running", "cancelled-at-work"):
            self.end(name, "cancelled")
        for each in fate_plans.helped():
            self.end(each.id, each.ends[-1])
        self.refused("retry", lambda: self.client.retry("hurried-up"))
        self.refused("cancel", lambda: self.client.cancel("talker"))
        self.refused("signal", lambda: self.client.signal("hurried-up", "go"))

    def help_the_failed(self) -> None:
        # The other one backs off for a moment, too: it must not fail for good before this one rests.
        self.backs_off("sibling", 2, "gather.0/patient")
        self.receiver.release("sibling")
        for each in fate_plans.helped():
            for _ in range(each.ends.count("error") - (each.ends[-1] == "error")):
                self.end(each.id, "error")
                self.retry(each.id)
                if each.ends.count("error") > 1:
                    self.stage.eventually(lambda each=each: self.ran(each) > 1, f"{each.id} goes on")

    def ran(self, each: Planned) -> int:
        return max((asked.attempt for asked in self.receiver.record if asked.execution == each.id), default=0)

    def help_the_waiting(self) -> None:
        for attempt in (2, 3):
            self.backs_off("hurried-up", attempt)
            self.retry("hurried-up")
        self.backs_off("cancelled-resting", 2)
        for name in ("cancelled-running", "cancelled-at-work"):
            self.stage.eventually(
                lambda name=name: any(asked.execution == name for asked in self.receiver.held("cancelled")),
                f"{name} is at work",
            )
        for name in ("cancelled-resting", "cancelled-running", "cancelled-at-work"):
            self.cancel(name)
        if not self.expected.counts[i.COMMANDS]["signal", "applied"]:
            for _ in range(3):
                self.signal("talker")

    def park(self, size: int) -> None:
        """Executions of a flow that nobody has: parked, and cancelled there."""
        names = [f"lost-{number}" for number in range(size)]
        for name in names:
            self.client.start(NOWHERE, {}, name, unchecked=True)
            self.extra.add(name)
            self.expected.count(i.EXECUTIONS_PARKED, "other", "not deployed here")
            self.expected.count(i.EXECUTIONS_ENDED, "other", "cancelled")
        for name in names:
            self.stage.eventually(lambda name=name: self.client.describe(name)["status"] == "parked", f"{name} parks")
            self.cancel(name)

    def repeat(self, execution: str) -> None:
        """Send a command twice under one id, a start of what there is, and an entry that nobody understands."""
        given = {"url": self.receiver.url, "steps": self.by_id[execution].input}
        start = {"type": "start", "flow": self.by_id[execution].flow, "id": execution, "input": json.dumps(given)}
        entry = {"type": "cancel", "execution": execution, "command": "twice", "data": b"{}", "at": 0, "v": "1"}
        partition = KEYS.partition_of(execution)
        with self.stage.server() as server:
            store = InboxStore(server, KEYS, Scripts())
            for fields in (entry, entry, {"type": "cancel", "odd": "entry"}):
                store.send(partition, dict(fields))
            server.xadd(KEYS.ingress, start)
        self.expected.count(i.DUPLICATES_SUPPRESSED, "start")
        self.expected.count(i.COMMANDS, "cancel", "refused")
        self.expected.count(i.DUPLICATES_SUPPRESSED, "command")
        self.expected.count(i.DEAD_LETTERED, "malformed")
        self.stage.eventually(lambda: self.client.dead_letters(), "the odd entry is a dead letter")

    # What must come out.

    def numbers(self, accept: str = ACCEPTS[0]) -> Numbers:
        return numbers_of(page_of(self.worker, accept))

    def rows(self) -> dict[str, dict[str, bytes]]:
        return self.stage.rows([*self.by_id, *self.extra])

    def settle(self, known: Tally, instruments: Iterable[Instrument]) -> Numbers:
        """Wait until the page shows what is known: it is told after what it tells of."""
        deadline = time.monotonic() + HANG_SECONDS
        while True:
            shown = self.numbers()
            wrong = differences(known, shown, instruments)
            if not wrong:
                return shown
            assert time.monotonic() < deadline, "\n".join(wrong)
            time.sleep(0.05)

    def check(self, interrupted: Counter[tuple[str, ...]] | None = None) -> None:
        """Plan, receiver, rows and both formats of the page agree; all levels are 0 again."""
        for labels, times in (interrupted or {}).items():
            self.expected.count(i.STEP_ATTEMPTS, *labels, "interrupted", n=times)
        rows = tally_of(self.rows(), HERE)
        assert coarse(rows) == tally_of_record(self.receiver.record) == coarse(self.expected)
        self.settle(rows, TOLD_BY_ROWS)
        shown = self.settle(self.expected, TOLD_BY_PLAN)
        assert not differences(rows, self.numbers(ACCEPTS[1]), TOLD_BY_ROWS), "the other format agrees"
        self.check_wakeups(shown)
        self.check_lateness(shown)
        self.check_levels()

    def check_wakeups(self, shown: Numbers) -> None:
        wanted = self.expected.counts[i.RETRY_WAKEUPS]
        found = shown.counts[i.RETRY_WAKEUPS]
        assert found.get(("manual",), 0) == wanted["manual",]
        assert sum(found.values()) == wanted.total(), "every backoff ended once"
        scheduled = shown.count(i.STEP_RETRIES_SCHEDULED)
        assert scheduled == sum(found.values()) + shown.count(i.BACKOFFS_ABANDONED)

    def check_lateness(self, shown: Numbers) -> None:
        later = {asked.name for asked in self.receiver.record if asked.attempt > 1}
        assert shown.spreads[i.RETRY_LATENESS][()].count == len(later) == late_starts(self.plan)

    def check_how_late(self, shown: Numbers, by_hand: int) -> None:
        """Bucket by bucket, but for those bodies of which the rows do not tell: a person has started them."""
        is_so = shown.spreads[i.RETRY_LATENESS][()].buckets
        should = lateness_of(self.rows().values(), CLOCK_MOVES_MS).spreads(i.RETRY_LATENESS)[()].buckets
        beyond = [found - known for found, known in zip(is_so, should, strict=True)]
        assert min(beyond) >= 0, beyond
        assert sum(beyond) == by_hand

    def check_levels(self) -> None:
        """Those that are counted every few seconds come down by and by; of leases, one that is just handed over to a
        shard that was started again is nobody's for a moment."""
        errors = sum(each.ends[-1] == "error" for each in self.plan)

        def left() -> dict[str, Any]:
            shown = self.numbers().levels
            found: dict[str, Any] = {
                f"{gauge.name}{labels}": value
                for gauge, levels in shown.items()
                for labels, value in levels.items()
                if gauge in OF_WORK and value != (errors if labels == ("error",) else 0)
            }
            found |= {gauge.name: shown[gauge] for gauge in ABSENT_AT_REST & shown.keys()}
            if sum(shown[i.LEASES_HELD].values()) != KEYS.partitions:
                found[i.LEASES_HELD.name] = shown[i.LEASES_HELD]
            if shown[i.SHARDS]["running",] != 2:
                found[i.SHARDS.name] = shown[i.SHARDS]
            return found

        deadline = time.monotonic() + HANG_SECONDS
        while left():
            assert time.monotonic() < deadline, left()
            time.sleep(0.1)

    def drop_letters(self) -> None:
        for letter in self.client.dead_letters():
            self.client.drop_letter(letter["id"])


def storm_plan() -> list[Planned]:
    return [*fate_plans.catalogue(), *fate_plans.crowd(random.Random(SEED), 30), *fate_plans.helped()]


@pytest.mark.pain(42)
def test_after_a_storm_every_number_is_what_plan_receiver_and_rows_say(stage: Stage) -> None:
    plan = storm_plan()
    with FateReceiver(fate_plans.fates_of(plan)) as receiver, stage.client() as client:
        storm = Storm(stage, receiver, client, plan)
        with Scraper(storm.worker):
            storm.start(plan)
            storm.park(3)
            storm.help_all()
            storm.repeat("talker")
            storm.drop_letters()
            storm.end_all(plan)
            storm.check()
            pages = [page_of(storm.worker, accept) for accept in ACCEPTS]
        # A server that is held up answers too late, and what was sent to it is sent again.
        again = int(storm.numbers().count(i.DUPLICATES_SUPPRESSED, kind="commit"))
        storm.expected.count(i.DUPLICATES_SUPPRESSED, "commit", n=again)
        shown = storm.settle(storm.expected, TOLD_BY_HELPERS)
        storm.check_how_late(shown, fate_plans.begun_by_hand(plan))
        assert not [value for value in label_values(pages) if looks_like_an_id(value)]


class KilledStorm(Storm):
    """The same with a shard that is killed while attempts are in flight, all of them known."""

    GATES = ("storm", "cancelled", "sibling")

    def in_flight(self) -> set[Asked]:
        """Attempts that the receiver holds."""
        return {asked for gate in self.GATES for asked in self.receiver.held(gate)}

    def wait_for_calm(self) -> None:
        """All that needs nobody has ended, the rest is in flight or rests; and all of that is counted."""
        needy = {each.id for each in self.plan if any(gated(each, gate) for gate in self.GATES)}
        needy |= {each.id for each in fate_plans.helped()}
        self.end_all(each for each in self.plan if each.id not in needy)
        self.stage.eventually(lambda: len(self.in_flight()) == self.to_be_held(), "all that is to be held is in flight")
        for name in ("retried-budget", "retried-twice", "retried-large", "retried-crash"):
            self.end(name, "error")
        for name in ("hurried-up", "cancelled-resting"):
            self.backs_off(name, 2)
        self.backs_off("sibling", 2, "gather.0/patient")
        for _ in range(3):
            self.signal("talker")
        self.end("talker", "error")
        self.settle(tally_of(self.rows(), HERE), TOLD_BY_ROWS)
        later = tally_of(self.rows(), HERE).later
        self.stage.eventually(
            lambda: self.numbers().spreads[i.RETRY_LATENESS][()].count == later, "each retry that ended is counted"
        )

    def to_be_held(self) -> int:
        return sum(gated(each, gate) for each in self.plan for gate in self.GATES)

    def kill(self, shard: int, spoil: Callable[[int], None]) -> Counter[tuple[str, ...]]:
        """SIGKILL a shard; how many attempts were in flight there, by flow and step. Returns once they run again."""
        owner = self.stage.holders()
        cut = [asked for asked in self.in_flight() if owner[KEYS.partition_of(asked.execution)].endswith(f"/{shard}")]
        assert 0 < len(cut) < self.to_be_held(), "both shards have some"
        pid = self.worker.shards[shard]
        before = self.numbers()
        spoil(shard)
        os.kill(pid, signal.SIGKILL)
        for asked in cut:
            self.stage.eventually(lambda asked=asked: self.receiver.runs()[asked.name] == 2, f"{asked.name} runs again")
        self.stage.eventually(lambda: self.worker.shards[shard] != pid, "another process runs that shard")
        after = self.numbers()
        assert after.count(i.STEP_RETRIES_SCHEDULED) == before.count(i.STEP_RETRIES_SCHEDULED)
        assert after.counts[i.SHARD_RESTARTS] == {("killed",): 1}
        return Counter((asked.flow, asked.step) for asked in cut)


def gated(each: Planned, gate: str) -> int:
    return sum(fate.startswith(f"held:{gate}:") for one in each.legs for fate in one.fates)


def leave_be(_shard: int) -> None:
    """Its black box can be read."""


@pytest.mark.pain(42)
@pytest.mark.parametrize("box", ["read", "unreadable"])
def test_a_killed_shard_costs_no_count_but_those_of_attempts_in_flight_which_show_as_interrupted(
    stage: Stage, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, box: str
) -> None:
    folder = tmp_path / "boxes"
    folder.mkdir()
    monkeypatch.setenv("TMPDIR", str(folder))

    def spoil(shard: int) -> None:
        [file] = folder.glob(f"stepwell-box-*/{shard}-1")
        beside = file.with_name("spoiled")
        beside.write_bytes(b"no box of ours")
        beside.replace(file)

    chance = random.Random(SEED)
    plan = [*fate_plans.crowd(chance, 20), *fate_plans.helped(), *fate_plans.held("route", 10)]
    plan += fate_plans.held("detour", 8)
    on_threads = [each.id for each in plan if gated(each, "storm") and "errand_on_a_thread" in each.input]
    assert len(on_threads) <= LANE_SIZE, "a black box names those, and of what it names only so many run at once"
    with FateReceiver(fate_plans.fates_of(plan)) as receiver, stage.client() as client:
        storm = KilledStorm(stage, receiver, client, plan)
        with Scraper(storm.worker):
            storm.start(plan)
            storm.wait_for_calm()
            lost = sum(name.endswith("/0") for name in stage.holders().values())
            cut = storm.kill(0, leave_be if box == "read" else spoil)
            storm.receiver.release("storm")
            storm.help_all()
            storm.end_all(plan)
            storm.check(cut)
            recovered = storm.numbers().counts[i.RECOVERIES]
            assert sum(recovered.values()) == lost, "each of its partitions was taken over once"
            assert set(recovered) == {("boxed",)} if box == "read" else ("boxed",) not in recovered
