"""Membership: says that this shard lives, sees who else does, and reckons what of the namespace should be whose.

The entry is written by the thread that renews leases, and only after a round in which it could take what it wants: a
shard that can't do that falls silent, and the others take its partitions.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable
from dataclasses import dataclass

from stepwell.core.errors import StoreError, StoreUnreachable
from stepwell.core.formats import FORMAT
from stepwell.core.ownership import ACTIVE, LEAVING, Member, Roster, State, newest, owners, worker_of
from stepwell.metrics.saying import Kind, say
from stepwell.store.leases import LeaseHolder
from stepwell.store.link import StoreRefused
from stepwell.store.members import Members

logger = logging.getLogger("stepwell.leases")


@dataclass(frozen=True, slots=True)
class Owner:
    """Who asks for leases. `host_info` is its process, `parent` the one that looks into its death ('': nobody does);
    both are `host,boot,pid,start`. `format`: the newest that it reads."""

    name: str
    incarnation: str
    host_info: str
    parent: str = ""
    format: int = FORMAT


class Membership:
    """What is read stays in force until something else can be read. For the lease thread only.

    `is_forsaken`: whether a process is dead and, as it looks, nobody sees to that; asked where its parent is not known.
    """

    def __init__(
        self,
        store: Members,
        owner: Owner,
        partitions: int,
        ttl_seconds: float,
        monotonic: Callable[[], float],
        is_dead: Callable[[str], bool],
        is_forsaken: Callable[[str], bool],
    ) -> None:
        self._store = store
        self._me = owner
        self._partitions = partitions
        self._monotonic = monotonic
        self._is_dead = is_dead
        self._is_forsaken = is_forsaken
        self._roster = Roster(ttl_seconds)
        self._active: frozenset[str] = frozenset({owner.name})  # among whom the partitions are shared
        self._others: frozenset[str] = frozenset()  # active ones, whatever they read
        self._wanted = frozenset(range(partitions))
        self._leaving = False
        self._warned: set[str] = set()

    @property
    def wanted(self) -> frozenset[int]:
        """The partitions that should be ours; none once we are leaving."""
        return frozenset() if self._leaving else self._wanted

    @property
    def leaving(self) -> bool:
        """Whether we are on our way out."""
        return self._leaving

    @property
    def heirs(self) -> list[str]:
        """The living shards of other workers: those of our own leave when we do."""
        mine = worker_of(self._me.name)
        return [each for each in self._others if worker_of(each) != mine]

    @property
    def outdated(self) -> bool:
        """Whether shards are active that read a newer format than we do. May be asked by any thread."""
        return self._me.name not in self._active

    def unwanted(self, held: Iterable[int]) -> frozenset[int]:
        """Those of the held partitions that should be another living member's; all once we are leaving."""
        return frozenset(held) if self._leaving else frozenset(held) - self._wanted

    def leave(self) -> None:
        """Want nothing any more; the others are told by the next `beat`."""
        self._leaving = True

    def beat(self, server_ms: int) -> None:
        """Say that we live. Raises as Link does."""
        me = self._me
        state: State = LEAVING if self._leaving else ACTIVE
        self._store.beat(me.name, Member(server_ms, me.incarnation, me.host_info, state, me.parent, me.format))

    def look(self) -> bool:
        """See who is there; whether that changed what should be whose. Raises as Link does when nobody can be asked."""
        try:
            roll = self._store.read()
        except (StoreUnreachable, StoreRefused):
            raise
        except StoreError as error:
            told = f"who shares this namespace can't be read ({error}); what was known last stays in force"
            self._warn("KeyUnreadable", told)
            return False
        self._roster.saw(roll.members, roll.server_ms, self._monotonic())
        me = self._roster.get(self._me.name)
        if me is not None and me.incarnation != self._me.incarnation and not self._is_dead(me.host):
            told = f"another living shard calls itself {self._me.name}: give each worker a --worker-id of its own"
            self._warn("NameTaken", told)
        living = self._roster.living().items()
        formats = {each: it.format for each, it in living if it.state == ACTIVE and not self._is_orphan(it)}
        formats[self._me.name] = self._me.format
        self._others = frozenset(formats) - {self._me.name}
        active = newest(formats)
        self._tell_outdated(active, max(formats.values()))
        return self._reckon(active)

    def may_free(self, holder: LeaseHolder) -> bool:
        """Whether the holder of a lease is dead and nobody else will look into that."""
        member = self._roster.get(holder.owner)
        if member is not None and member.parent and member.incarnation == holder.incarnation:
            return self._is_orphan(member)
        return self._is_forsaken(holder.host_info)

    def gone(self) -> None:
        """Take our entry off, in good order. Raises as Link does."""
        self._store.leave(self._me.name)

    def _is_orphan(self, member: Member) -> bool:
        """Dead on this very host, and so is who would have looked into it."""
        return self._is_dead(member.host) and (not member.parent or self._is_dead(member.parent))

    def _tell_outdated(self, active: frozenset[str], best: int) -> None:
        """Say once that we stand by for others, and once that we don't any more."""
        outdated = self._me.name not in active
        if outdated == self.outdated or self._leaving:
            return
        if outdated:
            say(
                logger,
                "StandingBy",
                "a newer version of the runtime shares this namespace (%s reads format %d, this one reads up to %d):"
                " this shard hands its partitions over and stands by; upgrade it",
                min(active),
                best,
                self._me.format,
                reason="outdated",
            )
        else:
            say(
                logger,
                "StandingBy",
                "no newer version of the runtime is active any more: this shard takes partitions again; what is of a"
                " format newer than %d is left alone",
                self._me.format,
                level=logging.INFO,
                reason="outdated",
            )

    def _reckon(self, active: frozenset[str]) -> bool:
        if active == self._active:
            return False
        self._active = active
        shares = owners(self._partitions, active)
        mine = self._me.name
        self._wanted = frozenset(partition for partition, owner in shares.items() if owner == mine)
        logger.debug("%d shards share this namespace; %d partitions are for this one", len(active), len(self._wanted))
        return True

    def _warn(self, kind: Kind, text: str) -> None:
        if text not in self._warned:
            say(logger, kind, "%s", text, part="membership")
            self._warned.add(text)
