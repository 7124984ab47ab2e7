"""The arguments of a call as JSON, for a body that runs in another process: there they are as they are annotated."""

from __future__ import annotations

import inspect
from functools import lru_cache
from inspect import Parameter
from typing import Any, Protocol, TypeAlias

import msgspec

from stepwell.core import codec
from stepwell.core.errors import DefinitionError, PayloadError
from stepwell.core.messages import message_of
from stepwell.flow.definitions import StepLike
from stepwell.flow.operations import StepCall

ARGUMENT_BYTES_MAX = 64 * 1024 * 1024
_Kind: TypeAlias = object  # one of Parameter's
_BY_PLACE = (Parameter.POSITIONAL_ONLY, Parameter.POSITIONAL_OR_KEYWORD)
_BY_NAME = (Parameter.POSITIONAL_OR_KEYWORD, Parameter.KEYWORD_ONLY)


class Decoder(Protocol):
    """What `codec.decoder` gives."""

    def decode(self, raw: bytes, /) -> object: ...


class PackedArguments(msgspec.Struct, frozen=True, gc=False):
    """The JSON of each argument, by place and by name."""

    args: tuple[bytes, ...]
    kwargs: dict[str, bytes]


def pack(call: StepCall[object]) -> PackedArguments:
    """The arguments of a call.

    Raises:
        PayloadError: one is no JSON, or over 64 MiB; the message names step and argument.
    """
    name = call.step.name
    return PackedArguments(
        tuple(_packed(value, str(index + 1), name) for index, value in enumerate(call.args)),
        {key: _packed(value, repr(key), name) for key, value in call.kwargs.items()},
    )


def unpack(packed: PackedArguments, step: StepLike) -> tuple[list[object], dict[str, object]]:
    """The arguments as the step's function annotates them; plain JSON where it does not.

    What the function has no parameter for stays plain, so that calling it says what is wrong.

    Raises:
        PayloadError: one does not fit its annotation.
        DefinitionError: no JSON can become what is annotated.
    """
    args = [
        codec.decode(raw, _decoder(step, _parameter_at(step, index)), f"argument {index + 1} of step {step.name}")
        for index, raw in enumerate(packed.args)
    ]
    kwargs = {
        key: codec.decode(raw, _decoder(step, _parameter_named(step, key)), f"argument {key!r} of step {step.name}")
        for key, raw in packed.kwargs.items()
    }
    return args, kwargs


def travels(call: StepCall[object], packed: PackedArguments) -> bool:
    """Whether the body gets equal arguments of the same types: then where it runs makes no difference to it."""
    try:
        args, kwargs = unpack(packed, call.step)
        return _alike(args, list(call.args)) and _alike(kwargs, call.kwargs)
    except Exception as error:  # code of the annotated types, `__eq__` too, may raise anything
        del error
        return False


def _packed(value: object, place: str, step_name: str) -> bytes:
    what = f"argument {place} of step {step_name}"
    try:
        return codec.encode(value, what, ARGUMENT_BYTES_MAX)
    except PayloadError as error:
        said = str(error).replace(f"{what} can't be stored", f"{what} can't be passed to a process of its own")
        raise PayloadError(said) from error


@lru_cache(maxsize=512)
def _decoder(step: StepLike, parameter: str) -> Decoder:
    annotation = step.hints.get(parameter, Any)
    try:
        made: Decoder = codec.decoder(annotation)
    except TypeError as error:
        raise DefinitionError(
            f"step {step.name}: its parameter {parameter!r} is annotated as {annotation}, which can't be passed to a"
            f" process of its own: {message_of(error)}"
        ) from error
    return made


def _parameter_at(step: StepLike, index: int) -> str:
    names = [name for name, kind in _parameters(step).items() if kind in _BY_PLACE]
    return names[index] if index < len(names) else _collecting(step, Parameter.VAR_POSITIONAL)


def _parameter_named(step: StepLike, name: str) -> str:
    by_name = _parameters(step).get(name) in _BY_NAME
    return name if by_name else _collecting(step, Parameter.VAR_KEYWORD)


def _collecting(step: StepLike, wanted: _Kind) -> str:
    """The name of `*args` or `**kwargs`; empty where there is none."""
    return next((name for name, kind in _parameters(step).items() if kind is wanted), "")


@lru_cache(maxsize=512)
def _parameters(step: StepLike) -> dict[str, _Kind]:
    return {name: parameter.kind for name, parameter in inspect.signature(step.fn).parameters.items()}


def _alike(found: object, wanted: object) -> bool:
    if type(found) is not type(wanted) or found != wanted:
        return False
    if isinstance(wanted, dict) and isinstance(found, dict):
        return all(_alike(found[key], value) for key, value in wanted.items())
    if isinstance(wanted, list | tuple) and isinstance(found, list | tuple):
        return all(map(_alike, found, wanted))
    return True
