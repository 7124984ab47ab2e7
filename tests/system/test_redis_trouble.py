"""Redis dies, hangs up, refuses, forgets scripts: no attempt is consumed, nothing is lost, all goes on."""

from __future__ import annotations

import contextlib
import os
import signal
import socket
import threading
from pathlib import Path
from typing import Any

import pytest
import redis
from system.support.servers import OldServer, Server
from system.support.stage import HANG_SECONDS, Stage, WorkerProcess
from system.support.written import written

from benchmarks.ports import free_port
from stepwell import Client
from stepwell.metrics.shard import COUNTS_SECONDS_MAX
from stepwell.store.connect import connect

PASSWORD = "s3cret-pw"
PARTITIONS = 64
RESETS = 20
# A server that loads answers after each 1,024 commands; all of them take longer than a test may.
LOADED_KEYS = 600_000
LOAD_MICROSECONDS = 600
LOADED_AT_ONCE = 10_000
LOAD = "for number = ARGV[1], ARGV[2] do redis.call('SET', 'ballast:' .. number, 'x') end"


@pytest.fixture
def server(processes: Any, tmp_path: Path) -> Server:
    return Server(processes, tmp_path / "server", PASSWORD).start()


def hold_some(stage: Stage, client: Client, prefix: str, count: int = 5) -> list[str]:
    """Executions whose step runs until the gate `prefix` is opened."""
    ids = [client.start("holding", {"gate": prefix}, f"{prefix}-{number}") for number in range(count)]
    for each in ids:
        stage.ran(each, "held")
    return ids


def held_up(served: Stage, worker: WorkerProcess) -> None:
    """What was held ends now; the worker notices that it can't be recorded, and builds nothing upon it."""
    served.open("go")
    served.eventually(lambda: in_trouble(worker, 2), "the worker notices")
    assert served.journal.runs(path="quick") == []


def end_well(stage: Stage, client: Client, worker: WorkerProcess, ids: list[str]) -> None:
    """All end, and each step ran once, as its first attempt."""
    for each in ids:
        assert client.result(each, timeout=HANG_SECONDS) == [worker.shard, "after!"]
        steps = client.describe(each)["steps"]
        assert [len(step["attempts"]) for step in steps] == [1, 1]
        assert [step["interruptions"] for step in steps] == [0, 0]
        assert stage.journal.attempts(each, "held") == [1]
        assert stage.journal.attempts(each, "quick") == [1]
    assert client.dead_letters() == []


def loading(server: Server) -> bool:
    """Whether the server is up and still reads its data. On a busy machine it answers seldom."""
    with connect(server.url, socket_timeout=HANG_SECONDS) as client:
        try:
            return bool(client.info("persistence")["loading"])
        except redis.exceptions.BusyLoadingError:
            return True
        except redis.RedisError:
            return False


def busy(admin: redis.Redis) -> bool:
    """Whether a script keeps the server from answering anything else."""
    try:
        return not admin.ping()
    except redis.ResponseError as error:
        return str(error).startswith("BUSY")


def in_trouble(worker: WorkerProcess, more_than: float = 0.0) -> bool:
    return worker.metric("stepwell_redis_errors_total") > more_than


def test_an_embedded_server_that_is_killed_is_started_again(stage: Stage) -> None:
    worker = stage.worker().ready()
    pids = set()
    with stage.client() as client:
        for life in ("one", "two", "three"):
            ids = hold_some(stage, client, life)
            with stage.server() as server:
                pid = server.info("server")["process_id"]
                stage.eventually(lambda server=server: written(server), "the server has written what it acknowledged")
            assert pid not in pids
            pids.add(pid)
            os.kill(pid, signal.SIGKILL)
            stage.open(life)
            for each in ids:  # seen in the journal: a client would start the server again, too
                stage.ran(each, "quick")
            ids.append(client.start("holding", {"gate": life}, f"{life}-after"))
            end_well(stage, client, worker, ids)
    assert worker.process.poll() is None


@pytest.mark.pain(20)
def test_while_redis_is_away_a_worker_shows_what_it_does_and_not_what_it_once_counted(
    served: Stage, server: Server
) -> None:
    worker = served.worker().ready()

    def shown() -> tuple[bool, bool]:
        page = worker.page("metrics")[1]
        return "\nstepwell_executions{" in page, worker.metric("stepwell_leases_held") == PARTITIONS

    with served.client() as client:
        ids = hold_some(served, client, "go")
        running = len(ids)
        served.eventually(lambda: worker.metric("stepwell_executions", status="running") == running, "all are counted")
        served.eventually(lambda: shown() == (True, True), "all is owned and counted")
        server.kill()
        served.eventually(lambda: shown() == (False, False), "its leases may have lapsed, and others count by then")
        worker.counts("stepwell_leases_held", 0)
        assert worker.metric("stepwell_steps_running") == running
        assert worker.metric("stepwell_counts_age_seconds") > COUNTS_SECONDS_MAX
        server.start()
        served.eventually(lambda: shown() == (True, True), "all is owned and counted again")
        served.open("go")
        end_well(served, client, worker, ids)


def test_a_server_that_is_killed_and_restarted_is_found_again(served: Stage, server: Server) -> None:
    worker = served.worker().ready()
    with served.client() as client:
        ids = hold_some(served, client, "go")
        client.start("bumpy", {"failures": 4}, "b1")
        server.kill()
        served.open("go")
        served.eventually(lambda: in_trouble(worker), "the worker notices")
        server.start()
        end_well(served, client, worker, ids)
        assert client.result("b1", timeout=HANG_SECONDS) == 5
        assert served.journal.attempts("b1", "shaky") == [1, 2, 3, 4, 5]
        end_well(served, client, worker, [client.start("holding", {"gate": "go"}, "later")])
    assert "Traceback" not in served.said


@pytest.mark.pain(10)
def test_twenty_resets_of_all_connections_stop_nothing(served: Stage, admin: redis.Redis) -> None:
    worker = served.worker().ready()
    with served.client() as client:
        ids = hold_some(served, client, "go")

        def reader() -> str:
            """The connection that the worker reads its inboxes by."""
            return next((each["id"] for each in admin.client_list() if each["name"] == "stepwell-inbox"), "")

        for number in range(RESETS):
            known = served.eventually(reader, "the worker reads its inboxes")
            admin.execute_command("CLIENT", "KILL", "TYPE", "normal", "SKIPME", "yes")
            served.eventually(lambda known=known: reader() not in ("", known), "the worker has connected again")
            ids.append(client.start("holding", {"gate": "go"}, f"reset-{number}"))
        served.open("go")
        ids += [client.start("holding", {"gate": "go"}, f"then-{number}") for number in range(100)]
        end_well(served, client, worker, ids)


@pytest.mark.pain(11)
def test_a_read_only_server_holds_everything_up_and_costs_no_attempt(served: Stage, admin: redis.Redis) -> None:
    worker = served.worker().ready()
    with served.client() as client:
        ids = hold_some(served, client, "go")
        admin.execute_command("REPLICAOF", "127.0.0.1", str(free_port()))
        held_up(served, worker)
        admin.execute_command("REPLICAOF", "NO", "ONE")
        end_well(served, client, worker, ids)
        end_well(served, client, worker, [client.start("holding", {"gate": "go"}, "later")])


@pytest.mark.pain(15)
def test_a_full_server_loses_nothing_and_goes_on_when_there_is_room(served: Stage, admin: redis.Redis) -> None:
    worker = served.worker().ready()
    with served.client() as client:
        ids = hold_some(served, client, "go")
        admin.config_set("maxmemory", "1")
        held_up(served, worker)
        admin.config_set("maxmemory", "0")
        end_well(served, client, worker, ids)
        end_well(served, client, worker, [client.start("holding", {"gate": "go"}, "later")])


@pytest.mark.pain(15)
def test_a_server_that_can_not_save_holds_everything_up_and_costs_no_attempt(
    served: Stage, admin: redis.Redis, tmp_path: Path
) -> None:
    worker = served.worker().ready()
    with served.client() as client:
        ids = hold_some(served, client, "go")
        blocked = tmp_path / "server" / admin.config_get("dbfilename")["dbfilename"]
        (blocked / "inside").mkdir(parents=True)  # no file can take its place, whoever the server runs as
        admin.config_set("save", "3600 1000000")  # without one no failed save holds writes up
        admin.bgsave()
        served.eventually(
            lambda: admin.info("persistence")["rdb_last_bgsave_status"] == "err", "the server could not save"
        )
        with pytest.raises(redis.ResponseError, match="MISCONF"):
            admin.set("stepwell:probe", "1")
        held_up(served, worker)
        admin.config_set("stop-writes-on-bgsave-error", "no")
        end_well(served, client, worker, ids)
        end_well(served, client, worker, [client.start("holding", {"gate": "go"}, "later")])
    assert "MISCONF" in worker.err
    assert "Traceback" not in worker.err


@pytest.mark.pain(5)
def test_a_server_that_is_still_loading_its_data_is_waited_for(
    served: Stage, server: Server, admin: redis.Redis
) -> None:
    for first in range(0, LOADED_KEYS, LOADED_AT_ONCE):
        admin.eval(LOAD, 0, first, first + LOADED_AT_ONCE - 1)
    worker = served.worker().ready()
    with served.client() as client:
        ids = hold_some(served, client, "go")
        client.start("bumpy", {"failures": 4}, "b1")
        server.kill()
        served.open("go")
        served.eventually(lambda: in_trouble(worker), "the worker notices")
        server.launch(key_load_delay=LOAD_MICROSECONDS)
        served.eventually(lambda: loading(server), "the server says that it loads its data")
        before = worker.metric("stepwell_redis_errors_total")
        served.eventually(lambda: in_trouble(worker, before + 3), "the worker asks again and again")
        assert loading(server), "it was loading all the while"
        assert served.journal.runs(path="quick") == []
        with connect(server.url, socket_timeout=HANG_SECONDS) as patient:
            patient.config_set("key-load-delay", 0)
        server.wait()
        end_well(served, client, worker, ids)
        assert client.result("b1", timeout=HANG_SECONDS) == 5
        assert served.journal.attempts("b1", "shaky") == [1, 2, 3, 4, 5]
        end_well(served, client, worker, [client.start("holding", {"gate": "go"}, "later")])
    assert worker.process.poll() is None
    assert "Traceback" not in served.said


@pytest.mark.pain(11)
def test_a_server_without_the_replicas_that_it_wants_holds_everything_up_and_costs_no_attempt(
    served: Stage, admin: redis.Redis
) -> None:
    worker = served.worker().ready()
    with served.client() as client:
        ids = hold_some(served, client, "go")
        admin.config_set("min-replicas-to-write", "1")
        held_up(served, worker)
        admin.config_set("min-replicas-to-write", "0")
        end_well(served, client, worker, ids)


def test_scripts_that_are_forgotten_again_and_again_under_load_stop_nothing(served: Stage, admin: redis.Redis) -> None:
    served.worker().ready()
    with served.client() as client:
        ids = [client.start("chain", {"words": 5}, f"c{number}") for number in range(100)]
        while not all(client.describe(each)["status"] == "completed" for each in ids[-3:]):
            admin.script_flush()
        assert [client.result(each, timeout=HANG_SECONDS) for each in ids] == [5] * 100
        assert {(run.execution, run.path) for run in served.journal.runs()} == {
            (each, path) for each in ids for path in ("quick", "quick#2", "quick#3", "quick#4", "quick#5")
        }
        assert len(served.journal.runs()) == 500


def test_a_server_that_a_script_keeps_busy_holds_everything_up_and_costs_no_attempt(
    served: Stage, server: Server, admin: redis.Redis
) -> None:
    worker = served.worker().ready()
    admin.config_set("lua-time-limit", 50)
    with served.client() as client, server.admin() as blocked:
        ids = hold_some(served, client, "go")
        pipe = blocked.pipeline(transaction=False)
        for each in admin.client_list():
            if each["name"].startswith("stepwell-"):  # so that it has to connect to a server that is busy
                pipe.execute_command("CLIENT", "KILL", "ID", each["id"])
        pipe.eval("while true do end", 0)

        def keep_busy() -> None:
            with contextlib.suppress(redis.RedisError):
                pipe.execute(raise_on_error=False)

        thread = threading.Thread(target=keep_busy, daemon=True)
        thread.start()
        served.eventually(lambda: busy(admin), "the server is busy")
        before = worker.metric("stepwell_redis_errors_total")
        served.open("go")
        served.eventually(lambda: in_trouble(worker, before + 3), "the worker notices")
        assert busy(admin), "it was busy all the while"
        admin.script_kill()
        thread.join(HANG_SECONDS)
        end_well(served, client, worker, ids)
    assert "Traceback" not in worker.err


def test_a_server_that_refuses_to_let_the_worker_in_for_a_while_is_waited_for(
    served: Stage, server: Server, admin: redis.Redis
) -> None:
    worker = served.worker().ready()
    with served.client() as client:
        ids = hold_some(served, client, "go")
        admin.execute_command("ACL", "SETUSER", "default", "-client|setname")
        for each in admin.client_list():
            if each["name"].startswith("stepwell-"):
                admin.execute_command("CLIENT", "KILL", "ID", each["id"])
        served.open("go")
        served.eventually(lambda: in_trouble(worker, 3), "the worker notices")
        served.eventually(lambda: "no connection to Redis: " in worker.err, "it says why")
        assert worker.process.poll() is None
        assert PASSWORD not in worker.err
        admin.execute_command("ACL", "SETUSER", "default", "+client|setname")
        end_well(served, client, worker, ids)
    assert "Traceback" not in worker.err


def test_forgotten_scripts_are_sent_again(served: Stage, admin: redis.Redis) -> None:
    worker = served.worker().ready()
    with served.client() as client:
        ids = hold_some(served, client, "go")
        admin.script_flush()
        served.open("go")
        end_well(served, client, worker, ids)
        admin.script_flush()
        end_well(served, client, worker, [client.start("holding", {"gate": "go"}, "later")])


def refused(stage: Stage, url: str) -> str:
    """The one sentence that `stepwell run` ends with."""
    stage.url = url
    worker = stage.worker()
    assert worker.finish() == 2
    assert worker.out == ""
    assert "Traceback" not in worker.err
    assert PASSWORD not in worker.err
    [sentence] = worker.err.splitlines()
    return sentence


def test_a_worker_does_not_start_with_a_wrong_password_or_none(stage: Stage, server: Server) -> None:
    assert "correct them in the URL" in refused(stage, server.url.replace(PASSWORD, f"not-{PASSWORD}"))
    assert "give it in the URL" in refused(stage, server.url.replace(f":{PASSWORD}@", ""))


def test_a_worker_does_not_start_where_nobody_listens(stage: Stage) -> None:
    with socket.socket() as bound:  # bound and not listening: nobody else gets this port
        bound.bind(("127.0.0.1", 0))
        url = f"redis://:{PASSWORD}@127.0.0.1:{bound.getsockname()[1]}"
        assert "refused the connection: start it, or correct the address" in refused(stage, url)


@pytest.mark.pain(15)
def test_a_worker_does_not_start_on_a_server_that_evicts(stage: Stage, server: Server, admin: redis.Redis) -> None:
    admin.config_set("maxmemory", "100mb")
    admin.config_set("maxmemory-policy", "allkeys-lru")
    assert "CONFIG SET maxmemory-policy noeviction" in refused(stage, server.url)
    assert set(admin.keys("*")) <= {b"stepwell:probe"}


def test_a_worker_does_not_start_on_a_server_that_is_read_only(
    stage: Stage, server: Server, admin: redis.Redis
) -> None:
    admin.execute_command("REPLICAOF", "127.0.0.1", str(free_port()))
    assert "is a read-only replica" in refused(stage, server.url)


def test_a_worker_does_not_start_on_a_full_server(stage: Stage, server: Server, admin: redis.Redis) -> None:
    admin.config_set("maxmemory", "1")
    assert "raise maxmemory or free memory" in refused(stage, server.url)


def test_a_worker_does_not_start_on_a_server_that_is_too_old(stage: Stage) -> None:
    with OldServer() as old:
        sentence = refused(stage, old.url)
    assert "5.0.14" in sentence
    assert "6.2" in sentence
