"""Every key and channel name in Redis; nothing else builds one.

All keys of partition 7 carry the hash tag `{ns:7}`, so that one script may touch them together. The names
of a partition are built once, because the commit path asks for them at every step.
"""

from __future__ import annotations

import re
from typing import Final

from stepwell.core.errors import InvalidName, UsageError
from stepwell.core.partition import DEFAULT_PARTITIONS, partition_of
from stepwell.core.status import STATUSES

__all__ = ["MAX_PARTITIONS", "Keys", "PartitionKeys", "check_namespace"]

MAX_PARTITIONS: Final = 16384

_NAMESPACE = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.-]{0,63}\Z")


def check_namespace(name: str) -> str:
    """The name. Raises InvalidName where it is no good."""
    if not _NAMESPACE.match(name):
        raise InvalidName(
            f"the namespace {name!r} is not usable: take 1 to 64 letters, digits, '_', '.' or '-', "
            "beginning with a letter or digit"
        )
    return name


class PartitionKeys:
    """The names of one partition, ready to use.

    `row`, `ended` and `cmd`, `done` are prefixes that an execution id or a command id completes; a flow's name
    completes `backoff_of` and `flow`, and `lists.py` does `attribute` and `error`.
    """

    __slots__ = (
        "attribute",
        "backoff",
        "backoff_of",
        "by",
        "cmd",
        "dead",
        "done",
        "ended",
        "epoch",
        "error",
        "events",
        "flow",
        "inbox",
        "lease",
        "live",
        "number",
        "outbox",
        "row",
        "seq",
        "suspects",
    )

    def __init__(self, namespace: str, number: int) -> None:
        tag = f"{{{namespace}:{number}}}:"
        self.number = number
        self.row = tag + "x:"
        self.inbox = tag + "inbox"
        self.live = tag + "live"
        self.by = {status: f"{tag}by:{status}" for status in STATUSES}
        self.backoff = tag + "backoff"
        self.backoff_of = tag + "backoff:"
        self.flow = tag + "flow:"
        self.attribute = tag + "attr:"
        self.error = tag + "error:"
        self.lease = tag + "lease"
        self.epoch = tag + "epoch"
        self.seq = tag + "seq"
        self.cmd = tag + "cmd:"
        self.outbox = tag + "outbox"
        self.suspects = tag + "suspects"
        self.dead = tag + "dead"
        self.events = tag + "events"
        self.ended = tag + "ended:"
        self.done = tag + "done:"


class Keys:
    """The names of one namespace with a fixed number of partitions."""

    __slots__ = ("ingress", "ingress_dead", "meta", "namespace", "partitions", "parts", "shards", "vitals", "workers")

    def __init__(self, namespace: str = "stepwell", partitions: int = DEFAULT_PARTITIONS) -> None:
        check_namespace(namespace)
        if not 1 <= partitions <= MAX_PARTITIONS:
            raise UsageError(f"expected 1 to {MAX_PARTITIONS} partitions, got {partitions}")
        self.namespace = namespace
        self.partitions = partitions
        self.parts = tuple(PartitionKeys(namespace, number) for number in range(partitions))
        self.meta = f"{namespace}:meta"
        self.workers = f"{namespace}:workers"
        self.shards = f"{namespace}:shards"
        self.vitals = f"{namespace}:vitals"
        self.ingress = f"{namespace}:ingress"
        # Redis Cluster hashes what stands in the braces, so it lies where the ingress lies.
        self.ingress_dead = f"{{{namespace}:ingress}}:dead"

    def partition_of(self, execution_id: str) -> int:
        """The partition that an execution belongs to."""
        return partition_of(execution_id, self.partitions)

    def row(self, execution_id: str) -> str:
        """The hash that holds an execution."""
        return self.parts[self.partition_of(execution_id)].row + execution_id

    def inbox(self, partition: int) -> str:
        """The stream of commands and doorbells that are not applied yet."""
        return self.parts[partition].inbox

    def live(self, partition: int) -> str:
        """The sorted set of unfinished executions by their next due time."""
        return self.parts[partition].live

    def by(self, partition: int, status: str) -> str:
        """The sorted set that lists the executions of one status, by the time that all lists have (see `lists.py`)."""
        return self.parts[partition].by[status]

    def lease(self, partition: int) -> str:
        """The string that names who may write the partition."""
        return self.parts[partition].lease

    def epoch(self, partition: int) -> str:
        """The string that remembers the last grant."""
        return self.parts[partition].epoch

    def seq(self, partition: int) -> str:
        """The counter of commits."""
        return self.parts[partition].seq

    def cmd(self, partition: int, command_id: str) -> str:
        """The hash with a command's outcome."""
        return self.parts[partition].cmd + command_id

    def outbox(self, partition: int) -> str:
        """The stream of messages to executions in other partitions."""
        return self.parts[partition].outbox

    def suspects(self, partition: int) -> str:
        """The hash of strikes against executions and commands that were at work when a shard died."""
        return self.parts[partition].suspects

    def dead(self, partition: int) -> str:
        """The stream of dead letters."""
        return self.parts[partition].dead

    def events(self, partition: int) -> str:
        """The capped stream of status and step events."""
        return self.parts[partition].events

    def code(self, code_hash: str) -> str:
        """The stored code of a flow."""
        return f"{self.namespace}:code:{code_hash}"

    def ended(self, execution_id: str) -> str:
        """The channel on which an execution's terminal status is published."""
        return self.parts[self.partition_of(execution_id)].ended + execution_id

    def command_done(self, partition: int, command_id: str) -> str:
        """The channel on which a command's outcome is published."""
        return self.parts[partition].done + command_id
