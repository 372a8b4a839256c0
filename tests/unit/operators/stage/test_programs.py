"""A stage whose program knows nothing of Cairn: its submission and its end, and what is refused at parse (0058).

`spark-submit` is a stand-in; `test_durable_drivers.py` has clusters, `tests/real/spark/test_function_submitted.py` a
real one.
"""

from collections.abc import Callable
from itertools import pairwise
from typing import Any

import pytest
from airflow.sdk import DAG, CronDataIntervalTimetable
from airflow.sdk.exceptions import AirflowFailException

from airflow_cairn.checkpoint import CheckpointConfig
from airflow_cairn.checkpoint.documents.layout import epoch_name
from airflow_cairn.checkpoint.documents.programs import Program
from airflow_cairn.checkpoint.errors import FencedError, InvalidConfigError, InvalidStateError
from airflow_cairn.operators import (
    CheckpointedTaskGroup,
    NewState,
    Output,
    Publish,
    Read,
    SliceStart,
    SparkEpochOperator,
    State,
)
from airflow_cairn.operators.stage import programs
from airflow_cairn.operators.stage.outcome import StageFailedError
from airflow_cairn.spark.epoch import Epoch
from tests.support.airflow_stage import Job, Ti, context
from tests.unit.operators.stage.test_spark_epoch import RUN, Submitted, stage, submitted

__all__ = ["submitted"]

PLACES = ["--in", State("totals", default=""), "--out", NewState("totals")]


def tried(job: Job, do: str, number: int = 1, **options: Any) -> Any:
    given = stage(job, do, **{"application_args": [*PLACES], "retries": 1, **options})
    try:
        return given.execute(context(Ti(run_id=RUN, try_number=number)))
    finally:
        assert given.application_args == PLACES, "the author's fields stay as the author wrote them"


def test_the_operator_acknowledges_for_it(job: Job, submitted: Submitted) -> None:
    job.trigger(RUN)
    result = tried(job, "write", application="program.jar", java_class="Main")
    assert (result["checkpoint"], result["attempt"]) == (1, 1)
    *_, before, _, out = submitted["argv"]
    assert before == ""
    assert out.startswith(f"{job.storage}/flights/chk-0000000001/state/routes/")
    assert "--py-files" not in submitted["argv"], "spark-submit refuses them beside a jar"
    job.trigger("r2")
    operator = stage(job, "write", application_args=[*PLACES])
    operator.execute(context(Ti(run_id="r2")))
    *_, before, _, other = submitted["argv"]
    assert (before, other != out) == (out, True), "the next epoch reads what this one wrote"


@pytest.mark.parametrize(
    ("do", "said"),
    [
        ("nothing", "the output state.totals was not written, although the program ended with status 0"),
        ("fail", "spark-submit ended with status 3"),
        ("die", "signal 9"),
    ],
)
def test_one_that_fails_is_tried_again_from_the_checkpoint(job: Job, submitted: Submitted, do: str, said: str) -> None:
    job.trigger(RUN)
    with pytest.raises(StageFailedError, match=said):
        tried(job, do)
    before = submitted["argv"][-1]
    assert tried(job, "write", 2)["attempt"] == 2
    assert submitted["argv"][-1] != before


class Killed(BaseException):
    """SIGKILL, seen from inside."""


@pytest.mark.parametrize("when", ["before", "after"])
def test_a_worker_killed_around_the_acknowledgement(
    job: Job, submitted: Submitted, monkeypatch: pytest.MonkeyPatch, when: str
) -> None:
    """Before: in client mode nobody knows how the program ended, so it runs again. After: nothing is left to do."""
    ours = programs.acknowledge

    def acknowledge(run: Any, *, vanished: bool) -> None:
        if when == "after":
            ours(run, vanished=vanished)
        raise Killed

    job.trigger(RUN)
    with monkeypatch.context() as patched:
        patched.setattr(programs, "acknowledge", acknowledge)
        with pytest.raises(Killed):
            tried(job, "write")
    result = tried(job, "write", 2)
    assert (result and result["attempt"]) == (2 if when == "before" else None)
    assert len(job.coordinator.head().completed) == 1


def test_one_that_ends_well_after_it_was_replaced(
    job: Job, submitted: Submitted, monkeypatch: pytest.MonkeyPatch
) -> None:  # semantics A2
    ours = programs.acknowledge

    def acknowledge(run: Any, *, vanished: bool) -> None:
        job.coordinator.fail(run.handover.epoch, "routes", run.handover.claimant, "somebody says so")
        ours(run, vanished=vanished)

    job.trigger(RUN)
    monkeypatch.setattr(programs, "acknowledge", acknowledge)
    with pytest.raises(FencedError, match="has been replaced"):
        tried(job, "write")
    assert not job.coordinator.head().completed


def test_an_input_that_is_not_there_ends_the_task_for_good(job: Job, submitted: Submitted) -> None:  # semantics F4
    job.trigger(RUN)
    with pytest.raises(AirflowFailException, match="is not an upstream of this one"):
        stage(job, "write", application_args=[Read("raw"), Output()]).execute(context(Ti(run_id=RUN)))
    assert not submitted, "nothing was submitted"


def test_a_block_in_such_a_program_is_refused(job: Job) -> None:
    job.trigger(RUN)
    coordinator = job.coordinator
    answer: Any = coordinator.begin(epoch_name(RUN), "routes", "somebody", program=Program())
    spark: Any = None
    epoch = Epoch(spark, coordinator.files.store, answer.handover)
    with pytest.raises(InvalidStateError, match="Take the epoch's block out"), epoch:
        pass


def dag_of(*stages: tuple[str, list[Any], dict[str, Any]], edges: bool = True, **config: Any) -> None:
    with DAG("d", schedule=CronDataIntervalTimetable("0 0 * * *", timezone="UTC")):
        with CheckpointedTaskGroup("epoch", **{"storage": "file:///tmp/s", **config}) as group:
            tasks = [
                SparkEpochOperator(task_id=uid, application_args=args, **{"application": "plain.py", **more})
                for uid, args, more in stages
            ]
            for up, down in pairwise(tasks) if edges else ():
                up >> down
        group.serialize_for_task_group()


AZURE = "abfss://lake@account1.dfs.core.windows.net/x"
RAW: tuple[str, list[Any], dict[str, Any]] = ("raw", [SliceStart(), Output("rows"), Publish("daily")], {})


LATE = CheckpointConfig(mode="at_least_once")


def test_a_group_of_programs_is_parsed() -> None:
    dag_of(RAW, ("clean", ["--in=" + Read("raw"), Read("raw", "daily"), Output("clean")], {}), ("epoch", [], {}))
    dag_of(("epoch", [], {}), ("clean", [Read("epoch", "anything"), Output()], {}))


@pytest.mark.parametrize(
    ("make", "said"),
    [
        (lambda: dag_of(RAW, ("clean", [Read("rew")], {})), "'rew', which is not a stage of its group.*raw"),
        (lambda: dag_of(RAW, ("clean", [Read("raw")], {}), edges=False), "no edge from it.*raw >> clean"),
        (lambda: dag_of(RAW, ("clean", [Read("raw", "dayly")], {})), "no such output.*exchange rows, table daily"),
        (lambda: dag_of(RAW, ("clean", [Read("raw", kind="state")], {})), "writes no such output"),
        (lambda: dag_of(("raw", [Output("a"), Output("b")], {}), ("c", [Read("raw")], {})), "several such outputs"),
        (lambda: dag_of(RAW, ("c", [Read("raw")], {}), config=LATE), "an upstream may have written only a part"),
        (lambda: dag_of(("raw", [Output("a"), Output("a")], {})), "the same output, exchange a"),
        (lambda: dag_of(("raw", [Output()], {"parallelism": 2})), "parallelism needs an Epoch block"),
        (lambda: dag_of(RAW, storage="gs://lake/x"), "on Google Cloud and Azure an Epoch alone writes"),
        (lambda: dag_of(RAW, storage=AZURE), "on Google Cloud and Azure an Epoch alone writes"),
        (lambda: dag_of(("raw", [State("a", default="")], {})), "never writes it"),
        (lambda: dag_of(("raw", [], {"conf": {"spark.a": "x/" + Output()}})), "conf spark.a cannot hold Joined"),
        (lambda: dag_of(("raw", [], {"env_vars": {"OUT": Output()}})), "env_vars OUT cannot hold Output"),
        (lambda: dag_of(("raw", [], {"application": "x.ipynb"})), "nbconvert.*DatabricksSubmitRunOperator"),
        (lambda: dag_of(("raw", [], {"application": "s3a://lake/x.sql"})), "'-f', 'totals.sql'"),
        (lambda: dag_of(("raw", [], {"files": [Output()]})), "files cannot hold Output"),
        (lambda: dag_of(("raw", ["--out", [Output()]], {})), r"application_args\[1\] cannot hold Output"),
    ],
)
def test_bad_places_are_import_errors(make: Callable[[], None], said: str) -> None:
    with pytest.raises(InvalidConfigError, match=f"(?s){said}"):
        make()
