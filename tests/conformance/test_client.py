"""The clients on real connections: races, subscriptions, lost connections, passwords."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import AsyncIterator, Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import asynccontextmanager

import fakeredis
import pytest
import redis
import redis.asyncio
from redis.asyncio.retry import Retry as AsyncRetry
from redis.backoff import NoBackoff
from redis.retry import Retry

from stepwell.client import AsyncClient, Client
from stepwell.client.repeats import FAILOVER_SECONDS
from stepwell.core import records
from stepwell.core.errors import (
    CommandRefused,
    ExecutionExists,
    ExecutionFailed,
    StoreUnfit,
    StoreUnreachable,
    UnknownExecution,
    UsageError,
)
from stepwell.store.inbox import START, InboxStore

pytestmark = pytest.mark.one_server
URL = "redis://:s3cret@example.invalid"
HANG = 300.0  # longer than any test may take
HOUR_MS = 3_600_000


@pytest.fixture
def client(store):
    with Client(URL, namespace="t", partitions=4, connect=lambda url: store.connect()) as made:
        yield made


@pytest.fixture
def async_client(store) -> Callable[[], AsyncIterator[AsyncClient]]:
    """`async with async_client() as client`, on the server of the store."""
    kwargs = store.client.connection_pool.connection_kwargs

    def connect(url: str) -> redis.asyncio.Redis:
        retry = AsyncRetry(NoBackoff(), 0)
        if isinstance(store.client, fakeredis.FakeRedis):
            return fakeredis.FakeAsyncRedis(server=kwargs["server"], retry=retry, max_connections=100)
        return redis.asyncio.Redis(unix_socket_path=kwargs["path"], retry=retry, max_connections=100)

    @asynccontextmanager
    async def opened() -> AsyncIterator[AsyncClient]:
        async with AsyncClient(URL, namespace="t", partitions=4, connect=connect) as made:
            yield made

    return opened


def end(store, execution_id="e1", status="completed", **fields):
    """What an owner's last commit does, as far as a waiting client sees it."""
    store.client.hset(store.keys.row(execution_id), mapping={"status": status, **fields})
    store.client.publish(store.keys.ended(execution_id), status)


def let_a_worker_live(store):
    """As far as anybody can tell, for longer than a test takes."""
    store.workers.beat("w1", b'{"at": %d}' % (store.leases.server_time_ms() + HOUR_MS))


def when_somebody_listens(store, pattern, action):
    """Do something in a thread as soon as a channel has a subscriber."""

    def watch():
        other = store.connect()
        while not (channels := other.pubsub_channels(pattern)):
            pass
        action(channels[0].decode())

    thread = threading.Thread(target=watch, daemon=True)
    thread.start()
    return thread


def apply_command(store, applied=True, reason=""):
    """Answer the next command to e1 when its sender listens."""
    partition = store.keys.partition_of("e1")
    known = len(store.inbox.scan(partition, START, 1000))

    def apply():
        inbox = InboxStore(store.connect(), store.keys, store.scripts)
        while not (new := inbox.scan(partition, START, 1000)[known:]):
            pass
        command_id = new[0].fields["command"].decode()
        channel = store.keys.command_done(partition, command_id)
        while not store.client.pubsub_numsub(channel)[0][1]:
            pass
        outcome = records.encode(records.Outcome(applied, "running", reason))
        store.client.hset(store.keys.cmd(partition, command_id), mapping={"outcome": outcome, "at": 1})
        store.client.publish(channel, outcome)

    thread = threading.Thread(target=apply, daemon=True)
    thread.start()
    return thread


def test_clients_that_start_one_id_at_the_same_moment_get_one_execution(store):
    gate = threading.Barrier(8)

    def race(n):
        with Client(URL, namespace="t", partitions=4, connect=lambda url: store.connect()) as mine:
            mine.workers()
            gate.wait(HANG)
            return mine.start("checkout", {"n": 1}, "e1")

    with ThreadPoolExecutor(8) as pool:
        assert list(pool.map(race, range(8))) == ["e1"] * 8
    assert store.inbox.lengths()[store.keys.partition_of("e1")] == 1
    assert store.row()["rev"] == b"1"


def test_clients_that_race_with_different_inputs_get_one_execution_and_errors(store, client):
    gate = threading.Barrier(8)

    def race(n):
        gate.wait(HANG)
        try:
            return client.start("checkout", {"n": n}, "e1")
        except ExecutionExists:
            return None

    with ThreadPoolExecutor(8) as pool:
        assert sorted(map(str, pool.map(race, range(8)))) == ["None"] * 7 + ["e1"]


def test_a_published_end_wakes_whoever_waits(store, client):
    client.start("checkout", {"n": 1}, "e1")
    thread = when_somebody_listens(store, "*:ended:e1", lambda channel: end(store, result=b'{"ok":true}'))
    assert client.result("e1", HANG) == {"ok": True}
    thread.join(HANG)


def test_threads_that_share_a_client_wait_for_their_own_executions(store, client):
    for n in range(12):
        client.start("checkout", {"n": n}, f"own{n}")

    def finish():
        other = store.connect()
        while len(other.pubsub_channels("*:ended:own*")) < 12:
            pass
        for n in range(12):
            end(store, f"own{n}", result=str(n).encode())

    thread = threading.Thread(target=finish, daemon=True)
    thread.start()
    with ThreadPoolExecutor(12) as pool:
        assert list(pool.map(lambda n: client.result(f"own{n}", HANG), range(12))) == list(range(12))
    thread.join(HANG)


def test_subscriptions_are_used_again_and_none_is_left_behind(store, client):
    for each in (f"again{n}" for n in range(30)):
        client.start("checkout", {}, each)
        thread = when_somebody_listens(store, f"*:{each}", lambda _, each=each: end(store, each, result=b"1"))
        assert client.result(each, HANG) == 1
        thread.join(HANG)
    assert len(client._wire._idle) == 1
    # Nobody waited for the reply to the last UNSUBSCRIBE.
    while store.client.pubsub_channels("*:ended:again*"):
        pass


def test_a_command_is_answered_by_whoever_applies_it(store, client):
    let_a_worker_live(store)
    client.start("checkout", {"n": 1}, "e1")
    thread = apply_command(store)
    assert client.signal("e1", "approval", {"by": "me"}, HANG).applied is True
    thread.join(HANG)
    thread = apply_command(store, applied=False, reason="it has ended")
    with pytest.raises(CommandRefused, match="it has ended"):
        client.retry("e1", HANG)
    thread.join(HANG)


def test_the_scripts_are_loaded_again_when_the_server_forgot_them(store, client, async_client):
    async def start() -> str:
        async with async_client() as other:
            return await other.start("checkout", {"n": 1}, "e2")

    for begin in (lambda: client.start("checkout", {"n": 1}, "e1"), lambda: asyncio.run(start())):
        store.client.script_flush()
        begin()
    assert {line["id"] for line in client.list()} == {"e1", "e2"}


def test_the_asyncio_client_does_what_the_blocking_one_does(store, client, async_client):
    let_a_worker_live(store)

    async def use() -> None:
        async with async_client() as other:
            assert await other.start("checkout", {"n": 1}, "e1") == "e1"
            assert await other.describe("e1") == client.describe("e1")
            assert await other.list("queued") == client.list("queued")
            assert await other.start("checkout", {"n": 1}, "e2", attributes={"plan": "pro"}) == "e2"
            page = await other.list(flow="checkout", attributes={"plan": "pro"}, since="1h ago", limit=1)
            assert ([line["id"] for line in page], page.cursor) == (["e2"], None)
            assert ([worker["id"] for worker in await other.workers()], await other.dead_letters()) == (["w1"], [])
            with pytest.raises(UnknownExecution):
                await other.result("e9")
            with pytest.raises(TimeoutError, match="it is queued"):
                await other.result("e1", 0.05)
            thread = apply_command(store, applied=False, reason="no")
            with pytest.raises(CommandRefused, match="no"):
                await other.cancel("e1", HANG)
            thread.join(HANG)
            thread = apply_command(store)
            assert (await other.signal("e1", "go", 1, HANG)).status == "running"
            thread.join(HANG)
            error = records.encode(records.TerminalError("ValueError", "bad", 1))
            thread = when_somebody_listens(store, "*:ended:e1", lambda channel: end(store, status="error", error=error))
            with pytest.raises(ExecutionFailed, match="ValueError: bad"):
                await other.result("e1", HANG)
            thread.join(HANG)
        with pytest.raises(UsageError, match="closed"):
            await other.list()

    asyncio.run(use())


def test_a_thousand_tasks_wait_at_once(store, async_client):
    """All on one connection, beside those that ask: a client may have a hundred."""
    number = 150 if isinstance(store.client, fakeredis.FakeRedis) else 1000

    async def use() -> None:
        async with async_client() as other:
            ids = [f"task{n}" for n in range(number)]
            await asyncio.gather(*(other.start("checkout", {"n": n}, each) for n, each in enumerate(ids)))
            waits = [asyncio.create_task(other.result(each, HANG)) for each in ids]
            twice = asyncio.create_task(other.result(ids[0], HANG))
            while len(store.client.pubsub_channels("*:ended:task*")) < number:
                await asyncio.sleep(0)
            if not isinstance(store.client, fakeredis.FakeRedis):
                assert len(store.client.client_list(_type="pubsub")) == 1
            for n, each in enumerate(ids):
                end(store, each, result=str(n).encode())
            assert await asyncio.gather(*waits) == list(range(number))
            assert await twice == 0
            while store.client.pubsub_channels("*:ended:task*"):
                await asyncio.sleep(0)
            await other.start("checkout", {"n": 1}, "late")
            late = asyncio.create_task(other.result("late", HANG))
            while not store.client.pubsub_channels("*:ended:late"):
                await asyncio.sleep(0)
            end(store, "late", result=b"7")
            assert await late == 7

    asyncio.run(use())


@pytest.mark.real_server
def test_tasks_whose_connection_is_cut_listen_anew(store, async_client):
    async def use() -> None:
        async with async_client() as other:
            ids = [await other.start("checkout", {"n": n}, f"task{n}") for n in range(20)]
            waits = [asyncio.create_task(other.result(each, HANG)) for each in ids]
            for turns in range(8):
                while len(store.client.pubsub_channels("*:ended:task*")) < len(ids):
                    await asyncio.sleep(0)
                ids.append(await other.start("checkout", {"n": len(ids)}, f"task{len(ids)}"))
                store.client.client_kill_filter(_type="pubsub")
                for _ in range(turns):
                    await asyncio.sleep(0)
                waits.append(asyncio.create_task(other.result(ids[-1], HANG)))
            while len(store.client.pubsub_channels("*:ended:task*")) < len(ids):
                await asyncio.sleep(0)
            assert len(store.client.client_list(_type="pubsub")) == 1
            for n, each in enumerate(ids):
                end(store, each, result=str(n).encode())
            assert await asyncio.gather(*waits) == list(range(len(ids)))

    asyncio.run(use())


def test_who_waits_is_told_that_the_client_was_closed(store, async_client):
    async def use() -> None:
        async with async_client() as other:
            await other.start("checkout", {"n": 1}, "e1")
            wait = asyncio.create_task(other.result("e1", HANG))
            while not store.client.pubsub_channels("*:ended:e1"):
                await asyncio.sleep(0)
            await other.close()
            with pytest.raises(UsageError, match="this client is closed"):
                await wait

    asyncio.run(use())


@pytest.mark.real_server
def test_a_cancelled_wait_leaves_the_client_usable_and_no_subscription(store, async_client):
    async def use() -> None:
        async with async_client() as other:
            await other.start("checkout", {"n": 1}, "e1")
            for turns in range(30):
                wait = asyncio.create_task(other.result("e1"))
                for _ in range(turns):
                    await asyncio.sleep(0)
                    store.client.ping()
                wait.cancel()
                with pytest.raises(asyncio.CancelledError):
                    await wait
            while store.client.pubsub_channels("*:ended:e1"):
                await asyncio.sleep(0)
            assert await other.start("checkout", {"n": 1}, "e1") == "e1"

    asyncio.run(use())


def test_a_closed_client_says_so_and_closing_twice_is_harmless(store):
    client = Client(URL, namespace="t", connect=lambda url: store.connect())
    client.close()
    client.close()
    with pytest.raises(UsageError, match="closed"):
        client.list()


@pytest.mark.real_server
@pytest.mark.pain(11)
def test_both_clients_wait_for_the_end_of_a_failover(store, client, async_client):
    """A former primary refuses writes; by the next try it, or whoever is at its address, is one again."""
    pauses = []

    def demote():
        store.client.execute_command("REPLICAOF", "127.0.0.1", "1")

    def pause(seconds):
        pauses.append(seconds)
        if len(pauses) % 3 == 0:
            store.client.execute_command("REPLICAOF", "NO", "ONE")

    async def async_pause(seconds):
        pause(seconds)

    async def start():
        async with async_client() as other:
            other._wire._sleep = async_pause
            return await other.start("checkout", {"n": 1}, "e2")

    client.start("checkout", {"n": 1}, "e0")
    client._wire._sleep = pause
    demote()
    assert client.start("checkout", {"n": 1}, "e1") == "e1"
    demote()
    assert asyncio.run(start()) == "e2"
    assert pauses == [0.05, 0.1, 0.2] * 2


@pytest.mark.real_server
def test_a_server_that_stays_read_only_is_told_in_the_end(store, client):
    client.start("checkout", {"n": 1}, "e0")
    waited = []
    client._wire._sleep = waited.append
    store.client.execute_command("REPLICAOF", "127.0.0.1", "1")
    try:
        with pytest.raises(StoreUnfit, match="is a read-only replica: give the URL of its primary, or try again"):
            client.start("checkout", {"n": 1}, "e1")
    finally:
        store.client.execute_command("REPLICAOF", "NO", "ONE")
    assert sum(waited) == pytest.approx(FAILOVER_SECONDS)


@pytest.mark.real_server
def test_connections_that_are_cut_while_somebody_waits_are_made_again(store, client):
    client.start("checkout", {"n": 1}, "e1")

    def cut(channel):
        other = store.connect()
        for _ in range(5):
            me = other.client_id()
            for each in other.client_list():
                if int(each["id"]) != me:
                    other.client_kill_filter(_id=each["id"])
            while not other.pubsub_channels("*:ended:e1"):
                pass
        end_on = store.connect()
        end_on.hset(store.keys.row("e1"), mapping={"status": "completed", "result": b"1"})
        end_on.publish(channel, "completed")

    thread = when_somebody_listens(store, "*:ended:e1", cut)
    assert client.result("e1", HANG) == 1
    thread.join(HANG)


@pytest.mark.real_server
@pytest.mark.parametrize("command", ["start", "list", "describe"])
def test_a_wrong_password_is_one_clear_sentence_without_it(store, command):
    socket = store.client.connection_pool.connection_kwargs["path"]
    store.client.config_set("requirepass", "right")
    try:
        wrong = Client(
            URL,
            namespace="t",
            connect=lambda url: redis.Redis(unix_socket_path=socket, password="s3cret", retry=Retry(NoBackoff(), 0)),
        )
        with wrong, pytest.raises(StoreUnreachable, match="refused the user name or password") as caught:
            getattr(wrong, command)(*["checkout"][: command != "list"])
    finally:
        store.client.config_set("requirepass", "")
    said: BaseException | None = caught.value
    while said is not None:
        assert "s3cret" not in repr(said)
        said = said.__cause__ or said.__context__


@pytest.mark.slow
def test_a_server_that_is_not_there_is_one_clear_sentence_without_the_password(tmp_path):
    client = Client("redis://me:s3cret@127.0.0.1:1/0")
    with (
        client,
        pytest.raises(StoreUnreachable, match=r"redis://:\*\*\*@127\.0\.0\.1:1/0 refused the connection") as caught,
    ):
        client.start("checkout")
    assert "s3cret" not in repr(client) + repr(caught.value) + repr(caught.value.__cause__)

    async def use() -> None:
        async with AsyncClient(f"unix://{tmp_path}/none?password=s3cret") as other:
            with pytest.raises(StoreUnreachable, match="no such socket") as caught:
                await other.list()
            assert "s3cret" not in repr(other) + repr(caught.value) + repr(caught.value.__cause__)

    asyncio.run(use())


def test_a_glance_tells_who_backs_off_and_both_clients_agree(store, client, async_client):
    due = store.now + 60_000
    waiting = records.OpenOp("step", "backoff", "t", store.now, "charge", attempt=2, due_at=due)
    failed = records.Attempt(1, store.now, records.Failure("HttpError", "503"), store.now, due, 5)
    sets = [("p:charge", records.encode(waiting)), ("a:charge:1", records.encode(failed))]
    store.execute(store.create())
    store.execute(store.commit(status_to="waiting", live=str(due), backoff=str(due), sets=sets))
    store.client.set(store.keys.vitals, "a stranger's")
    first = client.overview()
    (told,) = first.backoffs.next
    assert (told.execution, told.flow, told.path, told.due_at) == ("e1", "checkout", "charge", due)
    assert (told.attempt, told.max_attempts, told.error_type) == (2, 5, "HttpError")
    assert (first.executions["waiting"].count, first.partitions.held) == (1, 4)
    assert "the key 't:vitals' in Redis is a string, not the hash" in first.unread

    async def look():
        async with async_client() as other:
            return await other.overview(first)

    again = asyncio.run(look())
    assert (again.backoffs, again.unread) == (first.backoffs, first.unread)
