"""cloudpickle as steps need it: what a class of the main file says of its fields still holds in another process.

There its module has none of its names, so annotations go as what they stand for; what msgspec keeps on a class stays.
"""

from __future__ import annotations

import io
import pickle
from typing import get_type_hints

import cloudpickle
import msgspec

_KEPT = "__msgspec_cache__"  # made again when it is missed


def dumps(value: object) -> bytes:
    """The pickle of a value that is code. Raises whatever an object raises that can't be sent."""
    into = io.BytesIO()
    pickler = cloudpickle.Pickler(into, protocol=pickle.HIGHEST_PROTOCOL)
    usual = pickler.reducer_override

    def reducer_override(obj: object) -> object:
        recipe = usual(obj)
        if isinstance(obj, type) and isinstance(recipe, tuple):
            _mend(obj, recipe)
        return recipe

    pickler.reducer_override = reducer_override
    pickler.dump(value)
    return into.getvalue()


def _mend(cls: type, recipe: tuple[object, ...]) -> None:
    """Called for each class that goes by value: `recipe` holds its attributes."""
    if issubclass(cls, msgspec.Struct):
        raise pickle.PicklingError(f"the msgspec Struct {cls.__qualname__} can't be sent")
    for part in recipe:
        attributes = part[0] if isinstance(part, tuple) and part else None
        if isinstance(attributes, dict) and "__module__" in attributes:
            attributes.pop(_KEPT, None)
            own = attributes.get("__annotations__")
            if isinstance(own, dict):
                attributes["__annotations__"] = own | _resolved(cls, own)


def _resolved(cls: type, own: dict[str, object]) -> dict[str, object]:
    try:
        hints = get_type_hints(cls, include_extras=True)
    except (NameError, TypeError):  # it names what exists for type checkers only
        return {}
    return {name: hints[name] for name in own if name in hints}
