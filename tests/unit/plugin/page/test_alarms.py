"""How the overview shows what a person should know."""

from __future__ import annotations

import re
from dataclasses import replace
from datetime import timedelta

from airflow_cairn.checkpoint import FixedDelayRestart, system_runtime
from airflow_cairn.checkpoint.documents.attempt import Owner
from airflow_cairn.checkpoint.reasons import Reason
from airflow_cairn.checkpoint.views.wording import moment
from tests.support.world.world import CONFIG, World
from tests.unit.plugin.page.stand_in import Page, one_job
from tests.unit.plugin.page.test_pages import ONE, words


def test_the_moment_of_the_next_try_is_shown_in_the_users_zone() -> None:
    """As each moment: the script writes what is in a `time` element. What the alarm cites stays as it was written."""
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
    world.coordinator().pause()
    page = Page(one_job(world.memory))
    overview = words(page.get(ONE).text)
    assert "Look The job is paused. Unpause the DAG. Note 1 run goes on when the DAG is no longer paused." in overview
    assert "failed 0" in overview
    assert "failed none" in overview, "among the latest"
    assert "Failed" not in overview
    history = page.get(f"{ONE}/history").text
    assert '<span class="status paused">paused</span>' in history
    assert '<rect class="paused"' in history
    assert "0 of 2 checkpoints" in words(page.get(f"{ONE}/history?status=FAILED").text)
    checkpoint = words(page.get(f"{ONE}/checkpoints/2").text)
    assert "What next: Nothing: its run goes on, with another attempt, when the DAG is no longer paused." in checkpoint
    assert "Why it failed" not in checkpoint
    assert "Failed, by reason None." in words(page.get(f"{ONE}/summary").text)
    assert page.get(f"/api/v1{ONE}").json()["stats"]["failed"] == 0
    (row,) = page.get("/api/v1/jobs").json()["jobs"]
    assert (row["state"], row["failed_since"]) == ("paused", 0)


def test_the_page_of_what_failed_begins_with_the_cause() -> None:
    """In words: what happened, else what the reason means; its code name comes after what to do."""
    world = World()
    world.trigger("a")
    clean = world.submit("a", "clean").handover
    world.coordinator().fail("a", "clean", clean.claimant, "OSError: disk full")
    world.coordinator().abort(2, Reason.CHECKPOINT_EXPIRED, "")
    page = Page(one_job(world.memory))
    first, second = (words(page.get(f"{ONE}/checkpoints/{number}").text) for number in (1, 2))
    assert first.startswith("Checkpoint 1 failed Why it failed: clean: OSError: disk full Log: clean What next:")
    assert second.startswith("Checkpoint 2 failed Why it failed: Not every stage had acknowledged within")
    assert "reason CHECKPOINT_EXPIRED" in second
