"""`/metrics`, `/healthz` and `/readyz` over HTTP, on a daemon thread of its own.

It listens on all interfaces unless told otherwise, since whoever scrapes or probes usually runs elsewhere. The pages
show names of flows and steps, and ids of executions and traces in exemplars (OpenMetrics), never inputs, results or
messages; nothing can be changed through them.
"""

from __future__ import annotations

import errno
import logging
import socket
import threading
from collections.abc import Callable, Mapping
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from socketserver import TCPServer

from stepwell.core.errors import UsageError
from stepwell.core.messages import message_of
from stepwell.metrics.saying import say
from stepwell.metrics.scraping import Answer, Scrapes

__all__ = ["Exposition", "no_problem"]

PLAIN = "text/plain; charset=utf-8"
METRICS = "/metrics"
CLIENT_SECONDS = 5.0  # a client that is slower than this is hung up on
_POLL_SECONDS = 0.2
_logger = logging.getLogger("stepwell.metrics")

Probe = Callable[[], str]
"""Answers "" when all is well, else one sentence about what is not."""


def no_problem() -> str:
    """The probe that always passes."""
    return ""


class Exposition:
    """The HTTP endpoint of a worker.

    Args:
        scrapes: what `/metrics` shows.
        alive: probe behind `/healthz`: should the process be left running?
        ready: probe behind `/readyz`: does it take work (store connected, leases held)?
        port: TCP port; 0 takes any free one.
        otherwise: the port where that one is taken; None: then it can't start.
        host: address or name to listen on; the default is all IPv4 interfaces, `::` all of IPv6 and IPv4,
            `127.0.0.1` or `::1` keeps it to this machine.
    """

    def __init__(
        self,
        scrapes: Scrapes,
        *,
        alive: Probe = no_problem,
        ready: Probe = no_problem,
        port: int = 0,
        otherwise: int | None = None,
        host: str = "0.0.0.0",
    ) -> None:
        self._pages = _Pages(scrapes, alive, ready)
        self._address = (host, port)
        self._otherwise = otherwise
        self._server: _Server | None = None
        self._thread: threading.Thread | None = None

    @property
    def port(self) -> int:
        """The port it is bound to; the asked one before `start`."""
        return self._address[1] if self._server is None else int(self._server.server_address[1])

    @property
    def url(self) -> str:
        """How it is reached from this machine."""
        host = "localhost" if self._address[0] in ("0.0.0.0", "::", "") else self._address[0]
        return f"http://{f'[{host}]' if ':' in host else host}:{self.port}"

    def start(self) -> None:
        """Bind and serve.

        Raises:
            UsageError: the address can't be listened on; the message says why and what to do.
        """
        host, port = self._address
        try:
            self._server = self._listening(host, port)
        except (OSError, OverflowError) as error:
            why = (isinstance(error, OSError) and error.strerror) or message_of(error)
            raise UsageError(
                f"the metrics endpoint can't listen on {host} port {port}: {why};"
                " choose another with --metrics-port (0 takes any free one) or --metrics-host"
            ) from error
        self._thread = threading.Thread(
            target=self._server.serve_forever, args=(_POLL_SECONDS,), name="stepwell-metrics", daemon=True
        )
        self._thread.start()

    def _listening(self, host: str, port: int) -> _Server:
        family = socket.getaddrinfo(host, None, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)[0][0]
        try:
            return _Server(family, (host, port), self._pages)
        except OSError as error:
            if self._otherwise is None or error.errno != errno.EADDRINUSE:
                raise
        server = _Server(family, (host, self._otherwise), self._pages)
        told = "port %d is taken: metrics are served on port %d (choose one by --metrics-port)"
        say(_logger, "PortTaken", told, port, server.server_port, port=server.server_port)
        return server

    def stop(self) -> None:
        """Stop serving, wait for the thread, and close the port. May be repeated."""
        if self._server is None or self._thread is None:
            return
        port = self.port
        self._server.shutdown()
        self._thread.join()
        self._server.server_close()
        self._address = (self._address[0], port)
        self._server = self._thread = None


class _Pages:
    """What each path answers."""

    def __init__(self, scrapes: Scrapes, alive: Probe, ready: Probe) -> None:
        self._scrapes = scrapes
        self._probes = {"/healthz": alive, "/readyz": ready}

    def answer(self, path: str, accept: str, accept_encoding: str) -> tuple[HTTPStatus, Answer]:
        """The page at `path`; the others are headers of the request."""
        if path == METRICS:
            return self._page(accept, accept_encoding)
        probe = self._probes.get(path)
        if probe is not None:
            problem = _ask(probe)
            status = HTTPStatus.SERVICE_UNAVAILABLE if problem else HTTPStatus.OK
            return status, Answer(PLAIN, "", f"{problem or 'ok'}\n".encode())
        return HTTPStatus.NOT_FOUND, Answer(PLAIN, "", b"there are /metrics, /healthz and /readyz\n")

    def _page(self, accept: str, accept_encoding: str) -> tuple[HTTPStatus, Answer]:
        try:
            return HTTPStatus.OK, self._scrapes.answer(accept, accept_encoding)
        except Exception as error:
            told = "the page of metrics could not be made"
            say(_logger, "PartErred", told, traceback=error, part="metrics")
            said = f"the page could not be made: {type(error).__name__}; the log has the rest\n"
            return HTTPStatus.INTERNAL_SERVER_ERROR, Answer(PLAIN, "", said.encode())


def _ask(probe: Probe) -> str:
    try:
        return probe()
    except Exception as error:
        say(_logger, "PartErred", "a probe failed", traceback=error, part="metrics")
        return f"the probe itself failed: {type(error).__name__}"


class _Server(ThreadingHTTPServer):
    daemon_threads = True

    def __init__(self, family: int, address: tuple[str, int], pages: _Pages) -> None:
        self.pages = pages
        self.address_family = family
        super().__init__(address, _Handler)

    def server_bind(self) -> None:
        # HTTPServer's own asks the name service for the host's full name, which can take many seconds.
        TCPServer.server_bind(self)
        self.server_name, self.server_port = str(self.server_address[0]), int(self.server_address[1])

    def handle_error(self, request: object, client_address: object) -> None:
        _logger.debug("a request from %s was not served", client_address, exc_info=True)


class _Handler(BaseHTTPRequestHandler):
    timeout = CLIENT_SECONDS
    server_version = "stepwell"
    sys_version = ""

    def do_GET(self) -> None:
        self._serve(with_body=True)

    def do_HEAD(self) -> None:
        self._serve(with_body=False)

    def _serve(self, with_body: bool) -> None:
        assert isinstance(self.server, _Server)
        path = self.path.partition("?")[0].rstrip("/")
        headers = self.headers
        status, answer = self.server.pages.answer(path, headers.get("Accept", ""), headers.get("Accept-Encoding", ""))
        more = {"Vary": "Accept, Accept-Encoding"} if path == METRICS else {}
        if answer.encoding:
            more["Content-Encoding"] = answer.encoding
        self._send(status, answer.content_type, answer.body, with_body, more)

    def send_error(self, code: int, message: str | None = None, explain: str | None = None) -> None:
        """What is no request that can be answered is told in plain text: http.server's own page is HTML, and to it a
        method that is not allowed is one that nobody has thought of."""
        status, more = HTTPStatus(code), {}
        if status is HTTPStatus.NOT_IMPLEMENTED:
            status, more = HTTPStatus.METHOD_NOT_ALLOWED, {"Allow": "GET, HEAD"}
        self.close_connection = True
        said = f"{status.phrase.lower()}: these pages are only read, with GET or HEAD\n"
        self._send(status, PLAIN, said.encode(), self.command != "HEAD", more)

    def _send(
        self, status: HTTPStatus, content_type: str, body: bytes, with_body: bool, more: Mapping[str, str]
    ) -> None:
        self.send_response(status)
        self.send_header("Content-Type", content_type)
        for name, value in more.items():
            self.send_header(name, value)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        if with_body:
            self.wfile.write(body)

    def log_message(self, format: str, *args: object) -> None:
        _logger.debug("%s: %s", self.address_string(), format % args)
