"""Whatever steps, flows, servers and people do: a secret is in no log, row, event, page, answer or report."""

from __future__ import annotations

import json
import signal
from pathlib import Path
from typing import Any
from urllib.parse import quote

import pytest
import redis
from system.support import secretive
from system.support.servers import Server
from system.support.stage import HANG_SECONDS, Stage
from system.test_secrets import contents

from stepwell.cli import main

FLOWS = Path(secretive.__file__)
HOWS = (
    "asks",
    "asks_through_a_proxy",
    "asks_nonsense",
    "raises",
    "logs",
    "raises_elsewhere",
    "dies",
    "kills_its_shard",
)
FORMS = tuple(
    form
    for secret in (secretive.PASSWORD, secretive.API_KEY)
    for form in {secret, quote(secret, safe=""), quote(secret), repr(secret)[1:-1], json.dumps(secret)[1:-1]}
)
PIECES = ("pa55", "w%23rd", "w#rd", "k3y-of")


def ask(capsys: pytest.CaptureFixture[str], *arguments: str) -> tuple[int, str]:
    """Run a command in this process: its exit code, and all that it printed."""
    code = main(arguments)
    printed = capsys.readouterr()
    return code, printed.out + printed.err


def clean(said: dict[str, str]) -> None:
    """No form of a secret, and no piece of one, in what was said."""
    for where, text in said.items():
        for form in (*FORMS, *PIECES):
            at = text.find(form)
            assert at < 0, f"{form!r} in {where}: ...{text[max(0, at - 200) : at + 100]}"


@pytest.mark.pain(45)
@pytest.mark.parametrize("as_json", [False, True], ids=["text", "json"])
def test_what_steps_say_in_any_way_shows_no_secret(
    served: Stage, as_json: bool, capsys: pytest.CaptureFixture[str]
) -> None:
    options = ["--verbose", *(["--log-json"] if as_json else [])]
    worker = served.worker(*options, flows=FLOWS).ready()
    said: dict[str, str] = {}

    def run(*arguments: str) -> int:
        code, said[" ".join(arguments)] = ask(capsys, *arguments, *served.where)
        return code

    ids = {how: f"e-{how}" for how in HOWS}
    assert run("start", "breaks", "--id", "b1") == 0
    for how, each in ids.items():  # the last one ends the shard, and then nobody is known to have these flows
        assert run("start", "tells", "--input", json.dumps({"how": how}), "--id", each) == 0
    for each in (*ids.values(), "b1"):
        run("result", each, "--timeout", str(HANG_SECONDS), "--verbose")
        run("show", each)
        run("show", each, "--json")
        run("tail", each)
        run("tail", each, "--json")
    for command in (["list"], ["list", "--json"], ["dead", "list"], ["doctor"], ["top", "--once"]):
        run(*command)
    with served.server() as admin:
        said["rows, events and all other keys"] = contents(admin)
    for page in ("metrics", "healthz", "readyz"):
        said[page] = worker.page(page)[1]
    worker.signal(signal.SIGTERM)
    worker.finish()
    said |= {"stdout": worker.out, "stderr": worker.err}

    clean(said)
    # What is hidden was there: each of them failed with the error that has it, and says so.
    assert "***" in said["stderr"]
    assert "calling https://:***@bank.invalid/?token=***" in said["stderr"]
    for how in ("raises", "logs", "raises_elsewhere", "kills_its_shard"):
        error = json.loads(said[f"show {ids[how]} --json"])["error"]
        assert "***" in error["message"], how
    assert json.loads(said["show b1 --json"])["status"] == "error"
    assert "died: " in said["stderr"]  # the shard that a step has killed
    for how in ("asks", "asks_through_a_proxy", "asks_nonsense", "dies"):
        assert json.loads(said[f"show {ids[how]} --json"])["status"] == "error"


@pytest.fixture
def locked(processes: Any, tmp_path: Path) -> Server:
    """A server with that password, up and running."""
    made = Server(processes, tmp_path / "locked", secretive.PASSWORD)
    made.url = f"redis://:{quote(secretive.PASSWORD, safe='')}@127.0.0.1:{made.port}/0"
    return made.start()


@pytest.mark.pain(45)
def test_what_is_said_of_servers_that_refuse_or_are_away_shows_no_password(
    stage: Stage, locked: Server, capsys: pytest.CaptureFixture[str]
) -> None:
    wrong = quote(secretive.PASSWORD + "!", safe="")
    where = {
        "a wrong password": f"redis://:{wrong}@127.0.0.1:{locked.port}/0",
        "a wrong user": f"redis://pa55:{wrong}@127.0.0.1:{locked.port}/0",
        "nobody there": f"redis://u:{wrong}@{secretive.NOBODY}/0",
        "no such host": f"redis://u:{wrong}@no-such-host.invalid/0",
        "not escaped": f"redis://:{secretive.PASSWORD}@{secretive.NOBODY}/0",
        "no port": f"redis://:{wrong}@127.0.0.1:port/0",
        "another scheme": f"http://u:{wrong}@{secretive.NOBODY}/",
        "a query": f"redis://{secretive.NOBODY}/0?password={wrong}",
        "a Sentinel": f"redis+sentinel://u:{wrong}@{secretive.NOBODY}/primary",
        "TLS": f"rediss://u:{wrong}@127.0.0.1:{locked.port}/0",
        "a socket": f"unix://u:{wrong}@/no/such/socket",
    }
    said: dict[str, str] = {}
    for what, url in where.items():
        slow = what == "no such host"
        for command in (["list", "-v"], *([] if slow else [["doctor", "--json"], ["tail", "--no-follow", "-v"]])):
            code, text = ask(capsys, *command, "--redis", url)
            said[f"{what}: {command[0]}"] = text
            assert code != 0, (what, command, text)
    done = stage.command("run", str(FLOWS), "--verbose", "--redis", where["a wrong password"])
    said["the worker"] = done.stdout + done.stderr
    assert done.returncode != 0
    clean(said)


@pytest.mark.pain(45)
def test_a_worker_whose_server_changes_its_password_does_not_show_either(stage: Stage, locked: Server) -> None:
    stage.url = locked.url
    worker = stage.worker("--verbose", flows=FLOWS).ready()
    with locked.admin() as admin:
        admin.config_set("requirepass", "another")
        for client in admin.client_list(_type="normal"):
            if client["id"] != str(admin.client_id()):
                try:
                    admin.client_kill_filter(_id=client["id"])
                except redis.RedisError:
                    continue  # it went by itself
        worker.wait_for("can't be renewed")
    worker.signal(signal.SIGTERM)
    worker.finish()
    clean({"stdout": worker.out, "stderr": worker.err})
