"""The bounded pool of threads for sync steps."""

from __future__ import annotations

import threading
from functools import partial

import pytest

from stepwell.actors.runner.threads import ThreadPool

pytestmark = pytest.mark.threads
HANG_SECONDS = 50.0


class Jobs:
    """Jobs that wait for the test, and how many run at once."""

    def __init__(self, pool: ThreadPool) -> None:
        self.pool = pool
        self.begun = threading.Semaphore(0)
        self.ended = threading.Semaphore(0)
        self.gate = threading.Event()
        self.names: set[str] = set()

    def submit(self, count: int) -> None:
        for _ in range(count):
            self.pool.submit(self._job)

    def _job(self) -> None:
        self.names.add(threading.current_thread().name)
        self.begun.release()
        assert self.gate.wait(HANG_SECONDS)
        self.ended.release()

    def wait_begun(self, count: int) -> None:
        for _ in range(count):
            assert self.begun.acquire(timeout=HANG_SECONDS)

    def wait_ended(self, count: int) -> None:
        for _ in range(count):
            assert self.ended.acquire(timeout=HANG_SECONDS)


def test_threads_start_as_needed_and_stay_within_the_size() -> None:
    pool = ThreadPool(3, "t")
    assert pool._threads == 0
    jobs = Jobs(pool)
    jobs.submit(10)
    jobs.wait_begun(3)
    assert pool._threads == 3
    assert not jobs.begun.acquire(blocking=False)
    jobs.gate.set()
    jobs.wait_ended(10)
    assert len(jobs.names) == 3
    pool.stop()


def test_one_job_after_another_needs_one_thread() -> None:
    pool = ThreadPool(8, "t")
    jobs = Jobs(pool)
    jobs.gate.set()
    for _ in range(20):
        jobs.submit(1)
        jobs.wait_ended(1)
        while pool._idle == 0:  # until the thread is back
            pass
    assert len(jobs.names) == 1
    pool.stop()


def test_a_thread_that_is_given_up_is_replaced_until_it_comes_back() -> None:
    pool = ThreadPool(1, "t")
    hanging, next_one = Jobs(pool), Jobs(pool)
    hanging.submit(1)
    hanging.wait_begun(1)
    next_one.submit(1)
    assert not next_one.begun.acquire(blocking=False)
    assert pool.give_up_one()
    next_one.wait_begun(1)
    assert pool.given_up == 1
    assert not pool.give_up_one(), "no more than the pool has"
    hanging.gate.set()
    hanging.wait_ended(1)
    pool.came_back()
    next_one.gate.set()
    next_one.wait_ended(1)
    more = Jobs(pool)
    more.gate.set()
    more.submit(5)
    more.wait_ended(5)
    while pool._threads > 1:  # the surplus thread ends after its next job
        pass
    assert pool.given_up == 0
    pool.stop()


def test_flows_take_turns_for_threads() -> None:
    pool = ThreadPool(1, "test")
    jobs = Jobs(pool)
    order: list[str] = []
    done = threading.Event()
    jobs.submit(1)
    jobs.wait_begun(1)
    for n in range(3):
        pool.submit(partial(order.append, f"a{n}"), "a")
    pool.submit(lambda: order.append("b"), "b")
    pool.submit(done.set, "c")
    pool.submit(lambda: order.append("last"), "a")
    jobs.gate.set()
    assert done.wait(HANG_SECONDS)
    assert order[:2] == ["a0", "b"]
    pool.stop()
