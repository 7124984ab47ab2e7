"""Attributes: what may be one, and the text by which it is found."""

from __future__ import annotations

import pytest

from stepwell.core.attributes import ATTRIBUTES_MAX, VALUE_BYTES_MAX, check_attributes, text_of
from stepwell.core.errors import InvalidName, UsageError


def test_texts_numbers_and_truth_values_are_taken_as_they_are():
    given = {"customer": "c7", "plan.tier": "", "n": -3, "share": 0.5, "vip": True, "big": 2**53, "full": "ü" * 128}
    assert check_attributes(given) == given
    assert check_attributes({}) is None
    assert check_attributes(None) is None


@pytest.mark.parametrize(
    ("value", "text"),
    [("c7", "c7"), (7, "7"), (True, "true"), (False, "false"), (1.5, "1.5"), (1e30, "1e+30"), ("", "")],
)
def test_a_value_is_found_by_its_text(value, text):
    assert text_of(value) == text


@pytest.mark.parametrize(
    ("value", "why"),
    [
        (None, "NoneType"),
        (["a"], "list"),
        (b"a", "bytes"),
        (float("nan"), "finite"),
        (float("inf"), "finite"),
        (2**53 + 1, "2\\*\\*53"),
        ("x" * (VALUE_BYTES_MAX + 1), "257 bytes"),
        ("ü" * 129, "258 bytes"),
        ("\ud800", "no valid text"),
    ],
)
def test_what_is_no_value_is_refused_with_the_name_and_without_the_value(value, why):
    with pytest.raises(UsageError, match=why) as caught:
        check_attributes({"customer": value})
    assert "'customer'" in str(caught.value)
    assert "xxx" not in str(caught.value)


@pytest.mark.parametrize("name", ["", "a=b", "a b", "1a", "a" * 101, "a.1", "ü", 7])
def test_names_are_as_names_of_steps(name):
    with pytest.raises(InvalidName, match="attribute name"):
        check_attributes({name: "x"})


def test_there_are_at_most_so_many():
    check_attributes({f"a{n}": n for n in range(ATTRIBUTES_MAX)})
    with pytest.raises(UsageError, match="17 attributes are too many"):
        check_attributes({f"a{n}": n for n in range(ATTRIBUTES_MAX + 1)})


def test_what_is_no_mapping_is_refused():
    with pytest.raises(UsageError, match="mapping"):
        check_attributes(["a"])
