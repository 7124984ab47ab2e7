"""The source of a flow's code: its syntax tree, and what the names in it stand for.

Helpers of the flow's own module that it names are read with it; steps are not, since their bodies may do anything.
"""

from __future__ import annotations

import ast
import builtins
import inspect
import textwrap
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from types import FunctionType, ModuleType

from stepwell.flow.definitions import Flow, FlowLike, Step, StepLike

__all__ = ["Code", "codes_of", "steps_of"]

_Function = ast.FunctionDef | ast.AsyncFunctionDef
_MISSING = object()


@dataclass(frozen=True)
class Code:
    """One function's code.

    Attributes:
        file: where it is written.
        first_line: line of the file at which `tree` begins, less one.
        tree: the function's definition.
        fn: the function.
    """

    file: str
    first_line: int
    tree: _Function
    fn: FunctionType

    def line(self, node: ast.expr | ast.stmt) -> int:
        """The line of the file where a node begins."""
        return self.first_line + node.lineno

    def value_of(self, node: ast.expr) -> object:
        """What a name or a dotted name stands for, as far as the module's names tell; None where they don't."""
        found = self._lookup(node)
        return None if found is _MISSING else found

    def imported(self) -> dict[str, str]:
        """Names that the body imports itself, and the full names of what they stand for."""
        names: dict[str, str] = {}
        for node in ast.walk(self.tree):
            if isinstance(node, ast.Import):
                for alias in node.names:
                    top = alias.name.partition(".")[0]
                    names[alias.asname or top] = alias.name if alias.asname else top
            elif isinstance(node, ast.ImportFrom) and node.level == 0:
                names |= {alias.asname or alias.name: f"{node.module}.{alias.name}" for alias in node.names}
        return names

    def _lookup(self, node: ast.expr) -> object:
        if isinstance(node, ast.Name):
            if node.id in self._local_names:
                return _MISSING
            scope = {**vars(builtins), **self.fn.__globals__, **_enclosed(self.fn)}
            return scope.get(node.id, _MISSING)
        if isinstance(node, ast.Attribute):
            owner = self._lookup(node.value)
            # Only of modules and classes: reading other attributes could run somebody's code.
            if isinstance(owner, ModuleType | type):
                return getattr(owner, node.attr, _MISSING)
        return _MISSING

    @property
    def _local_names(self) -> set[str]:
        return set(self.fn.__code__.co_varnames)


def codes_of(flow: FlowLike) -> list[Code]:
    """The flow's code, then that of the helpers of its module that it names, each once; none without source."""
    found: dict[Callable[..., object], Code] = {}
    waiting: list[Callable[..., object]] = [flow.fn]
    while waiting:
        fn = waiting.pop(0)
        if fn in found or not isinstance(fn, FunctionType):
            continue
        code = _read(fn)
        if code is None:
            continue
        found[fn] = code
        waiting += [value for value in _named(code) if isinstance(value, FunctionType) and _is_helper(value, flow)]
    return list(found.values())


def steps_of(flow: FlowLike) -> list[StepLike]:
    """The steps that the flow's code and its helpers name, in the order of their first naming."""
    found: dict[int, StepLike] = {}
    for code in codes_of(flow):
        for value in _named(code):
            if isinstance(value, Step):
                found.setdefault(id(value), value)
    return list(found.values())


def _named(code: Code) -> Iterator[object]:
    """What the names in a body stand for, in the order of the text; a called flow stands for its function."""
    nodes = [node for node in ast.walk(code.tree) if isinstance(node, ast.Name | ast.Attribute)]
    for node in sorted(nodes, key=lambda each: (each.lineno, each.col_offset)):
        value = code.value_of(node)
        yield value.fn if isinstance(value, Flow) else value


def _is_helper(fn: FunctionType, flow: FlowLike) -> bool:
    return fn.__module__ == flow.fn.__module__


def _read(fn: FunctionType) -> Code | None:
    try:
        lines, first = inspect.getsourcelines(fn)
        file = inspect.getsourcefile(fn) or fn.__code__.co_filename
        tree = ast.parse(textwrap.dedent("".join(lines))).body[0]
    except (OSError, TypeError, SyntaxError, IndexError):
        return None  # made by code, or its file is gone or was changed
    return Code(file, first - 1, tree, fn) if isinstance(tree, _Function) else None


def _enclosed(fn: FunctionType) -> dict[str, object]:
    """The variables of the functions around it."""
    values: dict[str, object] = {}
    for name, cell in zip(fn.__code__.co_freevars, fn.__closure__ or (), strict=True):
        try:
            values[name] = cell.cell_contents
        except ValueError:
            continue  # not assigned yet
    return values
