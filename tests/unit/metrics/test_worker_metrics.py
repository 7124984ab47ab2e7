"""What the parent counts itself is shown, and so is what its page costs."""

from __future__ import annotations

from collections.abc import Callable

from stepwell.metrics.scraping import Scrapes
from stepwell.metrics.sheet import Sheet
from stepwell.metrics.totals import Totals
from stepwell.metrics.worker import WorkerMetrics

Value = Callable[..., float | None]


def test_a_worker_says_what_runs_and_how_its_shards_do(sheet: Sheet, value: Value) -> None:
    metrics = WorkerMetrics(sheet, lambda _pid: None)
    states = {"running": 3, "restarting": 1}
    metrics.watch(lambda state: states.get(state, 0), lambda: [(0, 1)])
    metrics.refresh()
    metrics.restarted("killed")
    totals = Totals()
    totals.attach(0, sheet.source)
    page = Scrapes(totals, sheet).answer().body.decode()
    assert 'stepwell_build_info{version="' in page
    assert "stepwell_worker_started_timestamp_seconds " in page
    shown = {state: value("shards", state=state) for state in ("starting", "running", "restarting", "ending")}
    assert shown == {"starting": 0, "running": 3, "restarting": 1, "ending": 0}  # stepwell_shards
    assert value("shard_restarts_total", cause="killed") == 1  # stepwell_shard_restarts_total


def test_the_next_page_says_what_the_one_before_has_cost(sheet: Sheet) -> None:
    totals = Totals()
    totals.attach(0, sheet.source)
    scrapes = Scrapes(totals, sheet)
    first = len(scrapes.answer().body)
    page = scrapes.answer().body.decode()
    assert f"stepwell_exposition_bytes {first}" in page
    assert "stepwell_exposition_seconds " in page
