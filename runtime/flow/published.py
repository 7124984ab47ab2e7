"""So much of a parameter's type as needs none of its code: which kinds of JSON values it takes. Workers publish it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

import msgspec.inspect as types

__all__ = ["kinds_of", "unfit"]

# By the words of msgspec, so that the same fault is told in the same words wherever it is found.
_KINDS: Final[dict[type, str]] = {
    types.NoneType: "null",
    types.BoolType: "bool",
    types.IntType: "int",
    types.FloatType: "float",
    types.StrType: "str",
    **dict.fromkeys((types.ListType, types.SetType, types.FrozenSetType, types.TupleType, types.VarTupleType), "array"),
    **dict.fromkeys((types.DictType, types.TypedDictType, types.DataclassType), "object"),
}
_OF_VALUES: Final[dict[type, str]] = {
    type(None): "null",
    bool: "bool",
    int: "int",
    float: "float",
    str: "str",
    list: "array",
    dict: "object",
}
_WORDS: Final = frozenset(_OF_VALUES.values())


def kinds_of(annotation: object) -> tuple[str, ...]:
    """The kinds of JSON values that may become one of that type; empty where any may, or only its code can say."""
    try:
        info = types.type_info(annotation)
    except Exception:  # code of the annotated types runs here
        return ()
    parts = info.types if isinstance(info, types.UnionType) else (info,)
    kinds = [_KINDS.get(type(part), "") for part in parts]
    return tuple(dict.fromkeys(kinds)) if all(kinds) else ()


def unfit(flow_name: str, published: Mapping[str, object], given: Mapping[str, object]) -> str:
    """Which of the plain values is of no kind that its parameter takes; empty if none is. `published` is anything:
    only what is understood is held against an input."""
    for name, value in given.items():
        kinds, kind = _understood(published.get(name)), _OF_VALUES[type(value)]
        if kinds and kind not in kinds and not (kind == "int" and "float" in kinds):
            wrong = f"Expected `{' | '.join(kinds)}`, got `{kind}` - at `$.{name}`"
            return f"the input of flow {flow_name} does not fit its parameters: {wrong}"
    return ""


def _understood(kinds: object) -> list[str]:
    if not isinstance(kinds, list):
        return []
    known = [each for each in kinds if isinstance(each, str) and each in _WORDS]
    return known if len(known) == len(kinds) else []
