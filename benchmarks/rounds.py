"""Comparisons take turns: A, B, A, B, so that whatever else the machine does meets all alike."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TypeVar

from benchmarks.progress import Progress

__all__ = ["alternate"]

K = TypeVar("K")
T = TypeVar("T")


def alternate(
    variants: Mapping[K, Callable[[], T]], rounds: int, progress: Progress, called: Callable[[K], str] = str
) -> dict[K, list[T]]:
    """Call each variant in each round; what each answered, in order. `called`: a variant's name for the progress.

    The caller has planned `rounds * len(variants)` parts. Every second round goes backwards, so that no variant always
    follows the same one.
    """
    found: dict[K, list[T]] = {variant: [] for variant in variants}
    for number in range(rounds):
        order = list(variants.items())
        for variant, run in order if number % 2 == 0 else reversed(order):
            progress.part(f"round {number + 1} of {rounds}: {called(variant)}")
            found[variant].append(run())
    return found
