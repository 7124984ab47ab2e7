"""The links to Redis in a simulation: every request and reply is kept, and any of them can go wrong on purpose."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Literal

import redis

from stepwell.store.keys import Keys
from stepwell.store.link import Link, LinkDown
from stepwell.store.replies import Reply
from stepwell.store.requests import Command, Commit, Request, Restore
from stepwell.store.scripts import Scripts

Verdict = Literal["down", "lost"] | Reply | None
Judge = Callable[[Request], Verdict]


class Weather:
    """What happens to all links of a simulation: `down` breaks every exchange, `lose` swallows replies by name."""

    def __init__(self) -> None:
        self.down = False
        self.lose: set[str] = set()
        self.exchanges = 0


class SimLink(Link):
    """A link that breaks when the weather says so."""

    def __init__(self, client: redis.Redis, keys: Keys, scripts: Scripts, weather: Weather, name: str) -> None:
        super().__init__(client, keys, scripts)
        self._weather = weather
        self._name = name

    def _round_trip(self, commands: Sequence[Command]) -> list[object]:
        if self._weather.down:
            raise LinkDown("no connection to Redis: the simulation says so")
        self._weather.exchanges += 1
        raws = super()._round_trip(commands)
        if self._name in self._weather.lose:
            self._weather.lose.discard(self._name)
            raise LinkDown("the connection to Redis broke: the reply was lost on purpose")
        return raws


@dataclass
class Sent:
    """One sending of a request. `reply` is None where the sender never heard of it; `done`: the server did it.

    `truth` is what the server answered, heard or not; None where it was not asked.
    """

    request: Request
    reply: Reply | None
    done: bool
    truth: Reply | None = None


class Journal(SimLink):
    """The Mirror's link: keeps what was sent; `judge` decides the fate of each request before it is sent.

    A verdict is None (as usual), a Reply (the server answers this and does nothing), "lost" (the server does it, the
    connection breaks) or "down" (the connection breaks first, for the whole batch).
    """

    sent: list[Sent]

    def __init__(self, client: redis.Redis, keys: Keys, scripts: Scripts, weather: Weather, sent: list[Sent]) -> None:
        super().__init__(client, keys, scripts, weather, "mirror")
        self.sent = sent
        self.judge: Judge = lambda _request: None

    def execute(self, requests: Sequence[Request]) -> list[Reply]:
        verdicts = [self.judge(request) for request in requests]
        if "down" in verdicts:
            self.sent += [Sent(request, None, False) for request in requests]
            raise LinkDown("cut before it was sent, on purpose")
        live = [request for request, verdict in zip(requests, verdicts, strict=True) if verdict in (None, "lost")]
        answers = iter(super().execute(live))
        lost = "lost" in verdicts
        replies: list[Reply] = []
        for request, verdict in zip(requests, verdicts, strict=True):
            done = verdict in (None, "lost")
            reply = next(answers) if done else verdict
            assert reply is not None
            assert not isinstance(reply, str)
            replies.append(reply)
            self.sent.append(Sent(request, None if lost else reply, done, reply if done else None))
        if lost:
            raise LinkDown("cut before the reply came, on purpose")
        return replies


def is_write(request: Request) -> bool:
    """Whether it is a commit or a restore."""
    return isinstance(request, Commit | Restore)
