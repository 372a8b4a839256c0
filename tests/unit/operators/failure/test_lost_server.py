"""A stage whose server is gone says which one in its report; the head then counts what it took along once (F4, V4)."""

from datetime import timedelta

import pytest

from airflow_cairn.checkpoint import CheckpointConfig, FixedDelayRestart
from airflow_cairn.checkpoint.answers import Failed, FailedOver
from airflow_cairn.operators import StageFailedError
from airflow_cairn.operators.failure.callbacks import report
from tests.support.airflow_stage import Job, Ti, context

ONE = CheckpointConfig(restart_strategy=FixedDelayRestart(1, timedelta(seconds=1)))


@pytest.mark.parametrize(("second", "expected"), [("s1", FailedOver), ("s2", Failed), ("", Failed)])
def test_a_report_names_the_server_that_is_gone(job: Job, second: str, expected: type) -> None:  # semantics F4, V4
    job.trigger("e1", config=ONE)
    answers = []
    for server in ("s1", second):
        ti = Ti(run_id="e1", max_tries=9)
        job.begin("e1", claimant=str(ti.id))
        error = StageFailedError("stage routes failed: it is gone", **({"server": server} if server else {}))
        answers.append(report(context(ti, exception=error), "routes", job.coordinator))
    assert isinstance(answers[0], FailedOver)
    assert isinstance(answers[1], expected)
