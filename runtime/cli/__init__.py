"""The command line: `stepwell`."""

from __future__ import annotations

from collections.abc import Sequence

__all__ = ["main"]


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one command and return its exit code: 0 done, 1 the execution failed, 2 it could not be done as asked.

    `arguments` are those of the process by default.
    """
    # Flows import nothing of this; commands import what they need when they run.
    from stepwell.cli.app import run_command

    return run_command(arguments)
