"""`init`: writes a small example to start from."""

from __future__ import annotations

from importlib import resources
from pathlib import Path
from typing import Annotated, Final

import typer

from stepwell.cli.session import Json, Verbose, session
from stepwell.core.errors import UsageError

__all__ = ["add_to", "init"]

FILE: Final = "flows.py"


def add_to(app: typer.Typer) -> None:
    """Register the command."""
    app.command(epilog="Examples:\n\nstepwell init\n\nstepwell init shop")(init)


def init(
    context: typer.Context,
    directory: Annotated[Path, typer.Argument(metavar="[DIR]", help="Folder to write into; made if needed.")] = Path(),
    json: Json = False,
    verbose: Verbose = False,
) -> None:
    """Write a small example of flows, flows.py, to start from."""
    own = session(context)
    file = directory / FILE
    text = resources.files("stepwell.cli.templates").joinpath(FILE).read_text(encoding="utf-8")
    try:
        directory.mkdir(parents=True, exist_ok=True)
        with file.open("x", encoding="utf-8") as target:
            target.write(text)
    except FileExistsError as error:
        raise UsageError(f"{error.filename} exists already and is left as it is: choose another folder") from error
    except OSError as error:
        raise UsageError(f"{file} can't be written ({error.strerror}): choose another folder") from error
    if own.json:
        own.answer_json({"file": str(file)})
        return
    own.answer(f"wrote {file}; next:")
    own.answer(f"  stepwell run {file}")
    own.answer('  stepwell start checkout --input \'{"order": "A1", "cents": 990}\' --id A1')
    own.answer("  stepwell show A1")
    own.answer('  stepwell signal A1 approval --payload \'{"by": "Ada"}\'')
    own.answer("  stepwell result A1")
