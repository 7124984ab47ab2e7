"""Function signatures as data: the input of a flow, the result of a step."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping
from typing import Any, get_type_hints

import msgspec

from stepwell.core import codec
from stepwell.core.errors import DefinitionError, InvalidInput, PayloadError


def return_annotation(fn: Callable[..., Any]) -> Any:
    """The annotated result of a function; `Any` where there is none or it can't be resolved."""
    hints = _hints(fn)
    return hints.get("return", Any)


def _hints(fn: Callable[..., Any]) -> dict[str, Any]:
    try:
        return get_type_hints(fn, include_extras=True)
    except NameError:
        # A name that exists for type checkers only: take what resolves, one annotation at a time.
        return _resolvable_hints(fn)


def _resolvable_hints(fn: Callable[..., Any]) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for name, annotation in getattr(fn, "__annotations__", {}).items():
        probe = type("probe", (), {"__annotations__": {name: annotation}, "__module__": fn.__module__})
        try:
            found.update(get_type_hints(probe, globalns=getattr(fn, "__globals__", {}), include_extras=True))
        except NameError:
            found[name] = Any
    return found


class InputModel:
    """The input of a flow: a JSON object of its keyword arguments.

    `parameters` maps each name to whether it is required, in order.
    """

    def __init__(self, flow_name: str, fn: Callable[..., Any]) -> None:
        self._flow = flow_name
        self._fn = fn
        self._decoder: Any = None
        self.parameters: dict[str, bool] = {}
        for name, parameter in inspect.signature(fn).parameters.items():
            if parameter.kind in (parameter.POSITIONAL_ONLY, parameter.VAR_POSITIONAL, parameter.VAR_KEYWORD):
                raise DefinitionError(
                    f"flow {flow_name}: parameter {name!r} can't be passed by name;"
                    " flows take plain named parameters, since their input is a JSON object"
                )
            self.parameters[name] = parameter.default is inspect.Parameter.empty

    def encode(self, value: Mapping[str, object] | None) -> bytes:
        """The JSON of an input, checked against the signature.

        Raises:
            InvalidInput: not an object of these parameters, or a value does not fit.
        """
        raw = encode_input(self._flow, value)
        self.decode(raw)
        return raw

    def decode(self, raw: bytes) -> dict[str, Any]:
        """The keyword arguments that the recorded input stands for.

        Raises:
            InvalidInput: it does not fit; the message names the place.
        """
        try:
            given = codec.decode_plain(raw)
        except (msgspec.MsgspecError, ValueError, RecursionError) as error:
            raise InvalidInput(f"the input of flow {self._flow} is not JSON: {error}") from error
        problem = misfit(self._flow, self.parameters, given)
        if problem:
            raise InvalidInput(problem)
        try:
            struct = self._struct_decoder().decode(raw)
        except DefinitionError:
            raise
        except Exception as error:  # the code that builds the annotated types may raise anything
            raise InvalidInput(f"the input of flow {self._flow} does not fit its parameters: {error}") from error
        return {name: getattr(struct, name) for name in self.parameters if name in given or not self.parameters[name]}

    def _struct_decoder(self) -> Any:
        if self._decoder is None:
            hints = _hints(self._fn)
            fields: list[Any] = []
            for name, parameter in inspect.signature(self._fn).parameters.items():
                annotation = hints.get(name, Any)
                if self.parameters[name]:
                    fields.append((name, annotation))
                else:
                    default = parameter.default
                    fields.append((name, annotation, msgspec.field(default_factory=_always(default))))
            try:
                model = msgspec.defstruct(f"{self._flow}_input", fields, kw_only=True)
                self._decoder = codec.decoder(model)
            except TypeError as error:
                raise DefinitionError(f"flow {self._flow}: its parameters can't be stored as JSON: {error}") from error
        return self._decoder


def _always(value: Any) -> Callable[[], Any]:
    return lambda: value


def encode_input(flow_name: str, value: Mapping[str, object] | None) -> bytes:
    """The JSON of an input that is not checked against a signature.

    Raises:
        InvalidInput: not an object with string keys, or not encodable.
    """
    given = {} if value is None else value
    if not isinstance(given, Mapping) or not all(isinstance(key, str) for key in given):
        raise InvalidInput(
            f"the input of flow {flow_name} must be a JSON object with the names of its parameters,"
            f" got {type(value).__name__}"
        )
    try:
        return codec.encode(dict(given), f"the input of flow {flow_name}")
    except PayloadError as error:
        raise InvalidInput(str(error)) from error


def misfit(flow_name: str, parameters: Mapping[str, bool], given: object) -> str:
    """Why `given` can't be the input of a flow with these parameters (name -> required); empty if it can."""
    if not isinstance(given, dict):
        return f"the input of flow {flow_name} must be a JSON object, got {type(given).__name__}"
    takes = ", ".join(parameters) or "nothing"
    missing = [name for name, required in parameters.items() if required and name not in given]
    unknown = [name for name in given if name not in parameters]
    if missing:
        return f"the input of flow {flow_name} lacks {', '.join(missing)} (it takes {takes})"
    if unknown:
        return f"the input of flow {flow_name} has unknown {', '.join(unknown)} (it takes {takes})"
    return ""
