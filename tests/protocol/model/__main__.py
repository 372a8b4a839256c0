"""`python -m tests.protocol.model [--deep]`: explore both variants and print how much was looked at."""

from __future__ import annotations

import sys

from tests.protocol.model.explorer import Explorer
from tests.protocol.model.scenarios import ALL, DEEP
from tests.protocol.model.state import Rules

for numbered in (False, True):
    for scenario in (*ALL, *(DEEP if "--deep" in sys.argv[1:] else ())):
        found = Explorer(scenario, Rules(numbered=numbered)).run(limit=20_000_000)
        print("numbered" if numbered else "swap", found, flush=True)
