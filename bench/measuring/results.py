"""How a benchmark says what it has found."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping


def machine() -> dict[str, object]:
    """Say what the figures were measured on: the load of the last five minutes, and how many cores there are."""
    return {"load": round(os.getloadavg()[1], 1), "cores": os.cpu_count()}


def tell(result: Mapping[str, object], *, as_json: bool) -> None:
    """Print figures: one a line, or all as one line of JSON."""
    if as_json:
        print(json.dumps(result))
        return
    for name, value in result.items():
        print(f"{name}: {value}")
