"""Revisions as tests count them."""

from __future__ import annotations

from stepwell.core.ownership import REVS_OF_A_GRANT


def nth(rev: int) -> int:
    """The how manieth revision of its row that is, if one grant wrote all of them; its creation is the first."""
    return rev if rev < REVS_OF_A_GRANT else rev % REVS_OF_A_GRANT + 2
