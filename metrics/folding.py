"""Label values that are fit to be shown: of closed sets, cleaned, and of names from code not more than a page bears."""

from __future__ import annotations

import logging
import re
from collections.abc import Container
from typing import Final

from stepwell.metrics.instruments import FLOW, OTHER, PAIRS_MAX, Instrument
from stepwell.metrics.saying import say

__all__ = ["VALUE_CHARS_MAX", "Names"]

logger = logging.getLogger("stepwell.metrics")
VALUE_CHARS_MAX: Final = 128
_UNFIT: Final = re.compile(r"[\x00-\x1f\x7f-\x9f\u2028\u2029\ud800-\udfff]")


class Names:
    """Which names from code have series of their own. Beyond `limit` sets of them (pairs of flow and step; flows) new
    ones count as `other`; one that was let in stays. One thread at a time.

    `flows`: those that there are, if that is known: any other name comes from a row, and anybody can start anything.
    """

    def __init__(self, limit: int = PAIRS_MAX, flows: Container[str] | None = None) -> None:
        self._limit = limit
        self._flows = flows
        self._known: dict[tuple[str, ...], set[tuple[str, ...]]] = {}
        self._told: set[tuple[str, ...]] = set()

    def fold(self, instrument: Instrument, values: tuple[str, ...]) -> tuple[str, ...]:
        """The values as they are shown.

        Raises:
            ValueError: not one value for each label.
        """
        labels = instrument.labels
        if len(values) != len(labels):
            raise ValueError(f"{instrument.full_name} has the labels {[each.name for each in labels]}, got {values}")
        folded = list(values)
        open_names: list[str] = []
        open_at: list[int] = []
        for at, label in enumerate(labels):
            if label.values is None:
                folded[at] = _cleaned(values[at])
                open_names.append(label.name)
                open_at.append(at)
            elif values[at] not in label.values:
                folded[at] = OTHER
        foreign = self._flows is not None and FLOW in labels and values[labels.index(FLOW)] not in self._flows
        if open_at and (foreign or not self._let_in(tuple(open_names), tuple(folded[at] for at in open_at))):
            for at in open_at:
                folded[at] = OTHER
        return tuple(folded)

    def _let_in(self, names: tuple[str, ...], values: tuple[str, ...]) -> bool:
        known = self._known.setdefault(names, set())
        if values in known:
            return True
        if len(known) >= self._limit:
            self._tell(names, values)
            return False
        known.add(values)
        return True

    def _tell(self, names: tuple[str, ...], values: tuple[str, ...]) -> None:
        """Say once that there are too many; what somebody else has folded is no news."""
        if names in self._told or set(values) == {OTHER}:
            return
        self._told.add(names)
        told = (
            "metrics: a page bears %d names by %s, there are more: from %s on those that are new count as %r; run fewer"
            " flows in one worker"
        )
        of = dict(zip(names, values, strict=True))
        say(logger, "SeriesFolded", told, self._limit, "/".join(names), "/".join(values), OTHER, of=of)


def _cleaned(value: str) -> str:
    return _UNFIT.sub("?", value)[:VALUE_CHARS_MAX]
