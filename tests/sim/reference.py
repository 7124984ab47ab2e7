"""The reference flow of the crash tests: a sequence, a gather, a sleep, a signal and failing steps."""

from __future__ import annotations

from sim.bodies import work
from sim.harness import World

from stepwell import Retry, StepFailed, current_step, flow, gather, sleep, step, wait_for

RESULT = {"reserved": 7, "parts": [1, 2, 3], "word": "go", "gave_up": 2, "shipped": "done"}


@step
async def reserve(n: int) -> int:
    await work(0.5)
    return n


@step(retry=Retry(max_attempts=4, base=2, jitter=0.2))
async def flaky(n: int) -> int:
    """Fails twice, whatever happened to its process."""
    await work(0.1 * n)
    if current_step().attempt <= 2:
        raise ConnectionError("flaky")
    return n


@step(retry=Retry(max_attempts=2, base=1))
async def hopeless() -> None:
    raise ValueError("never")


@step
def ship(word: str) -> str:
    return "done" if word == "go" else word


@flow
async def reference() -> dict[str, object]:
    reserved = await reserve(7)
    parts = await gather(flaky(1), flaky(2), reserve(3))
    await sleep(30)
    word = await wait_for("word")
    try:
        await hopeless()
        gave_up = 0
    except StepFailed as failed:
        gave_up = failed.attempts
    return {"reserved": reserved, "parts": list(parts), "word": word, "gave_up": gave_up, "shipped": await ship(word)}


STEPS = {
    "reserve": [1],
    "gather.0/flaky": [1, 2, 3],
    "gather.1/flaky": [1, 2, 3],
    "gather.2/reserve": [1],
    "hopeless": [1, 2],
    "ship": [1],
}


def play(world: World, execution_id: str = "ref") -> None:
    """Start it (unless it is there), send the signal once it waits for it, and see it through."""
    if not world.row(execution_id):
        world.start(reference, execution_id)

    def rests() -> bool:
        return world.ended(execution_id) or "wait" in world.show(execution_id)["open"]

    world.run(rests)
    if not world.ended(execution_id):
        world.signal(execution_id, "word", "go")
        world.run(lambda: world.ended(execution_id))
    world.run()
