"""For bodies with a timeout that not the machine but a plan shall let them meet."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any, TypeVar

T = TypeVar("T")
HANG_SECONDS = 600.0


async def unhurried(asks: Coroutine[Any, Any, T], hangs: Callable[[T], bool]) -> T:
    """What it brings, also when the body's timeout comes before, as on a busy machine it may: then the body goes on
    beyond it. Where `hangs` says so of the answer, the timeout is what ends the body, whenever it comes."""
    asking = asyncio.ensure_future(asks)
    cut: asyncio.CancelledError | None = None
    while not asking.done():
        try:
            await asyncio.wait([asking])
        except asyncio.CancelledError as cancelled:
            cut = cancelled
    answer = asking.result()
    if hangs(answer):
        if cut is not None:
            raise cut
        await asyncio.sleep(HANG_SECONDS)
    return answer
