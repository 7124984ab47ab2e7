"""Every option of every command, found in the program itself."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import get_args, get_type_hints

import typer
from typer.models import OptionInfo

__all__ = ["Option", "walk"]


@dataclass(frozen=True)
class Option:
    """One of a command. `path`: the words that call that; `kind`: what it is read as."""

    path: tuple[str, ...]
    name: str
    kind: object
    info: OptionInfo


def walk(program: typer.Typer, path: tuple[str, ...] = ()) -> Iterator[Option]:
    """Every option of every command."""
    for command in program.registered_commands:
        assert command.callback is not None
        words = (*path, command.name or command.callback.__name__)
        for hint in get_type_hints(command.callback, include_extras=True).values():
            for info in getattr(hint, "__metadata__", ()):
                if isinstance(info, OptionInfo):
                    # In an Annotated, what is written first counts as the default until typer has looked at it.
                    names = [each for each in (info.default, *(info.param_decls or ())) if isinstance(each, str)]
                    yield Option(words, names[0], get_args(hint)[0], info)
    for group in program.registered_groups:
        assert group.typer_instance is not None
        name = group.typer_instance.info.name
        assert isinstance(name, str)
        yield from walk(group.typer_instance, (*path, name))
