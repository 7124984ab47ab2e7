"""How a black box lies in its file: fixed places, little endian, each slot's state byte last."""

from __future__ import annotations

import struct
from pathlib import Path
from typing import Final

MAGIC: Final = b"SWBOX\x001\n"
SLOTS: Final = 4096
BY_LOOP: Final = 1
ON_THREAD: Final = 2

# magic, id, pid, slots, slots ever used, attempts without a slot, threads of the scheduler and of the step loop, beat
HEADER: Final = struct.Struct("<8s16sIIIIQQd")
USED_AT: Final = 32
UNSLOTTED_AT: Final = 36
THREADS_AT: Final = 40
BEAT_AT: Final = 56
# since, length and text of the actor's name, state
TURN: Final = struct.Struct("<dB128sB")
TURN_AT: Final = 64
# partition, length and text of the entry's id, state
ENTRY: Final = struct.Struct("<HB64sB")
ENTRY_AT: Final = 256
# partition, attempt, lengths and texts of execution id, token, path, thread, at work, state
ATTEMPT: Final = struct.Struct("<HIBBB128s32s76sQBB")
ATTEMPT_SIZE: Final = 256
ATTEMPTS_AT: Final = 512
ID_MAX: Final = 128
TOKEN_MAX: Final = 32
PATH_MAX: Final = 76


def fault_path(path: Path) -> Path:
    """Where the interpreter writes what a fatal signal (SIGSEGV, SIGABRT, ...) met, beside the box at `path`."""
    return path.with_name(path.name + ".fault")
