"""An HTTP answer: what is kept of it, and what its status means for the step."""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime
from http import HTTPStatus
from typing import Any

import msgspec

from stepwell.core.clock import Clock
from stepwell.core.errors import PayloadError, RetryAfter
from stepwell.core.redact import redact
from stepwell.http.errors import HttpError, HttpRefused

__all__ = ["Response", "problem", "response_of"]

RETRYABLE = frozenset({408, 425, 429})  # and all 5xx
EXCERPT_CHARS = 500
BEGIN_CHARS = 80

_SECONDS = re.compile(r"[0-9]+(\.[0-9]+)?")
_CHARSET = re.compile(r";\s*charset=\"?([A-Za-z0-9._:-]+)", re.IGNORECASE)
# They are text encodings to Python, but none that a server means: slow, or giving lone surrogates.
_NO_CHARSETS = frozenset({"idna", "punycode", "unicode-escape", "raw-unicode-escape", "undefined", "utf-7", "utf7"})
_UTF8 = "utf-8-sig"


@dataclass(frozen=True, slots=True)
class Response:
    """What a receiver answered.

    Attributes:
        status: the HTTP status.
        headers: names in lower case; what came several times is joined by ", ".
        text: the body as text, decoded by its charset (UTF-8 where none is named); "" if it is no text.
        data: the body's bytes where it is no text, else empty.
    """

    status: int
    headers: dict[str, str]
    text: str = ""
    data: bytes = b""

    def json(self) -> Any:
        """The body as JSON.

        Raises:
            PayloadError: it is none; the message shows how the body begins.
        """
        try:
            return msgspec.json.decode(self.text)
        except (msgspec.DecodeError, RecursionError) as error:
            kind = self.headers.get("content-type", "no content type")
            begin = redact(self.text[:EXCERPT_CHARS])[:BEGIN_CHARS]
            raise PayloadError(
                f"the answer (status {self.status}, {kind}) is not JSON: {error}; it begins {begin!r}"
            ) from error


def response_of(status: int, headers: Mapping[str, str], body: bytes) -> Response:
    """The answer as it is kept."""
    lowered = {name.lower(): value for name, value in headers.items()}
    text = _decoded(body, lowered.get("content-type", ""))
    return Response(status, lowered, "", body) if text is None else Response(status, lowered, text)


def problem(what: str, answer: Response, accept: Collection[int], clock: Clock | None) -> Exception | None:
    """The error that an answer means; None for 2xx and for the statuses in `accept`.

    Args:
        what: names the request in messages, without secrets.
        answer: the answer; a shortened body will do.
        accept: statuses beyond 2xx that count as success.
        clock: reads dates in `Retry-After` where the answer has no `Date`; without one such a date is ignored.
    """
    status = answer.status
    if 200 <= status < 300 or status in accept:
        return None
    # What happened comes first: where there is little room, the end is cut.
    message = f"{status}{_phrase(status)} from {what}{_excerpt(answer)}"
    if status in RETRYABLE or status >= 500:
        seconds = _retry_after(answer.headers, clock)
        if seconds is None:
            return HttpError(message, status)
        return RetryAfter(seconds, f"{message} (asks to wait {seconds:g} s)")
    if 300 <= status < 400:
        message += "; the redirect was not followed: ask at the new address, or pass follow_redirects=True"
    return HttpRefused(message, status)


def _phrase(status: int) -> str:
    try:
        return f" {HTTPStatus(status).phrase}"
    except ValueError:
        return ""


def _excerpt(answer: Response) -> str:
    text = redact(" ".join(answer.text[: 4 * EXCERPT_CHARS].split()))
    return f": {text[:EXCERPT_CHARS]}" if text else ""


def _retry_after(headers: Mapping[str, str], clock: Clock | None) -> float | None:
    asked = headers.get("retry-after", "").strip()
    if _SECONDS.fullmatch(asked):
        return float(asked)
    due = _date(asked)
    now = _date(headers.get("date", ""))
    if now is None and clock is not None:
        now = clock.now_ms() / 1000
    return None if due is None or now is None else max(0.0, due - now)


def _date(text: str) -> float | None:
    """Seconds since the epoch of an HTTP date in any of its three formats; they are all in GMT."""
    try:
        parsed = parsedate_to_datetime(text)
        return (parsed.replace(tzinfo=UTC) if parsed.tzinfo is None else parsed).timestamp()
    except (ValueError, TypeError, OverflowError, IndexError):
        pass
    try:
        return datetime.strptime(text, "%a %b %d %H:%M:%S %Y").replace(tzinfo=UTC).timestamp()
    except ValueError:
        return None


def _decoded(body: bytes, content_type: str) -> str | None:
    named = _CHARSET.search(content_type)
    charset = "utf-8" if named is None else named[1].lower().replace("_", "-")
    if charset == "utf-8" or charset in _NO_CHARSETS:
        charset = _UTF8
    try:
        return body.decode(charset)
    except LookupError:  # no charset that Python knows
        charset = _UTF8
    except UnicodeError:
        return None
    try:
        return body.decode(charset)
    except UnicodeError:
        return None
