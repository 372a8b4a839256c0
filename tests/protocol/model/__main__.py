"""`python -m tests.protocol.model [--deep]`: explore and print how much was looked at."""

from __future__ import annotations

import sys

from tests.protocol.model.explorer import Explorer
from tests.protocol.model.scenarios import ALL, DEEP

for scenario in (*ALL, *(DEEP if "--deep" in sys.argv[1:] else ())):
    print(Explorer(scenario).run(limit=20_000_000), flush=True)
