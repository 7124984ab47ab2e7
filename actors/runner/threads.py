"""A bounded pool of threads for sync step bodies.

A thread can't be stopped from outside. One that is far over its step's timeout is given up: a fresh thread takes
its slot, at most as many as the pool has; the body's outcome still counts when it comes.
"""

from __future__ import annotations

import logging
import queue
import threading
from collections.abc import Callable
from typing import TypeAlias

from stepwell.core.fair import FairQueue
from stepwell.metrics.saying import say

logger = logging.getLogger("stepwell.runner")
Job: TypeAlias = Callable[[], None]


class ThreadPool:
    """Runs jobs on at most `size` threads (plus those given up), started as they are needed."""

    def __init__(self, size: int, name: str) -> None:
        self._size = size
        self._name = name
        self._jobs: FairQueue[Job] = FairQueue()
        self._tickets: queue.SimpleQueue[bool] = queue.SimpleQueue()  # one for each job; False: end
        self._lock = threading.Lock()
        self._threads = 0
        self._waiting = 0  # jobs queued and not taken
        self._idle = 0
        self._surplus = 0  # threads that must end because a replacement took their slot
        self.given_up = 0

    def submit(self, job: Job, flow: str = "") -> bool:
        """Queue a job, which must not raise; flows take turns. False: the system gives no thread, and there is none;
        try again later."""
        with self._lock:
            if self._idle <= self._waiting and self._threads < self._size + self.given_up:
                self._spawn()
            if not self._threads:
                return False
            self._waiting += 1
            self._jobs.push(flow, job)
        self._tickets.put(True)
        return True

    def give_up_one(self) -> bool:
        """Free the slot of a thread that hangs; False if as many as the pool's size hang already."""
        with self._lock:
            if self.given_up >= self._size:
                return False
            self.given_up += 1
            if self._waiting > self._idle:
                self._spawn()
            return True

    def came_back(self) -> None:
        """A thread that was given up has finished its job after all."""
        with self._lock:
            self.given_up -= 1
            if self._threads > self._size + self.given_up:
                self._surplus += 1

    def stop(self) -> None:
        """Let idle threads end; busy ones are daemons and end with the process."""
        with self._lock:
            for _ in range(self._threads):
                self._tickets.put(False)

    def _spawn(self) -> None:
        thread = threading.Thread(target=self._run, name=f"{self._name}-{self._threads + 1}", daemon=True)
        try:
            thread.start()
        except RuntimeError as error:
            told = "no thread for sync steps beyond %d: %s"
            say(logger, "StepsHeldBack", told, self._threads, error, part="threads", error=error)
        else:
            self._threads += 1

    def _run(self) -> None:
        while True:
            with self._lock:
                if self._surplus:
                    self._surplus -= 1
                    self._threads -= 1
                    return
                self._idle += 1
            goes_on = self._tickets.get()
            with self._lock:
                self._idle -= 1
                if not goes_on:
                    self._threads -= 1
                    return
                self._waiting -= 1
                job = self._jobs.pop()
            assert job is not None, "a ticket has its job"
            job()
            del job  # a parked thread must pin nothing of what it ran
