"""docs/pains.md, the mutants and the tests belong together: each pain has tests, and mutants that prove them.

That the mutants are caught is shown by `make test-mutants`; here is what can be seen without running them.
"""

from __future__ import annotations

import ast
import functools
import re
from dataclasses import dataclass
from pathlib import Path

import pytest
from mutants.explored import PAGE as EXPLORED_PAGE
from mutants.explored import Fault, read_faults
from mutants.run import PACKAGES, Mutant, misfit_of, problem_of, read_mutants

ROOT = Path(__file__).resolve().parent.parent
PAGE = ROOT / "docs" / "pains.md"
ROW = re.compile(r"^\| (\d+) \| (.+?) \| (.+?) \| (.+?) \|$", re.MULTILINE)
# Rows that one shard alone must keep.
REQUIRED = {2, 3, 12, *range(15, 19), *range(20, 30), 31, 32, 39, 41, 45, 48, *range(53, 58)}
MUTANTS = read_mutants()
FAULTS = read_faults()


@dataclass(frozen=True)
class Row:
    """One row of the page: its number, its tests (file::function) and its mutants."""

    pain: int
    tests: frozenset[str]
    mutants: frozenset[str]


@functools.cache
def rows() -> dict[int, Row]:
    found = [
        Row(int(pain), frozenset(f"tests/{test}" for test in _named(tests)), frozenset(_named(mutants)))
        for pain, _, tests, mutants in ROW.findall(PAGE.read_text(encoding="utf-8"))
    ]
    assert len(found) == len({row.pain for row in found}), "a pain has two rows"
    return {row.pain: row for row in found}


def _named(cell: str) -> list[str]:
    return re.findall(r"`([^`]+)`", cell)


@functools.cache
def functions_of(file: str) -> set[str]:
    tree = ast.parse((ROOT / file).read_text(encoding="utf-8"), file)
    return {node.name for node in tree.body if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)}


def exists(test: str) -> bool:
    file, _, function = test.partition("[")[0].partition("::")
    return (ROOT / file).is_file() and function in functions_of(file)


def test_each_pain_of_one_shard_has_its_row() -> None:
    assert REQUIRED - set(rows()) == set()
    assert sorted(rows()) == list(rows()), "rows are in order"


@pytest.mark.parametrize("row", rows().values(), ids=lambda row: f"pain {row.pain}")
def test_a_row_names_tests_and_mutants_that_exist(row: Row) -> None:
    assert row.tests
    assert [test for test in sorted(row.tests) if not exists(test)] == []
    assert row.mutants == {mutant.name for mutant in MUTANTS if row.pain in mutant.pains}
    assert row.mutants


@pytest.mark.parametrize("mutant", MUTANTS, ids=lambda mutant: mutant.name)
def test_a_mutant_fits_and_is_told_in_the_rows_of_its_pains(mutant: Mutant) -> None:
    assert problem_of(mutant) == ""
    assert mutant.tests
    assert [test for test in mutant.tests if not exists(test)] == []
    functions = {test.partition("[")[0] for test in mutant.tests}
    assert mutant.pains
    for pain in mutant.pains:
        assert functions <= rows()[pain].tests, f"docs/pains.md, row {pain} leaves out a test of this mutant"


@pytest.mark.parametrize("mutant", MUTANTS, ids=lambda mutant: mutant.name)
def test_a_mutant_is_one_small_fault_that_a_person_could_have_made(mutant: Mutant) -> None:
    assert mutant.file.partition("/")[0] in PACKAGES, "the product is mutated, not its tests"
    assert mutant.old != mutant.new
    assert max(mutant.old.count("\n"), mutant.new.count("\n")) <= 5
    assert 15 <= len(mutant.why) <= 130, "one sentence that names the fault"
    assert mutant.why[0].islower() or mutant.why.startswith(("READONLY", "SystemExit"))
    assert mutant.name.startswith(f"{mutant.pains[-1]:02}-") or mutant.name.startswith(f"{mutant.pains[0]:02}-")
    if mutant.file.endswith(".py"):
        changed = (ROOT / mutant.file).read_text(encoding="utf-8").replace(mutant.old, mutant.new)
        ast.parse(changed, mutant.file)


@pytest.mark.parametrize("fault", FAULTS, ids=lambda fault: fault.name)
def test_each_fault_for_the_simulation_fits_the_product_and_has_its_row(fault: Fault) -> None:
    assert [misfit_of(file, old) for file, old, _ in fault.changes] == [""] * len(fault.changes)
    assert f"| `{fault.name}` | {fault.why} | {fault.seed} |" in EXPLORED_PAGE.read_text(encoding="utf-8")
