"""Dead letters: looking at them, sending their entries again, dropping them."""

from __future__ import annotations

from typing import Final

import msgspec

from stepwell.client.facts import NamespaceView
from stepwell.client.moves import Conversation, ask
from stepwell.client.reading import Dicts, check_limit
from stepwell.client.waiting import Json
from stepwell.core import codec
from stepwell.core.errors import UnknownLetter, UsageError
from stepwell.core.letters import check_kind
from stepwell.store import letters as store
from stepwell.store.keys import Keys
from stepwell.store.letters import INGRESS, Letter
from stepwell.store.replies import order, text

__all__ = ["drop", "letter", "listing", "replay"]

# Entries may be large: of each stream few are read at first, and more only where they are needed.
PAGE: Final = 16
PAGE_MAX: Final = 500


def listing(
    view: NamespaceView,
    limit: int,
    reason: str | None = None,
    partition: int | str | None = None,
    words: str | None = None,
) -> Conversation[Dicts]:
    """Dead letters, newest first: those of one kind, of one partition (or `ingress`), and with these words in what is
    said of them.

    Raises UsageError for a kind or a partition that there is not.
    """
    check_limit(limit)
    kind = None if reason is None else check_kind(reason)
    keys = yield from view.keys()
    before = dict.fromkeys(_chosen(keys, partition), "+")
    sought = (words or "").lower()
    found: list[Letter] = []
    size = PAGE
    while True:
        pages = yield from ask(store.pages(keys, before, size))
        letters = (each for page in pages for each in page)
        found += [each for each in letters if kind in (None, each.kind) and sought in each.reason.lower()]
        before = {source: page[-1].letter_id for source, page in zip(before, pages, strict=True) if len(page) == size}
        # Older ones may come from a stream that has more: what is newer than all of those is settled.
        settled = max(map(order, before.values()), default=None)
        ready = found if settled is None else [each for each in found if each.age >= settled]
        if settled is None or len(ready) >= limit:
            return [_shown(each) for each in store.newest([ready], limit)]
        size = min(2 * size, PAGE_MAX)


def letter(view: NamespaceView, letter_id: str) -> Conversation[dict[str, Json]]:
    """One dead letter. Raises UnknownLetter."""
    keys = yield from view.keys()
    return _shown((yield from _existing(keys, letter_id)))


def replay(view: NamespaceView, letter_id: str) -> Conversation[None]:
    """Send a dead letter's entry again: it goes back to where it came from, and the letter is gone.

    Raises UnknownLetter, or UsageError where the letter does not hold the whole entry.
    """
    keys = yield from view.keys()
    found = yield from _existing(keys, letter_id)
    if found.cut:
        raise UsageError(f"dead letter {found.id} can't be replayed: its entry was too large to be kept whole")
    # Gone by now: an earlier sending of this request did it, or somebody else was faster; either way it is done.
    yield from ask(store.replay(keys, view.scripts, found.source, found.letter_id))


def drop(view: NamespaceView, letter_id: str) -> Conversation[None]:
    """Remove a dead letter for good. Raises UnknownLetter."""
    keys = yield from view.keys()
    found = yield from _existing(keys, letter_id)
    yield from ask(store.drop(keys, found.source, found.letter_id))


def _existing(keys: Keys, letter_id: str) -> Conversation[Letter]:
    place = store.parse_id(keys, letter_id)
    if place is None:
        raise UsageError(
            f"{letter_id!r} is no id of a dead letter: it looks like 7:1795970866600-0 or {INGRESS}:1795970866600-0"
        )
    found = yield from ask(store.letter(keys, *place))
    if found is None:
        raise UnknownLetter(f"there is no dead letter {letter_id} (any more)")
    return found


def _chosen(keys: Keys, partition: int | str | None) -> list[str]:
    every = store.sources(keys)
    if partition is None:
        return every
    if str(partition) not in every:
        raise UsageError(f"there is no partition {partition!r}: give 0 to {keys.partitions - 1}, or {INGRESS}")
    return [str(partition)]


def _shown(letter: Letter) -> dict[str, Json]:
    return {
        "id": letter.id,
        "partition": None if letter.source == INGRESS else int(letter.source),
        "kind": letter.kind,
        "reason": letter.reason,
        "entry": letter.entry,
        "at": letter.at,
        "cut": letter.cut,
        "fields": {name: _plain(name, value) for name, value in letter.fields.items()},
    }


def _plain(name: str, value: bytes) -> Json:
    """A field as it is; the JSON ones as what they hold."""
    if name in ("data", "input", "payload"):
        try:
            return msgspec.json.decode(value)
        except codec.UNREADABLE:
            pass
    return text(value)
