"""The timeline that `show` draws: golden texts of executions in each situation."""

from __future__ import annotations

import textwrap
from typing import Any

import pytest

from stepwell import FatalError, Retry, flow, gather
from stepwell import step as a_step
from stepwell.cli.session import plain
from stepwell.cli.timeline import duration, timeline, utc
from stepwell.testing import LocalRun, local_execution

T0 = 1_767_323_045_000  # 2026-01-02T03:04:05Z
TOKEN = "ab" * 16


@a_step(retry=Retry(max_attempts=5, base=60, jitter=0))
def shaky() -> None:
    raise OSError("down")


@a_step
def fatal() -> None:
    raise FatalError("no such card")


@flow
async def alone() -> None:
    await shaky()


@flow
async def doomed() -> None:
    await gather(fatal(), shaky())


def line_of(run: LocalRun, later_ms: int, what: str) -> str:
    """The line of an execution's drawing that has this text, without what stands before its first comma."""
    (line,) = (plain(line) for line in timeline(run.show(), run.now_ms + later_ms, 200) if what in plain(line))
    return line.partition(", ")[2]


def view(**changes: Any) -> dict[str, Any]:
    return {
        "id": "A1",
        "flow": "checkout",
        "status": "running",
        "input": {"order": "A1"},
        "result": None,
        "rev": 7,
        "created_at": T0,
        "updated_at": T0,
        "started_at": T0,
        "ended_at": None,
        "cancelling": False,
        "steps": [],
        "waits": [],
        "open": {},
        "error": None,
        "failures": [],
        **changes,
    }


def attempt(n: int, started: int | None, ended: int, error: str = "", due: int | None = None) -> dict[str, Any]:
    return {
        "n": n,
        "started_at": None if started is None else T0 + started,
        "ended_at": T0 + ended,
        "error": {"type": "HttpError", "message": error, "reason": ""} if error else None,
        "due_at": None if due is None else T0 + due,
    }


def step(path: str, status: str, declared: int, *attempts: dict[str, Any], interruptions: int = 0) -> dict[str, Any]:
    return {
        "path": path,
        "status": status,
        "token": TOKEN,
        "key": f"A1:{TOKEN}",
        "result": None,
        "attempts": list(attempts),
        "declared_at": T0 + declared,
        "finished_at": None,
        "interruptions": interruptions,
        "drains": 0,
    }


def opened(status: str, attempt: int, due: int | None = None) -> dict[str, Any]:
    return {"kind": "step", "status": status, "attempt": attempt, "due_at": None if due is None else T0 + due}


def wait(path: str, kind: str, name: str, declared: int, finished: int | None, due: int | None) -> dict[str, Any]:
    return {
        "path": path,
        "kind": kind,
        "name": name,
        "status": "waiting" if finished is None else "completed",
        "declared_at": T0 + declared,
        "finished_at": None if finished is None else T0 + finished,
        "due_at": None if due is None else T0 + due,
    }


def failure(**changes: Any) -> dict[str, Any]:
    return {
        "type": "StepFailed",
        "message": "step charge failed after 2 attempts: HttpError: 503",
        "attempts": 2,
        "failed_step": {"path": "charge", "token": TOKEN, "attempts": 2},
        "open": {},
        "compensated": False,
        "detail": "",
        "at": T0 + 2000,
        **changes,
    }


def drawn(shown: dict[str, Any], now: int, width: int = 72, ascii_only: bool = False) -> str:
    return "\n".join(plain(line) for line in timeline(shown, T0 + now, width, ascii_only)) + "\n"


def golden(text: str) -> str:
    return textwrap.dedent(text).lstrip("\n")


BACKING_OFF = view(
    status="waiting",
    steps=[
        step("reserve", "completed", 0, attempt(1, 0, 500)),
        step("charge", "backoff", 500, attempt(1, 500, 1000, "503", 2000), attempt(2, 2000, 3000, "reset", 5000)),
    ],
    open={"charge": opened("backoff", 3, 5000)},
)


def test_a_step_that_backs_off_shows_its_attempts_and_what_comes_next() -> None:
    assert drawn(BACKING_OFF, 3500) == golden(f"""
        A1  flow checkout  waiting
        created 2026-01-02T03:04:05.000Z, 3.5 s ago
        input   {{"order":"A1"}}

        step     status     tries  0                                         5 s
        reserve  completed      1  █████
            key A1:{TOKEN}
        charge   backoff        2      ████✗········█████████✗··················
            key A1:{TOKEN}
            1  at 500 ms, took 500 ms, next after 1.000 s: HttpError: 503
            2  at 2 s, took 1 s, next in 1.5 s: HttpError: reset
        """)


def test_a_terminal_that_shows_ascii_only_gets_ascii() -> None:
    text = drawn(BACKING_OFF, 3500, ascii_only=True)
    assert text.isascii()
    assert "    ####x........#########x.................." in text


def test_a_narrow_screen_drops_the_axis_and_keeps_the_facts() -> None:
    text = drawn(BACKING_OFF, 3500, width=30)
    assert "█" not in text
    assert f"A1:{TOKEN}" in text
    assert "next in 1.5 s: HttpError: reset" in text


def test_a_failed_execution_says_what_failed_and_what_to_do() -> None:
    shown = view(
        status="error",
        ended_at=T0 + 2000,
        steps=[step("charge", "failed", 0, attempt(1, 0, 100, "503", 1100), attempt(2, 1100, 2000, "503"))],
        error=failure(open={"charge": {}, "gather.1/ship": {}}),
    )
    assert drawn(shown, 9000, width=60) == golden(f"""
        A1  flow checkout  error
        created 2026-01-02T03:04:05.000Z, ended after 2 s
        input   {{"order":"A1"}}

        step    status  tries  0                                 2 s
        charge  failed      2  █✗·················█████████████████✗
            key A1:{TOKEN}
            1  at 0 ms, took 100 ms, next after 1.000 s: HttpError: 503
            2  at 1.1 s, took 900 ms, gave up: HttpError: 503

        error   StepFailed: step charge failed after 2 attempts: HttpError: 503
                step charge, tried twice, token {TOKEN}
                left open: gather.1/ship
        to do   mend the cause, then: stepwell retry A1 (the same keys, a fresh budget)
        """)


def test_a_compensated_failure_is_not_to_be_retried() -> None:
    text = drawn(view(status="error", ended_at=T0 + 1, error=failure(compensated=True)), 9)
    assert "to do   start another execution" in text
    assert "stepwell retry" not in text


@pytest.mark.parametrize(
    ("reason", "advice"),
    [
        ("code diverged", "run code that fits the record (mend it, or roll back), then: stepwell retry A1"),
        (
            "crashes its shard",
            "mend the flow's code (move what takes long, or may crash, into a @step), then: stepwell retry A1",
        ),
        ("crashed", "mend what the traceback shows, then: stepwell retry A1"),
        ("unreadable row", "repair its row in Redis, then: stepwell retry A1"),
        ("not deployed here", "run all workers with the flow checkout: it goes on once the one in charge has it"),
    ],
)
def test_a_parked_execution_says_why_and_what_to_do(reason: str, advice: str) -> None:
    parked = failure(type=reason, message="the record has a, the code b", failed_step=None, attempts=0)
    text = drawn(view(status="parked", error=parked, steps=[step("a", "ready", 0)], open={"a": opened("ready", 1)}), 9)
    assert f"parked  {reason}: the record has a, the code b\nto do   {advice}\n" in text
    assert "1  has not begun" in text


@pytest.mark.pain(27)
@pytest.mark.parametrize(
    ("status", "later_ms", "said"),
    [
        ("waiting", 5_100, "next in 55 s"),
        ("waiting", 63_100, "next is overdue by 3 s"),
        ("parked", 5_100, "next when it goes on, in 55 s at the earliest"),
        ("parked", 63_100, "next when it goes on"),
    ],
)
def test_when_the_next_attempt_comes_is_told_as_it_is(status: str, later_ms: int, said: str) -> None:
    """No timer counts while it is parked; and what is due has not begun by that."""
    charge = step("charge", "backoff", 0, attempt(1, 0, 100, "503", 60_100))
    parked = failure(type="not deployed here", failed_step=None) if status == "parked" else None
    text = drawn(
        view(status=status, steps=[charge], open={"charge": opened("backoff", 2, 60_100)}, error=parked), later_ms
    )
    assert f"1  at 0 ms, took 100 ms, {said}: HttpError: 503\n" in text


def test_a_sleep_of_a_parked_execution_lasts_until_it_goes_on() -> None:
    sleeps = wait("sleep", "timer", "", 0, None, 60_000)
    shown = view(status="parked", waits=[sleeps], open={"sleep": opened("waiting", 0)}, error=failure(type="crashed"))
    assert ", 59 s more, and until it goes on\n" in drawn(shown, 1000)


def test_waits_stand_between_the_steps_and_say_what_ends_them() -> None:
    shown = view(
        status="waiting",
        steps=[step("ship", "completed", 1000, attempt(1, 1000, 1000))],
        waits=[
            wait("sleep", "timer", "", 0, 1000, None),
            wait("wait", "signal", "go", 1000, None, 61_000),
            wait("sleep#2", "timer", "", 1000, None, 7_201_000),
        ],
        open={"wait": opened("waiting", 0), "sleep#2": opened("waiting", 0)},
    )
    assert drawn(shown, 2000, width=64) == golden(f"""
        A1  flow checkout  waiting
        created 2026-01-02T03:04:05.000Z, 2 s ago
        input   {{"order":"A1"}}

        step       status     tries  0                               2 s
        sleep      completed         ──────────────────
        wait (go)  waiting                            ─────────────────▶
            for the signal go, until 2026-01-02T03:05:06.000Z, 59 s more; send it: stepwell signal A1 go --payload JSON
        sleep#2    waiting                            ─────────────────▶
            until 2026-01-02T05:04:06.000Z, 1 h 59 min more
        ship       completed      1                   █
            key A1:{TOKEN}
        """)


def test_a_sleep_that_is_over_and_was_not_gone_on_with_is_overdue() -> None:
    shown = view(
        status="parked",
        waits=[wait("sleep", "timer", "", 0, None, 1000)],
        open={"sleep": opened("waiting", 0)},
        error={"type": "crashes its shard", "message": "three times", "failed_step": None, "open": []},
    )
    assert "until 2026-01-02T03:04:06.000Z, overdue by 1 min\n" in drawn(shown, 61_000, width=64)


def test_a_running_attempt_an_interruption_and_a_gap_in_the_kept_attempts_are_told() -> None:
    shown = view(
        steps=[
            step(
                "poll",
                "running",
                0,
                attempt(1, 0, 100, "no", 200),
                attempt(30, None, 900, "no", 1000),
                interruptions=2,
            )
        ],
        open={"poll": opened("running", 31)},
    )
    lines = drawn(shown, 3000).splitlines()
    assert lines[-4:] == [
        "    …  28 more are not kept",
        "    30  at 200 ms, next after 0.100 s: HttpError: no",
        "    31  begun at most 2 s ago",
        "    cut short twice by a crash",
    ]
    assert lines[5].startswith("poll  running     31  ")
    assert lines[5].endswith("▶")


@pytest.mark.parametrize(
    ("interruptions", "drains", "said"),
    [
        (1, 0, "cut short once by a crash"),
        (2, 2, "cut short twice by a worker's end"),
        (4, 1, "cut short 3 times by a crash and once by a worker's end"),
    ],
)
def test_what_cut_a_step_short_is_told(interruptions: int, drains: int, said: str) -> None:
    poll = step("poll", "running", 0, interruptions=interruptions) | {"drains": drains}
    assert drawn(view(steps=[poll], open={"poll": opened("running", 1)}), 9).splitlines()[-1] == f"    {said}"


@pytest.mark.parametrize(
    ("status", "said"),
    [
        ("running", "in a process of its own now, or waits for one: a shard has 4 at once"),
        ("backoff", "in a process of its own now"),
    ],
)
def test_what_is_set_apart_may_wait_for_that(status: str, said: str) -> None:
    poll = step("poll", status, 0, attempt(1, 0, 100, "no", 200), interruptions=2) | {"set_apart": True}
    shown = view(steps=[poll], open={"poll": opened(status, 2)})
    assert drawn(shown, 300).splitlines()[-1] == f"    cut short twice by a crash; it runs {said}"


def test_a_completed_execution_shows_its_result_and_the_failures_before() -> None:
    shown = view(status="completed", ended_at=T0 + 9, result={"paid": True}, failures=[failure()])
    assert drawn(shown, 99).splitlines()[-2:] == [
        'result  {"paid":true}',
        "failed before, at 2026-01-02T03:04:07.000Z, and retried: "
        "StepFailed: step charge failed after 2 attempts: HttpError: 503",
    ]


def test_a_huge_result_is_cut_and_says_where_all_of_it_is() -> None:
    text = drawn(view(status="completed", ended_at=T0 + 9, result="x" * 100_000), 99)
    assert len(text) < 1000
    assert "(all of it: stepwell result A1)" in text


def test_long_errors_take_one_line_of_the_screen() -> None:
    shown = view(steps=[step("a", "failed", 0, attempt(1, 0, 5, "first line\nsecond line " + "x" * 500))])
    line = drawn(shown, 9).splitlines()[-1]
    assert len(line) == 72
    assert "HttpError: first line\\nsecond line" in line
    assert line.endswith("…")


def test_a_long_path_keeps_its_end() -> None:
    shown = view(steps=[step("gather#12.345/gather#7.1/gather.0/ship#9", "completed", 0, attempt(1, 0, 1))])
    assert "\n…#7.1/gather.0/ship#9  completed" in drawn(shown, 5)


def test_a_damaged_row_shows_what_can_be_read() -> None:
    shown = view(flow="", created_at=None, input=None, unreadable="the field meta is malformed")
    text = drawn(shown, 5)
    assert "A1  flow (unknown)  running" in text
    assert "damaged the field meta is malformed" in text


def test_the_head_says_when_anything_was_written_last_until_it_has_ended() -> None:
    changed = view(updated_at=T0 + 1500)
    assert drawn(changed, 3500).splitlines()[1] == "created 2026-01-02T03:04:05.000Z, 3.5 s ago, changed 2 s ago"
    winding = drawn({**changed, "cancelling": True}, 1000).splitlines()[1]
    assert winding.endswith(", 1 s ago, changed 0 ms ago, being cancelled")
    ended = {**changed, "status": "completed", "ended_at": T0 + 1500}
    assert drawn(ended, 3500).splitlines()[1] == "created 2026-01-02T03:04:05.000Z, ended after 1.5 s"


def test_an_execution_that_has_not_begun_has_no_axis() -> None:
    assert drawn(view(status="queued"), 0).splitlines() == [
        "A1  flow checkout  queued",
        "created 2026-01-02T03:04:05.000Z, 0 ms ago",
        'input   {"order":"A1"}',
    ]


@pytest.mark.parametrize(
    ("ms", "text"),
    [
        (0, "0 ms"),
        (12, "12 ms"),
        (999, "999 ms"),
        (1_000, "1 s"),
        (1_234, "1.23 s"),
        (59_949, "59.9 s"),
        (59_999, "1 min"),
        (61_000, "1 min 1 s"),
        (3_599_999, "1 h"),
        (7_260_000, "2 h 1 min"),
        (90_000_000, "1 d 1 h"),
    ],
)
def test_durations_are_for_people(ms: int, text: str) -> None:
    assert duration(ms) == text


def test_times_are_utc_to_the_millisecond() -> None:
    assert utc(T0 + 7) == "2026-01-02T03:04:05.007Z"
    assert utc(None) == ""


def test_a_backoff_that_a_retry_ended_shows_how_long_it_was() -> None:
    tries = [attempt(1, 0, 100, "503", 60_100), attempt(2, 1900, 2000, "503", 62_000), attempt(3, 2100, 2200)]
    shown = view(status="completed", ended_at=T0 + 2200, steps=[step("charge", "completed", 0, *tries)])
    text = drawn(shown, 9000)
    assert "1  at 0 ms, took 100 ms, next after 1.800 s (by retry): HttpError: 503" in text
    assert "2  at 1.9 s, took 100 ms, next after 0.100 s (by retry): HttpError: 503" in text
    on_time = view(steps=[step("charge", "completed", 0, attempt(1, 0, 100, "503", 1100), attempt(2, 1101, 1200))])
    assert "next after 1.000 s: HttpError" in drawn(on_time, 9000)


@pytest.mark.parametrize(
    ("due", "began", "by_hand"),
    [(1_100, 1_096, False), (1_100, 1_000, False), (1_100, 999, True), (3_600_100, 3_596_600, False)],
)
def test_what_begins_a_little_early_since_the_clock_was_moved_was_not_retried(
    due: int, began: int, by_hand: bool
) -> None:
    tries = [attempt(1, 0, 100, "503", due), attempt(2, began, began + 50)]
    ended = drawn(view(status="completed", steps=[step("charge", "completed", 0, *tries)]), due + 100)
    assert ("(by retry)" in ended) == by_hand
    running = view(steps=[step("charge", "running", 0, tries[0])], open={"charge": opened("running", 2)})
    assert ("(by retry)" in drawn(running, began)) == by_hand


def test_an_attempt_that_a_retry_began_and_that_runs_is_told() -> None:
    charge = step("charge", "running", 0, attempt(1, 0, 100, "503", 60_100))
    text = drawn(view(steps=[charge], open={"charge": opened("running", 2)}), 5000)
    assert "1  at 0 ms, took 100 ms, next (by retry): HttpError: 503" in text


def test_a_failure_says_where_it_was_raised() -> None:
    failed = attempt(1, 0, 100, "503")
    failed["error"]["where"] = "shop/flows.py:12 in charge"
    lines = drawn(view(steps=[step("charge", "failed", 0, failed)]), 9).splitlines()
    assert lines[-1] == "       raised at shop/flows.py:12 in charge"


def test_signals_that_are_kept_are_listed() -> None:
    text = drawn(view(signals=[{"name": "aproval", "at": T0, "payload": None}]), 9)
    assert "kept    signal aproval, since 2026-01-02T03:04:05.000Z: nothing waits for it" in text


def test_what_was_cancelled_while_parked_is_not_to_be_retried() -> None:
    text = drawn(view(status="cancelled", ended_at=T0 + 1, error=failure(type="Cancelled", failed_step=None)), 9)
    assert "to do   start another execution" in text
    assert "stepwell retry" not in text


@pytest.mark.parametrize("later_ms", [0, 3_600_000])
def test_a_cancelled_execution_counts_down_to_nothing(later_ms: int) -> None:
    run = local_execution(alone)
    run.finish("shaky")
    assert line_of(run, 0, "down") == "took 0 ms, next in 1 min: OSError: down"
    run.advance(1)
    run.cancel()
    assert line_of(run, later_ms, "down") == "took 0 ms, not tried again (cancelled): OSError: down"


@pytest.mark.parametrize("order", [("gather.0/fatal", "gather.1/shaky"), ("gather.1/shaky", "gather.0/fatal")])
def test_what_a_gathers_failure_ended_says_so(order: tuple[str, str]) -> None:
    run = local_execution(doomed)
    for path in order:
        run.finish(path)
    expected = "took 0 ms, not tried again (a sibling of its gather failed): OSError: down"
    assert line_of(run, 3_600_000, "OSError") == expected
    assert line_of(run, 0, "took 0 ms, gave up") == "took 0 ms, gave up (fatal): FatalError: no such card"


def test_a_branch_that_a_cancel_ended_is_not_laid_on_its_siblings() -> None:
    run = local_execution(doomed)
    run.finish("gather.1/shaky")
    run.cancel()
    assert line_of(run, 0, "OSError") == "took 0 ms, not tried again (cancelled): OSError: down"


def test_a_backoff_that_was_cut_short_is_drawn_up_to_its_end() -> None:
    charge = step("charge", "cancelled", 0, attempt(1, 0, 100, "503", 60_100)) | {"finished_at": T0 + 500}
    text = drawn(view(status="running", cancelling=True, steps=[charge]), 5_000)
    bar = text.splitlines()[5].partition("  1  ")[2].rstrip()
    assert 0 < bar.count("·") < 8
