"""Data is JSON: a pickle could not be read after an upgrade, and would run the code of whoever may write to Redis."""

from __future__ import annotations

import ast
import os
from pathlib import Path

import pytest

import stepwell
import stepwell.actors
import stepwell.metrics

PACKAGES = (stepwell, stepwell.actors, stepwell.metrics)
FOLDERS = {
    folder for package in PACKAGES for path in package.__path__ for folder, *_ in os.walk(path, followlinks=True)
}
MODULES = sorted({module.resolve() for folder in FOLDERS for module in Path(folder).glob("*.py")})
CODE_ONLY = {"processes/code.py", "processes/by_value.py"}  # how the code of a step gets to its process
PICKLERS = {"pickle", "marshal", "shelve", "cloudpickle", "dill", "jsonpickle"}


def imported(tree: ast.Module) -> set[str]:
    names: set[str] = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            names.update(alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            names.add(node.module or "")
    return {name.partition(".")[0] for name in names}


def test_the_whole_product_is_looked_at() -> None:
    assert {"codec.py", "execution.py", "subscriber.py"} <= {path.name for path in MODULES}
    assert imported(ast.parse("def f():\n from pickle import loads\nimport marshal as m")) == {"pickle", "marshal"}


@pytest.mark.pain(16)
@pytest.mark.parametrize("module", MODULES, ids=lambda path: "/".join(path.parts[-2:]))
def test_no_module_pickles(module: Path) -> None:
    if "/".join(module.parts[-2:]) in CODE_ONLY:
        return
    assert imported(ast.parse(module.read_text(encoding="utf-8"))) & PICKLERS == set()
