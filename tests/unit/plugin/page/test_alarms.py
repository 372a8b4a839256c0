"""Alarms on the overview."""

import re
from dataclasses import replace
from datetime import timedelta
from html import unescape

from airflow_cairn.checkpoint import FixedDelayRestart, system_runtime
from airflow_cairn.checkpoint.answers import Triggered
from airflow_cairn.checkpoint.documents.attempt import Owner
from airflow_cairn.checkpoint.documents.staged_tables import StagedBranch, StagedRows, TableDescription, encode
from airflow_cairn.checkpoint.reasons import Reason
from airflow_cairn.checkpoint.views.details import details
from airflow_cairn.checkpoint.views.overview import OWED_MS, alarms, overview
from airflow_cairn.checkpoint.views.table_changes import NEXT
from airflow_cairn.checkpoint.views.wording import moment
from airflow_cairn.cli.output import detail_lines
from airflow_cairn.plugin.drawings.stage_progress import TaskTry
from airflow_cairn.plugin.page.server import Schedule
from tests.support.shut_down import shut_down
from tests.support.world.world import CONFIG, JOB, World
from tests.unit.cli.test_rewind import Fixed
from tests.unit.plugin.page.stand_in import ONE, STORAGE, Page, one_job, words

CAUSE = "OSError: disk full"


def test_the_moment_of_the_next_try_is_shown_in_the_users_zone() -> None:
    """The script writes each moment in a `time` element. What the alarm cites stays as it was written."""
    delay = timedelta(hours=1)
    world = World(config=replace(CONFIG, restart_strategy=FixedDelayRestart(3, delay)))
    world.clock.now_ms = system_runtime().now_ms()
    at = moment(world.clock.now_ms + delay // timedelta(milliseconds=1))
    world.trigger("a")
    clean = world.submit("a", "clean").handover
    world.coordinator().fail("a", "clean", clean.claimant, f"ValueError: <b> `{at}` at {at}")
    page = Page(one_job(world.memory)).get(ONE).text
    (alarm,) = re.findall('<ul class="alarms".*?</ul>', page, re.DOTALL)
    assert f"ValueError: &lt;b&gt; <code>{at}</code> at {at}." in alarm
    shown = f'<time datetime="{at.replace(" ", "T")}" title="{at}">{at}</time>'
    assert f"The next try begins at {shown} (in " in alarm
    assert alarm.count("<time") == 1


def test_a_pause_is_no_failure_anywhere() -> None:  # semantics S1
    """One note and no box in red: the run goes on when the DAG is no longer paused."""
    world = World()
    world.clock.now_ms = system_runtime().now_ms()
    world.run_epoch("a")
    world.coordinator().trigger(replace(world.request("b"), owner=Owner("flights", "b")))
    triggered_at_ms = world.clock.now_ms
    world.clock.advance(timedelta(seconds=5))
    world.coordinator().pause()
    server = one_job(world.memory)
    page = Page(server)
    assert "Let the job go on" in page.get(ONE).text, "its DAG is no longer paused"
    server.due["flights"] = Schedule(None, paused=True)
    overview = page.seen(ONE)
    assert "Let the job go on" not in overview, "to unpause the DAG does that"
    assert "Look The job is paused. Unpause the DAG. Note 1 run goes on when the DAG is no longer paused." in overview
    assert "failed 0" in overview
    assert "failed none" in overview, "among the latest"
    assert "Failed" not in overview
    history = page.get(f"{ONE}/history").text
    assert '<span class="status paused">paused</span>' in history
    assert '<rect class="paused"' in history
    for status, number in (("FAILED", 0), ("PAUSED", 1), ("COMPLETED", 1), ("IN_PROGRESS", 0)):
        assert f"{number} of 2 checkpoints" in page.seen(f"{ONE}/history?status={status}")
    checkpoint = page.seen(f"{ONE}/checkpoints/2")
    assert "What next: Nothing: its run goes on, with another attempt, when the DAG is no longer paused." in checkpoint
    assert "Why it failed" not in checkpoint
    assert "Run again" not in checkpoint, "the run goes on by itself"
    assert "Failed, by reason None." in page.seen(f"{ONE}/summary")
    assert page.get(f"/api/v1{ONE}").json()["stats"]["failed"] == 0
    (row,) = page.get("/api/v1/jobs").json()["jobs"]
    assert (row["state"], row["failed_since"], row["failure"]) == ("paused", 0, None)
    assert row["due_at_ms"] == triggered_at_ms, "what its run was to read waits all the same"


def test_a_pause_during_which_the_job_is_stopped_is_no_failure_either() -> None:  # semantics S1, P2
    """The run does not go on by itself any more: once the job goes on, a box says so, with what to do."""
    world = World()
    world.run_epoch("a")
    world.trigger("b")
    world.coordinator().pause()
    shut_down(world.coordinator())
    page = Page(one_job(world.memory))
    (row,) = page.get("/api/v1/jobs").json()["jobs"]
    assert (row["state"], row["failed_since"], row["late"]) == ("stopped", 0, False)
    assert "0 of 2 checkpoints" in page.seen(f"{ONE}/history?status=FAILED")
    checkpoint = page.seen(f"{ONE}/checkpoints/2")
    assert checkpoint.startswith("Checkpoint 2 paused What next: If the job is stopped, type cairn resume")
    assert "Failed, by reason None." in page.seen(f"{ONE}/summary")
    assert "A pause has ended" not in page.get(ONE).text
    world.coordinator().resume()
    overview = Page(one_job(world.memory)).seen(ONE)
    assert "Look A pause has ended checkpoint 2, and the job was stopped or restored then" in overview
    assert "Failed" not in overview


def test_the_page_of_what_failed_begins_with_the_cause() -> None:
    """Words come first: what happened, else what the reason means; the reason's code name comes after what to do."""
    world = World()
    world.trigger("a")
    clean = world.submit("a", "clean").handover
    world.coordinator().fail("a", "clean", clean.claimant, "OSError: disk full")
    world.coordinator().abort(2, Reason.CHECKPOINT_EXPIRED, "")
    world.coordinator().fail("a", "clean", world.submit("a", "clean").handover.claimant, CAUSE, curable=False)
    server, now_ms = one_job(world.memory), world.clock.now_ms
    server.tried = [TaskTry("a", "epoch.clean", -1, 1, "failed", now_ms - 1_000, now_ms)]
    page = Page(server)
    first, second, third = (page.seen(f"{ONE}/checkpoints/{number}") for number in (1, 2, 3))
    assert first.startswith(
        "Checkpoint 1 failed in clean Why it failed: clean: OSError: disk full Log of try 1: clean What next: "
        "Checkpoint 3"
    )
    assert second.startswith("Checkpoint 2 failed Why it failed: Not every stage had acknowledged within")
    assert "reason CHECKPOINT_EXPIRED" in second
    assert f"Why it failed: clean: {CAUSE} (no retry cures this)" in third
    overview = page.get(ONE).text
    assert f"Checkpoint 3 failed in clean : {CAUSE} (no retry cures this)." in words(overview)
    assert f'Its page: checkpoint <a href="/cairn{ONE}/checkpoints/3">3</a>.' in overview


def test_a_table_that_lacks_a_checkpoint_is_named() -> None:  # semantics C4
    """The alarm waits while the commit may be on its way; the checkpoint's page has the command at once."""
    world = World()
    world.clock.now_ms = system_runtime().now_ms()
    table = TableDescription("lake.sales.orders", "u", "s3://x", {"type": "struct", "fields": []})
    hooks = [Fixed("orders", table), Fixed("merged", replace(table, name="lake.sales.<merged>"))]
    answer = world.coordinator().trigger(
        replace(world.request("a"), hooks=tuple(each.name for each in hooks), listeners=("table.orders", "warehouse"))
    )
    assert isinstance(answer, Triggered)
    world.coordinator().ask_hooks(answer.pending, hooks)
    rows = StagedRows("flights.0a", "s3://x/y", "s3://x", "0" * 64, 1_220)
    branch = StagedRows("f.0a", "b", "b", "", 0, branch=StagedBranch("u", "1", "2"))
    staged = {"table.orders": encode(rows), "table.merged": encode(branch)}
    for spec in world.stages:
        written = world.write(world.submit("a", spec.uid).handover)
        world.coordinator().acknowledge(replace(written, committables=staged if spec is world.stages[0] else {}))
    world.coordinator().complete(1)
    page = Page(one_job(world.memory))
    assert "lacks checkpoint" not in page.seen(ONE)
    give_up = f"cairn forget-listener {JOB} table.orders --checkpoint 1 --yes --storage"
    seen = unescape(page.seen(f"{ONE}/checkpoints/1"))
    assert "merged lake.sales.<merged> branch committed orders lake.sales.orders append, 1,220 rows owed" in seen
    assert f"{NEXT} To give it up, type {give_up} {world.store.uri} ." in seen
    shown = detail_lines.lines(world.coordinator().files, details(world.coordinator(), 1), 9)
    lines = " ".join(" ".join(shown).split())
    assert "merged lake.sales.<merged>: branch, committed orders lake.sales.orders: append, 1,220 rows, owed" in lines
    assert f"To give it up: {give_up} {world.store.uri}" in lines
    listed = details(world.coordinator(), 1).as_json(storage=STORAGE)["changes"]
    assert isinstance(listed, list) and [each["rows"] for each in listed if isinstance(each, dict)] == [None, 1_220]
    found = overview(world.coordinator())
    late = alarms(found, STORAGE, world.clock.now_ms + OWED_MS + 1_000)
    assert [each.text for each in late if each.level == "warning"] == [
        "The table `orders` lacks checkpoint 1, which completed 5m 01s ago.",
        "The listener `warehouse` was not told of checkpoint 1, which completed 5m 01s ago.",
    ]
    assert late[0].way_out.endswith(f"`{give_up} {STORAGE}`.")
    world.coordinator().forget_listener("table.orders")
    page = Page(one_job(world.memory))
    assert "append, 1,220 rows committed" in page.seen(f"{ONE}/checkpoints/1")
