"""What goes wrong with a request, and whether trying again can help.

StepwellError
 |- HttpError                worth another try: 408, 425, 429, 5xx, no connection, timeout, broken answer
 |   `- HttpRefused          also a FatalError: other statuses, a URL or header that can't be sent
 `- RetryAfter               worth another try, and the receiver said when
"""

from __future__ import annotations

from stepwell.core.errors import FatalError, StepwellError

__all__ = ["HttpError", "HttpRefused"]


class HttpError(StepwellError):
    """The request failed and may be tried again; `status` is None where no answer came."""

    def __init__(self, message: str, status: int | None = None) -> None:
        self.message = message
        self.status = status
        super().__init__(message)

    def __reduce__(self) -> tuple[type[HttpError], tuple[str, int | None]]:
        return (type(self), (self.message, self.status))


class HttpRefused(HttpError, FatalError):
    """The receiver refused, or the request can't be sent as it is: trying again is pointless."""
