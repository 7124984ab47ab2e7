"""What the metrics must say, counted from the rows alone; and what they say, from what was told in a simulation.

`check(world)` holds the two against each other. docs/metrics.md names the invariants (M1, M2, ...).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator

import msgspec
from sim.harness import World

from stepwell.actors import store_events
from stepwell.core import events, records, row
from stepwell.core.checkpoint import Checkpoint, newest_first
from stepwell.core.events import Event
from stepwell.core.rules.facts import step_name
from stepwell.core.rules.steps import ATTEMPTS_KEPT
from stepwell.core.status import STEP_BACKOFF, STEP_COMPLETED
from stepwell.metrics import instruments as i
from stepwell.metrics.instrument import Instrument
from stepwell.metrics.rendering import samples_of
from stepwell.metrics.shard import ShardGauges
from stepwell.metrics.sheet import Sheet
from stepwell.metrics.subscriber import MetricsSubscriber
from stepwell.metrics.totals import Totals
from stepwell.store.replies import Committed
from stepwell.store.requests import Commit
from stepwell.worker.observing import count_observed

_COUNTS = (store_events.ExecutionsCounted, store_events.BackoffsCounted, store_events.LyingCounted)
Key = tuple[str, ...]
Numbers = Counter[Key]

# Told beside the commits: nothing of them stands in a row.
UNWRITTEN = (events.RetryStarted, events.ResultDropped, events.BackoffResumed)
_decode = msgspec.json.Decoder(list[Event]).decode


def shown(told: Iterable[Event], world: World | None = None) -> Sheet:
    """The sheet of one who has heard all that; with a world, also what its shards' threads have observed."""
    sheet = Sheet.in_memory()
    tell = MetricsSubscriber(sheet)
    for event in told:
        tell(event)
    if world is not None:
        gauges = ShardGauges(sheet)
        for seen in world.store_events:
            count_observed(gauges, seen)
    return sheet


def moved(world: World) -> set[str]:
    """The full names of all metrics that were other than 0 at any moment of a simulation."""
    sheet = shown(world.events)
    gauges = ShardGauges(sheet)
    found: set[str] = set()
    for at, seen in enumerate(world.store_events, 1):
        count_observed(gauges, seen)
        if at == len(world.store_events) or isinstance(seen, _COUNTS):
            totals = Totals()
            totals.attach(0, sheet.source)
            found.update(name for name, _, value in samples_of(totals.take()) if value)
    names = {each.full_name for each in i.INSTRUMENTS}
    return {name if name in names else name.removesuffix("_count") for name in found} & names


def executed(world: World) -> list[Event]:
    """The events of all commits that the server has carried out, each once, in their order."""
    found: dict[str, bytes] = {}
    for sent in world.sent:
        if isinstance(sent.request, Commit) and sent.done and isinstance(sent.truth, Committed) and sent.request.event:
            found.setdefault(sent.request.commit_id, sent.request.event)
    return [event for raw in found.values() for event in _decode(raw)]


def written(event: Event) -> bool:
    """Whether it is one that its commit holds."""
    return not isinstance(event, UNWRITTEN) and not (isinstance(event, events.BackoffLeft) and event.why == "unloaded")


def check(world: World, told: Iterable[Event] | None = None) -> None:
    """M1 to M8: what was told (by default all that the server carried out) says exactly what the rows say."""
    sheet = shown(executed(world) if told is None else told)
    expected, found = of_rows(world), of_sheet(sheet)
    least, most = expected.pop(("interrupted", "least"), 0), expected.pop(("interrupted", "most"), 0)
    interrupted = found.pop(("interrupted",), 0)
    assert least <= interrupted <= most, f"interrupted {interrupted} times; the rows say {least} to {most}"
    wrong = {key: (found[key], expected[key]) for key in expected | found if found[key] != expected[key]}
    assert not wrong, f"metrics and rows differ (metric, rows): {wrong}"
    _check_within(sheet)


def check_told_once(world: World, all_of_it: bool) -> None:
    """M9: no event of a commit is told twice, nor one that was not carried out; `all_of_it`: and none is left out."""
    told = Counter(event for event in world.events if written(event))
    done = Counter(event for event in executed(world) if written(event))
    assert not told - done, f"told and not done, or told twice: {list(told - done)}"
    assert not all_of_it or told == done, f"done and not told: {list(done - told)}"


def of_sheet(sheet: Sheet) -> Numbers:
    """The metrics as the rows can be asked for them."""
    found: Numbers = Counter()
    for (flow, step, outcome), n in sheet.counts_of(i.STEP_ATTEMPTS).items():
        found[("interrupted",) if outcome == "interrupted" else ("attempts", flow, step, outcome)] += int(n)
    for (flow, step, _), n in sheet.counts_of(i.STEP_RETRIES_SCHEDULED).items():
        found["scheduled", flow, step] += int(n)
    for (flow, step, reason), n in sheet.counts_of(i.STEP_FAILURES).items():
        if reason != "nondeterminism":  # its execution is parked, and may go on
            found["interrupted for good" if reason == "interrupted" else "gave up", flow, step] += int(n)
    for (flow, status), n in sheet.counts_of(i.EXECUTIONS_ENDED).items():
        found["ended", flow, status] += int(n)
    for flow, n in _sizes(sheet, i.EXECUTION_QUEUE):
        found["began", *flow] += n
    for pair, (_, seconds) in sheet.spreads_of(i.RETRY_BACKOFF).items():
        found["backoff ms", *pair] += round(seconds * 1000)
    for pair, (_, attempts) in sheet.spreads_of(i.STEP_ATTEMPTS_TO_SUCCESS).items():
        found["attempts to success", *pair] += round(attempts)
    over = _sum(sheet, i.RETRY_WAKEUPS) + _sum(sheet, i.BACKOFFS_ABANDONED)
    found["backing off",] = _sum(sheet, i.STEP_RETRIES_SCHEDULED) - over
    return +found


def _check_within(sheet: Sheet) -> None:
    """M10: what counts the same thing twice comes to the same."""
    ended = {"ok", "retryable", "terminal", "timeout"}
    attempts = sum(int(n) for (*_, outcome), n in sheet.counts_of(i.STEP_ATTEMPTS).items() if outcome in ended)
    assert sum(n for _, n in _sizes(sheet, i.STEP_DURATION)) == attempts
    assert sum(n for _, n in _sizes(sheet, i.STEP_QUEUE)) == attempts
    scheduled = _sum(sheet, i.STEP_RETRIES_SCHEDULED)
    assert sum(n for _, n in _sizes(sheet, i.RETRY_BACKOFF)) == scheduled
    assert sum(n for _, n in _sizes(sheet, i.STEP_ATTEMPTS_LEFT)) == scheduled
    assert sum(n for _, n in _sizes(sheet, i.EXECUTION_DURATION)) == _sum(sheet, i.EXECUTIONS_ENDED)


def _sum(sheet: Sheet, instrument: Instrument) -> int:
    return int(sum(sheet.counts_of(instrument).values()))


def _sizes(sheet: Sheet, instrument: Instrument) -> Iterator[tuple[Key, int]]:
    for values, (buckets, _) in sheet.spreads_of(instrument).items():
        yield values, int(sum(buckets))


def of_rows(world: World) -> Numbers:
    """The same, counted from what the rows hold."""
    found: Numbers = Counter()
    for members in world.statuses().values():
        for execution_id in members:
            try:
                cp = row.parse(execution_id, world.row(execution_id), world.namespace.secret)
            except row.UnreadableRow:
                continue
            _count(cp, found)
    return +found


def _count(cp: Checkpoint, found: Numbers) -> None:
    flow = cp.meta.flow
    found["began", flow] += cp.started_at is not None
    found["ended", flow, "error"] += len(cp.failures)
    if cp.terminal:
        found["ended", flow, cp.status] += 1
    failed: dict[str, dict[int, int]] = {}  # how often a step had been interrupted when its attempt failed for good
    for field, raw in newest_first(cp.attempts):
        path = field[2:].rpartition(":")[0]
        attempt = records.decode_attempt(raw)
        assert attempt.n <= 2 * ATTEMPTS_KEPT, f"{cp.execution_id} {path}: its row does not keep all attempts"
        pair = (flow, step_name(path))
        late = attempt.error.type == "StepTimeout"
        if attempt.due_at is None:
            failed.setdefault(path, {})[attempt.n] = attempt.interruptions
            found["attempts", *pair, "timeout" if late else "terminal"] += 1
            found["gave up", *pair] += 1
        else:
            found["attempts", *pair, "timeout" if late else "retryable"] += 1
            found["scheduled", *pair] += 1
            found["backoff ms", *pair] += attempt.due_at - attempt.ended_at
    for path, attempt_now, interruptions in _where_it_stands(cp, found):
        counts = {**failed.get(path, {}), attempt_now: interruptions}
        least, most = _rises([counts[n] for n in sorted(counts)])
        found["interrupted", "least"] += least
        found["interrupted", "most"] += most


def _rises(counts: list[int]) -> tuple[int, int]:
    """How often a step was interrupted whose count was seen from time to time. A retry by hand lets the count of the
    step that failed begin anew, and leaves that of its siblings; which it was, the row does not say."""
    least = most = before = 0
    for count in counts:
        least += count - before if count >= before else count
        most += count
        before = count
    return least, most


def _where_it_stands(cp: Checkpoint, found: Numbers) -> Iterator[tuple[str, int, int]]:
    """Each step's present attempt and how often it was interrupted since its budget was renewed."""
    known: set[str] = set()
    for path, op in cp.open.items():
        known.add(path)
        if op.kind == records.STEP:
            found["backing off",] += op.status == STEP_BACKOFF
            yield path, op.attempt, op.interruptions
    for path, raw in newest_first(cp.facts):
        fact = records.decode_fact(raw)
        if fact.superseded or path in known or fact.kind != records.STEP:
            continue
        known.add(path)
        pair = (cp.meta.flow, step_name(path))
        if fact.status == STEP_COMPLETED:
            found["attempts", *pair, "ok"] += 1
            found["attempts to success", *pair] += fact.attempt
        elif fact.error is not None and fact.error.reason == "interrupted":
            found["interrupted for good", *pair] += 1
        yield path, fact.attempt, fact.interruptions
    for path, left in (cp.error.open if cp.error is not None else {}).items():
        if path not in known and left.kind == records.STEP:
            yield path, left.next_attempt, left.interruptions
