"""Keep credentials out of messages, logs and command output.

`redact` hides what stands in URLs inside any text, and what `hide_secrets` was told; `redact_url` hides more of a text
that is meant to be one address (also a malformed one), `Secrets` hides values that are known to be secret.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable
from urllib.parse import quote

from stepwell.core.errors import UsageError

__all__ = ["SECRET_CHARS_MIN", "Secrets", "declared_secrets", "hide_secrets", "redact", "redact_url"]

HIDDEN = "***"

# Of stores and brokers all up to the last "@" is hidden: an unescaped "/", "#" or "@" in a password is a common slip.
_STORES = (
    r"(?:rediss?|unix|valkeys?|postgres(?:ql)?|mysql|mariadb|mssql|oracle|mongodb|cassandra|clickhouse|amqps?|mqtts?|"
    r"nats|kafka)(?:\+[a-z0-9_]+)*"
)
_SCHEME = r"[a-z][a-z0-9+.-]{0,31}"
# Limits, as whatever a step raises is searched: without them a long text of schemes alone would take minutes.
_STORE = re.compile(rf"\b({_STORES})://(?!/)[^\s\"'<>]{{0,1024}}@", re.IGNORECASE)
# Elsewhere an "@" may belong to a path. But what follows "user:" and is no port is a password, whatever is in it; what
# comes after its first "@" is for the next one.
_PORT = r"\d{1,5}(?:[/?#,\"'<>\s]|$)"
_PASSWORD = re.compile(
    rf"\b({_SCHEME})://[^\s\"'<>/?#@:\[\]]{{0,256}}:(?!{_PORT})(?:(?!://)\S){{0,1024}}?@", re.IGNORECASE
)
_USERINFO = re.compile(rf"\b({_SCHEME})://[^\s\"'<>/?#]*@", re.IGNORECASE)
_SECRET_NAME = (
    r"([?&;#](?:[a-z0-9_.-]*(?:password|passwd|secret|token|api[_-]?key|access[_-]?key|signature)|pass|pwd|auth|sig)=)"
)
_QUERY = re.compile(_SECRET_NAME + r"[^\s\"'<>&;#]*", re.IGNORECASE)
_QUERY_OF_ADDRESS = re.compile(_SECRET_NAME + r"[^&]*", re.IGNORECASE)


class Secrets:
    """Values to hide, in all their spellings. Each text that is written is searched for all of them: they are put in
    order once, the longer ones first, so that one which contains another leaves no remainder. Threads
    may share it."""

    def __init__(self, values: Iterable[str] = ()) -> None:
        self._known: dict[str, tuple[str, ...]] = {}  # by value its spellings; grows by one operation, without a lock
        self._ordered: tuple[int, tuple[str, ...]] = (0, ())  # of how many values, the spellings of these
        for value in values:
            self.add(value)

    @property
    def values(self) -> tuple[str, ...]:
        """All that are hidden."""
        return tuple(self._known)

    def add(self, value: str) -> None:
        """Hide this one, too; an empty one is ignored."""
        if value and value not in self._known:
            self._known[value] = tuple(_spellings_of(value))

    def hide(self, text: str) -> str:
        """The text with `***` for each of them."""
        count, spellings = self._ordered
        if count != len(self._known):
            known = list(self._known.values())
            spellings = tuple(sorted({each for of in known for each in of}, key=len, reverse=True))
            self._ordered = (len(known), spellings)
        for spelling in spellings:
            text = text.replace(spelling, HIDDEN)
        return text


# Of the process, as its environment is: whoever writes a text has no other way to know them.
_declared = Secrets()
SECRET_CHARS_MIN = 4
"""A shorter text would hide half of every other one."""


def hide_secrets(*values: str) -> None:
    """Never show these values in this process: in log lines, tracebacks, recorded errors, events and answers of
    commands they are `***`, also as they look in a URL, a repr or JSON. Call it in the module that has the flows: each
    process that runs them loads it. Data are left as they are: inputs, results, signals.

    Empty values are ignored. Raises UsageError for one of fewer than 4 characters: it would hide half of each text.
    """
    for value in values:
        if value and len(value) < SECRET_CHARS_MIN:
            raise UsageError(f"a secret of fewer than {SECRET_CHARS_MIN} characters can't be hidden")
        _declared.add(value)


def declared_secrets() -> list[str]:
    """What `hide_secrets` was told."""
    return list(_declared.values)


def _spellings_of(secret: str) -> frozenset[str]:
    """The secret as text, and as it looks inside a repr, a JSON string or a URL."""
    found = {secret, repr(secret)[1:-1], json.dumps(secret)[1:-1], quote(secret, safe=""), quote(secret)}
    return frozenset(found | {json.dumps(secret, ensure_ascii=False)[1:-1]})


def redact(text: str) -> str:
    """Return `text` with the userinfo and the password-like query parts of every URL in it replaced by `***`, and so
    each declared secret."""
    text = _declared.hide(text)
    if "://" not in text:
        return text
    if "@" in text:
        for userinfo in (_STORE, _PASSWORD, _USERINFO):
            text = userinfo.sub(rf"\1://:{HIDDEN}@", text)
    return _QUERY.sub(rf"\1{HIDDEN}", text) if "=" in text else text


def redact_url(url: str) -> str:
    """Return one address for display; whatever stands before its last `@` is hidden even if it is no valid URL."""
    before, at, after = url.rpartition("@")
    if at and not url.startswith("unix:///"):
        scheme, sep, _ = before.partition("://")
        url = f"{scheme}://:{HIDDEN}@{after}" if sep else f":{HIDDEN}@{after}"
    return _QUERY_OF_ADDRESS.sub(rf"\1{HIDDEN}", url)
