"""Commands as clients write them."""

from __future__ import annotations

import msgspec

from stepwell.store.inbox import COMMAND_FORMAT


def command_entry(
    kind: str, execution_id: str, data: object, command_id: str, now_ms: int, **fields: str | bytes
) -> dict[str, str | bytes | int]:
    """A command as it stands in an inbox; `fields` overrides or adds some."""
    return {
        "type": kind,
        "execution": execution_id,
        "command": command_id,
        "data": msgspec.json.encode(data if data is not None else {}),
        "at": now_ms,
        "v": COMMAND_FORMAT,
        **fields,
    }
