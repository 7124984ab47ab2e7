"""Which gauges tell of work: they are 0 when nothing is left to do."""

from __future__ import annotations

from typing import Final

from stepwell.metrics import instruments as i

OF_WORK: Final = frozenset(
    {
        i.EXECUTIONS_BACKING_OFF,
        i.EXECUTIONS_NOW,
        i.EXECUTIONS_WAITING,
        i.STEPS_RUNNING,
        i.EXECUTIONS_IN_MEMORY,
        i.SUSPECTS,
        i.QUARANTINED_STEPS,
        i.QUARANTINE_QUEUE,
        i.ABANDONED_THREADS,
        i.DEAD_LETTERS_KEPT,
        i.MAILBOX_MESSAGES,
        i.ACTORS_READY,
        i.INBOX_LENGTH,
        i.INBOX_LAG,
        i.QUEUED_OLDEST,
        i.INGRESS_LENGTH,
    }
)
ABSENT_AT_REST: Final = frozenset({i.RETRY_NEXT_DUE})
OF_THE_WORKER: Final = frozenset(
    {
        i.STEPS_LIMIT,
        i.EXECUTIONS_RUNNING_LIMIT,
        i.LEASES_HELD,
        i.COUNTS_AGE,
        i.PARTITIONS,
        i.GUARANTEE,
        i.BUILD,
        i.STARTED,
        i.SHARDS,
        i.SHARD_MEMORY,
        i.EXPOSITION_SECONDS,
        i.EXPOSITION_BYTES,
    }
)
"""What a worker is, or has, whether it works or not."""
