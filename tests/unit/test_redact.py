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
        ('{"url": "redis://:pw@host"}', '{"url": "redis://:***@host"}'),
    ],
)
def test_userinfo_and_password_parts_of_urls_are_hidden(text: str, shown: str) -> None:
    assert redact(text) == shown


@pytest.mark.parametrize("password", ["p/w", "p#w", "p?w", "p@w", "p:w", "p//@w"])
def test_an_unescaped_password_in_a_redis_url_is_hidden_too(password: str) -> None:
    assert redact(f"connecting to redis://:{password}@host:1 now") == "connecting to redis://:***@host:1 now"


@pytest.mark.parametrize(
    "text",
    [
        "",
        "mail bob@example.com, password=hunter2",
        "https://example.com/@bob?page=2",
        "unix:///run/a@b.sock",
        "redis://host:6379/0",
    ],
)
def test_text_without_credentials_in_a_url_stays_as_it_is(text: str) -> None:
    assert redact(text) == text


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
