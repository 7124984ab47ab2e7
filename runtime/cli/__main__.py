"""`python -m stepwell.cli`."""

from __future__ import annotations

import sys

from stepwell.cli import main

sys.exit(main())
