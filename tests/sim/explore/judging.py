"""Judges one execution: whether its record is one that its plan, the commands and the bodies that ran allow."""

from __future__ import annotations

import base64
import json
from collections.abc import Iterator
from datetime import datetime
from hashlib import blake2b
from itertools import pairwise
from typing import Any

from sim.bodies import Run
from sim.explore.history import Command, History, Json, Record
from sim.explore.plans import ELSEWHERE, input_of
from sim.explore.steps import POLICIES, Policy, told, value_of, word_of
from sim.explore.walk import Asked, Outcome, Walk

INTERRUPTIONS_MOST = 10
TERMINAL = ("completed", "error", "cancelled")


def token_of(secret: bytes, execution_id: str, path: str) -> str:
    """The token of a step, by the formula of the design (run 0, generation 0)."""
    seed = blake2b(f"{execution_id}\0{0}".encode(), key=secret, digest_size=16).digest()
    return blake2b(f"{path}\0{0}".encode(), key=seed, digest_size=16).hexdigest()


def expect(holds: object, what: str, expected: object, found: object) -> None:
    """One rule; `what` names execution and step."""
    if not holds:
        raise AssertionError(f"{what}: expected {expected}, found {found}")


class Verdict:
    """See the module's docstring. `walk`: what its flow must have done, by the facts of the record."""

    def __init__(self, history: History, record: Record) -> None:
        self.history = history
        self.record = record
        self.id = record.execution_id
        self.bodies: dict[str, list[Run]] = {}
        for body in history.bodies.get(self.id, []):
            self.bodies.setdefault(body.path, []).append(body)
        mine = [each for each in history.commands if each.execution_id == self.id]
        self.accepted = sorted((each for each in mine if each.accepted), key=lambda each: each.place)
        self.retries = [each for each in self.accepted if each.kind == "retry"]
        self.cancels = [each for each in self.accepted if each.kind == "cancel"]
        plan = history.plans[self.id]
        self.walk = Walk([["misfit"]] if plan.get("misfit") else plan["plan"])
        self.asked: dict[str, Asked] = {}
        self.wound: set[str] = set()  # ended while a gather around it failed

    def judge(self) -> None:
        """Raises AssertionError with a sentence that names execution, step, what was expected, and what was found."""
        self._follow_the_record()
        self._signals()
        self._cancel()
        for path, asked in self.asked.items():
            if asked.kind == "step":
                self._step(path, asked)
            elif path in self.record.facts:
                self._rest(path, asked, self.record.facts[path])
        self._bodies()
        self._open()
        self._end()
        self._shown()

    # What the flow's code did.

    def _follow_the_record(self) -> None:
        expected = input_of(self.history.plans[self.id])
        expect(self.record.input == expected, f"{self.id}: its input", expected, self.record.input)
        facts = sorted(self.record.facts.items(), key=lambda item: int(item[1]["seq"]))
        for (_, before), (path, after) in pairwise(facts):
            expect(before["seq"] < after["seq"], f"{self.id} {path}: its place", "one of its own", after["seq"])
        for path, fact in facts:
            what = f"{self.id} {path}: what is recorded"
            asked = self.walk.pending.get(path)
            expect(asked is not None, what, f"an outcome of one of {sorted(self.walk.pending)}", fact)
            assert asked is not None
            expect(fact["kind"] == asked.kind, what, asked.kind, fact["kind"])
            if asked.kind == "signal":
                expect(fact["name"] == asked.name, what, f"a wait for {asked.name}", fact["name"])
            if fact["status"] == "timed_out":
                expect(asked.kind == "signal" and asked.seconds is not None, what, "no timeout", fact)
            self._cancelled(path, asked, fact)
            if asked.wound:
                self.wound.add(path)
            self.walk.deliver(path, outcome_of(fact))
        self.asked = dict(self.walk.declared)

    def _cancelled(self, path: str, asked: Asked, fact: Json) -> None:
        if fact["cancel"] or fact["status"] == "cancelled":
            why = asked.wound or self.cancels or self.history.lossy
            expect(why, f"{self.id} {path}: its end", "no Cancelled: nobody cancelled it, no gather fails", fact)

    # Steps.

    def _step(self, path: str, asked: Asked) -> None:
        what = f"{self.id} {path}"
        token = token_of(self.history.secret, self.id, path)
        fact = self.record.facts.get(path)
        opened = self.record.open.get(path)
        for found in (fact, opened, self.record.superseded.get(path)):
            if found is not None:
                expect(found["token"] == token, f"{what}: its token", token, found["token"])
        for body in self.bodies.get(path, []):
            expect(body.key == f"{self.id}:{token}", f"{what}: its key", f"{self.id}:{token}", body.key)
        failed = self.record.attempts.get(path, {})
        expect(sorted(failed) == list(range(1, len(failed) + 1)), f"{what}: failed attempts", "1, 2, ...", list(failed))
        self._attempts(path, asked, failed)
        last = len(failed)
        if fact is not None and fact["status"] == "completed":
            self._result(path, asked, fact, last)
        elif fact is not None and fact["status"] == "failed" and fact["error"]["type"] == "Interrupted":
            times = min(fact["interruptions"], self.history.crashes)
            expect(times > INTERRUPTIONS_MOST, f"{what}: Interrupted", f"over {INTERRUPTIONS_MOST} crashes", times)
        elif fact is not None and fact["status"] == "failed":
            expect(fact["attempt"] == last, f"{what}: the attempt that failed it", last, fact["attempt"])
            same = {name: failed[last]["error"].get(name) for name in ("type", "message")}
            found = {name: fact["error"].get(name) for name in ("type", "message")}
            expect(found == same, f"{what}: why it failed", same, found)
            expect(self._ends_budget(path, asked, last), f"{what}: its failure", "attempts left in its budget", fact)
        if opened is not None:
            expect(opened["attempt"] == last + 1, f"{what}: its open attempt", last + 1, opened["attempt"])

    def _attempts(self, path: str, asked: Asked, failed: dict[int, Json]) -> None:
        policy = POLICIES[asked.name]
        count = budgets = 0
        for n, found in sorted(failed.items()):
            what = f"{self.id} {path} attempt {n}"
            error = (found["error"]["type"], found["error"]["message"])
            body = self._body(path, n, found)
            expect(body is not None, what, f"a body that raised {error}", self._ran(path))
            assert body is not None
            expect(found["ended_at"] == body.ended_ms, f"{what}: its end", f"its body's, {body.ended_ms}", found)
            seconds = self._said(what, path, asked, n, error, body)
            count += 1
            due = found.get("due_at")
            ends = seconds is None or count == policy.most
            if ends:
                expect(due is None, f"{what}: the next one", f"none: it is failure {count} of {policy.most}", due)
                count, budgets = 0, budgets + 1
            elif due is None:
                expect(self._was_wound(path), f"{what}: when the next one is due", "a time", None)
            else:
                assert seconds is not None
                self._delay(what, policy, count, seconds, due - found["ended_at"])
                self._not_before(path, n, found["ended_at"], due)
        renewed = sum(1 for each in self.record.failures if (each.get("failed_step") or {}).get("path") == path)
        begun_anew = budgets - 1 if count == 0 and not self._goes_on(path, len(failed)) else budgets
        if not self.history.lossy:
            expect(begun_anew <= max(renewed, 0) or begun_anew <= len(self.retries), f"{self.id} {path}: budgets begun "
                   "anew", f"at most {len(self.retries)} retries", begun_anew)  # fmt: skip

    def _said(self, what: str, path: str, asked: Asked, n: int, error: tuple[str, str], body: Run) -> float | None:
        """Seconds that the error asks for (0: none); None where it is final."""
        policy = POLICIES[asked.name]
        key = f"{self.id}:{token_of(self.history.secret, self.id, path)}"
        word, _, rest = word_of(asked.script, n).partition(":")
        if error[0] == "StepTimeout" and policy.timeout is not None:
            lasted = (body.ended_ms or body.at_ms) - body.at_ms
            # Where clocks differ, a shard's own is set right while a body runs.
            least = policy.timeout * (800 if not self.history.exact else 1000)
            expect(lasted >= least, f"{what}: its timeout", f"{policy.timeout} s at work", f"{lasted} ms")
            return 0.0 if issubclass(TimeoutError, policy.tried) else None
        message = told(asked.label, n, key)
        says: dict[str, tuple[str, str | None, type[BaseException] | None]] = {
            "conn": ("ConnectionError", message, ConnectionError),
            "key": ("KeyError", repr(message), KeyError),
            "exit": ("SystemExit", message, SystemExit),
            "after": ("RetryAfter", message, Exception),
            "fatal": ("FatalError", message, None),
            "odd": ("PayloadError", None, None),
            "wrong": ("PayloadError", None, None),
            "big": ("PayloadError", None, None),
        }
        expect(word in says, what, f"no failure: its script says {word}", error)
        kind, text, raised = says[word]
        expect(error[0] == kind and text in (None, error[1]), what, f"{kind}: {text}", error)
        if raised is None or issubclass(raised, policy.final):
            return None
        if word == "after":
            return min(float(rest), policy.asked_most)
        tried = issubclass(raised, policy.tried) or not issubclass(raised, Exception)
        return 0.0 if tried else None

    def _delay(self, what: str, policy: Policy, count: int, seconds: float, found_ms: int) -> None:
        floor = min(policy.cap, policy.base * policy.factor ** (count - 1))
        least = max(floor, seconds) * 1000
        most = max(floor * (1 + policy.jitter), seconds) * 1000 + 1
        expect(found_ms >= least, f"{what}: the delay after it", f"at least {least:g} ms", found_ms)
        expect(found_ms <= most, f"{what}: the delay after it", f"at most {most:g} ms", found_ms)

    def _not_before(self, path: str, n: int, ended: int, due: int) -> None:
        """The next attempt begins when it is due, or when somebody hurries it."""
        for body in self.bodies.get(path, []):
            if body.attempt != n + 1 or not self.history.exact or self.history.lossy:
                continue
            hurried = any(ended <= each.at_ms <= body.at_ms for each in self.retries)
            expect(body.at_ms >= due or hurried, f"{self.id} {path} attempt {n + 1}: its begin", due, body.at_ms)

    def _body(self, path: str, n: int, found: Json) -> Run | None:
        """The body that an attempt's record tells of."""
        error = (found["error"]["type"], found["error"]["message"])
        bodies = [
            body
            for body in self.bodies.get(path, [])
            if body.attempt == n and body.error == error and body.at_ms == found.get("started_at")
        ]
        # Of two that began at once, one of them with whoever had lost the partition, it may be either.
        return next((body for body in bodies if body.ended_ms == found["ended_at"]), bodies[0] if bodies else None)

    def _result(self, path: str, asked: Asked, fact: Json, last: int) -> None:
        what = f"{self.id} {path}"
        n = fact["attempt"]
        expect(n == last + 1, f"{what}: the attempt that succeeded", last + 1, n)
        word = word_of(asked.script, n)
        expect(word == "ok", f"{what} attempt {n}: what came of it", word, fact["value"])
        expected = value_of(asked.label, asked.given)
        kind = POLICIES[asked.name].typed
        expect(fits(kind, expected, fact["value"]), f"{what}: its result", f"the {kind} of {expected}", fact["value"])
        if kind in ("dict", "Parcel"):
            mine = {"path": path, "attempt": n, "key": f"{self.id}:{fact['token']}"}
            found = {name: fact["value"][name] for name in mine}
            expect(found == mine, f"{what}: what its body saw", mine, found)
        ran = [body for body in self.bodies.get(path, []) if body.attempt == n and body.at_ms == fact["started_at"]]
        returned = [body for body in ran if body.value is not None and json.loads(body.value) == fact["value"]]
        expect(returned, f"{what} attempt {n}: its result", "what a body returned then", self._ran(path))
        ends = [body.ended_ms for body in returned]
        expect(fact["ended_at"] in ends, f"{what} attempt {n}: its end", f"its body's, {ends}", fact["ended_at"])

    def _ends_budget(self, path: str, asked: Asked, last: int) -> bool:
        policy = POLICIES[asked.name]
        return self.record.attempts[path][last].get("due_at") is None and policy.most >= 1

    def _was_wound(self, path: str) -> bool:
        """Whether a failing gather or a cancel has ended it, now or before a retry."""
        fact = self.record.facts.get(path)
        left = [each.get("open", {}).get(path) for each in self.record.failures]
        ended = fact is not None and (fact["cancel"] or fact["status"] == "cancelled")
        return ended or any(each is not None and each["status"] != "failed" for each in left)

    def _goes_on(self, path: str, last: int) -> bool:
        fact = self.record.facts.get(path)
        return path in self.record.open or (fact is not None and fact["attempt"] > last)

    def _ran(self, path: str) -> list[tuple[int, int, object]]:
        return [(body.attempt, body.at_ms, body.value or body.error) for body in self.bodies.get(path, [])]

    # Timers and waits.

    def _rest(self, path: str, asked: Asked, fact: Json) -> None:
        what = f"{self.id} {path}"
        lasted = fact["ended_at"] - fact["declared_at"]
        timed = fact["status"] == "timed_out" or (asked.kind == "timer" and fact["status"] == "completed")
        if timed and self.history.exact and not self.history.lossy:
            least = (asked.seconds or 0.0) * 1000
            expect(lasted >= least, f"{what}: how long it waited", f"at least {least:g} ms", lasted)

    # What must not have happened.

    def _bodies(self) -> None:
        for path, bodies in self.bodies.items():
            what = f"{self.id} {path}"
            asked = self.asked.get(path)
            if self.history.lossy and (asked is None or asked.kind != "step"):
                continue
            expect(asked is not None and asked.kind == "step", what, "no such step in its plan", self._ran(path))
            self._no_more_attempts(path, bodies)
            self._none_again(path, bodies)

    def _no_more_attempts(self, path: str, bodies: list[Run]) -> None:
        if self.history.lossy and any(c.execution_id == self.id and c.kind == "retry" for c in self.history.commands):
            return  # a retry that is lost, with who had carried it out, may have begun another one
        failed = self.record.attempts.get(path, {})
        fact = self.record.facts.get(path)
        ended = fact is not None and fact["status"] == "failed"
        most = fact["attempt"] if fact is not None and ended else len(failed) + 1
        last = max(body.attempt for body in bodies)
        expect(last <= most, f"{self.id} {path}: its last attempt", f"at most {most}", last)
        if not self.history.lossy:
            for before, after in pairwise(bodies):
                near = after.attempt in (before.attempt, before.attempt + 1)
                expect(near, f"{self.id} {path}: after attempt {before.attempt}", "that or the next", after.attempt)

    def _none_again(self, path: str, bodies: list[Run]) -> None:
        if not self.history.exact:
            return
        fact = self.record.facts.get(path)
        ends = {n: each["ended_at"] for n, each in self.record.attempts.get(path, {}).items()}
        if fact is not None:
            ends[fact["attempt"]] = fact["ended_at"]
        for body in bodies:
            end = ends.get(body.attempt)
            what = f"{self.id} {path} attempt {body.attempt}"
            if end is not None and not self._reopened(path, body.attempt):
                expect(body.at_ms <= end, what, f"no run after it was recorded at {end}", f"one at {body.at_ms}")

    def _reopened(self, path: str, attempt: int) -> bool:
        """A retry has brought back an attempt that was declared when a failure ended it."""
        return any(path in each.get("open", {}) for each in self.record.failures) and attempt not in (
            self.record.attempts.get(path, {})
        )

    # Commands.

    def _signals(self) -> None:
        taken: dict[str, list[int]] = {}
        facts = sorted(self.record.facts.values(), key=lambda fact: int(fact["seq"]))
        for fact in facts:
            if fact["kind"] == "signal" and fact["status"] == "completed":
                taken.setdefault(fact["name"], []).append(fact["value"]["n"])
        for name in {*taken, *(each.name for each in self.accepted if each.kind == "signal")}:
            what = f"{self.id}: signals {name!r} that were received"
            got = taken.get(name, [])
            given = [each.number for each in self.accepted if each.kind == "signal" and each.name == name]
            if self.history.lossy:
                sent = [c.number for c in self.history.commands if c.execution_id == self.id and c.name == name]
                expect({*got} <= {*sent} and len({*got}) == len(got), what, f"each once, of {sent}", got)
                continue
            expect(got == given[: len(got)], what, f"the first of {given}", got)
            kept = [each["payload"]["n"] for each in self.record.signals if each["name"] == name]
            rest = [] if self.record.status in ("completed", "cancelled") else given[len(got) :]
            expect(kept == rest, f"{self.id}: signals {name!r} that are kept", rest, kept)

    def _cancel(self) -> None:
        """From the moment of a cancel nothing that was open ends as if nothing had been."""
        if not self.history.exact or self.history.lossy:
            return
        for cancel in self.cancels:
            if cancel.applications[0].reason:
                continue  # it was cancelled before
            if any(each.place > cancel.place for each in self.retries):
                continue  # that gives back as a result what ended while a failing gather wound up
            for path, fact in self.record.facts.items():
                recorded = self.history.recorded.get((self.id, path), fact["ended_at"])
                if fact["declared_at"] < cancel.at_ms < recorded:
                    ended = fact["cancel"] or fact["status"] == "cancelled"
                    expect(ended, f"{self.id} {path}: its end after a cancel", "Cancelled", fact)

    # Where it stands.

    def _open(self) -> None:
        status = self.record.status
        opened, pending = sorted(self.record.open), sorted(self.walk.pending)
        what = f"{self.id} ({status}): what is open"
        if status in (*TERMINAL, "queued"):
            expect(not opened, what, "nothing", opened)
            if status == "queued":
                expect(not self.record.facts, f"{self.id} (queued): facts", "none", sorted(self.record.facts))
        elif self.record.started or status != "parked":
            expect(opened == pending, what, pending, opened)

    def _end(self) -> None:
        record, end = self.record, self.walk.end
        what = f"{self.id}: how it ended"
        undriven = record.status == "cancelled" and (not record.started or record.error is not None)
        if undriven:
            expect(self.cancels or self.history.lossy, what, "not cancelled: nobody asked for it", record.status)
            return
        if record.status not in TERMINAL:
            expect(end is None, what, end, record.status)
            return
        expect(end is not None, what, f"not yet: it waits for {sorted(self.walk.pending)}", record.status)
        assert end is not None
        expected = {"returned": "completed", "cancelled": "cancelled", "raised": "error"}[end.kind]
        expect(record.status == expected, what, f"{expected} ({end})", (record.status, record.error))
        if expected == "completed":
            expect(record.result == end.result, f"{self.id}: its result", end.result, record.result)
        elif expected == "error":
            error = record.error or {}
            expect(error.get("type") == end.error, f"{self.id}: its error", end.error, error)
            if end.message is not None:
                expect(error.get("message") == end.message, f"{self.id}: its error", end.message, error)
            if end.path:
                step = {"path": end.path, "token": token_of(self.history.secret, self.id, end.path),
                        "attempts": end.attempts}  # fmt: skip
                expect(error.get("failed_step") == step, f"{self.id}: the step that failed it", step, error)
            compensated = error.get("compensated", False)
            expect(compensated == end.compensated, f"{self.id}: compensated", end.compensated, compensated)
            if end.path and not compensated:
                self._left_behind(end.path, error.get("open", {}))
        for failure in record.failures:
            expect(not failure.get("compensated"), f"{self.id}: a retry", "none: it was compensated", failure)

    def _left_behind(self, failed: str, left: Json) -> None:
        """What a failure leaves behind can be brought back: the step that failed, and what its gather cut short.

        What the gather of an earlier failure cut short, which the flow answered, is not of that.
        """
        gone = [path for path in self.wound if self.record.facts[path]["status"] == "cancelled"]
        cut = {path for path in gone if failed.startswith(path.rpartition("/")[0].rpartition(".")[0] + ".")}
        expect({failed, *cut} <= {*left}, f"{self.id}: what its failure left behind", sorted({failed, *cut}), left)
        for path, each in left.items():
            made = len(self.record.attempts.get(path, {}))
            if each["kind"] == "step":
                expect(each["attempts"] == made, f"{self.id} {path}: attempts before it was left", made, each)
                token = token_of(self.history.secret, self.id, path)
                expect(each["token"] == token, f"{self.id} {path}: its token", token, each)

    def _shown(self) -> None:
        """What people see is what is recorded."""
        for path, step in self.record.shown.items():
            what = f"{self.id} {path}: what is shown"
            expect(path in self.asked or self.history.lossy, what, "no such step", step)
            token = token_of(self.history.secret, self.id, path)
            expect((step["token"], step["key"]) == (token, f"{self.id}:{token}"), what, token, step["key"])
            fact = self.record.facts.get(path)
            numbers = sorted(self.record.attempts.get(path, {}))
            if fact is not None and fact["status"] == "completed":
                numbers.append(fact["attempt"])
                expect(step["result"] == fact["value"], what, fact["value"], step["result"])
            shown = [each["n"] for each in step["attempts"]]
            expect(shown == numbers, f"{what} of attempts", numbers, shown)
        missing = {path for path, asked in self.asked.items() if asked.kind == "step"} - {*self.record.shown}
        driven = self.record.started and self.record.status not in ("parked", "cancelled", "error")
        expect(not missing or not driven, f"{self.id}: steps that are shown", f"also {sorted(missing)}", "not")


def outcome_of(fact: Json) -> Outcome:
    """What the flow gets of a fact."""
    if fact["cancel"] or fact["status"] == "cancelled":
        return Outcome("cancelled")
    if fact["status"] == "timed_out":
        return Outcome("late")
    if fact["status"] == "failed":
        error = fact["error"]
        return Outcome("failed", 0, error["type"], fact["attempt"], error["message"])
    return Outcome("value", fact["value"]["n"] if fact["kind"] == "signal" else 0)


def fits(kind: str, value: int, found: Any) -> bool:
    """Whether JSON stands for a typed result."""
    blob = base64.b64encode(value.to_bytes(3, "big")).decode()
    tags = {value % 7, value % 11, value % 13}
    if kind == "bytes":
        return bool(found == blob)
    if kind == "datetime":
        return _seconds(found) == value
    if kind == "set":
        return isinstance(found, list) and sorted(found) == sorted(tags)
    if kind == "dict":
        return isinstance(found, dict) and found.get("v") == value
    same = [found.get("v") == value, found.get("blob") == blob, sorted(found.get("tags", [])) == sorted(tags)]
    return all([*same, _seconds(found.get("at")) == value, found.get("pair") == [value % 5, "pair"]])


def _seconds(text: object) -> float:
    return datetime.fromisoformat(text.replace("Z", "+00:00")).timestamp() if isinstance(text, str) else -1.0


def refusals(command: Command) -> Iterator[tuple[str, bool]]:
    """Why a refused command may have been refused, and whether it was so."""
    told = command.applications[0]
    if command.kind == "signal":
        yield "it had ended", told.status in TERMINAL
    elif command.kind == "cancel":
        yield "it had ended", told.status in ("completed", "error")
    else:
        compensated = told.status == "error" and "compensated" in told.reason
        idle = told.status in ("running", "waiting") and "backing off" in told.reason
        absent = told.status == "parked" and ELSEWHERE in told.reason
        ended = told.status in ("queued", "completed", "cancelled")
        yield "nothing to retry", ended or compensated or idle or absent
