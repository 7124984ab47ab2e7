"""New processes begin by exec: a fork would copy threads' locks, and connections that two processes then speak on."""

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
FORKS = {"fork", "forkpty", "forkserver", "preexec_fn"}


def said(tree: ast.AST) -> set[str]:
    """All names, attributes, keywords of calls, and strings."""
    words: set[str] = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.Name):
            words.add(node.id)
        elif isinstance(node, ast.Attribute):
            words.add(node.attr)
        elif isinstance(node, ast.keyword):
            words.add(node.arg or "")
        elif isinstance(node, ast.Constant) and isinstance(node.value, str):
            words.add(node.value)
    return words


def test_each_way_to_fork_is_seen() -> None:
    assert said(ast.parse("import os\nos.fork()\nPopen([], preexec_fn=f)\nget_context('forkserver')")) >= FORKS - {
        "forkpty"
    }
    assert "handle.py" in {path.name for path in MODULES}


@pytest.mark.pain(37)
@pytest.mark.parametrize("module", MODULES, ids=lambda path: "/".join(path.parts[-2:]))
def test_no_module_forks(module: Path) -> None:
    assert said(ast.parse(module.read_text(encoding="utf-8"))) & FORKS == set()
