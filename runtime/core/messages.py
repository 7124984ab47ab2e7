"""What an exception says, fit for rows, logs and screens: without credentials, bounded, encodable."""

from __future__ import annotations

from stepwell.core.redact import redact

MESSAGE_CHARS_MAX = 2_000


def message_of(error: BaseException, limit: int = MESSAGE_CHARS_MAX) -> str:
    """The text of an exception: URLs lose their credentials, at most `limit` characters are kept.

    Lone surrogates (from undecodable file names, say) are replaced, since JSON can't hold them.
    """
    try:
        text = str(error)
    except Exception as broken:
        text = f"(its own text could not be made: {type(broken).__name__})"
    text = redact(text.encode("utf-8", "replace").decode("utf-8"))
    return text if len(text) <= limit else text[: limit - 1] + "…"
