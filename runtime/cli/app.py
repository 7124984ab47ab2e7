"""The commands' one entrance: options of the program itself, and what an error means for the exit code."""

from __future__ import annotations

import os
import sys
import traceback
from collections.abc import Sequence
from typing import Annotated, Final

import typer
from typer.main import get_command

from stepwell.cli import dead, doctor, executions, explain, looking, monitoring, scaffold, tailing, top, working
from stepwell.cli.session import Session, Verbose
from stepwell.core.advice import to_do
from stepwell.core.errors import ExecutionCancelled, ExecutionFailed, StepwellError
from stepwell.core.messages import message_of
from stepwell.core.status import ERROR

__all__ = ["app", "program", "run_command"]

FAILED: Final = 1
REFUSED: Final = 2
INTERRUPTED: Final = 130

app = typer.Typer(
    name="stepwell",
    no_args_is_help=True,
    rich_markup_mode="rich",
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
    epilog="Exit codes: 0 done, 1 the execution failed or was cancelled, 2 it could not be done as asked.",
)


def _version(value: bool) -> None:
    if value:
        from importlib.metadata import version

        print(f"stepwell {version('stepwell')}")
        raise typer.Exit


@app.callback()
def program(
    verbose: Verbose = False,
    version: Annotated[
        bool, typer.Option("--version", help="Print the version.", callback=_version, is_eager=True)
    ] = False,
) -> None:
    """Durable flows on Redis: steps retry with growing backoff and keep one idempotency key for ever."""


for module in (working, executions, looking, tailing, top, dead, doctor, explain, scaffold, monitoring):
    module.add_to(app)


def run_command(arguments: Sequence[str] | None = None) -> int:
    """Run one command and return its exit code; whatever went wrong is one sentence, and a traceback with `-v`."""
    own = Session()
    given = list(sys.argv[1:] if arguments is None else arguments)
    try:
        own.json = "--json" in given  # also for what the parser refuses before it comes to that
        command = get_command(app)
        try:
            # The parser's own way to refuse would show what was given as it is, credentials too.
            code = command(args=given, prog_name="stepwell", obj=own, standalone_mode=False)
        finally:
            own.flush()  # here, where a closed pipe is no fault yet
    except SystemExit as ended:
        return ended.code if isinstance(ended.code, int) else int(ended.code is not None)
    except KeyboardInterrupt:
        own.remark("stepwell: interrupted")
        return INTERRUPTED
    except BrokenPipeError:
        # Whoever read the output has seen enough; what is still buffered must go nowhere at exit.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 0
    except Exception as error:
        return _explained(own, error)
    return code if isinstance(code, int) else 0


def _refuse(own: Session, error: Exception, why: str) -> None:
    """What the parser refuses, with how the command is used; where nothing was given, its help was printed already."""
    if type(error).__name__ == "NoArgsIsHelpError":
        return
    context: typer.Context | None = getattr(error, "ctx", None)
    if context is not None and not own.json:
        own.remark(f"{context.get_usage()}\nTry: {context.command_path} --help")
    own.fail(why, "UsageError")


def _explained(own: Session, error: Exception) -> int:
    if own.verbose:
        own.remark("".join(traceback.format_exception(error)).rstrip())
    if isinstance(error, ExecutionFailed):
        own.fail(message_of(error), "ExecutionFailed", execution=error.execution_id, failure=error.error)
        if not own.json:
            own.remark(f"look at it: stepwell show {error.execution_id}")
            own.remark(f"to do: {to_do(error.execution_id, ERROR, error.error)}")
        return FAILED
    if isinstance(error, ExecutionCancelled):
        own.fail(message_of(error), "ExecutionCancelled", execution=error.execution_id)
        return FAILED
    if isinstance(error, StepwellError | TimeoutError):
        own.fail(message_of(error), type(error).__name__)
        return REFUSED
    refused = getattr(error, "format_message", None)  # the parser's: its classes have no public name
    if callable(refused):
        _refuse(own, error, str(refused()))
        return REFUSED
    hint = "" if own.verbose else "; -v shows where"
    own.fail(f"unexpected {type(error).__name__}: {message_of(error)}{hint}", type(error).__name__)
    return REFUSED
