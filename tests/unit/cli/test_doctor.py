"""`cairn doctor` and `cairn clean` as their user sees them."""

import json
import os
from pathlib import Path

import pytest

from airflow_cairn.checkpoint.documents import layout
from airflow_cairn.checkpoint.health.findings import Examination
from airflow_cairn.cli.main import DAMAGED, FAILED, main
from airflow_cairn.storage import open_store
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
def ill(storage: str, tmp_path: Path) -> str:
    """The same with an orphan, and with a job whose head is broken."""
    left = tmp_path / JOB / layout.folder(1) / "state" / "left.parquet"
    left.parent.mkdir(parents=True, exist_ok=True)
    left.write_bytes(b"x" * 3000)
    (tmp_path / "broken").mkdir()
    (tmp_path / "broken" / "head.json").write_text("{")
    return storage


def test_a_storage_that_is_well(storage: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["doctor", "--storage", storage]) == 0
    assert capsys.readouterr().out == "nothing is wrong; 13 checks passed, 0 not made\n"
    assert main(["doctor", JOB, "--read-only", "--storage", storage]) == 0
    assert capsys.readouterr().out.splitlines() == [
        "not checked: rights: nothing was to be written",
        "not checked: conditional writes: nothing was to be written",
        "nothing is wrong; 11 checks passed, 2 not made",
    ]
    assert {path.name for path in tmp_path.iterdir()} <= {JOB, ".cairn-tmp"}, "what it wrote is deleted again"


def test_what_is_wrong_why_it_matters_and_what_mends_it(
    ill: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Errors first; then what the command has to be typed."""
    monkeypatch.setenv("COLUMNS", "120")
    assert main(["doctor", "--storage", ill]) == DAMAGED
    lines = capsys.readouterr().out.splitlines()
    assert lines[0] == "ERROR head-damaged: broken"
    assert [line for line in lines if line.startswith("WARNING")] == [f"WARNING orphans: {JOB}"]
    assert "  to mend it     cairn clean" in "\n".join(lines)
    assert lines[-1] == "1 error, 1 warning; 12 checks passed, 0 not made"


def test_clean_mends_it(ill: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["clean", JOB, "--storage", ill]) == 0
    assert capsys.readouterr().out == "1 files deleted, 0 uploads aborted\n"
    assert main(["doctor", JOB, "--storage", ill]) == 0


def test_the_json_has_the_fields_of_the_reference(ill: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["doctor", "--read-only", "--json", "--storage", ill]) == DAMAGED
    found = json.loads(capsys.readouterr().out)
    assert {*paths(found)} == documented("doctor")
    assert [each["name"] for each in found["findings"]] == ["head-damaged", "orphans"]
    assert main(["clean", JOB, "--json", "--storage", ill]) == 0
    assert {*paths(json.loads(capsys.readouterr().out))} == documented("clean")


def test_a_missing_storage_is_a_finding_and_a_missing_job_an_error(
    storage: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["doctor", "--storage", f"file://{tmp_path}/nowhere"]) == DAMAGED
    assert "ERROR storage-missing" in capsys.readouterr().out
    assert main(["doctor", "nope", "--storage", storage]) == FAILED
    assert "the storage has no such job" in capsys.readouterr().err


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
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
    folder: str,
    writable: bool,
    status: str | None,
) -> None:
    """The first job makes its folder; without --worker one that is not there is taken as lost."""
    monkeypatch.setattr("airflow_cairn.tasks.health.examine.examine_worker", lambda **_: Examination())
    monkeypatch.setattr(os, "access", lambda *_: writable)
    (tmp_path / "file").touch()
    found = main(["doctor", "--worker", "--storage", f"file://{tmp_path / folder}"])
    out = capsys.readouterr().out
    assert found == (DAMAGED if status else 0)
    assert (status or "nothing is wrong") in out
    assert (f"there is no folder file://{tmp_path / folder} yet" in " ".join(out.split())) == (
        folder == "new/lake" and writable
    )
    assert not (tmp_path / "new").exists()


def test_a_checkpoint_that_is_too_old(storage: str, capsys: pytest.CaptureFixture[str]) -> None:
    """The job's clock stood still in 2023."""
    words = ["doctor", "--read-only", "--storage", storage]
    assert main([*words, "--max-age", "36500d"]) == 0
    assert main([*words, "--max-age", "2h"]) == DAMAGED
    out = capsys.readouterr().out
    assert f"ERROR checkpoint-old: {JOB}" in out
    assert "one was to complete every 2h 00m" in out
    with pytest.raises(SystemExit):
        main([*words, "--max-age", "2 hours"])
    assert "expected a number and m, h or d, such as 2h" in capsys.readouterr().err
