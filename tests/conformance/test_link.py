"""The link: replies in order, scripts that the server forgot, connections that break, answers sorted."""

from __future__ import annotations

from unittest.mock import ANY

import fakeredis
import pytest
import redis
from redis.backoff import NoBackoff
from redis.exceptions import (
    BusyLoadingError,
    ClusterDownError,
    MasterDownError,
    OutOfMemoryError,
    ReadOnlyError,
    ResponseError,
    TryAgainError,
)
from redis.retry import Retry

from stepwell.core.errors import StoreError, StoreUnreachable
from stepwell.store.link import Link, LinkDown, StoreRefused
from stepwell.store.replies import Broken, Refused, decoded, failure, scored
from stepwell.store.requests import Committed, Conflict, Created, Exists, Load, Loaded
from stepwell.store.scripts import Scripts


class LossyConnection:
    """A connection that breaks instead of giving its reply number `lost`."""

    def __init__(self, real, lost):
        self.real, self.left, self.closed = real, lost, False
        self.send_packed_command = real.send_packed_command

    def disconnect(self):
        self.closed = True
        self.real.disconnect()

    def read_response(self, **options):
        if self.left == 0:
            raise redis.ConnectionError("reset by test")
        self.left -= 1
        return self.real.read_response(**options)


class LossyClient:
    """A client whose next connection breaks after `lost` replies; later ones are whole."""

    def __init__(self, real, lost):
        self.real, self.lost = real, lost
        self.connection_pool = self
        self.get_connection_kwargs = real.get_connection_kwargs
        self.released = []

    def get_connection(self):
        connection = self.real.connection_pool.get_connection()
        lost, self.lost = self.lost, None
        return connection if lost is None else LossyConnection(connection, lost)

    def release(self, connection):
        self.released.append(connection)
        self.real.connection_pool.release(getattr(connection, "real", connection))


def test_replies_come_in_the_order_of_the_requests(store):
    ids = [f"e{n}" for n in range(50)]
    replies = store.link.execute([store.create(each) for each in ids] + [store.create(each) for each in ids])
    assert replies == [Created()] * 50 + [Exists("checkout", "h1", "queued")] * 50
    loaded = store.link.execute([Load("e7"), store.commit("e7"), Load("missing"), store.commit("missing"), Load("e7")])
    assert loaded[1:4] == [Committed(seq=ANY), Loaded({}), Conflict(-1, "")]
    assert (loaded[0].fields["rev"], loaded[4].fields["rev"]) == (b"1", b"2")


def test_nothing_asked_is_nothing_sent(store):
    assert store.link.execute([]) == []


def test_scripts_that_the_server_forgot_are_loaded_and_only_the_refused_requests_sent_again(store):
    store.execute(store.create())
    store.client.script_flush()
    store.client.script_load(store.scripts.sources["create"])
    replies = store.link.execute([store.create("e2"), store.commit("e1"), store.create("e2"), Load("e1")])
    assert replies[:3] == [Created(), Committed(seq=ANY), Exists("checkout", "h1", "queued")]
    assert store.row("e1")["rev"] == b"2"


@pytest.mark.pain(56)
def test_a_server_that_forgets_its_scripts_as_soon_as_they_are_loaded_holds_nothing_up(store, monkeypatch):
    monkeypatch.setattr(Scripts, "load_commands", lambda _scripts: [["SCRIPT", "FLUSH"]])
    store.client.script_flush()
    assert store.link.execute([store.create("e1"), store.create("e2")]) == [Created()] * 2
    store.client.script_flush()
    assert store.execute(store.commit("e1")) == Committed(seq=ANY)


@pytest.mark.one_server
@pytest.mark.parametrize("lost", [0, 1, 2])
def test_a_broken_connection_leaves_the_whole_batch_unknown_and_repeating_it_is_safe(store, lost):
    store.link.execute([store.create(each) for each in ("e1", "e2", "e3")])
    batch = [store.commit(each) for each in ("e1", "e2", "e3")]
    link = Link(LossyClient(store.client, lost), store.keys, store.scripts)
    with pytest.raises(LinkDown, match=f"after {lost} of 3 replies"):
        link.execute(batch)
    assert link.execute(batch) == [Committed(dup=True, seq=ANY)] * 3
    assert [store.row(each)["rev"] for each in ("e1", "e2", "e3")] == [b"2"] * 3


def test_a_broken_connection_goes_back_to_the_pool_closed_so_no_stale_reply_is_read(store):
    client = LossyClient(store.client, 0)
    link = Link(client, store.keys, store.scripts)
    with pytest.raises(LinkDown):
        link.execute([Load("stale"), Load("stale")])
    assert client.released[0].closed
    assert link.call([["ECHO", "fresh"]]) == [b"fresh"]


def test_no_server_is_a_link_that_is_down():
    client = redis.Redis(unix_socket_path="/nonexistent/socket", retry=Retry(NoBackoff(), 0))
    with pytest.raises(StoreUnreachable, match="no connection"):
        Link(client, None, None).call([["PING"]])


def test_a_value_that_can_not_be_packed_sends_nothing(store):
    store.execute(store.create())
    before = store.dump()
    with pytest.raises(TypeError):
        store.link.execute([store.commit(), store.commit("e2", sets=[("x", object())])])
    assert store.dump() == before


def test_a_client_that_repeats_by_itself_or_decodes_is_refused(store):
    for options in ({"retry": Retry(NoBackoff(), 3)}, {"retry_on_error": [ResponseError]}, {"decode_responses": True}):
        client = redis.Redis(**{"retry": Retry(NoBackoff(), 0), **options})
        with pytest.raises(ValueError, match="Redis client"):
            Link(client, store.keys, store.scripts)


@pytest.mark.one_server
@pytest.mark.parametrize("protocol", [2, 3])
def test_both_protocols_give_the_same_answers(store, protocol):
    if isinstance(store.client, fakeredis.FakeRedis):
        client = fakeredis.FakeRedis(
            connection_pool=None, server=store.client.connection_pool.connection_kwargs["server"]
        )
        client.connection_pool.connection_kwargs["protocol"] = protocol
    else:
        path = store.client.get_connection_kwargs()["path"]
        client = redis.Redis(unix_socket_path=path, retry=Retry(NoBackoff(), 0), protocol=protocol)
    other = type(store)(lambda: client)
    other.execute(other.create())
    partition = other.keys.partition_of("e1")
    other.execute(other.commit(live="+inf", applied=[other.command()]))
    assert other.row()["status"] == b"running"
    assert list(other.inbox.unfinished(partition)) == [[("e1", float("inf"))]]
    assert [entry.fields["type"] for entry in other.inbox.scan(partition, "0-0", 9)] == [b"start"]
    (raw,) = other.link.call([["ZREVRANGEBYSCORE", other.keys.by(partition, "running"), "+inf", 0, "WITHSCORES"]])
    assert scored(raw) == [("e1", other.now)]
    assert other.catalog.outcome(partition, "cmd1").outcome == b'{"ok":true}'
    client.close()


@pytest.mark.parametrize(
    ("message", "kind"),
    [
        ("MISCONF Redis is configured to save RDB snapshots", "MISCONF"),
        ("BUSY Redis is busy running a script.", "BUSY"),
        ("NOREPLICAS Not enough good replicas to write.", "NOREPLICAS"),
        ("Error running script (call to f_1): @user_script:5: @user_script: 5: -OOM command not allowed", "OOM"),
        ("Error running script (call to f_1): @user_script:9: @user_script: 9: -READONLY You can't write", "READONLY"),
        ("READONLY You can't write against a read only replica. script: 1, on @user_script:5.", "READONLY"),
    ],
)
def test_errors_that_may_pass_are_told_from_those_that_do_not(message, kind):
    assert failure(ResponseError(message)) == Refused(message, kind)


@pytest.mark.parametrize(
    ("error", "kind"),
    [
        (OutOfMemoryError("not allowed"), "OOM"),
        (ReadOnlyError("You can't write"), "READONLY"),
        (BusyLoadingError("is loading"), "LOADING"),
        (MasterDownError("Link is down"), "MASTERDOWN"),
        (ClusterDownError("Hash slot not served"), "CLUSTERDOWN"),
        (TryAgainError("Multiple keys"), "TRYAGAIN"),
    ],
)
def test_an_error_whose_code_the_client_took_off_is_still_known(error, kind):
    assert failure(error) == Refused(str(error), kind)


@pytest.mark.parametrize("message", ["WRONGTYPE Operation", "", "ERR -OOM is mentioned", "OOMPH", "value is READONLY"])
def test_other_errors_are_faults(message):
    assert failure(ResponseError(message)) == Broken(message)


def test_an_answer_of_a_strange_shape_is_a_fault_and_no_exception(store):
    commit, load, create = store.commit(), Load("e1"), store.create()
    for odd in (None, b"", b"HUH", 7.5, [], [b"HUH"], [b"CONFLICT"], [b"CONFLICT", b"x", b""], {}, [b"FENCED"]):
        assert isinstance(commit.parse(odd), Broken)
        assert isinstance(create.parse(odd), Broken)
    assert isinstance(load.parse([b"odd"]), Broken)
    assert isinstance(decoded(3, lambda items: Committed(seq=ANY)), Broken)


def test_plain_calls_raise_what_the_caller_can_act_on(store):
    store.client.set("text", "x")
    with pytest.raises(StoreError, match="another type than expected"):
        store.link.call([["GET", "text"], ["HGETALL", "text"]])
    assert store.link.call([["GET", "text"]]) == [b"x"]


@pytest.mark.one_server
@pytest.mark.real_server
def test_a_plain_call_on_a_full_server_says_so(store):
    store.client.config_set("maxmemory", "1")
    try:
        with pytest.raises(StoreRefused, match="OOM") as refused:
            store.inbox.send(0, {"type": "signal"})
    finally:
        store.client.config_set("maxmemory", "0")
    assert refused.value.kind == "OOM"


def test_the_types_of_foreign_keys_are_asked_for_once_for_all_replies_that_have_them(store, monkeypatch):
    store.link.client.rpush(store.keys.row("e1"), "a stranger's")
    store.execute(store.create("e2"))
    sent = []
    exchange = store.link._exchange
    monkeypatch.setattr(store.link, "_exchange", lambda commands: sent.append(commands) or exchange(commands))
    rows = [store.keys.row(each) for each in ("e1", "e2", "e1", "e1")]
    first, second, *rest = store.link.call_each([["HGET", row, "status"] for row in rows])
    assert isinstance(first, Broken)
    assert f"the key {rows[0]!r} in Redis is a list, not the hash" in first.message
    assert (second, rest) == (b"queued", [first, first])
    assert sent[1:] == [[["TYPE", rows[0]]]]
    del sent[:]
    replies = store.link.execute([Load("e1"), Load("e2"), Load("e1")])
    assert [isinstance(each, Broken) and rows[0] in each.message for each in replies] == [True, False, True]
    assert len(sent) == 2
