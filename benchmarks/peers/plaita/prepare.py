"""Saves plaita's flows."""

import os
from pathlib import Path

import documents
import peerkit
import redis
from plaita.node import register_code_node
from plaita.storage.redis import RedisFlowStorage
from plaita.tenant_context import DEFAULT_TENANT_ID, set_current_tenant

register_code_node(default_backend="unsafe", allowed_backends=["unsafe"], allowed_languages=["python"])
set_current_tenant(DEFAULT_TENANT_ID, source="explicit")
storage = RedisFlowStorage(client=redis.Redis.from_url(os.environ["PEER_URL"]))
for flow in (documents.five(), documents.five_slow(str(Path(peerkit.__file__).parent))):
    if storage.save_flow(flow) is False:
        raise SystemExit(f"plaita refused {flow['flow_id']}")
