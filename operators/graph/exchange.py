"""`Pipelined`: marks an edge as pipelined, so that the stages that it joins run again together (semantics F1)."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Any, Literal

from airflow.sdk import DAG, EdgeModifier
from airflow.sdk.definitions._internal.mixins import DependencyMixin

from ...checkpoint.errors import InvalidConfigError
from ...checkpoint.validation import check_choice
from ...tasks.job_settings import naming, scope_of

Exchange = Literal["blocking", "pipelined"]
"""How a stage receives the output of another; see `docs/how-to/regions.md`."""

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
