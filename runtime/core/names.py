"""Names, ids and paths: what is allowed, and why nothing aliases.

Step, flow and signal names and execution ids use a small alphabet that is safe in HTTP headers and Redis
keys. `/`, `#` and `.digit` belong to paths, NUL separates inside hashes, so no two operations share a path.
"""

from __future__ import annotations

import re
from functools import lru_cache
from typing import TypeGuard

from stepwell.core.errors import InvalidName

_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_.-]{0,99}")
_EXECUTION_ID = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.:@-]{0,127}")
_DOT_DIGIT = re.compile(r"\.[0-9]")
RESERVED = frozenset({"sleep", "wait", "gather", "race", "child"})


def check_name(kind: str, name: str) -> str:
    """Return `name` if it may name a flow, step or signal (`kind` is used in the message).

    Raises:
        InvalidName: empty, too long, odd characters, `.digit`, or a word that paths reserve.
    """
    if not isinstance(name, str) or not _NAME.fullmatch(name) or _DOT_DIGIT.search(name):
        an = "an" if kind[:1] in "aeiou" else "a"
        raise InvalidName(
            f"expected {an} {kind} name of 1 to 100 letters, digits, '_', '-' or '.' (starting with a letter or '_',"
            f" no digit after a dot), got {name!r}: choose another name"
        )
    if kind == "step" and name in RESERVED:
        raise InvalidName(f"{name!r} is reserved for operations: name the step otherwise with @step(name=...)")
    return name


def check_execution_id(execution_id: str) -> str:
    """Return `execution_id` if it is well formed.

    Raises:
        InvalidName: empty, over 128 characters, or with characters outside `A-Za-z0-9_.:@-`.
    """
    if not isinstance(execution_id, str) or not _EXECUTION_ID.fullmatch(execution_id):
        raise InvalidName(
            "expected an execution id of 1 to 128 letters, digits or '_.:@-', starting with a letter or digit,"
            f" got {execution_id!r}"
        )
    return execution_id


def is_execution_id(text: str | None) -> TypeGuard[str]:
    """Whether it is well formed."""
    return text is not None and _EXECUTION_ID.fullmatch(text) is not None


@lru_cache(maxsize=1024)
def numbered(name: str, count: int) -> str:
    """The path element of the `count`-th operation (from 1) of that name in its branch: `charge`, `charge#2`.

    One string for all executions in memory, which hold it as long as they live.
    """
    return name if count == 1 else f"{name}#{count}"


@lru_cache(maxsize=1024)
def attempt_field(path: str, n: int) -> str:
    """The row's field of a failed attempt; one string for all, too."""
    return f"a:{path}:{n}"


def branch_prefix(gather_path: str, index: int) -> str:
    """What precedes the paths inside branch `index` (from 0) of a gather: `gather#2.0/`."""
    return f"{gather_path}.{index}/"
