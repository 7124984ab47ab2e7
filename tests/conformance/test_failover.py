"""After a failover the address may lead to another server, so connections to the former primary are not kept."""

from __future__ import annotations

from unittest.mock import ANY

import pytest

from stepwell.store.replies import Committed


@pytest.mark.one_server
@pytest.mark.real_server
@pytest.mark.pain(11)
def test_after_a_read_only_reply_the_connection_is_made_anew(store):
    store.execute(store.create())
    before = store.link.call([["CLIENT", "ID"]])
    assert store.link.call([["CLIENT", "ID"]]) == before, "otherwise one connection serves again and again"
    store.client.execute_command("REPLICAOF", "127.0.0.1", "1")
    try:
        assert store.execute(store.commit()).kind == "READONLY"
        assert store.link.call([["CLIENT", "ID"]]) != before
    finally:
        store.client.execute_command("REPLICAOF", "NO", "ONE")
    assert store.execute(store.commit()) == Committed(seq=ANY)
