"""Questions to Prometheus, as panels ask them.

In queries `WORKER` stands for the chosen workers, `FLOW` for the chosen workers and flows. `$__rate_interval` and
`$__range` are Grafana's; the first is at least four times the scrape interval that the data source is told.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

__all__ = ["Query", "by", "in_time_shown", "mean_of_the_longest", "quantiles", "recent", "written_out"]

_WORKER: Final = 'job=~"$job", instance=~"$instance"'
_PLACES: Final = (("WORKER", _WORKER), ("FLOW", f'{_WORKER}, flow=~"$flow"'))
_STARTED: Final = "stepwell_worker_started_timestamp_seconds{WORKER}"


@dataclass(frozen=True, slots=True)
class Query:
    """One query and the name of its lines, or of its column; `{{label}}` stands for a label's value. `unit`: the
    column's, where it is not that of the panel."""

    promql: str
    legend: str = ""
    unit: str = ""


def written_out(promql: str) -> str:
    """A query with what the words stand for."""
    for word, labels in _PLACES:
        promql = promql.replace(word, labels)
    return promql


def by(label: str, name: str, of: str) -> Query:
    """Events a second, by a label."""
    return Query(f"sum by ({label}) (rate({name}{{{of}}}[$__rate_interval]))", f"{{{{{label}}}}}")


def recent(name: str, legend: str, by: str = "") -> Query:
    """How many events since the point before, as is right for what is rare."""
    return Query(f"sum{f' by ({by})' if by else ''} (increase({name}{{WORKER}}[$__rate_interval]))", legend)


def in_time_shown(name: str, of: str, by: str = "") -> str:
    """How many events in the time shown, the first one of a series too: `increase` does not see what a series begins
    with. A worker that Prometheus did not know yet when it had run for long is counted from when it was seen."""
    series = f"{name}{{{of}}}"
    return (
        f"sum{f' by ({by})' if by else ''} ("
        f"({series} unless {series} offset $__range)"
        f" and on (job, instance) ({_STARTED} offset $__range or {_STARTED} > time() - $__range_s)"
        f" or increase({series}[$__range]))"
    )


def mean_of_the_longest(name: str, by: str) -> Query:
    """Averages of a histogram's values, the ten greatest. Quantiles of so many histograms cost twelve times as much."""
    total, count = (f"sum by ({by}) (rate({name}_{part}{{FLOW}}[$__rate_interval]))" for part in ("sum", "count"))
    return Query(f"topk(10, {total} / {count} > 0)", " ".join(f"{{{{{label}}}}}" for label in by.split(", ")))


def quantiles(name: str, of: str, by: str = "") -> tuple[Query, ...]:
    """Within how much half, 95% and 99% of a histogram's values lie."""
    labels, legend = (f"{by}, le", f"{{{{{by}}}}} ") if by else ("le", "")
    return tuple(
        Query(
            f"histogram_quantile({share}, sum by ({labels}) (rate({name}_bucket{{{of}}}[$__rate_interval])))",
            f"{legend}{word}",
        )
        for share, word in ((0.5, "half within"), (0.95, "95% within"), (0.99, "99% within"))
    )
