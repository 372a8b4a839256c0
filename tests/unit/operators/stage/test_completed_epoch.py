"""A run that is cleared although its epoch is completed: each task says who holds it and what to type (T9)."""

from typing import Any

import pytest
from airflow.sdk.exceptions import AirflowSkipException

from tests.support.airflow_fixtures import Said
from tests.support.airflow_stage import Job, Ti, context
from tests.unit.sensors.test_skipped_stages import RUN, Run

STAGES = ("a", "b", "c", "d-0", "d-1", "d_1")


@pytest.fixture
def run(job: Job) -> Run:
    """Two runs have completed; the second one is cleared."""
    run = Run(job)
    for run_id in (RUN, "r2"):
        if run_id != RUN:
            run.run(run_id)
        run.finish(*STAGES)
        assert run.look()["acks"] == len(STAGES)
    return run


def expected(job: Job) -> str:
    return (
        "epoch r2 is completed: checkpoint 2 holds it. It is not run again, because its input would be folded in "
        "twice. To run it and all that came after it again: "
        f"`cairn rewind flights --to 1 --storage {job.storage}`, then clear these runs one after the other, the oldest "
        "first"
    )


@pytest.mark.parametrize("task_id", ["trigger_checkpoint", "a", "b", "c"])
def test_the_trigger_and_the_stages_are_skipped(run: Run, task_id: str) -> None:  # semantics T9
    before = run.job.coordinator.head()
    with pytest.raises(AirflowSkipException) as skipped:
        run.execute(task_id)
    assert str(skipped.value) == expected(run.job)
    assert run.job.coordinator.head() == before


@pytest.mark.parametrize("map_index", [0, 1])
def test_so_is_an_instance_of_a_mapped_stage(run: Run, map_index: int) -> None:  # semantics T9
    ti = Ti(run_id="r2", map_index=map_index)
    mapped: Any = run.dag.get_task("epoch.d")
    arguments, _ = mapped._expand_mapped_kwargs(context(ti))
    with pytest.raises(AirflowSkipException) as skipped:
        mapped.unmap(arguments).execute(context(ti))
    assert str(skipped.value) == expected(run.job)


def test_who_waits_says_the_same_and_lets_the_run_go_on(run: Run, said: Said) -> None:  # semantics T9
    before = run.job.coordinator.head()
    assert run.look()["checkpoint"] == 2
    assert "is completed" not in said.text, "nobody has cleared it"
    assert run.look({("a", -1): "skipped"}, try_number=2)["checkpoint"] == 2
    assert expected(run.job) in said.text
    assert run.job.coordinator.head() == before
