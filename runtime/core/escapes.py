"""What would break a line, steer a terminal or hide in a text, as everybody writes it for people: by its code, as
`repr` does. A newline is `\\n` everywhere.
"""

from __future__ import annotations

import json
from typing import Final

__all__ = ["code_of", "escaped", "escaped_json"]

_USUAL: Final = {"\t": "\\t", "\n": "\\n", "\r": "\\r"}


def escaped(text: str) -> str:
    """The text on one line, with nothing in it that steers or is not seen: that is shown by its code."""
    return text if text.isprintable() else "".join(c if c.isprintable() else code_of(c) for c in text)


def escaped_json(text: str) -> str:
    """A JSON document of one line, the same with nothing in it that steers or is not seen: JSON has escapes for it."""
    if text.isprintable():
        return text
    return "".join(c if c.isprintable() else json.dumps(c)[1:-1] for c in text)


def code_of(character: str) -> str:
    """What stands for a character that is not shown itself."""
    code = ord(character)
    if character in _USUAL:
        return _USUAL[character]
    return f"\\x{code:02x}" if code < 0x100 else f"\\u{code:04x}" if code < 0x10000 else f"\\U{code:08x}"
