"""Function signatures as data: the input of a flow, the result of a step."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterable, Mapping
from typing import Any, get_type_hints

import msgspec
import msgspec.inspect

from stepwell.core import codec
from stepwell.core.errors import DefinitionError, InvalidInput, PayloadError
from stepwell.flow.published import kinds_of

_INERT_FACTORIES = (msgspec.NODEFAULT, list, dict, set, frozenset, tuple)


def hints_of(fn: Callable[..., Any]) -> dict[str, Any]:
    """The annotations of a function; `Any` for one that names what exists for type checkers only."""
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

    `parameters` maps each name to whether it is required, in order. `types` says, once the annotations were looked at,
    which kinds of JSON values those take whose types tell it without code of their own.
    """

    def __init__(self, flow_name: str, fn: Callable[..., Any]) -> None:
        self._flow = flow_name
        self._fn = fn
        self._decoder: Any = None
        self._inert: bool | None = None
        self.parameters: dict[str, bool] = {}
        self.types: dict[str, tuple[str, ...]] = {}
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
        given = self._named(raw)
        try:
            struct = self._struct_decoder().decode(raw)
        except DefinitionError:
            raise
        except Exception as error:  # the code that builds the annotated types may raise anything
            reason = str(error) or type(error).__name__
            raise InvalidInput(f"the input of flow {self._flow} does not fit its parameters: {reason}") from error
        return {name: getattr(struct, name) for name in self.parameters if name in given or not self.parameters[name]}

    def check(self, raw: bytes) -> None:
        """The same judgement as far as it goes without running code of the annotated types.

        Raises:
            InvalidInput: it does not fit.
        """
        if self._inert is None:
            hints = hints_of(self._fn)
            self._inert = not any(_runs_code(hints.get(name, object)) for name in self.parameters)
        if self._inert:
            self.decode(raw)
        else:
            self._named(raw)

    def _named(self, raw: bytes) -> dict[str, object]:
        """The plain values of an input that has the right names."""
        try:
            given = codec.decode_plain(raw)
        except codec.UNREADABLE as error:
            raise InvalidInput(f"the input of flow {self._flow} is not JSON: {error}") from error
        problem = misfit(self._flow, self.parameters, given)
        if problem:
            raise InvalidInput(problem)
        assert isinstance(given, dict)
        return given

    def prepare(self) -> None:
        """Look at the annotations now rather than at the first input (they may name what stands after the flow).

        Raises:
            DefinitionError: no input could ever fit them.
        """
        self._struct_decoder()

    def _struct_decoder(self) -> Any:
        if self._decoder is None:
            hints = hints_of(self._fn)
            for name, required in self.parameters.items():
                # What has a default may be there for the flow's own tests.
                problem = unstorable(hints.get(name, Any)) if required else ""
                if problem:
                    raise DefinitionError(f"flow {self._flow}: no input can give its parameter {name!r}: {problem}")
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
            found = {name: kinds_of(hints[name]) for name in self.parameters if name in hints}
            self.types = {name: kinds for name, kinds in found.items() if kinds}
        return self._decoder

    def offer(self) -> dict[str, object]:
        """What a worker says of it: whoever starts the flow by its name has nothing else to go by."""
        return {"parameters": dict(self.parameters), "types": {name: list(of) for name, of in self.types.items()}}


def _runs_code(annotation: object) -> bool:
    """Whether decoding a value of this type may run code that belongs to the type."""
    try:
        return _is_active(msgspec.inspect.type_info(annotation), ())
    except Exception:  # code of the annotated types runs here
        return True


def _is_active(info: object, inside: tuple[object, ...]) -> bool:
    cls = getattr(info, "cls", None)
    if isinstance(info, msgspec.inspect.CustomType):
        return cls is not object
    if cls is not None:
        if cls in inside:
            return False
        if any(hasattr(cls, name) for name in ("__post_init__", "__attrs_attrs__")) or "_missing_" in vars(cls):
            return True
    fields = getattr(info, "fields", ())
    if any(field.default_factory not in _INERT_FACTORIES for field in fields if not field.required):
        return True
    return any(_is_active(part, (*inside, cls)) for part in _parts(info, fields))


def unstorable(annotation: Any) -> str:
    """Why no JSON can become a value of this type, so that no record can hold one; empty if some can."""
    try:
        return _foreign(msgspec.inspect.type_info(annotation), ())
    except Exception as error:  # code of the annotated types runs here
        return str(error) or type(error).__name__


def _foreign(info: object, inside: tuple[object, ...]) -> str:
    cls = getattr(info, "cls", None)
    if isinstance(info, msgspec.inspect.CustomType):
        if cls is object or hasattr(cls, "model_validate"):
            return ""
        return f"JSON can't be turned into a {getattr(cls, '__qualname__', cls)}; use plain data or a dataclass"
    if cls is not None and cls in inside:
        return ""
    required = [field for field in getattr(info, "fields", ()) if field.required]
    return next(filter(None, (_foreign(part, (*inside, cls)) for part in _parts(info, required))), "")


def _parts(info: object, fields: Iterable[msgspec.inspect.Field]) -> list[object]:
    """The types that a type is made of, with those of some of its fields."""
    parts: list[object] = [getattr(info, name, None) for name in ("item_type", "key_type", "value_type")]
    parts += getattr(info, "item_types", ())
    parts += [field.type for field in fields]
    if isinstance(info, msgspec.inspect.UnionType):
        parts += info.types
    return [part for part in parts if part is not None]


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
