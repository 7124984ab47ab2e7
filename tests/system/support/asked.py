"""Flows whose steps tell a receiver of each attempt, and then do what their plan has for it.

A plan is a list of words, one for each attempt; the last one counts for all that follow.
"""

from __future__ import annotations

import json
import os
import urllib.request

from unhurried import unhurried  # of this file's folder

from stepwell import FatalError, Retry, RetryAfter, StepTimeout, current_step, flow, http, step, wait_for

QUICK = Retry(max_attempts=4, base=0.05)
TIMEOUT_SECONDS = 3.0
LATER_SECONDS = 0.3
HANG_SECONDS = 600.0  # some are held until all others have come to where they wait


def told(plan: list[str]) -> dict[str, str | int]:
    """What the receiver is told of this attempt."""
    me = current_step()
    return {
        "flow": me.flow,
        "step": me.step,
        "execution": me.execution_id,
        "attempt": me.attempt,
        "does": plan[min(me.attempt, len(plan)) - 1],
    }


def perform(does: str) -> object:
    """What can be done at once."""
    if does == "error":
        raise ConnectionError("no answer")
    if does == "fatal":
        raise FatalError("not like this")
    if does == "later":
        raise RetryAfter(LATER_SECONDS)
    if does == "crash":
        os._exit(3)
    return object() if does == "unfit" else does


async def tell_and_perform(url: str, plan: list[str]) -> object:
    """What those on the event loop do."""
    what = told(plan)
    await http.send("POST", url, json=what)
    return perform(str(what["does"]))


async def tell_and_perform_in_time(url: str, plan: list[str]) -> object:
    """What those do that have a timeout: only who is to hang meets it."""
    what = told(plan)
    await unhurried(http.send("POST", url, json=what), lambda _: what["does"] == "hang")
    return perform(str(what["does"]))


@step(retry=QUICK)
async def call(url: str, plan: list[str]) -> object:
    """On the event loop."""
    return await tell_and_perform(url, plan)


@step(retry=Retry(max_attempts=2, base=0.05), timeout=TIMEOUT_SECONDS)
async def call_in_time(url: str, plan: list[str]) -> object:
    """With a timeout, after which it is tried again."""
    return await tell_and_perform_in_time(url, plan)


@step(retry=Retry(max_attempts=2, base=0.05, give_up_on=(StepTimeout,)), timeout=TIMEOUT_SECONDS)
async def call_once_in_time(url: str, plan: list[str]) -> object:
    """With a timeout, after which it is not tried again."""
    return await tell_and_perform_in_time(url, plan)


@step(retry=QUICK)
def call_on_a_thread(url: str, plan: list[str]) -> object:
    """On a thread."""
    return perform(tell(url, plan))


@step(retry=QUICK, isolation="process")
def call_apart(url: str, plan: list[str]) -> object:
    """In a process of its own."""
    return perform(tell(url, plan))


@step(retry=Retry(max_attempts=2, base=3600.0, cap=3600.0))
def call_after_rest(url: str, plan: list[str]) -> object:
    """Backs off for an hour."""
    return perform(tell(url, plan))


def tell(url: str, plan: list[str]) -> str:
    """Tell the receiver; what is to be done."""
    what = told(plan)
    request = urllib.request.Request(url, json.dumps(what).encode(), {"Content-Type": "application/json"})
    with urllib.request.urlopen(request, timeout=HANG_SECONDS):
        return str(what["does"])


@flow
async def asked(url: str, plan: list[str]) -> object:
    """One call."""
    return await call(url, plan)


@flow
async def asked_in_time(url: str, plan: list[str]) -> object:
    """One call that must be in time."""
    return await call_in_time(url, plan)


@flow
async def asked_once_in_time(url: str, plan: list[str]) -> object:
    """One call that must be in time at once."""
    return await call_once_in_time(url, plan)


@flow
async def asked_on_a_thread(url: str, plan: list[str]) -> object:
    """One call on a thread, then another one."""
    await call_on_a_thread(url, plan)
    return await call(url, ["ok"])


@flow
async def asked_apart(url: str, plan: list[str]) -> object:
    """One call in a process."""
    return await call_apart(url, plan)


@flow
async def asked_to_rest(url: str, plan: list[str]) -> object:
    """One call, in an hour again."""
    return await call_after_rest(url, plan)


@flow
async def asked_to_wait() -> object:
    """Waits for a signal."""
    return await wait_for("go")
