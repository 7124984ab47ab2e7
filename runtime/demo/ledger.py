"""The receiver's raw log in SQLite: every request, every effect, and the answer that belongs to each key.

Times are seconds of the machine's monotonic clock, which all processes of the demo share.
"""

from __future__ import annotations

import contextlib
import sqlite3
import threading
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

__all__ = ["Effect", "Ledger", "Request", "Tally", "read_effects", "read_requests", "tally"]

RESET = "reset"

_SCHEMA = """
CREATE TABLE requests (
    id INTEGER PRIMARY KEY, arrived REAL NOT NULL, ended REAL, "order" TEXT NOT NULL, step TEXT NOT NULL,
    key TEXT NOT NULL, attempt INTEGER NOT NULL, outcome TEXT NOT NULL DEFAULT '',
    recorded INTEGER NOT NULL DEFAULT 0, asked REAL NOT NULL DEFAULT 0
);
CREATE TABLE effects (
    id INTEGER PRIMARY KEY, at REAL NOT NULL, "order" TEXT NOT NULL, step TEXT NOT NULL, key TEXT NOT NULL,
    receipt TEXT NOT NULL
);
CREATE TABLE answers (key TEXT PRIMARY KEY, receipt TEXT NOT NULL);
"""


@dataclass(frozen=True, slots=True)
class Request:
    """One request as the receiver saw it; `order` and `step` come from its body.

    Attributes:
        arrived: when it came.
        ended: when its answer was about to be sent; None: never.
        order: which order.
        step: which step.
        key: its `Idempotency-Key`.
        attempt: the number of the attempt that sent it.
        outcome: the status of the answer, or `reset`.
        recorded: whether this very request recorded an effect.
        asked: seconds that `Retry-After` asked for; 0: none.
    """

    arrived: float
    ended: float | None
    order: str
    step: str
    key: str
    attempt: int
    outcome: str
    recorded: bool
    asked: float = 0.0

    @property
    def reset_after_recording(self) -> bool:
        """Whether its effect was recorded and then its connection reset."""
        return self.recorded and self.outcome == RESET


@dataclass(frozen=True, slots=True)
class Effect:
    """One side effect; `order` and `step` come from the body of the request that caused it."""

    order: str
    step: str
    key: str
    receipt: str


@dataclass(frozen=True, slots=True)
class Tally:
    """How far the receiver is."""

    requests: int = 0
    effects: int = 0
    resets: int = 0


class Ledger:
    """The writing side; threads may share it. `now` gives the times."""

    def __init__(self, path: Path, now: Callable[[], float]) -> None:
        self._now = now
        self._lock = threading.Lock()
        self.effects = 0
        """How many were recorded."""
        self._db = sqlite3.connect(path, isolation_level=None, check_same_thread=False)
        self._db.execute("PRAGMA journal_mode=WAL")
        self._db.execute("PRAGMA synchronous=OFF")  # a log of processes that crash, not of a machine that does
        self._db.executescript(_SCHEMA)

    def arrived(self, order: str, step: str, key: str, attempt: int) -> tuple[int, int]:
        """Log a request; its number, and how many of the same order and step came before."""
        with self._lock:
            (earlier,) = self._db.execute(
                'SELECT count(*) FROM requests WHERE "order" = ? AND step = ?', (order, step)
            ).fetchone()
            row = self._db.execute(
                'INSERT INTO requests (arrived, "order", step, key, attempt) VALUES (?, ?, ?, ?, ?)',
                (self._now(), order, step, key, attempt),
            )
            return row.lastrowid or 0, earlier

    def effect(self, request: int, order: str, step: str, key: str) -> str:
        """Record the effect, unless one with this key is there already; the receipt that belongs to the key.

        Without a key each request is a new one.
        """
        with self._lock:
            known = self._db.execute("SELECT receipt FROM answers WHERE key = ?", (key,)).fetchone()
            if known is not None:
                return str(known[0])
            receipt = f"{step}-{order}-{request}"
            self._db.execute("BEGIN")
            self._db.execute(
                'INSERT INTO effects (at, "order", step, key, receipt) VALUES (?, ?, ?, ?, ?)',
                (self._now(), order, step, key, receipt),
            )
            if key:
                self._db.execute("INSERT INTO answers VALUES (?, ?)", (key, receipt))
            self._db.execute("UPDATE requests SET recorded = 1 WHERE id = ?", (request,))
            self._db.execute("COMMIT")
            self.effects += 1
            return receipt

    def ended(self, request: int, outcome: str, asked: float = 0.0) -> None:
        """Log how a request is about to be answered. Before the answer: what comes after it can't seem too early."""
        with self._lock:
            self._db.execute(
                "UPDATE requests SET ended = ?, outcome = ?, asked = ? WHERE id = ?",
                (self._now(), outcome, asked, request),
            )

    def close(self) -> None:
        """Close the file."""
        with self._lock:
            self._db.close()


def tally(path: Path) -> Tally:
    """Count what is in a ledger."""
    with contextlib.closing(sqlite3.connect(path)) as db:
        requests, resets = db.execute(
            "SELECT count(*), coalesce(sum(recorded AND outcome = ?), 0) FROM requests", (RESET,)
        ).fetchone()
        (effects,) = db.execute("SELECT count(*) FROM effects").fetchone()
    return Tally(requests, effects, resets)


def read_requests(path: Path) -> list[Request]:
    """All requests in the order of their arrival."""
    query = 'SELECT arrived, ended, "order", step, key, attempt, outcome, recorded, asked FROM requests ORDER BY id'
    with contextlib.closing(sqlite3.connect(path)) as db:
        return [Request(r[0], r[1], r[2], r[3], r[4], r[5], r[6], bool(r[7]), r[8]) for r in db.execute(query)]


def read_effects(path: Path) -> list[Effect]:
    """All effects in the order in which they were recorded."""
    with contextlib.closing(sqlite3.connect(path)) as db:
        return [Effect(*row) for row in db.execute('SELECT "order", step, key, receipt FROM effects ORDER BY id')]
