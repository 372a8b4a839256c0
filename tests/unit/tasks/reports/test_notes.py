"""A run's note says what became of its epoch, once, and a person's own words in it stay."""

from collections.abc import Iterator
from typing import Any

import pytest
from airflow.sdk import DAG
from airflow.sdk.exceptions import AirflowFailException

from airflow_cairn.checkpoint import RegionalCheckpoints
from airflow_cairn.checkpoint.answers import Failed
from airflow_cairn.checkpoint.config import CheckpointConfig
from airflow_cairn.checkpoint.documents.attempt import Limits, PendingDocument, Slice
from airflow_cairn.checkpoint.documents.entries import EndedEntry
from airflow_cairn.checkpoint.documents.read_windows import ReadWindows, WindowText
from airflow_cairn.checkpoint.errors import CallbackError
from airflow_cairn.checkpoint.reasons import Reason, Status
from airflow_cairn.hooks.task_refs import MAX_NOTE
from airflow_cairn.operators import CheckpointedTaskGroup, SparkEpochOperator
from airflow_cairn.sensors import CheckpointSensor
from airflow_cairn.tasks.reports.notes import completed, failed, failed_over, merged, owed, rewound
from tests.support.airflow_fixtures import Define, Said
from tests.support.airflow_stage import Job, Ti, context
from tests.support.api_stand_in import ApiStandIn, OneRun, airflow_api, connect
from tests.support.narrowing import expect

RUN = "manual__r1"


@pytest.fixture
def run() -> OneRun:
    return OneRun({})


@pytest.fixture
def api(run: OneRun, connections: Define) -> Iterator[ApiStandIn]:
    with airflow_api(run, connections) as stand_in:
        yield stand_in


def waiting(job: Job, **options: Any) -> CheckpointSensor:
    """Give the task of a group that waits for its checkpoint."""
    with (
        DAG(job.name, schedule=None) as dag,
        CheckpointedTaskGroup("epoch", reads_window=False, storage=job.storage, **options),
    ):
        SparkEpochOperator(task_id="routes", application="x.py")
    return expect(CheckpointSensor, dag.get_task("epoch.wait_for_checkpoint"))


def at() -> Any:
    return context(Ti(run_id=RUN, task_id="epoch.wait_for_checkpoint"))


def test_a_completed_epoch(job: Job, run: OneRun, api: ApiStandIn) -> None:
    run.notes[""] = "Ana: the feed was late\n"
    job.complete("r0")
    job.complete(RUN)
    for _ in range(2):
        waiting(job).execute(at())
    said = "Cairn: flights: checkpoint 2 completed · attempt 1 · restored from checkpoint 1"
    assert run.notes == {"": f"Ana: the feed was late\n\n{said}"}
    assert run.noted == ["/api/v2/dags/flights/dagRuns/manual__r1?update_mask=note"], "once"


def test_a_run_after_a_gap(job: Job, run: OneRun, api: ApiStandIn) -> None:  # semantics T12
    job.complete("r0", Slice("2001-01-01T00:00:00+00:00", "2001-01-02T00:00:00+00:00"))
    job.complete(RUN, Slice("2001-01-06T00:00:00+00:00", "2001-01-07T00:00:00+00:00"))
    waiting(job).execute(at())
    assert run.notes[""].endswith(" · restored from checkpoint 1 · no run has read 2001-01-02 to 2001-01-06")


def test_what_was_left_out(job: Job, run: OneRun, api: ApiStandIn) -> None:  # semantics F6
    job.trigger(RUN, "routes", "clean", config=CheckpointConfig(regional=RegionalCheckpoints(0.5)))
    job.acknowledge(job.begin(RUN, "clean"))
    job.begin(RUN, claimant="last")
    job.coordinator.fail(RUN, "routes", "last", "killed", final=True)
    waiting(job).execute(at())
    assert run.notes[""] == "Cairn: flights: checkpoint 1 completed · attempt 1 · started empty · without routes"


def test_a_failed_epoch(job: Job, run: OneRun, api: ApiStandIn) -> None:
    job.trigger(RUN)
    job.decline(job.begin(RUN), "ValueError: bad row")
    with pytest.raises(AirflowFailException):
        waiting(job).execute(at())
    assert run.notes[""].startswith(
        "Cairn: flights: checkpoint 1 failed · attempt 1 · `routes: ValueError: bad row` (CHECKPOINT_DECLINED)"
    )


@pytest.mark.parametrize(
    ("how", "why"),
    [
        ("refuses", "on the run manual__r1: the connection's user may not do this"),
        ("is away", "on the run manual__r1: Airflow's API cannot be reached"),
        ("is denied", "on the run manual__r1: the secrets back end denies it"),
        ("is undefined", "on the run: the connection cairn_airflow_api to Airflow's API is not defined"),
    ],
)
def test_an_api_that_cannot_be_used_fails_no_epoch(
    job: Job, run: OneRun, connections: Define, said: Said, monkeypatch: pytest.MonkeyPatch, how: str, why: str
) -> None:
    def denied(*_: object) -> None:
        raise PermissionError("the secrets back end denies it")

    if how == "is denied":
        monkeypatch.setattr("airflow_cairn.hooks.airflow_api.AirflowApiHook.get_connection", denied)
    run.refuses = 403 if how == "refuses" else None
    job.complete(RUN)
    with ApiStandIn(run if how == "refuses" else lambda _: None) as api:
        if how != "is undefined":
            connect(connections, api)
        assert waiting(job).execute(at())["checkpoint"] == 1
    assert f"No note {why}" in said.text
    assert how != "refuses" or len(api.asked) == 1


def test_a_group_that_uses_no_api(job: Job, run: OneRun, api: ApiStandIn) -> None:
    job.complete(RUN)
    waiting(job, airflow_api_conn_id=None).execute(at())
    assert api.asked == []


@pytest.mark.parametrize(
    ("before", "after"),
    [
        ("", "Cairn: a: new"),
        ("Cairn: a: old", "Cairn: a: new"),
        ("Ana: look\n\nCairn: a: old\nand here", "Ana: look\n\nand here\n\nCairn: a: new"),
        ("Ana: look\nCairn: a: old", "Ana: look\n\nCairn: a: new"),
        ("Cairn: a: old\n\nCairn: b: its own", "Cairn: b: its own\n\nCairn: a: new"),
        ("x" * MAX_NOTE, "x" * MAX_NOTE),
    ],
    ids=["none", "one of ours", "a person's", "a person's, by an earlier version", "another job's", "no room"],
)
def test_only_the_line_of_the_job_changes(before: str, after: str) -> None:
    assert merged(before, "a", "new") == after


def test_a_long_line_is_cut() -> None:
    note = merged("x" * 800, "a", "y " * 300)
    assert (len(note), note[:802], note[-1]) == (MAX_NOTE, "x" * 800 + "\n\n", "…")


PENDING = PendingDocument(8, "e", 2, "0b", "flights", Slice(), (), {}, Limits(1, 1))
HOSTILE = "![x](https://evil.example/p.png) <img src=x> [a](https://evil.example) www.evil.example ``y` " * 8


@pytest.mark.parametrize(
    "said",
    [
        failed(Failed(7, 1, Reason.CHECKPOINT_DECLINED, HOSTILE), "Clear `routes`."),
        failed_over("routes", HOSTILE, PENDING, final=False),
        rewound(3, HOSTILE),
        owed(7, CallbackError(HOSTILE, failed="table.orders, table.events")),
    ],
    ids=["failed", "failed over", "rewound", "owed"],
)
@pytest.mark.parametrize("before", ["", "Ana: an `open mark", "x" * 700, "x" * 880, "x" * 930])
def test_a_cause_that_quotes_input_is_no_markdown(said: str, before: str) -> None:
    """Airflow renders notes: an image would be fetched, an address become a link"""
    note = merged(before, "flights", said)
    assert len(note) <= MAX_NOTE
    paragraph = note.removeprefix(before)
    assert paragraph.startswith("\n\n") or not before
    assert paragraph.count("`") % 2 == 0
    plain = "".join(paragraph.split("`")[::2])
    assert not [mark for mark in ("![", "](", "<img", "https://", "www.") if mark in plain], plain


@pytest.mark.parametrize(
    ("start", "end"), [("2001-01-06", " · no run has read 2001-01-02 to 2001-01-06"), ("2001-01-01", "")]
)
def test_the_run_after_a_gap_names_it(start: str, end: str) -> None:  # semantics T8
    read = ReadWindows((WindowText("2001-01-02", "2001-01-01"), WindowText("2001-01-07", "2001-01-06")))
    entry = EndedEntry(2, "e", 1, "00000000000000a1", 1, Status.COMPLETED, 2, window=WindowText("2001-01-07", start))
    assert completed(entry, read.gaps) == f"checkpoint 2 completed · attempt 1 · started empty{end}"
