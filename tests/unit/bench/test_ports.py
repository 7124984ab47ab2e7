"""Ports for servers: none twice, none that is used, none that a connection may be given meanwhile."""

from __future__ import annotations

import os
import random
import sys
from contextlib import closing
from functools import partial

import pytest

from benchmarks.ports import Claims, Ports, outside


def test_no_port_is_given_out_twice_or_while_it_is_used() -> None:
    ports = Ports(range(100), random.Random(1), lambda port: port % 2 == 0)
    assert sorted(ports.take() for _ in range(50)) == list(range(0, 100, 2))
    with pytest.raises(OSError, match="no free port is left"):
        ports.take()


def test_two_programs_ask_for_different_ports() -> None:
    first, second = (Ports(range(10_000), random.Random(seed), lambda _: True) for seed in (1, 2))
    assert {first.take() for _ in range(10)}.isdisjoint({second.take() for _ in range(10)})


def test_what_the_kernel_gives_to_connections_is_left_out() -> None:
    assert set(outside(range(32_768, 61_000))) == {*range(10_000, 32_768), *range(61_000, 65_536)}
    assert outside(range(1_024, 65_536)) == list(range(10_000, 65_536))


@pytest.mark.skipif(sys.platform != "linux", reason="elsewhere nothing tells of what others have claimed")
def test_a_port_on_which_nobody_listens_yet_is_still_not_given_to_another_program() -> None:
    claims = partial(Claims, f"stepwell-test-{os.getpid()}")
    with closing(claims()) as first, closing(claims()) as second:
        ports = Ports(range(20_000, 20_050), random.Random(1), first.claim)
        others = Ports(range(20_000, 20_050), random.Random(1), second.claim)
        assert {ports.take() for _ in range(10)}.isdisjoint({others.take() for _ in range(10)})
