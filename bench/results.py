"""How a benchmark says what it has found."""

from __future__ import annotations

import json
from collections.abc import Mapping


def tell(result: Mapping[str, object], *, as_json: bool) -> None:
    """Print figures: one a line, or all as one line of JSON."""
    if as_json:
        print(json.dumps(result))
        return
    for name, value in result.items():
        print(f"{name}: {value}")
