"""`CheckpointedTaskGroup`: the stages of one job, with the task that triggers the checkpoint and the one that waits."""

from __future__ import annotations

from collections.abc import Collection, Generator, Iterator, Mapping, Sequence
from dataclasses import replace
from datetime import timedelta
from functools import partial
from inspect import Parameter, signature
from types import TracebackType
from typing import TYPE_CHECKING, Any

from airflow.sdk import Asset, BaseOperator, TaskGroup, TriggerRule

from ...checkpoint import CheckpointConfig
from ...checkpoint.documents.attempt import StageSpec
from ...checkpoint.errors import InvalidConfigError
from ...checkpoint.extensions.contracts import CheckpointListener, MasterHook, check_listeners, commit_checks
from ...checkpoint.rules.failures import regions_of
from ...checkpoint.source import Source
from ...checkpoint.validation import check_spelling
from ...hooks.airflow_api import AIRFLOW_API_CONN_ID
from ...hooks.airflow_api_access import check_airflow_api
from ...hooks.task_refs import TaskRef
from ...sensors.checkpoint import CheckpointSensor
from ...sensors.outcome import check_table_outlets
from ...storage.names import RESERVED, parse_storage_uri
from ...tables.declared import Declared, PostgresTable, check_tables
from ...tasks.connect_session import ConnectSession, check_session
from ...tasks.job_settings import (
    SPARK_CONN_ID,
    CheckpointScope,
    check_storage_and_job,
    is_rendered_later,
    is_same_job,
    naming,
    scope_of,
)
from ..failure.callbacks import restore_latest_checkpoint
from ..failure.retry_policy import restart_by
from ..graph.stages import StageTask, warn_of_uncovered_spark
from ..graph.topology import show_exchanges, trigger_task, where_of
from ..stage.overtaken_epoch import GroupTasks
from ..stage.programs import check_inputs
from ..stage.submit_options import check_author_settings, checked_not_secret
from ..trigger.checks import JobOptions
from ..trigger.operator import TriggerCheckpointOperator
from .checks import check_last, check_mirror, check_outlets, check_reads, check_uids, stages_in, tooltip_of

if TYPE_CHECKING:
    from ...tables.sink import TableSink

TRIGGER = "trigger_checkpoint"
WAIT = "wait_for_checkpoint"

FROM_DEFAULT_ARGS = frozenset(
    {
        *("owner", "email", "email_on_retry", "email_on_failure", "on_execute_callback", "on_failure_callback"),
        *("on_success_callback", "on_retry_callback", "on_skipped_callback", "start_date", "end_date", "sla"),
        *("retries", "retry_delay", "retry_exponential_backoff", "max_retry_delay", "priority_weight", "weight_rule"),
        *("queue", "pool", "pool_slots", "executor", "executor_config", "resources", "run_as_user", "params"),
        *("inlets", "outlets", "do_xcom_push", "multiple_outputs", "render_template_as_native_obj", "logger_name"),
        *("doc", "doc_md", "doc_json", "doc_yaml", "doc_rst", "task_display_name", "map_index_template"),
        *("allow_nested_operators", "max_active_tis_per_dagrun"),
    }
)
"""Arguments that the group's own tasks take from `default_args`: placement, notifications and appearance.

No others: arguments that decide how an epoch ends belong to the group, and so do those that a later Airflow adds.
"""


class CheckpointedTaskGroup(TaskGroup):
    """A task group with the stages of one checkpointed job; one DAG run is one epoch.

    Its `SparkEpochOperator`s are the stages; each instance of a mapped one is a stage of its own. Plain tasks may stand
    between them: an edge over plain tasks counts as an edge between stages, and the plain tasks run again with a stage
    before them.

    Leaving the block adds `trigger_checkpoint` before the stages and `wait_for_checkpoint` after them, gives the
    trigger the edges between the stages (these may cross groups inside this one), and puts `restore_latest_checkpoint`
    before the author's own `on_retry_callback` and `on_failure_callback` of every stage. The author's `retries` stay:
    with none, a failed stage waits until a user clears it. A `restart_strategy` in the config decides instead: the
    stages get its retry policy, and enough `retries` for it. If the group begins with stages, the first of their tasks
    triggers, and Airflow passes over `trigger_checkpoint`.

    If the config lets a checkpoint complete without some stages (`unaligned`, `regional`), `wait_for_checkpoint` comes
    right after `trigger_checkpoint`, so that no stage delays it, and the tasks that follow the group wait for it
    alone.

    The tooltip shows, below the author's own text, the job and the stages that run again together (semantics F1).

    Args:
        group_id: as for any task group.
        storage: storage URI (may be a template).
        job: the job's name (may be a template); the DAG's id by default.
        config: the checkpoint config of the job.
        aws_conn_id: Airflow connection of type `aws` for an `s3://` storage, for all tasks of the group; None: that of
            `default_args`, else boto3's own chain.
        conn_id: the Spark connection of the stages; None: that of `default_args`, else `spark_default`.
        session: the Spark Connect server that Cairn starts with that connection for all stages without a `conn_id` of
            their own; the parser logs which have one (semantics V1). None: each stage uses its connection.
        slice_detail: additional facts about the epoch's input besides the run's data interval: JSON, at most 768 KiB
            with what the sources give (templated).
        source: the epoch's input: a `Source` or a list of them; None: the run's data interval.
        reads_window: whether the epoch reads its run's data interval, if there is no `source`. None: yes, and the
            DAG's schedule must give its runs one. True: yes, and who makes a run gives its interval. False: the stages
            read no window of time; `epoch.slice` has none, and no run is skipped because another has read its
            interval.
        master_hooks: called before the stages begin; the checkpoint keeps their answers.
        listeners: notified at least once how each checkpoint ended: a list of `CheckpointListener`s.
        outlets: Airflow assets, a list: each gets an event when a checkpoint completes, so that other DAGs can be
            scheduled on it.
        tables: Iceberg, Delta and PostgreSQL tables by the names under which stages write them, `epoch.table(name)`.
            Each epoch's rows are committed when its checkpoint completes. Not with `unaligned`, `regional` or more than
            one concurrent checkpoint.
        table_outlets: Airflow assets by the names of published tables: each gets an event when a checkpoint completes,
            with the number of rows that the epoch has written to the table.
        restore_from: the folder of a savepoint that the job starts from while it has no checkpoint (may be a template);
            read with `aws_conn_id`.
        allow_non_restored_state: with `restore_from`: this start may drop state that no stage claims. The option of
            `config` covers every restore.
        claim: with `restore_from`: the job owns the savepoint, and deletes it after copying it.
        deferrable: whether `trigger_checkpoint` and `wait_for_checkpoint` wait in the triggerer; with False they occupy
            workers: the first is rescheduled, the second pokes.
        poll_interval: seconds (or a timedelta) between two looks of the triggerer while `trigger_checkpoint` waits in
            the queue; more than 0.
        airflow_api_conn_id: the connection to Airflow's API, which clears other tasks that must run again after a
            failure, and writes notes on runs; None: a user clears them, and there are no notes. For a region of more
            than one stage the dag processor needs it too.
        not_secret: names of settings, of the stages or of the session's conf, that look like secrets but are not.
        **kwargs: arguments of every task group.

    Raises:
        InvalidConfigError: no storage is given; `config` is not a CheckpointConfig; the pause does not fit the DAG's
            schedule; the schedule gives no data intervals and neither `source` nor `reads_window` is given; only
            `default_args` name a Spark connection besides a `session`; `slice_detail` is not a JSON object; `source`,
            `master_hooks`, `listeners`, `outlets` or `table_outlets` are of another type or do not fit the config; the
            interval is not positive; `restore_from` lies in the job's own prefix; `claim` or
            `allow_non_restored_state` are given without `restore_from`; or the group lies in another one.
        InvalidKeyError: the job's name, or a table's, is outside the grammar (semantics W1).
        RefusedError: the config's `savepoint_target` lies in the job's own folder, or is the storage's root.
        UnsupportedStorageError: the storage's scheme is not supported.
    """

    def __init__(
        self,
        group_id: str,
        *,
        storage: str | None = None,
        job: str | None = None,
        config: CheckpointConfig | None = None,
        aws_conn_id: str | None = None,
        conn_id: str | None = None,
        session: ConnectSession | None = None,
        slice_detail: dict[str, Any] | None = None,
        source: Source | Sequence[Source] | None = None,
        reads_window: bool | None = None,
        master_hooks: Sequence[MasterHook] | None = None,
        listeners: Sequence[CheckpointListener] | None = None,
        outlets: Sequence[Asset] | None = None,
        tables: Mapping[str, Declared] | None = None,
        table_outlets: Mapping[str, Asset] | None = None,
        restore_from: str | None = None,
        allow_non_restored_state: bool = False,
        claim: bool = False,
        deferrable: bool = True,
        poll_interval: timedelta | float = 2.0,
        airflow_api_conn_id: str | None = AIRFLOW_API_CONN_ID,
        not_secret: Collection[str] = (),
        **kwargs: Any,
    ) -> None:
        check_spelling(type(self), kwargs, group=group_id)
        super().__init__(group_id=group_id, **kwargs)
        self._authors_tooltip = self.tooltip
        job = job or self.dag.dag_id
        check_storage_and_job(storage, job, group=self.group_id)
        if scope_of(self.parent_group) is not None:
            raise InvalidConfigError(
                "a CheckpointedTaskGroup lies in another one: an epoch has one checkpoint. Put it beside the other, "
                "with a job of its own, or use a plain TaskGroup inside",
                group=self.group_id,
            )
        assert storage is not None  # checked above
        with naming(group=self.group_id):
            defaults = self._defaults()
            if aws_conn_id is None:
                aws_conn_id = defaults.get("aws_conn_id")
            sinks = _sinks_of(check_tables(tables), config or CheckpointConfig(), storage, aws_conn_id)
            if sinks and config is not None and (config.unaligned or config.regional is not None):
                raise InvalidConfigError(
                    "tables need each stage in each checkpoint: Cairn could not tell rows of a stage that is left out "
                    "from rows that a failed stage has left. Remove unaligned and regional from the config",
                    tables=", ".join(tables or ()),
                )
            checked = check_listeners([*check_listeners(listeners), *sinks])
            if not is_rendered_later(storage):
                check_mirror(checked, storage)
            self._outlets = check_outlets(outlets)
            self._table_outlets = check_table_outlets(table_outlets, self._outlets)
        check_session(session, group=self.group_id)
        none = checked_not_secret(not_secret, str(self.group_id))
        if session is not None:
            check_author_settings(f"{self.group_id} (session)", conf=session.conf, not_secret=none)
        if conn_id is None:
            conn_id = defaults.get("conn_id") or SPARK_CONN_ID
            if session is not None and conn_id != SPARK_CONN_ID:
                raise InvalidConfigError(
                    "the group has a session but names no Spark connection, while default_args do. Give the group "
                    f"conn_id={conn_id!r} to start the session's server with that connection, or name another one",
                    group=self.group_id,
                    conn_id=conn_id,
                )
        self.checkpoint_scope = CheckpointScope(
            str(self.group_id),
            storage,
            job,
            aws_conn_id,
            conn_id,
            self.child_id(WAIT),
            checked,
            airflow_api_conn_id,
            session,
            not_secret=none,
            defaults={name: defaults[name] for name in ("aws_conn_id", "conn_id") if name in defaults},
        )
        self._check_only_one()
        # The trigger checks the options, and names this group in its errors.
        self._options = JobOptions(
            storage=storage,
            job=job,
            config=config,
            aws_conn_id=aws_conn_id,
            slice_detail=slice_detail,
            source=source,
            reads_window=reads_window,
            master_hooks=[*(master_hooks or ()), *sinks] if sinks else master_hooks,
            listeners=checked,
            restore_from=restore_from,
            allow_non_restored_state=allow_non_restored_state,
            claim=claim,
            deferrable=deferrable,
            poll_interval=poll_interval,
        )
        self._trigger: TriggerCheckpointOperator | None = None
        self._wait: CheckpointSensor | None = None
        self._stages: tuple[StageTask, ...] = ()

    def __enter__(self) -> CheckpointedTaskGroup:
        """Open the group and add the task that triggers the checkpoint.

        Raises:
            InvalidConfigError: the group was opened before, or an option is refused.
        """
        if self._trigger is not None:
            raise InvalidConfigError(
                "the CheckpointedTaskGroup is opened a second time; put all its stages into one block",
                group=self.group_id,
            )
        # Before the group becomes Airflow's current one: a refused option must not leave it current for the next DAG.
        own = {**_own_arguments(TriggerCheckpointOperator, self._defaults()), **self._options}
        self._trigger = TriggerCheckpointOperator(task_id=TRIGGER, task_group=self, dag=self.dag, **own)
        super().__enter__()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Close the group: check its stages and add the task that waits; after an error in the block do neither.

        Raises:
            InvalidConfigError: there is no stage; two stages have one uid; a stage is mapped or belongs to another job;
                a stage reads without waiting from a uid that is not a stage, or although the mode does not allow it; a
                task looks like a stage but is not, or does the work of the group's own tasks; an exchange has no
                meaning; or a stage has its own retry policy besides a restart strategy.
        """
        try:
            if kind is None:
                self._close()
        finally:
            super().__exit__(kind, error, trace)

    def serialize_for_task_group(self) -> tuple[Any, Any]:
        """Return the group as Airflow stores it, with the regions of the whole DAG file in its tooltip.

        An exchange without a meaning is an import error of the DAG, even if it was drawn after the block. In the dag
        processor, so is a region of more than one stage without the connection that clears its tasks.

        Raises:
            InvalidConfigError: the edges between the stages make no job, or that connection is missing.
        """
        stages = self._describe_regions()
        self._check_clearing(stages)
        if self._trigger is not None:
            check_inputs(self._stages, stages, self._trigger.config.mode, str(self.group_id))
        return super().serialize_for_task_group()

    def get_leaves(self) -> Generator[Any, None, None]:
        """Yield the last task: tasks after the group follow the checkpoint, not a stage that it may leave out."""
        if self._wait is not None and self._may_leave_out:
            yield self._wait
        else:
            yield from super().get_leaves()

    def _defaults(self) -> dict[str, Any]:
        """Return the `default_args` of the DAG and of the enclosing groups, as a task of this group gets them."""
        return {**self.dag.default_args, **self.default_args}

    @property
    def _may_leave_out(self) -> bool:
        config = self._trigger.config if self._trigger else None
        return config is not None and (config.unaligned or config.regional is not None)

    def _close(self) -> None:
        trigger, scope = self._trigger, self.checkpoint_scope
        assert trigger is not None
        tasks = [task for task in self if task is not trigger]
        found = stages_in(tasks, scope, str(self.group_id))
        stages = [stage for stages in found.values() for stage in stages]
        if not stages:
            raise InvalidConfigError(
                "the CheckpointedTaskGroup has no stage; add a SparkEpochOperator", group=self.group_id
            )
        warn_of_uncovered_spark(tasks, str(self.group_id))
        check_uids(stages, str(self.group_id))
        check_reads(stages, trigger.config.mode, str(self.group_id))
        trigger.take_stages_from(stages)
        self._stages = tuple(stages)
        self._describe_regions()
        own = {
            **_own_arguments(CheckpointSensor, self._defaults()),
            "storage": scope.storage,
            "job": scope.job,
            "aws_conn_id": scope.aws_conn_id,
            "listeners": scope.listeners,
            "savepoint_target": trigger.config.savepoint_target,
            "table_outlets": self._table_outlets,
            "deferrable": trigger.deferrable,
            # The epoch may be complete already: then trigger and stages are skipped, and the tasks after the group run.
            "trigger_rule": TriggerRule.NONE_FAILED,
        }
        wait = CheckpointSensor(task_id=WAIT, **own)
        wait.add_outlets(self._outlets)
        self._wait = wait
        watched = () if self._may_leave_out else stages
        triggers = partial(trigger_task, trigger)
        wait.runs_again = GroupTasks(triggers, scope.airflow_api_conn_id)
        wait.watch(
            triggers,
            {stage.uid: TaskRef(stage.task_id, stage.map_index) for stage in watched},
            lambda run_id: where_of(stages[0].operator, str(self.dag.dag_id), run_id),
            scope.airflow_api_conn_id,
        )
        ids = {task.task_id for task in tasks}
        if self._may_leave_out:
            # It completes the checkpoint without a stage that lags or failed, so it must not wait for that stage's
            # task.
            trigger >> wait
        for task in tasks:
            if task.upstream_task_ids.isdisjoint(ids):
                trigger >> task
            if task.downstream_task_ids.isdisjoint(ids) and not self._may_leave_out:
                check_last(task, str(self.group_id))
                task >> wait
        for task in (each for each in tasks if each.task_id in found):
            restart_by(trigger.config.restart_strategy, task, group=str(self.group_id))
            task.on_retry_callback = _with_ours(task.on_retry_callback)
            task.on_failure_callback = _with_ours(task.on_failure_callback)
        show_exchanges(stages, scope.pipelined)

    def _describe_regions(self) -> tuple[StageSpec, ...]:
        """Check the stages, show their regions in the tooltip, and return them; none before the block is open."""
        if self._trigger is None:
            return ()
        with naming(group=self.group_id):
            stages = self._trigger.checked_stages()
        scope = self.checkpoint_scope
        which = f"job {scope.job} in {scope.storage}"
        self.tooltip = "\n".join(filter(None, [self._authors_tooltip, which, tooltip_of(stages)]))
        return stages

    def _check_clearing(self, stages: tuple[StageSpec, ...]) -> None:
        conn_id = self.checkpoint_scope.airflow_api_conn_id
        for region in regions_of(stages):
            if len(region) > 1:
                why = f"the stages {', '.join(sorted(region))} form one region: when one fails, the others are cleared"
                check_airflow_api(conn_id, why, group=self.group_id)
                return
        if commit_checks(self.checkpoint_scope.listeners):
            why = "a stage whose branch of a table others have overtaken runs again: it is cleared"
            check_airflow_api(conn_id, why, group=self.group_id)
        if self._trigger is not None and self._trigger.config.max_concurrent_checkpoints > 1:
            why = "with max_concurrent_checkpoints above 1 a run that another one overtakes runs again: it is cleared"
            check_airflow_api(conn_id, why, group=self.group_id)

    def _check_only_one(self) -> None:
        mine = self.checkpoint_scope
        for other in _checkpointed_groups(self.dag.task_group):
            if other is not self and is_same_job(other.checkpoint_scope, mine):
                raise InvalidConfigError(
                    f"{other.group_id} and {self.group_id} are of one job: their epochs would complete each other. "
                    "Give each group its own job (job='…')",
                    job=mine.job,
                    group=self.group_id,
                )


def _sinks_of(
    tables: Mapping[str, Declared], config: CheckpointConfig, storage: str, aws_conn_id: str | None
) -> tuple[TableSink, ...]:
    if not tables:
        return ()
    from ...hooks.table_access import sinks_of  # most DAG files have no tables

    return sinks_of({name: _staged(table, storage, aws_conn_id) for name, table in tables.items()}, config.timeout)


def _staged(table: Declared, storage: str, aws_conn_id: str | None) -> Declared:
    """Give a table of PostgreSQL without a folder for its rows one in the group's storage, beside all jobs."""
    if not isinstance(table, PostgresTable) or table.staging is not None:
        return table
    where = None if is_rendered_later(storage) else parse_storage_uri(storage)
    if where is None or where.scheme not in ("s3", "file"):
        raise InvalidConfigError(
            "rows of a table of PostgreSQL wait for the commit on S3 or in a local folder, and the group's storage is "
            f"{'known only when a task runs' if where is None else 'neither'}. Give staging='s3://bucket/folder'",
            table=table.title,
            storage=storage,
        )
    staging = f"{where}/{RESERVED}/staging"
    return replace(table, staging=staging, staging_conn_id=table.staging_conn_id or aws_conn_id)


def _own_arguments(kind: type[BaseOperator], defaults: Mapping[str, Any]) -> dict[str, Any]:
    """Return arguments for one of the group's own tasks that keep `default_args` from deciding how an epoch ends."""
    signatures = [signature(vars(each)["__init__"]) for each in reversed(kind.__mro__) if "__init__" in vars(each)]
    ours = {name: each.default for found in signatures for name, each in found.parameters.items()}
    own = {
        name: ours[name]
        for name in defaults
        if name not in FROM_DEFAULT_ARGS and ours.get(name, Parameter.empty) is not Parameter.empty
    }
    if "retries" in defaults:
        # Airflow can fail a deferred task that did nothing wrong; see `CheckpointSensor`.
        own["retries"] = max(int(defaults["retries"] or 0), ours["retries"])
    return own


def _checkpointed_groups(group: TaskGroup) -> Iterator[CheckpointedTaskGroup]:
    for child in group.children.values():
        if isinstance(child, CheckpointedTaskGroup) and hasattr(child, "checkpoint_scope"):
            yield child
        if isinstance(child, TaskGroup):
            yield from _checkpointed_groups(child)


def _with_ours(callbacks: Any) -> list[Any]:
    """Put our callback first, so that an author's alert sees the result of the recovery."""
    # A mapped task keeps its author's value: a function or a list of functions.
    authors = [callbacks] if callable(callbacks) else list(callbacks or ())
    return authors if restore_latest_checkpoint in authors else [restore_latest_checkpoint, *authors]
