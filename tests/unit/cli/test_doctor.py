"""`cairn doctor` and `cairn clean` as their user sees them."""

import os
import shutil
from pathlib import Path

import pytest

from airflow_cairn.checkpoint.documents import layout
from airflow_cairn.checkpoint.health.findings import Examination
from airflow_cairn.cli.main import DAMAGED, FAILED
from airflow_cairn.storage import open_store
from tests.support.command import Cairn
from tests.support.world.world import JOB, World
from tests.unit.cli.test_json import documented, paths


@pytest.fixture
def storage(tmp_path: Path) -> str:
    """A job that is well."""
    world = World(open_store(f"file://{tmp_path}"))
    world.run_epoch(*"ab")
    world.coordinator().clean()
    return world.store.uri


@pytest.fixture
def cairn(cairn: Cairn, storage: str) -> Cairn:
    """The command on this storage."""
    return cairn.on(storage)


@pytest.fixture
def ill(cairn: Cairn, tmp_path: Path) -> Cairn:
    """Storage with an orphan, and with a job whose head is broken."""
    left = tmp_path / JOB / layout.folder(1) / "state" / "left.parquet"
    left.parent.mkdir(parents=True, exist_ok=True)
    left.write_bytes(b"x" * 3000)
    (tmp_path / "broken").mkdir()
    (tmp_path / "broken" / "head.json").write_text("{")
    return cairn


def test_a_storage_that_is_well(tmp_path: Path, cairn: Cairn) -> None:
    assert cairn("doctor").out == "nothing is wrong; 13 checks passed, 0 not made\n"
    assert cairn("doctor", JOB, "--read-only").lines == [
        "not checked: rights: nothing was to be written",
        "not checked: conditional writes: nothing was to be written",
        "nothing is wrong; 11 checks passed, 2 not made",
    ]
    assert {path.name for path in tmp_path.iterdir()} <= {JOB, ".cairn-tmp"}, "what it wrote is deleted again"


def test_what_is_wrong_why_it_matters_and_what_mends_it(
    tmp_path: Path, ill: Cairn, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Errors first; then what the command has to be typed."""
    monkeypatch.setenv("COLUMNS", "120")
    shutil.copytree(tmp_path / "broken", tmp_path / "broken2")
    lines = ill("doctor", status=DAMAGED).lines
    assert lines[0] == "ERROR head-damaged: broken"
    assert [line for line in lines if line.startswith("WARNING")] == [f"WARNING orphans: {JOB}"]
    assert "  to mend it     cairn clean" in "\n".join(lines)
    assert lines[-1] == "2 errors, 1 warning; 12 checks passed, 0 not made"


def test_the_json_has_the_fields_of_the_reference_and_clean_mends_it(ill: Cairn) -> None:
    found = ill.json("doctor", "--read-only", status=DAMAGED)
    assert {*paths(found)} == documented("doctor")
    assert [each["name"] for each in found["findings"]] == ["head-damaged", "orphans"]
    assert ill("clean", JOB).out == "1 files deleted, 0 uploads aborted\n"
    ill("doctor", JOB)
    assert {*paths(ill.json("clean", JOB))} == documented("clean")


def test_a_missing_storage_is_a_finding_and_a_missing_job_an_error(tmp_path: Path, cairn: Cairn) -> None:
    assert "the storage has no such job" in cairn("doctor", "nope", status=FAILED).err
    assert "ERROR storage-missing" in cairn.on(f"file://{tmp_path}/nowhere")("doctor", status=DAMAGED).out


@pytest.mark.parametrize(
    ("folder", "writable", "status"),
    [
        ("new/lake", True, None),
        ("", True, None),
        ("new/lake", False, "ERROR storage-missing"),
        ("file/lake", True, "ERROR"),
    ],
)
def test_a_worker_is_checked_before_a_job_has_run(
    tmp_path: Path, cairn: Cairn, monkeypatch: pytest.MonkeyPatch, folder: str, writable: bool, status: str | None
) -> None:
    """The first job makes its folder; without --worker a folder that is not there is taken as lost."""
    monkeypatch.setattr("airflow_cairn.tasks.health.examine.examine_worker", lambda **_: Examination())
    monkeypatch.setattr(os, "access", lambda *_: writable)
    (tmp_path / "file").touch()
    found = cairn.on(f"file://{tmp_path / folder}")("doctor", "--worker", status=DAMAGED if status else 0)
    assert (status or "nothing is wrong") in found.out
    assert (f"there is no folder file://{tmp_path / folder} yet" in found.text) == (folder == "new/lake" and writable)
    assert not (tmp_path / "new").exists()


def test_a_checkpoint_that_is_too_old(cairn: Cairn) -> None:
    """The job's clock stood still in 2023."""
    cairn("doctor", "--read-only", "--max-age", "36500d")
    out = cairn("doctor", "--read-only", "--max-age", "2h", status=DAMAGED).out
    assert f"ERROR checkpoint-old: {JOB}" in out
    assert "one was to complete every 2h 00m" in out
