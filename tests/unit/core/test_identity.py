"""Tokens, keys, partitions, names and paths: golden values that may never change, since rows live on them."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from stepwell.core.errors import InvalidName
from stepwell.core.names import RESERVED, branch_prefix, check_execution_id, check_name, numbered
from stepwell.core.partition import partition_of, ranges
from stepwell.core.token import idempotency_key, step_token, token_seed, unit_interval

SECRET = bytes(range(32))
SEED = token_seed("order-7", 0, SECRET)
NAMES = st.from_regex(r"[A-Za-z_][A-Za-z0-9_-]{0,12}", fullmatch=True)


@pytest.mark.parametrize(
    ("path", "generation", "token"),
    [
        ("charge", 0, "165ee497ac8f389da46b240b74e33b82"),
        ("charge", 1, "530a492dcaf092a191d3c76518f556a2"),
        ("gather#2.0/ship", 0, "ed9e7471b55e0620fb6dad75776911c2"),
    ],
)
def test_a_token_is_the_same_for_ever(path: str, generation: int, token: str) -> None:
    assert step_token(SEED, path, generation) == token
    assert idempotency_key("order-7", token) == f"order-7:{token}"


def test_a_replaced_run_has_other_tokens() -> None:
    assert SEED.hex() == "474b1a9b6cdb091ba4353de0142d51ab"
    assert token_seed("order-7", 1, SECRET).hex() == "74e962bb8fde9464cfc1228521335a48"
    assert token_seed("order-7", 0, bytes(32)) != SEED, "nobody without the secret can guess it"


def test_jitter_is_derived_from_token_and_attempt() -> None:
    assert unit_interval("165ee497ac8f389da46b240b74e33b82", 1) == 0.3449676832027009
    assert unit_interval("165ee497ac8f389da46b240b74e33b82", 2) == 0.7739353751818903


@given(st.text(), st.integers(0, 10**6))
def test_jitter_lies_in_the_unit_interval(token: str, attempt: int) -> None:
    token = token.encode("utf-8", "replace").decode()
    assert 0 <= unit_interval(token, attempt) < 1


def test_many_partitions_are_told_in_short() -> None:
    assert ranges([]) == ""
    assert ranges([5]) == "5"
    assert ranges([17, 0, 1, 2, 41, 40]) == "0-2, 17, 40-41"


def test_partitions_use_the_hash_of_redis_cluster() -> None:
    assert partition_of("123456789", 1 << 16) == 0x31C3, "the check value of CRC16/XMODEM"
    assert [partition_of(x, 64) for x in ("order-7", "a", "123456789")] == [4, 7, 3]


def test_executions_spread_over_all_partitions() -> None:
    assert {partition_of(f"order-{n}", 64) for n in range(1000)} == set(range(64))


def test_paths_are_counted_per_name() -> None:
    assert [numbered("charge", n) for n in (1, 2, 10)] == ["charge", "charge#2", "charge#10"]
    assert branch_prefix("gather#2", 0) + numbered("ship", 1) == "gather#2.0/ship"


@given(
    st.lists(
        st.tuples(NAMES, st.integers(1, 30), st.booleans(), st.integers(0, 20)), min_size=1, max_size=3, unique=True
    ),
    st.lists(
        st.tuples(NAMES, st.integers(1, 30), st.booleans(), st.integers(0, 20)), min_size=1, max_size=3, unique=True
    ),
)
def test_no_two_places_share_a_path(
    one: list[tuple[str, int, bool, int]], other: list[tuple[str, int, bool, int]]
) -> None:
    def path(places: list[tuple[str, int, bool, int]]) -> tuple[object, str]:
        *above, (name, count, _, _) = places
        prefix = "".join(branch_prefix(numbered("gather", n), branch) for _, n, _, branch in above)
        return ([(n, branch) for _, n, _, branch in above], name, count), prefix + numbered(name, count)

    (place, text), (other_place, other_text) = path(one), path(other)
    assert (place == other_place) == (text == other_text)


@pytest.mark.parametrize("name", ["charge", "_x", "Charge-2.v", "a" * 100, "sleeping"])
def test_a_plain_step_name_is_taken(name: str) -> None:
    assert check_name("step", name) == name


@pytest.mark.parametrize(
    "name", ["", "2x", "a b", "a/b", "a#2", "a.0", "a" * 101, "é", "a\n", "a\0", "x:y", *sorted(RESERVED)]
)
def test_an_odd_step_name_is_refused_with_what_is_allowed(name: str) -> None:
    with pytest.raises(InvalidName, match=r"expected a step name of 1 to 100|reserved for operations"):
        check_name("step", name)


def test_reserved_words_may_name_signals_and_flows() -> None:
    assert check_name("signal", "wait") == "wait"
    assert check_name("flow", "sleep") == "sleep"


@pytest.mark.parametrize("execution_id", ["a", "order-7", "2024.A:b@c_d", "a" * 128])
def test_a_plain_execution_id_is_taken(execution_id: str) -> None:
    assert check_execution_id(execution_id) == execution_id


@pytest.mark.parametrize("execution_id", ["", "-a", ".", "a b", "a/b", "a\n", "a\r\nX: y", "ü", "{a}", "a" * 129, None])
def test_an_odd_execution_id_is_refused(execution_id: str) -> None:
    with pytest.raises(InvalidName, match="expected an execution id"):
        check_execution_id(execution_id)
