"""`stepwell dead`: what goes to the client, what is printed, and which letters a command is about."""

from __future__ import annotations

import json
from typing import Any

import pytest

from stepwell.cli import choosing, dead
from stepwell.core.errors import StoreUnreachable, UnknownLetter
from stepwell.core.letters import LETTER_KINDS

LETTER = {
    "id": "7:1-0",
    "partition": 7,
    "kind": "malformed",
    "reason": "no type",
    "entry": "1-0",
    "at": 1_767_323_045_000,
    "cut": False,
    "fields": {"x": "1", "data": {"n": 1}},
}


class FakeClient:
    """Has some letters; remembers what was done to them."""

    def __init__(self, *letters: dict[str, Any]) -> None:
        self.letters = list(letters)
        self.asked: list[Any] = []
        self.gone: set[str] = set()

    def dead_letters(self, limit: int, **filters: Any) -> list[dict[str, Any]]:
        self.asked.append((limit, filters))
        return self.letters[:limit]

    def dead_letter(self, letter_id: str) -> dict[str, Any]:
        self.asked.append(letter_id)
        return next(letter for letter in self.letters if letter["id"] == letter_id)

    def replay_letter(self, letter_id: str) -> None:
        self._do("replay", letter_id)

    def drop_letter(self, letter_id: str) -> None:
        self._do("drop", letter_id)

    def _do(self, what: str, letter_id: str) -> None:
        if letter_id in self.gone:
            raise UnknownLetter(f"there is no dead letter {letter_id} (any more)")
        self.asked.append((what, letter_id))

    def __enter__(self) -> FakeClient:
        return self

    def __exit__(self, *_: object) -> None: ...


@pytest.fixture
def run(run_of: Any) -> Any:
    """`run(client, *arguments)` gives the exit code, stdout and stderr."""
    return run_of(dead, "dead")


def test_letters_are_listed_with_their_reasons(run: Any) -> None:
    client = FakeClient(LETTER, {**LETTER, "id": "ingress:1-0", "partition": None})
    code, out, err = run(client, "list", "--reason", "malformed", "--text", "type", "--partition", "7")
    assert (code, err) == (0, "")
    heading, first, second = out.splitlines()
    assert heading.split() == ["ID", "AT", "KIND", "REASON", "WHAT"]
    assert first.split(None, 2)[:2] == ["7:1-0", "2026-01-02T03:04:05.000Z"]
    assert first.endswith('{"x":"1","data":{"n":1}}')
    assert second.startswith("ingress:1-0")
    assert client.asked == [(100, {"reason": "malformed", "partition": "7", "text": "type"})]
    assert json.loads(run(client, "list", "--json")[1]) == client.letters


@pytest.mark.parametrize(("verb", "done"), [("replay", "replayed"), ("drop", "dropped")])
def test_a_dry_run_says_which_and_touches_none(run: Any, verb: str, done: str) -> None:
    client = FakeClient(LETTER, {**LETTER, "id": "ingress:1-0"})
    told = run(client, verb, "--all", "--text", "type", "--dry-run")
    assert told == (0, "ingress:1-0\n7:1-0\n", f"2 dead letters would be {done}\n")
    assert json.loads(run(client, verb, "7:1-0", "--dry-run", "--json")[1]) == {"ids": ["7:1-0"]}
    assert client.asked == [(dead.ALL_MAX, {"reason": None, "partition": None, "text": "type"}), "7:1-0"], (
        "they were only read"
    )


@pytest.mark.parametrize("which", [["--all"], ["7:1-0", "7:2-0"]])
def test_a_dry_run_of_a_replay_does_not_promise_what_cant_be_replayed(run: Any, which: list[str]) -> None:
    client = FakeClient({**LETTER, "id": "7:2-0", "cut": True}, LETTER)
    said = "1 dead letter would be replayed\n1 can't be (7:2-0): only a part of the entry is kept\n"
    assert run(client, "replay", *which, "--dry-run") == (0, "7:1-0\n", said)
    assert json.loads(run(client, "replay", *which, "--dry-run", "--json")[1]) == {"ids": ["7:1-0"]}
    assert "2 dead letters would be dropped\n" in run(client, "drop", *which, "--dry-run")[2]


def test_a_list_has_the_beginning_of_a_long_entry_only(run: Any) -> None:
    big = {**LETTER, "fields": {"input": "y" * 5000}}
    _, out, _ = run(FakeClient(big), "list")
    assert "yyy" in out
    assert max(map(len, out.splitlines())) < 300
    assert "y" * 5000 in run(FakeClient(big), "show", "7:1-0")[1]


def test_letters_do_not_steer_the_terminal(run: Any) -> None:
    odd = {**LETTER, "reason": "no \x9b type", "fields": {"x": "\x1b[2J"}}
    for command in (["list"], ["show", "7:1-0"]):
        _, out, _ = run(FakeClient(odd), *command)
        assert r"no \x9b type" in out
        assert not {"\x1b", "\x9b"} & set(out)


def test_where_nothing_is_listed_a_remark_says_so(run: Any) -> None:
    assert run(FakeClient(), "list") == (0, "", "there are no dead letters\n")
    assert run(FakeClient(), "list", "--reason", "x") == (0, "", "there are no such letters\n")
    assert run(FakeClient(), "list", "--json") == (0, "[]\n", "")


def test_a_long_list_says_that_it_is_cut(run: Any) -> None:
    assert "--limit shows more" in run(FakeClient(LETTER, LETTER), "list", "--limit", "2")[2]


@pytest.mark.parametrize("kind", LETTER_KINDS)
def test_what_to_do_about_a_letter_goes_by_its_kind(run: Any, kind: str) -> None:
    said = run(FakeClient({**LETTER, "kind": kind}), "show", "7:1-0")[2]
    assert said.startswith("to do: ")
    assert "stepwell dead drop 7:1-0" in said
    in_vain = kind in ("malformed", "kills its shard", "id taken")
    assert ("stepwell dead replay 7:1-0" in said) != in_vain, "only where its cause can be gone"


def test_a_letter_is_shown_whole(run: Any) -> None:
    client = FakeClient({**LETTER, "fields": {"payload": "y" * 500, "data": {"n": 1}}})
    code, out, err = run(client, "show", "7:1-0")
    assert code == 0
    assert client.asked == ["7:1-0"]
    for words in ("no type (malformed)", "1-0 of the inbox of partition 7", "y" * 500, '{"n":1}'):
        assert words in out
    assert err == "to do: mend whoever wrote it, then remove this: stepwell dead drop 7:1-0\n"
    assert "only a part" in run(FakeClient({**LETTER, "cut": True}), "show", "7:1-0")[2]
    assert json.loads(run(client, "show", "7:1-0", "--json")[1]) == client.letters[0]


@pytest.mark.parametrize(("command", "said"), [("replay", "replayed"), ("drop", "dropped")])
def test_letters_are_named_one_by_one_or_all_at_once(run: Any, command: str, said: str) -> None:
    client = FakeClient({**LETTER, "id": "7:3-0"}, {**LETTER, "id": "7:2-0"}, {**LETTER, "id": "7:1-0"})
    assert run(client, command, "7:1-0") == (0, f"{said} 7:1-0\n", "")
    assert run(client, command, "7:1-0", "7:2-0") == (0, f"{said} 2 dead letters\n", "")
    client.asked.clear()
    client.gone.add("7:2-0")
    code, out, _ = run(client, command, "--all", "--text", "type", "--yes", "--json")
    assert (code, json.loads(out)) == (0, {said: ["7:1-0", "7:3-0"], "refused": []})
    assert client.asked[0][1] == {"reason": None, "partition": None, "text": "type"}
    assert client.asked[1:] == [(command, "7:1-0"), (command, "7:3-0")], "the oldest first"


@pytest.mark.parametrize("command", ["replay", "drop"])
@pytest.mark.parametrize("choice", [[], ["7:1-0", "--all"], ["7:1-0", "--reason", "x"], ["--partition", "7"]])
def test_what_is_not_clearly_chosen_is_refused(run: Any, command: str, choice: list[str]) -> None:
    client = FakeClient(LETTER)
    code, out, err = run(client, command, *choice)
    assert (code, out) == (2, "")
    assert "--all" in err
    assert client.asked == []


def test_a_letter_that_is_not_there_exits_with_2(run: Any) -> None:
    client = FakeClient(LETTER)
    client.gone.add("7:1-0")
    code, _, err = run(client, "replay", "7:1-0")
    assert (code, err) == (2, "stepwell: there is no dead letter 7:1-0 (any more)\n")


def test_where_one_of_several_letters_is_not_there_the_others_are_done(run: Any) -> None:
    client = FakeClient(LETTER)
    client.gone.add("7:2-0")
    code, out, err = run(client, "drop", "7:1-0", "7:2-0", "7:3-0")
    assert (code, err) == (1, "")
    assert out == "dropped 2 of 3 dead letters\n1 refused (7:2-0): there is no such dead letter (any more)\n"
    assert client.asked == [("drop", "7:1-0"), ("drop", "7:3-0")]


def test_where_redis_goes_away_it_is_said_how_far_it_got(run: Any) -> None:
    client = FakeClient(*({**LETTER, "id": f"7:{n}-0"} for n in (3, 2, 1)))
    done = client.replay_letter

    def replay_letter(letter_id: str) -> None:
        if letter_id == "7:2-0":
            raise StoreUnreachable("no connection to Redis")
        done(letter_id)

    client.replay_letter = replay_letter  # type: ignore[method-assign]
    code, out, err = run(client, "replay", "--all", "--yes")
    assert (code, out) == (2, "")
    assert err == "replayed 1 of 3 dead letters; 2 not touched\nstepwell: no connection to Redis\n"


@pytest.mark.parametrize(
    ("verb", "asks", "what"),
    [
        ("replay", [], "replay 2 dead letters"),
        ("drop", ["--text", "type"], "drop 2 dead letters with 'type' in what is said of them for good"),
        ("drop", ["--reason", "id taken"], "drop 2 dead letters for the reason 'id taken' for good"),
        ("drop", ["--partition", "7"], "drop 2 dead letters of partition 7 for good"),
        ("drop", ["--partition", "ingress"], "drop 2 dead letters of the ingress for good"),
    ],
)
def test_without_a_terminal_all_letters_need_a_yes(run: Any, verb: str, asks: list[str], what: str) -> None:
    client = FakeClient(LETTER, {**LETTER, "id": "7:2-0"})
    code, out, err = run(client, verb, "--all", *asks)
    assert (code, out) == (2, "")
    assert err == f"stepwell: this would {what}: give --yes to do it, or --dry-run to see them\n"
    assert len(client.asked) == 1, "they were only counted"
    assert run(client, verb, "--all", *asks, "--yes")[0] == 0
    assert len(client.asked) == 4


@pytest.mark.threads  # a bar has a thread of its own
@pytest.mark.parametrize("agreed", [True, False])
def test_on_a_terminal_a_person_is_asked(run: Any, monkeypatch: pytest.MonkeyPatch, agreed: bool) -> None:
    monkeypatch.setattr("sys.stdin.isatty", lambda: True, raising=False)
    monkeypatch.setattr("sys.stderr.isatty", lambda: True, raising=False)
    asked: list[str] = []

    def confirm(text: str, err: bool) -> bool:
        asked.append(text)
        return agreed

    monkeypatch.setattr(choosing.typer, "confirm", confirm)
    client = FakeClient(LETTER)
    code, out, err = run(client, "drop", "--all")
    assert (code, asked) == (0, ["drop 1 dead letter for good?"])
    assert (("drop", "7:1-0") in client.asked) == agreed
    assert ("dropped 1 dead letter" in out) == agreed
    assert ("nothing was done" in err) == (not agreed)


def test_where_no_letter_lies_nobody_is_asked(run: Any) -> None:
    assert run(FakeClient(), "drop", "--all") == (0, "dropped 0 dead letters\n", "")
