"""What is said of other systems, without any of them: the catalogue, reading, reasons, tables."""

from __future__ import annotations

import dataclasses
import sys
from collections.abc import Sequence
from pathlib import Path

import msgspec
import pytest
from unit.bench.reports import environment

from benchmarks import report
from benchmarks.peers import session
from benchmarks.peers.__main__ import chosen
from benchmarks.peers.catalogue import BY_NAME, DEFAULT, OURS, PEERS
from benchmarks.peers.install import HERE, Environment, install, reason
from benchmarks.peers.measure import FULL
from benchmarks.peers.outcome import Outcome, Recovered, Spread, Turn, advantage
from benchmarks.peers.peer import Kind, Peer, Skip
from benchmarks.peers.stand import Journal, parsed, shares
from benchmarks.peers.verdict import FASTEST_FLOWS, FASTEST_QUEUE, result
from benchmarks.progress import Progress
from benchmarks.publish import claims

REDFLOW, DBOS, BULLMQ = BY_NAME["redflow"], BY_NAME["dbos"], BY_NAME["bullmq"]


def turn(rate: float, p50: float = 2.0, cpu: float | None = 0.1) -> Turn:
    return Turn(1000, rate, p50, 2 * p50, 500, cpu, 0.1)


def outcome(peer: Peer, rates: Sequence[float | None], recovery: Recovered | None = None) -> Outcome:
    turns = [None if rate is None else turn(rate) for rate in rates]
    return Outcome(peer, {"package": "1.2"}, turns, recovery)


def lines(outcomes: Sequence[Outcome], table: int) -> list[list[str]]:
    return [list(line) for line in result(outcomes, FULL).tables[table].lines]


# The catalogue.


@pytest.mark.parametrize("peer", PEERS, ids=lambda peer: peer.name)
def test_a_peers_scripts_are_there(peer: Peer) -> None:
    commands = (peer.load, peer.worker, peer.prepare, peer.recovery.worker, peer.recovery.load)
    words = [word for command in commands if command is not None for word in command if word.startswith("{here}/")]
    missing = [word for word in words if not (HERE / peer.folder / word.removeprefix("{here}/")).is_file()]
    assert missing == []


@pytest.mark.parametrize("peer", PEERS, ids=lambda peer: peer.name)
def test_a_peers_versions_are_pinned_and_shown(peer: Peer) -> None:
    assert [wanted for wanted in peer.python if "==" not in wanted] == []
    assert [wanted for wanted in peer.node if "@" not in wanted[1:]] == []
    assert peer.shows


@pytest.mark.parametrize("peer", PEERS, ids=lambda peer: peer.name)
def test_a_peers_terms_are_written_down(peer: Peer) -> None:
    assert all((peer.step, peer.durability, peer.settings, peer.recovery.settings))
    assert all("|" not in text for text in (peer.step, peer.durability, peer.settings, peer.recovery.settings))


def test_the_must_be_are_measured_by_default() -> None:
    assert {"stepwell", "redflow", "dbos", "celery", "dramatiq", "restate", "langgraph", "bullmq"} <= set(DEFAULT)
    assert len(BY_NAME) == len(PEERS)


def test_ours_is_always_measured_first() -> None:
    assert [peer.name for peer in chosen(["dbos", "redflow"])] == ["stepwell", "redflow", "dbos"]
    assert [peer.name for peer in chosen([])] == list(DEFAULT)
    assert chosen(["all"]) == list(PEERS)


def test_a_peer_that_there_is_not_is_refused_with_those_that_there_are() -> None:
    with pytest.raises(ValueError, match=r"no such peer: airflow; there are stepwell, .*redflow"):
        chosen(["airflow"])


# Reading what processes say.


@pytest.mark.parametrize(
    ("line", "found"),
    [
        ('"ready"', {}),
        ('{"seconds": 2}', {"seconds": 2.0}),
        ('{"ms": [1, 2.5]}', {"ms": [1.0, 2.5]}),
        ('{"started": 200}', {}),
        ("INFO: a library says hello", None),
        ("[1, 2]", None),
        ('{"level": "info"}', None),
        ("", None),
    ],
)
def test_a_loads_answers_are_told_from_what_libraries_print(line: str, found: object) -> None:
    assert parsed(line) == found


@pytest.mark.parametrize(("flows", "loads", "found"), [(10, 1, [10]), (10, 3, [4, 3, 3]), (1, 2, [1, 0])])
def test_flows_are_shared_by_the_loads(flows: int, loads: int, found: list[int]) -> None:
    assert shares(flows, loads) == found


def test_a_journal_counts_ends_and_leaves_out_a_line_that_is_being_written(tmp_path: Path) -> None:
    journal = Journal(tmp_path / "journal")
    journal.path.write_text("R 11\nS 1 1 5.0\nE 1 1 5.1\nE 1 1 7.5\nR 12\nE 2 5 6.0\nE 2 ")
    assert journal.ready() == 2
    assert journal.ends() == {("1", "1"): 2, ("2", "5"): 1}
    assert journal.last_end() == 7.5


# Reasons.


@pytest.mark.parametrize(
    ("log", "found"),
    [
        ("Collecting x\nERROR: No matching distribution found for x==9\nnote: more", "ERROR: No matching"),
        ("npm warn old\nnpm error code ENOTFOUND\nnpm error network", "npm error code ENOTFOUND"),
        ("half a build\nlast words\n\n", "last words"),
        ("", ""),
    ],
)
def test_an_installers_log_is_told_by_its_first_error(log: str, found: str) -> None:
    assert reason(log).startswith(found)


def test_without_npm_a_node_peer_is_skipped_with_what_to_do(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(Skip, match=r"no npm and node found \(Debian: apt-get install npm\)"):
        install(BULLMQ, tmp_path)


def test_a_failed_installation_is_tried_again_and_a_good_one_is_kept(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    tries: list[str] = []

    def run(command: Sequence[str], folder: Path, failed: str) -> None:
        tries.append(failed)
        if len(tries) == 2:
            raise Skip("no network")

    monkeypatch.setattr("benchmarks.peers.install._run", run)
    with pytest.raises(Skip, match="no network"):
        install(REDFLOW, tmp_path)
    assert install(REDFLOW, tmp_path).python == tmp_path / "redflow/venv/bin/python"
    assert len(tries) == 4
    install(REDFLOW, tmp_path)
    assert len(tries) == 4
    install(dataclasses.replace(REDFLOW, python=("redflow==0.2",)), tmp_path)
    assert len(tries) == 6


def test_ours_runs_in_this_environment(tmp_path: Path) -> None:
    made = install(OURS, tmp_path)
    assert made.words(("{python}", "{here}/flows.py")) == [sys.executable, str(HERE / "stepwell/flows.py")]
    assert str(HERE / "kit") in made.variables()["PYTHONPATH"]


def test_who_cannot_be_installed_or_started_is_skipped_and_the_others_go_on(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fake_install(peer: Peer, cache: Path) -> Environment:
        if peer is BULLMQ:
            raise Skip("no npm")
        return Environment(Path("python"), Path("bin"), Path("modules"), Path("here"))

    def take_turn(peer: Peer, *_: object) -> Turn:
        if peer is DBOS:
            raise Skip("no Postgres found")
        order.append(peer.name)
        return turn(1000)

    def recover(peer: Peer, *_: object) -> Recovered:
        if peer is REDFLOW:
            raise Skip("its worker ended")
        return Recovered(200, 1.0, 500, 0, 0, 60)

    order: list[str] = []
    monkeypatch.setattr(session, "install", fake_install)
    monkeypatch.setattr(session, "versions", lambda peer, made: {})
    monkeypatch.setattr(session, "take_turn", take_turn)
    monkeypatch.setattr(session, "recover", recover)
    found = session.run([OURS, REDFLOW, DBOS, BULLMQ], tmp_path, FULL, Progress("peers"))
    assert order == ["stepwell", "redflow", "redflow", "stepwell", "stepwell", "redflow"]
    assert [each.skipped for each in found] == ["", "", "no Postgres found", "no npm"]
    whole = result(found, FULL)
    assert [(line[0], line[1], line[-1]) for line in whole.tables[0].lines[2:]] == [
        ("DBOS", "skipped", "no Postgres found"),
        ("BullMQ", "skipped", "no npm"),
    ]
    assert whole.notes[0] == "redflow, one turn failed: death of the worker: its worker ended"
    assert [line[0] for line in whole.tables[1].lines] == ["Stepwell", "redflow"]
    assert list(whole.tables[1].lines[1])[1:] == ["-", "-", "-", "death of the worker: its worker ended"]


# Tables.


def test_durable_flows_come_first_each_group_by_speed_with_our_lead() -> None:
    found = lines([outcome(OURS, [9000, 10000, 11000]), outcome(BULLMQ, [20000] * 3), outcome(REDFLOW, [1000] * 3)], 0)
    assert [line[:4] for line in found] == [
        ["Stepwell", "10,000", "9,000 to 11,000", ""],
        ["redflow", "1,000", "1,000 to 1,000", "10 x"],
        ["BullMQ", "20,000", "20,000 to 20,000", "0.5 x"],
    ]


def test_our_lead_is_the_median_of_the_rounds_ratios() -> None:
    times = advantage(outcome(OURS, [100, 300, 80]), outcome(REDFLOW, [50, 100, None]))
    assert times == Spread(2.5, 2.0, 3.0)
    assert advantage(outcome(OURS, [100]), outcome(REDFLOW, [None])) is None


def test_the_first_rows_say_how_far_we_are_from_the_fastest_others() -> None:
    rows = result(
        [outcome(OURS, [9000]), outcome(DBOS, [300]), outcome(REDFLOW, [900]), outcome(BULLMQ, [4500])], FULL
    ).rows
    assert [(row.measure, row.value) for row in rows[:2]] == [(FASTEST_FLOWS, 10.0), (FASTEST_QUEUE, 2.0)]


def test_the_readme_claims_only_what_was_measured_in_that_run() -> None:
    found = result([outcome(OURS, [9000]), outcome(REDFLOW, [900])], FULL)
    whole = report.Report(report.FORMAT, False, environment(), 0.1, 0.2, 3.0, found)
    told = "\n".join(claims({"peers": whole}))
    assert "redflow" in told
    assert "| 10 times |" in told
    assert "DBOS" not in told
    assert "queue" not in told


def test_where_ours_could_not_be_measured_the_others_are_shown_without_a_lead() -> None:
    found = result([Outcome(OURS, {}, skipped="no server program"), outcome(REDFLOW, [900])], FULL)
    assert [line[:4] for line in found.tables[0].lines] == [
        ("redflow", "900", "900 to 900", ""),
        ("Stepwell", "skipped", "", ""),
    ]
    assert [row.measure for row in found.rows if "/" in row.measure] == []
    assert result([Outcome(OURS, {}, skipped="no server program")], FULL).rows == []


def test_a_variant_of_ours_is_not_another_system() -> None:
    measures = [
        row.measure for row in result([outcome(OURS, [9]), outcome(BY_NAME["stepwell-client"], [5])], FULL).rows
    ]
    assert FASTEST_FLOWS not in measures


def test_a_death_after_which_not_all_flows_end_says_so() -> None:
    lost = Recovered(flows=200, seconds=None, steps_at_kill=500, twice=58, unfinished=13, patience=60)
    back = Recovered(flows=200, seconds=0.9, steps_at_kill=500, twice=0, unfinished=0, patience=60)
    found = lines([outcome(OURS, [9000], back), outcome(REDFLOW, [900], lost)], 1)
    assert found[0][1:4] == ["0.9", "0 of 1000", "0 of 200"]
    assert found[1][1:] == ["not within 60", "58 of 1000", "13 of 200", REDFLOW.recovery.settings]


def test_the_terms_of_each_system_stand_beside_its_numbers() -> None:
    (line,) = lines([outcome(OURS, [9000])], 2)
    assert line == ["Stepwell", "package 1.2", "Redis", OURS.step, OURS.durability, OURS.settings]


def test_a_queue_is_never_called_a_durable_flow() -> None:
    assert lines([outcome(OURS, [9000]), outcome(BULLMQ, [1])], 0)[1][-1] == Kind.QUEUE.value
    assert any("no durable flow" in note for note in result([outcome(OURS, [9]), outcome(BULLMQ, [1])], FULL).notes)


def test_cpu_that_cannot_be_told_is_a_dash() -> None:
    silent = Outcome(OURS, {}, [turn(9000, cpu=None)])
    assert lines([silent], 0)[0][6] == "-"


def test_a_report_survives_its_json_file_and_shows_its_tables(tmp_path: Path) -> None:
    found = result([outcome(OURS, [9000, 9500]), outcome(REDFLOW, [900, 950])], FULL)
    whole = report.Report(report.FORMAT, False, environment(), 0.1, 0.2, 3.0, found)
    file = tmp_path / "peers.json"
    file.write_bytes(msgspec.json.encode(whole))
    shown = "\n".join(report.section(report.read(file)))
    assert "**On which terms**" in shown
    assert "| redflow | 900 | " not in shown
    assert "| redflow | 925 | 900 to 950 | 10 x | 2 | 4 | 0.1 | durable flow |" in shown
    assert [chart.name for chart in found.charts] == ["throughput", "latency"]
