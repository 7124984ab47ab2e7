"""What a flow's own code must leave to steps: time, chance, files, processes and the network.

A flow's code runs again after each restart, so it must come to the same operations each time. The check reads the
code of the flow and of its module's helpers; it sees what is called by name, and what it says is a warning.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator
from dataclasses import dataclass
from types import ModuleType

from stepwell.flow.definitions import FlowLike, Step
from stepwell.flow.source import Code, codes_of

__all__ = ["Finding", "lint"]

STEP = "move it into a @step, which runs once and is recorded"
SLEEP = "use `await stepwell.sleep(...)`, which survives restarts"

_ADVICE = {
    "time.sleep": SLEEP,
    "asyncio.sleep": SLEEP,
    "asyncio.gather": "use `await stepwell.gather(...)`",
    "asyncio.wait_for": "use a step's `timeout=`, or the `timeout=` of `stepwell.wait_for`",
}
# Whatever is called in these.
_MODULES = frozenset(
    {
        *("time", "random", "secrets", "subprocess", "multiprocessing", "threading", "concurrent", "asyncio"),
        *("socket", "ssl", "smtplib", "ftplib", "imaplib", "poplib", "paramiko", "websockets", "grpc"),
        *("requests", "httpx", "aiohttp", "urllib3", "boto3", "botocore", "openai", "anthropic"),
        *("redis", "valkey", "sqlite3", "psycopg", "psycopg2", "asyncpg", "pymongo"),
    }
)
_CALLS = frozenset(
    [
        *(f"uuid.{name}" for name in ("uuid1", "uuid4", "getnode")),
        *(f"datetime.{name}" for name in ("datetime.now", "datetime.utcnow", "datetime.today", "date.today")),
        *(f"builtins.{name}" for name in ("open", "input", "breakpoint")),
        *(f"os.{name}" for name in ("urandom", "getrandom", "system", "popen", "open", "remove", "listdir", "getenv")),
        "urllib.request.urlopen",
        "urllib.request.urlretrieve",
        "http.client.HTTPConnection",
        "http.client.HTTPSConnection",
    ]
)
# Where the functions of a module say that they come from, and how users know it.
_HOMES = {"_io": "builtins", "io": "builtins", "_socket": "socket", "posix": "os", "nt": "os"}
_MAY_CLEAN_UP = frozenset({"gather"})


@dataclass(frozen=True, order=True)
class Finding:
    """One doubtful place in a flow's code: where it is, what it does, and what to do instead."""

    file: str
    line: int
    flow: str
    what: str
    advice: str

    def __str__(self) -> str:
        return f"{self.file}:{self.line}: flow {self.flow} {self.what}: {self.advice}"


def lint(flow: FlowLike) -> list[Finding]:
    """The doubtful places of a flow, in the order of its text; none where its source can't be read."""
    found = {finding for code in codes_of(flow) for finding in (*_calls(flow, code), *_cleanups(flow, code))}
    return sorted(found)


def _calls(flow: FlowLike, code: Code) -> Iterator[Finding]:
    imported = code.imported()
    for node in ast.walk(code.tree):
        if isinstance(node, ast.Call):
            names = [name for name in _names(node.func, code, imported) if _is_doubtful(name)]
            if names:
                shown = names[0].removeprefix("builtins.")
                yield Finding(code.file, code.line(node), flow.name, f"calls {shown}()", _ADVICE.get(shown, STEP))


def _is_doubtful(name: str) -> bool:
    return name in _CALLS or name.partition(".")[0] in _MODULES


def _names(func: ast.expr, code: Code, imported: dict[str, str]) -> Iterator[str]:
    """The full names by which what is called is known: as it is written, and as it calls itself."""
    attributes: list[str] = []
    root = func
    while isinstance(root, ast.Attribute):
        attributes.insert(0, root.attr)
        root = root.value
    if isinstance(root, ast.Name) and root.id in imported:
        yield ".".join([imported[root.id], *attributes])
        return
    owner = code.value_of(root)
    if attributes and isinstance(owner, ModuleType):
        yield ".".join([owner.__name__, *attributes])
    elif attributes and type(owner).__module__ == "random":
        yield f"random.{attributes[-1]}"
    yield _home(code.value_of(func))


def _home(value: object) -> str:
    """The full name that a function, class or method gives itself; empty where it has none."""
    owner = getattr(value, "__self__", None)
    if owner is not None and type(owner).__module__ == "random":
        return f"random.{getattr(value, '__name__', '')}"
    name = getattr(value, "__qualname__", None)
    module = getattr(owner if isinstance(owner, type) else value, "__module__", None)
    if not isinstance(name, str) or not isinstance(module, str):
        return ""
    top = module.partition(".")[0]
    return f"{_HOMES.get(module, top if top in _MODULES else module)}.{name}"


def _cleanups(flow: FlowLike, code: Code) -> Iterator[Finding]:
    """Statements under `finally:` that do something other than await a step."""
    for node in ast.walk(code.tree):
        if not isinstance(node, ast.Try):
            continue
        awaited = {id(each.value) for part in node.finalbody for each in ast.walk(part) if isinstance(each, ast.Await)}
        for call in (each for part in node.finalbody for each in ast.walk(part) if isinstance(each, ast.Call)):
            if not _may_clean_up(call, code, id(call) in awaited):
                yield Finding(
                    code.file,
                    code.line(call),
                    flow.name,
                    f"calls {ast.unparse(call.func)}() under `finally:`",
                    "there a flow may only await steps, since its code is also left when it is not over",
                )


def _may_clean_up(call: ast.Call, code: Code, awaited: bool) -> bool:
    value = code.value_of(call.func)
    if isinstance(value, Step):
        return True
    name = getattr(value, "__name__", "")
    if getattr(value, "__module__", "") == "builtins":
        return name not in {"open", "print", "input", "exec", "eval"}
    # What can't be told is not doubted when it is awaited: it may be a step that a variable holds.
    return awaited and (value is None or name in _MAY_CLEAN_UP)
