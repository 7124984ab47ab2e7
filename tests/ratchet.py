"""The typing ratchet: how often the product says `Any` and `type: ignore` may only go down.

`python tests/ratchet.py` compares the count with tests/ratchet.json; `--lower` writes smaller numbers down.
Raising one is an edit by hand that a reviewer sees.
"""

from __future__ import annotations

import ast
import io
import json
import re
import sys
import tokenize
from collections import Counter
from collections.abc import Iterable, Mapping
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
PACKAGES = ("runtime", "actors", "metrics")
RECORD = ROOT / "tests" / "ratchet.json"
KINDS = ("Any", "type: ignore")

_IGNORE = re.compile(r"#\s*type:\s*ignore")


def count_source(source: str) -> Counter[str]:
    """How often one module's code names `Any` (imports apart) and how many comments say `type: ignore`."""
    found: Counter[str] = Counter()
    for node in ast.walk(ast.parse(source)):
        found["Any"] += _is_any(node)
    for token in tokenize.generate_tokens(io.StringIO(source).readline):
        if token.type == tokenize.COMMENT and _IGNORE.search(token.string):
            found["type: ignore"] += 1
    return found


def _is_any(node: ast.AST) -> bool:
    name = node.id if isinstance(node, ast.Name) else node.attr if isinstance(node, ast.Attribute) else ""
    return name == "Any"


def count(paths: Iterable[Path]) -> dict[str, int]:
    """The sum over modules, by kind."""
    found: Counter[str] = Counter()
    for path in paths:
        found += count_source(path.read_text(encoding="utf-8"))
    return {kind: found[kind] for kind in KINDS}


def verdict(found: Mapping[str, int], recorded: Mapping[str, int]) -> list[str]:
    """What is wrong, one sentence for each kind; nothing where the numbers agree."""
    problems = []
    for kind in KINDS:
        if found[kind] > recorded[kind]:
            problems.append(f"`{kind}`: {found[kind]} uses, at most {recorded[kind]} are allowed: type it properly")
        elif found[kind] < recorded[kind]:
            problems.append(f"`{kind}`: down to {found[kind]} from {recorded[kind]}: run tests/ratchet.py --lower")
    return problems


def product_modules() -> list[Path]:
    """Every module of the three packages."""
    return sorted(path for package in PACKAGES for path in (ROOT / package).rglob("*.py"))


def main(arguments: list[str]) -> int:
    """Compare, or with `--lower` write down what is lower; 1 when something is wrong."""
    found = count(product_modules())
    recorded: dict[str, int] = json.loads(RECORD.read_text(encoding="utf-8"))
    if "--lower" in arguments:
        recorded = {kind: min(found[kind], recorded[kind]) for kind in KINDS}
        RECORD.write_text(json.dumps(recorded, indent=2) + "\n", encoding="utf-8")
    problems = verdict(found, recorded)
    print("\n".join(problems) or f"typing ratchet: {', '.join(f'{found[kind]} {kind}' for kind in KINDS)}")
    return 1 if problems else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
