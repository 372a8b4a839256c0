"""A rewind takes out of the tables what no longer counts, or says why not (semantics R5, decision 0056)."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from airflow_cairn.checkpoint.documents import staged_tables
from airflow_cairn.checkpoint.documents.staged_tables import Mode
from airflow_cairn.checkpoint.extensions.committables import CheckpointNotice
from airflow_cairn.checkpoint.extensions.contracts import RewindNotice
from airflow_cairn.tables import iceberg
from airflow_cairn.tables.delta import OpenDelta
from airflow_cairn.tables.iceberg import OpenIceberg
from tests.support.errors import raises_code
from tests.support.lake import SCHEMA, Delta, Iceberg, Place, notice

STORAGE = "s3://lake/cairn"
OTHER = f"cairn-{staged_tables.owner_of('flights', STORAGE)}.orders-eu-7"
"""The tag of a sink whose name begins as that of `orders`."""


class Killed(BaseException):
    """The trigger's process ends here."""


@pytest.fixture(params=[Iceberg, Delta])
def place(request: pytest.FixtureRequest, tmp_path: Path) -> Place:
    made: Place = request.param(tmp_path, f"file://{tmp_path}/the lake", partitioned="mode" in request.fixturenames)
    made.owner = staged_tables.owner_of("flights", STORAGE)
    return made


def commit(place: Place, checkpoint: int, *ids: int, **way: Any) -> CheckpointNotice:
    """Have an epoch commit rows."""
    answer = place.sink.trigger(checkpoint, 0)
    place.answers[checkpoint] = answer
    place.described = staged_tables.description_of(answer, where="answer")
    rows = place.stage(place.described.staging, f"t{checkpoint}", *ids, **way)
    told = notice(rows, checkpoint=checkpoint, retained=range(checkpoint))
    place.sink.notify_checkpoint_complete(told)
    return told


def go_back(place: Place, to: int, through: int, storage: str = STORAGE) -> None:
    """Have the trigger after a rewind tell a new process's sink."""
    sink = place.new_sink()
    sink.restore(to, place.answers.get(to))
    sink.rewound(RewindNotice("flights", storage, to, through))


def around(patch: pytest.MonkeyPatch, place: Place, method: str, before: Callable[[], None], after: Any) -> None:
    """Have something happen once, before or after a step of the roll-back."""
    kind: Any = OpenIceberg if isinstance(place, Iceberg) else OpenDelta
    if isinstance(place, Iceberg) and method == "_oldest":
        kind, method = iceberg, "oldest_undone"
    real, calls = getattr(kind, method), []

    def call(*given: Any) -> Any:
        calls.append(1)
        if len(calls) == 1:
            before()
        found = real(*given)
        if len(calls) == 1:
            after()
        return found

    patch.setattr(kind, method, call)


def nothing() -> None:
    """Nothing happens here."""


def kill() -> None:
    raise Killed


@pytest.mark.parametrize("mode", list(Mode))
@pytest.mark.parametrize("killed", ["", "before", "after"])
def test_what_no_longer_counts_is_taken_back(
    place: Place, monkeypatch: pytest.MonkeyPatch, mode: Mode, killed: str
) -> None:  # semantics R5
    """Twice asked, with a crash before or after; what is told again stays out; a later rewind goes further back."""
    way: dict[str, Any] = {"mode": mode} | ({"key": ("id",), "deletes": [1]} if mode is Mode.UPSERT else {})
    commit(place, 2, 1, 5)
    place.foreign(3)
    before = place.rows()
    late = [commit(place, 3, 11, **way), commit(place, 4, 7)]
    changed = place.rows()
    assert (changed != before, place.shown()) == (True, 4)
    if killed:
        with monkeypatch.context() as patch:
            around(patch, place, "roll_back", *((kill, nothing) if killed == "before" else (nothing, kill)))
            with pytest.raises(Killed):
                go_back(place, 2, 4)
        assert place.rows() == (changed if killed == "before" else before)
    for _ in range(2):
        go_back(place, 2, 4)
        assert (place.rows(), place.shown()) == (before, 2)
    for told in late:
        place.new_sink().notify_checkpoint_complete(told)
    place.foreign(25)
    before = sorted([*before, 25])
    go_back(place, 2, 4)
    assert place.rows() == before, "who comes after the roll-back stands in nobody's way"
    commit(place, 5, 11)
    assert place.rows() == sorted([*before, 11])
    go_back(place, 2, 4)
    assert (place.rows(), place.shown()) == (sorted([*before, 11]), 5), "what counts is on top"
    go_back(place, 2, 5)
    assert place.rows() == before


class OldIceberg(Iceberg):
    """Iceberg table of the format's first version, whose snapshots have no sequence numbers."""

    def create(self) -> None:
        self.catalog.create_table("sales.orders", SCHEMA, properties={"format-version": "1"})


@pytest.mark.parametrize("kind", [Iceberg, Delta])
def test_the_first_commit_of_all_is_taken_back(kind: type[Place], tmp_path: Path) -> None:
    place = kind(tmp_path, f"file://{tmp_path}/lake")
    place.owner = staged_tables.owner_of("flights", STORAGE)
    commit(place, 1, 1)
    go_back(place, 0, 1)
    go_back(place, 0, 1)
    commit(place, 2, 2)
    assert place.rows() == [2]


@pytest.mark.parametrize(
    ("kind", "mode", "why"),
    [
        (Iceberg, Mode.REPLACE, "the snapshot before has expired"),
        (OldIceberg, Mode.REPLACE, "format version 1 numbers no snapshots"),
        (OldIceberg, Mode.APPEND, "format version 1 numbers no snapshots"),
    ],
)
def test_what_an_expiry_has_left_is_no_beginning(kind: type[Iceberg], mode: Mode, why: str, tmp_path: Path) -> None:
    """A replacement is two snapshots, of which the second one alone has a tag: without the first it looks like one."""
    place = kind(tmp_path, f"file://{tmp_path}/lake")
    place.owner = staged_tables.owner_of("flights", STORAGE)
    place.foreign(8)
    commit(place, 1, 1, mode=mode)
    before = place.rows()
    expire(place)
    with raises_code("table_changed", match=why):
        go_back(place, 0, 1)
    assert place.rows() == before


def test_what_others_have_committed_since_stays(place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    """The error names who has committed, also during the roll-back. A compaction changes nothing."""
    commit(place, 2, 1)
    commit(place, 3, 2)
    if isinstance(place, Delta):
        place.table.optimize.compact()
    why = r"others have committed (snapshot \d+, append|version \d+, WRITE).*on_rewind='keep'"
    with monkeypatch.context() as patch, raises_code("table_changed", match=why):
        around(patch, place, "_oldest", nothing, lambda: place.foreign(9))
        go_back(place, 2, 3)
    with raises_code("table_changed", match=why):
        go_back(place, 2, 3)
    assert place.rows() == [1, 2, 9]
    sink = place.new_sink(on_rewind="keep")
    sink.rewound(RewindNotice("flights", STORAGE, 2, 3))
    go_back(place, 3, 4)
    assert place.rows() == [1, 2, 9]


def test_commits_from_before_the_storage_moved_are_named(place: Place) -> None:
    """Such commits may be another job's of this name: nothing is taken back. Those that still count block nothing."""
    for checkpoint in (2, 3):
        commit(place, checkpoint, checkpoint)
    place.owner = staged_tables.owner_of("flights", "s3://mirror/cairn")
    why = r"checkpoint 3 was committed as flights\.\w+\.orders, by this job when"
    with raises_code("table_changed", match=why):
        go_back(place, 2, 3, "s3://mirror/cairn")
    commit(place, 4, 4)
    with raises_code("table_changed", match=why):
        go_back(place, 2, 4, "s3://mirror/cairn")
    go_back(place, 3, 4, "s3://mirror/cairn")
    assert place.rows() == [2, 3]


def test_the_marks_say_what_a_cleaned_log_has_hidden(tmp_path: Path) -> None:
    """The restored checkpoint has noted no version, as at the job's start; a job without a mark is let by."""
    place = Delta(tmp_path, f"file://{tmp_path}/lake")
    place.owner = staged_tables.owner_of("flights", STORAGE)
    commit(place, 1, 1)
    place.foreign(8)
    place.table.create_checkpoint()
    (tmp_path / f"lake/_delta_log/{1:020d}.json").unlink()
    with raises_code("table_changed", match="the log of version 1 has been cleaned away"):
        go_back(place, 0, 1)
    go_back(place, 0, 1, "s3://another")
    assert place.rows() == [1, 8]


def test_the_marks_say_what_an_expiry_has_hidden(tmp_path: Path) -> None:
    """Below a gap lies a commit that no longer counts, one of another URI, and one that was taken back."""
    place = Iceberg(tmp_path, f"file://{tmp_path}/lake")
    place.owner = staged_tables.owner_of("flights", STORAGE)

    def expire_first_foreign() -> None:
        for each in (8, 9):
            place.foreign(each)
        gone = place.table.metadata.snapshot_by_id(place.table.metadata.current_snapshot_id).parent_snapshot_id
        place.table.maintenance.expire_snapshots().by_ids([gone]).commit()

    commit(place, 2, 2)
    commit(place, 3, 3)
    go_back(place, 2, 3)
    expire_first_foreign()
    go_back(place, 2, 3)
    commit(place, 4, 4)
    expire_first_foreign()
    place.sink = place.new_sink(on_rewind="keep")  # without tags
    commit(place, 5, 5)
    with raises_code("table_changed", match="a snapshot between now and checkpoint 4 has expired"):
        go_back(place, 2, 5)
    expire_first_foreign()
    with raises_code("table_changed", match="checkpoint 5 was committed as flights.* had another URI"):
        go_back(place, 2, 5, "s3://mirror/cairn")
    go_back(place, 5, 6)
    assert place.rows() == [2, 4, 5, 8, 8, 8, 9, 9, 9]


def test_files_that_a_vacuum_has_deleted_are_named(tmp_path: Path) -> None:
    place = Delta(tmp_path, f"file://{tmp_path}/lake")
    place.owner = staged_tables.owner_of("flights", STORAGE)
    place.foreign(7)
    commit(place, 2, 1)
    commit(place, 3, 2, mode=Mode.REPLACE)
    place.tidy()
    with raises_code("table_changed", match=r"version 2 cannot be restored: .*part-.*on_rewind='keep'"):
        go_back(place, 2, 3)
    assert place.rows() == [2]


def test_a_table_that_may_only_grow_keeps_its_rows(tmp_path: Path) -> None:
    """The library would restore it; the plan of a rewind says that they stay."""
    place = Delta(tmp_path, f"file://{tmp_path}/lake")
    place.owner = staged_tables.owner_of("flights", STORAGE)
    place.table.alter.set_table_properties({"delta.appendOnly": "true"})
    for checkpoint in (2, 3):
        commit(place, checkpoint, checkpoint)
    assert not place.described.rolls_back
    with raises_code("table_changed", match="it may only grow.*on_rewind='keep'"):
        go_back(place, 2, 3)
    assert place.rows() == [2, 3]


def test_a_listener_that_sleeps_through_it_commits_nothing(place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    """The listener has read the version that the roll-back goes back to, so nothing but the marks tells it."""
    commit(place, 2, 1)
    told = notice(place.stage(place.trigger(3), "t3", 2), checkpoint=3)

    def others() -> None:
        place.new_sink().notify_checkpoint_complete(told)
        go_back(place, 2, 3)

    around(monkeypatch, place, "commit", others, nothing)
    place.new_sink().notify_checkpoint_complete(told)
    assert place.rows() == [1]


def test_commits_of_a_job_that_began_anew(place: Place) -> None:
    """The ids of its former life are higher, and count."""
    for checkpoint in (4, 5, 1, 2, 3):
        commit(place, checkpoint, checkpoint)
    go_back(place, 2, 3)
    assert place.rows() == [1, 2, 4, 5]
    go_back(place, 2, 5)
    assert place.rows() == [1, 2, 4, 5]


def test_a_table_that_took_the_place_of_another(place: Place) -> None:
    """The versions of the former one, which the restored checkpoint has noted, say nothing."""
    for checkpoint in (1, 2):
        place.foreign(9)
        commit(place, checkpoint, checkpoint)
    place.drop()
    place.create()
    place.sink = place.new_sink()
    commit(place, 3, 3)
    go_back(place, 2, 3)
    assert place.rows() == []


def expire(place: Iceberg) -> None:
    """Expire what neither a branch nor a tag holds."""
    held = {each.snapshot_id for each in place.table.metadata.refs.values()}
    old = [each.snapshot_id for each in place.table.metadata.snapshots if each.snapshot_id not in held]
    assert old
    place.table.maintenance.expire_snapshots().by_ids(old).commit()


def test_the_versions_of_retained_checkpoints_are_tagged(tmp_path: Path) -> None:
    """No expiry deletes a tagged version; the tag of a checkpoint that is kept no more goes with the next commit."""
    place = Iceberg(tmp_path, f"file://{tmp_path}/lake")
    place.owner = staged_tables.owner_of("flights", STORAGE)
    for checkpoint in (1, 2, 3):
        commit(place, checkpoint, checkpoint)
        if checkpoint == 1:
            now = place.table.current_snapshot().snapshot_id
            place.table.manage_snapshots().create_branch(now, "main", min_snapshots_to_keep=7).commit()

    def tags() -> list[str]:
        return sorted(each.rpartition("-")[2] for each in place.table.metadata.refs if each != "main")

    assert tags() == ["1", "2", "3"]
    place.table.manage_snapshots().create_tag(place.table.current_snapshot().snapshot_id, OTHER).commit()
    told = notice(place.stage(place.trigger(4), "t4", 4), checkpoint=4, retained=(3, 4))
    place.sink.notify_checkpoint_complete(told)
    assert tags() == ["3", "4", "7"], "that of another sink stays"
    place.table.manage_snapshots().remove_tag(OTHER).commit()
    expire(place)
    go_back(place, 3, 4)
    assert (place.rows(), tags()) == ([1, 2, 3], ["3"])
    assert place.table.metadata.refs["main"].min_snapshots_to_keep == 7, "as the table's owner wants it"
    place.tidy()
    commit(place, 5, 5)
    place.tidy()
    with raises_code("table_changed", match="the snapshot before has expired"):
        go_back(place, 3, 5)
    commit(place, 7, 7)
    place.foreign(8)
    place.foreign(9)
    expire(place)
    with raises_code("table_changed", match="a snapshot between now and checkpoint 7 has expired"):
        go_back(place, 5, 7)
    place.sink = place.new_sink(on_rewind="keep")
    commit(place, 8, 6)
    assert tags() == ["7"]
