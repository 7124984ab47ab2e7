"""Where mail for one execution goes, and what of it is not yet known to have had its effect."""

from __future__ import annotations

from typing import Literal, TypeAlias

from stepwell.actors import messages as m
from stepwell.actors.kit.ref import AnyRef
from stepwell.actors.left import Left
from stepwell.store.leases import Grant

__all__ = ["Route", "WaitsFor"]

WaitsFor: TypeAlias = Literal["", "row", "revival"]

_RING = m.Doorbell()


class Route:
    """One execution's entry in the routing table. `open` is mail whose effect is not acknowledged yet, by inbox entry:
    should the actor fail, its successor gets it again. `left`: how its owner before left it. `flow` is '' until it is
    known. `grant`: the one under which its row was asked for."""

    __slots__ = (
        "busy",
        "flow",
        "grant",
        "left",
        "open",
        "park",
        "partition",
        "recalled",
        "ref",
        "routed",
        "rung",
        "waits_for",
    )

    def __init__(self, partition: int, left: Left, flow: str = "") -> None:
        self.partition = partition
        self.flow = flow
        self.ref: AnyRef | None = None
        self.routed = 0
        self.open: dict[str, m.Mail] | None = None  # None: none, as for most executions in memory
        self.rung = False  # a doorbell without an entry is due, too
        self.waits_for: WaitsFor = ""
        self.busy = False
        self.recalled = False  # it falls due: should it have asked to leave before it knew, it is brought back
        self.left = left
        self.park: m.Park | None = None
        self.grant: Grant | None = None

    @property
    def begins(self) -> bool:
        """Whether a doorbell is passed on (or will be) whose effect is not acknowledged."""
        return self.open is not None and any(isinstance(mail, m.Doorbell) for mail in self.open.values())

    @property
    def called(self) -> bool:
        """Whether a message alone brings it back."""
        return not self.rung and any(isinstance(mail, m.CommandMail) for mail in (self.open or {}).values())

    def tell(self, mail: m.Mail) -> None:
        """Send what must arrive: now, or as soon as there is an actor."""
        if mail.entry_id:
            if self.open is None:
                self.open = {}
            self.open[mail.entry_id] = mail
        else:
            self.rung = True
        if self.ref is not None:
            self._pass_on(self.ref, mail)

    def connect(self, ref: AnyRef) -> None:
        """There is a new actor: it gets all that is not acknowledged."""
        self.ref = ref
        self.waits_for = ""
        self.routed = 0
        if self.rung:
            self._pass_on(ref, _RING)
        for mail in (self.open or {}).values():
            self._pass_on(ref, mail)

    def done(self, entry_id: str) -> None:
        """The effect of an entry is acknowledged, or it is buried."""
        if self.open is not None:
            self.open.pop(entry_id, None)
            if not self.open:
                self.open = None

    def _pass_on(self, ref: AnyRef, mail: m.Mail) -> None:
        self.routed += 1
        ref.tell(mail)
