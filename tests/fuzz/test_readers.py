"""Readers of what strangers may have written: they say what it is, or that it is nothing of ours; none raises."""

from __future__ import annotations

import math
from typing import Any

import msgspec
import pytest
from fuzz.budget import fuzz
from fuzz.desk import SECRET
from fuzz.refusals import refusal
from fuzz.test_cli import URLS
from fuzz.values import NUMBERS, json_values, odd_bytes, plain_texts
from hypothesis import example, given
from hypothesis import strategies as st
from redis.exceptions import ResponseError

from stepwell.actors.boxlayout import ATTEMPTS_AT, HEADER, MAGIC
from stepwell.actors.boxreport import parse_box
from stepwell.actors.kit.clock import VirtualClock
from stepwell.client.reading import _worker
from stepwell.client.starting import misfits, prepare, served_by
from stepwell.core.errors import DefinitionError, StepwellError, StoreUnreachable, UsageError
from stepwell.core.formats import entry_format, row_format
from stepwell.core.ownership import Roster
from stepwell.core.redact import Secrets, redact, redact_url
from stepwell.core.retry import Retry
from stepwell.http.answer import problem, response_of
from stepwell.store import replies, requests
from stepwell.store.durability import Durability, parse_durability
from stepwell.store.leases import parse_lease
from stepwell.store.members import members_of
from stepwell.store.suspects import suspects_of
from stepwell.store.url import read_url
from stepwell.store.workers import heartbeats_of, living_of
from stepwell.worker.config import WorkerConfig

resp = st.recursive(
    st.none()
    | st.integers()
    | odd_bytes
    | st.booleans()
    | st.floats()
    | st.sampled_from([b"OK", b"FENCED", b"CONFLICT", b"DUP"]),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.binary(max_size=4), inner, max_size=3),
    max_leaves=8,
)
REQUESTS = [
    requests.Commit(0, "a", "l", 1, "c", 5, [], "queued", "running", "keep"),
    requests.Load("a"),
    requests.Create("a", "f", "h", 5, []),
    requests.DeadLetter(0, "l", "1-1", "k", "r", 5),
    requests.Forget(0, "l", ["x:a"]),
    requests.Unlist(0, "a", "l"),
]


@fuzz(300)
@given(resp, st.sampled_from(REQUESTS))
def test_any_reply_to_a_request_is_one_that_we_know_or_broken(raw: Any, request: Any) -> None:
    found = request.parse(raw)
    assert isinstance(found, msgspec.Struct)
    if isinstance(found, replies.Broken):
        assert "the server answered" in found.message


@fuzz(150)
@given(
    st.text(max_size=50) | st.sampled_from(["-OOM x", "WRONGTYPE x", "ERR @user_script:1: -OOM command", "MOVED 1 a:1"])
)
def test_any_error_reply_is_sorted(message: str) -> None:
    assert isinstance(replies.failure(ResponseError(message)), replies.Refused | replies.Broken)


urls = st.sampled_from(URLS) | st.builds(
    "{}://{}{}{}{}".format,
    st.sampled_from(["redis", "rediss", "unix", "redis+sentinel", "rediss+sentinel", "REDIS", "http", ""]),
    st.sampled_from(["", f":{SECRET}@", f"u:{SECRET}@", f"{SECRET}@@", f":{SECRET}%zz@", "%@"]),
    st.sampled_from(
        ["h", "h:1", "h:0", "h:99999", "h:x", "[::1]:6379", "[::1", "a,b", "a:1,,b", "", "\u2100", "h\u00b2:1"]
    ),
    st.sampled_from(["", "/", "/0", "/x", "/99999999", "/name/\u0663", "/\u00b2", "//", "/a/b/c"]),
    st.sampled_from(
        [
            "",
            "?",
            "?db=1",
            "?db=\u00b2",
            "?x=1",
            "?ssl_cert_reqs=no",
            "?ssl_check_hostname=maybe",
            f"?password={SECRET}",
            "#x",
        ]
    ),
)


@pytest.mark.pain(45)
@fuzz(400)
@given(urls | st.text(max_size=30).map(lambda rest: f"redis://:{SECRET}@{rest}") | st.text(max_size=30))
def test_a_url_is_taken_apart_or_refused_without_its_password(url: str) -> None:
    try:
        found = read_url(url)
    except StoreUnreachable as error:
        said = str(error)
    else:
        assert found.settings["db"] >= 0  # type: ignore[operator]
        assert all(0 < port < 65536 for _, port in found.hosts)
        said = ""
    assert SECRET not in said
    if "@" in url:
        assert SECRET not in redact_url(url)


@fuzz(200)
@given(st.text(max_size=60), st.lists(st.text(min_size=1, max_size=5), max_size=3))
def test_whatever_is_redacted_holds_no_secret(text: str, secrets: list[str]) -> None:
    shown = Secrets(secrets).hide(text)
    assert all(
        secret not in shown.replace("***", "\x00") for secret in secrets if "*" not in secret and "\x00" not in secret
    )
    url = f"see redis://user:{SECRET}@h/0?x=1 and http://a:{SECRET}@b/?api_key={SECRET} {text}"
    assert SECRET not in redact(url)


@fuzz(150)
@given(
    st.text(max_size=12) | st.sampled_from(["relaxed", "aof", "replicated", "replicated:2", "replicated:0", "aof:1"]),
    st.none() | st.integers(),
)
def test_a_durability_is_one_or_refused(text: str, count: int | None) -> None:
    if not refusal(lambda: parse_durability(text, count), UsageError):
        found = parse_durability(text, count)
        assert parse_durability(str(found)) == found


@fuzz(100)
@given(resp | st.integers(), st.sampled_from([Durability("aof"), Durability("replicated", 2)]))
def test_any_answer_to_a_wait_is_enough_or_not(answer: Any, durability: Durability) -> None:
    assert isinstance(durability.shortfall(answer), str)


beats = st.dictionaries(
    plain_texts.map(str.encode),
    odd_bytes
    | st.fixed_dictionaries(
        {
            "at": st.sampled_from([*NUMBERS, 1000, 10**400]) | json_values,
            "id": json_values,
            "host": plain_texts | st.sampled_from(["a/b,c,\u00b2,1", "a,b,1,2"]) | json_values,
            "flows": json_values
            | st.dictionaries(st.sampled_from(["f", "g"]), json_values | st.just({"parameters": {"x": True}})),
            "incarnation": st.just("i") | json_values,
            "format": st.sampled_from([1, 2, 999, -1, 10**400]) | json_values,
            "state": st.sampled_from(["active", "leaving", "gone"]),
        }
    ).map(msgspec.json.encode),
    max_size=4,
)


@pytest.mark.pain(31)
@fuzz(300)
@given(beats, st.integers(0, 2**50))
@example({b"w": b'{"at":1000,"host":"a/b,c,\xc2\xb2,1"}'}, 1000)
@example({b"w": b'{"at":1' + b"0" * 400 + b',"incarnation":"i","host":"h"}'}, 1000)
@example({b"w": b'{"at":1000,"x":' + b"[" * 5000}, 1000)
def test_heartbeats_of_strangers_are_passed_over(hashed: dict[bytes, bytes], now: int) -> None:
    living = living_of(heartbeats_of(hashed), now)
    for beat in living:
        shown = _worker(beat)
        msgspec.json.encode(shown)
    offers = [flows["f"] for flows in served_by(living) if "f" in flows]
    misfits(prepare("f", {"x": 1}, "id", lambda: "id"), offers)
    roster = Roster(10.0)
    for seen in (1.0, 2.0, 20.0):
        roster.saw(members_of(hashed), now, seen)
        roster.living()


@fuzz(200)
@given(
    odd_bytes.map(lambda raw: raw.decode("utf-8", "backslashreplace"))
    | st.lists(plain_texts, min_size=4, max_size=4).map("|".join)
)
def test_a_lease_of_strangers_is_none(value: str) -> None:
    found = parse_lease(value)
    assert found is None or value.count("|") == 3


@fuzz(200)
@given(
    st.dictionaries(
        st.sampled_from([b"x:a", b"e:1-1", b"i:a", b"x:", b"\xff", b"zz"]),
        odd_bytes | st.sampled_from([b"3|ab|died", b'[["t",1,true]]']),
    )
)
def test_suspects_of_strangers_are_passed_over(hashed: dict[bytes, bytes]) -> None:
    found = suspects_of(hashed)
    assert all(strike.count >= 0 for strike in found.entries.values())
    row_format({name.decode(errors="replace"): value for name, value in hashed.items()})


@fuzz(200)
@given(st.dictionaries(st.sampled_from(["v", "meta"]), odd_bytes))
def test_a_format_is_one_or_none(fields: dict[str, bytes]) -> None:
    found = entry_format(fields)
    assert found is None or 0 < found < 1000
    assert row_format(fields) >= 1


boxes = st.builds(
    lambda head, rest: HEADER.pack(MAGIC, b"i" * 16, *head) + rest,
    st.tuples(
        *[st.integers(0, 2**32 - 1) | st.integers(0, 3)] * 4,
        st.integers(0, 2**64 - 1),
        st.integers(0, 2**64 - 1),
        st.floats(),
    ),
    st.binary(min_size=ATTEMPTS_AT, max_size=ATTEMPTS_AT + 600),
)


@pytest.mark.pain(8)
@fuzz(400)
@given(boxes | st.binary(max_size=700) | st.integers(0, 2000).map(bytes), st.floats(0, 1e6))
def test_a_black_box_of_any_bytes_is_a_report_or_none(raw: bytes, now: float) -> None:
    report = parse_box(raw, now)
    if report is not None:
        assert report.turn_seconds(now) >= 0
        assert all(attempt.attempt > 0 for attempt in report.attempts)


header_values = st.text(max_size=30) | st.sampled_from(
    [
        "3",
        "0",
        "-1",
        "1e9",
        "9" * 400,
        "0.5",
        "\u0663",
        "Wed, 21 Oct 2015 07:28:00 GMT",
        "Wed, 99 Oct 2015 07:28:00 GMT",
        "Wednesday, 21-Oct-15 07:28:00 GMT",
        "Wed Oct 21 07:28:00 2015",
        "Wed, 21 Oct 0000 07:28:00 GMT",
        "Fri, 31 Dec 9999 23:59:59 -9999",
    ]
)
content_types = st.sampled_from(
    [
        "",
        "application/json",
        "text/html; charset=utf-16",
        "x; charset=base64",
        'x; charset="hex"',
        "x;charset=utf-7",
        "x;charset=punycode",
        "x;charset=unicode_escape",
        "x;charset=undefined",
        "x;charset=mbcs",
        "x;charset=zlib",
        "x; charset=rot13",
    ]
) | st.text(max_size=20)


@fuzz(400)
@given(st.integers(100, 999) | st.integers(), header_values, header_values, content_types, odd_bytes)
@example(503, "9" * 400, "", "", b"")
def test_any_http_answer_is_a_success_or_an_error_that_says_which(
    status: int, after: str, date: str, kind: str, body: bytes
) -> None:
    answer = response_of(status, {"Retry-After": after, "Date": date, "Content-Type": kind}, body)
    found = problem("POST http://h/", answer, (), VirtualClock())
    if 200 <= status < 300:
        assert found is None
    else:
        assert str(found).startswith(str(status))
        assert " from POST http://h/" in str(found)
        Retry().delay("t", 1, None, getattr(found, "seconds", None))
    why = refusal(answer.json, StepwellError)
    assert why == "" or "is not JSON" in why


odd_numbers = (
    st.sampled_from([0, 1, -1, 2**70, True, None, "5", 1.5, math.nan, math.inf, -math.inf, [], b"1"])
    | st.integers()
    | st.floats()
)


@fuzz(200)
@given(
    st.dictionaries(
        st.sampled_from(
            [
                "partitions",
                "max_running",
                "max_steps",
                "threads",
                "processes",
                "grace",
                "metrics_port",
                "passivate_after",
                "max_in_memory",
            ]
        ),
        odd_numbers,
    )
)
def test_a_workers_settings_are_taken_or_refused(given_: dict[str, Any]) -> None:
    from stepwell.client.address import Address

    why = refusal(lambda: WorkerConfig(Address("redis://h"), **given_), UsageError)
    assert "expected" in why or WorkerConfig(Address("redis://h"), **given_).limits.running >= 1


@fuzz(200)
@given(
    st.dictionaries(
        st.sampled_from(["max_attempts", "base", "factor", "cap", "jitter", "retry_after_max", "give_up_on"]),
        odd_numbers,
    ),
    st.integers(1, 10**6),
    odd_numbers,
)
def test_a_retry_policy_is_taken_or_refused_and_always_gives_a_delay(
    given_: dict[str, Any], failure: int, asked: Any
) -> None:
    why = refusal(lambda: Retry(**given_), DefinitionError)
    if why:
        assert "Retry" in why
        return
    policy = Retry(**given_)
    delay = policy.delay("t", failure, failure, asked if type(asked) in (int, float) else None)
    assert 0 <= delay < math.inf
