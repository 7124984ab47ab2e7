"""What alerts and their page tell people to run works as it is written, where there is something to see."""

from __future__ import annotations

import json
import re
import shlex
from importlib import resources
from pathlib import Path

import pytest
import yaml
from system.support.load import FLOWS
from system.support.stage import Stage
from system.support.told import ToldReceiver

from stepwell.cli import main

PAGE = Path(__file__).resolve().parents[2] / "docs" / "alerts.md"
FLOW = "asked_to_rest"
STEP = "call_after_rest"
LABELS = {"flow": FLOW, "step": STEP, "durability": "relaxed"}
WORDS = {
    "FLOW": FLOW,
    "STEP": STEP,
    "ID": "rest",
    "TYPE": "FatalError",
    "REASON": "not deployed here",
    "FILE": str(FLOWS),
    "MODE": "relaxed",
}


def commands_of_the_page() -> set[str]:
    """What stands in backticks there and is a command."""
    return {" ".join(each.split()) for each in re.findall(r"`(stepwell [^`]+)`", PAGE.read_text())}


def commands_of_alerts() -> set[str]:
    """What alerts bring along, with labels filled in as Prometheus does."""
    groups = yaml.safe_load(resources.files("stepwell.metrics").joinpath("alerts.yml").read_text())["groups"]
    found = {rule["annotations"]["command"] for group in groups for rule in group["rules"] if "alert" in rule}
    return {re.sub(r"\{\{ \$labels\.(\w+) \}\}", lambda label: LABELS[label[1]], each) for each in found}


def letter(capsys: pytest.CaptureFixture[str]) -> str:
    """The id of a dead letter that lies there now."""
    capsys.readouterr()
    assert main(["dead", "list", "--json"]) == 0
    [found, *_] = json.loads(capsys.readouterr().out)
    return str(found["id"])


@pytest.fixture
def troubled(served: Stage, monkeypatch: pytest.MonkeyPatch) -> Stage:
    """A worker with an execution that backs off, one that failed, one that is parked, and letters that nobody wants."""
    assert served.url
    monkeypatch.setenv("STEPWELL_REDIS_URL", served.url)
    served.worker(flows=FLOWS).ready()
    with ToldReceiver() as receiver, served.client() as client, served.server() as server:
        for name, plan in (("rest", ["error", "ok"]), ("failed", ["fatal"])):
            client.start(FLOW, {"url": receiver.url, "plan": plan}, name)
        client.start("asked_of_nobody", {}, "parked", unchecked=True)
        for _ in range(2):
            server.xadd("stepwell:ingress", {"type": "no such type"})
        for name, status in (("rest", "waiting"), ("failed", "error"), ("parked", "parked")):
            served.eventually(lambda n=name, s=status: client.describe(n)["status"] == s, f"{name} is {status}")
        served.eventually(lambda: len(client.dead_letters()) == 2, "two letters lie there")
    return served


def test_each_command_of_the_runbook_works_as_it_is_written(
    troubled: Stage, capsys: pytest.CaptureFixture[str]
) -> None:
    commands = commands_of_the_page() | commands_of_alerts()
    assert len(commands) >= 18
    # What removes or changes something comes last.
    for command in sorted(commands, key=lambda each: (" drop " in each, " replay " in each, each)):
        words = {**WORDS, "LETTER": letter(capsys)} if "LETTER" in command else WORDS
        arguments = [words.get(word, word) for word in shlex.split(command)[1:]]
        code = main(arguments)
        told = capsys.readouterr()
        assert code == 0, f"{command}\n{told.out}\n{told.err}"
        assert told.out.strip(), command
