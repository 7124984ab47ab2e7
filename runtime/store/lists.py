"""The lists on which an execution stands, and by which it is found: sorted sets of one partition.

All but `live` and those of backoffs have one time for a score (`listed_at` in core, in ms): whichever list finds
executions, they come in the same order. Scripts keep them with the row; what a list says is checked against the row
all the same, for it is read a moment earlier.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Final

from stepwell.core.attributes import Attribute, text_of
from stepwell.store.keys import PartitionKeys

__all__ = ["ERROR_TYPE_MAX", "attribute_key", "error_key", "every_list", "lists_of"]

ERROR_TYPE_MAX: Final = 200
"""Of a longer type of error only so many characters count."""


def lists_of(part: PartitionKeys, flow: str, attributes: Mapping[str, Attribute] | None) -> list[str]:
    """Where it stands from its beginning on, whatever its status; `flow` is '' where that is not known."""
    lists = [part.flow + flow] if flow else []
    if attributes:
        lists += [attribute_key(part, name, text_of(value)) for name, value in attributes.items()]
    return lists


def attribute_key(part: PartitionKeys, name: str, value: str) -> str:
    """The list of those with that attribute. A name has no `=`, so no two attributes share a list."""
    return f"{part.attribute}{name}={value}"


def error_key(part: PartitionKeys, error: str) -> str:
    """The list of those that are in error or parked because of that type of error."""
    return part.error + error[:ERROR_TYPE_MAX]


def every_list(
    part: PartitionKeys, flow: str, attributes: Mapping[str, Attribute] | None, errors: Iterable[str]
) -> list[str]:
    """All lists that may name an execution, given the types of errors that it had: what must forget it with its row.

    Beside these, `backoff` names the flow as long as the list of its backoffs has members.
    """
    failed = [error_key(part, error) for error in errors]
    return [part.live, *part.by.values(), part.backoff_of + flow, *lists_of(part, flow, attributes), *failed]
