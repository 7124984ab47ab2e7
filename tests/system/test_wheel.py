"""The wheel, as a user gets it: everything is in it, and it works without the checkout."""

from __future__ import annotations

import importlib.metadata
import json
import os
import shutil
import subprocess
import sys
import sysconfig
import zipfile
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
SHIPPED = {"runtime": "stepwell", "actors": "stepwell/actors", "metrics": "stepwell/metrics"}
MADE_BEFORE = ROOT / "metrics" / "dashboards"
"""What makes the dashboard stays at home; the dashboard itself is shipped."""
NOT_SHIPPED = shutil.ignore_patterns("__pycache__")


def _run(*command: str | Path, **environment: str) -> str:
    done = subprocess.run(
        [str(part) for part in command], capture_output=True, text=True, check=False, env={**os.environ, **environment}
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    # Built from a copy: setuptools would otherwise ship what an earlier build left in ./build.
    source = tmp_path_factory.mktemp("source")
    for name in SHIPPED:
        shutil.copytree(ROOT / name, source / name, ignore=NOT_SHIPPED)
    for name in ("setup.cfg", "pyproject.toml", "README.md", "LICENSE"):
        shutil.copy(ROOT / name, source)
    target = tmp_path_factory.mktemp("dist")
    proxies = json.loads(os.environ["STEPWELL_TEST_PROXIES"])
    _run(sys.executable, "-m", "pip", "wheel", "-q", "--no-deps", "-w", target, source, **proxies)
    [built] = target.glob("stepwell-*.whl")
    return built


@pytest.fixture(scope="module")
def installed(wheel: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    target = tmp_path_factory.mktemp("site")
    _run(sys.executable, "-m", "pip", "install", "-q", "--no-deps", "--no-index", "--target", target, wheel)
    return target


def _python(installed: Path, *arguments: str | Path) -> str:
    # -S: the checkout's editable install is hooked in by site; the dependencies beside it come by PYTHONPATH.
    path = os.pathsep.join([str(installed), sysconfig.get_path("purelib"), sysconfig.get_path("platlib")])
    return _run(sys.executable, "-S", *arguments, PYTHONPATH=path)


def test_every_product_file_is_in_the_wheel(wheel: Path) -> None:
    with zipfile.ZipFile(wheel) as archive:
        packed = {name for name in archive.namelist() if ".dist-info/" not in name}
    expected = {
        (Path(package) / path.relative_to(ROOT / folder)).as_posix()
        for folder, package in SHIPPED.items()
        for path in (ROOT / folder).rglob("*")
        if path.is_file()
        and "__pycache__" not in path.parts
        and not (path.parent == MADE_BEFORE and path.suffix == ".py")
    }
    assert packed == expected
    assert any(name.endswith(".lua") for name in packed)
    assert "stepwell/py.typed" in packed


def test_the_wheel_carries_its_licence_and_no_foreign_top_level_package(wheel: Path) -> None:
    with zipfile.ZipFile(wheel) as archive:
        names = archive.namelist()
    assert {name.split("/")[0] for name in names if ".dist-info/" not in name} == {"stepwell"}
    assert any(name.endswith("LICENSE") for name in names)


def test_the_installed_wheel_imports_every_module(installed: Path) -> None:
    code = (
        "import pkgutil, importlib, stepwell\n"
        "names = [m.name for m in pkgutil.walk_packages(stepwell.__path__, 'stepwell.') if '__main__' not in m.name]\n"
        "for name in names: importlib.import_module(name)\n"
        "print(stepwell.__file__, len(names))"
    )
    path, count = _python(installed, "-c", code).split()
    assert Path(path).is_relative_to(installed)
    modules = [
        path
        for folder in SHIPPED
        for path in (ROOT / folder).rglob("*.py")
        if path.name != "__main__.py" and path.parent != MADE_BEFORE
    ]
    assert int(count) == len(modules) - 1  # all but `stepwell` itself


def test_the_installed_command_tells_its_version(installed: Path) -> None:
    answer = _python(installed, installed / "bin" / "stepwell", "--version")
    assert importlib.metadata.version("stepwell") in answer
