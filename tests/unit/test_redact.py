"""Credentials never reach a message."""

from __future__ import annotations

import pytest

from stepwell.core.redact import Secrets, redact, redact_url


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("redis://:pw@host:6379/0", "redis://:***@host:6379/0"),
        ("redis://user:pw@host", "redis://:***@host"),
        ("rediss://user@host", "rediss://:***@host"),
        ("unix://u:pw@/run/redis.sock?db=1", "unix://:***@/run/redis.sock?db=1"),
        ("https://ghp_token@github.com/x", "https://:***@github.com/x"),
        ("postgresql+psycopg://a:b@db/x and redis://:c@h", "postgresql+psycopg://:***@db/x and redis://:***@h"),
        ("unix:///run/redis.sock?password=pw&db=1", "unix:///run/redis.sock?password=***&db=1"),
        ("GET https://api/x?api_key=k1&page=2", "GET https://api/x?api_key=***&page=2"),
        ("rediss://h?ssl_password=pw", "rediss://h?ssl_password=***"),
        ("https://app/cb#access_token=t1&state=2", "https://app/cb#access_token=***&state=2"),
        ('{"url": "redis://:pw@host"}', '{"url": "redis://:***@host"}'),
    ],
)
def test_userinfo_and_password_parts_of_urls_are_hidden(text: str, shown: str) -> None:
    assert redact(text) == shown


@pytest.mark.parametrize("password", ["p/w", "p#w", "p?w", "p@w", "p:w", "p//@w", "p'w", 'p"w', "p<w>", "1/w", "12"])
@pytest.mark.parametrize("scheme", ["redis", "postgresql+psycopg", "mysql", "mongodb+srv", "amqps"])
def test_an_unescaped_password_in_the_url_of_a_store_is_hidden_too(scheme: str, password: str) -> None:
    assert redact(f"connecting to {scheme}://u:{password}@host:1 now") == f"connecting to {scheme}://:***@host:1 now"


@pytest.mark.parametrize("password", ["p/w", "p#w", "p?w", "p@w", "p:w", "p'w", 'p"w', "p/'w", "123456/w", "1w/2"])
def test_an_unescaped_password_in_a_web_address_is_hidden_too(password: str) -> None:
    assert redact(f"GET 'https://u:{password}@host:8080/@me'") == "GET 'https://:***@host:8080/@me'"


def test_of_several_addresses_in_one_word_each_keeps_its_host() -> None:
    text = '{"a":"https://u:p@h/x","b":"https://h:80/@me","c":"https://h","d":"mailto:x@y","e":"redis://:p@r"}'
    assert redact(text) == text.replace("u:p@", ":***@").replace(":p@", ":***@")


@pytest.mark.parametrize(
    "text",
    [
        "",
        "mail bob@example.com, password=hunter2",
        "https://example.com/@bob?page=2",
        "https://example.com:8080/@bob",
        "http://[::1]:80/@bob",
        "see https://example.com:80, or write to a@b.example",
        "unix:///run/a@b.sock",
        "redis://host:6379/0",
    ],
)
def test_text_without_credentials_in_a_url_stays_as_it_is(text: str) -> None:
    assert redact(text) == text


@pytest.mark.parametrize("text", ["redis://x", "x://a:b", "a.", "a://", ":a"])
def test_a_long_text_of_nothing_but_beginnings_is_searched_to_its_end(text: str) -> None:
    said = "x://" + 60_000 * text + "@"
    assert redact(said).endswith("@")


@pytest.mark.parametrize("text", ["redis://u:pw@h?password=x", "http://u@h/a?token=1;sig=2"])
def test_hiding_twice_changes_nothing(text: str) -> None:
    assert redact(redact(text)) == redact(text)


@pytest.mark.parametrize("url", ["user:pw@host:6379", "redis:/:pw@host", "http//u:pw@host", "redis://:p w@host"])
def test_an_address_that_is_no_url_shows_nothing_before_its_last_at_sign(url: str) -> None:
    assert "pw" not in redact_url(url)
    assert "p w" not in redact_url(url)
    assert redact_url(url).endswith("host:6379" if "6379" in url else "host")


def test_a_password_with_a_space_is_hidden_whole_in_an_address() -> None:
    assert redact_url("redis://h?password=a b&db=1") == "redis://h?password=***&db=1"


def test_known_secrets_are_hidden_everywhere_the_longest_first() -> None:
    assert Secrets(["abc", "abcdef", ""]).hide("key abcdef, also abc") == "key ***, also ***"
