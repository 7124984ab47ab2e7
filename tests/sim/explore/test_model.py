"""The model refuses every wrong history of this table: a right one, in which one thing was changed by hand."""

from __future__ import annotations

import copy
from collections.abc import Callable
from typing import Any

import pytest
from sim.explore.history import Application, Command, History
from sim.explore.judging import token_of
from sim.explore.model import Model, judge
from sim.explore.plans import FLOWS, Plan
from sim.harness import World

MakeWorld = Callable[..., World]

# All that the table spoils: retries, a typed result, a gather that is wound up and retried, signals, a timeout.
BUSY: Plan = {
    "flow": "free",
    "plan": [
        ["step", "steady", "a", ["conn", "conn"], 1],
        ["step", "parcel", "b", [], 0],
        ["sleep", 7],
        ["gather", [[["step", "flat", "c", ["conn"], 0]], [["step", "steady", "d", [], 3]]]],
        ["wait", "red", None, True],
        ["wait", "red", 60, True],
        ["wait", "blue", 5, True],
        ["try", [["step", "once", "e", ["conn"], 0]], [["step", "quick", "f", [], 0]]],
        ["step", "patient", "g", ["after:30"], 0],
    ],
}
# `once` fails while `steady` backs off and `eager` runs; a retry brings all of them back.
WOUND: Plan = {
    "flow": "free",
    "plan": [
        [
            "gather",
            [
                [["sleep", 1], ["step", "once", "a", ["conn"], 0]],
                [["step", "steady", "b", ["conn", "conn", "conn"], 0.25]],
                [["step", "steady", "c", [], 3]],
                [["wait", "green", None, True]],
            ],
        ]
    ],
}
RESCUED: Plan = {
    "flow": "free",
    "plan": [["finally", [["step", "once", "a", ["conn"], 0]], [["step", "quick", "b", [], 0]]]],
}
STOPPED: Plan = {"flow": "narrow", "plan": [["guard", [["sleep", 100]], [["step", "quick", "a", [], 0]], False]]}


RIGHT: list[History] = []


@pytest.fixture
def history(make_world: MakeWorld) -> History:
    if not RIGHT:
        RIGHT.append(right(make_world(*FLOWS.values())))
    return copy.deepcopy(RIGHT[0])


def right(world: World) -> History:
    """A history in which all is well."""
    model = Model()
    world.shard()

    def send(execution_id: str, kind: str, name: str = "", number: int = 0) -> None:
        data = {"name": name, "payload": {"n": number}} if kind == "signal" else {}
        command_id = world.send(kind, execution_id, data, f"c{len(model.commands)}")
        model.sent(Command(command_id, execution_id, kind, name, number))

    for name, plan in (
        ("busy", BUSY),
        ("wound", WOUND),
        ("failed", WOUND),
        ("rescued", RESCUED),
        ("stopped", STOPPED),
    ):
        model.started(name, plan)
        world.start(plan["flow"], name, plan=plan["plan"])
    world.run_for(2.5)
    send("stopped", "cancel")
    send("busy", "signal", "red", 1)
    send("busy", "signal", "red", 2)
    send("busy", "signal", "strange", 3)
    world.run(lambda: world.status("wound") == "error")
    send("wound", "retry")
    world.run_for(30)
    send("wound", "signal", "green", 4)
    world.run()
    send("wound", "signal", "green", 5)
    send("nobody", "cancel")
    send("rescued", "retry")
    world.run()
    assert (world.status("failed"), world.status("rescued")) == ("error", "error")
    assert [world.status(name) for name in ("busy", "wound", "stopped")] == ["completed", "completed", "cancelled"]
    model.check(world)
    return model.history(world)


Spoil = Callable[[History], None]
SPOILED: dict[str, tuple[Spoil, str]] = {}


def wrong(says: str) -> Callable[[Spoil], Spoil]:
    """A wrong history, and what the model must say of it."""

    def register(spoil: Spoil) -> Spoil:
        SPOILED[spoil.__name__] = (spoil, says)
        return spoil

    return register


def fact(history: History, path: str, name: str = "busy") -> dict[str, Any]:
    return history.records[name].facts[path]


def attempt(history: History, path: str, n: int, name: str = "busy") -> dict[str, Any]:
    return history.records[name].attempts[path][n]


def again(history: History, like: str, name: str = "busy", **changes: Any) -> None:
    """One more body, as the last one of that step with changes."""
    last = next(run for run in reversed(history.bodies[name]) if run.path == like)
    run = copy.copy(last)
    for field, value in changes.items():
        setattr(run, field, value)
    history.bodies[name].append(run)


def sent(history: History, number: int) -> Command:
    return next(each for each in history.commands if each.number == number)


@wrong("parcel: what is recorded|its end|sleep: what is recorded")
def a_fact_is_lost(history: History) -> None:
    del history.records["busy"].facts["steady"]


@wrong("busy: how it ended")
def the_last_fact_is_lost(history: History) -> None:
    del history.records["busy"].facts["patient"]


@wrong("its place: expected one of its own")
def two_facts_have_one_place(history: History) -> None:
    fact(history, "sleep")["seq"] = fact(history, "parcel")["seq"]


@wrong("busy: its result")
def a_result_is_not_what_the_flow_saw(history: History) -> None:
    history.records["busy"].result["seen"][1][1] = "dict"


@wrong("busy: its result")
def facts_were_delivered_in_the_order_of_their_paths(history: History) -> None:
    record = history.records["busy"]
    one, two = record.facts["gather.0/flat"], record.facts["gather.1/steady"]
    one["seq"], two["seq"] = two["seq"], one["seq"]


@wrong("steady: its key")
def an_attempt_had_another_key(history: History) -> None:
    history.bodies["busy"][1].key = "busy:" + "0" * 32


@wrong("steady: its token")
def a_token_depends_on_the_attempt(history: History) -> None:
    fact(history, "steady")["token"] = token_of(history.secret, "busy", "steady3")


@wrong("what its body saw")
def a_body_saw_another_key(history: History) -> None:
    value = fact(history, "steady")["value"]
    value["key"] = value["key"][:-1] + "x"
    history.records["busy"].shown["steady"]["result"] = value


@wrong("once: its last attempt: expected at most 1, found 2")
def there_was_an_attempt_too_many(history: History) -> None:
    again(history, "once", attempt=2)


@wrong("steady: after attempt 1: expected that or the next, found 3")
def an_attempt_was_left_out(history: History) -> None:
    again(history, "steady")
    history.bodies["busy"].insert(1, history.bodies["busy"].pop())


@wrong("once attempt 1: the next one")
def attempts_went_on_after_the_budget(history: History) -> None:
    record = history.records["busy"]
    record.attempts["once"][1]["due_at"] = record.attempts["once"][1]["ended_at"] + 1000


@wrong("steady attempt 2: its end: expected its body's")
def a_failed_attempt_ended_when_it_was_recorded(history: History) -> None:
    for name in ("ended_at", "due_at"):
        attempt(history, "steady", 2)[name] += 1


@wrong("steady attempt 3: its end: expected its body's")
def a_result_came_when_it_was_recorded(history: History) -> None:
    fact(history, "steady")["ended_at"] += 1


@wrong("the delay after it: expected at least 2000 ms")
def a_delay_is_under_its_floor(history: History) -> None:
    attempt(history, "steady", 2)["due_at"] -= 600


@wrong("the delay after it: expected at least 30000 ms")
def what_the_error_asked_for_counted_for_nothing(history: History) -> None:
    attempt(history, "patient", 1)["due_at"] -= 20_000


@wrong("the delay after it: expected at most")
def a_delay_is_too_long(history: History) -> None:
    attempt(history, "steady", 1)["due_at"] += 1000


@wrong("steady attempt 3: its begin")
def an_attempt_began_before_it_was_due(history: History) -> None:
    moved = next(run for run in history.bodies["busy"] if run.path == "steady" and run.attempt == 3)
    moved.at_ms -= 500
    fact(history, "steady")["started_at"] = moved.at_ms


@wrong("no run after it was recorded")
def a_recorded_step_ran_again(history: History) -> None:
    again(history, "patient", at_ms=history.bodies["busy"][-1].at_ms + 5)


@wrong("steady attempt 1: expected no run after it was recorded")
def a_failed_attempt_ran_again(history: History) -> None:
    first = next(run for run in history.bodies["busy"] if run.path == "steady")
    run = copy.copy(first)
    run.at_ms += 1500
    history.bodies["busy"].insert(1, run)


@wrong("its result: expected what a body returned then")
def a_recorded_result_was_never_returned(history: History) -> None:
    next(run for run in history.bodies["busy"] if run.path == "parcel").value = b"{}"


@wrong("its result: expected the dict of")
def a_recorded_result_is_another_one(history: History) -> None:
    fact(history, "steady")["value"]["v"] += 1


@wrong("the attempt that succeeded")
def the_result_of_a_superseded_attempt_is_recorded(history: History) -> None:
    fact(history, "steady")["attempt"] = 2


@wrong("a body that raised")
def a_recorded_failure_never_happened(history: History) -> None:
    attempt(history, "steady", 1)["error"]["message"] = "something else"


@wrong("no such step in its plan")
def a_step_ran_that_the_flow_does_not_have(history: History) -> None:
    again(history, "quick", path="quick#2")


@wrong("signals 'red' that were received")
def a_signal_was_received_twice(history: History) -> None:
    fact(history, "wait#2")["value"] = {"n": 1}


@wrong("signals 'red' that were received")
def signals_were_received_in_another_order(history: History) -> None:
    fact(history, "wait")["value"], fact(history, "wait#2")["value"] = {"n": 2}, {"n": 1}


@wrong("signals 'strange' that are kept")
def a_signal_is_kept_after_the_end(history: History) -> None:
    history.records["busy"].signals.append({"name": "strange", "payload": {"n": 3}})


@wrong("wait#3: how long it waited")
def a_wait_timed_out_too_early(history: History) -> None:
    fact(history, "wait#3")["ended_at"] -= 2000


@wrong("sleep: how long it waited")
def a_sleep_was_too_short(history: History) -> None:
    fact(history, "sleep")["ended_at"] -= 1


@wrong("expected no timeout")
def a_wait_without_a_timeout_timed_out(history: History) -> None:
    fact(history, "wait").update(status="timed_out")


@wrong("its end: expected no Cancelled")
def something_was_cancelled_that_nobody_cancelled(history: History) -> None:
    fact(history, "sleep").update(status="cancelled", cancel=True)


@wrong("its end after a cancel")
def a_cancel_had_no_effect(history: History) -> None:
    fact(history, "sleep", "stopped").update(status="completed", cancel=False)
    history.recorded["stopped", "sleep"] += 100_000
    del history.records["stopped"].facts["quick"]


@wrong("not cancelled|no Cancelled")
def a_refused_cancel_had_an_effect(history: History) -> None:
    cancel = next(each for each in history.commands if each.kind == "cancel")
    cancel.applications[0].applied = False


@wrong("effects: expected one")
def a_command_had_its_effect_twice(history: History) -> None:
    applications = sent(history, 1).applications
    applications.append(Application("another", applications[0].at_ms, True, "running", ""))


@wrong("expected an outcome or a dead letter, found neither")
def a_command_was_dropped(history: History) -> None:
    sent(history, 5).applications.clear()


@wrong("expected an outcome or a dead letter, found neither")
def a_command_to_nobody_was_dropped(history: History) -> None:
    next(each for each in history.commands if each.execution_id == "nobody").buried = ""


@wrong("refused: expected it had ended")
def a_signal_was_refused_though_it_ran(history: History) -> None:
    sent(history, 5).applications[0].status = "running"


@wrong("a dead letter: expected none")
def a_command_that_could_be_applied_was_buried(history: History) -> None:
    sent(history, 5).applications.clear()
    sent(history, 5).buried = "malformed"


@wrong("the inboxes when all is over")
def something_was_left_in_an_inbox(history: History) -> None:
    history.inbox.append({"type": "start"})


@wrong("the lists that it is on")
def it_is_listed_under_another_status(history: History) -> None:
    history.listed["busy"] = ["error"]


@wrong("the lists that it is on")
def it_is_on_two_lists(history: History) -> None:
    history.listed["busy"] = ["completed", "running"]


@wrong("nobody started it")
def something_is_listed_that_nobody_started(history: History) -> None:
    history.listed["ghost"] = ["completed"]


@wrong("busy: expected an execution, found none")
def an_execution_is_gone(history: History) -> None:
    del history.records["busy"], history.listed["busy"]


@wrong("that are kept")
def an_execution_never_ended(history: History) -> None:
    history.records["busy"].status = "waiting"
    history.listed["busy"] = ["waiting"]


@wrong("what is open: expected nothing")
def an_ended_execution_has_something_open(history: History) -> None:
    record = history.records["busy"]
    record.open["steady#2"] = {"kind": "step", "token": "", "attempt": 1}


@wrong("what is shown of attempts")
def an_attempt_is_not_shown(history: History) -> None:
    history.records["busy"].shown["steady"]["attempts"].pop(0)


@wrong("steady: what is shown")
def another_key_is_shown(history: History) -> None:
    history.records["busy"].shown["steady"]["key"] = "busy:1"


@wrong("gather.1/steady attempt 4: the next one|gather.1/steady: its failure|how it ended")
def a_retry_restarted_the_budget_of_a_sibling(history: History) -> None:
    record = history.records["wound"]
    path = "gather.1/steady"
    history.plans["wound"]["plan"][0][1][1][0][3].append("conn")
    record.input = {"plan": history.plans["wound"]["plan"]}
    value = record.facts[path]
    last = next(run for run in reversed(history.bodies["wound"]) if run.path == path)
    last.value, last.error = None, ("ConnectionError", f"b fails in attempt 4 of wound:{value['token']}")
    record.attempts[path][4] = {"n": 4, "ended_at": value["ended_at"], "started_at": value["started_at"],
                                "due_at": value["ended_at"] + 1000,
                                "error": {"type": "ConnectionError", "message": last.error[1]}}  # fmt: skip


@wrong("gather.0/once: budgets begun anew")
def a_budget_began_anew_though_nobody_asked_for_it(history: History) -> None:
    retry = next(each for each in history.commands if each.kind == "retry" and each.execution_id == "wound")
    history.records["wound"].failures.clear()
    retry.applications[0].applied = False
    retry.applications[0].status = "completed"


@wrong("failed: what its failure left behind")
def a_terminal_error_drops_its_siblings(history: History) -> None:
    error = history.records["failed"].error
    assert error is not None
    del error["open"]["gather.1/steady"]


@wrong("failed: the step that failed it")
def an_error_names_another_step(history: History) -> None:
    error = history.records["failed"].error
    assert error is not None
    error["failed_step"]["path"] = "gather.1/steady"


@wrong("failed: its error")
def an_error_is_another_one(history: History) -> None:
    error = history.records["failed"].error
    assert error is not None
    error["message"] = "something else"


@wrong("rescued: compensated")
def what_was_compensated_could_be_retried(history: History) -> None:
    error = history.records["rescued"].error
    assert error is not None
    error["compensated"] = False


@wrong("refused: expected nothing to retry")
def a_retry_was_refused_for_no_reason(history: History) -> None:
    retry = next(each for each in history.commands if each.kind == "retry" and each.execution_id == "rescued")
    retry.applications[0].reason = "no"


@wrong("acknowledged, so it: expected is recorded")
def an_acknowledged_fact_was_forgotten(history: History) -> None:
    record = history.records["busy"]
    record.facts.clear()
    record.attempts.clear()
    record.open = {"steady": {"kind": "step", "attempt": 1, "token": token_of(history.secret, "busy", "steady")}}
    record.status, history.listed["busy"] = "running", ["running"]
    record.shown = {"steady": {**record.shown["steady"], "attempts": []}}
    history.lossy = True
    history.bodies["busy"].clear()


@wrong("wound: its input")
def its_input_is_another_one(history: History) -> None:
    history.records["wound"].input["plan"] = []


def test_the_right_history_is_accepted(history: History) -> None:
    judge(history)


@pytest.mark.parametrize("name", SPOILED)
def test_a_wrong_history_is_refused(history: History, name: str) -> None:
    spoil, says = SPOILED[name]
    spoil(history)
    with pytest.raises(AssertionError, match=says) as refused:
        judge(history, over=not history.lossy)
    assert ": expected" in str(refused.value)
