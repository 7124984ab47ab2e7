"""Loading flows from files and modules that people name."""

from __future__ import annotations

import importlib
import os
import sys
import sysconfig
import traceback
from collections.abc import Iterable
from pathlib import Path
from types import ModuleType

from stepwell.core.errors import DefinitionError, FlowLoadError
from stepwell.core.messages import message_of
from stepwell.flow.definitions import Flow, FlowLike
from stepwell.flow.registry import Registry

__all__ = ["load", "load_module"]

_DATA = (".json", ".yaml", ".yml", ".toml")


def load(targets: Iterable[str]) -> Registry:
    """All flows of some files (`flows.py`) and modules (`shop.flows`, from here or installed), imported ones too.

    A file's folder goes on `sys.path` and its module is known by the file's stem (or, inside a package, by its full
    name), so that annotations and pickles find it again.

    Raises:
        FlowLoadError: there is no such file or module, it does not import, it has no flow, or names are taken twice.
    """
    registry = Registry()
    for target in targets:
        flows = _flows_of(load_module(target))
        if not flows:
            raise FlowLoadError(f"{target} has no flow: decorate an `async def` in it with @flow")
        for flow in flows:
            try:
                registry.add(flow)
            except DefinitionError as error:
                raise FlowLoadError(f"the flows of {target} can't be used: {message_of(error)}") from error
    return registry


def load_module(target: str) -> ModuleType:
    """The module of one file or module name. Raises FlowLoadError."""
    importlib.invalidate_caches()
    if target.endswith((".py", *_DATA)) or os.sep in target or (target and Path(target).exists()):
        return _load_file(target)
    _put_on_path(Path.cwd())
    return _import(target, target)


def _flows_of(module: ModuleType) -> list[FlowLike]:
    return list({id(value): value for value in vars(module).values() if isinstance(value, Flow)}.values())


def _load_file(target: str) -> ModuleType:
    path = Path(target)
    if not path.exists():
        raise FlowLoadError(f"there is no file {target}: check the path (from {Path.cwd()})")
    if path.suffix in _DATA:
        raise FlowLoadError(
            f"{target} is no Python: flows are functions with @flow in a .py file; this version can't run documents"
        )
    if not path.is_file() or path.suffix != ".py":
        raise FlowLoadError(f"{target} is not a Python file: name a file that ends in .py, or a module")
    path = path.resolve()
    root, name = _module_name(path)
    if "." in path.stem:
        raise FlowLoadError(f"{target} can't be imported with a dot in its name: rename the file")
    known = sys.modules.get(name)
    if known is not None and _is_at(known, path):
        return known
    if known is not None or name in sys.stdlib_module_names:
        raise FlowLoadError(
            f"{target} can't be loaded, since another module is named {name!r}"
            f" ({getattr(known, '__file__', None) or 'of Python itself'}): rename the file"
        )
    _put_on_path(root)
    module = _import(name, target)
    if not _is_at(module, path):
        raise FlowLoadError(f"{target} is hidden by another module named {name!r} ({module.__file__}): rename the file")
    return module


def _module_name(path: Path) -> tuple[Path, str]:
    """The folder to import from, and the module's full name: that of its package where it is in one."""
    folder, names = path.parent, [path.stem]
    while (folder / "__init__.py").is_file() and folder.name.isidentifier():
        names.insert(0, folder.name)
        folder = folder.parent
    return folder, ".".join(names)


def _is_at(module: ModuleType, path: Path) -> bool:
    file = getattr(module, "__file__", None)
    return file is not None and Path(file).resolve() == path


def _put_on_path(folder: Path) -> None:
    if str(folder) not in sys.path:
        sys.path.insert(0, str(folder))


def _import(name: str, target: str) -> ModuleType:
    try:
        return importlib.import_module(name)
    except KeyboardInterrupt:
        raise
    except BaseException as error:  # the code of the user may raise anything, SystemExit too
        raise FlowLoadError(_why(name, target, error)) from error


def _why(name: str, target: str, error: BaseException) -> str:
    missing = error.name if isinstance(error, ModuleNotFoundError) else None
    place = _place(error)
    if missing and not place and (name == missing or name.startswith(f"{missing}.")):
        return f"there is no module {target!r}, here ({Path.cwd()}) or installed: name a module or a .py file"
    if isinstance(error, ValueError | TypeError) and not place:
        return f"{target!r} is not the name of a file or module: name a module or a .py file"
    if isinstance(error, SystemExit):
        said = f"it ends the process while it is imported (SystemExit: {error.code})"
        return f"{target} can't be loaded: {place}{said}: do that under `if __name__ == '__main__':`"
    if isinstance(error, SyntaxError):
        return f"{target} can't be loaded: {place}{type(error).__name__}: {error.msg}"
    return f"{target} can't be loaded: {place}{type(error).__name__}: {message_of(error)}"


def _place(error: BaseException) -> str:
    """`line 3 of /a/b.py: ` for the place in the user's code where an import failed; empty if it failed before."""
    if isinstance(error, SyntaxError) and error.filename and error.lineno:
        return f"line {error.lineno} of {error.filename}: "
    ours = [Path(__file__).resolve().parents[1] / name for name in ("core", "flow")]
    machinery = [*ours, Path(importlib.__file__)]
    frames = [frame for frame in traceback.extract_tb(error.__traceback__) if not _is_in(frame.filename, machinery)]
    # What a library raises is placed where the user called it.
    paths = sysconfig.get_paths()
    libraries = [Path(paths[name]) for name in ("stdlib", "platstdlib", "purelib", "platlib")]
    written = [frame for frame in frames if not _is_in(frame.filename, libraries)] or frames
    return f"line {written[-1].lineno} of {written[-1].filename}: " if written else ""


def _is_in(filename: str, folders: Iterable[Path]) -> bool:
    # A checkout, a venv or all of Python may lie behind a link, and be imported by either name.
    path = Path(filename).resolve()
    return filename.startswith("<") or any(path.is_relative_to(folder.resolve()) for folder in folders)
