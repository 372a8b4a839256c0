"""`cairn regions`, as its user sees it (semantics F1)."""

import json
from pathlib import Path

import pytest

from airflow_cairn.cli.main import main

FILE = """
import beside
from airflow.sdk import DAG
from airflow_cairn.operators import CheckpointedTaskGroup, Pipelined, SparkEpochOperator, StageSpec
from airflow_cairn.operators import TriggerCheckpointOperator

print("a DAG file that talks")
with DAG("flights", schedule=None) as dag, CheckpointedTaskGroup("epoch", reads_window=False, storage="file:///lake"):
    a, b, c = (SparkEpochOperator(task_id=name, application="a.py") for name in beside.NAMES)
    a >> Pipelined() >> b >> c
with dag:
    TriggerCheckpointOperator(task_id="other", reads_window=False, job="audit", stages=[StageSpec("x")], storage="file:///lake")
with DAG("plain", schedule=None):
    pass
"""


@pytest.fixture
def flights(tmp_path: Path) -> Path:
    path = tmp_path / "flights.py"
    path.write_text(FILE)
    (tmp_path / "beside.py").write_text("NAMES = ('clean', 'routes', 'report')\n")
    return path


def test_it_lists_the_regions_of_each_job(flights: Path, capsys: pytest.CaptureFixture[str]) -> None:  # semantics F1
    assert main(["regions", str(flights), "flights"]) == 0
    assert capsys.readouterr().out.splitlines() == [
        "job flights: 3 stages in 2 regions",
        "  1  clean, routes",
        "  2  report",
        "job audit: 1 stage in 1 region",
        "  1  x",
    ]


def test_it_needs_no_storage_and_prints_nothing_but_json(flights: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["regions", str(flights), "flights", "--json"]) == 0
    document = json.loads(capsys.readouterr().out)
    assert document["dag"] == "flights"
    assert document["jobs"][0] == {
        "job": "flights",
        "triggered_by": "epoch.trigger_checkpoint",
        "regions": [["clean", "routes"], ["report"]],
        "edges": [
            {"from": "clean", "to": "routes", "exchange": "pipelined"},
            {"from": "routes", "to": "report", "exchange": "blocking"},
        ],
    }


@pytest.mark.parametrize(
    ("file", "dag", "said"),
    [
        ("missing.py", "flights", "there is no such DAG file"),
        ("flights.py", "flight", "the file holds no DAG of that id [file="),
        ("flights.py", "plain", "the DAG has no checkpointed job: put its SparkEpochOperators into a Checkpointed"),
        ("broken.py", "flights", "exchange must be one of blocking, pipelined"),
    ],
)
def test_it_says_what_is_wrong(
    flights: Path, capsys: pytest.CaptureFixture[str], file: str, dag: str, said: str
) -> None:
    (flights.parent / "broken.py").write_text(FILE.replace('application="a.py"', 'application="a.py", exchange="no"'))
    assert main(["regions", str(flights.parent / file), dag]) == 2
    out, err = capsys.readouterr()
    assert said in err
    assert out == ""
