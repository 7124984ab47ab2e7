"""A collector of spans, and a shop that is paid by HTTP: one tiny server for both."""

from __future__ import annotations

import gzip
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, Self

from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest
from opentelemetry.proto.trace.v1.trace_pb2 import Span, Status


class Exported:
    """One span that was exported, with the attributes of its resource."""

    def __init__(self, span: Span, resource: dict[str, Any]) -> None:
        self.name = span.name
        self.trace = span.trace_id.hex()
        self.id = span.span_id.hex()
        self.parent = span.parent_span_id.hex()
        self.links = [link.span_id.hex() for link in span.links]
        self.ok = span.status.code != Status.STATUS_CODE_ERROR
        self.attributes = {each.key: _value(each.value) for each in span.attributes}
        self.resource = resource

    def __repr__(self) -> str:
        return f"{self.name} {self.id} of {self.parent}"


class Collector:
    """Takes spans at `/v1/traces`; anything else is paid, at the second try."""

    def __init__(self) -> None:
        self.spans: list[Exported] = []
        self.paid: list[dict[str, str]] = []
        """The headers of each payment, refused ones too."""
        self._lock = threading.Lock()
        collector = self

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                body = self.rfile.read(int(self.headers.get("Content-Length", 0)))
                if self.headers.get("Content-Encoding") == "gzip":
                    body = gzip.decompress(body)
                status = collector._take(self.path, dict(self.headers.items()), body)
                self.send_response(status)
                self.send_header("Content-Length", "0")
                self.end_headers()

            def log_message(self, *_: object) -> None:
                pass

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.url = f"http://127.0.0.1:{self._server.server_port}"

    def __enter__(self) -> Self:
        threading.Thread(target=self._server.serve_forever, daemon=True).start()
        return self

    def __exit__(self, *_: object) -> None:
        self._server.shutdown()
        self._server.server_close()

    def named(self, *names: str) -> list[Exported]:
        with self._lock:
            return [span for span in self.spans if span.name in names]

    def _take(self, path: str, headers: dict[str, str], body: bytes) -> int:
        with self._lock:
            if path != "/v1/traces":
                self.paid.append({name.lower(): value for name, value in headers.items()})
                return 503 if len(self.paid) == 1 else 200
            for of in ExportTraceServiceRequest.FromString(body).resource_spans:
                resource = {each.key: _value(each.value) for each in of.resource.attributes}
                for scope in of.scope_spans:
                    self.spans += [Exported(span, resource) for span in scope.spans]
        return 200


def _value(value: Any) -> Any:
    kind = value.WhichOneof("value")
    return None if kind is None else getattr(value, kind)
