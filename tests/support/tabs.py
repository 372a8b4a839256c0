"""Tabs with the pages as people see them in Airflow's own UI, in a real Chromium."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from scripts.harness.airflow_home import AirflowHome
from tests.support.browser import found_by

SCRIPT = Path(__file__).with_suffix(".mjs")
PAGES = "Overview History Summary Failovers State Savepoints Doctor Configuration"
DESTINATIONS = ("dag", "run", "task", "instance", "nav")
ENDED = "Your session has ended"


def seen_in_the_ui(airflow: AirflowHome, dag: str, run: str, task: str, *users: str) -> dict[str, Any]:
    """Give what one sees who has not signed in, and each of some users; the first also until the session ends.

    Args:
        airflow: whose UI.
        dag: whose job has its name.
        run: a run of it with a checkpoint.
        task: one of its tasks.
        users: who signs in, one after the other.
    """
    words = [word for user in users for word in (user, airflow.passwords[user])]
    return found_by(SCRIPT, airflow.url, dag, run, task, *words, timeout=900)


def expected_in_the_ui(dag: str, first: str, *others: str, prefix: str = "") -> dict[str, Any]:
    """Give what each is to see: every tab with all pages of the job.

    Args:
        dag: as above.
        first: the first user.
        others: those who sign in after it.
        prefix: below which the UI lies; its address for a page of ours holds the page's whole path.
    """
    tabs = {
        "frames": 0,
        "comesBackTo": f"/dags/{dag}/plugin/checkpoints",
        **{name: [dag, True] for name in ("run", "task", "instance")},
        "dag": dag,
        "nav": 1,
        "pages": dict.fromkeys(DESTINATIONS, PAGES),
    }
    more = {
        "zone": '"Asia/Tokyo"',
        "icon": 200,
        "link": 1,
        "mirrored": f"/plugin/cairn{prefix}/cairn/dags/{dag}/jobs/epoch.trigger_checkpoint/history",
        "reloaded": dag,
        "ended": [f"Not up to date since TIME: {ENDED}. Reload Airflow and sign in.", 1, ENDED],
    }
    return {"nobody": dict.fromkeys(DESTINATIONS, 0), first: tabs | more, **dict.fromkeys(others, tabs)}
