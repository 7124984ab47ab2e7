"""What a request's `Accept` headers want, as HTTP has it: names in any case, each with a quality from 0 to 1."""

from __future__ import annotations

import math

__all__ = ["takes_gzip", "wants_openmetrics"]

OPENMETRICS = "application/openmetrics-text"


def wants_openmetrics(accept: str) -> bool:
    """Whether OpenMetrics is named, and not wanted less than plain text. Who takes anything gets plain text."""
    wanted = _qualities(accept)
    text = max((wanted[each] for each in ("text/plain", "text/*", "*/*") if each in wanted), default=0.0)
    return wanted.get(OPENMETRICS, 0.0) > 0.0 and wanted[OPENMETRICS] >= text


def takes_gzip(accept_encoding: str) -> bool:
    """Whether a compressed body is taken."""
    wanted = _qualities(accept_encoding)
    return wanted.get("gzip", wanted.get("*", 0.0)) > 0.0


def _qualities(header: str) -> dict[str, float]:
    """The highest quality of each name in a header, whatever other parameters it has."""
    found: dict[str, float] = {}
    for each in header.split(","):
        name, *parameters = (part.strip().lower() for part in each.split(";"))
        if name:
            found[name] = max(found.get(name, 0.0), _quality(parameters))
    return found


def _quality(parameters: list[str]) -> float:
    """1 where none is given; 0 where it is no number: what can't be read is not asked for."""
    for each in parameters:
        name, _, value = each.partition("=")
        if name.strip() == "q":
            try:
                quality = float(value)
            except ValueError:
                return 0.0
            return min(1.0, quality) if math.isfinite(quality) else 0.0
    return 1.0
