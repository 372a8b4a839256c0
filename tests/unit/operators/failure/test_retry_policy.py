"""Retry decision for a failed try: by a restart strategy, an error that no retry cures, a lost server (F4, V4)."""

import ast
import importlib
import pickle
import pkgutil
import time
from collections.abc import Callable, Collection, Iterator
from datetime import timedelta
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from airflow.sdk import timezone
from airflow.sdk.definitions.retry_policy import RetryAction, RetryDecision
from airflow.sdk.exceptions import AirflowFailException

from airflow_cairn.checkpoint import (
    CheckpointConfig,
    ExponentialDelayRestart,
    FixedDelayRestart,
    NoRestart,
    RegionalCheckpoints,
)
from airflow_cairn.checkpoint.answers import Failed, FailedOver
from airflow_cairn.checkpoint.config import RestartStrategy
from airflow_cairn.checkpoint.documents.entries import SavepointEntry
from airflow_cairn.checkpoint.errors import (
    CallbackError,
    CheckpointFailedError,
    InvalidConfigError,
    InvalidStateError,
    NoSavepointError,
    RefusedError,
)
from airflow_cairn.checkpoint.reasons import Reason, Status
from airflow_cairn.cli.output import hints
from airflow_cairn.hooks.task_refs import came_back, is_asked_for
from airflow_cairn.operators import (
    CheckpointRetryPolicy,
    DisposeSavepointOperator,
    RestoreLatestCheckpointOperator,
    SavepointOperator,
    SparkEpochOperator,
    StageSpec,
    StopWithSavepointOperator,
    TriggerCheckpointOperator,
    restore_latest_checkpoint,
)
from airflow_cairn.operators.failure.callbacks import report
from airflow_cairn.operators.failure.retry_policy import FAIL_FAST
from airflow_cairn.operators.savepoint.operators import failed
from airflow_cairn.operators.stage.outcome import StageFailedError
from airflow_cairn.storage import clock
from airflow_cairn.storage.errors import (
    CairnError,
    DocumentError,
    ForbiddenError,
    InvalidKeyError,
    UnavailableError,
    UnsupportedStorageError,
)
from tests.support.airflow_fixtures import DagFile
from tests.support.airflow_stage import Job, Ti, context
from tests.support.documented import DOCS
from tests.support.narrowing import expect, known

RUN = "scheduled__2001-01-01T00:00:00+00:00"
BOOM = RuntimeError("boom")


def strict(job: Job, strategy: RestartStrategy | None, *stages: str, **options: Any) -> None:
    job.trigger(RUN, *stages, config=CheckpointConfig(restart_strategy=strategy, **options))


def stage(of: Job, **options: Any) -> SparkEpochOperator:
    return SparkEpochOperator(
        task_id="routes", storage=of.storage, job=of.name, application="x.py",
        retry_policy=CheckpointRetryPolicy(), **options,
    )  # fmt: skip


def fail(job: Job, error: BaseException = BOOM, *, begins: bool = True, **more: Any) -> RetryDecision:
    """Let a try begin and fail, and ask the policy as the task runner does."""
    ti = Ti(run_id=RUN)
    if begins:
        job.begin(RUN, claimant=str(ti.id))
    told = context(ti, task=stage(job), **more)
    policy = known(stage(job).retry_policy)
    decision = expect(RetryDecision, policy.evaluate(exception=error, try_number=1, max_tries=9, context=told))
    restore_latest_checkpoint(told | {"exception": error})  # Airflow's callback comes afterwards
    return decision


@pytest.mark.parametrize(
    ("error", "counted"),
    [
        (BOOM, "restart 1, 1 left"),
        (ForbiddenError("403"), "no restart counted, 2 left"),
        (UnavailableError("503"), "no restart counted, 2 left"),
        (StageFailedError("stage routes failed: 403", of_store=True), "no restart counted, 2 left"),
        (StageFailedError("stage routes failed: a bad row"), "restart 1, 1 left"),
        (DocumentError("a file is broken"), "restart 1, 1 left"),
    ],
)
def test_a_restart_waits_for_the_strategys_delay(job: Job, error: Exception, counted: str) -> None:
    """semantics F4, F5: a store that refuses uses up no restart."""
    strict(job, FixedDelayRestart(2, timedelta(minutes=5)))
    decision = fail(job, error)
    assert decision.action is RetryAction.RETRY
    assert decision.retry_delay is not None
    assert timedelta(minutes=4) < decision.retry_delay <= timedelta(minutes=5)
    assert decision.reason == f"checkpoint 2, attempt 2: {counted}"
    (ended,) = job.coordinator.head().history
    assert error is not BOOM or ended.detail == "routes: RuntimeError: boom"


def test_a_clock_that_was_ahead_makes_no_delay_longer(job: Job, monkeypatch: pytest.MonkeyPatch) -> None:
    """semantics F4: the process that opened the attempt was a day ahead of the one that asks for the delay."""
    ahead_ns = int((timezone.utcnow() + timedelta(days=1)).timestamp()) * 10**9
    monkeypatch.setattr(clock, "time", SimpleNamespace(**{**vars(time), "time_ns": lambda: ahead_ns}))
    strict(job, FixedDelayRestart(2, timedelta(minutes=5)))
    assert fail(job).retry_delay == timedelta(minutes=5)


def test_an_exhausted_strategy_fails_the_task_with_the_reason(job: Job) -> None:  # semantics F4
    strict(job, FixedDelayRestart(1, timedelta(0)))
    first, second = fail(job), fail(job)
    assert (first.action, first.retry_delay, first.reason) == (
        RetryAction.RETRY, timedelta(0), "checkpoint 2, attempt 2: restart 1, 0 left"
    )  # fmt: skip
    why = "FixedDelayRestart allows 1 restart of an epoch, and this was failure 2: routes: RuntimeError: boom"
    assert second == RetryDecision.fail(why)
    history = job.coordinator.head().history
    assert [(entry.reason, entry.for_good) for entry in history] == [
        (Reason.JOB_FAILOVER_REGION, False),
        (Reason.JOB_FAILURE, True),
    ]
    assert fail(job, begins=False) == second, "asked again, or about a stage that was replaced"


def test_a_strategy_without_a_limit_says_no_number(job: Job) -> None:  # semantics F4
    strict(job, ExponentialDelayRestart())
    assert fail(job).reason == "checkpoint 2, attempt 2: restart 1"


def test_a_try_that_was_replaced_is_retried_at_the_strategys_moment(job: Job) -> None:  # semantics F3, F4
    strict(job, FixedDelayRestart(5, timedelta(minutes=5)))
    job.begin(RUN, claimant="other")
    job.coordinator.fail(RUN_EPOCH, "routes", "other", "boom")
    decision = fail(job, begins=False)
    assert decision.action is RetryAction.RETRY
    assert decision.retry_delay is not None
    assert decision.retry_delay > timedelta(minutes=4)
    assert job.coordinator.head().pending[0].restarts == 1, "it is no failure of its own"


RUN_EPOCH = "scheduled__2001-01-01T00.3a00.3a00.2b00.3a00"


def test_a_stage_that_may_be_left_out_is_not_retried(job: Job) -> None:  # semantics F4, F6
    strict(job, NoRestart(), "routes", "clean", "report", regional=RegionalCheckpoints(0.9, 2))
    assert fail(job) == RetryDecision.fail("checkpoint 1 goes on without routes")


@pytest.mark.parametrize(
    "prepare",
    [
        pytest.param(lambda job: job.complete(RUN), id="the epoch is completed"),
        pytest.param(lambda job: strict(job, None), id="the job has no strategy"),
        pytest.param(lambda job: strict(job, NoRestart()), id="the stage never began"),
    ],
)
def test_where_nothing_was_counted_airflow_decides(job: Job, prepare: Callable[[Job], object]) -> None:
    # semantics F4
    prepare(job)
    assert fail(job, begins=False) == RetryDecision.default()


def test_without_a_context_airflow_decides() -> None:
    assert CheckpointRetryPolicy().evaluate(BOOM, 1, 1) == RetryDecision.default()


def test_a_head_that_cannot_be_read_is_no_answer(job: Job) -> None:
    # semantics F4: Airflow logs the error and goes by its own retries; the next try asks again
    strict(job, NoRestart())
    (job.folder / job.name / "head.json").write_text("{")
    with pytest.raises(DocumentError):
        CheckpointRetryPolicy().evaluate(BOOM, 1, 1, context(Ti(run_id=RUN), task=stage(job)))


@pytest.mark.parametrize(
    ("try_number", "max_tries", "retries", "expected"),
    [
        (1, 3, 3, False),  # its first try
        (2, 3, 3, False),  # a retry
        (3, 5, 3, True),  # cleared after the second try
        (4, 5, 3, False),  # a retry after that
        (2, 1, 0, True),  # cleared, and never retried
        (2, 1, None, True),
    ],
)
def test_a_clear_is_told_from_a_retry(try_number: int, max_tries: int, retries: int | None, expected: bool) -> None:
    # semantics F4
    assert is_asked_for(Ti(try_number=try_number, max_tries=max_tries), retries) is expected  # type: ignore[arg-type]


def test_a_try_that_put_itself_off_is_known() -> None:  # semantics F4
    assert not came_back(context(Ti()))
    assert not came_back(context(Ti(), task_reschedule_count=0))
    assert came_back(context(Ti(), task_reschedule_count=2))


def test_a_try_that_a_person_asked_for_before_the_end_fails_too(job: Job) -> None:  # semantics F4
    """The try was sent to wait for its upstreams, and while it waited another stage used up the restarts."""
    strict(job, NoRestart())
    fail(job)
    waited = context(Ti(run_id=RUN, try_number=3, max_tries=5), task_reschedule_count=1)
    with pytest.raises(AirflowFailException, match="has failed and is not tried again"):
        stage(job, retries=3).execute(waited)
    assert job.coordinator.head().pending == ()


def test_a_try_after_the_end_fails_at_once_and_one_by_hand_goes_on(job: Job, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", str(job.folder))  # semantics F4
    strict(job, NoRestart())
    fail(job)
    operator = stage(job, retries=3)
    with pytest.raises(AirflowFailException, match=r"has failed and is not tried again: .*NoRestart allows no restart"):
        operator.execute(context(Ti(run_id=RUN, try_number=2, max_tries=3)))
    assert job.coordinator.head().pending == ()
    with pytest.raises(AirflowFailException, match="spark-submit was not started"):
        operator.execute(context(Ti(run_id=RUN, try_number=3, max_tries=5)))
    assert len(job.coordinator.head().pending) == 1


_GROUP = """
from airflow_cairn.checkpoint import *
from airflow.sdk import RetryPolicy, ExceptionRetryPolicy
with DAG("flights"):
    with CheckpointedTaskGroup("epoch", reads_window=False,
    storage="file:///s", config=CheckpointConfig(restart_strategy={strategy})):
        SparkEpochOperator(task_id="routes", application="r.py", {options})
"""


@pytest.mark.parametrize(
    ("strategy", "options", "retries"),
    [
        ("FixedDelayRestart(3)", "", 13),
        ("FixedDelayRestart(3)", "retries=50", 53),
        ("FixedDelayRestart(10**9)", "", 1_000_000),
        ("ExponentialDelayRestart(attempts=7)", "retries=2", 17),
        ("ExponentialDelayRestart()", "", 1_000_000),
        ("FailureRateRestart(3)", "", 1_000_000),
        ("NoRestart()", "", 0),
        ("NoRestart()", "retries=2", 2),
    ],
)
def test_airflows_retries_are_no_tighter_bound(dag_file: DagFile, strategy: str, options: str, retries: int) -> None:
    task = dag_file.dag(_GROUP.format(strategy=strategy, options=options)).get_task("epoch.routes")  # semantics F4
    assert isinstance(task.retry_policy, CheckpointRetryPolicy)
    assert task.retries == retries


def test_a_mapped_task_is_retried_as_well(dag_file: DagFile) -> None:  # semantics F4
    body = _GROUP.format(strategy="FixedDelayRestart(3)", options="")
    more = """
        SparkEpochOperator.partial(task_id="many", retries=20).expand(application=["a.py", "b.py"])
"""
    task = dag_file.dag(body + more).get_task("epoch.many")
    assert isinstance(task.retry_policy, CheckpointRetryPolicy)
    assert task.retries == 23


def test_without_a_strategy_the_authors_options_stay(dag_file: DagFile) -> None:  # semantics F4
    options = "retries=2, retry_policy=ExceptionRetryPolicy([])"
    task = dag_file.dag(_GROUP.format(strategy=None, options=options)).get_task("epoch.routes")
    assert (task.retries, type(task.retry_policy).__name__) == (2, "ExceptionRetryPolicy")


def test_two_who_decide_are_refused(dag_file: DagFile) -> None:  # semantics F4, S3
    text = dag_file.error(_GROUP.format(strategy="NoRestart()", options="retry_policy=ExceptionRetryPolicy([])"))
    assert "the stage has a retry_policy and its group's config a restart_strategy" in text
    assert "restart_strategy=`NoRestart`" in text
    assert "task=`epoch.routes`" in text


@pytest.mark.parametrize(
    ("error", "action"),
    [
        (InvalidStateError("state that no stage claims", code="non_restored_state"), RetryAction.FAIL),
        (InvalidStateError("another parallelism"), RetryAction.FAIL),
        (InvalidKeyError("a uid", code="invalid_name"), RetryAction.FAIL),
        (InvalidConfigError("the run's conf"), RetryAction.FAIL),
        (UnsupportedStorageError("a savepoint at ftp://"), RetryAction.FAIL),
        (DocumentError("a savepoint of a newer Cairn", code="newer_format"), RetryAction.FAIL),
        (NoSavepointError("not copied yet"), RetryAction.FAIL),
        (UnavailableError("later"), RetryAction.DEFAULT),
        (CallbackError("not yet", code="master_hook"), RetryAction.DEFAULT),
        (RefusedError("no asset has been updated", code="source_refused"), RetryAction.FAIL),
        (RefusedError("still needed", code="savepoint_refused"), RetryAction.FAIL),
        (RuntimeError("of somebody else"), RetryAction.DEFAULT),
    ],
)
def test_what_no_retry_cures_fails_at_once(error: Exception, action: RetryAction) -> None:  # semantics F4, R3
    assert FAIL_FAST.evaluate(error, 1, 3).action is action


ROOMS = (
    *("storage", "checkpoint", "spark", "tasks", "operators", "hooks"),
    *("sensors", "triggers", "launchers", "cli", "plugin"),
)


def errors(of: type[CairnError] = CairnError) -> Iterator[type[CairnError]]:
    for child in of.__subclasses__():
        if child.__module__.startswith("airflow_cairn."):
            yield child
        yield from errors(child)


def test_the_table_says_of_each_error_whether_a_retry_may_cure_it() -> None:  # semantics F4
    for room in ROOMS:
        package = importlib.import_module(f"airflow_cairn.{room}")
        for module in pkgutil.walk_packages(package.__path__, f"{package.__name__}."):
            importlib.import_module(module.name)
    rows = [(each.name, each.code, each.kind, each.retry_cures) for each in hints.errors()]
    assert len(rows) == len({code for _, code, _, _ in rows}), "each code stands once"
    known = {each.__name__: each for each in errors()}
    made = [each("x") for each in known.values()] + [known[name]("x", code=code) for name, code in set(codes(known))]
    assert set(rows) == {(type(each).__name__, each.code, each.kind.value, each.retry_cures) for each in made}


def codes(known: Collection[str]) -> Iterator[tuple[str, str]]:
    """Give each class and code that the product makes an error of."""
    for room in ROOMS:
        for path in sorted((Path(DOCS).parent / room).rglob("*.py")):
            for node in ast.walk(ast.parse(path.read_text())):
                if isinstance(node, ast.Call) and (name := ast.unparse(node.func)) in known:
                    told = (each.value for each in node.keywords if each.arg == "code")
                    constants = (each for value in told for each in ast.walk(value) if isinstance(each, ast.Constant))
                    yield from ((name, each.value) for each in constants if isinstance(each.value, str) and each.value)


def test_a_code_outlives_a_process_and_names_the_error_in_stored_texts() -> None:  # semantics F4
    error = pickle.loads(pickle.dumps(CheckpointFailedError("x", code="savepoint_impossible", job="flights")))
    assert (error.code, error.name, error.retry_cures) == ("savepoint_impossible", "SavepointImpossibleError", False)
    assert (str(error), CheckpointFailedError("x").retry_cures) == ("x [job=`flights`]", True)


@pytest.mark.parametrize(
    ("operator", "arguments"),
    [
        (SavepointOperator, {"job": "flights", "target": "s3://kept/x"}),
        (StopWithSavepointOperator, {"job": "flights", "target": "s3://kept/x"}),
        (DisposeSavepointOperator, {"savepoint": "s3://kept/x"}),
        (RestoreLatestCheckpointOperator, {"job": "flights"}),
        (TriggerCheckpointOperator, {"job": "flights", "reads_window": False, "stages": [StageSpec("a")]}),
    ],
)
def test_the_tasks_have_that_policy(operator: Any, arguments: dict[str, Any]) -> None:  # semantics F4
    task = operator(task_id="t", storage="s3://lake/cairn", **arguments)
    assert task.retry_policy is FAIL_FAST


def test_a_savepoint_of_a_damaged_checkpoint_is_not_tried_again() -> None:  # semantics F4, P1
    entry = SavepointEntry(3, "r", "s3://kept/x", "savepoint-f-0", 1, 2, "e", Status.FAILED, reason=Reason.IO_EXCEPTION)
    assert not failed(entry, "flights").retry_cures


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
