"""`python -m airflow_cairn.testing FILE …`: runs an application by hand, and shows its outputs."""

from __future__ import annotations

import sys

from ..storage.errors import CairnError
from .by_hand import run_by_hand

if __name__ == "__main__":
    try:
        sys.exit(run_by_hand(*sys.argv[1:]))
    except CairnError as error:
        sys.exit(f"error: {error}")
