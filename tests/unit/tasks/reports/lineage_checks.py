"""OpenLineage events, asked for and sent as its provider does: the real one, with events in a file.

`test_lineage.py` runs it where the provider is.
"""

import json
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from airflow.providers.openlineage.extractors.manager import ExtractorManager
from airflow.providers.openlineage.plugins.adapter import OpenLineageAdapter
from airflow.utils.state import TaskInstanceState
from openlineage.client import OpenLineageClient
from openlineage.client.transport.file import FileConfig, FileTransport

from airflow_cairn.checkpoint import FileSource, RunFacts, TriggerRequest
from airflow_cairn.checkpoint.answers import Triggered
from airflow_cairn.checkpoint.documents import layout
from airflow_cairn.checkpoint.documents.acknowledgement import Output, StateHandle, SubtaskAck
from airflow_cairn.checkpoint.documents.attempt import Handover, Slice, StageSpec
from airflow_cairn.checkpoint.store import acks
from airflow_cairn.operators import SparkEpochOperator
from airflow_cairn.operators.stage.outcome import StageRun
from airflow_cairn.sensors import CheckpointSensor
from airflow_cairn.storage import Written, open_store
from tests.support.acking import RUN, ack_of
from tests.support.airflow_stage import Job, Ti, context
from tests.support.narrowing import expect

DAG_RUN = "manual__r1"
SCHEMA = json.dumps(
    {"type": "struct", "fields": [{"name": "route", "type": "string", "nullable": False, "metadata": {}}]}
)
COLUMNS = [("route", "string")]
WINDOW = Slice("2026-01-01T00:00:00+00:00", "2026-01-02T00:00:00+00:00")

Send = Callable[[Any], dict[str, Any]]


@pytest.fixture
def send(tmp_path: Path) -> Send:
    """Ask a task and send its event, as the provider's listener does once the task has succeeded."""
    file = tmp_path / "events.json"
    client = OpenLineageClient(transport=FileTransport(FileConfig(log_file_path=str(file), append=True)))

    def ask(task: Any) -> dict[str, Any]:
        found = ExtractorManager().extract_metadata(
            dagrun=SimpleNamespace(run_id=DAG_RUN),
            task=task,
            task_instance_state=TaskInstanceState.SUCCESS,
            task_instance=SimpleNamespace(),
        )
        OpenLineageAdapter(client).complete_task(
            run_id="01890000-0000-7000-8000-000000000000",
            job_name="flights.routes",
            end_time="2026-01-02T03:04:05+00:00",
            task=found,
            nominal_start_time=None,
            nominal_end_time=None,
            owners=None,
            tags=None,
            job_description=None,
        )
        event: dict[str, Any] = json.loads(file.read_text().splitlines()[-1])
        return event

    return ask


def raw_of(job: Job) -> Path:
    return job.folder.parent / "raw"


def trigger(job: Job, run_id: str) -> None:
    """Trigger an epoch of two stages that reads a window and a new file."""
    raw = raw_of(job)
    raw.mkdir(exist_ok=True)
    (raw / f"{run_id}.csv").write_text("x" * 42)
    request = TriggerRequest(
        layout.epoch_name(run_id),
        WINDOW,
        (StageSpec("clean"), StageSpec("routes", ("clean",))),
        sources=(FileSource(f"file://{raw}"),),
        run=RunFacts(run_id, open_store=lambda uri, _: open_store(uri)),
    )
    assert isinstance(job.coordinator.trigger(request), Triggered)


def acknowledge(job: Job, run_id: str, stage: str, *names: str) -> Handover:
    """Acknowledge with outputs of two files each."""
    handover = job.begin(run_id, stage)
    outputs, handles = [], []
    for name in names:
        kind, _, own = name.partition(".")
        place = (handover.checkpoint, stage, handover.attempt, handover.token, RUN)
        folder = layout.output_folder(*place, name)
        outputs.append(Output(kind, own, folder, SCHEMA))
        for number in range(2):
            written = expect(Written, job.coordinator.files.create_bytes(f"{folder}part-{number}", b"x" * 100))
            handles.append(StateHandle(name, f"{folder}part-{number}", 100, written.etag, rows=number + 3))
    job.coordinator.acknowledge(ack_of(handover, [SubtaskAck(0, tuple(handles))], outputs=tuple(outputs)))
    return handover


def ran(job: Job, handover: Handover) -> SparkEpochOperator:
    """Give a stage's operator whose application has acknowledged."""
    options: dict[str, Any] = {"storage": job.storage, "job": job.name, "application": "x.py"}
    operator = SparkEpochOperator(task_id=handover.stage, **options)
    operator._run = StageRun(job.coordinator, handover)
    return operator


def named(event: dict[str, Any], side: str) -> dict[str, dict[str, Any]]:
    return {f"{each['namespace']} {each['name']}": each for each in event[side]}


def version_of(dataset: dict[str, Any]) -> str:
    return str(dataset["facets"]["version"]["datasetVersion"])


def columns_of(dataset: dict[str, Any]) -> list[tuple[str, str]]:
    return [(each["name"], each["type"]) for each in dataset["facets"]["schema"]["fields"]]


def test_what_a_first_stage_reads_and_writes(job: Job, send: Send) -> None:
    trigger(job, DAG_RUN)
    event = send(ran(job, acknowledge(job, DAG_RUN, "clean", "exchange.rows", "state.seen")))
    (source,) = event["inputs"]
    assert (source["namespace"], source["name"]) == ("file", str(raw_of(job)))
    counted = source["inputFacets"]["inputStatistics"]
    assert (counted["fileCount"], counted["size"]) == (1, 42)
    root = f"file {job.folder}/flights"
    written = named(event, "outputs")
    assert set(written) == {f"{root}/exchanges/clean/rows", f"{root}/states/clean/seen"}
    for dataset in written.values():
        assert (version_of(dataset), columns_of(dataset)) == ("1", COLUMNS)
        statistics = dataset["outputFacets"]["outputStatistics"]
        assert (statistics["fileCount"], statistics["size"], statistics["rowCount"]) == (2, 200, 7)
    said = event["run"]["facets"]["cairn"]
    assert {name: value for name, value in said.items() if not name.startswith("_")} == {
        "job": "flights",
        "storage": job.storage,
        "checkpoint": 1,
        "epoch": DAG_RUN,
        "attempt": 1,
        "stage": "clean",
        "window_start": "2026-01-01T00:00:00+00:00",
        "window_end": "2026-01-02T00:00:00+00:00",
        "sources": ["files"],
    }


def test_a_later_stage_reads_what_came_before_it(job: Job, send: Send) -> None:
    """The stage before it in this epoch, and its own state as the restored checkpoint has it."""
    for run_id in ("r0", DAG_RUN):
        trigger(job, run_id)
        acknowledge(job, run_id, "clean", "exchange.rows")
        handover = acknowledge(job, run_id, "routes", "state.totals", "table.routes")
        if run_id == "r0":
            job.coordinator.complete(1)
    event = send(ran(job, handover))
    root = f"file {job.folder}/flights"
    inputs = named(event, "inputs")
    assert {name: version_of(each) for name, each in inputs.items()} == {
        f"{root}/exchanges/clean/rows": "2",
        f"{root}/states/routes/totals": "1",
        f"{root}/tables/routes": "1",
    }
    outputs = named(event, "outputs")
    assert {name: version_of(each) for name, each in outputs.items()} == {
        f"{root}/states/routes/totals": "2",
        f"{root}/tables/routes": "2",
    }
    assert event["run"]["facets"]["cairn"]["restored_from"] == 1


def test_what_was_taken_over_unchanged_is_no_output(job: Job, send: Send) -> None:
    trigger(job, "r0")
    first = acknowledge(job, "r0", "clean", "state.seen")
    kept = acks.read_ack(job.coordinator.files, "clean", first.execution)
    acknowledge(job, "r0", "routes", "state.totals")
    job.coordinator.complete(1)
    trigger(job, DAG_RUN)
    handover = job.begin(DAG_RUN, "clean")
    job.coordinator.acknowledge(ack_of(handover, kept.subtasks, outputs=kept.outputs))
    event = send(ran(job, handover))
    assert event["outputs"] == []
    assert set(named(event, "inputs")) == {f"file {raw_of(job)}", f"file {job.folder}/flights/states/clean/seen"}


def test_the_last_task_names_the_tables(job: Job, send: Send) -> None:
    trigger(job, DAG_RUN)
    acknowledge(job, DAG_RUN, "clean", "exchange.rows")
    acknowledge(job, DAG_RUN, "routes", "state.totals", "table.routes")
    wait = CheckpointSensor(task_id="wait", storage=job.storage, job=job.name)
    before = send(wait)
    assert (before["inputs"], before["outputs"]) == ([], []), "nothing has completed"
    wait.execute(context(Ti(run_id=DAG_RUN, task_id="wait")))
    event = send(wait)
    assert set(named(event, "inputs")) == {f"file {raw_of(job)}"}
    (table,) = event["outputs"]
    assert (table["namespace"], table["name"]) == ("file", f"{job.folder}/flights/tables/routes")
    assert (version_of(table), columns_of(table)) == ("1", COLUMNS)
    assert event["run"]["facets"]["cairn"]["checkpoint"] == 1


def test_a_stage_that_submitted_nothing_names_its_job(job: Job, send: Send) -> None:
    event = send(SparkEpochOperator(task_id="routes", storage=job.storage, job=job.name, application="x.py"))
    assert (event["inputs"], event["outputs"]) == ([], [])
    assert event["run"]["facets"]["cairn"]["job"] == "flights"


def test_a_stage_that_declined_wrote_nothing(job: Job, send: Send) -> None:
    trigger(job, DAG_RUN)
    handover = job.begin(DAG_RUN, "clean")
    job.decline(handover, "ValueError: bad row")
    event = send(ran(job, handover))
    assert event["outputs"] == []
    assert event["run"]["facets"]["cairn"]["checkpoint"] == 1
