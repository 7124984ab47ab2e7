"""The links to Redis in a simulation: every request and reply is kept, and any of them can go wrong on purpose."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import zip_longest
from typing import Literal

import redis
from redis.exceptions import RedisError
from sim.dying import PartFailed, ShardDied

from stepwell.store.keys import Keys
from stepwell.store.link import Link, LinkDown
from stepwell.store.replies import Reply
from stepwell.store.requests import Command, Request
from stepwell.store.scripts import Scripts

Verdict = Literal["down", "lost"] | Reply | None
Judge = Callable[[Request], Verdict]


Fate = Literal["", "cut", "lost", "torn", "repeated", "dies before", "dies after"]
"""Of one exchange: it is as usual; the connection breaks before it, after it, or in its middle; it is done twice; the
process dies before or after it."""


class Weather:
    """What happens to all links of a simulation: `down` breaks every exchange, `lose` swallows replies by name."""

    def __init__(self) -> None:
        self.down = False
        self.lose: set[str] = set()
        self.exchanges = 0

    def fate(self, link: str, commands: Sequence[Command]) -> Fate:
        """Asked once for each exchange of each link."""
        if link in self.lose:
            self.lose.discard(link)
            return "lost"
        return ""


class SimLink(Link):
    """A link that breaks when the weather says so."""

    def __init__(self, client: redis.Redis, keys: Keys, scripts: Scripts, weather: Weather, name: str) -> None:
        super().__init__(client, keys, scripts)
        self._weather = weather
        self._name = name
        self.answered: list[object] = []
        """What the server has answered to the last exchange, whether it was heard or not."""

    def _round_trip(self, commands: Sequence[Command]) -> list[object]:
        self.answered = []
        if self._weather.down:
            raise LinkDown("no connection to Redis: the simulation says so")
        fate = self._weather.fate(self._name, commands)
        if fate == "cut":
            raise LinkDown("the connection to Redis broke before anything was sent, on purpose")
        if fate == "dies before":
            raise ShardDied
        self._weather.exchanges += 1
        self.answered = raws = self._carry(commands[: len(commands) // 2] if fate == "torn" else commands)
        if fate == "repeated":
            raws = self._carry(commands)
        if fate == "dies after":
            raise ShardDied
        if fate in ("torn", "lost"):
            raise LinkDown("the connection to Redis broke: the reply was lost on purpose")
        return raws

    def _carry(self, commands: Sequence[Command]) -> list[object]:
        return super()._round_trip(commands)


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
        try:
            answers = iter(super().execute(live))
        except (LinkDown, ShardDied, PartFailed):
            self.sent += [self._unheard(request, raw) for request, raw in zip_longest(live, self.answered)]
            raise
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

    @staticmethod
    def _unheard(request: Request, raw: object) -> Sent:
        if raw is None or isinstance(raw, RedisError):
            return Sent(request, None, False)
        return Sent(request, None, True, request.parse(raw))
