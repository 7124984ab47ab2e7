"""Starting an execution: what is checked before it is written, and what it means that its id is taken."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TypeAlias

from stepwell.client.facts import NamespaceView, Worker
from stepwell.client.moves import Conversation, ask
from stepwell.core import codec
from stepwell.core.attributes import Attributes, check_attributes
from stepwell.core.errors import ExecutionExists, InvalidInput, UnknownFlow, UsageError
from stepwell.core.names import check_execution_id, check_name
from stepwell.core.records import Meta, decode_meta, encode
from stepwell.core.similar import did_you_mean
from stepwell.flow.definitions import Flow, FlowLike
from stepwell.flow.published import unfit
from stepwell.flow.signature import encode_input, misfit
from stepwell.flow.tracing import parent_of_start
from stepwell.store import queries
from stepwell.store.keys import Keys
from stepwell.store.replies import Created, Exists
from stepwell.store.requests import Create

__all__ = ["Offers", "Start", "creation", "identity", "input_hash", "misfits", "prepare", "served_by", "start", "taken"]

Offers: TypeAlias = "Mapping[str, object]"
"""What a worker says of its flows, by their names."""


@dataclass(frozen=True, slots=True)
class Start:
    """A start whose flow, input and id are well formed. `declared`: the caller has the flow itself, not its name;
    `trace` and `trace_state`: the span that it is started in, as W3C headers."""

    execution_id: str
    flow: str
    input: bytes
    declared: bool
    trace: str = ""
    trace_state: str = ""
    attributes: Attributes | None = None


def prepare(
    flow: str | FlowLike,
    input: Mapping[str, object] | None,
    execution_id: str | None,
    new_id: Callable[[], str],
    attributes: Mapping[str, object] | None = None,
) -> Start:
    """Check what can be checked without asking anybody. Raises UsageError (InvalidName, InvalidInput)."""
    found_by = check_attributes(attributes)
    chosen = new_id() if execution_id is None else check_execution_id(execution_id)
    trace, trace_state = parent_of_start()
    if isinstance(flow, str):
        name = check_name("flow", flow)
        return Start(chosen, name, encode_input(name, input), False, trace, trace_state, found_by)
    if not isinstance(flow, Flow):
        raise UsageError(f"expected a flow's name or a function made with @flow, got {flow!r:.200}")
    return Start(chosen, flow.name, flow.input.encode(input), True, trace, trace_state, found_by)


def input_hash(flow: str, raw: bytes) -> str:
    """What tells one input from another, whatever the order of its keys."""
    ordered = codec.canonical(codec.decode_plain(raw), f"the input of flow {flow}")
    return hashlib.blake2b(ordered, digest_size=16).hexdigest()


def start(view: NamespaceView, wanted: Start, unchecked: bool) -> Conversation[str]:
    """Create the execution, or find the one that an earlier start of the same id, flow and input created.

    Raises UnknownFlow or InvalidInput where living workers say so (`unchecked` does not ask them), ExecutionExists.
    """
    facts = yield from view.recent()
    if not unchecked and _problem(wanted, facts.workers) is not None:
        # A worker may have come since these facts were read.
        facts = yield from view.read()
        problem = _problem(wanted, facts.workers)
        if problem is not None:
            raise problem
    request = creation(wanted, view.now_ms(facts))
    reply = yield from ask(queries.create(facts.keys, view.scripts, request))
    if not isinstance(reply, Created):
        yield from _same(facts.keys, wanted, request.input_hash, reply)
    return wanted.execution_id


def creation(wanted: Start, now_ms: int) -> Create:
    """The request that makes the execution where there is none of its id."""
    hashed = input_hash(wanted.flow, wanted.input)
    attributes = wanted.attributes
    meta = Meta(wanted.flow, now_ms, hashed, trace=wanted.trace, trace_state=wanted.trace_state, attributes=attributes)
    fields = [("meta", encode(meta)), ("input", wanted.input)]
    return Create(wanted.execution_id, wanted.flow, hashed, now_ms, fields, attributes=attributes)


def taken(wanted: Start, hashed: str, flow: str, there: str) -> str:
    """Why the execution that is there (its flow, and its input's hash) is not the one wanted; empty if it is."""
    if flow != wanted.flow:
        return (
            f"execution {wanted.execution_id} exists already, of flow {flow} and not of {wanted.flow}:"
            " choose another id"
        )
    if there != hashed:
        return (
            f"execution {wanted.execution_id} of flow {flow} exists already with another input:"
            " choose another id, or give the same input to get that execution"
        )
    return ""


def _same(keys: Keys, wanted: Start, hashed: str, found: Exists) -> Conversation[None]:
    """Raise ExecutionExists unless the execution that is there is the one that was wanted."""
    flow, there = found.flow, found.input_hash
    if not (flow and there):
        (head,) = yield from ask(queries.heads(keys, [wanted.execution_id], ["meta"]))
        flow, there = identity(head)
    problem = taken(wanted, hashed, flow, there)
    if problem:
        raise ExecutionExists(problem)


def identity(head: Mapping[str, bytes]) -> tuple[str, str]:
    """Flow and input hash of the execution that a row's `meta` tells of."""
    try:
        meta = decode_meta(head.get("meta", b""))
    except codec.UNREADABLE:
        return "(unreadable)", ""
    return meta.flow, meta.input_hash


def _problem(wanted: Start, workers: Sequence[Worker]) -> UnknownFlow | InvalidInput | None:
    """Why no living worker could run it; None if one could, or if none lives."""
    served = served_by(workers)
    if not served:
        return None
    offers = [flows[wanted.flow] for flows in served if wanted.flow in flows]
    if not offers:
        return _unknown(wanted.flow, sorted({str(name) for flows in served for name in flows}))
    problem = "" if wanted.declared else misfits(wanted, offers)
    return InvalidInput(problem) if problem else None


def served_by(workers: Sequence[Mapping[str, object]]) -> list[Offers]:
    """The flows that each living worker offers, for those who say it."""
    return [flows for flows in (worker.get("flows") for worker in workers) if isinstance(flows, dict)]


def misfits(wanted: Start, offers: Sequence[object]) -> str:
    """Why the input fits none of the ways in which workers offer the flow; empty if it fits one, or none is offered.

    In a rolling deploy workers differ: one that takes the input is enough.
    """
    given = codec.decode_plain(wanted.input)
    found = [_misfit(wanted.flow, offer, given) for offer in offers]
    return found[0] if found and all(found) else ""


def _misfit(flow: str, offer: object, given: object) -> str:
    """Why the input does not fit the parameters that a worker published; empty if it does, or if it did not say."""
    if not isinstance(offer, dict):
        return ""
    found, types = offer.get("parameters"), offer.get("types")
    if not isinstance(found, dict):
        return ""
    problem = misfit(flow, {str(name): required is True for name, required in found.items()}, given)
    if problem or not isinstance(types, dict) or not isinstance(given, dict):
        return problem
    return unfit(flow, types, given)


def _unknown(flow: str, known: Sequence[str]) -> UnknownFlow:
    hint = did_you_mean(flow, known, 3) or f"they know {', '.join(known[:20]) or 'no flow'}"
    return UnknownFlow(
        f"no living worker knows the flow {flow!r} ({hint}): run a worker that has it,"
        " or start it unchecked (--unchecked) to let it wait for one"
    )
