"""Absurd's schema and a queue, by its own tool."""

import os
import subprocess
import sys
from pathlib import Path

tool = Path(sys.executable).parent / "absurdctl"
for words in (["init"], ["create-queue", "bench"]):
    subprocess.run([tool, *words], check=True, env={**os.environ, "ABSURD_DATABASE_URL": os.environ["PEER_DSN"]})
