"""Who is blamed for a death: only who is certain to have done it, else all who may have."""

from __future__ import annotations

from stepwell.actors.boxreport import BoxAttempt, BoxReport, Fault
from stepwell.actors.verdict import judge

SCHEDULER, LOOP, POOL = 1, 2, 3
WAITS = BoxAttempt(0, "waits", "t1", "charge", 1)
RESUMED = BoxAttempt(0, "resumed", "t2", "charge", 1, "loop")
BLOCKS = BoxAttempt(0, "blocks", "t3", "charge", 1, "thread", POOL)
ALSO_BLOCKS = BoxAttempt(0, "also", "t4", "charge", 1, "thread", POOL + 1)


def report(
    *attempts: BoxAttempt,
    driven: str = "",
    seconds: float = 0.1,
    entry: tuple[int, str] | None = None,
    fault: int = 0,
    complete: bool = True,
    silent: float = 1.0,
) -> BoxReport:
    return BoxReport(
        box_id="ab",
        pid=1,
        read_at=100.0,
        beat_at=100.0 - silent,
        turn=(driven, 100.0 - seconds) if driven else None,
        entry=entry,
        attempts=attempts,
        complete=complete,
        scheduler_thread=SCHEDULER,
        loop_thread=LOOP,
        fault=Fault("Segmentation fault", fault, "flows.py:3 in f") if fault else None,
    )


def test_without_a_box_nothing_is_known() -> None:
    verdict = judge(None)
    assert (verdict.execution, verdict.entry, verdict.cut) == ("", None, None)


def test_a_hang_is_the_fault_of_who_was_driven_and_of_nobody_else() -> None:
    verdict = judge(report(WAITS, RESUMED, BLOCKS, driven="order-1", seconds=12.0, complete=False))
    assert (verdict.execution, verdict.cut) == ("order-1", ())
    assert verdict.cause == "it hung for 12 s"
    where = judge(report(WAITS, driven="order-1", seconds=12.0), "at flows.py:3 in f")
    assert where.cause == "it hung for 12 s at flows.py:3 in f"


def test_when_nothing_ran_in_a_hanging_process_it_may_have_been_anybody_at_work() -> None:
    verdict = judge(report(WAITS, BLOCKS, driven="order-1", seconds=12.0, silent=11.0))
    assert (verdict.execution, verdict.cut) == ("order-1", ((WAITS, False), (BLOCKS, True)))


def test_an_entry_that_hangs_the_dispatcher_is_struck() -> None:
    verdict = judge(report(WAITS, driven=":dispatcher", seconds=11.0, entry=(3, "5-1")))
    assert (verdict.execution, verdict.entry, verdict.cut) == ("", (3, "5-1"), ())


def test_a_fatal_signal_in_the_scheduler_s_thread_is_the_fault_of_who_was_driven() -> None:
    verdict = judge(report(WAITS, RESUMED, BLOCKS, driven="order-1", fault=SCHEDULER))
    assert (verdict.execution, verdict.cut) == ("order-1", ())
    assert verdict.cause == "Segmentation fault at flows.py:3 in f"


def test_a_fatal_signal_in_a_step_is_that_step_s_fault() -> None:
    running = (WAITS, RESUMED, BLOCKS, ALSO_BLOCKS)
    by_loop = judge(report(*running, driven="order-1", fault=LOOP))
    assert (by_loop.execution, by_loop.cut) == ("", ((RESUMED, True),))
    by_thread = judge(report(*running, driven="order-1", fault=POOL))
    assert (by_thread.execution, by_thread.cut) == ("", ((BLOCKS, True),))


def test_a_fatal_signal_in_a_thread_that_nobody_knows_may_be_any_step_s_fault() -> None:
    verdict = judge(report(WAITS, BLOCKS, driven="order-1", fault=99))
    assert (verdict.execution, verdict.cut) == ("", ((WAITS, False), (BLOCKS, True)))


def test_a_sudden_death_cuts_short_all_that_ran_and_names_what_was_at_work() -> None:
    verdict = judge(report(WAITS, BLOCKS, driven="order-1"))
    assert (verdict.execution, verdict.cut) == ("order-1", ((WAITS, False), (BLOCKS, True)))


def test_a_step_that_the_loop_resumes_is_likelier_than_who_is_driven() -> None:
    verdict = judge(report(WAITS, RESUMED, driven="order-1", entry=(3, "5-1")))
    assert (verdict.execution, verdict.entry) == ("", None)
    assert verdict.cut == ((WAITS, False), (RESUMED, True))


def test_an_incomplete_box_does_not_say_what_ran() -> None:
    verdict = judge(report(WAITS, driven="order-1", complete=False))
    assert (verdict.execution, verdict.cut) == ("order-1", None)
