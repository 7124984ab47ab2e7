"""House rules that a program can check: sizes, names, time and chance, docstrings, what a file may say."""

from __future__ import annotations

import ast
import configparser
import functools
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent
PRODUCT = ("runtime", "actors", "metrics")
FUNCTION_LINES = 70
MODULE_LINES = 600

# Who may read real time, wait in it, or draw by chance: path prefix -> why.
PROCESS_LEVEL = {
    "actors/kit/clock.py": "the injected clocks themselves",
    "runtime/cli/": "a person waits in front of it",
    "runtime/demo/": "drives real processes and kills some",
    "runtime/worker": "the composition root: its clock is the real one",
}
NOT_SHIPPED = {"metrics/dashboards"}  # it makes what is shipped, with what only a developer has
BANNED = {
    "time": {"time", "time_ns", "sleep"},
    "uuid": {"uuid1", "uuid4"},
    "datetime": {"now", "utcnow", "today"},
    "random": None,
}
SLEEPLESS = ("tests/unit", "tests/conformance")
SAYS_SLEEP = {"tests/unit/conftest.py", "tests/unit/test_no_real_waiting.py"}  # they catch sleeping, and show it

FOREIGN = ("/" + "work/", "/" + "tmp/w", "/" + "root/", "pypi" + ".org")
TEXT = {".py", ".lua", ".md", ".cfg", ".toml", ".json", ".yaml", ".yml", ".html", ".patch", ".txt", ".sh", ""}
GENERATED = {".git", "__pycache__", "node_modules"}
TOP_FILES = {"LICENSE", "Makefile", "README.md", "pyproject.toml", "ruff.toml", "setup.cfg"}
TOP_FOLDERS = {"actors", "benchmarks", "docs", "examples", "metrics", "runtime", "tests"}
MADE_AT_TOP = {"bench-results", "build", "dist", "__pycache__"}  # what commands leave there, and .gitignore names


def modules(*folders: str) -> list[str]:
    return sorted(path.relative_to(ROOT).as_posix() for folder in folders for path in (ROOT / folder).rglob("*.py"))


def texts() -> list[str]:
    tops = [top for top in ROOT.iterdir() if top.name == ".ci" or not top.name.startswith(".") or top.is_file()]
    files = [path for top in tops for path in ([top] if top.is_file() else top.rglob("*"))]
    return sorted(
        path.relative_to(ROOT).as_posix()
        for path in files
        if path.is_file()
        and path.suffix in TEXT
        and not any(part in GENERATED or part.endswith(".egg-info") for part in path.parts)
        and path.relative_to(ROOT).parts[0] not in {"build", "dist"}
    )


def test_nothing_else_lies_at_the_top() -> None:
    found = {path.name for path in ROOT.iterdir() if not path.name.startswith(".")}
    assert {name for name in found - TOP_FILES - TOP_FOLDERS - MADE_AT_TOP if not name.endswith(".egg-info")} == set()


@functools.cache
def parsed(module: str) -> ast.Module:
    return ast.parse((ROOT / module).read_text(encoding="utf-8"), module)


def functions(tree: ast.AST) -> Iterator[ast.FunctionDef | ast.AsyncFunctionDef]:
    for node in ast.walk(tree):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            yield node


def clock_and_chance(tree: ast.AST) -> Iterator[str]:
    """Calls of real time, waiting and chance; a seeded `Random(seed)` is an argument, not chance."""
    imported: dict[str, str] = {}
    for node in ast.walk(tree):
        if isinstance(node, ast.ImportFrom) and node.module in BANNED and node.level == 0:
            imported |= {alias.asname or alias.name: f"{node.module}.{alias.name}" for alias in node.names}
        elif isinstance(node, ast.Import):
            imported |= {alias.asname or alias.name: alias.name for alias in node.names if alias.name in BANNED}
    for node in ast.walk(tree):
        if isinstance(node, ast.Call) and _is_banned(full := _full_name(node.func, imported), node):
            yield f"line {node.lineno}: {full}()"


def _full_name(func: ast.expr, imported: dict[str, str]) -> str:
    parts: list[str] = []
    while isinstance(func, ast.Attribute):
        parts.append(func.attr)
        func = func.value
    root = imported.get(func.id, "") if isinstance(func, ast.Name) else ""
    return ".".join([root, *reversed(parts)]) if root else ""


def _is_banned(full: str, call: ast.Call) -> bool:
    module, _, rest = full.partition(".")
    if not rest or (full == "random.Random" and (call.args or call.keywords)):
        return False
    names = BANNED[module]
    return names is None or rest.rpartition(".")[2] in names


def test_the_rules_see_the_product() -> None:
    assert {"runtime/core/errors.py", "actors/kit/pooled.py"} <= set(modules(*PRODUCT))
    assert {"setup.cfg", "Makefile", ".ci/run", "README.md", "tests/test_tidy.py"} <= set(texts())


@pytest.mark.parametrize("module", modules(*PRODUCT, "tests", "benchmarks", "examples"))
def test_modules_and_functions_stay_small(module: str) -> None:
    lines = (ROOT / module).read_text(encoding="utf-8").count("\n")
    assert lines <= MODULE_LINES, f"{lines} lines: split it by idea"
    long = [f.name for f in functions(parsed(module)) if (f.end_lineno or 0) - f.lineno + 1 > FUNCTION_LINES]
    assert not long, f"functions over {FUNCTION_LINES} lines: {long}"


@pytest.mark.parametrize("module", modules(*PRODUCT))
def test_time_and_chance_are_arguments(module: str) -> None:
    if not module.startswith(tuple(PROCESS_LEVEL)):
        assert list(clock_and_chance(parsed(module))) == [], "take a Clock or a seeded Random instead"


@pytest.mark.parametrize(
    ("source", "calls"),
    [
        ("import time\ntime.time()\ntime.sleep(1)", 2),
        ("import time as t\nt.sleep(1)", 1),
        ("from time import sleep\nsleep(1)", 1),
        ("import datetime\ndatetime.datetime.now()", 1),
        ("from datetime import datetime\ndatetime.now()", 1),
        ("import random\nrandom.random()\nrandom.Random()", 2),
        ("from uuid import uuid4\nuuid4()", 1),
        ("import time\ntime.monotonic()\ndef f(sleep=time.sleep): sleep(1)", 0),
        ("import random\nrandom.Random(7).random()", 0),
        ("from stepwell.flow.operations import now, uuid4\nnow()\nuuid4()", 0),
    ],
)
def test_each_way_to_read_real_time_or_chance_is_seen(source: str, calls: int) -> None:
    assert len(list(clock_and_chance(ast.parse(source)))) == calls


@pytest.mark.parametrize("module", modules(*SLEEPLESS))
def test_unit_and_conformance_tests_never_sleep(module: str) -> None:
    if module in SAYS_SLEEP:
        return
    sleeps = [call for call in clock_and_chance(parsed(module)) if call.endswith("sleep()")]
    assert sleeps == []
    assert not re.search(r"\basyncio\.sleep\((?!0\))", (ROOT / module).read_text(encoding="utf-8"))


@pytest.mark.parametrize("module", modules(*PRODUCT))
def test_no_error_is_swallowed_whole(module: str) -> None:
    for node in ast.walk(parsed(module)):
        if not isinstance(node, ast.ExceptHandler):
            continue
        broad = node.type is None or (
            isinstance(node.type, ast.Name) and node.type.id in {"Exception", "BaseException"}
        )
        idle = all(isinstance(s, ast.Pass | ast.Continue) or _is_ellipsis(s) for s in node.body)
        assert not (broad and idle), f"line {node.lineno}: name the exceptions that may be ignored, and say why"


def _is_ellipsis(statement: ast.stmt) -> bool:
    return (
        isinstance(statement, ast.Expr)
        and isinstance(statement.value, ast.Constant)
        and statement.value.value is Ellipsis
    )


@pytest.mark.parametrize("module", modules(*PRODUCT, "tests", "benchmarks", "examples"))
def test_every_module_says_what_it_is_for(module: str) -> None:
    assert ast.get_docstring(parsed(module)), "a module opens with a docstring"


@pytest.mark.parametrize("module", modules(*PRODUCT))
def test_public_names_are_documented_and_match_all(module: str) -> None:
    tree = parsed(module)
    public = {
        node.name: node
        for node in tree.body
        if isinstance(node, ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef) and not node.name.startswith("_")
    }
    bare = [name for name, node in public.items() if not ast.get_docstring(node)]
    assert bare == [], "public names without a docstring"
    exported = _exported(tree)
    if exported is not None:
        assert set(public) <= set(exported), "public names that __all__ leaves out: export them or make them private"


def _exported(tree: ast.Module) -> list[str] | None:
    for node in tree.body:
        if isinstance(node, ast.Assign) and any(isinstance(t, ast.Name) and t.id == "__all__" for t in node.targets):
            names: list[str] = ast.literal_eval(node.value)
            return names
    return None


@pytest.mark.parametrize("folder", sorted({str(Path(module).parent) for module in modules(*PRODUCT)} - NOT_SHIPPED))
def test_every_package_is_listed_for_the_wheel(folder: str) -> None:
    config = configparser.ConfigParser()
    config.read(ROOT / "setup.cfg", encoding="utf-8")
    top, *rest = Path(folder).parts
    package = ".".join(["stepwell", *([] if top == "runtime" else [top]), *rest])
    assert package in config["options"]["packages"].split()
    assert (ROOT / folder / "__init__.py").is_file()


def test_the_package_above_the_actor_machinery_imports_nothing() -> None:
    # flow and client use actors.kit, which lies above them in the tree: its parent must not pull the actors in.
    imports = [node for node in parsed("actors/__init__.py").body if isinstance(node, ast.Import | ast.ImportFrom)]
    assert [node.lineno for node in imports if getattr(node, "module", None) != "__future__"] == []


@pytest.mark.parametrize("module", modules("actors/kit"))
def test_the_actor_machinery_knows_nothing_of_ours_but_core(module: str) -> None:
    ours = ("stepwell.core", "stepwell.actors.kit")
    for node in ast.walk(parsed(module)):
        names = [node.module or ""] if isinstance(node, ast.ImportFrom) else []
        names += [alias.name for alias in node.names] if isinstance(node, ast.Import) else []
        for name in names:
            assert not name.startswith("stepwell") or name.startswith(ours), f"line {node.lineno}: {name}"


@pytest.mark.parametrize("script", sorted(p.relative_to(ROOT).as_posix() for p in (ROOT / "runtime").rglob("*.lua")))
def test_every_script_opens_with_its_contract(script: str) -> None:
    lines = (ROOT / script).read_text(encoding="utf-8").splitlines()
    header = []
    for line in lines:
        if not line.startswith("--"):
            break
        header.append(line.lower())
    for word in ("keys", "argv", "answers"):
        assert any(line.startswith(f"-- {word}") for line in header), f"the header does not name its {word}"


@pytest.mark.parametrize("file", texts())
def test_files_speak_of_the_project_only(file: str) -> None:
    text = (ROOT / file).read_text(encoding="utf-8")
    assert [path for path in FOREIGN if path in text] == [], "words of one machine"
    assert text == "" or text.endswith("\n"), "the last line ends"
