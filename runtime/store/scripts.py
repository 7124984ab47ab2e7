"""The Lua scripts: their text, their names for EVALSHA, and how to load them."""

from __future__ import annotations

import hashlib
from importlib.resources import files
from typing import Final

__all__ = ["SCRIPT_NAMES", "Scripts"]

SCRIPT_NAMES: Final = (
    "commit",
    "create",
    "dead_letter",
    "dead_replay",
    "ingress_forget",
    "lease_acquire",
    "lease_free",
    "lease_reap",
    "lease_release",
    "lease_renew",
    "restore",
    "suspects_forget",
    "unlist",
)


class Scripts:
    """The scripts of this version; each attribute is the SHA-1 by which the server knows one."""

    __slots__ = (*SCRIPT_NAMES, "_texts", "sources")

    def __init__(self) -> None:
        folder = files("stepwell.store").joinpath("lua")
        self.sources = {name: folder.joinpath(f"{name}.lua").read_text("utf-8") for name in SCRIPT_NAMES}
        self.commit = self._sha("commit")
        self.create = self._sha("create")
        self.dead_letter = self._sha("dead_letter")
        self.dead_replay = self._sha("dead_replay")
        self.ingress_forget = self._sha("ingress_forget")
        self.lease_acquire = self._sha("lease_acquire")
        self.lease_free = self._sha("lease_free")
        self.lease_reap = self._sha("lease_reap")
        self.lease_release = self._sha("lease_release")
        self.lease_renew = self._sha("lease_renew")
        self.restore = self._sha("restore")
        self.suspects_forget = self._sha("suspects_forget")
        self.unlist = self._sha("unlist")
        self._texts = {self._sha(name): source for name, source in self.sources.items()}

    def _sha(self, name: str) -> str:
        # The protocol's name for a script; nothing is secured by it.
        return hashlib.sha1(self.sources[name].encode(), usedforsecurity=False).hexdigest()

    def load_commands(self) -> list[list[str | bytes | int]]:
        """One SCRIPT LOAD for each script."""
        return [["SCRIPT", "LOAD", source] for source in self.sources.values()]

    def with_text(self, command: list[str | bytes | int]) -> list[str | bytes | int]:
        """The same command with the script's text in it, if it names a script: no server can lack that."""
        text = self._texts.get(str(command[1])) if command[0] == "EVALSHA" else None
        return command if text is None else ["EVAL", text, *command[2:]]
