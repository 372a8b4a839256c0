"""What failed checkpoints have staged is deleted once a later epoch has completed, and nothing else is (semantics T7).

Real tables of pyiceberg and deltalake, and a job in memory.
"""

from __future__ import annotations

from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from airflow_cairn.checkpoint.documents import staged_tables
from airflow_cairn.checkpoint.documents.staged_tables import description_of
from airflow_cairn.checkpoint.store import attempt_documents
from airflow_cairn.tables.staged_files import StagedFiles
from tests.real.spark.branched import ByBranches
from tests.support.lake import Delta, Iceberg, Place, notice
from tests.support.narrowing import known
from tests.support.world.master_hooks import triggered
from tests.support.world.world import TIMEOUT, World


class Job:
    """A job whose epochs write the table."""

    def __init__(self, place: Place, world: World | None = None) -> None:
        self.place, self.world = place, world or World()

    def begin(self, epoch: str) -> str:
        """Trigger an epoch, and give the place where it stages."""
        pending = triggered(self.world, epoch, self.place.new_sink()).pending
        self.place.owner = staged_tables.owner_of(self.world.job, self.world.files.store.uri)
        [answer] = attempt_documents.read_hook_answers(self.world.files, known(pending.hooks))
        self.place.described = description_of(answer.value, where="answer")
        return self.place.described.staging

    def fail(self, epoch: str, *ids: int) -> set[str]:
        """Have a driver stage rows, and the epoch time out; give the files."""
        before = self.place.staged()
        self.place.stage(self.begin(epoch), "dead", *ids)
        self.end(epoch)
        return self.place.staged() - before

    def end(self, epoch: str) -> None:
        self.world.clock.advance(TIMEOUT)
        self.world.coordinator().progress(epoch)

    def run(self, epoch: str, *ids: int) -> int:
        """Bring an epoch to its end; commit what it has staged."""
        staged = self.place.stage(self.begin(epoch), "good", *ids)
        return self.finish(epoch, staged)

    def take_over(self, epoch: str, *ids: int) -> int:
        """Bring an epoch to its end by a second attempt, which takes over what the first has staged."""
        staged = self.place.stage(self.begin(epoch), "good", *ids)
        self.world.run_stage(epoch, "clean")
        self.end(epoch)
        return self.finish(epoch, staged)

    def complete(self, epoch: str) -> int:
        for stage in self.world.stages:
            self.world.run_stage(epoch, stage.uid)
        checkpoint = self.world.pending_id(epoch)
        self.world.coordinator().complete(checkpoint)
        return checkpoint

    def finish(self, epoch: str, staged: Any) -> int:
        checkpoint = self.complete(epoch)
        self.place.new_sink().notify_checkpoint_complete(notice(staged, checkpoint=checkpoint))
        return checkpoint


@pytest.fixture(params=[Iceberg, Delta])
def place(request: pytest.FixtureRequest, tmp_path: Path) -> Place:
    made: Place = request.param(tmp_path, f"file://{tmp_path}/the lake")
    return made


@pytest.fixture
def job(place: Place) -> Job:
    return Job(place)


def test_the_rows_of_an_epoch_that_never_completes(place: Place, job: Job) -> None:
    """They go when nothing can take them over any more: at the first trigger after a later epoch has completed."""
    job.run("a", 1)
    dead = job.fail("b", 2) | job.fail("c", 3)
    assert len(dead) == 2
    job.run("d", 4)
    assert dead < place.staged(), "d has begun before anything had completed after b and c"
    job.begin("e")
    assert (place.staged(), place.rows()) == (place.named(), [1, 4])


def test_rows_that_a_later_attempt_has_taken_over(place: Place, job: Job) -> None:
    """The folder bears the name of the epoch's first attempt, which failed."""
    assert job.take_over("a", 1) == 2
    for epoch in "bc":
        job.begin(epoch)
        assert (place.staged(), place.rows()) == (place.named(), [1])
        job.end(epoch)
    job.run("d", 2)
    job.begin("e")
    assert (place.staged(), place.rows()) == (place.named(), [1, 2])


def test_rows_that_were_taken_over_in_a_table_that_has_moved_since(tmp_path: Path) -> None:
    """Delta's log names files relative to the table's folder."""
    place = Delta(tmp_path, f"file://{tmp_path}/lake")
    job = Job(place)
    job.take_over("a", 1)
    place.url = f"file://{(tmp_path / 'lake').rename(tmp_path / 'sea')}"
    job.begin("b")
    assert (place.staged(), place.rows()) == (place.named(), [1])


def test_rows_that_a_rewind_has_taken_back(place: Place, job: Job) -> None:
    """Older versions of the table name their files."""
    job.run("a", 1)
    dead = job.fail("x", 5)
    job.run("b", 2)
    undone = place.staged() - dead
    job.world.coordinator().rewind(1)
    dead |= job.fail("b", 3)
    job.run("b", 4)
    job.begin("c")
    assert not dead & place.staged()
    assert undone < place.staged()
    assert place.rows() == [1, 4]


@pytest.mark.parametrize("other", ["of another name", "that began anew"])
def test_rows_of_another_job_with_the_same_ids(place: Place, job: Job, other: str) -> None:
    """Both have committed or failed as checkpoint 1, and their groups name the table alike."""
    job.run("a", 1)
    after = Job(place, World(job="other" if other == "of another name" else None))
    if other == "that began anew":
        after.world.clock.advance(timedelta(milliseconds=1))
    dead = after.fail("a", 2)
    after.run("b", 3)
    after.begin("c")
    assert not dead & place.staged()
    assert (place.staged(), place.rows()) == (place.named(), [1, 3])


def test_rows_that_cannot_be_deleted(
    place: Place, job: Job, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """The epoch begins, and the next trigger tries again."""
    dead = job.fail("a", 1)
    job.run("b", 2)

    def refuse(*_: Any, **__: Any) -> None:
        raise PermissionError("no s3:DeleteObject")

    with monkeypatch.context() as patch:
        patch.setattr(StagedFiles, "delete", refuse)
        staging = job.begin("c")
    assert "no s3:DeleteObject" in caplog.text
    assert dead < place.staged()
    job.finish("c", place.stage(staging, "good", 3))
    job.begin("d")
    assert place.staged() == place.named()


def test_branches_of_epochs_that_never_complete(tmp_path: Path) -> None:
    """Those of another job with the same ids stay."""
    place = ByBranches(tmp_path, f"file://{tmp_path}/the lake")
    place.foreign(1)
    job, other = Job(place), Job(place, World(job="other"))

    def branch(job: Job, epoch: str) -> str:
        name = f"{job.begin(epoch)}_token_run_stage"
        with place.table.manage_snapshots() as snapshots:
            snapshots.create_branch(place.table.metadata.current_snapshot_id, name)
        return name

    of_other_job, dead = branch(other, "a"), branch(job, "a")
    job.end("a")
    taken_over = branch(job, "b")
    job.complete("b")
    assert {of_other_job, dead, taken_over} < set(place.table.metadata.refs)
    job.begin("c")
    assert set(place.table.metadata.refs) == {of_other_job, "main"}
