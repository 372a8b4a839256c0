"""A driver says of its end that the store refused it, or gave no answer (semantics F4, W3)."""

import subprocess
import sys
from types import SimpleNamespace
from typing import Any, cast

import pytest

from airflow_cairn.operators.stage.outcome import StageRun
from airflow_cairn.spark import acknowledging
from airflow_cairn.storage import errors
from airflow_cairn.storage.errors import (
    CairnError,
    ForbiddenError,
    InvalidKeyError,
    OutcomeUnknownError,
    UnavailableError,
)
from tests.support.airflow_stage import Job
from tests.support.narrowing import known

RUN = "r1"


def from_it(error: Exception) -> Exception:
    wrapped = RuntimeError("the author's own words")
    wrapped.__cause__ = error
    return wrapped


@pytest.mark.parametrize(
    ("error", "of_store"),
    [
        (ForbiddenError("403"), True),
        (ForbiddenError("403", code="missing_right"), True),
        (OutcomeUnknownError("the answer was lost"), True),
        (from_it(UnavailableError("503")), True),
        (InvalidKeyError("no name", code="invalid_name"), False),
        (ValueError("a bad row"), False),
    ],
)
def test_a_decline_says_whether_it_is_of_the_store(job: Job, error: Exception, of_store: bool) -> None:  # semantics F4
    job.trigger(RUN)
    run = StageRun(job.coordinator, job.begin(RUN))
    writer = SimpleNamespace(delete_all=lambda: None)
    acknowledging.decline(cast(Any, job.coordinator), run.handover, cast(Any, writer), error)
    said = known(run.declined())
    assert said.of_store is of_store
    assert run.failure(1).fields.get("of_store", False) is of_store
    with pytest.raises(CairnError) as quiet:
        run.check_acknowledged()
    assert quiet.value.fields.get("of_store", False) is of_store


@pytest.mark.parametrize(
    ("raised", "of_store"),
    [
        (ForbiddenError("403", code="missing_right"), True),
        (UnavailableError("503"), True),
        (InvalidKeyError("no name", code="invalid_name"), False),
        (ValueError("a bad row"), False),
    ],
)
def test_where_it_could_not_decline_its_last_line_says_so(job: Job, raised: Exception, of_store: bool) -> None:
    """semantics F4: the last line is as Python prints it."""
    job.trigger(RUN)
    module = errors.__name__ if isinstance(raised, CairnError) else "builtins"
    ran = subprocess.run(
        [sys.executable, "-c", f"import {module}\nraise {module}.{type(raised).__name__}('what it says')"],
        capture_output=True, text=True, check=False,
    )  # fmt: skip
    failed = StageRun(job.coordinator, job.begin(RUN)).failure(1, cause=ran.stderr.splitlines()[-1])
    assert failed.fields.get("of_store", False) is of_store
