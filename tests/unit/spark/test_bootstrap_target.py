"""Places where a savepoint out of DataFrames may not lie; needs no session."""

from pathlib import Path
from typing import Any

import pytest

from airflow_cairn.checkpoint.errors import InvalidConfigError
from airflow_cairn.spark import bootstrap_savepoint
from airflow_cairn.storage import S3Options
from tests.support import jobs
from tests.support.errors import raises_code
from tests.support.world.world import JOB, World

NO_SESSION: Any = None


@pytest.fixture
def lake(tmp_path: Path) -> str:
    world = World()
    world.run_epoch("a")
    return jobs.dump(world.memory, tmp_path / "lake")


@pytest.mark.parametrize("below", ["", "/kept", "/chk-0000000001/state/"])
def test_a_job_s_own_folder_is_refused(lake: str, below: str) -> None:  # semantics P1
    with raises_code("savepoint_refused", match=rf"in a job's own folder.*folder=`{lake}/{JOB}`"):
        bootstrap_savepoint(NO_SESSION, {}, f"{lake}/{JOB}{below}", s3=S3Options())


@pytest.mark.parametrize("beside", ["", "/kept", f"/{JOB}-kept", "-elsewhere"])
def test_one_beside_a_job_is_taken(lake: str, beside: str, tmp_path: Path) -> None:
    before = sorted(tmp_path.rglob("*"))
    with pytest.raises(InvalidConfigError, match="no state is given"):
        bootstrap_savepoint(NO_SESSION, {}, f"{lake}{beside}", s3=S3Options())
    assert sorted(tmp_path.rglob("*")) == before
