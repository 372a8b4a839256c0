"""The output of a benchmark's results."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping


def machine() -> dict[str, object]:
    """Describe the machine of the measurement: the load of the last five minutes, and the number of cores."""
    return {"load": round(os.getloadavg()[1], 1), "cores": os.cpu_count()}


def tell(result: Mapping[str, object], *, as_json: bool) -> None:
    """Print figures: one per line, or all as one line of JSON."""
    if as_json:
        print(json.dumps(result))
        return
    for name, value in result.items():
        print(f"{name}: {value}")
