"""`assert_exactly_once`: a DAG's stages with their runners, upstreams first."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from datetime import UTC, datetime, timedelta
from graphlib import TopologicalSorter
from typing import TYPE_CHECKING, Any

from ..checkpoint import CheckpointConfig, InvalidConfigError, Slice
from ..operators.graph.declaration import TriggerOperator
from ..operators.graph.stages import StageTask, instances_of, is_stage
from ..operators.stage.function import SparkEpochFunctionOperator
from ..operators.stage.submit_options import folder_of, place_beside
from ..operators.trigger.operator import TriggerCheckpointOperator
from ..spark.epoch import Epoch
from .application import run_in
from .exactly_once import Plan, Stage, run_with_kills
from .local_job import Moment, window_of

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_FIRST = datetime(2026, 1, 1, tzinfo=UTC)


def assert_exactly_once(
    dag: Any,
    *,
    kill: Sequence[str] | None = None,
    windows: Sequence[tuple[Moment, Moment]] | None = None,
    spark: SparkSession | None = None,
) -> int:
    """Run a DAG's stages on this machine, kill a driver after each of its writes, and compare the checkpoints.

    The epochs run once without a kill. Then each driver of the last epoch is killed after each of its writes; its stage
    is retried, the epoch goes on, and its checkpoint must hold the same states, tables and values.

    Args:
        dag: the DAG, with one `CheckpointedTaskGroup`.
        kill: uids of the stages whose drivers are killed; None: all.
        windows: each epoch's first moment, and the first moment after it; None: two days from the DAG's start date on.
        spark: the applications' session; None: the active one, or a new one.

    Returns:
        The number of drivers killed.

    Raises:
        AssertionError: a checkpoint differs after a kill.
        InvalidConfigError: the DAG has no stages or those of several jobs; `kill` names no stage; or the stages'
            outputs depend on more than their inputs: a source, hooks, `at_least_once`, `unaligned`.
    """
    plan = plan_of(dag, windows, spark)
    return run_with_kills(plan, [stage.spec.uid for stage in plan.stages] if kill is None else kill)


def plan_of(dag: Any, windows: Sequence[tuple[Moment, Moment]] | None, spark: SparkSession | None) -> Plan:
    """Return the stages of a DAG, upstreams first, and the slice of each epoch.

    Raises:
        InvalidConfigError: see `assert_exactly_once`.
    """
    triggers = [task for task in dag.tasks if isinstance(task, TriggerOperator)]
    if len(triggers) != 1 or not isinstance(triggers[0], TriggerCheckpointOperator):
        raise InvalidConfigError(
            "assert_exactly_once takes a DAG with one CheckpointedTaskGroup", dag=dag.dag_id, found=len(triggers)
        )
    trigger = triggers[0]
    _check(dag, trigger)
    if spark is None:
        from pyspark.sql import SparkSession

        spark = SparkSession.getActiveSession() or SparkSession.builder.getOrCreate()
    tasks = {stage.uid: stage for task in dag.tasks if is_stage(task) for stage in instances_of(task)}
    specs = {spec.uid: spec for spec in trigger.declared_stages()}
    order = TopologicalSorter({uid: spec.upstream for uid, spec in specs.items()}).static_order()
    stages = tuple(Stage(specs[uid], _runner(dag, tasks[uid])) for uid in order)
    if trigger.reads_window is False:
        slices = [Slice(detail=trigger.slice_detail or {})] * len(windows or (1, 2))
    else:
        slices = [window_of(*window, trigger.slice_detail) for window in windows or _two_days(dag)]
    return Plan(spark, stages, tuple(slices), CheckpointConfig())


def _check(dag: Any, trigger: TriggerCheckpointOperator) -> None:
    config = trigger.config
    for what, there in (
        ("a source", bool(trigger.sources)),
        ("master hooks", bool(trigger.master_hooks)),
        ("mode='at_least_once'", config.mode == "at_least_once"),
        ("unaligned checkpoints", config.unaligned),
        ("regional checkpoints", config.regional is not None),
    ):
        if there:
            raise InvalidConfigError(
                f"assert_exactly_once does not run a job with {what}: what its stages leave depends on more than on "
                "the slice. Test its applications by run_application",
                dag=dag.dag_id,
            )


def _two_days(dag: Any) -> list[tuple[Moment, Moment]]:
    first = dag.start_date or _FIRST
    return [(first + timedelta(days=day), first + timedelta(days=day + 1)) for day in (0, 1)]


def _runner(dag: Any, task: StageTask) -> Callable[[Epoch], object]:
    operator: Any = task.operator

    def run(epoch: Epoch) -> None:
        def rendered(value: Any) -> Any:
            return operator.render_template(value, _context(dag, epoch))

        if isinstance(operator, SparkEpochFunctionOperator):
            with epoch:
                operator.python_callable(epoch, *rendered(list(operator.op_args)), **rendered(dict(operator.op_kwargs)))
        else:
            application = place_beside(folder_of(dag), "application", rendered(operator.application))
            run_in(epoch, application, [str(each) for each in rendered(operator.application_args or [])])

    return run


def _context(dag: Any, epoch: Epoch) -> dict[str, Any]:
    """Return the context that templates in a DAG's arguments usually use."""
    found: dict[str, Any] = {"dag": dag, "run_id": epoch.run_id, "params": dict(dag.params)}
    if epoch.slice.start is not None and epoch.slice.end is not None:
        start, end = datetime.fromisoformat(epoch.slice.start), datetime.fromisoformat(epoch.slice.end)
        found |= {"data_interval_start": start, "data_interval_end": end, "logical_date": start}
        found |= {"ds": start.date().isoformat(), "ds_nodash": start.strftime("%Y%m%d")}
    return found
