"""The declared side of stages, edges and triggers: what other tasks need to know of them without running them."""

from __future__ import annotations

import json
from abc import abstractmethod
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict
from typing import TYPE_CHECKING, Any, Literal

from airflow.sdk import DAG, BaseOperator, EdgeModifier
from airflow.sdk.definitions._internal.mixins import DependencyMixin

from ...checkpoint import CheckpointConfig
from ...checkpoint.errors import InvalidConfigError
from ...checkpoint.source import Source
from ...checkpoint.validation import check_choice
from ...checkpoint.views.drawn_stages import DrawnStage, config_json
from ...storage.names import shorten
from ...tasks.job_settings import naming, scope_of

if TYPE_CHECKING:
    from airflow.sdk import Context

    from ...checkpoint import Coordinator

Exchange = Literal["blocking", "pipelined"]
"""The way in which a stage receives the output of another; see `docs/how-to/regions.md`."""

PIPELINED: Exchange = "pipelined"
EXCHANGES: tuple[Exchange, ...] = ("blocking", PIPELINED)


class Pipelined(EdgeModifier):
    """Marks edges between stages of one `CheckpointedTaskGroup` as pipelined: `clean >> Pipelined() >> routes`.

    The marked edges are those that Airflow would draw without it, also from and to lists and task groups. The graph
    view labels them `pipelined`.
    """

    def __init__(self) -> None:
        super().__init__(label=PIPELINED)

    # Airflow's own labels turn a task of another group into that whole group. An exchange joins exactly the named
    # tasks.

    def set_upstream(
        self,
        other: DependencyMixin | Sequence[DependencyMixin],
        edge_modifier: EdgeModifier | None = None,  # noqa: ARG002 - Airflow's signature
    ) -> None:
        """Draw edges from `other` to the nodes named on the other side, as soon as there are any.

        Raises:
            InvalidConfigError: an edge is not inside one `CheckpointedTaskGroup`.
        """
        self._save_nodes(other, self._upstream)
        for node in self._downstream:
            node.set_upstream(other, edge_modifier=self)
            _record(_listed(other), [node])

    def set_downstream(
        self,
        other: DependencyMixin | Sequence[DependencyMixin],
        edge_modifier: EdgeModifier | None = None,  # noqa: ARG002 - Airflow's signature
    ) -> None:
        """Draw edges to `other` from the nodes named on the other side, as soon as there are any.

        Raises:
            InvalidConfigError: an edge is not inside one `CheckpointedTaskGroup`.
        """
        self._save_nodes(other, self._downstream)
        for node in self._upstream:
            node.set_downstream(other, edge_modifier=self)
            _record([node], _listed(other))


def label_edge(dag: DAG, upstream: str, downstream: str) -> None:
    """Label a pipelined edge in the graph view; the author's own label stays in front."""
    label = dag.get_edge_info(upstream, downstream).get("label") or ""
    if PIPELINED not in label:
        dag.set_edge_info(upstream, downstream, {"label": " · ".join(filter(None, [label, PIPELINED]))})


def _record(upstream: Sequence[DependencyMixin], downstream: Sequence[DependencyMixin]) -> None:
    for up, down in _pairs(upstream, downstream):
        scope = scope_of(up.task_group)
        if scope is None or scope_of(down.task_group) is not scope:
            raise InvalidConfigError(
                f"{up.task_id} >> Pipelined() >> {down.task_id} does not lie in one CheckpointedTaskGroup, and only "
                "there are exchanges. Draw the edge without Pipelined()",
                task=down.task_id,
            )
        scope.pipelined.add((up.task_id, down.task_id))


def _pairs(upstream: Sequence[DependencyMixin], downstream: Sequence[DependencyMixin]) -> Iterator[tuple[Any, Any]]:
    """Return the edges that Airflow draws between two lists of tasks, results and groups."""
    for up in _ends(node.leaves for node in upstream):
        for down in _ends(node.roots for node in downstream):
            yield up, down


def _ends(found: Iterable[Iterable[DependencyMixin]]) -> list[Any]:
    return [end for ends in found for end in ends]


def _listed(nodes: DependencyMixin | Sequence[DependencyMixin]) -> Sequence[DependencyMixin]:
    return nodes if isinstance(nodes, Sequence) else [nodes]


def checked_exchange(exchange: Exchange | None, task: str, *, in_group: bool) -> Exchange | None:
    """Check and return the `exchange` of a stage.

    Args:
        exchange: the author's value; None: the edges decide.
        task: the task's id, for error messages.
        in_group: whether the stage is in a `CheckpointedTaskGroup`.

    Raises:
        InvalidConfigError: `exchange` has another value, or the stage is in no group.
    """
    if exchange is None:
        return None
    with naming(task=task):
        check_choice("exchange", exchange, EXCHANGES)
    if not in_group:
        raise InvalidConfigError(
            "exchange belongs to stages of a CheckpointedTaskGroup; without one, name the upstreams by "
            "TriggerCheckpointOperator(stages=[StageSpec(uid, upstream=(…), pipelined=(…))])",
            task=task,
            exchange=exchange,
        )
    return exchange


Push = Callable[[str, Any], None]
"""Stores a value as an XCom of a task: key, value."""


class StageOperator(BaseOperator):
    """The declared side of a stage; `EpochStage` fills these attributes in and runs the stage.

    The DAG's topology is read from these attributes. A running stage finds its siblings through the topology.
    """

    storage: str | None
    job: str | None
    aws_conn_id: str | None
    airflow_api_conn_id: str | None
    uid: str
    parallelism: int | None
    max_parallelism: int | None
    reads: tuple[str, ...]
    exchange: Exchange | None
    completes: bool = True
    """Whether its task may complete the checkpoint; False where `wait_for_checkpoint` first asks listeners (C4)."""
    application_args: list[Any] | None = None
    """The program's arguments, where the stage gives them itself."""


class TriggerOperator(BaseOperator):
    """The declared side of the task that triggers a job's checkpoints: `TriggerCheckpointOperator` runs it."""

    storage: str | None
    job: str | None
    aws_conn_id: str | None
    config: CheckpointConfig
    sources: tuple[Source, ...]

    @property
    def cairn_job(self) -> str:
        """JSON for the page in Airflow: facts about the job besides its storage and name, which are template fields."""
        stages = [asdict(stage) for stage in self.drawn_stages()]
        return json.dumps({"aws_conn_id": self.aws_conn_id, "config": config_json(self.config), "stages": stages})

    @classmethod
    def get_serialized_fields(cls) -> frozenset[str]:
        """Add `cairn_job` to the serialised DAG: the page finds the triggers, subclasses too, by this field."""
        return frozenset({*super().get_serialized_fields(), "cairn_job"})

    @abstractmethod
    def drawn_stages(self) -> Sequence[DrawnStage]:
        """Return the stages as the whole DAG file declares them, for drawing."""

    @abstractmethod
    def trigger(self, context: Context, push: Push, coordinator: Coordinator | None = None) -> dict[str, Any]:
        """Make the checkpoint of a run's epoch pending; runs in the process of whichever task triggers (semantics T9).

        Args:
            context: Airflow's context of the calling task, with templates rendered.
            push: stores a value under a key, as an XCom of the task that triggers.
            coordinator: the job's, if the caller has it open with this task's settings.
        """

    @abstractmethod
    def check_turn(self, event: Mapping[str, Any]) -> None:
        """Check how the wait for a place in the queue ended; the caller asks again afterwards.

        Args:
            event: the event of the deferred task's trigger.
        """


def stage_uid(uid: str, map_index: int | None) -> str:
    """Return the uid of the stage that a task instance runs.

    Args:
        uid: the task's uid.
        map_index: the task instance's map index; None or -1 if the task is not mapped.
    """
    return uid if map_index is None or map_index < 0 else f"{uid}-{map_index}"


def checked_reads(reads: object, uid: str, task: str, *, in_group: bool) -> tuple[str, ...]:
    """Check and return the `reads` of a stage.

    Args:
        reads: the author's value.
        uid: the stage's uid.
        task: the task's id, for error messages.
        in_group: whether the stage is in a `CheckpointedTaskGroup`.

    Raises:
        InvalidConfigError: `reads` is not a list of uids, the stage names itself, or the stage is in no group.
    """
    if not isinstance(reads, list | tuple) or not all(isinstance(each, str) for each in reads):
        raise InvalidConfigError(
            "reads must be a list of stages' uids: write reads=['clean']", task=task, reads=shorten(reads)
        )
    if reads and not in_group:
        raise InvalidConfigError(
            "reads belongs to stages of a CheckpointedTaskGroup; without one, name what a stage reads by "
            "TriggerCheckpointOperator(stages=[StageSpec(uid, upstream=(…))])",
            task=task,
            reads=", ".join(reads),
        )
    if uid in reads:
        raise InvalidConfigError(
            "the stage names itself in reads; what it wrote before is its state, epoch.state(…)", task=task, uid=uid
        )
    return tuple(reads)
