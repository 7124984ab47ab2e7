"""Where a step stands in an importable module: how another process of this code finds the same step.

A step that can be imported goes by its name, so that classes and globals of its module are the module's own there.
One that can't (it is part of the program's main file, or made inside a function) is made again from its function.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from functools import reduce
from importlib import import_module
from typing import TYPE_CHECKING, TypeAlias

if TYPE_CHECKING:
    from stepwell.core.retry import Retry
    from stepwell.flow.definitions import Isolation, StepLike

MAINS = ("__main__", "__mp_main__")
Options: TypeAlias = tuple[str, "Retry", float | None, int | None, "Isolation"]
Place: TypeAlias = tuple[str, str]
Recipe: TypeAlias = tuple[Callable[..., object], tuple[object, ...]]


def recipe_of(step: StepLike) -> Recipe:
    """A module-level function and its arguments that give this step in another process."""
    place = _place_of_step(step)
    if place is not None:
        return _found, place
    home = _place_of_body(step)
    if home is not None:
        return _variant, (home, *_options(step))
    return _made, (step.fn, step.hints, *_options(step))


def _options(step: StepLike) -> Options:
    return step.name, step.retry, step.timeout, step.max_running, step.isolation


def _found(module: str, qualname: str) -> object:
    found: object = import_module(module)
    return reduce(getattr, qualname.split("."), found)


def _variant(home: Place, *options: *Options) -> StepLike:
    like = _found(*home)
    assert isinstance(like, _step_class())
    return _step_class()(like.fn, *options)


def _made(fn: Callable[..., object], hints: dict[str, object], *options: *Options) -> StepLike:
    made = _step_class()(fn, *options)
    made.hints = hints
    return made


def _step_class() -> type[StepLike]:
    from stepwell.flow.definitions import Step

    return Step


def _place_of_step(step: StepLike) -> Place | None:
    """The step's own name, or that of any variable of its function's module that holds it."""
    module = step.fn.__module__
    if not _is_importable(module):
        return None
    qualname = getattr(step.fn, "__qualname__", "")
    if _look_up(module, qualname) is step:
        return module, qualname
    variables = vars(sys.modules[module])
    return next(((module, name) for name, value in list(variables.items()) if value is step), None)


def _place_of_body(step: StepLike) -> Place | None:
    """The step whose body it shares: `charge`, for `charge.with_options(...)`."""
    module, qualname = step.fn.__module__, getattr(step.fn, "__qualname__", "")
    if not _is_importable(module):
        return None
    return (module, qualname) if getattr(_look_up(module, qualname), "fn", None) is step.fn else None


def _is_importable(module: str) -> bool:
    return module not in MAINS and getattr(sys.modules.get(module), "__spec__", None) is not None


def _look_up(module: str, qualname: str) -> object:
    try:
        return reduce(getattr, qualname.split("."), sys.modules[module])
    except AttributeError:
        return None
