"""What a shard and its step processes say to each other: length-prefixed messages on a socket pair.

Payloads inside are JSON, as everywhere; only code is pickled. One question at a time, each with one answer.
"""

from __future__ import annotations

from typing import TypeAlias

import msgspec

from stepwell.core.records import Failure
from stepwell.flow.arguments import PackedArguments
from stepwell.flow.attempt import AttemptError
from stepwell.flow.context import StepContext
from stepwell.metrics.logs import LogSetup
from stepwell.metrics.tracing import TraceSetup

HEAD_BYTES = 4


class Hello(msgspec.Struct, frozen=True, tag=True):
    """The first message: who the receiver's parent must be, how that one logs, if Stepwell set it up, how it traces, if
    it does, and what was declared to it as secret: the receiver may never load the module that did."""

    parent: int
    log: LogSetup | None = None
    traces: TraceSetup | None = None
    secrets: tuple[str, ...] = ()


class Load(msgspec.Struct, frozen=True, tag=True):
    """Have the step at hand under this number. Answered by `Loaded`."""

    number: int
    name: str
    code: bytes


class Run(msgspec.Struct, frozen=True, tag=True):
    """Run an attempt of a step that is at hand. Answered by `Ended`."""

    number: int
    context: StepContext
    arguments: PackedArguments


class Retire(msgspec.Struct, frozen=True, tag=True):
    """End in good order. Not answered."""


class Loaded(msgspec.Struct, frozen=True, tag=True):
    """The step is at hand, or why not."""

    failure: Failure | None = None


class Ended(msgspec.Struct, frozen=True, tag=True):
    """The attempt's encoded result, or its error."""

    value: bytes = b""
    error: AttemptError | None = None


Question: TypeAlias = Hello | Load | Run | Retire
Answer: TypeAlias = Loaded | Ended

_encode = msgspec.msgpack.Encoder().encode
_questions = msgspec.msgpack.Decoder(Question)
_answers = msgspec.msgpack.Decoder(Answer)


def frame(message: Question | Answer) -> bytes:
    """The message with its length before it."""
    body = _encode(message)
    return len(body).to_bytes(HEAD_BYTES, "big") + body


def size_of(head: bytes) -> int:
    """How long the message after these first bytes is."""
    return int.from_bytes(head, "big")


def question(body: bytes) -> Question:
    """What a step process is asked. Raises msgspec.MsgspecError."""
    return _questions.decode(body)


def answer(body: bytes) -> Answer:
    """What a step process answers. Raises msgspec.MsgspecError."""
    return _answers.decode(body)
