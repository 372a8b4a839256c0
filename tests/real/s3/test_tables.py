"""Removal of rows of Iceberg and Delta tables on a real S3 server: the log, odd paths, once (decision 0056)."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from airflow_cairn.checkpoint.documents.staged_tables import Mode
from scripts.harness.s3_server import S3Server
from tests.support.errors import raises_code
from tests.support.lake import Delta, Iceberg, Place, notice, way_to

pytestmark = pytest.mark.s3


@pytest.mark.parametrize("kind", [Iceberg, Delta])
def test_rows_take_the_place_of_others(kind: type[Place], tmp_path: Path) -> None:  # semantics C4
    ways: tuple[tuple[dict[str, Any], tuple[int, ...], list[int]], ...] = (
        ({"mode": Mode.OVERWRITE}, (11, 3), [2, 3, 4, 5, 11]),
        ({"mode": Mode.UPSERT, "key": ("id",), "deletes": [5]}, (2, 7), [2, 3, 4, 7, 11]),
        ({"mode": Mode.REPLACE}, (1,), [1]),
    )
    with S3Server(keep_alive=False) as server:
        server.create_bucket("lake")
        place = kind(tmp_path, "s3://lake/the table", way_to(server), partitioned=True)
        place.foreign(1, 2, 5)
        for at, (way, ids, rows) in enumerate(ways, 3):
            told = notice(place.stage(place.trigger(at), f"t{at}", *ids, **way), checkpoint=at)
            if at == 3:
                place.foreign(4)
            for _ in range(2):
                place.new_sink().notify_checkpoint_complete(told)
                assert place.rows() == rows
        late = place.stage(place.trigger(6), "late", 8, mode=Mode.REPLACE)
        place.foreign(9)
        with raises_code("table_changed", match="replace would remove"):
            place.sink.notify_checkpoint_complete(notice(late, checkpoint=6))
        assert place.rows() == [1, 9]


@pytest.mark.parametrize(("kind", "most"), [(Iceberg, 15), (Delta, 24)])
def test_a_commit_asks_little(kind: type[Place], most: int, tmp_path: Path) -> None:
    """Two files: a footer each by one request, one list, and each file of the format's own put at once."""
    with S3Server(keep_alive=False) as server:
        server.create_bucket("lake")
        place = kind(tmp_path, "s3://lake/the table", way_to(server))
        place.foreign(1)
        told = notice(place.stage(place.trigger(3), "t3", 2, 3), checkpoint=3)

        def requests() -> list[str]:
            return [each for each in (server.root / "versitygw.log").read_text().splitlines() if " | vgw | " in each]

        before = len(requests())
        place.new_sink().notify_checkpoint_complete(told)
        asked = requests()[before:]
        assert len(asked) <= most, asked
        assert place.rows() == [1, 2, 3]
