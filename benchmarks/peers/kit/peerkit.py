"""What the scripts of all peers share; it runs in each peer's own environment, so it needs the standard library only.

A load answers each line on stdin (a JSON object with `do`) with one line of JSON on stdout:
`throughput` runs so many flows and says how many seconds that took; `latency` runs one flow at a time and says how many
milliseconds each took; `start` submits flows whose steps take time, and waits for none.
A worker's slow steps tell the journal when they began and ended.
"""

import asyncio
import json
import os
import sys
import threading
import time

STEPS = 5
STEP_SECONDS = 0.05

_journal = None


def tell(words):
    """Append one line to the journal, atomically."""
    global _journal
    if _journal is None:
        _journal = os.open(os.environ["PEER_JOURNAL"], os.O_WRONLY | os.O_APPEND | os.O_CREAT)
    os.write(_journal, f"{words}\n".encode())


def ready():
    """Say that this worker takes work."""
    tell(f"R {os.getpid()}")


def slow_step(flow, k):
    """A step that takes 50 ms."""
    tell(f"S {flow} {k} {time.monotonic():.6f}")
    time.sleep(STEP_SECONDS)
    tell(f"E {flow} {k} {time.monotonic():.6f}")
    return {"i": k}


async def async_slow_step(flow, k):
    """The same on an event loop."""
    tell(f"S {flow} {k} {time.monotonic():.6f}")
    await asyncio.sleep(STEP_SECONDS)
    tell(f"E {flow} {k} {time.monotonic():.6f}")
    return {"i": k}


def say(answer):
    """One line to the runner."""
    sys.stdout.write(json.dumps(answer) + "\n")
    sys.stdout.flush()


def serve(throughput, one, start=None):
    """Answer questions until stdin ends.

    throughput(numbers, in_flight) runs the flows of these numbers to their end; one(number) runs one; start(numbers)
    submits slow ones.
    """
    say("ready")
    for line in sys.stdin:
        question = json.loads(line)
        numbers = range(question["first"], question["first"] + question["flows"])
        if question["do"] == "throughput":
            began = time.perf_counter()
            throughput(numbers, question["in_flight"])
            say({"seconds": time.perf_counter() - began})
        elif question["do"] == "latency":
            taken, until = [], time.perf_counter() + question["seconds"]
            for number in numbers:
                began = time.perf_counter()
                one(number)
                now = time.perf_counter()
                taken.append((now - began) * 1000)
                if now > until:
                    break
            say({"ms": taken})
        else:
            start(numbers)
            say({"started": len(numbers)})


async def async_serve(throughput, one, start=None):
    """`serve` with coroutine functions, on the event loop that runs."""
    loop = asyncio.get_running_loop()
    await asyncio.to_thread(
        serve,
        lambda numbers, in_flight: asyncio.run_coroutine_threadsafe(throughput(numbers, in_flight), loop).result(),
        lambda number: asyncio.run_coroutine_threadsafe(one(number), loop).result(),
        start and (lambda numbers: asyncio.run_coroutine_threadsafe(start(numbers), loop).result()),
    )


async def keep_in_flight(numbers, in_flight, one):
    """Run one(number) for all, so many at a time."""
    rest = iter(numbers)

    async def worker():
        for number in rest:
            await one(number)

    await asyncio.gather(*[worker() for _ in range(min(in_flight, len(numbers)))])


def in_threads(numbers, count, one):
    """Run one(number) for all in so many threads; the first error is raised."""
    rest, lock, errors = iter(numbers), threading.Lock(), []

    def worker():
        while not errors:
            with lock:
                number = next(rest, None)
            if number is None:
                return
            try:
                one(number)
            except BaseException as error:
                errors.append(error)

    threads = [threading.Thread(target=worker) for _ in range(count)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    if errors:
        raise errors[0]


def wait_for_keys(keys, found, batch=500, pause=0.02):
    """Wait until all keys are there; found(keys) says of each whether it is. They come in about the order given."""
    while keys:
        there = found(keys[:batch])
        ended = next((place for place, yes in enumerate(there) if not yes), len(there))
        keys = keys[ended:]
        if not ended:
            time.sleep(pause)


async def async_wait_for_keys(keys, found, batch=500, pause=0.02):
    """`wait_for_keys` with a coroutine function."""
    while keys:
        there = await found(keys[:batch])
        ended = next((place for place, yes in enumerate(there) if not yes), len(there))
        keys = keys[ended:]
        if not ended:
            await asyncio.sleep(pause)
