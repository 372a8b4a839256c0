"""The body of a clear reaches the tasks that were meant, and nothing else."""

from typing import Any

import pytest
from airflow.api_fastapi.core_api.datamodels.task_instances import ClearTaskInstancesBody
from hypothesis import given
from hypothesis import strategies as st

from airflow_cairn.checkpoint.errors import InvalidConfigError
from airflow_cairn.hooks.task_refs import TaskRef, clear_body, failed_body

TASKS = st.builds(TaskRef, st.text(min_size=1), st.integers(-1, 100))


@given(st.text(min_size=1), st.lists(TASKS, min_size=1), st.text(max_size=1000))
def test_nothing_but_these_tasks_of_this_run(run: str, tasks: list[TaskRef], note: str) -> None:
    """Airflow itself reads the body as it is meant; each of its fields that widens is there and shut."""
    body = ClearTaskInstancesBody.model_validate(clear_body(run, tasks, note))
    assert body.dag_run_id == run
    assert body.task_ids is not None
    read = {TaskRef(each) if isinstance(each, str) else TaskRef(*each) for each in body.task_ids}
    assert read == set(tasks)
    widening = ("include_upstream", "include_downstream", "include_future", "include_past", "run_on_latest_version")
    narrowing = ("dry_run", "only_failed", "only_running", "prevent_running_task")
    assert {name: getattr(body, name) for name in (*widening, *narrowing)} == dict.fromkeys(
        (*widening, *narrowing), False
    )
    assert (body.start_date, body.end_date, body.reset_dag_runs) == (None, None, True)
    assert body.note == note


@given(st.text(min_size=1), st.lists(TASKS, min_size=1), st.booleans())
def test_what_has_failed_is_cleared_with_what_is_behind_it(run: str, tasks: list[TaskRef], dry_run: bool) -> None:
    """It differs from the other body in what a person means by it, and in nothing else."""
    body = failed_body(run, tasks, "why", dry_run=dry_run)
    ClearTaskInstancesBody.model_validate(body)
    meant = {"dry_run": dry_run, "only_failed": True, "include_downstream": True}
    assert body == {**clear_body(run, tasks, "why"), **meant}


def test_a_note_is_cut_to_what_airflow_takes() -> None:
    body = ClearTaskInstancesBody.model_validate(clear_body("r", [TaskRef("a")], "why " * 500))
    assert body.note == "why " * 250


def test_every_field_that_airflow_knows_is_sent() -> None:
    """A field that is left out takes Airflow's default, which a later version may widen."""
    known = set(ClearTaskInstancesBody.model_fields) - {"start_date", "end_date"}
    assert set(clear_body("r", [TaskRef("a")], "")) == known


@pytest.mark.parametrize(
    ("run", "tasks", "says"),
    [
        ("", [TaskRef("a")], "every run of the DAG"),
        (None, [TaskRef("a")], "every run of the DAG"),
        ("r", [], "the whole run"),
        ("r", [TaskRef("")], "needs its id"),
        ("r", [TaskRef("a", -2)], "an index of at least 0"),
    ],
)
def test_what_would_reach_further_is_refused(run: Any, tasks: list[TaskRef], says: str) -> None:
    with pytest.raises(InvalidConfigError, match=says):
        clear_body(run, tasks, "")
