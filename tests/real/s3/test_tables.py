"""Iceberg and Delta tables on a real S3 server: the log, odd paths, kill points of Delta, once (decision 0056)."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from airflow_cairn.checkpoint.documents.staged_tables import Mode, owner_of
from airflow_cairn.checkpoint.extensions.contracts import RewindNotice
from airflow_cairn.tables.delta import OpenDelta
from scripts.harness.s3_server import S3Server
from tests.support.errors import raises_code
from tests.support.lake import STORAGE, Delta, Iceberg, Place, notice, way_to

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


class Killed(BaseException):
    """The process ends here."""


def kill() -> None:
    raise Killed


def lose() -> None:
    raise ConnectionError("the connection was reset")


def nothing() -> None:
    """Nothing happens here."""


def once(patch: pytest.MonkeyPatch, before: Callable[[], None], after: Callable[[], None]) -> None:
    """Have something happen before and after the next commit to Delta."""
    commit = OpenDelta.commit

    def call(*given: Any) -> bool:
        patch.setattr(OpenDelta, "commit", commit)
        before()
        done = commit(*given)
        after()
        return done

    patch.setattr(OpenDelta, "commit", call)


@pytest.mark.parametrize(
    ("mode", "what"),
    [
        pytest.param(mode, what, marks=() if mode is Mode.APPEND and what in ("lost", "two") else pytest.mark.soak)
        for mode in (Mode.APPEND, Mode.OVERWRITE, Mode.UPSERT)
        for what in ("before", "after", "lost", "two", "foreign", "vacuum", "rewind")
    ],
)
def test_each_row_once_in_delta(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, mode: Mode, what: str
) -> None:  # semantics C4, R5
    """Each kill point of the commit, and what others do in between; a rewind takes it back, and it stays out."""
    with S3Server(keep_alive=False) as server:
        server.create_bucket("lake")
        place = Delta(tmp_path, "s3://lake/the table", way_to(server), partitioned=True)
        place.owner = owner_of("flights", STORAGE)
        place.foreign(1, 5)
        staging = place.trigger(3)
        way: dict[str, Any] = {"mode": mode, "key": ("id",) if mode is Mode.UPSERT else ()}
        place.stage(staging, "dead", 7, **way)
        late = place.stage(staging, "also", 3, stage="late", **way)
        told = notice(place.stage(staging, "good", 1, 2, **way), late)

        def tell() -> None:
            place.new_sink().notify_checkpoint_complete(told)

        def go_back() -> None:
            place.new_sink().rewound(RewindNotice("flights", STORAGE, 2, 3))

        def tell_and_go_back() -> None:
            tell()
            go_back()

        before: dict[str, Callable[[], None]] = {
            "before": kill,
            "two": tell,
            "foreign": lambda: place.foreign(9),
            "vacuum": place.tidy,
            "rewind": tell_and_go_back,
        }
        once(monkeypatch, before.get(what, nothing), {"after": kill, "lost": lose}.get(what, nothing))
        if what in ("before", "after"):
            with pytest.raises(Killed):
                tell()
        else:
            tell()
        foreign = [9] if what == "foreign" else []
        if what != "rewind":
            for _ in range(2):
                with ThreadPoolExecutor(4) as pool:
                    list(pool.map(lambda _: tell(), range(4)))
                assert place.rows() == sorted([1, 2, 3, 5, *([1] if mode is Mode.APPEND else []), *foreign])
            assert place.staged() == {each for each in place.named() if "_cairn" in each}
        for _ in range(2):
            go_back()
            tell()
            assert place.rows() == sorted([1, 5, *foreign])


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
