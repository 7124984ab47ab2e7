"""What can be read off the scripts and the commands: declared keys, one slot each, nothing newer than Redis 6.2."""

from __future__ import annotations

import math
import re

import pytest

from stepwell.core.status import STATUSES
from stepwell.store import backoffs, finding, letters, merging
from stepwell.store.inbox import START
from stepwell.store.ingress import BuryIngress
from stepwell.store.keys import Keys
from stepwell.store.link import Link
from stepwell.store.namespace import open_namespace, remember
from stepwell.store.requests import DROP, Applied, DeadLetter, Forget, Load, Unlist
from stepwell.store.scripts import SCRIPT_NAMES, Scripts
from stepwell.store.strangers import family_of, keys_of
from stepwell.store.suspects import Loss, SuspectStore

OLDEST = (6, 2, 0)
SOURCES = Scripts().sources
CALL = re.compile(r"redis\.p?call\(\s*(.*?)(?=[,)])(?:,\s*(.*?)(?=[,)]))?")

# Command -> the version that brought it in the form used here (the command reference's "since" and history).
SINCE = {
    "DEL": (1, 0, 0),
    "EVAL": (2, 6, 0),
    "EVALSHA": (2, 6, 0),
    "EXISTS": (1, 0, 0),
    "GET": (1, 0, 0),
    "HDEL": (2, 4, 0),
    "HGETALL": (2, 0, 0),
    "HKEYS": (2, 0, 0),
    "HGET": (2, 0, 0),
    "HSCAN": (2, 8, 0),
    "HMGET": (2, 0, 0),
    "HSET": (4, 0, 0),
    "HSETNX": (2, 0, 0),
    "INCR": (1, 0, 0),
    "PEXPIRE": (2, 6, 0),
    "PTTL": (2, 6, 0),
    "PUBLISH": (2, 0, 0),
    "SCRIPT": (2, 6, 0),
    "SADD": (1, 0, 0),
    "SET": (2, 6, 12),
    "SMEMBERS": (1, 0, 0),
    "SREM": (1, 0, 0),
    "TIME": (2, 6, 0),
    "XACK": (5, 0, 0),
    "XADD": (5, 0, 0),
    "XAUTOCLAIM": (6, 2, 0),
    "XCLAIM": (5, 0, 0),
    "XDEL": (5, 0, 0),
    "XGROUP": (5, 0, 0),
    "XINFO": (5, 0, 0),
    "XLEN": (5, 0, 0),
    "XPENDING": (5, 0, 0),
    "XRANGE": (5, 0, 0),
    "XREAD": (5, 0, 0),
    "XREADGROUP": (5, 0, 0),
    "XREVRANGE": (5, 0, 0),
    "XTRIM": (5, 0, 0),
    "ZADD": (1, 2, 0),
    "ZCARD": (1, 2, 0),
    "ZCOUNT": (2, 0, 0),
    "ZRANGE": (2, 0, 0),
    "ZRANGEBYSCORE": (2, 0, 0),
    "ZREM": (1, 2, 0),
    "ZREVRANGEBYSCORE": (2, 2, 0),
    "ZSCAN": (2, 8, 0),
}
KEYLESS = {"PUBLISH"}


def calls(name):
    """Command and first argument of each redis.call in a script."""
    code = "\n".join(line.partition("--")[0] for line in SOURCES[name].splitlines())
    code = re.sub(r"('XGROUP'), '[A-Z]+'", r"\1", code)  # its subcommand comes before its key
    found = [(command, first) for command, first in CALL.findall(code)]
    assert len(found) == code.count("redis.call") + code.count("redis.pcall")
    return found


@pytest.mark.parametrize("name", SCRIPT_NAMES)
def test_a_script_names_its_commands_literally_and_none_is_newer_than_6_2(name):
    for command, _ in calls(name):
        assert re.fullmatch(r"'[A-Z]+'", command), f"{name}: {command} is not a literal"
        assert SINCE[command.strip("'")] <= OLDEST


@pytest.mark.parametrize("name", SCRIPT_NAMES)
def test_a_script_touches_only_declared_keys(name):
    for command, first in calls(name):
        assert command.strip("'") in KEYLESS or re.fullmatch(r"KEYS\[\w+\]", first), f"{name}: {command} on {first}"


@pytest.mark.parametrize("name", SCRIPT_NAMES)
def test_a_script_documents_keys_arguments_and_answers(name):
    header = SOURCES[name].split("\n\n", 1)[0]
    assert header.startswith(f"-- {name}: ")
    for word in ("-- KEYS ", "-- ARGV ", "-- Answers"):
        assert word in header


@pytest.mark.parametrize("name", SCRIPT_NAMES)
def test_a_script_has_no_global_no_table_codec_and_no_clock(name):
    for word in ("cjson", "cmsgpack", "'TIME'", "math.random", "redis.setresp", "os."):
        assert word not in SOURCES[name]


@pytest.mark.parametrize("name", SCRIPT_NAMES)
def test_a_script_unpacks_in_chunks_only(name):
    assert "unpack(ARGV)" not in SOURCES[name]
    assert "unpack(KEYS)" not in SOURCES[name]


def _exercise(store):
    """Calls everything that the store can do."""
    store.client.script_flush()
    applied = [store.command(), Applied("1-1")]
    requests = [
        store.create(event=b"1"),
        store.commit(),
        store.commit(expected_rev=2, commit_id="c2", status_from="running", dels=["x"], live="5"),
        store.commit(
            expected_rev=3, commit_id="c3", applied=applied, event=b"1", status_to="completed", live=DROP, ended=True
        ),
        store.restore(),
        store.restore("e2", live=DROP, ended=True),
        store.dead_letter(store.inbox.send(0, {"a": "b"})),
        store.dead_letter(store.inbox.send(0, {"a": "b"}), command_id="c", outcome=b"1"),
        BuryIngress("1-1", "odd", "why", 1),
        Unlist(store.keys.partition_of("ghost"), "ghost", store.lease, ["checkout"]),
        Forget(0, store.lease, ["x:e1"]),
        store.commit(expected_rev=9, commit_id="c9", forget="xi"),
        store.commit(expected_rev=10, commit_id="c10", forget="xi", flow="checkout", backoff="5"),
        Load("e1"),
    ]
    replies = store.link.execute(requests)
    for part in store.keys.parts:
        store.client.delete(part.lease)
    grants = store.leases.acquire([0, 1], "w", "i", "h", 1000)
    store.leases.renew(grants, 1000)
    store.leases.release(grants)
    store.leases.free(0, "x")
    store.leases.read([0])
    suspects = SuspectStore(store.client, store.keys, store.scripts)
    suspects.reap([Loss(0, grants[0].value, grants[0].epoch, {}, ("e1",), ("1-1",))], "b0", "it died")
    suspects.read(0)
    store.inbox.read({0: START}, 1, 1)
    store.inbox.due(0, 1, 1)
    list(store.inbox.unfinished(0))
    store.inbox.parked([0, 1])
    store.inbox.falling_due({0: (-math.inf, 5.0), 1: (1.0, math.inf)})
    store.inbox.last_event_ms([0, 1])
    store.inbox.count(dict.fromkeys((0, 1), START), [(0, "1-1")])
    of = {0: ["checkout"], 1: ["checkout"]}
    for query in (backoffs.flows(store.keys, [0, 1]), backoffs.backoffs(store.keys, of, 3)):
        store.link.call(query.commands)
    store.inbox.lengths()
    catalog = store.catalog
    catalog.row("e1"), catalog.rows(["e1"]), catalog.heads(["e1"], ["rev"]), catalog.outcome(0, "x")
    wanted = finding.Wanted("error", "checkout", "E", (("a", "1"),))
    store.link.call(finding.sizes(store.keys, wanted).commands)
    lists = [*finding.lists_of_choice(store.keys, wanted, "a0"), *backoffs.lists(store.keys, of, "checkout")]
    for order in (merging.LatestFirst(wanted), merging.SoonestFirst()):
        store.link.call(merging.Merge(lists, order, None, 5).missing(5))
    store.link.call([backoffs.scan(store.keys, "e1"), backoffs.attempt_of(store.keys, "e1", "charge", 1)])
    catalog.dead(5), catalog.counts(), catalog.create(store.create("e3"))
    for letter in (store.catalog.dead(1)[0], store.catalog.dead(1)[0]):
        place = (letter.source, letter.letter_id)
        queries = [letters.letter(store.keys, *place), letters.replay(store.keys, store.scripts, *place)]
        for query in (*queries, letters.drop(store.keys, *place)):
            store.link.call(query.commands)
    ingress = store.ingress
    ingress.ensure(), ingress.read(1, 1), ingress.mine("0-0", 1), ingress.claim(1, 1), ingress.oldest()
    store.client.xadd(store.keys.ingress, {"a": "b"})
    ingress.adopt(), ingress.finish([ingress.read(None, 1)[0].entry_id]), ingress.idlers(1), ingress.leave()
    store.workers.beat("w", b'{"at":1}')
    store.workers.living(1)
    store.workers.forget_silent(10**9)
    store.workers.remove("w")
    remember(store.link, open_namespace(store.client, "n", new_secret=lambda: b"s" * 32))
    return replies


@pytest.fixture
def sent(store, monkeypatch):
    """Every command that the store sends while doing all it can."""
    commands = []
    original = Link._round_trip

    def record(self, batch):
        commands.extend(batch)
        return original(self, batch)

    monkeypatch.setattr(Link, "_round_trip", record)
    _exercise(store)
    return commands


@pytest.mark.one_server
def test_the_store_sends_nothing_newer_than_6_2(sent):
    names = {command[0] for command in sent}
    assert names >= {"EVALSHA", "XREAD", "ZSCAN", "SCRIPT", "HSETNX"}
    assert {name for name in names if SINCE[name] > OLDEST} == set()


@pytest.mark.one_server
def test_each_command_with_several_keys_of_one_script_has_one_hash_tag(sent, store):
    scripts = {command[1]: command for command in sent if command[0] == "EVALSHA"}
    assert set(scripts) == {getattr(store.scripts, name) for name in SCRIPT_NAMES}
    for command in (command for command in sent if command[0] == "EVALSHA"):
        keys = command[3 : 3 + command[2]]
        # What has no braces lies where its whole name hashes to, and so does what has that name in braces.
        assert len({(re.search(r"\{(.+?)\}", key) or [key, key])[1] for key in keys}) == 1, keys


@pytest.mark.one_server
def test_it_is_known_of_each_key_that_a_command_names_what_belongs_there(sent):
    unknown = {(command[0], key) for command in sent for key in keys_of(command) if family_of(key) is None}
    assert unknown == set()


def test_every_key_name_comes_from_the_keys_module():
    keys = Keys("t", 4)
    part = keys.parts[2]
    assert [keys.inbox(2), keys.live(2), keys.lease(2), keys.epoch(2), keys.seq(2), keys.outbox(2)] == [
        f"{{t:2}}:{name}" for name in ("inbox", "live", "lease", "epoch", "seq", "outbox")
    ]
    assert [keys.suspects(2), keys.dead(2), keys.events(2)] == ["{t:2}:suspects", "{t:2}:dead", "{t:2}:events"]
    assert [keys.by(2, status) for status in STATUSES] == [f"{{t:2}}:by:{status}" for status in STATUSES]
    assert keys.cmd(2, "c") == part.cmd + "c" == "{t:2}:cmd:c"
    assert keys.command_done(2, "c") == "{t:2}:done:c"
    owner = keys.partition_of("e1")
    assert (keys.row("e1"), keys.ended("e1")) == (f"{{t:{owner}}}:x:e1", f"{{t:{owner}}}:ended:e1")
    assert (keys.meta, keys.workers, keys.ingress, keys.code("ff")) == ("t:meta", "t:workers", "t:ingress", "t:code:ff")
    assert keys.ingress_dead == "{t:ingress}:dead"


def test_a_partition_is_where_redis_cluster_would_hash_the_id():
    # CLUSTER KEYSLOT 123456789 is 12739, the check value 0x31C3 of CRC16/XMODEM.
    assert Keys("t", 16384).partition_of("123456789") == 12739
    assert Keys("t", 64).partition_of("123456789") == 12739 % 64


def test_a_commit_names_only_the_keys_it_uses():
    keys, scripts = Keys("t", 4), Scripts()
    from stepwell.store.requests import Commit

    plain = Commit(0, "e", "l", 1, "c", 1, [], "running", "running")
    assert plain.args(keys, scripts)[2] == 4
    plain.event = b"1"
    assert plain.args(keys, scripts)[2] == 4
    plain.status_to = "waiting"
    plain.flow, plain.attributes = "checkout", {"customer": "c7", "vip": True}
    assert plain.args(keys, scripts)[2] == 8, "its time is the same, and so are its places"
    plain.applied = [Applied("1-1"), Applied("1-2", "c1", b"1")]
    assert plain.args(keys, scripts)[2] == 9
    plain.forget = "x"
    assert plain.args(keys, scripts)[2] == 10
    plain.backoff = DROP
    assert plain.args(keys, scripts)[2] == 12
    plain.applied, plain.forget = (), ""
    assert plain.args(keys, scripts)[2] == 10
    plain.status_to, plain.place = "error", (2, "ValueError")
    assert plain.args(keys, scripts)[2] == 14
    plain.status_from, plain.place_before, plain.place = "error", (2, "ValueError"), (3, "ValueError")
    assert plain.args(keys, scripts)[2] == 13, "it failed again, in the turn that began with its retry"
    plain.status_to, plain.place = "running", (1, "")
    assert plain.args(keys, scripts)[2] == 14
    assert DeadLetter(0, "l", "1-1", "k", "r", 1).args(keys, scripts)[2] == 3
