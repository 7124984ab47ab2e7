"""`stepwell demo`: order flows through crashes, failures and lost replies, on real processes and sockets.

A receiver with bad habits keeps a raw log of every request and every effect. When all orders are through, that log,
and not what the runtime says of itself, shows whether each step had one key and one side effect.
"""

from __future__ import annotations

from collections.abc import Sequence

__all__ = ["main"]


def main(argv: Sequence[str] = ()) -> int:
    """Run the demo with command line arguments (`--keep`, `--seed N`); 0 if every promise held, else 1."""
    from stepwell.demo.command import main as run

    return run(argv)
