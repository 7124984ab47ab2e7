"""Flows whose steps do all they can to tell a secret: in addresses, errors, log lines, and by crashing."""

from __future__ import annotations

import json
import logging
import os
from urllib.parse import quote

from stepwell import Retry, current_step, flow, hide_secrets, http, step

PASSWORD = "pa55/w#rd@ü"
API_KEY = "k3y-of/the bank"
NOBODY = "127.0.0.1:9"  # discard: nobody listens there

if "STEPWELL_TEST_JOURNAL" in os.environ:  # in workers, and not in the tests themselves
    hide_secrets(API_KEY)
    # Every request goes through a proxy that wants a password, and is away.
    os.environ["HTTPS_PROXY"] = f"http://proxy:{quote(PASSWORD, safe='')}@{NOBODY}"

TWICE = Retry(max_attempts=2, base=0.05)


@step(retry=TWICE)
async def asks() -> None:
    """An address with a password, where nobody answers."""
    await http.send("POST", f"http://user:{quote(PASSWORD, safe='')}@{NOBODY}/pay?token={quote(PASSWORD, safe='')}")


@step(retry=TWICE)
async def asks_through_a_proxy() -> None:
    """The proxy's address is in the error."""
    await http.send("GET", f"https://bank.invalid/?api_key={quote(API_KEY)}")


@step(retry=TWICE)
async def asks_nonsense() -> None:
    """An address that is none."""
    await http.send("GET", f"htp://user:{quote(PASSWORD, safe='')}@{NOBODY}:port/")


@step(retry=TWICE)
async def raises() -> None:
    """A chain of errors, each with a secret."""
    try:
        try:
            raise KeyError(f"redis://:{PASSWORD}@cache:6379 refused {API_KEY}")
        except KeyError as cause:
            raise ValueError(json.dumps({"key": API_KEY})) from cause
    except ValueError as cause:
        asked = (
            f"postgres://app:{quote(PASSWORD, safe='')}@db/x, mysql://app:{PASSWORD}@db/x and https://u:{PASSWORD}@db/"
        )
        raise ConnectionError(f"{asked} said no to {quote(API_KEY)}") from cause


@step(retry=TWICE)
def logs() -> None:
    """Everything into the log: messages, fields, tracebacks."""
    log = current_step().logger
    log.info("calling %s", f"https://u:{quote(PASSWORD, safe='')}@bank.invalid/?token={API_KEY}", extra=None)
    logging.getLogger("shop").warning("the key is %s (%r)", API_KEY, [API_KEY])
    try:
        raise RuntimeError(f"https://u:{quote(PASSWORD, safe='')}@bank.invalid with {API_KEY!r}")
    except RuntimeError:
        log.exception("no", fields={"url": f"rediss://:{PASSWORD}@h:1/0", "keys": {"bank": API_KEY}})
    raise RuntimeError(API_KEY)


@step(retry=TWICE, isolation="process")
def raises_elsewhere() -> None:
    """In a process of its own."""
    raise RuntimeError(f"amqp://u:{quote(PASSWORD, safe='')}@mq/ {API_KEY}")


@step(retry=TWICE, isolation="process")
def dies() -> None:
    """And one that ends."""
    os._exit(3)


@step(retry=TWICE)
async def kills_its_shard() -> None:
    """What is found in the black box is told."""
    if current_step().attempt == 1:
        os._exit(7)
    raise RuntimeError(API_KEY)


@flow
async def tells(how: str) -> None:
    """One of these steps; where a flow raises, its traceback is logged."""
    steps = (asks, asks_through_a_proxy, asks_nonsense, raises, logs, raises_elsewhere, dies, kills_its_shard)
    await {each.name: each for each in steps}[how]()


@flow
async def breaks() -> None:
    """The flow's own code raises."""
    raise RuntimeError(f"redis://:{PASSWORD}@cache:6379 and {API_KEY}")
