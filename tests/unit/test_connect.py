"""URLs are checked before anything connects, and each failure is one sentence without a password."""

from __future__ import annotations

import errno
import socket
import ssl
from typing import Any

import pytest
import redis
import redis.asyncio
from redis import exceptions as rx

from stepwell.core.errors import StoreError, StoreUnfit, StoreUnreachable
from stepwell.store.connect import address_of, async_connect, connect, explain
from stepwell.store.url import ServerUrl, read_url

PASSWORD = "s3cret-pw"
URL = f"redis://app:{PASSWORD}@db.example:6380/2"


def chained(error: Exception, cause: Exception) -> Exception:
    error.__cause__ = cause
    return error


@pytest.mark.parametrize(
    ("url", "says"),
    [
        ("http://host", "must begin with redis://"),
        ("localhost:6379", "must begin with redis://"),
        (f"app:{PASSWORD}@localhost:6379", "must begin with redis://"),
        ("", "must begin with redis://"),
        ("redis://host:port", "port must be a number"),
        ("redis://host:99999", "port must be a number"),
        ("redis://host:0", "port must be a number"),
        ("redis://host/zero", "only a database number"),
        (f"redis://:{PASSWORD}/x@host", "percent-encoded"),
        (f"redis://:{PASSWORD}#x@host", "percent-encoded"),
        (f"redis://:1{PASSWORD}?x@host", "percent-encoded"),
        (f"redis://:{PASSWORD}@:6379", "host is missing"),
        (f"redis://host?password={PASSWORD} x", "has a space"),
        ("redis://host?db=one", "db must be a number"),
        ("redis://host?retry_on_timeout=yes", "unknown option 'retry_on_timeout'"),
        ("redis://host?ssl_ca_certs=x", "unknown option"),
        ("rediss://host?ssl_cert_reqs=never", "none, optional or required"),
        ("redis://host?sentinel_password=x", "unknown option"),
        ("redis://a:1,b:port", "port must be a number"),
        ("redis://a:1,b:0", "port must be a number"),
        ("redis://a:7000,:7001", "a host is missing between the commas"),
        ("redis://a:7000,", "a host is missing between the commas"),
        ("redis://a:7000,b:7001/2", "has no database but 0"),
        ("redis://a:7000,b:7001?db=1", "has no database but 0"),
        (f"redis://:{PASSWORD}/x@a:7000,b:7001", "percent-encoded"),
        ("redis+sentinel://a:26379", "must follow the name"),
        ("redis+sentinel://a:26379/", "must follow the name"),
        ("redis+sentinel://a:26379/main/zero", "must follow the name"),
        ("redis+sentinel:///main", "host of a Sentinel is missing"),
        ("redis+sentinel://a,,b/main", "host of a Sentinel is missing"),
        ("redis+sentinel://a:x/main", "port must be a number"),
        (f"redis+sentinel://:{PASSWORD}@a/main?ssl_ca_certs=x", "unknown option"),
        ("unix+sentinel://a/main", "must begin with"),
        ("unix://run/redis.sock", "absolute path"),
        ("unix:///", "absolute path"),
    ],
)
def test_a_wrong_url_is_refused_with_what_to_write_instead(url: str, says: str) -> None:
    for make in (connect, async_connect):
        with pytest.raises(StoreUnreachable) as refused:
            make(url)
        assert says in str(refused.value)
        assert PASSWORD not in str(refused.value)


@pytest.mark.parametrize(
    ("url", "kwargs"),
    [
        ("redis://", {}),
        (URL, {"host": "db.example", "port": 6380, "db": 2, "username": "app", "password": PASSWORD}),
        ("redis://:p%2Fw%40@host", {"host": "host", "password": "p/w@"}),
        ("redis://[::1]:7000?db=3\n", {"host": "::1", "port": 7000, "db": 3}),
        ("unix:///run/r%20s.sock?db=1&password=pw", {"path": "/run/r s.sock", "db": 1, "password": "pw"}),
        ("unix://app:pw@/run/r.sock", {"path": "/run/r.sock", "username": "app", "password": "pw"}),
        ("rediss://host?ssl_cert_reqs=none&ssl_check_hostname=no", {"ssl_cert_reqs": "none"}),
    ],
)
def test_a_good_url_says_where_and_who(url: str, kwargs: dict[str, object]) -> None:
    for client in (connect(url), async_connect(url)):
        found = client.connection_pool.connection_kwargs
        assert {name: found[name] for name in kwargs} == kwargs


@pytest.mark.parametrize(
    ("url", "found"),
    [
        ("redis://h", ServerUrl((("h", 6379),), {"host": "h", "port": 6379, "db": 0})),
        (
            "redis://:pw@a:7000,[::1],b:7002",
            ServerUrl(
                (("a", 7000), ("::1", 6379), ("b", 7002)), {"password": "pw", "host": "a", "port": 7000, "db": 0}
            ),
        ),
        (
            "redis+sentinel://app:p%40w@a:26380,b/main/3",
            ServerUrl(
                (("a", 26380), ("b", 26379)), {"username": "app", "password": "p@w", "db": 3}, primary="main",
                sentinel_settings={},
            ),
        ),
        (
            "rediss+sentinel://a/main?sentinel_username=s&sentinel_password=t&ssl_ca_certs=/ca.pem",
            ServerUrl(
                (("a", 26379),), {"ssl_ca_certs": "/ca.pem", "db": 0}, tls=True, primary="main",
                sentinel_settings={"username": "s", "password": "t"},
            ),
        ),
    ],
)  # fmt: skip
def test_hosts_credentials_and_the_name_of_the_primary_are_told_apart(url: str, found: ServerUrl) -> None:
    assert read_url(url) == found
    for client in (connect(url), async_connect(url)):
        assert client.masters.clustered is (len(found.hosts) > 1 and found.primary is None)


def test_sentinels_get_their_own_credentials_and_little_patience_and_repeat_nothing() -> None:
    url = "rediss+sentinel://app:pw@a:1,b:2/main?sentinel_password=t&ssl_ca_certs=/ca.pem"
    for client in (connect(url), async_connect(url)):
        pool: Any = client.connection_pool
        assert pool.service_name == "main"
        assert {key: pool.connection_kwargs[key] for key in ("username", "password")} == {
            "username": "app",
            "password": "pw",
        }
        assert issubclass(pool.connection_class, (redis.SSLConnection, redis.asyncio.SSLConnection))
        sentinels = pool.sentinel_manager.sentinels
        assert [each.connection_pool.connection_kwargs["host"] for each in sentinels] == ["a", "b"]
        for each in sentinels:
            said = each.connection_pool.connection_kwargs
            assert (said.get("username"), said["password"], said["ssl_ca_certs"]) == (None, "t", "/ca.pem")
            assert said["socket_timeout"] <= 1
            assert said["retry"].get_retries() == 0
            assert issubclass(each.connection_pool.connection_class, (redis.SSLConnection, redis.asyncio.SSLConnection))


def test_a_client_never_repeats_a_command_by_itself() -> None:
    for client in (connect(URL), async_connect(URL)):
        connection = client.connection_pool.make_connection()
        assert connection.retry.get_retries() == 0
        assert connection.retry_on_error == []
        assert connection.retry_on_timeout is False
        assert connection.health_check_interval == 0
        assert connection.protocol == 2


def test_the_socket_waits_longer_than_the_longest_block() -> None:
    assert connect(URL, socket_timeout=5, blocking_timeout=8).get_connection_kwargs()["socket_timeout"] == 9
    assert connect(URL, socket_timeout=5, blocking_timeout=1).get_connection_kwargs()["socket_timeout"] == 5


@pytest.mark.parametrize(
    ("url", "address"),
    [
        (URL, "redis://db.example:6380/2"),
        ("rediss://:pw@h", "rediss://h:6379"),
        ("unix://u:p@/run/r.sock", "unix:///run/r.sock"),
        ("redis://u:p@a:7000,b:7001", "redis://a:7000,b:7001"),
        ("redis+sentinel://u:p@a/main", "the primary 'main' of its Sentinels"),
    ],
)
def test_the_address_of_a_client_names_no_user(url: str, address: str) -> None:
    assert address_of(connect(url)) == address


def demoted() -> rx.ConnectionError:
    """As redis-py tells it of a primary that Sentinels watch."""
    error = rx.ConnectionError("The previous master is now a slave")
    error.__context__ = rx.ReadOnlyError("You can't write against a read only replica.")
    return error


@pytest.mark.parametrize(
    ("error", "kind", "says"),
    [
        (rx.AuthenticationError("Authentication required."), StoreUnreachable, "as :PASSWORD@ before the host"),
        (
            rx.AuthenticationError("invalid username-password pair"),
            StoreUnreachable,
            "refused the user name or password",
        ),
        (
            rx.AuthenticationError("AUTH <password> called without any password configured for the default user."),
            StoreUnreachable,
            "leave it out",
        ),
        (rx.NoPermissionError("User app has no permissions to run 'evalsha'"), StoreUnfit, "'evalsha'): extend its"),
        (rx.ReadOnlyError("You can't write against a read only replica."), StoreUnfit, "URL of its primary"),
        (rx.OutOfMemoryError("command not allowed when used memory > 'maxmemory'."), StoreUnfit, "raise maxmemory"),
        (
            rx.ResponseError("ERR Error running script (f_1): @user_script:1: -OOM command"),
            StoreUnfit,
            "raise maxmemory",
        ),
        (rx.ResponseError("MISCONF Redis is configured to save RDB snapshots"), StoreUnfit, "free disk space"),
        (rx.ResponseError("NOREPLICAS Not enough good replicas to write."), StoreUnfit, "min-replicas-to-write"),
        (rx.BusyLoadingError("Redis is loading the dataset in memory"), StoreUnreachable, "try again in a moment"),
        (rx.MasterDownError("Link with MASTER is down"), StoreUnfit, "URL of the primary"),
        (rx.MovedError("3999 127.0.0.1:6381"), StoreUnreachable, "moving its data"),
        (rx.TryAgainError("Multiple keys request during rehashing of slot"), StoreUnreachable, "moving its data"),
        (
            rx.ClusterDownError("Hash slot not served"),
            StoreUnreachable,
            "not serve all slots now (Hash slot not served)",
        ),
        (rx.ResponseError("SELECT is not allowed in cluster mode"), StoreUnreachable, "leave the number at the end"),
        (rx.ResponseError("This instance has cluster support disabled"), StoreUnfit, "give the URL of one server"),
        (rx.ConnectionError("max number of clients reached"), StoreUnreachable, "raise its maxclients"),
        (rx.ResponseError("DB index is out of range"), StoreUnreachable, "no database with that number"),
        (demoted(), StoreUnfit, "is a read-only replica: give the URL of its primary, or try again"),
        (rx.TimeoutError("Timeout reading from socket"), StoreUnreachable, "did not answer in time: is it Redis"),
        (rx.ConnectionError("Connection closed by server."), StoreUnreachable, "closed the connection"),
        (rx.InvalidResponse("Protocol Error: b'H'"), StoreUnreachable, "does not speak the Redis protocol"),
        (
            chained(rx.ConnectionError("Error 111"), ConnectionRefusedError(errno.ECONNREFUSED, "refused")),
            StoreUnreachable,
            "refused the connection: start it",
        ),
        (chained(rx.ConnectionError("Error"), socket.gaierror(-2, "unknown")), StoreUnreachable, "host name"),
        (
            chained(rx.ConnectionError("Error"), FileNotFoundError(errno.ENOENT, "none")),
            StoreUnreachable,
            "no such socket",
        ),
        (
            chained(rx.ConnectionError("Error"), ssl.SSLError(1, "[SSL: WRONG_VERSION_NUMBER] wrong version number")),
            StoreUnreachable,
            "does not speak TLS",
        ),
        (rx.ResponseError(f"ERR odd, {PASSWORD} redis://:x@h"), StoreError, "answered with an error: ERR odd, ***"),
    ],
)
def test_each_failure_is_one_sentence_that_says_what_to_do(error: Exception, kind: type, says: str) -> None:
    explained = explain(error, URL)
    assert type(explained) is kind
    assert str(explained).startswith("Redis at redis://:***@db.example:6380/2 ")
    assert says in str(explained)
    assert "\n" not in str(explained)
    assert PASSWORD not in str(explained)
    assert "Error(" not in str(explained)


def test_a_silent_server_is_told_with_the_time_that_it_was_waited_for() -> None:
    told = str(explain(rx.TimeoutError("Timeout reading from socket"), URL, 5.04))
    assert told == (
        "Redis at redis://:***@db.example:6380/2 did not answer within 5 s: is it Redis (check host and port),"
        " overloaded, stopped, behind a firewall?"
    )
    assert "in time" in str(explain(rx.TimeoutError("Timeout"), URL, 0.2))


def test_a_replica_that_sentinels_name_is_not_said_to_need_another_url() -> None:
    told = str(explain(demoted(), "redis+sentinel://h/main"))
    assert "is a read-only replica: its Sentinels have not yet found it another primary: try again" in told


def test_an_explained_error_is_not_explained_again() -> None:
    first = StoreUnfit("too old")
    assert explain(first, URL) is first


def test_no_answer_from_a_tls_url_suggests_plain_redis() -> None:
    assert "write redis://" in str(explain(rx.TimeoutError("Timeout"), "rediss://h"))
