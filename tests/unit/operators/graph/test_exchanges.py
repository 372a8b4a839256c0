"""Pipelined edges and the regions they make, as Airflow parses and serialises them (semantics F1)."""

import json
from typing import Any

import pytest
from airflow.sdk import DAG, Label, TaskGroup, chain
from airflow.serialization.serialized_objects import DagSerialization
from airflow.utils.dag_edges import dag_edges

from airflow_cairn.checkpoint import CheckpointConfig
from airflow_cairn.checkpoint.errors import InvalidConfigError
from airflow_cairn.operators import CheckpointedTaskGroup, Pipelined, TriggerCheckpointOperator
from tests.support.airflow_fixtures import DagFile
from tests.support.groups import STORAGE, epoch_group, stage
from tests.support.narrowing import expect


def exchanges(dag: DAG) -> dict[str, dict[str, str]]:
    """Give, for each stage, what it reads and how."""
    trigger = expect(TriggerCheckpointOperator, dag.get_task("epoch.trigger_checkpoint"))
    return {
        spec.uid: {up: "pipelined" if up in spec.pipelined else "blocking" for up in spec.upstream}
        for spec in trigger.declared_stages()
    }


def labels(dag: DAG) -> dict[tuple[str, str], str]:
    """Give the labels of the edges that the graph view draws, once Airflow has serialised the DAG."""
    back = DagSerialization.from_dict(json.loads(json.dumps(DagSerialization.to_dict(dag))))
    return {(edge["source_id"], edge["target_id"]): edge["label"] for edge in dag_edges(back) if edge.get("label")}


def test_an_edge_is_blocking_unless_it_says_otherwise() -> None:  # semantics F1
    with epoch_group() as dag:
        clean, routes, report = stage("clean"), stage("routes"), stage("report")
        clean >> Pipelined() >> routes >> report
        clean >> report
    assert exchanges(dag) == {
        "clean": {},
        "routes": {"clean": "pipelined"},
        "report": {"clean": "blocking", "routes": "blocking"},
    }
    assert labels(dag) == {("epoch.clean", "epoch.routes"): "pipelined"}


def test_every_way_to_draw_it(dag_file: DagFile) -> None:
    with epoch_group() as dag:
        a, b, c, d, e, f = (stage(name) for name in "abcdef")
        a >> Pipelined() >> [b, c]
        [b, c] >> Pipelined() >> d
        e << Pipelined() << d
        chain(e, Pipelined(), f)
    one = "pipelined"
    assert exchanges(dag) == {
        "a": {},
        "b": {"a": one},
        "c": {"a": one},
        "d": {"b": one, "c": one},
        "e": {"d": one},
        "f": {"e": one},
    }


def test_a_task_of_another_group_is_not_taken_for_its_group() -> None:
    with epoch_group() as dag:
        with TaskGroup("inner"):
            a, beside = stage("a"), stage("beside")
        b = stage("b")
        a >> Pipelined() >> b
    assert exchanges(dag) == {"a": {}, "beside": {}, "b": {"a": "pipelined"}}
    assert beside.downstream_task_ids == {"epoch.wait_for_checkpoint"}


def test_groups_are_joined_by_what_lies_at_their_ends() -> None:
    with epoch_group() as dag:
        with TaskGroup("first") as first:
            stage("a") >> stage("b")
        with TaskGroup("second") as second:
            stage("c") >> stage("d")
        last = stage("last")
        first >> Pipelined() >> second >> Pipelined() >> last
    assert exchanges(dag) == {
        "a": {},
        "b": {"a": "blocking"},
        "c": {"b": "pipelined"},
        "d": {"c": "blocking"},
        "last": {"d": "pipelined"},
    }
    assert labels(dag) == {
        ("epoch.first.b", "epoch.second.upstream_join_id"): "pipelined",
        ("epoch.second.d", "epoch.last"): "pipelined",
    }


def test_a_consumer_says_it_of_all_its_edges() -> None:
    with DAG("flights", schedule=None) as dag:
        with CheckpointedTaskGroup("epoch", reads_window=False, storage=STORAGE):
            a, b, c = stage("a"), stage("b"), stage("c", exchange="pipelined")
            a >> Label("clean rows") >> c
            a >> b
        b >> c
    assert exchanges(dag) == {"a": {}, "b": {"a": "blocking"}, "c": {"a": "pipelined", "b": "pipelined"}}
    assert labels(dag) == {("epoch.a", "epoch.c"): "clean rows · pipelined"}


def test_stages_that_do_not_wait_cannot_be_pipelined() -> None:  # semantics B2, F1
    with (
        pytest.raises(InvalidConfigError, match=r"mode='at_least_once' does not go with pipelined exchanges"),
        epoch_group(config=CheckpointConfig(mode="at_least_once")),
    ):
        stage("a") >> Pipelined() >> stage("b")


@pytest.mark.parametrize("position", ["before", "after", "both"])
def test_an_edge_that_leaves_the_group_is_no_exchange(position: str) -> None:
    with DAG("flights", schedule=None):
        outside = stage("outside", storage=STORAGE)
        with CheckpointedTaskGroup("epoch", reads_window=False, storage=STORAGE) as group:
            a = stage("a")
        ends = {"before": (outside, group), "after": (a, outside), "both": (outside, stage("other", storage=STORAGE))}
        up, down = ends[position]
        with pytest.raises(InvalidConfigError, match=r"does not lie in one CheckpointedTaskGroup"):
            up >> Pipelined() >> down


def test_a_consumer_that_contradicts_its_edge_is_refused() -> None:
    said = r"epoch.b says exchange='blocking', but its edge from epoch.a is Pipelined\(\). Take one of them out"
    with pytest.raises(InvalidConfigError, match=said), epoch_group():
        stage("a") >> Pipelined() >> stage("b", exchange="blocking")
    with epoch_group() as dag:
        stage("a") >> stage("b", exchange="blocking")
    assert exchanges(dag)["b"] == {"a": "blocking"}


@pytest.mark.parametrize("value", ["Pipelined", "", 1, ["pipelined"]])
def test_an_unknown_exchange_is_refused(value: Any) -> None:
    with pytest.raises(InvalidConfigError, match="exchange must be one of blocking, pipelined"), epoch_group():
        stage("a", exchange=value)


def test_an_exchange_outside_a_group_is_refused() -> None:
    with pytest.raises(InvalidConfigError, match="exchange belongs to stages of a CheckpointedTaskGroup"):
        stage("a", storage=STORAGE, job="flights", exchange="pipelined")


def test_what_is_drawn_after_the_block_is_checked_when_the_dag_is_stored() -> None:
    with DAG("flights", schedule=None) as dag:
        with CheckpointedTaskGroup("epoch", reads_window=False, storage=STORAGE):
            a, b = stage("a"), stage("b", exchange="blocking")
        a >> Pipelined() >> b
    with pytest.raises(Exception, match=r"epoch.b says exchange='blocking'"):
        DagSerialization.to_dict(dag)


def test_the_tooltip_says_what_runs_again_together() -> None:  # semantics F1
    with DAG("flights", schedule=None) as dag:
        with CheckpointedTaskGroup("epoch", reads_window=False, storage=STORAGE, tooltip="Flights of a day"):
            clean, routes, report = stage("clean"), stage("routes"), stage("report")
            clean >> routes >> report
        clean >> Pipelined() >> routes
    back = DagSerialization.from_dict(DagSerialization.to_dict(dag))
    tooltip = back.task_group.get_task_group_dict()["epoch"].tooltip
    assert tooltip == f"Flights of a day\njob flights in {STORAGE}\nregion 1: clean, routes\nregion 2: report"
    assert DagSerialization.to_dict(dag) == DagSerialization.to_dict(dag)


def test_a_long_tooltip_is_cut() -> None:
    with DAG("flights", schedule=None), CheckpointedTaskGroup("epoch", reads_window=False, storage=STORAGE) as group:
        for number in range(30):
            stage(f"s{number}")
    lines = group.tooltip.splitlines()
    assert lines[20:] == ["region 20: s19", "and 10 more: cairn regions lists them"]
