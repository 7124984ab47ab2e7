"""From outcomes to rows, tables, pictures and notes."""

from __future__ import annotations

from collections.abc import Sequence

from benchmarks.chart import number_text
from benchmarks.peers.measure import IN_FLIGHT, Extent
from benchmarks.peers.outcome import Outcome, Spread, Turn, advantage
from benchmarks.peers.peer import Kind, Server, Skip
from benchmarks.peers.servers import postgres_version, redis_version
from benchmarks.peers.stand import STEPS
from benchmarks.result import Chart, Result, Row, Table, bars

__all__ = ["FASTEST_FLOWS", "FASTEST_QUEUE", "result"]

FASTEST_FLOWS = "throughput / fastest other system of durable flows"
FASTEST_QUEUE = "throughput / fastest queue"
QUESTION = "How fast are other systems on the same machine, and what do they do when their worker is killed?"


def result(outcomes: Sequence[Outcome], extent: Extent) -> Result:
    """What `make bench-peers` reports. The first outcome is ours."""
    measured = [outcome for outcome in outcomes if not outcome.skipped]
    return Result(
        "peers",
        QUESTION,
        rows(outcomes[0], measured),
        charts=charts(measured),
        facts=facts(measured, extent),
        notes=notes(outcomes),
        tables=[speeds(outcomes), deaths(measured, extent), terms(measured)],
    )


def rows(ours: Outcome, measured: Sequence[Outcome]) -> list[Row]:
    """All numbers, for programs; first how far we are from the fastest other ones."""
    found = _leads(ours, measured)
    for outcome in measured:
        name = outcome.peer.name
        for measure, unit, value in (
            ("throughput", "steps/s", outcome.spread(_rate)),
            ("latency p50", "ms", outcome.spread(_p50)),
            ("latency p99", "ms", outcome.spread(_p99)),
            ("CPU of workers and server", "ms/step", outcome.spread(_cpu)),
        ):
            if value is not None:
                found.append(Row(f"{name}: {measure}", value.median, unit, "", value.low, value.high))
        if outcome.recovery is not None:
            recovery = outcome.recovery
            if recovery.seconds is not None:
                found.append(Row(f"{name}: all done after a kill -9", recovery.seconds, "s"))
            found.append(
                Row(f"{name}: steps completed twice", recovery.twice, f"of {recovery.flows * 5}", better="less")
            )
            found.append(Row(f"{name}: flows not finished", recovery.unfinished, f"of {recovery.flows}", better="less"))
    return found


def _leads(ours: Outcome, measured: Sequence[Outcome]) -> list[Row]:
    """Our throughput by that of the fastest others of each kind, then by that of each."""
    found = []
    others = [outcome for outcome in _by_speed(measured) if outcome.peer.folder != ours.peer.folder]
    for kind, called in ((Kind.FLOWS, FASTEST_FLOWS), (Kind.QUEUE, FASTEST_QUEUE)):
        fastest = next((outcome for outcome in others if outcome.peer.kind is kind), None)
        times = fastest and advantage(ours, fastest)
        if times:
            found.append(_lead(called, times))
    for outcome in others:
        times = advantage(ours, outcome)
        if times:
            found.append(_lead(f"throughput / {outcome.peer.name}", times))
    return found


def _lead(measure: str, times: Spread) -> Row:
    return Row(measure, times.median, "times", "", times.low, times.high, "more")


def speeds(outcomes: Sequence[Outcome]) -> Table:
    """Throughput and latency, durable flows first, each group by speed; then who was skipped, and why."""
    columns = (
        "system",
        "steps/s",
        "range",
        "Stepwell is",
        "one flow alone, p50 ms",
        "p99 ms",
        "CPU ms/step",
        "what it is",
    )
    measured = [outcome for outcome in outcomes if not outcome.skipped]
    lines: list[tuple[str, ...]] = []
    for outcome in _by_speed(measured):
        rate = outcome.spread(_rate)
        assert rate is not None
        lines.append(
            (
                _named(outcome),
                number_text(rate.median),
                f"{number_text(rate.low)} to {number_text(rate.high)}",
                _times(outcomes[0], outcome),
                _number(outcome.spread(_p50)),
                _number(outcome.spread(_p99)),
                _number(outcome.spread(_cpu)),
                outcome.peer.kind.value,
            )
        )
    blank = ("",) * (len(columns) - 3)
    lines += [(_named(each), "skipped", *blank, each.skipped) for each in outcomes if each.skipped]
    return Table("Throughput and latency of flows of five no-op steps", columns, lines)


def deaths(measured: Sequence[Outcome], extent: Extent) -> Table:
    """What a kill -9 of the worker did."""
    columns = ("system", "s until all done", "steps completed twice", "flows not finished", "what is configured")
    lines = []
    for outcome in _by_speed(measured):
        found = outcome.recovery
        if found is None:
            reason = next((text for text in outcome.failures if text.startswith("death")), "not measured")
            lines.append((_named(outcome), "-", "-", "-", reason))
            continue
        seconds = number_text(found.seconds) if found.seconds is not None else f"not within {found.patience:g}"
        twice, unfinished = f"{found.twice} of {found.flows * STEPS}", f"{found.unfinished} of {found.flows}"
        lines.append((_named(outcome), seconds, twice, unfinished, outcome.peer.recovery.settings))
    title = f"{extent.recovery_flows} flows of five steps of 50 ms; worker killed (-9) at half, started again 1 s later"
    return Table(title, columns, lines)


def terms(measured: Sequence[Outcome]) -> Table:
    """On which terms each was measured."""
    columns = ("system", "versions", "server", "what a step is", "durability", "processes and settings")
    lines = []
    for outcome in _by_speed(measured):
        peer = outcome.peer
        shown = ", ".join(f"{name} {number}" for name, number in outcome.versions.items())
        lines.append((_named(outcome), shown, peer.server.value, peer.step, peer.durability, peer.settings))
    return Table("On which terms", columns, lines)


def charts(measured: Sequence[Outcome]) -> list[Chart]:
    """Throughput, latency and recovery as bars."""
    ordered = _by_speed(measured)
    found = []
    for name, title, unit, value in (
        ("throughput", f"Five-step flows, {IN_FLIGHT} in flight: steps a second", "steps/s", _rate),
        ("latency", "One five-step flow alone: median time to its result", "ms", _p50),
    ):
        values = {_barred(each): [value(turn) for turn in each.turns if turn is not None] for each in ordered}
        if values:
            found.append(bars(name, title, unit, values))
    back = {
        _barred(each): [each.recovery.seconds]
        for each in ordered
        if each.recovery and each.recovery.seconds is not None
    }
    if back:
        title = "Worker killed at half, started again: until all flows are done (whose were)"
        found.append(bars("recovery", title, "s", back))
    return found


def facts(measured: Sequence[Outcome], extent: Extent) -> dict[str, str]:
    """What holds for all."""
    found = {
        "in flight": str(IN_FLIGHT),
        "rounds": f"{extent.rounds}, in turns",
        "a turn": f"{extent.throughput_seconds:g} s of throughput and {extent.latency_seconds:g} s of latency",
    }
    servers = {outcome.peer.server for outcome in measured}
    for server, version in ((Server.REDIS, redis_version), (Server.POSTGRES, postgres_version)):
        if server in servers:
            try:
                found[f"server of {server.value} peers"] = version()
            except Skip:
                continue
    loads = [turn.load_before for outcome in measured for turn in outcome.turns if turn is not None]
    if loads:
        found["load average before the turns"] = f"{min(loads):g} to {max(loads):g}"
    return found


def notes(outcomes: Sequence[Outcome]) -> list[str]:
    """What failed, and how to read the tables."""
    found = []
    for outcome in outcomes:
        if not outcome.skipped:
            found += [f"{_named(outcome)}, one turn failed: {text}" for text in outcome.failures]
    if any(outcome.peer.kind is Kind.QUEUE for outcome in outcomes):
        found.append(
            "A queue has no durable flow: its five tasks are chained, and nothing records where the flow stands."
        )
    found.append('Medians of the rounds with their range; "Stepwell is" is the median of the rounds\' ratios.')
    return found


def _by_speed(measured: Sequence[Outcome]) -> list[Outcome]:
    def order(outcome: Outcome) -> tuple[bool, float]:
        rate = outcome.spread(_rate)
        return outcome.peer.kind is Kind.QUEUE, -(rate.median if rate else 0.0)

    return sorted(measured, key=order)


def _rate(turn: Turn) -> float:
    return turn.steps_per_second


def _p50(turn: Turn) -> float:
    return turn.p50_ms


def _p99(turn: Turn) -> float:
    return turn.p99_ms


def _cpu(turn: Turn) -> float | None:
    return turn.cpu_ms_per_step


def _named(outcome: Outcome) -> str:
    return outcome.peer.title


def _barred(outcome: Outcome) -> str:
    """How it is called beside its bar."""
    return outcome.peer.title + (" (queue)" if outcome.peer.kind is Kind.QUEUE else "")


def _times(ours: Outcome, theirs: Outcome) -> str:
    """How many times faster ours is, for example `12 x`."""
    if ours is theirs:
        return ""
    times = advantage(ours, theirs)
    return "" if times is None else f"{number_text(times.median)} x"


def _number(value: Spread | None) -> str:
    return "-" if value is None else number_text(value.median)
