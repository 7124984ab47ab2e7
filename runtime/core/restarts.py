"""When a dead shard is started again, and when a worker gives up: pure rules.

A death counts against the shard unless it got somewhere first: it committed something, ran for long, or its black box
named what killed it (strikes end that). Deaths that count come with growing pauses, and too many in a row end the
worker: what never works must be seen, not repeated for ever.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Final

__all__ = ["Death", "RestartRules", "Shard"]

CAUSES_SHOWN: Final = 3


@dataclass(frozen=True, slots=True)
class Death:
    """One end of a shard that nobody asked for.

    Attributes:
        cause: one sentence about how it ended.
        lived: seconds from when it had started to its end; 0 if it never had.
        committed: whether Redis acknowledged a commit of it, or may have where nobody could count them.
        named: whether its black box named an execution or a command as the suspect.
    """

    cause: str
    lived: float = 0.0
    committed: bool = False
    named: bool = False


@dataclass(frozen=True, slots=True)
class Shard:
    """What is remembered of one shard over its restarts: deaths in a row that count, and what they were."""

    in_vain: int = 0
    causes: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class RestartRules:
    """Pauses in seconds: none after a death that does not count, else `base`, doubled each time, at most `cap`."""

    deaths_max: int = 5
    long_enough: float = 60.0
    base: float = 0.25
    cap: float = 30.0

    def after(self, shard: Shard, death: Death) -> Shard:
        """What is remembered after one more death."""
        causes = (*shard.causes, death.cause)[-CAUSES_SHOWN:]
        if death.committed or death.named or death.lived >= self.long_enough:
            return Shard(0, causes)
        return replace(shard, in_vain=shard.in_vain + 1, causes=causes)

    def pause(self, shard: Shard) -> float:
        """Seconds until it is started again."""
        if not shard.in_vain:
            return 0.0
        return min(self.cap, self.base * 2.0 ** min(shard.in_vain - 1, 64))

    def verdict(self, shard: Shard) -> str:
        """Why the worker must give up; empty while it need not."""
        if shard.in_vain < self.deaths_max:
            return ""
        causes = list(dict.fromkeys(reversed(shard.causes)))
        return (
            f"died {shard.in_vain} times in a row without having committed anything: {'; before that: '.join(causes)}"
        )
