"""The helper that lets the suites which run whole jobs parse equal bytes once."""

from __future__ import annotations

from collections import Counter
from typing import Any

import pytest

from airflow_cairn.checkpoint.documents import metadata, strict_json
from airflow_cairn.checkpoint.store import metadata_file
from tests.support.narrowing import known
from tests.support.parsed_once import parsed_once
from tests.support.world.world import World


def test_no_document_and_no_line_is_parsed_twice(monkeypatch: pytest.MonkeyPatch) -> None:
    world = World()
    world.settle("e1")
    entry = known(world.coordinator().head().latest_completed())
    parsed: Counter[type] = Counter()
    from_json = strict_json.from_json

    def counted(cls: type, value: Any, **kwargs: Any) -> Any:
        parsed[cls] += 1
        return from_json(cls, value, **kwargs)

    monkeypatch.setattr(metadata, "from_json", counted)
    lines = list(metadata_file.read(world.files, entry.metadata))
    assert parsed.total() == len(lines) + 1, "each line and the trailer, so the count counts"
    with parsed_once():
        parsed.clear()
        for _ in range(3):
            assert list(metadata_file.read(world.files, entry.metadata)) == lines
    assert parsed.total() == len(lines) + 1
