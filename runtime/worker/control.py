"""What a worker's parent and its shards tell each other, and how: typed messages in frames, over two pipes.

The parent never waits for a shard: its ends don't block, what is not there yet stays unread, and what a full pipe
does not take is not sent.
"""

from __future__ import annotations

import os
import struct
from collections.abc import Iterator
from typing import Final, Generic, TypeAlias, TypeVar

import msgspec

from stepwell.worker.settings import ShardSettings

__all__ = [
    "Begin",
    "Drain",
    "Drained",
    "Failed",
    "Hello",
    "Hurry",
    "Load",
    "Loaded",
    "LogSettings",
    "Pulse",
    "Receiver",
    "Started",
    "ToParent",
    "ToShard",
    "Trouble",
    "send",
    "to_parent",
    "to_shard",
]

FRAME_BYTES_MAX: Final = 64 << 20
_HEAD: Final = struct.Struct(">I")
_CHUNK: Final = 1 << 16


class LogSettings(msgspec.Struct, frozen=True):
    """How a process logs, and the level (a number of `logging`)."""

    json: bool = False
    level: int = 20


# From the parent to a shard.


class Load(msgspec.Struct, frozen=True, tag=True):
    """Be shard number `index`: load the flows of these files and modules, then wait for `Begin`."""

    index: int
    targets: tuple[str, ...]
    log: LogSettings


class Begin(msgspec.Struct, frozen=True, tag=True):
    """The server has been checked: run on it. `secret` is the namespace's."""

    url: str
    namespace: str
    partitions: int
    secret: bytes
    created_ms: int
    settings: ShardSettings
    durability: str = "relaxed"

    def __repr__(self) -> str:
        return f"Begin({self.namespace!r}, {self.settings!r})"


class Hurry(msgspec.Struct, frozen=True, tag=True):
    """A sibling has died: look at memberships and leases now."""


class Drain(msgspec.Struct, frozen=True, tag=True):
    """Take in nothing new, let running steps finish within `grace` seconds, then end."""

    grace: float


# From a shard to the parent.


class Hello(msgspec.Struct, frozen=True, tag=True):
    """The process lives; `host_info` is what its leases will say of it."""

    host_info: str


class Loaded(msgspec.Struct, frozen=True, tag=True):
    """The flows are loaded; `findings` are what the linter says of them."""

    flows: tuple[str, ...]
    findings: tuple[str, ...] = ()


class Pulse(msgspec.Struct, frozen=True, tag=True):
    """Every second: it lives. `silent` is seconds since its lease thread came round, `problem` what makes it unready,
    `held_at` where in the code its scheduler is held now."""

    silent: float
    ready: bool
    standing_by: bool
    problem: str
    held_at: str = ""


class Started(msgspec.Struct, frozen=True, tag=True):
    """It runs."""

    pulse: Pulse


class Trouble(msgspec.Struct, frozen=True, tag=True):
    """Redis can't be reached."""


class Failed(msgspec.Struct, frozen=True, tag=True):
    """It ends by itself. `kind` is the error's class; a refusal to start is a `UsageError` or a `StoreError`."""

    kind: str
    reason: str


class Drained(msgspec.Struct, frozen=True, tag=True):
    """It ends as it was told to; `left` steps were cut short."""

    left: int


ToShard: TypeAlias = Load | Begin | Hurry | Drain
ToParent: TypeAlias = Hello | Loaded | Started | Pulse | Trouble | Failed | Drained
M = TypeVar("M")

_encode = msgspec.msgpack.Encoder().encode


def to_shard() -> msgspec.msgpack.Decoder[ToShard]:
    """Reads what the parent sends."""
    return msgspec.msgpack.Decoder(ToShard)


def to_parent() -> msgspec.msgpack.Decoder[ToParent]:
    """Reads what a shard sends."""
    return msgspec.msgpack.Decoder(ToParent)


def send(fd: int, message: ToShard | ToParent) -> bool:
    """Write one message. False where the pipe is full and does not block (nothing is written then).

    Raises:
        OSError: nobody reads any more.
    """
    body = _encode(message)
    frame = memoryview(_HEAD.pack(len(body)) + body)
    if not os.get_blocking(fd):
        try:
            return os.write(fd, frame) == len(frame)  # whole or not at all: what the parent sends is under PIPE_BUF
        except BlockingIOError:
            return False
    while frame:
        frame = frame[os.write(fd, frame) :]
    return True


class Receiver(Generic[M]):
    """Takes messages out of the bytes that a pipe brings."""

    def __init__(self, fd: int, decoder: msgspec.msgpack.Decoder[M]) -> None:
        self._fd = fd
        self._decoder = decoder
        self._bytes = bytearray()
        self.ended = False
        """Whether the other side has closed the pipe."""

    def receive(self) -> Iterator[M]:
        """Messages that came: waits for bytes first unless the pipe does not block. Stops where there is no more now.

        Raises:
            ValueError: what came is no message (`msgspec.DecodeError` is one, too).
        """
        self._read()
        while len(self._bytes) >= _HEAD.size:
            (size,) = _HEAD.unpack_from(self._bytes)
            if size > FRAME_BYTES_MAX:
                raise ValueError(f"a message of {size} bytes")
            end = _HEAD.size + size
            if len(self._bytes) < end:
                break
            body = bytes(self._bytes[_HEAD.size : end])
            del self._bytes[:end]
            yield self._decoder.decode(body)

    def _read(self) -> None:
        """What the pipe has: all of it if it does not block, else one piece."""
        while not self.ended:
            try:
                chunk = os.read(self._fd, _CHUNK)
            except BlockingIOError:
                return
            self.ended = not chunk
            self._bytes += chunk
            if os.get_blocking(self._fd):
                return
