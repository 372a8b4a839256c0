"""Pages with contents, and pages with nothing to show."""

import re
from collections import Counter
from dataclasses import replace
from datetime import timedelta
from typing import Any

import pytest
from airflow.sdk.exceptions import AirflowNotFoundException

from airflow_cairn.checkpoint import system_runtime
from airflow_cairn.checkpoint.documents.acknowledgement import AckMetrics
from airflow_cairn.checkpoint.documents.attempt import Owner
from airflow_cairn.checkpoint.documents.layout import epoch_name
from airflow_cairn.checkpoint.documents.metadata import CHECKS
from airflow_cairn.checkpoint.reasons import Reason
from airflow_cairn.checkpoint.views.checkpoint_list import JobRow, JobState, checkpoints
from airflow_cairn.checkpoint.views.details import CheckpointDetails, details
from airflow_cairn.plugin.drawings.stage_progress import TaskTry
from airflow_cairn.plugin.page import html_routes
from airflow_cairn.plugin.page import jobs as page_jobs
from airflow_cairn.plugin.page.declared_jobs import DeclaredJob, declared_jobs
from airflow_cairn.plugin.page.html_routes import LINES, ROWS, HistoryFilter, page_of
from airflow_cairn.plugin.page.job_reader import JobReader
from airflow_cairn.plugin.page.jobs import ListedJob
from airflow_cairn.plugin.page.server import Schedule
from airflow_cairn.storage.errors import ForbiddenError, UnavailableError
from tests.support import jobs
from tests.support.memory_store import MemoryStore
from tests.support.page_world import busy_world
from tests.support.world.savepoints import take
from tests.support.world.world import JOB, World
from tests.support.wrapped_stores import RecordingStore
from tests.unit.plugin.page.stand_in import ONE, STORAGE, VIEWER, Page, StandIn, dag_of, one_job, words


def test_the_overview_says_what_is_waited_for(page: Page) -> None:
    seen = page.seen("/dags/flights")
    assert "Checkpoint 4 in progress 1 of 4 stages acknowledged" in seen
    assert "clean kept from 3" in seen
    assert "routes not begun" in seen
    assert (
        "Checkpoint 4 waits for routes , airports , report (1 of 4 stages have acknowledged); it was triggered" in seen
    )
    assert "The attempt before it ended: routes: ValueError: bad row. Its epoch has had 1 restart" in seen
    assert "Its epoch has had 1 restart, 2 left." in seen
    assert "completed 2" in seen


def test_what_waits_and_what_came_last_are_shown_with_their_input(busy: World, page: Page) -> None:
    busy.read_days("x", "x", "x", "d")
    busy.coordinator().trigger(replace(busy.request("d"), owner=Owner("flights", "d")))
    seen = page.seen("/dags/flights")
    assert "d , input 2026-01-04 to 2026-01-05 UTC , manual, since" in seen
    assert "b, input 2026-01-02 to 2026-01-03 UTC , 0.0s," in seen


def test_the_history_shows_every_attempt_with_its_input(page: Page) -> None:
    seen = page.seen(f"{ONE}/history")
    assert "4 of 4 checkpoints" in seen
    assert "3 by hand failed routes: ValueError: bad row c 2026-01-03 to 2026-01-04 1 1/4 7.0s" in seen
    assert "4 by hand in progress c 2026-01-03 to 2026-01-04 2 1/4" in seen
    assert "1 of 4 checkpoints" in page.seen(f"{ONE}/history?status=FAILED&run=")
    assert "2 of 4 checkpoints" in page.seen(f"{ONE}/history?status=&run=C")
    assert "No checkpoint matches." in page.seen(f"{ONE}/history?run=nothing")
    assert "2 of 4 checkpoints" in page.seen("/dags/flights?run_id=c")


def test_a_long_run_id_is_shown_by_its_moment() -> None:
    world, run = World(), "scheduled__2026-01-02T00:00:00+00:00"
    world.run_epoch(epoch_name(run))
    text = Page(one_job(world.memory)).get(f"{ONE}/history").text
    assert f'title="{run}">2026-01-02T00:00:00Z</a>' in text


def test_runs_that_the_timeline_has_no_room_for_are_counted_and_drawn_too() -> None:
    world = World()
    world.run_epoch(*(f"e{number:03d}" for number in range(LINES + 2)))
    text = Page(one_job(world.memory)).get(f"{ONE}/history").text
    first, said, others = text.partition("2 older runs of this page")
    assert said
    assert (first.count('<svg class="bar"'), others.count('<svg class="bar"')) == (LINES, 2)


def test_a_long_history_has_pages(busy: World) -> None:
    row = checkpoints(busy.coordinator())[0]
    rows = [replace(row, id=number, run_id=f"run-{number}") for number in range(10_000, 0, -1)]
    first, last = page_of(rows, HistoryFilter()), page_of(rows, HistoryFilter(page=10_000))
    assert (first.pages, first.known, len(first.rows), first.rows[0].id) == (10_000 // ROWS, 10_000, ROWS, 10_000)
    assert (last.number, last.rows[-1].id) == (first.pages, 1)
    assert page_of(rows, HistoryFilter(run="RUN-777")).matching == 11
    assert page_of(rows, HistoryFilter(run="run-777", whole=True)).matching == 1
    assert page_of([], HistoryFilter()).pages == 1


def test_a_checkpoint_shows_its_stages_and_the_command(page: Page) -> None:
    seen = page.seen(f"{ONE}/checkpoints/2")
    assert "retained yes: it can be restored" in seen
    assert "state totals" in seen
    assert f"cairn show {JOB} 2 --storage {STORAGE}" in seen
    assert f"What next: Nothing: it completed. cairn verify {JOB} 2 --storage {STORAGE} checks" in seen
    seen = page.seen(f"{ONE}/checkpoints/3")
    assert f"Nothing: checkpoint 4 of the same DAG run goes on. cairn show {JOB} 4 --storage {STORAGE}" in seen
    assert "run again after it routes reason JOB_FAILOVER_REGION Attempts of this run" in seen
    assert "3 failed after 7.0s routes: ValueError: bad row" in seen, "the cause of each attempt"
    seen = page.seen(f"{ONE}/checkpoints/4")
    assert "opened because" not in seen, "the attempt before says so"
    assert "kept from 3" in seen


def test_a_checkpoint_shows_the_rows_of_its_stages_subtasks_and_outputs() -> None:  # semantics A1
    world = World()
    world.trigger("a")
    handover = world.submit("a", "clean").handover
    jobs.drive(world, handover, 2, AckMetrics(1, 1, 1, 0, 3))
    seen = Page(one_job(world.memory)).seen(f"{ONE}/checkpoints/1")
    assert "2 41.0 KiB 41.0 KiB 1,220 clean: more" in seen, "the stage"
    assert "state totals: 2 files, 41.0 KiB, 1,220 rows, chk-" in seen
    assert "Subtask Files New Size Rows 1 1 40.0 KiB 40.0 KiB 1,210 0 1 1000 B 1000 B 10" in seen
    stage = next(each for each in details(world.coordinator(), 1).stages if each.stage == "clean")
    described = details(world.coordinator(), 1).as_json(storage=STORAGE)["stages"]
    assert next(each["rows"] for each in described if each["stage"] == "clean") == 1220
    assert [each.rows for each in stage.subtasks] == [1210, 10]


def test_what_acknowledged_after_a_checkpoint_had_failed_is_counted_apart(busy: World, page: Page) -> None:
    """An execution that the next attempt keeps goes on: the count is of the moment of the failure, the marks of now."""
    failed = busy.coordinator().head().history[-1]
    path = f"{ONE}/checkpoints/{failed.id}"
    seen = page.seen(path)
    assert (
        f"acknowledged {failed.acks} of {failed.stages} stages last acknowledgement clean, 0.0s after the trigger"
        in seen
    )
    busy.run_stage("c", "airports")
    said = f"acknowledged {failed.acks} of {failed.stages} stages when it failed, and 1 since then, whose work the next"
    assert said in Page(one_job(busy.memory)).seen(path)


def test_a_check_that_failed_and_only_warns_is_shown(busy: World) -> None:
    world = World()
    world.trigger("a")
    handover = world.submit("a", "clean").handover
    note = {"execution": handover.token, "failed": ["the check 'no <b>' failed: 2 rows break it"]}
    ack = replace(world.write(handover), values={CHECKS: note, "seen": 1})
    world.coordinator().acknowledge(ack)
    text = Page(one_job(world.memory)).get(f"{ONE}/checkpoints/1").text
    assert "went on although the check &#39;no &lt;b&gt;&#39; failed: 2 rows break it" in text
    assert "_cairn_checks" not in text


def test_the_summary_has_durations_and_reasons(page: Page) -> None:
    seen = page.seen(f"{ONE}/summary")
    assert "duration 0.0s 0.0s" in seen
    assert "1 A stage failed, and the epoch's next attempt has replaced this one. JOB_FAILOVER_REGION" in seen.replace(
        "&#39;", "'"
    )
    assert "Duration, oldest first, from checkpoint 1 to 2. The highest bar is 0.0s." in seen
    assert "checkpoint 2: " in seen
    assert "None of them has completed." in Page(one_job(MemoryStore())).seen(f"{ONE}/summary")


def test_failovers_say_what_failed_what_ran_again_and_what_it_cost(busy: World, page: Page) -> None:
    seen = page.seen(f"{ONE}/failovers")
    assert (
        "3 attempt 1 routes: ValueError: bad row routes 1/4 7.0s – 2023-11-14 22:13:37Z c 2026-01-03 to 2026-01-04"
        in seen
    )
    busy.clock.advance(timedelta(seconds=21))
    busy.run_stage("c", "routes", "airports", "report")
    busy.coordinator().complete(busy.pending_id("c"))
    seen = Page(one_job(busy.memory)).seen(f"{ONE}/failovers")
    assert "routes 1/4 7.0s 21s" in seen
    assert "2 " in seen.split("Restores")[1]
    assert "None of the last 0 checkpoints." in Page(one_job(MemoryStore())).seen(f"{ONE}/failovers")


def test_a_rerun_after_a_rewind_is_not_shown_complete(busy: World) -> None:
    """A run has two completed checkpoints then, and each failure counts until the next one after it."""

    def complete(after_s: int, *stages: str) -> None:
        busy.clock.advance(timedelta(seconds=after_s))
        busy.run_stage("c", *stages)
        busy.coordinator().complete(busy.pending_id("c"))

    def took() -> list[str]:
        table = Page(one_job(busy.memory)).get(f"{ONE}/failovers").text.split('id="restores"')[0]
        rows = [each.partition("</tr>")[0] for each in table.split("<tr>")[2:]]
        return [row.rpartition('<td class="number">')[2].partition("</td>")[0] for row in rows]

    complete(21, "routes", "airports", "report")
    busy.coordinator().rewind(2)
    busy.clock.advance(timedelta(seconds=3))
    busy.trigger("c")
    again = busy.submit("c", "clean").handover
    busy.coordinator().fail("c", "clean", again.claimant, "ValueError: bad row")
    assert took() == ["–", "21s"]
    complete(9, "clean", "routes", "airports", "report")
    assert took() == ["9.0s", "21s"]


def test_the_state_is_listed_by_stage(page: Page) -> None:
    seen = page.seen(f"{ONE}/state")
    assert "What checkpoint 2 holds" in seen
    assert f"cairn state {JOB} routes totals --storage {STORAGE}" in seen
    assert "No checkpoint has completed yet" in Page(one_job(MemoryStore())).seen(f"{ONE}/state")
    document = page.get(f"/api/v1{ONE}/checkpoints/2/states").json()
    assert [(each["stage"], each["name"]) for each in document["states"] if each["kind"] == "state"] == [
        ("clean", "totals"),
        ("routes", "totals"),
        ("airports", "totals"),
        ("airports", "lookup"),
        ("report", "totals"),
    ]


def test_damaged_files_are_shown_as_such(busy: World, page: Page) -> None:  # semantics R1
    seen = page.seen(f"{ONE}/checkpoints/2/files?stage=routes")
    assert "1 to 1 of 1." in seen
    assert "whole" in seen
    (file,) = page.get(f"/api/v1{ONE}/checkpoints/2/files?stage=routes").json()["files"]
    busy.files.delete([file["path"]])
    busy.coordinator().restore_latest()
    page = Page(one_job(busy.memory))
    assert "damaged it is gone" in page.seen(f"{ONE}/checkpoints/2/files")
    assert page.get(f"/api/v1{ONE}/checkpoints/2/files?first=1").json()["files_in_all"] == 6
    assert "There is no such page; it names 6." in page.seen(f"{ONE}/checkpoints/2/files?page=9")
    assert page.get(f"{ONE}/checkpoints/3/files").status_code == 404
    assert f"damaged {file['path']}: it is gone" in page.seen(f"{ONE}/checkpoints/2"), "as the restore has found"
    assert page.get(f"/api/v1{ONE}/checkpoints/2").json()["damages"] == [f"{file['path']}: it is gone"]
    assert page.get(f"/api/v1{ONE}/checkpoints/1").json()["damages"] == []


def test_a_stage_leads_to_its_task_and_an_alarm_to_the_log(busy: World) -> None:
    """A stage that has not begun has no log; a failed try's is shown as that try's, with how long it ran."""
    server, at = one_job(busy.memory), busy.clock.now_ms
    page = Page(server, base="/air")
    assert "tasks/epoch" not in page.get("/dags/flights").text
    server.tried = [
        TaskTry("c", "epoch.routes", -1, 2, "running", at, None),
        TaskTry("c", "epoch.routes", -1, 1, "failed", at - 7_000, at, newest=False),
        TaskTry("c", "epoch.report", -1, 0, None, None, None),
        TaskTry("other", "epoch.airports", -1, 1, "running", at, None),
    ]
    address = "/air/dags/flights/runs/c/tasks/epoch.routes"
    link = f'<a data-airflow href="{address}" title="log of try 2">routes</a>'
    overview = page.get("/dags/flights").text
    assert overview.count(link) == 2, "in the alarm, and in the list of what is in progress"
    assert f"Log: {link}." in " ".join(overview.split())
    pending, failed = (page.get(f"{ONE}/checkpoints/{each}").text for each in (4, 3))
    assert link in pending
    assert f'Log of try 1: <a data-airflow href="{address}?try_number=1"' in failed
    assert "routes failed after 7.0s 7.0s – – – –" in words(failed)
    assert 'class="lost" x="0" width="1000"' in failed
    for text in (overview, pending, failed):
        assert text.count("tasks/epoch.") == text.count("tasks/epoch.routes")


def test_what_failed_is_drawn_as_it_was_whatever_the_dag_says_now(busy: World) -> None:  # semantics O3
    """The failed run has completed since, and its DAG file has other stages by now."""
    busy.run_epoch("c", "d")
    busy.coordinator().clean()
    server = StandIn([dag_of("flights", (STORAGE, JOB), suffix="_anew")], {STORAGE: busy.memory})
    text = Page(server).get(f"{ONE}/checkpoints/3").text
    for kind, uid in (("failed", "routes"), ("completed", "clean"), ("completed", "airports")):
        assert f'<g class="{kind}"><title>{uid}<' in text
    assert "_anew" not in text
    assert "left the store" not in text


def test_an_instance_of_a_mapped_task_leads_to_itself() -> None:
    (job,) = declared_jobs(dag_of("d", ("s3://a", "one")))
    mapped = replace(job, stages=(replace(job.stages[0], uid="scan", task_id="scan", instances=3),))
    assert [mapped.drawn(f"scan-{number}") for number in (0, 2)] == [(mapped.stages[0], 0), (mapped.stages[0], 2)]
    assert [mapped.drawn(name) for name in ("scan-3", "scan-x", "other", "scan-")] == [None] * 4
    assert job.drawn("clean") == (job.stages[0], None)


def test_the_checkpoint_draws_what_reads_from_what(page: Page) -> None:
    text = page.get(f"{ONE}/checkpoints/4").text
    assert text.count('<g class="kept">') == 1
    assert text.count('<g class=""><title>') == 3
    assert "No exchange is pipelined" in text


@pytest.mark.parametrize(
    ("schedule", "said"),
    [
        (Schedule(None, paused=True), "The DAG is paused: no run begins by itself."),
        (Schedule(None, paused=False), "No further run is scheduled."),
        (Schedule(4_000_000_000_000, paused=False), "Next run: 2096-10-02 07:06:40Z ."),
        (Schedule(1_000_000_000_000, paused=False), "The next run has been due since 2001-09-09 01:46:40Z ."),
    ],
)
def test_the_next_run_is_announced(schedule: Schedule, said: str) -> None:
    server = one_job(MemoryStore())
    server.due["flights"] = schedule
    page = Page(server)
    assert said in page.seen("/dags/flights")
    sent = page.get(f"/api/v1{ONE}").json()["schedule"]
    assert sent == {"next_run_at_ms": schedule.next_run_at_ms, "paused": schedule.paused}


def many_jobs() -> tuple[StandIn, dict[str, RecordingStore]]:
    """Five jobs in different states, one whose store does not answer, and one that only a run knows."""
    now_ms = system_runtime().now_ms()
    worlds = {name: busy_world(now_ms - 60_000) for name in ("running", "failed", "paused")}
    worlds["failed"].coordinator().abort(4, Reason.JOB_FAILURE, "by hand")
    worlds["paused"].coordinator().pause()
    stores: dict[str, Any] = {f"s3://{name}": RecordingStore(each.memory) for name, each in worlds.items()}
    stores |= {"s3://new": RecordingStore(MemoryStore()), "s3://away": UnavailableError("no answer", job=JOB)}
    dags = [dag_of(f"of_{uri.removeprefix('s3://')}", (uri, JOB)) for uri in stores]
    server = StandIn([*dags, dag_of("of_runs", ("s3://{{ var.value.lake }}", JOB))], stores)
    server.due = {"of_new": Schedule(now_ms - 3_600_000, paused=False)}
    return server, stores


def order(text: str) -> list[str]:
    """Give the DAGs of a list of jobs, in order."""
    return re.findall(r'/dags/of_([a-z]+)">', text)


def test_the_list_of_jobs_begins_with_what_needs_a_person() -> None:
    """Each job costs one request, its head, and one whose store does not answer hides no other."""
    server, stores = many_jobs()
    page = Page(server)
    seen = page.get("/")
    assert order(seen.text) == ["away", "failed", "running", "new", "paused", "runs"]
    reads = {uri: store.requests for uri, store in stores.items() if isinstance(store, RecordingStore)}
    without_head = reads.pop("s3://new")
    assert without_head == Counter(get=1, list=1), "is there a job whose head is lost?"
    assert list(reads.values()) == [Counter(get=1)] * 3
    text = words(seen.text)
    assert "6 of 6 jobs, the most urgent first" in text
    assert "broken The storage does not answer. no answer [job=`flights`]. Reload this page in a minute." in text
    assert "2, last 4 by hand" in text, "why it failed last"
    assert re.search(r"in progress late 2 , [0-9.m ]+s ago took [0-9.]+s", text), "what has completed, and when"
    assert re.search(r"4 , attempt 2, for [0-9.m ]+s", text), "what runs"
    assert re.search(r'<span class="status late"><span class="ago" title="[^"]*">1h 00m<', seen.text), "behind"
    assert "new late" in text, "beside the state, so that a telephone shows it"
    assert "known once a run has rendered its name" in text


@pytest.mark.parametrize(("paused", "state"), [(False, "idle"), (True, "paused")])
def test_a_dag_that_was_paused_between_two_runs_is_listed_as_paused(*, paused: bool, state: str) -> None:
    world = World()
    world.run_epoch("a")
    server = StandIn([dag_of("flights_dag", (STORAGE, JOB))], {STORAGE: world.memory})
    server.due = {"flights_dag": Schedule(None, paused=paused)}
    page = Page(server)
    [job] = page.get("/api/v1/jobs").json()["jobs"]
    assert job["state"] == state
    assert [len(page.get(f"/api/v1/jobs?state={each}").json()["jobs"]) for each in ("idle", "paused")] == [
        int(not paused),
        int(paused),
    ]


@pytest.mark.parametrize(
    ("asked", "found"),
    [
        ("?state=failed", ["failed"]),
        ("?state=in progress", ["running"]),
        ("?text=OF_P", ["paused"]),
        ("?state=late", ["failed", "running", "new"]),
        ("?state=&text=s3://f", ["failed"]),
        ("?state=failed&text=of_new", []),
    ],
)
def test_the_list_of_jobs_has_filters(asked: str, found: list[str]) -> None:
    page = Page(many_jobs()[0])
    assert order(page.get(f"/{asked}").text) == found
    assert [job["dag_id"] for job in page.get(f"/api/v1/jobs{asked.replace('state=&', '')}").json()["jobs"]] == [
        f"of_{each}" for each in found
    ]


@pytest.mark.parametrize(("ago_ms", "late"), [(59_000, 0), (61_000, 1)])
def test_a_run_that_takes_longer_than_usual_is_no_longer_in_green(ago_ms: int, late: int) -> None:
    world = World()
    world.clock.now_ms = system_runtime().now_ms() - ago_ms - 60_000
    world.trigger("a")
    world.clock.advance(timedelta(seconds=60))
    world.run_epoch("a")
    world.trigger("b")
    page = Page(one_job(world.memory))
    assert page.get("/").text.count('<progress class="late"') == late
    assert page.get(ONE).text.count('usually it takes <span class="late">1m 00s') == late


@pytest.mark.parametrize(
    ("usual_ms", "behind_ms", "late"),
    [(None, 299_000, False), (None, 301_000, True), (200_000, 399_000, False), (200_000, 401_000, True)],
)
def test_a_job_is_late_that_waits_longer_than_a_run_needs(usual_ms: int | None, behind_ms: int, late: bool) -> None:
    (declared,) = declared_jobs(dag_of("d", ("s3://a", "one")))
    row = JobRow("one", state=JobState.IDLE, durations_ms=() if usual_ms is None else (usual_ms,))
    found = ListedJob(declared, row, schedule=Schedule(1_000, paused=False))
    assert found.is_late(1_000 + behind_ms) is late
    assert found.urgency(1_000 + behind_ms)[0] == (1 if late else 2), "before what is on time, whatever its state"


def test_jobs_beyond_the_bound_are_not_looked_at(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(page_jobs, "READ", 2)
    monkeypatch.setattr(html_routes, "READ", 2)
    server, stores = many_jobs()
    assert "Only 2 were looked at" in words(Page(server).get("/").text)
    assert sum(store.total for store in stores.values() if isinstance(store, RecordingStore)) == 1


def test_savepoints_are_listed_with_their_folders_and_their_checkpoints_marked() -> None:
    world = World()
    world.run_epoch("a", "b")
    assert "was taken of it" not in Page(one_job(world.memory)).get(f"{ONE}/history").text
    taken = take(world)
    page = Page(one_job(world.memory))
    seen = page.seen(f"{ONE}/savepoints")
    assert taken.uri in seen
    assert "3 completed 2 b" in seen
    text = page.get(f"{ONE}/history").text
    assert text.count(f'title="savepoint {taken.id} was taken of it"') == 1
    assert f"savepoints of it {taken.id}" in page.seen(f"{ONE}/checkpoints/2")
    rows = page.get(f"/api/v1{ONE}/checkpoints").json()["checkpoints"]
    assert [(row["id"], row["savepoints"]) for row in rows] == [(2, [taken.id]), (1, [])]
    assert "remembers no savepoint" in Page(one_job(MemoryStore())).seen(f"{ONE}/savepoints")


def test_the_configuration_is_that_of_the_dag(page: Page) -> None:
    seen = page.seen(f"{ONE}/configuration")
    assert "timeout 10m 00s" in seen
    assert "retained 2" in seen
    assert "owner none is recorded yet" in seen


def test_a_job_that_has_not_run_says_so() -> None:
    page = Page(one_job(MemoryStore()))
    assert "no checkpoint yet" in page.seen("/dags/flights")
    assert "no checkpoint yet" in page.seen(f"{ONE}/history")
    assert page.get(f"/api/v1{ONE}").json()["stats"]["triggered"] == 0


def test_a_dag_has_no_job_or_several(busy: World) -> None:
    seen = Page(StandIn([dag_of("plain")], {})).get("/dags/plain").text
    assert "no checkpointed group" in seen
    assert "with CheckpointedTaskGroup(" in seen, "the lines to add"
    page = Page(StandIn([dag_of("two", (STORAGE, "a"), (STORAGE, JOB))], {STORAGE: busy.memory}))
    assert "Jobs of two" in page.get("/dags/two").text
    assert page.get("/dags/two/jobs/epoch1.trigger").status_code == 200
    assert page.get(f"/dags/two/jobs/{JOB}").status_code == 200


@pytest.mark.parametrize("task_id", ["epoch0.trigger", "epoch.routes"])
def test_a_templated_job_is_known_once_a_run_has_rendered_it(busy: World, task_id: str) -> None:
    server = StandIn([dag_of("flights", ("{{ params.lake }}", JOB))], {STORAGE: busy.memory})
    page = Page(server)
    seen = page.seen("/dags/flights")
    assert "{{ params.lake }}" in seen
    assert "Trigger a run" in seen
    assert page.get(f"/api/v1{ONE}").status_code == 409
    server.runs["flights", task_id] = ("manual__1", {"storage": STORAGE, "job": JOB})
    assert "Checkpoint 4 in progress 1 of 4 stages acknowledged" in page.seen("/dags/flights")


@pytest.mark.parametrize(
    ("error", "status", "said"),
    [
        (UnavailableError("the store could not be reached", store="s3://lake"), 504, "The storage does not answer"),
        (ForbiddenError("403", store="s3://lake"), 502, "The storage refuses the credentials"),
        (AirflowNotFoundException("The conn_id `lake` isn't defined"), 502, "The storage cannot be used"),
        (RuntimeError("hunter2"), 500, "This is a defect of Cairn."),
    ],
)
def test_what_fails_is_a_page_that_says_so(error: Exception, status: int, said: str) -> None:
    page = Page(one_job(error))
    answer = page.get("/dags/flights")
    assert answer.status_code == status
    assert said in answer.text
    assert "hunter2" not in answer.text
    answer = page.get(f"/api/v1{ONE}", accept="*/*")
    assert answer.status_code == status
    assert answer.json()["error"]["status"] == status


def test_a_damaged_head_is_named(busy: World, page: Page) -> None:
    busy.memory.put(f"{JOB}/head.json", b"{")
    answer = page.get("/dags/flights")
    assert answer.status_code == 502
    assert "damaged" in answer.text
    assert "head.json" in answer.text


@pytest.mark.parametrize(
    ("path", "status", "said"),
    [
        *((path, 404, "") for path in ("/dags/none", "/dags/flights/jobs/none", f"{ONE}/checkpoints/99")),
        (f"{ONE}/history?status=NONE", 422, "<code>status</code>: "),
        (f"{ONE}/history?page=0", 422, "<code>page</code>: "),
        (f"{ONE}/history?page=x", 422, "<code>page</code>: "),
        (f"{ONE}/history?run={'x' * 2_000}", 422, "<code>run</code>: "),
    ],
)
def test_what_is_not_there_or_a_bad_question_is_a_page_that_says_so(
    page: Page, path: str, status: int, said: str
) -> None:
    answer = page.get(path)
    assert answer.status_code == status
    assert words(answer.text)
    assert said in answer.text


def test_without_a_session_a_browser_is_told_to_sign_in(page: Page) -> None:
    assert "Reload Airflow and sign in." in page.get("/dags/flights", user=None).text
    answer = page.get("/dags/flights", user=None, accept="application/json")
    assert answer.json()["error"]["title"] == "Your session has ended"


def test_jobs_are_read_off_the_dag_in_a_fixed_order() -> None:
    dag = dag_of("d", ("s3://a", "one"), ("s3://b", "two"))
    dag["dag"]["tasks"].reverse()
    assert [(job.task_id, job.job, job.storage) for job in declared_jobs(dag)] == [
        ("epoch0.trigger", "one", "s3://a"),
        ("epoch1.trigger", "two", "s3://b"),
    ]


def test_rows_that_break_a_check_are_for_those_who_may_edit(page: Page, monkeypatch: pytest.MonkeyPatch) -> None:
    said = "the check 'no negative delay' failed: 2 rows break it"
    real = JobReader.checkpoint

    async def noted(self: JobReader, job: DeclaredJob, checkpoint: int) -> CheckpointDetails:
        found = await real(self, job, checkpoint)
        texts = (f"{said}, such as (id=4711, delay=-1); (id=4712)", "the check 'some' failed: its condition is false")
        return replace(found, stages=tuple(replace(stage, failed_checks=texts) for stage in found.stages))

    monkeypatch.setattr(JobReader, "checkpoint", noted)
    for path in (f"{ONE}/checkpoints/1", f"/api/v1{ONE}/checkpoints/1"):
        assert "id=4711" in page.get(path).text
        seen = page.get(path, user=VIEWER)
        assert (seen.status_code, "471" in seen.text) == (200, False)
    found = page.get(f"/api/v1{ONE}/checkpoints/1", user=VIEWER).json()
    assert found["stages"][0]["failed_checks"] == [said, "the check 'some' failed: its condition is false"]
