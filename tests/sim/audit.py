"""What must hold at every instant of a simulation (DESIGN's invariants), and at the start of every step body."""

from __future__ import annotations

from sim.bodies import Run
from sim.harness import SimShard, World

from stepwell.core import events, records, row
from stepwell.core.checkpoint import Checkpoint
from stepwell.core.status import OP_WAITING, PARKED, QUEUED, STEP_BACKOFF, STEP_RUNNING, TERMINAL
from stepwell.core.transitions import next_due, score_of
from stepwell.store.keys import PartitionKeys
from stepwell.store.requests import Commit, DeadLetter


def places_of(cp: Checkpoint, part: PartitionKeys) -> dict[str, int]:
    """On which lists an execution must stand, and by which time."""
    at = cp.meta.created_at
    if cp.terminal:
        assert cp.ended_at is not None
        at = cp.ended_at
    elif cp.status == PARKED:
        assert cp.error is not None
        at = cp.error.at
    lists = [part.by[cp.status], part.flow + cp.meta.flow]
    for name, value in (cp.meta.attributes or {}).items():
        lists.append(f"{part.attribute}{name}={str(value).lower() if value in (True, False) else value}")
    if cp.error is not None:
        lists.append(part.error + cp.error.type)
    return dict.fromkeys(lists, at)


def check_backoff(cp: Checkpoint, listed: list[tuple[str, float]]) -> None:
    """The index names an execution just as long as something of it backs off, under its flow, with the first due time.

    `listed`: where it is named.
    """
    dues = [op.due_at for op in cp.open.values() if op.status == STEP_BACKOFF and op.due_at is not None]
    expected = [(cp.meta.flow, float(min(dues)))] if dues and cp.status not in (PARKED, *TERMINAL) else []
    assert listed == expected, f"{cp.execution_id} ({cp.status}) is listed as backing off: {listed}, not {expected}"


class Audit:
    """Watches a world from now on; any broken promise is an AssertionError at the instant where it broke.

    `loses_rows`: the test makes Redis lose data, so what a row says can't be compared with what it said before.
    """

    def __init__(self, world: World, *, loses_rows: bool = False) -> None:
        self._world = world
        self._loses_rows = loses_rows
        self._facts: dict[str, dict[str, bytes]] = {}
        self._tokens: dict[tuple[str, str], str] = {}
        self._seen_events = 0
        self._due: dict[tuple[str, str], tuple[int, int]] = {}
        self._latest: dict[tuple[str, str], Run] = {}
        self.checked = 0
        world.checks.append(self.check)
        world.ledger.on_run.append(self.body_begins)

    # At rest.

    def check(self) -> None:
        listed = self._backing_off()
        placed = self._places()
        waiting = {entry.get("execution", "") for entry in self._world.inbox()}
        for status, members in self._world.statuses().items():
            for execution_id in members:
                fields = self._world.row(execution_id)
                assert fields["status"].decode() == status, f"{execution_id} is listed as {status}"
                backoff = listed.pop(execution_id, None)
                try:
                    cp = row.parse(execution_id, fields, self._world.namespace.secret)
                except row.UnreadableRow:
                    assert status != PARKED or backoff is None, f"{execution_id} is parked and listed as backing off"
                    continue
                check_backoff(cp, [] if backoff is None else [backoff])
                self._check_row(cp, fields)
                if status not in TERMINAL and status != PARKED:
                    self._check_goes_on(cp, execution_id in waiting)
                self.checked += 1
                expected = places_of(cp, self._world.keys.parts[self._world.keys.partition_of(execution_id)])
                places = placed.get(execution_id)
                assert places == expected, f"{execution_id} is listed as {places}, not as {expected}"
        assert not listed, f"listed as backing off, and as nothing else: {listed}"

    def _places(self) -> dict[str, dict[str, float]]:
        """By execution: the lists on which it stands, and its time there."""
        found: dict[str, dict[str, float]] = {}
        names = self._world.names()
        for part in self._world.keys.parts:
            lists = names.intersection(part.by.values())
            lists.update(key for key in names if key.startswith((part.flow, part.attribute, part.error)))
            for key in lists:
                for member, at in self._world.client.zrange(key, 0, -1, withscores=True):
                    found.setdefault(member.decode(), {})[key] = at
        return found

    def _backing_off(self) -> dict[str, tuple[str, float]]:
        """What the indexes say: by execution its flow, and when its first step that backs off is due."""
        found: dict[str, tuple[str, float]] = {}
        names = self._world.names()
        for part in self._world.keys.parts:
            named = self._world.client.smembers(part.backoff) if part.backoff in names else ()
            flows = {flow.decode() for flow in named}
            lists = {key for key in names if key.startswith(part.backoff_of)}
            assert {part.backoff_of + flow for flow in flows} == lists, f"{flows} are named, and there are {lists}"
            for flow in flows:
                for member, due in self._world.client.zrange(part.backoff_of + flow, 0, -1, withscores=True):
                    assert member.decode() not in found, f"{member} is listed twice as backing off"
                    found[member.decode()] = (flow, due)
        return found

    def _check_row(self, cp: Checkpoint, fields: dict[str, bytes]) -> None:
        name = cp.execution_id
        assert not (cp.terminal and cp.open), f"{name} has ended with {sorted(cp.open)} open"
        score = self._score(name)
        expected = score_of(next_due(cp))
        if cp.status != QUEUED:
            assert (score is None) == (expected == "drop"), f"{name}: live score {score}, expected {expected}"
            assert score is None or score == float(expected), f"{name}: live score {score}, expected {expected}"
        for path, op in cp.open.items():
            self._check_token(name, path, op.token)
        facts = {field: raw for field, raw in fields.items() if field.startswith("r:")}
        for field, raw in facts.items():
            self._check_token(name, field[2:], records.decode_fact(raw).token)
        if not self._loses_rows:
            for field, before in self._facts.get(name, {}).items():
                assert field in facts, f"{name}: the recorded {field} has left the row"
                was, now = records.decode_fact(before), records.decode_fact(facts[field])
                assert was.seq <= now.seq, f"{name}: {field} went back in time"
                if was.seq == now.seq:
                    assert (was.status, bytes(was.value)) == (now.status, bytes(now.value)), f"{name}: {field} changed"
                else:
                    assert was.superseded or was.status != "completed", f"{name}: {field} was recorded twice"
        self._facts[name] = facts

    def _check_token(self, execution_id: str, path: str, token: str) -> None:
        known = self._tokens.setdefault((execution_id, path), token)
        assert known == token, f"{execution_id} {path}: two tokens, {known} and {token}"

    def _check_goes_on(self, cp: Checkpoint, has_mail: bool) -> None:
        """It has a command, a timer or a running step; or it waits for a signal; or a sweep will find it."""
        if has_mail or cp.status == QUEUED:
            return
        owner = self._owner(self._world.keys.partition_of(cp.execution_id))
        for shard in self._world.shards:
            lease = shard.holdings.lease(self._world.keys.partition_of(cp.execution_id))
            actor = shard.actor(cp.execution_id)
            # What one has in memory that lost the partition, and does not know it yet, is nobody's business.
            if actor is not None and lease is not None and lease == owner:
                if shard.mirror.idle and not shard.mirror._fenced:
                    self._check_actor(cp, shard)
                return
        if not self._world.shards:
            return
        untimed = all(op.status == OP_WAITING and op.due_at is None for op in cp.open.values())
        wakes = score_of(next_due(cp)) != "+inf"
        assert wakes or untimed, f"{cp.execution_id} is out of memory and nothing will wake it"

    def _check_actor(self, cp: Checkpoint, shard: SimShard) -> None:
        actor = shard.actor(cp.execution_id)
        assert actor is not None
        assert cp.open, f"{cp.execution_id} is {cp.status} and waits for nothing"
        if actor._held_back is not None:
            return  # it leaves: what it does not do, the next owner will, or itself when it may stay
        for path, op in cp.open.items():
            what = f"{cp.execution_id}: {path} is {op.status}, and nothing will ever move it"
            if op.status == STEP_RUNNING:
                at_work = (cp.execution_id, path) in shard.runner.at_work
                assert at_work or actor.timers.active("held:" + path) or shard.runner.closed, what
            elif op.status == STEP_BACKOFF or op.due_at is not None:
                assert actor.timers.active(path), what
            else:
                assert op.kind == "signal", what

    # What the server holds.

    def _score(self, execution_id: str) -> float | None:
        live = self._world.keys.live(self._world.keys.partition_of(execution_id))
        score: float | None = self._world.client.zscore(live, execution_id)
        return score

    def _owner(self, partition: int) -> str:
        return (self._world.client.get(self._world.keys.lease(partition)) or b"").decode()

    def _granted(self, partition: int) -> str:
        return (self._world.client.get(self._world.keys.epoch(partition)) or b"").decode()

    # When a body begins.

    def body_begins(self, run: Run) -> None:
        self._read_events()
        key = (run.execution_id, run.path)
        what = f"{run.execution_id} {run.path} attempt {run.attempt}"
        fields = self._world.row(run.execution_id)
        fact = fields.get("r:" + run.path)
        if fact is not None:
            assert records.decode_fact(fact).superseded, f"{what}: it is recorded and runs again"
        declared = fields.get("p:" + run.path)
        assert declared is not None, f"{what}: its start is not in Redis"
        op = records.decode_open(declared)
        assert (op.attempt, op.status) == (run.attempt, STEP_RUNNING), f"{what}: Redis has {op}"
        assert run.key == f"{run.execution_id}:{op.token}"
        last = self._latest.get(key)
        if last is not None:
            assert run.key == last.key, f"{what}: its key changed"
            assert run.attempt in (last.attempt, last.attempt + 1), f"{what} came after attempt {last.attempt}"
            alive = last.shard in {shard.name for shard in self._world.shards}
            # Whoever lost a partition against its will may not know it yet: it can write nothing, its bodies run on.
            epoch = self._granted(self._world.keys.partition_of(run.execution_id))
            handed_over = last.epoch == run.epoch or epoch == f"{run.epoch}|clean"
            alone = last.ended_ms is not None or not alive or not handed_over
            assert alone, f"{what} began while attempt {last.attempt} ran"
        self._check_due(run, what)
        self._latest[key] = run

    def _check_due(self, run: Run, what: str) -> None:
        attempt, due_at = self._due.get((run.execution_id, run.path), (0, 0))
        if attempt + 1 == run.attempt and run.execution_id not in self._world.hurried:
            assert run.at_ms >= due_at, f"{what} began {due_at - run.at_ms} ms before it was due"

    def _read_events(self) -> None:
        for event in self._world.events[self._seen_events :]:
            if isinstance(event, events.AttemptFailed):
                self._due[(event.execution_id, event.path)] = (event.attempt, event.due_at)
        self._seen_events = len(self._world.events)

    # At the end.

    def commands_answered(self, command_ids: list[str]) -> None:
        """Each of these commands had its effect committed, or is a dead letter with a reason."""
        settled: set[str] = set()
        for sent in self._world.sent:
            if sent.done and isinstance(sent.request, Commit):
                settled.update(applied.command_id for applied in sent.request.applied)
            elif sent.done and isinstance(sent.request, DeadLetter):
                settled.add(sent.request.command_id)
        lost = [each for each in command_ids if each not in settled]
        assert not lost, f"commands without any effect: {lost}"
        assert self._world.inbox() == []
