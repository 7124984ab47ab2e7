"""Whatever stands in an events stream is read, told in one line and in JSON, and steers no terminal."""

from __future__ import annotations

import json

from fuzz.budget import fuzz
from fuzz.values import json_values, odd_bytes
from hypothesis import example, given
from hypothesis import strategies as st

from stepwell.cli.session import Session, plain
from stepwell.cli.tailing import _as_json, _facts, _line
from stepwell.core.eventlog import execution_of, read_events
from stepwell.core.events import EVENTS
from stepwell.store.events import Seen

SECRET = "hunter2"
kinds = st.sampled_from([kind.__name__ for kind in EVENTS]) | st.text(max_size=8)
fields = st.sampled_from(sorted({name for kind in EVENTS for name in kind.__struct_fields__})) | st.text(max_size=5)
odd = json_values | st.just(f"redis://:{SECRET}@h") | st.integers()
some_event = st.builds(lambda kind, rest: {**rest, "type": kind}, kinds, st.dictionaries(fields, odd, max_size=20))
written = st.lists(some_event | json_values, max_size=3).map(lambda value: json.dumps(value).encode())


@fuzz(300)
@given(raw=written | odd_bytes)
@example(raw=b"[" * 100_000)
@example(raw=b'[{"type":"AttemptFailed","execution_id":"e\\u001b[2J","due_at":1e400}]')
def test_whatever_an_entry_holds_is_told(raw: bytes) -> None:
    for event in read_events(raw):
        seen = Seen(3, "1700000000000-0", 1_700_000_000_000, event)
        line = plain(_line(Session(), seen, 5))
        text = _as_json(_facts(seen))
        assert isinstance(json.loads(text), dict)
        assert "\n" not in text
        assert isinstance(execution_of(event), str)
        assert SECRET not in text + line
