"""What the deaths of shards have left against executions and inbox entries of a partition.

Fields of the hash `suspects`: `x:<execution id>` and `e:<entry id>` hold strikes (`<how many>|<last box>|<cause>`),
`i:<execution id>` the attempts that the last death interrupted (JSON). They are read with the grant of the partition,
and go with the commit that holds their effect.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from types import MappingProxyType
from typing import Final

import msgspec
import redis

from stepwell.core.codec import UNREADABLE
from stepwell.core.errors import StoreError
from stepwell.core.records import CutShort
from stepwell.store.keys import Keys
from stepwell.store.link import Link
from stepwell.store.replies import fields_of, items_of
from stepwell.store.requests import Command
from stepwell.store.scripts import Scripts

__all__ = ["NO_SUSPECTS", "Loss", "Strike", "Suspect", "SuspectStore", "Suspects", "suspects_of"]

_STRIKE = re.compile(r"(\d{1,9})\|[0-9a-f]*\|(.*)", re.DOTALL)
_decode_cut = msgspec.json.Decoder(tuple[CutShort, ...]).decode
_encode = msgspec.json.Encoder().encode


class Strike(msgspec.Struct, frozen=True):
    """So many shards died or hung on it; `cause` says how the last one did."""

    count: int
    cause: str


class Suspect(msgspec.Struct, frozen=True):
    """One execution. `cut`: its attempts that the last death interrupted, if one was written down."""

    strike: Strike | None = None
    cut: tuple[CutShort, ...] = ()


class Suspects(msgspec.Struct, frozen=True):
    """All of a partition: by execution id, and by inbox entry id."""

    executions: Mapping[str, Suspect]
    entries: Mapping[str, Strike]


NO_SUSPECTS: Final = Suspects(MappingProxyType({}), MappingProxyType({}))


class Loss(msgspec.Struct, frozen=True):
    """What a dead shard leaves in one partition. `value` and `epoch` of its lease, '' and 0 where it has lapsed.

    `cut`: by execution id; None: it is not known what ran. `executions` and `entries` get a strike.
    """

    partition: int
    value: str
    epoch: int
    cut: Mapping[str, tuple[CutShort, ...]] | None
    executions: tuple[str, ...] = ()
    entries: tuple[str, ...] = ()


class SuspectStore:
    """Writes down what a death left, once for each black box. Raises LinkDown, StoreRefused or StoreError."""

    def __init__(self, client: redis.Redis, keys: Keys, scripts: Scripts) -> None:
        self._link = Link(client, keys, scripts)
        self._keys = keys
        self._scripts = scripts

    def reap(self, losses: list[Loss], box_id: str, cause: str) -> list[int]:
        """Strikes, interrupted steps and the lease's end, one script for each partition. Sent again after a lost reply
        it changes nothing. Returns the partitions that are free now."""
        raws = self._link.call_ours([self._reap(loss, box_id, cause) for loss in losses])
        return [loss.partition for loss, raw in zip(losses, raws, strict=True) if _freed(loss, raw)]

    def _reap(self, loss: Loss, box_id: str, cause: str) -> Command:
        part = self._keys.parts[loss.partition]
        boxed = "" if loss.cut is None else "boxed"
        struck = [f"x:{execution_id}" for execution_id in loss.executions] + [f"e:{entry}" for entry in loss.entries]
        command: Command = ["EVALSHA", self._scripts.lease_reap, 3, part.lease, part.epoch, part.suspects]
        command += [loss.value, loss.epoch, box_id, boxed, len(struck)]
        for field in struck:
            command += [field, cause]
        for execution_id, cut in (loss.cut or {}).items():
            command += [f"i:{execution_id}", _encode(cut)]
        return command

    def read(self, partition: int) -> Suspects:
        """All suspects of a partition."""
        (raw,) = self._link.call([["HGETALL", self._keys.suspects(partition)]])
        return suspects_of(raw)


def suspects_of(raw: object) -> Suspects:
    """The suspects in a reply to HGETALL; what Stepwell did not write is passed over."""
    fields = fields_of(raw)
    if not fields:
        return NO_SUSPECTS
    strikes: dict[str, Strike] = {}
    cuts: dict[str, tuple[CutShort, ...]] = {}
    for name, value in fields.items():
        if name[:2] in ("x:", "e:"):
            said = _STRIKE.fullmatch(value.decode(errors="replace"))
            if said is not None:
                strikes[name] = Strike(int(said[1]), said[2])
        elif name[:2] == "i:":
            try:
                cuts[name[2:]] = _decode_cut(value)
            except UNREADABLE:
                cuts[name[2:]] = ()
    struck = {name[2:]: strike for name, strike in strikes.items() if name[0] == "x"}
    executions = {each: Suspect(struck.get(each), cuts.get(each, ())) for each in (*struck, *cuts)}
    entries = {name[2:]: strike for name, strike in strikes.items() if name[0] == "e"}
    return Suspects(executions, entries)


def _freed(loss: Loss, raw: object) -> bool:
    if raw is None:
        return False  # one of its keys is a stranger's
    answer = items_of(raw)
    if answer[:1] not in ([b"OK"], [b"LOST"]):
        raise StoreError(f"reaping partition {loss.partition}, the server answered {raw!r:.200}")
    return answer[0] == b"OK"
