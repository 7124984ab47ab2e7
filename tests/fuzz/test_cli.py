"""Any arguments: a documented exit code and a sentence, never a traceback, never a credential."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from fuzz.budget import fuzz
from fuzz.desk import HERE, SECRET, Desk, in_words
from fuzz.worlds import course, fuzz_world, job
from hypothesis import example, given
from hypothesis import strategies as st

URLS = (
    *(HERE, f"redis://user:{SECRET}@h:99999/x", f"rediss://:{SECRET}@h?ssl_x=1", f"redis+sentinel://:{SECRET}@a,b/n"),
    *(f"unix://:{SECRET}@", f"http://u:{SECRET}@h/?token={SECRET}", f"redis://:{SECRET}/@h", f"redis://[{SECRET}@::1"),
)
WORDS = (
    *("victim", "ended", "nobody", "job", "course", "word", "0", "ingress", "0:1-1", "7:1795970866600-0", "x:y", ":"),
    *("", " ", "-", "--", "-1", "1", "1e999", "nan", "inf", "0x10", "\u0663", "9" * 5000, "a" * 5000, "\x00", "a\nb"),
    *("{}", "[]", "{", '{"a":1}', '{"a":NaN}', '"\\ud800"', "[" * 5000, "@", "@-", "@/", "@/no/such", "@.", "\udcff"),
    *(
        "relaxed",
        "aof",
        "replicated:0",
        "replicated:2",
        "replicated:999999",
        "running",
        "error",
        "*",
        "{sim:0}:x:victim",
    ),
    *(
        "no.such.module",
        "no_such.py",
        "stepwell.core.retry:Retry",
        "../..",
        "caf\u00e9",
        "\u202e",
        "[red]x[/red]",
        "%s",
    ),
)
plain = st.sampled_from(WORDS) | st.text(max_size=10)
words = st.sampled_from(WORDS) | st.sampled_from(URLS) | st.text(max_size=10)
CHOOSING = ("--status", "--flow", "--backing-off", "--step", "--error", "--attr", "--since", "--yes", "--dry-run")
COMMANDS: dict[str, tuple[int, tuple[str, ...]]] = {
    "start": (1, ("--input", "--id", "--timeout", "--wait", "--unchecked")),
    "result": (1, ("--timeout",)),
    "retry": (
        1,
        ("--status", "--flow", "--backing-off", "--step", "--error", "--attr", "--since", "--yes", "--dry-run"),
    ),
    "cancel": (
        1,
        ("--status", "--flow", "--backing-off", "--step", "--error", "--attr", "--since", "--yes", "--dry-run"),
    ),
    "top --once": (0, ("--interval",)),
    "tail --no-follow": (1, ("--since", "--kind", "--flow", "--stay")),
    "signal": (2, ("--payload",)),
    "show": (1, ()),
    "list": (0, ("--status", "--flow", "--backing-off", "--step", "--limit")),
    "dead list": (0, ("--reason", "--text", "--partition", "--limit")),
    "dead show": (1, ()),
    "dead replay": (1, ("--all", "--reason", "--text", "--partition", "--yes", "--dry-run")),
    "dead drop": (1, ("--all", "--reason", "--text", "--partition", "--yes", "--dry-run")),
    "doctor": (0, ("--durability", "--namespace", "--partitions")),
    "explain": (1, ("--from", "--id", "--path")),
    "init": (1, ()),
    "run": (
        1,
        (
            *("--metrics-port", "--metrics-host", "--no-metrics"),
            *("--shards", "--max-running", "--max-steps", "--threads", "--processes", "--grace"),
            *("--durability", "--replicas", "--worker-id", "--passivate-after", "--max-in-memory", "--log-json"),
        ),
    ),
    "demo": (0, ("--seed", "--keep")),
}
FLAGS = {"--yes", "--dry-run", "--wait", "--unchecked", "--all", "--log-json", "--keep", "--json", "-v", "--stay"}
FLAGS |= {"--no-metrics", "--backing-off"}


@st.composite
def arguments(draw: st.DrawFn) -> list[str]:
    """A command with about as many arguments and options as it wants, all odd."""
    if draw(st.integers(0, 9)) == 0:
        return draw(st.lists(words | st.sampled_from(["start", "show", "dead", "--help", "--version"]), max_size=4))
    command = draw(st.sampled_from(sorted(COMMANDS)))
    wanted, options = COMMANDS[command]
    count = max(0, wanted + draw(st.sampled_from([0, 0, 0, 0, 1, -1])))
    given = [*command.split(), *(draw(plain if command == "init" else words) for _ in range(count))]
    for option in draw(st.lists(st.sampled_from([*options, "--redis", "--data", "--json", "-v"]), max_size=3)):
        given += [option] if option in FLAGS else [option, draw(words)]
    return given


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """An empty folder to write into; by default the server is one with a password."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("STEPWELL_REDIS_URL", HERE)
    monkeypatch.delenv("STEPWELL_DATA", raising=False)
    return tmp_path


@pytest.mark.pain(45)
@fuzz(40)
@given(st.lists(arguments(), min_size=4, max_size=4))
@example([["list", "--limit", HERE], ["show", "victim", HERE], ["start", "job", "--timeout", URLS[1], "--wait"]])
@example([["list", HERE, "--json"], ["result", "victim", "--timeout", HERE, "--json"], ["run", "--shards", HERE, "x"]])
@example([["doctor", "--redis", URLS[6]], ["dead", "replay", HERE], [HERE], ["show", "--redis", HERE, "--no-such"]])
def test_any_arguments_are_answered_in_words(here: Path, given: list[list[str]]) -> None:
    with fuzz_world() as world:
        world.shard()
        world.start(job, "ended")
        world.start(course, "victim")
        world.send("signal", "nobody", {"name": "a"})
        world.run_for(6)
        desk = Desk(world)
        for each in given:
            in_words(desk(*each), verbose={"-v", "--verbose"} & set(each) != set())
