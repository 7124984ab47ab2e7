"""The deterministic simulation: `python -m sim.explore` (see docs/simulation.md)."""
