"""Which format a scraper gets, by what it says that it takes."""

from __future__ import annotations

import pytest

from stepwell.metrics.negotiation import takes_gzip, wants_openmetrics

PROMETHEUS_2 = (
    "application/openmetrics-text;version=1.0.0;q=0.5,application/openmetrics-text;version=0.0.1;q=0.4,"
    "text/plain;version=0.0.4;q=0.3,*/*;q=0.2"
)
PROMETHEUS_3 = (
    "application/openmetrics-text;version=1.0.0;escaping=allow-utf-8;q=0.6,"
    "application/openmetrics-text;version=0.0.1;q=0.5,text/plain;version=1.0.0;escaping=allow-utf-8;q=0.4,"
    "text/plain;version=0.0.4;q=0.3,*/*;q=0.2"
)


@pytest.mark.parametrize(
    ("accept", "openmetrics"),
    [
        (PROMETHEUS_2, True),
        (PROMETHEUS_3, True),
        ("application/openmetrics-text", True),
        ("APPLICATION/OpenMetrics-Text; Version=1.0.0", True),
        ("text/plain;q=0.5 , application/openmetrics-text ; q = 0.7", True),
        ("application/openmetrics-text;q=0.5,text/*;q=0.5", True),
        ("application/openmetrics-text;q=0,text/plain", False),
        ("application/openmetrics-text;q=0", False),
        ("application/openmetrics-text; Q=0.000", False),
        ("application/openmetrics-text;q=0.3,text/plain;q=0.8", False),
        ("application/openmetrics-text;q=0.3,*/*", False),
        ("application/openmetrics-text;q=nan", False),
        ("application/openmetrics-text;q=much", False),
        ("application/openmetrics-texts", False),
        ("x-application/openmetrics-text", False),
        ("text/plain", False),
        ("text/html,*/*", False),
        ("", False),
        (",;,q=1;", False),
    ],
)
def test_openmetrics_goes_to_whoever_wants_it(accept: str, openmetrics: bool) -> None:
    assert wants_openmetrics(accept) is openmetrics


@pytest.mark.parametrize(
    ("accept", "gzip"),
    [
        ("gzip", True),
        ("GZip;q=1.0, identity;q=0.5", True),
        ("deflate, *", True),
        ("*;q=0, gzip", True),
        ("gzip;q=0, *", False),
        ("gzip; q=0.0", False),
        ("identity", False),
        ("", False),
    ],
)
def test_a_body_is_compressed_for_whoever_takes_that(accept: str, gzip: bool) -> None:
    assert takes_gzip(accept) is gzip
