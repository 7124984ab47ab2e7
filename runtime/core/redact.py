"""Keep credentials out of messages, logs and command output.

`redact` hides what stands in URLs inside any text, `redact_url` hides more of a text that is meant to be one
address (also a malformed one), `redact_secrets` hides values that are known to be secret.
"""

from __future__ import annotations

import re
from collections.abc import Collection

__all__ = ["redact", "redact_secrets", "redact_url"]

HIDDEN = "***"

# In Redis URLs an unescaped "/", "#" or "@" in a password is a common mistake: all up to the last "@" is hidden.
_REDIS_USERINFO = re.compile(r"\b(rediss?(?:\+sentinel)?|unix|valkeys?)://(?!/)[^\s\"'<>]*@", re.IGNORECASE)
_USERINFO = re.compile(r"\b([a-z][a-z0-9+.-]*)://[^\s\"'<>/?#]*@", re.IGNORECASE)
_SECRET_NAME = (
    r"([?&;](?:[a-z0-9_.-]*(?:password|passwd|secret|token|api[_-]?key|access[_-]?key|signature)|pass|pwd|auth|sig)=)"
)
_QUERY = re.compile(_SECRET_NAME + r"[^\s\"'<>&;#]*", re.IGNORECASE)
_QUERY_OF_ADDRESS = re.compile(_SECRET_NAME + r"[^&]*", re.IGNORECASE)


def redact(text: str) -> str:
    """Return `text` with the userinfo and the password-like query parts of every URL in it replaced by `***`."""
    if "://" not in text:
        return text
    if "@" in text:
        text = _REDIS_USERINFO.sub(rf"\1://:{HIDDEN}@", text)
        text = _USERINFO.sub(rf"\1://:{HIDDEN}@", text)
    return _QUERY.sub(rf"\1{HIDDEN}", text) if "=" in text else text


def redact_url(url: str) -> str:
    """Return one address for display; whatever stands before its last `@` is hidden even if it is no valid URL."""
    before, at, after = url.rpartition("@")
    if at and not url.startswith("unix:///"):
        scheme, sep, _ = before.partition("://")
        url = f"{scheme}://:{HIDDEN}@{after}" if sep else f":{HIDDEN}@{after}"
    return _QUERY_OF_ADDRESS.sub(rf"\1{HIDDEN}", url)


def redact_secrets(text: str, secrets: Collection[str]) -> str:
    """Return `text` with every occurrence of each secret replaced by `***`; empty secrets are ignored.

    Longer secrets go first, so that one which contains another leaves no remainder.
    """
    for secret in sorted((s for s in secrets if s), key=len, reverse=True):
        text = text.replace(secret, HIDDEN)
    return text
