"""How the overview shows what a person should know."""

from __future__ import annotations

import re
from dataclasses import replace
from datetime import timedelta

from airflow_cairn.checkpoint import FixedDelayRestart, system_runtime
from airflow_cairn.checkpoint.views.wording import moment
from tests.support.world.world import CONFIG, World
from tests.unit.plugin.page.stand_in import Page, one_job
from tests.unit.plugin.page.test_pages import ONE


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
