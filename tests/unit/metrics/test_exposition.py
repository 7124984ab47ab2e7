"""The endpoint's pages; the ones marked `threads` ask it over a socket."""

from __future__ import annotations

import http.client
import socket
import threading

import pytest
from prometheus_client.parser import text_string_to_metric_families

from stepwell.core.errors import StepwellError
from stepwell.metrics.exposition import Exposition
from stepwell.metrics.instruments import HEALED_EXECUTIONS
from stepwell.metrics.scraping import Scrapes
from stepwell.metrics.sheet import Sheet
from stepwell.metrics.totals import Totals

pytestmark = pytest.mark.threads


def no_scrapes() -> Scrapes:
    return Scrapes(Totals(), Sheet.in_memory())


def ask(port: int, path: str, method: str = "GET", **headers: str) -> tuple[int, str, str]:
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=30)
    try:
        connection.request(method, path, headers=headers)
        answer = connection.getresponse()
        return answer.status, answer.headers["Content-Type"], answer.read().decode()
    finally:
        connection.close()


def speaks_ipv6() -> bool:
    """Whether this host has an address for it: a container may have none, whatever its kernel and Python can."""
    try:
        with socket.create_server(("::1", 0), family=socket.AF_INET6):
            return True
    except OSError:
        return False


def test_metrics_are_served_in_both_formats(sheet: Sheet, scrapes: Scrapes) -> None:
    sheet.count(HEALED_EXECUTIONS).inc(3)
    server = Exposition(scrapes, host="127.0.0.1")
    server.start()
    try:
        status, kind, text = ask(server.port, "/metrics?x=1")
        families = {family.name: family for family in text_string_to_metric_families(text)}
        assert (status, families["stepwell_healed_executions"].samples[0].value) == (200, 3)
        assert kind.startswith("text/plain")
        assert "_created" not in text
        status, kind, text = ask(server.port, "/metrics", Accept="application/openmetrics-text; version=1.0.0")
        assert kind.startswith("application/openmetrics-text")
        assert text.endswith("# EOF\n")
        assert ask(server.port, "/metrics", "HEAD")[2] == ""
        assert ask(server.port, "/")[0] == 404
        assert ask(server.port, "/metrics/")[0] == 200
        assert ask(server.port, "/readyz/?x")[::2] == (200, "ok\n")
    finally:
        server.stop()


@pytest.mark.parametrize("method", ["POST", "PUT", "DELETE", "OPTIONS", "PATCH", "BREW"])
def test_a_method_that_would_change_something_is_not_allowed_and_told_in_plain_text(method: str) -> None:
    server = Exposition(no_scrapes(), host="127.0.0.1")
    server.start()
    connection = http.client.HTTPConnection("127.0.0.1", server.port, timeout=30)
    try:
        connection.request(method, "/metrics")
        answer = connection.getresponse()
        assert (answer.status, answer.headers["Allow"]) == (405, "GET, HEAD")
        assert answer.headers["Content-Type"].startswith("text/plain")
        assert answer.read() == b"method not allowed: these pages are only read, with GET or HEAD\n"
    finally:
        connection.close()
        server.stop()


def test_what_is_no_request_is_told_so_in_plain_text() -> None:
    server = Exposition(no_scrapes(), host="127.0.0.1")
    server.start()
    try:
        with socket.create_connection(("127.0.0.1", server.port), timeout=30) as asker:
            asker.sendall(b"GET /metrics and more HTTP/1.1\r\n\r\n")
            answer = asker.makefile("rb").read()
        assert answer.startswith(b"HTTP/1.0 400 ")
        assert b"text/plain" in answer
        assert b"<html" not in answer
    finally:
        server.stop()


@pytest.mark.parametrize(
    ("host", "asked", "url"),
    [
        ("::1", "::1", "http://[::1]:"),
        ("::", "::1", "http://localhost:"),
        ("0.0.0.0", "127.0.0.1", "http://localhost:"),
        ("localhost", "localhost", "http://localhost:"),
        ("127.0.0.2", "127.0.0.2", "http://127.0.0.2:"),
    ],
)
def test_it_is_served_where_it_is_told(host: str, asked: str, url: str) -> None:
    if ":" in host and not speaks_ipv6():
        pytest.skip("this host has no IPv6")
    server = Exposition(no_scrapes(), host=host)
    server.start()
    try:
        assert server.url == f"{url}{server.port}"
        connection = http.client.HTTPConnection(asked, server.port, timeout=30)
        connection.request("GET", "/healthz")
        assert connection.getresponse().status == 200
        connection.close()
    finally:
        server.stop()


def test_probes_answer_with_the_reason() -> None:
    problems = {"alive": "", "ready": "no partition is owned yet"}

    def broken() -> str:
        raise RuntimeError("secret detail")

    server = Exposition(
        no_scrapes(), alive=lambda: problems["alive"], ready=lambda: problems["ready"], host="127.0.0.1"
    )
    server.start()
    try:
        assert ask(server.port, "/healthz")[::2] == (200, "ok\n")
        assert ask(server.port, "/readyz")[::2] == (503, "no partition is owned yet\n")
        problems.update(alive="the shard is stuck", ready="")
        assert ask(server.port, "/healthz")[::2] == (503, "the shard is stuck\n")
        assert ask(server.port, "/readyz")[0] == 200
    finally:
        server.stop()
    failing = Exposition(no_scrapes(), alive=broken, host="127.0.0.1")
    failing.start()
    try:
        assert ask(failing.port, "/healthz")[::2] == (503, "the probe itself failed: RuntimeError\n")
    finally:
        failing.stop()


def test_a_page_that_can_not_be_made_is_an_error_that_the_log_tells(caplog: pytest.LogCaptureFixture) -> None:
    def broken() -> None:
        raise RuntimeError("secret detail")

    server = Exposition(Scrapes(Totals(), Sheet.in_memory(), broken), host="127.0.0.1")
    server.start()
    try:
        said = "the page could not be made: RuntimeError; the log has the rest\n"
        assert ask(server.port, "/metrics")[::2] == (500, said)
        assert ask(server.port, "/healthz")[0] == 200
    finally:
        server.stop()
    assert "the page of metrics could not be made" in caplog.text


def test_a_port_in_use_is_one_clear_sentence() -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        with pytest.raises(StepwellError, match=rf"can't listen on 127\.0\.0\.1 port {port}: .*--metrics-port"):
            Exposition(no_scrapes(), host="127.0.0.1", port=port).start()


def test_where_the_usual_port_is_taken_another_one_is_served_and_told(caplog: pytest.LogCaptureFixture) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        server = Exposition(no_scrapes(), host="127.0.0.1", port=port, otherwise=0)
        server.start()
    try:
        assert server.port not in (0, port)
        assert [line.getMessage() for line in caplog.records] == [
            f"port {port} is taken: metrics are served on port {server.port} (choose one by --metrics-port)"
        ]
    finally:
        server.stop()


@pytest.mark.parametrize(("host", "port"), [("127.0.0.1", 70_000), ("203.0.113.7", 0)])
def test_an_address_that_is_not_ours_is_one_clear_sentence(host: str, port: int) -> None:
    with pytest.raises(StepwellError, match="can't listen on"):
        Exposition(no_scrapes(), host=host, port=port).start()


def test_a_name_that_nobody_knows_is_one_clear_sentence(monkeypatch: pytest.MonkeyPatch) -> None:
    def unknown(*_: object, **__: object) -> None:
        raise socket.gaierror(socket.EAI_NONAME, "Name or service not known")

    monkeypatch.setattr(socket, "getaddrinfo", unknown)  # a name service that hangs takes minutes to say so
    with pytest.raises(StepwellError, match=r"can't listen on nowhere port 0: Name or service not known; choose"):
        Exposition(no_scrapes(), host="nowhere").start()


def test_stop_ends_the_thread_and_frees_the_port() -> None:
    server = Exposition(no_scrapes(), host="127.0.0.1")
    server.start()
    port = server.port
    server.stop()
    server.stop()
    assert "stepwell-metrics" not in {thread.name for thread in threading.enumerate()}
    assert server.port == port
    again = Exposition(no_scrapes(), host="127.0.0.1", port=port)
    again.start()
    again.stop()


def test_a_client_that_says_nothing_does_not_hold_up_others() -> None:
    server = Exposition(no_scrapes(), host="127.0.0.1")
    server.start()
    try:
        with socket.create_connection(("127.0.0.1", server.port)):
            assert ask(server.port, "/healthz")[0] == 200
    finally:
        server.stop()
