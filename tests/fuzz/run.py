"""Fuzzes with fresh examples for so many minutes: `make fuzz MINUTES=10`. It ends at the first fault.

What it prints then reproduces the fault: the example itself, and a line `@reproduce_failure(...)` for its test.
"""

from __future__ import annotations

import os
import random
import subprocess
import sys
import time
from pathlib import Path

HERE = Path(__file__).resolve().parent
SCALE = "8"


def main(minutes: float) -> int:
    """0: nothing was found in that time."""
    end = time.monotonic() + 60 * minutes
    rounds = 0
    while rounds == 0 or time.monotonic() < end:
        seed = random.randrange(2**32)
        print(f"round {rounds + 1}, hypothesis seed {seed}", flush=True)
        command = [sys.executable, "-m", "pytest", "-q", "-x", str(HERE), f"--hypothesis-seed={seed}"]
        code = subprocess.run(command, env={**os.environ, "STEPWELL_FUZZ_SCALE": SCALE}, check=False).returncode
        if code:
            print(f"found with STEPWELL_FUZZ_SCALE={SCALE} and --hypothesis-seed={seed}", file=sys.stderr)
            return code
        rounds += 1
    print(f"{rounds} rounds of {SCALE} times as many examples as `make test` tries: nothing found")
    return 0


if __name__ == "__main__":
    sys.exit(main(float(sys.argv[1])))
