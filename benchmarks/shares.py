"""Whether shards have come to own what is for each of them."""

from __future__ import annotations

from collections.abc import Mapping

from stepwell.core.ownership import owners

__all__ = ["settled"]


def settled(holders: Mapping[int, str], partitions: int, shards: int) -> bool:
    """Whether so many shards hold what is for each of them, so that nothing is about to move. `holders`: the shard that
    holds each partition, of those that are held."""
    members = frozenset(holders.values())
    return len(members) == shards and holders == owners(partitions, members)
