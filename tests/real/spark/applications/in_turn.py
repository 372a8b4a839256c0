"""Runs applications one after the other in one driver: in_turn.py JSON, a list of each one's path and arguments."""

from __future__ import annotations

import json
import runpy
import sys

for application in json.loads(sys.argv[1]):
    sys.argv = application
    runpy.run_path(application[0], run_name="__main__")
