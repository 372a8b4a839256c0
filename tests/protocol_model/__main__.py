"""`python -m tests.protocol_model [--deep]`: explore both variants and print how much was looked at."""

from __future__ import annotations

import sys

from tests.protocol_model.explorer import Explorer
from tests.protocol_model.scenarios import ALL, DEEP
from tests.protocol_model.state import Rules

for numbered in (False, True):
    for scenario in (*ALL, *(DEEP if "--deep" in sys.argv[1:] else ())):
        found = Explorer(scenario, Rules(numbered=numbered)).run(limit=20_000_000)
        print("numbered" if numbered else "swap", found, flush=True)
