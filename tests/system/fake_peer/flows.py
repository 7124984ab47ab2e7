"""A made-up system of durable flows, which finds unfinished ones in the journal: `load` or `recover`."""

import os
import sys
import threading

import peerkit


def one(number):
    """A flow in no time."""


def recover():
    """Run all flows, five steps each, from the first that the journal doesn't show as ended."""
    with open(os.environ["PEER_JOURNAL"], encoding="utf-8") as journal:
        ended = {tuple(line.split()[1:3]) for line in journal if line.startswith("E ")}
    peerkit.ready()
    for flow in range(int(os.environ["PEER_FLOWS"])):
        for k in range(1, peerkit.STEPS + 1):
            if (str(flow), str(k)) not in ended:
                peerkit.slow_step(flow, k)
    threading.Event().wait()


if sys.argv[1] == "load":
    print("a library's own words")
    peerkit.serve(lambda numbers, in_flight: peerkit.in_threads(numbers, 2, one), one)
elif sys.argv[1] == "recover":
    peerkit.STEP_SECONDS = 0.002
    recover()
else:
    sys.exit("no such role")
