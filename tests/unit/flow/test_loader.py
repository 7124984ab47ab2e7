"""Loading flows: what is found, and one clear sentence for each way in which it can go wrong."""

from __future__ import annotations

import sys
import sysconfig
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from stepwell import flow, step
from stepwell.core.errors import DefinitionError, FlowLoadError
from stepwell.flow import loader
from stepwell.flow.loader import load
from stepwell.flow.registry import Registry

FLOW = """
from stepwell import flow

@flow
async def {name}(order: str = "") -> str:
    return order
"""

Write = Callable[[str, str], Path]


@pytest.fixture
def write(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Write]:
    """Writes a file into the current folder; the import system forgets all afterwards."""
    modules, path = set(sys.modules), list(sys.path)
    monkeypatch.chdir(tmp_path)

    def writing(name: str, text: str) -> Path:
        file = tmp_path / name
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text)
        return file

    yield writing
    sys.path[:] = path
    for name in set(sys.modules) - modules:
        del sys.modules[name]


def refusal(*targets: str) -> str:
    with pytest.raises(FlowLoadError) as caught:
        load(targets)
    text = str(caught.value)
    assert "\n" not in text
    return text


def test_a_file_and_a_module_give_their_flows(write: Write) -> None:
    file = write("shop_flows.py", FLOW.format(name="checkout"))
    write("depot/flows.py", FLOW.format(name="refill"))
    assert sorted(each.name for each in load([str(file), "depot.flows"])) == ["checkout", "refill"]


def test_a_files_module_is_known_by_its_stem(write: Write) -> None:
    file = write("elsewhere/named_flows.py", FLOW.format(name="checkout"))
    [found] = load([str(file)])
    assert found.fn.__module__ == "named_flows"
    assert sys.modules["named_flows"].checkout is found


def test_a_files_neighbours_can_be_imported(write: Write) -> None:
    write("elsewhere/their_helpers.py", FLOW.format(name="helped"))
    file = write("elsewhere/their_flows.py", "from their_helpers import helped")
    assert [each.name for each in load([str(file)])] == ["helped"]


def test_a_file_inside_a_package_may_import_relatively(write: Write) -> None:
    write("warehouse/__init__.py", "")
    write("warehouse/parts.py", FLOW.format(name="pack"))
    file = write("warehouse/all_flows.py", "from .parts import pack")
    [found] = load([str(file)])
    assert found.fn.__module__ == "warehouse.parts"
    assert "warehouse.all_flows" in sys.modules


def test_the_same_file_named_twice_is_loaded_once(write: Write) -> None:
    file = write("twice_flows.py", FLOW.format(name="checkout"))
    assert len(load([str(file), "./twice_flows.py", "twice_flows"])) == 1


def test_a_file_that_is_not_there(write: Write) -> None:
    assert "there is no file lost.py: check the path" in refusal("lost.py")


def test_a_folder_is_no_file_of_flows(write: Write, tmp_path: Path) -> None:
    write("folder/x.txt", "")
    assert "folder is not a Python file" in refusal("folder")
    assert "x.txt is not a Python file" in refusal("folder/x.txt")


@pytest.mark.parametrize("name", ["no_such_module", "no_such.module", "json.no_such"])
def test_a_module_that_is_not_there(write: Write, name: str) -> None:
    assert f"there is no module {name!r}" in refusal(name)


@pytest.mark.parametrize("name", ["", "..flows", ".flows"])
def test_what_is_no_name_at_all(write: Write, name: str) -> None:
    assert "is not the name of a file or module" in refusal(name)


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("x = 1\ny = z\n", "line 2 of {file}: NameError: name 'z' is not defined"),
        ("def f(:\n", "line 1 of {file}: SyntaxError: "),
        ("\n\nimport no_such_module\n", "line 3 of {file}: ModuleNotFoundError: No module named 'no_such_module'"),
        ("import json\njson.loads('{')\n", "line 2 of {file}: JSONDecodeError: "),
        ("import sys\nsys.exit(3)\n", "line 2 of {file}: it ends the process while it is imported (SystemExit: 3)"),
        (
            "from stepwell import flow\n\n@flow\ndef checkout(): ...\n",
            "line 3 of {file}: DefinitionError: @flow decorates `async def` functions, got 'checkout'",
        ),
    ],
)
def test_a_file_that_does_not_import_names_line_and_error(write: Write, text: str, said: str) -> None:
    file = write("broken_flows.py", text)
    message = refusal("broken_flows.py")
    assert message.startswith("broken_flows.py can't be loaded: ")
    assert said.format(file=file) in message


def test_an_error_in_an_imported_neighbour_is_placed_there(write: Write) -> None:
    neighbour = write("faulty_helpers.py", "\n\n1 / 0\n")
    write("innocent_flows.py", "import faulty_helpers\n")
    assert f"line 3 of {neighbour}: ZeroDivisionError: division by zero" in refusal("innocent_flows.py")


@pytest.mark.parametrize(("imported", "installed"), [("real", "linked"), ("linked", "real"), ("linked", "linked")])
def test_what_a_library_behind_a_link_raises_is_placed_where_it_was_called(
    write: Write, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, imported: str, installed: str
) -> None:
    write("real/strict_library.py", "def checked():\n    raise ValueError('no')\n")
    (tmp_path / "linked").symlink_to(tmp_path / "real")
    paths = sysconfig.get_paths()
    monkeypatch.setattr(sysconfig, "get_paths", lambda: {**paths, "purelib": str(tmp_path / installed)})
    monkeypatch.syspath_prepend(tmp_path / imported)
    file = write("calling_flows.py", "import strict_library\n\nstrict_library.checked()\n")
    assert f"line 3 of {file}: ValueError: no" in refusal("calling_flows.py")


@pytest.mark.parametrize("behind_a_link", [False, True])
def test_what_stepwell_itself_raises_is_placed_where_it_was_called(
    write: Write, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, behind_a_link: bool
) -> None:
    ours = Path(loader.__file__).parents[1]
    (tmp_path / "linked").symlink_to(ours)
    place = tmp_path / "linked" if behind_a_link else ours.resolve()
    monkeypatch.setattr(loader, "__file__", str(place / "flow" / "loader.py"))
    file = write("broken_flows.py", "from stepwell import flow\n\n@flow\ndef checkout(): ...\n")
    assert f"line 3 of {file}: DefinitionError" in refusal("broken_flows.py")


def test_credentials_in_an_import_error_are_hidden(write: Write) -> None:
    write("leaky_flows.py", "raise RuntimeError('no redis://:hunter2@db')\n")
    assert "hunter2" not in refusal("leaky_flows.py")


def test_a_file_that_failed_can_be_loaded_when_it_is_mended(write: Write) -> None:
    write("mended_flows.py", "1 / 0\n")
    refusal("mended_flows.py")
    write("mended_flows.py", FLOW.format(name="mended_by_then"))
    assert len(load(["mended_flows.py"])) == 1


def test_a_module_without_flows(write: Write) -> None:
    write("empty_flows.py", "x = 1\n")
    assert "empty_flows.py has no flow: decorate an `async def` in it with @flow" in refusal("empty_flows.py")


def test_two_flows_of_one_name(write: Write) -> None:
    write("first_flows.py", FLOW.format(name="checkout"))
    write("second_flows.py", FLOW.format(name="checkout"))
    message = refusal("first_flows.py", "second_flows.py")
    assert "two flows are named 'checkout' (line 4 of first_flows.py and line 4 of second_flows.py)" in message


@pytest.mark.parametrize("name", ["json.py", "stepwell.py", "smtplib.py"])
def test_a_file_that_would_hide_another_module(write: Write, name: str) -> None:
    write(name, FLOW.format(name="checkout"))
    assert "another module is named" in refusal(name)


def test_two_files_of_one_stem(write: Write) -> None:
    write("a/same_flows.py", FLOW.format(name="one"))
    write("b/same_flows.py", FLOW.format(name="two"))
    assert "another module is named 'same_flows'" in refusal("a/same_flows.py", "b/same_flows.py")


def test_a_file_with_a_dot_in_its_stem(write: Write) -> None:
    write("my.flows.py", FLOW.format(name="checkout"))
    assert "dot in its name" in refusal("my.flows.py")


TWO_STEPS = """
from stepwell import flow, step

@step
def charge() -> None: ...

@step(name="charge")
def bill() -> None: ...

@flow
async def checkout() -> None: ...
"""


def test_two_steps_of_one_name_are_named_with_their_lines(write: Write) -> None:
    write("twin_flows.py", TWO_STEPS)
    told = "two steps of twin_flows are named 'charge' (line 4 of twin_flows.py and line 7 of twin_flows.py)"
    assert told in refusal("twin_flows.py")


ODD_TYPES = """
import threading
from dataclasses import dataclass
from stepwell import flow, step

class Card: ...

@dataclass
class One:
    card: Card

@dataclass
class Two:
    n: int

@step
def charge() {result}: ...

@flow
async def checkout(order: {order}, card: Card | None = None) -> None: ...
"""


@pytest.mark.parametrize(
    ("order", "result", "said"),
    [
        ("Card", "", "flow checkout: no input can give its parameter 'order': JSON can't be turned into a Card"),
        ("list[One]", "", "parameter 'order': JSON can't be turned into a Card"),
        ("One | Two", "", "parameter 'order': Type unions may not contain more than one dataclass"),
        ("int", "-> Card", "step charge (line 16 of odd_flows.py): its result can't be stored: JSON can't be"),
        ("int", "-> dict[str, Card] | None", "its result can't be stored: JSON can't be turned into a Card"),
    ],
)
def test_annotations_that_no_record_could_hold_are_refused_at_load(
    write: Write, order: str, result: str, said: str
) -> None:
    write("odd_flows.py", ODD_TYPES.format(order=order, result=result))
    assert said in refusal("odd_flows.py")


def test_annotations_that_a_record_can_hold_are_loaded(write: Write) -> None:
    write("good_flows.py", ODD_TYPES.format(order="dict[str, list[Two]]", result="-> object"))
    assert len(load(["good_flows.py"])) == 1


@pytest.mark.parametrize("name", ["api.json", "flows.yaml", "lost.yml", "setup.toml"])
def test_a_document_is_no_file_of_flows(write: Write, name: str) -> None:
    if not name.startswith("lost"):
        write(name, "{}")
        assert f"{name} is no Python: flows are functions with @flow in a .py file" in refusal(name)
    else:
        assert "there is no file lost.yml" in refusal(name)


def test_a_single_flow_is_a_registry_and_a_step_is_none() -> None:
    @flow
    async def alone() -> None: ...

    @step
    def charge() -> None: ...

    assert [each.name for each in Registry(alone)] == ["alone"]
    for given in (charge, [charge]):
        with pytest.raises(DefinitionError, match="'charge' is a step: await it in a function decorated with @flow"):
            Registry(given)
