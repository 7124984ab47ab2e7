"""Prints the dashboard."""

from __future__ import annotations

import sys

from stepwell.metrics.dashboards.grafana import text

if __name__ == "__main__":
    sys.stdout.write(text())
