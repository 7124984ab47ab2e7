"""What must hold after every turn of anybody (DESIGN's invariants); looks only at what the turn has changed."""

from __future__ import annotations

from sim.audit import Audit, check_backoff, places_of
from sim.bodies import Run
from sim.explore.peek import Row
from sim.explore.world import ExploredShard, ExploredWorld
from sim.harness import SimShard

from stepwell.actors import store_events
from stepwell.core import events, records, row
from stepwell.core.checkpoint import Checkpoint
from stepwell.core.status import COMPLETED, PARKED, TERMINAL
from stepwell.store.keys import PartitionKeys
from stepwell.store.leases import parse_lease
from stepwell.store.replies import Committed, Loaded
from stepwell.store.requests import Commit, Load, Restore

Step = tuple[str, str]
NONSENSE = "nonsense"
# By how much a delay may fall short where clocks run at different speeds: two of them, each 0.5 % off.
DRIFT = 0.011
# A shard that was frozen for so long has a clock that is off, and sets it right slowly.
UNSYNCED_SECONDS = 120.0


class Promises(Audit):
    """Watches an explored world; a broken promise is an AssertionError in the turn that broke it."""

    def __init__(self, world: ExploredWorld) -> None:
        super().__init__(world)
        self._explored = world
        world.checks[-1] = self.at_rest
        world.after_turn = self.after_turn
        self.touched: set[str] = set()
        self._rows: dict[str, Row] = {}
        self._read: dict[str, Checkpoint] = {}
        self._sent = 0
        self._runs = 0
        self._under_way: list[Run] = []
        self._ended_at: dict[Step, tuple[int, float]] = {}
        self._delays: dict[Step, tuple[int, int]] = {}
        self._events = 0
        self._epochs: dict[int, int] = {}
        self._acked: dict[tuple[str, str], tuple[str, int, bytes]] = {}
        self._declared: dict[Step, tuple[int, str]] = {}
        self._keys: dict[Step, str] = {}
        self.forgot = False
        """The server has forgotten something once: what it says can't be held against anybody who acts."""
        self.lost_leases = False
        """Leases were lost: two may have believed to hold the same partition, and both may have begun a step."""

    # What schedules do on purpose.

    def began(self, execution_id: str) -> None:
        """Somebody has started it."""
        self.touched.add(execution_id)

    def lost(self) -> None:
        """The server has forgotten something: what it says now is compared with itself from now on."""
        self.forgot = self.lost_leases = True
        self._rows.clear()
        self._read.clear()
        self._facts.clear()
        self._epochs.clear()
        self._declared.clear()
        self.touched.update(self._known())

    # After each turn.

    def after_turn(self) -> None:
        """Look at what was written, and at the steps that began or ended."""
        sent = self._world.sent
        for each in sent[self._sent :]:
            request = each.request
            if each.done and isinstance(request, Commit | Restore):
                self.touched.add(request.execution_id)
                if isinstance(each.truth, Committed) and not each.truth.dup:
                    self._check_writer(request)
                if isinstance(request, Restore):
                    self._forgive_superseded(request.execution_id)
                if isinstance(each.truth, Committed):
                    self._note_written(request, isinstance(each.reply, Committed))
            elif isinstance(request, Load) and isinstance(each.reply, Loaded):
                self._note_read(request.execution_id, each.reply.fields)
        self._sent = len(sent)
        for name in self.touched:
            self._check_change(name)
        self.touched.clear()
        self._note_ends()

    def _check_writer(self, request: Commit | Restore) -> None:
        partition = request.partition
        holder = parse_lease(request.lease)
        assert holder is not None
        what = f"{request.execution_id} was written under epoch {holder.epoch} of {holder.owner}"
        last = self._epochs.get(partition, 0)
        assert holder.epoch >= last, f"{what}, after epoch {last} had written partition {partition}"
        self._epochs[partition] = holder.epoch
        lease = self._explored.peek.lease(partition)
        assert lease == request.lease, f"{what}, but partition {partition} is held under {lease!r}"
        stored = self._rows.get(request.execution_id, {}).get("rev")
        if isinstance(request, Restore) and stored is not None:
            assert int(stored) < request.rev, f"{what}: rev {stored.decode()} was overwritten by rev {request.rev}"

    def _note_written(self, request: Commit | Restore, heard: bool) -> None:
        holder = parse_lease(request.lease)
        assert holder is not None
        for field, raw in request.sets if isinstance(request, Commit) else request.fields:
            key = (request.execution_id, field[2:])
            if field.startswith("r:") and heard:
                self._acked[key] = (holder.incarnation, holder.epoch, raw)
            elif field.startswith("p:"):
                attempt = records.decode_open(raw).attempt
                if self._declared.get(key) != (attempt, ""):  # a later commit may say it once more
                    self._declared[key] = (attempt, "" if heard else holder.incarnation)

    def _note_read(self, name: str, fields: Row) -> None:
        """Who reads a row knows what it declares, also where the reply that acknowledged it was lost."""
        for field, raw in fields.items():
            key = (name, field[2:])
            if field.startswith("p:") and key in self._declared:
                attempt = records.decode_open(raw).attempt
                if self._declared[key][0] == attempt:
                    self._declared[key] = (attempt, "")

    def _forgive_superseded(self, name: str) -> None:
        """Failures that a retry has superseded are in rows alone: what memory restores is without them."""
        known = self._facts.get(name, {})
        self._facts[name] = {field: raw for field, raw in known.items() if records.decode_fact(raw).status == COMPLETED}

    def _check_change(self, name: str) -> None:
        fields = self._explored.peek.row(name)
        before = self._rows.get(name, {})
        if fields == before:
            return
        if not fields:
            assert not before, f"{name}: its row is gone"
            return
        self._rows[name] = fields
        status = fields["status"].decode()
        lists = self._explored.peek.lists(name)
        assert lists == [status], f"{name} is {status} and listed as {lists}"
        if before:
            was, now = int(before["rev"]), int(fields["rev"])
            assert now > was, f"{name}: rev {was} became rev {now}"
        try:
            cp = row.parse(name, fields, self._world.namespace.secret)
        except row.UnreadableRow as error:
            raise AssertionError(f"{name}: its row can't be read: {error}") from error
        self._read[name] = cp
        places, expected = self._explored.peek.places(name), places_of(cp, self._part(name))
        if self.forgot:  # a creation, too: then it was made again, later, and is listed as its owner knows it
            places, expected = dict.fromkeys(places), dict.fromkeys(expected)
        assert places == expected, f"{name} is listed as {places}, not as {expected}"
        check_backoff(cp, self._explored.peek.backing_off(name))
        self._check_row(cp, fields)
        self._check_attempts(name, fields, before)
        self.checked += 1

    def _part(self, name: str) -> PartitionKeys:
        return self._explored.keys.parts[self._explored.keys.partition_of(name)]

    def _check_attempts(self, name: str, fields: Row, before: Row) -> None:
        for field, raw in fields.items():
            if field[:2] != "p:" or field not in before:
                continue
            was, now = records.decode_open(before[field]), records.decode_open(raw)
            assert was.generation != now.generation or now.attempt >= was.attempt, (
                f"{name} {field[2:]}: attempt {was.attempt} became attempt {now.attempt}"
            )

    # Steps.

    def _note_ends(self) -> None:
        runs = self._world.ledger.runs
        self._under_way += runs[self._runs :]
        self._runs = len(runs)
        now = self._world.clock.monotonic()
        for run in self._under_way:
            key = (run.execution_id, run.path)
            # A zombie's body may end after its successor's of the same attempt or a later one: that one's end counted.
            # Nor is that the end of an attempt which only leaves a body to itself.
            counts = run.ended_ms is not None and not run.cut_off
            if counts and self._ended_at.get(key, (0, 0.0))[0] < run.attempt:
                self._ended_at[key] = (run.attempt, now)
        self._under_way = [run for run in self._under_way if run.ended_ms is None]

    def body_begins(self, run: Run) -> None:
        """No recorded step runs again, none begins before Redis knows, none before its delay is over."""
        world, key = self._explored, (run.execution_id, run.path)
        acked = self._acked.get(key)
        if acked is not None and acked[:2] == (run.shard, run.epoch):
            now = world.peek.field(run.execution_id, "r:" + run.path)
            reopened = records.decode_fact(acked[2]).superseded or (now and records.decode_fact(now).superseded)
            forgotten = self.forgot and self._was_broken(run.execution_id)
            assert reopened or forgotten, f"{run.execution_id} {run.path} runs again in the shard that recorded it"
        known = self._keys.setdefault(key, run.key)
        assert known == run.key, f"{key}: two keys, {known} and {run.key}"
        declared = self._declared.get(key, (run.attempt, "") if self.forgot else None)
        what = f"{run.execution_id} {run.path} attempt {run.attempt}"
        assert declared is not None, f"{what} begins, and it was never declared"
        assert declared[0] == run.attempt, f"{what} begins, and attempt {declared[0]} is what was declared"
        assert declared[1] != run.shard, f"{what} begins before its declaration is acknowledged"
        held = parse_lease(world.peek.lease(world.keys.partition_of(run.execution_id)))
        ours = held is not None and held.epoch == run.epoch
        assert ours or self.lost_leases, f"{what} begins in {run.shard}, and the partition is held by {held}"
        if self.forgot or not ours:  # whoever lost it by our hand can't know that, nor what others wrote since
            self._latest[key] = run
        else:
            self._begins(run, key)
        self._check_delay(run, key)

    def _was_broken(self, name: str) -> bool:
        """Whether its actor was made to fail, and so has forgotten what Redis may have lost."""
        failed = self._world.of_type(store_events.ActorFailed)
        return any(each.execution_id == name and NONSENSE in each.error for each in failed)

    def _begins(self, run: Run, key: Step) -> None:
        last = self._latest.get(key)
        if self.lost_leases and last is not None:
            last.ended_ms = last.ended_ms or run.at_ms
        super().body_begins(run)

    def _check_due(self, run: Run, what: str) -> None:
        if not self._explored.setting.drifts:
            super()._check_due(run, what)

    def _check_delay(self, run: Run, key: Step) -> None:
        for event in self._world.events[self._events :]:
            if isinstance(event, events.AttemptFailed):
                self._delays[event.execution_id, event.path] = (event.attempt, event.delay_ms)
        self._events = len(self._world.events)
        attempt, ended = self._ended_at.get(key, (0, 0.0))
        failed, delay_ms = self._delays.get(key, (0, 0))
        if run.attempt - 1 != attempt or attempt != failed or run.execution_id in self._world.hurried:
            return
        if self.forgot:
            return  # the failure that the delay is of may be lost, and another one recorded
        if self._explored.stepped:
            return  # who begins, or stood still, after the clock was set can't know that it was
        least = delay_ms / 1000 - 0.002
        if self._explored.setting.drifts:
            least -= DRIFT * (least + UNSYNCED_SECONDS)
        passed = self._world.clock.monotonic() - ended
        assert passed >= least, f"{key} attempt {run.attempt} began {passed:.3f} s after a failure, not {least:.3f} s"

    # At rest.

    def at_rest(self) -> None:
        """Whatever has not ended has something that will move it on."""
        self.after_turn()
        waiting = self._explored.peek.addressed()
        for name in self._known():
            cp = self._read.get(name)
            if cp is not None and cp.status not in TERMINAL and cp.status != PARKED:
                self._check_goes_on(cp, name in waiting)

    def _check_actor(self, cp: Checkpoint, shard: SimShard) -> None:
        assert isinstance(shard, ExploredShard)
        if shard.held_up:
            return
        super()._check_actor(cp, shard)
        actor = shard.actor(cp.execution_id)
        if actor is None or self._explored.stepped:
            return
        dues = {id(timer): due for due, _, timer in shard.scheduler.timer_heap._entries}
        for path, op in cp.open.items():
            timer = actor.timers._cell.timers.get(path)
            if timer is None or op.due_at is None or id(timer) not in dues:
                continue
            late = dues[id(timer)] - shard.clock.monotonic() - max(0, op.due_at - shard.clock.now_ms()) / 1000
            slack = 1.5 if self._explored.setting.drifts or self.forgot else 0.01
            assert late <= slack, f"{cp.execution_id} {path}: its timer is {late:.3f} s later than its row says"

    def _known(self) -> list[str]:
        return sorted({*self._rows, *self._facts})

    def _score(self, execution_id: str) -> float | None:
        return self._explored.peek.live(execution_id)

    def _owner(self, partition: int) -> str:
        return self._explored.peek.lease(partition)

    def _granted(self, partition: int) -> str:
        return self._explored.peek.epoch(partition)
