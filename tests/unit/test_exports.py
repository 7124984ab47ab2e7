"""What `from stepwell import ...` offers."""

from __future__ import annotations

import stepwell
from stepwell.core import errors

# Raised where flows are loaded or driven by ourselves: nobody has a call of theirs to catch them at.
INTERNAL = {"DriverClosing", "FlowLoadError"}


def test_every_error_that_a_caller_may_have_to_catch_is_exported() -> None:
    assert set(errors.__all__) - INTERNAL <= set(stepwell.__all__)
    for name in set(errors.__all__) - INTERNAL:
        assert getattr(stepwell, name) is getattr(errors, name)


def test_each_exported_name_is_there() -> None:
    assert [name for name in stepwell.__all__ if getattr(stepwell, name, None) is None] == []
    assert len(set(stepwell.__all__)) == len(stepwell.__all__)
