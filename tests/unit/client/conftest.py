"""A world for conversations: a fake Redis, a clock that moves when somebody waits, and faults on order."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import fakeredis
import msgspec
import pytest
from redis import exceptions as rx
from redis.backoff import NoBackoff
from redis.retry import Retry

from stepwell.actors.kit.clock import VirtualClock
from stepwell.client.moves import Ask, Conversation, Hear, Listen, Move, Peek
from stepwell.client.talk import Talk
from stepwell.core import records
from stepwell.core.errors import StoreError
from stepwell.flow.definitions import FlowLike
from stepwell.flow.registry import Registry
from stepwell.store.keys import Keys
from stepwell.store.link import Link, LinkDown
from stepwell.store.scripts import Scripts


class World:
    """Carries out moves at once. `moves` and `sent` tell what was done; `before` and `after` break what comes."""

    def __init__(self) -> None:
        self.clock = VirtualClock()
        self.redis = fakeredis.FakeRedis(server=fakeredis.FakeServer(version=(6, 2)), retry=Retry(NoBackoff(), 0))
        self.keys = Keys("t", 4)
        self.scripts = Scripts()
        self.link = Link(self.redis, self.keys, self.scripts)
        self.names = (f"id{n}" for n in range(1, 10_000))
        self.talk = self.new_talk()
        self.moves: list[Move] = []
        self.sent: list[str] = []
        self.away_until = -1.0
        self.lost: list[str] = []
        self.refused: list[BaseException] = []
        self._plans: list[tuple[float, Callable[[], Any]]] = []
        self._channel = ""
        self._heard = False

    def new_talk(self, **changes: Any) -> Talk:
        given: dict[str, Any] = {"namespace": "t", "partitions": 4, "clock": self.clock}
        return Talk(**{**given, "new_id": lambda: next(self.names), **changes})

    def later(self, seconds: float, action: Callable[[], Any]) -> None:
        """Plan something that happens while somebody waits."""
        self._plans.append((self.clock.monotonic() + seconds, action))
        self._plans.sort(key=lambda plan: plan[0])

    def lose_reply_of(self, *commands: str) -> None:
        """The next time that each of these is sent, it is executed, but its reply is lost."""
        self.lost += commands

    def go_away(self, seconds: float) -> None:
        """Redis can't be reached for so many seconds; who listened has to subscribe again."""
        self.away_until = self.clock.monotonic() + seconds
        self._channel = ""

    def run(self, conversation: Conversation[Any]) -> Any:
        try:
            move = next(conversation)
            while True:
                self.moves.append(move)
                try:
                    answer = self._carry_out(move)
                except StoreError as error:
                    move = conversation.throw(error)
                else:
                    move = conversation.send(answer)
        except StopIteration as end:
            return end.value

    def _carry_out(self, move: Move) -> Any:
        if isinstance(move, Ask | Peek | Listen) and self.clock.monotonic() < self.away_until:
            raise LinkDown("no connection to Redis") from rx.ConnectionError("refused")
        if isinstance(move, Ask):
            return self._ask(move.commands, self.link.call)
        if isinstance(move, Peek):
            return self._ask(move.commands, self.link.call_each)
        if isinstance(move, Listen):
            self._channel, self._heard = move.channel, False
            return None
        if isinstance(move, Hear):
            return self._hear(move.seconds)
        self._pass(move.seconds, until=lambda: False)
        return None

    def _ask(self, commands: Sequence[Any], call: Callable[[Sequence[Any]], list[object]]) -> Any:
        if self.refused:
            error = self.refused.pop(0)
            raise error if isinstance(error, StoreError) else LinkDown("refused") from error
        names = [str(command[0]) for command in commands]
        self.sent += names
        raws = call([self._not_blocking(command) for command in commands])
        for name in self.lost:
            if name in names:
                self.lost.remove(name)
                raise LinkDown("the reply was lost") from rx.ConnectionError("reset")
        return raws

    def _not_blocking(self, command: Sequence[Any]) -> Any:
        """An XREAD that finds nothing lets virtual time pass."""
        if "BLOCK" not in command[:5]:
            return command
        at = list(command).index("BLOCK")
        asked = [*command[:at], *command[at + 2 :]]
        names = asked[4 : 4 + (len(asked) - 4) // 2]
        ids = asked[4 + len(names) :]

        def found() -> bool:
            return any(self.redis.xrange(name, f"({last}") for name, last in zip(names, ids, strict=True))

        self._pass(command[at + 1] / 1000, until=found)
        return asked

    def _hear(self, seconds: float) -> bool:
        if not self._channel:
            raise LinkDown("the subscription broke") from rx.ConnectionError("reset")
        self._pass(seconds, until=lambda: self._heard or not self._channel)
        heard, self._heard = self._heard, False
        if not heard and not self._channel:
            raise LinkDown("the subscription broke") from rx.ConnectionError("reset")
        return heard

    def _pass(self, seconds: float, until: Callable[[], bool]) -> None:
        end = self.clock.monotonic() + seconds
        while not until() and self._plans and self._plans[0][0] <= end:
            at, action = self._plans.pop(0)
            self.clock.advance_to(max(at, self.clock.monotonic()))
            action()
        if not until():
            self.clock.advance_to(max(end, self.clock.monotonic()))

    def publish(self, channel: str) -> None:
        self._heard = self._heard or channel == self._channel

    def kinds(self, kind: type[Move]) -> int:
        return sum(isinstance(move, kind) for move in self.moves)

    # --- what others do to the rows

    def start(self, execution_id: str = "e1", flow: str = "checkout", **given: Any) -> str:
        made: str = self.run(self.talk.start(flow, given or {"n": 1}, execution_id, unchecked=True))
        return made

    def put(self, execution_id: str = "e1", *, told: bool = True, **fields: Any) -> None:
        """Write fields of a row, and publish its end unless it was not `told`."""
        values = {name: value if isinstance(value, bytes) else str(value).encode() for name, value in fields.items()}
        self.redis.hset(self.keys.row(execution_id), mapping=values)
        if told:
            self.publish(self.keys.ended(execution_id))

    def fail(self, execution_id: str = "e1", status: str = "error", **error: Any) -> None:
        given = {"type": "ValueError", "message": "no", "at": 1, **error}
        self.put(execution_id, status=status, error=records.encode(records.TerminalError(**given)))

    def inbox(self, execution_id: str = "e1") -> list[dict[bytes, bytes]]:
        key = self.keys.inbox(self.keys.partition_of(execution_id))
        return [fields for _, fields in self.redis.xrange(key)]

    def answer(self, applied: bool, status: str = "running", reason: str = "", execution_id: str = "e1") -> None:
        """Record the outcome of the command that came last."""
        command_id = self.inbox(execution_id)[-1][b"command"].decode()
        partition = self.keys.partition_of(execution_id)
        outcome = records.encode(records.Outcome(applied, status, reason))
        self.redis.hset(self.keys.cmd(partition, command_id), mapping={"outcome": outcome, "at": 1})
        self.publish(self.keys.command_done(partition, command_id))

    def offer(self, worker_id: str, flow: FlowLike) -> None:
        """A heartbeat of a worker that has this flow."""
        seconds, _ = self.redis.time()
        beat = {"at": seconds * 1000, "flows": Registry(flow).describe()}
        self.redis.hset(self.keys.workers, worker_id, msgspec.json.encode(beat))

    def worker(self, worker_id: str = "w1", age_ms: int = -3_600_000, **flows: dict[str, bool]) -> None:
        """A heartbeat that knows these flows: name -> parameter -> whether it is required. By default it lives for as
        long as a test may be held up: the server's time is real."""
        seconds, micros = self.redis.time()
        beat = {
            "at": seconds * 1000 + micros // 1000 - age_ms,
            "flows": {name: {"parameters": parameters} for name, parameters in flows.items()},
        }
        self.redis.hset(self.keys.workers, worker_id, msgspec.json.encode(beat))


@pytest.fixture
def world() -> World:
    """An empty namespace of four partitions."""
    return World()
