"""The limit: what a bare pipelined loop reaches with the very commands that a run sent.

The commands are taken from the server (MONITOR) while the product runs, and sent to an empty server of the same kind:
first what created the executions, then what their owner sent, in the same order. Only the lease and the inbox
entries' ids, which the server makes, are set anew.
"""

from __future__ import annotations

import re
import threading
import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from types import TracebackType
from typing import Self

from benchmarks.bare import Bare
from stepwell.store.flight import pack
from stepwell.store.keys import Keys
from stepwell.store.scripts import Scripts

__all__ = ["Recording", "Replay"]

Words = list[bytes]
_WORD = re.compile(rb'"((?:[^"\\]|\\.)*)"')
_ESCAPE = re.compile(rb"\\(?:x([0-9a-f]{2})|(.))", re.DOTALL)
_CPU = re.compile(rb"^used_cpu_(?:sys|user):([0-9.]+)", re.MULTILINE)
_PLAIN = {b"n": b"\n", b"r": b"\r", b"t": b"\t", b"a": b"\a", b"b": b"\b"}


class Recording:
    """Within the block, everything that connections send is written down (what scripts do inside is not)."""

    def __init__(self, url: str) -> None:
        self.commands: list[Words] = []
        self._link = Bare(url)
        self._lines: list[bytes] = []
        self._end = b"end of recording"
        self._url = url
        self._thread = threading.Thread(target=self._listen, name="recording", daemon=True)

    def __enter__(self) -> Self:
        self._link.call("MONITOR")
        self._thread.start()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, tb: TracebackType | None) -> None:
        with Bare(self._url) as other:
            other.call("ECHO", self._end)
        self._thread.join(60)
        self._link.close()
        self.commands = [words_of(line) for line in self._lines]

    def _listen(self) -> None:
        while True:
            line = self._link.line()
            if self._end in line:
                return
            if b" lua] " not in line[:64]:
                self._lines.append(line)


def words_of(line: bytes) -> Words:
    """The arguments in a line of MONITOR."""
    return [_ESCAPE.sub(_unescaped, word) for word in _WORD.findall(line)]


def _unescaped(found: re.Match[bytes]) -> bytes:
    if found[1]:
        return bytes([int(found[1], 16)])
    return _PLAIN.get(found[2], found[2])


@dataclass(frozen=True, slots=True)
class Replay:
    """The commands of a run, sorted: what created executions, what read rows and committed. `url`: where they go."""

    creates: Sequence[Words]
    works: Sequence[Words]
    url: str
    keys: Keys
    scripts: Scripts

    @classmethod
    def of(cls, commands: Iterable[Words], url: str, keys: Keys, scripts: Scripts) -> Replay:
        """Pick them from a recording."""
        creates: list[Words] = []
        works: list[Words] = []
        create, commit = scripts.create.encode(), scripts.commit.encode()
        for words in commands:
            script = words[1] if words[0] == b"EVALSHA" else b""
            if script == create:
                creates.append(words)
            elif script == commit or (words[0] == b"HGETALL" and b":x:" in words[1]):
                works.append(words)
        return cls(creates, works, url, keys, scripts)

    def run(self, batch: int) -> tuple[float, float]:
        """Send all of them to the emptied server, `batch` at a time: the seconds, and the server's CPU seconds.

        Raises:
            RuntimeError: a commit was not taken as it was in the run.
        """
        with Bare(self.url) as link:
            self._prepare(link)
            before = _cpu_seconds(link)
            seconds = _send(link, self.creates, batch, lambda _, reply: reply == [b"CREATED"])
            used = _cpu_seconds(link) - before
            works = self._with_entries(self._entries(link))
            before = _cpu_seconds(link)
            seconds += _send(link, works, batch, _is_fine)
            return seconds, used + _cpu_seconds(link) - before

    def _prepare(self, link: Bare) -> None:
        link.call("FLUSHALL", "SYNC")
        for command in self.scripts.load_commands():
            link.call(*command)
        leases = {words[3]: _arguments(words)[0] for words in self.works if words[0] == b"EVALSHA"}
        for key, value in leases.items():
            link.call("SET", key, value)

    def _entries(self, link: Bare) -> dict[bytes, bytes]:
        """The doorbell of each execution."""
        found: dict[bytes, bytes] = {}
        for part in self.keys.parts:
            entries = link.call("XRANGE", part.inbox, "-", "+")
            assert isinstance(entries, list), entries
            found |= {fields[fields.index(b"execution") + 1]: entry_id for entry_id, fields in entries}
        return found

    def _with_entries(self, entries: dict[bytes, bytes]) -> list[Words]:
        works = []
        for words in self.works:
            changed = words
            if words[0] == b"EVALSHA":
                at = len(words) - len(_arguments(words))
                dels, applied = int(words[at + 6]), int(words[at + 7] or 0)
                changed = list(words)
                for number in range(applied):
                    changed[at + 17 + dels + 3 * number] = entries[words[at + 8]]
            works.append(changed)
        return works


def _cpu_seconds(link: Bare) -> float:
    info = link.call("INFO", "cpu")
    assert isinstance(info, bytes), info
    return sum(float(seconds) for seconds in _CPU.findall(info))


def _arguments(words: Words) -> Words:
    """A script call's ARGV."""
    return words[3 + int(words[2]) :]


def _is_fine(words: Words, reply: object) -> bool:
    """Creations are answered with OK, commits with the count of their partition, reads with a row."""
    if words[0] == b"EVALSHA":
        return reply == b"OK" or isinstance(reply, int)
    return isinstance(reply, list) and len(reply) > 0


def _send(link: Bare, commands: Sequence[Words], batch: int, fine: Callable[[Words, object], bool]) -> float:
    chunks = [commands[start : start + batch] for start in range(0, len(commands), batch)]
    packed = [(pack([list(words) for words in chunk]), len(chunk)) for chunk in chunks]
    replies: list[object] = []
    began = time.perf_counter()
    for data, count in packed:
        replies += link.batch(data, count)
    taken = time.perf_counter() - began
    for words, reply in zip(commands, replies, strict=True):
        if not fine(words, reply):
            raise RuntimeError(f"sent again, {b' '.join(words)!r:.300} was answered {reply!r:.200}")
    return taken
