"""`python -m sim.explore`: carries out schedules of many seeds, and tells of the first that breaks a promise."""

from __future__ import annotations

import argparse
import sys

from sim.explore.campaign import Campaign, seeds_of


def main() -> int:
    """0: no promise was broken; 1: one was, and its seed is printed."""
    parser = argparse.ArgumentParser(prog="make sim", description=__doc__)
    parser.add_argument("--seed", type=int, help="carry out this one, and tell what happens")
    parser.add_argument("--seeds", default="300", help="how many (0 to N-1), or A-B")
    parser.add_argument("--hours", type=float, help="fresh seeds until that time is over")
    parser.add_argument("--jobs", type=int, help="processes (default: one a core)")
    parser.add_argument("--stop-at-first", action="store_true", help="end at the first failure")
    parser.add_argument("--no-shrink", action="store_true", help="don't look for a shorter schedule")
    given = parser.parse_args()
    campaign = Campaign(given.jobs, stop_at_first=given.stop_at_first, shrinks=not given.no_shrink)
    if given.seed is not None:
        return campaign.tell(given.seed)
    if given.hours is not None:
        return campaign.go_on(given.hours * 3600)
    return campaign.carry_out(seeds_of(given.seeds))


if __name__ == "__main__":
    sys.exit(main())
