"""One idempotency key per logical step, for ever."""

from __future__ import annotations

from collections import defaultdict

import pytest

from stepwell import FatalError, Retry, current_step, flow, gather, step
from stepwell.core.token import idempotency_key, step_token, token_seed
from stepwell.testing import LocalRun, local_execution

SECRET = b"s" * 32
keys: defaultdict[str, list[str]] = defaultdict(list)
argument: list[int] = []
mood = {"charge": "fails"}


@pytest.fixture(autouse=True)
def _fresh() -> None:
    keys.clear()
    argument.clear()
    mood["charge"] = "fails"


@step(retry=Retry(max_attempts=5, base=1))
def charge(amount: int) -> int:
    me = current_step()
    keys[f"{me.execution_id}/{me.path}"].append(me.idempotency_key)
    argument.append(amount)
    if mood["charge"] == "fails":
        raise OSError("reset after the effect")
    if mood["charge"] == "fatal":
        raise FatalError("declined")
    return amount


@step
def notify() -> str:
    me = current_step()
    keys[f"{me.execution_id}/{me.path}"].append(me.idempotency_key)
    return me.token


counter = [100]


@flow
async def order(turns: int) -> list[int]:
    counter[0] += 1  # a flow that computes its arguments anew at each replay, against the rules
    paid = []
    for _ in range(turns):
        paid.append(await charge(counter[0]))
        await notify()
    return paid


def test_five_attempts_crashes_failures_and_retries_carry_one_key() -> None:
    run = local_execution(order, {"turns": 1}, execution_id="order-7", secret=SECRET)
    for _ in range(3):
        run.step_once()
        run.reload()
        run.step_once()
    run.execute("charge")
    run.reload()
    run.run()
    assert run.checkpoint.status == "error"
    mood["charge"] = "fatal"
    run.reload()
    run.retry()
    run.run()
    assert run.show()["error"]["type"] == "FatalError"
    mood["charge"] = "ok"
    run.retry()
    run.reload(clean=True)
    run.run()
    assert run.checkpoint.status == "completed"
    used = keys["order-7/charge"]
    expected = idempotency_key("order-7", step_token(token_seed("order-7", 0, SECRET), "charge"))
    assert len(used) >= 8
    assert set(used) == {expected}
    assert len(set(argument)) > 1, "the arguments did change between attempts"


def test_a_creation_that_was_lost_and_repeated_arrives_at_the_same_keys() -> None:
    tokens = [
        local_execution(order, {"turns": 1}, execution_id="order-7", secret=SECRET).checkpoint.open["charge"].token
        for _ in range(2)
    ]
    assert tokens[0] == tokens[1]


def test_executions_steps_and_loop_turns_have_different_keys() -> None:
    mood["charge"] = "ok"
    for n in range(3):
        LocalRun(order, {"turns": 3}, execution_id=f"order-{n}", secret=SECRET).run()
    used = [key for found in keys.values() for key in found]
    assert len(used) == len(set(used)) == 3 * 3 * 2


def test_another_secret_gives_other_keys() -> None:
    one = local_execution(order, {"turns": 1}, secret=SECRET).checkpoint.open["charge"].token
    other = local_execution(order, {"turns": 1}, secret=b"t" * 32).checkpoint.open["charge"].token
    assert one != other


def test_the_token_in_the_row_is_the_one_the_body_gets() -> None:
    run = local_execution(order, {"turns": 1}, execution_id="order-7")
    open_token = run.show()["open"]["charge"]["token"]
    run.run()
    shown = run.show()
    tokens = {open_token, shown["steps"][0]["token"], shown["error"]["failed_step"]["token"]}
    tokens.add(shown["error"]["open"]["charge"]["token"])
    assert {f"order-7:{token}" for token in tokens} == set(keys["order-7/charge"])
    assert shown["steps"][0]["key"] == f"order-7:{open_token}"


def test_branches_with_equal_steps_have_different_keys() -> None:
    @flow
    async def fan() -> list[str]:
        return list(await gather(notify(), notify(), notify()))

    tokens = LocalRun(fan).run().result()
    assert len(set(tokens)) == 3
