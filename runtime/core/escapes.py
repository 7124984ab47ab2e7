"""What would break a line or steer a terminal, as everybody writes it for people: a newline is `\\n` everywhere."""

from __future__ import annotations

from typing import Final

__all__ = ["CONTROL", "WIDE", "code_of", "escaped"]

WIDE: Final = (0x2028, 0x2029, 0x200E, 0x200F, *range(0x202A, 0x202F), *range(0x2066, 0x206A))
"""Separators of lines and what turns the direction of writing, beyond the controls of Latin 1."""
_USUAL: Final = {0x09: "\\t", 0x0A: "\\n", 0x0D: "\\r"}
CONTROL: Final = {
    **{code: f"\\x{code:02x}" for code in (*range(0x20), *range(0x7F, 0xA0))},
    **_USUAL,
    **{code: f"\\u{code:04x}" for code in WIDE},
}
"""For `str.translate`."""


def escaped(text: str) -> str:
    """The text on one line, with nothing in it that steers or is not seen: that is shown by its code."""
    return text if text.isprintable() else "".join(c if c.isprintable() else code_of(c) for c in text)


def code_of(character: str) -> str:
    """What stands for a character that is not shown itself."""
    code = ord(character)
    if code in CONTROL:
        return CONTROL[code]
    return f"\\x{code:02x}" if code < 0x100 else f"\\u{code:04x}" if code < 0x10000 else f"\\U{code:08x}"
