"""Notes on a DAG run and on tasks that failed over: one line in Airflow that says what became of the epoch.

A note may hold a user's own text. Cairn changes only its own line, which begins with `Cairn` and the job's name. A note
is a courtesy: an error in writing it is one line in the log, and fails nothing.

Airflow shows notes as Markdown, in which an image is fetched and an address becomes a link. A cause quotes input, so it
is written as code: nothing in it is interpreted.
"""

from __future__ import annotations

import logging
import re
from collections.abc import Iterable
from typing import TYPE_CHECKING

from airflow.sdk.exceptions import AirflowNotFoundException

from ...checkpoint.reasons import cause_first
from ...hooks.airflow_api import AirflowApiHook
from ...hooks.task_refs import MAX_NOTE, TaskRef

if TYPE_CHECKING:
    from ...checkpoint.answers import Failed
    from ...checkpoint.documents.attempt import PendingDocument
    from ...checkpoint.documents.entries import EndedEntry
    from ...checkpoint.documents.read_windows import ReadWindow
    from ...checkpoint.errors import CallbackError

log = logging.getLogger("airflow_cairn")

MAX_CAUSE = 300
"""Characters of a cause in a note; the job's history has all of it."""
TIMEOUT_S = 10.0
"""Seconds for each step of a request; login, question and change are sent once each."""

_BLANK_LINES = re.compile(r"\n{3,}")
_SHORTEST = 60
"""Characters below which a line is dropped rather than cut."""


def completed(entry: EndedEntry, gaps: Iterable[ReadWindow] = ()) -> str:
    """Return a run's note: its checkpoint completed, and which gap lies before its input."""
    after = [gap.short for gap in gaps if entry.window is not None and gap.end == entry.window.window.start]
    without = f" · without {', '.join(entry.left_out)}" if entry.left_out else ""
    restored = f"restored from checkpoint {entry.restored_from}" if entry.restored_from else "started empty"
    return f"checkpoint {entry.id} completed · attempt {entry.attempt} · {restored}{without}" + "".join(
        f" · no run has read {gap}" for gap in after
    )


def owed(checkpoint: int, error: CallbackError) -> str:
    """Return a run's note: its checkpoint completed, and this error kept listeners from hearing of it, or of others."""
    names = ", ".join(f"`{each}`" for each in str(error.fields.get("failed", "")).split(", "))
    why = as_code(str(error.__cause__ or error))
    again = "the next task of the job tries again; `cairn show` says what is owed"
    return f"checkpoint {checkpoint} completed · {names} could not be notified ({why}) · {again}"


def failed(ended: Failed, next_step: str) -> str:
    """Return a run's note: its checkpoint failed, and what to do."""
    cause = f"{as_code(cause_first(ended.detail))} ({ended.reason})" if ended.detail else str(ended.reason)
    return f"checkpoint {ended.checkpoint} failed · attempt {ended.attempt} · {cause} · {_one_line(next_step)}"


def skipped(trigger: str) -> str:
    """Return a run's note: it was skipped, as the log of its task `trigger` says, whatever became of its checkpoint."""
    return f"the run was skipped · the log of {trigger} says why"


def failed_over(stage: str, why: str, pending: PendingDocument, *, final: bool) -> str:
    """Return the note of a run, and of the task that failed: which attempt follows.

    `final` tells whether Airflow does not retry the task by itself.
    """
    restored = f"restores checkpoint {pending.restore.checkpoint}" if pending.restore else "starts empty"
    cause = f" ({as_code(why)})" if why else ""
    begins = "begins once you have mended that and cleared its task" if final else "begins with its next try"
    follows = f"checkpoint {pending.checkpoint} · attempt {pending.attempt} {begins}"
    return f"`{stage}` failed{cause} · {follows} · {restored}"


def rewound(checkpoint: int, actor: str) -> str:
    """Return a run's note: its checkpoint was undone."""
    undone = f"undone: {as_code(actor)} took the job back to checkpoint {checkpoint}"
    return f"{undone} · clear this run to read its input again"


def write(conn_id: str | None, dag_id: str, run_id: str, job: str, said: str, tasks: Iterable[TaskRef] = ()) -> None:
    """Write a job's line into notes of a run and of some tasks, over the line before; not without `conn_id`."""
    if conn_id is None:
        return
    try:
        with AirflowApiHook(conn_id, waits_s=(), timeout_s=TIMEOUT_S) as api:
            put(api, dag_id, run_id, job, said, tasks)
    except Exception as error:  # noqa: BLE001 - any error of the backend: the epoch matters more than its note
        log.warning("No note on the run: %s", error)


def put(api: AirflowApiHook, dag_id: str, run_id: str, job: str, said: str, tasks: Iterable[TaskRef] = ()) -> bool:
    """Write as `write` does, with an open API; False after the first error, which ends the attempt."""
    for task in (None, *tasks):
        try:
            api.rewrite_note(dag_id, run_id, task, lambda note: merged(note, job, said))
        except AirflowNotFoundException:
            log.info("No note on the run: the connection %s to Airflow's API is not defined", api.airflow_api_conn_id)
            return False
        except Exception as error:  # noqa: BLE001 - as in `write`
            log.warning("No note on %s %s: %s", "the run" if task is None else f"the task {task} of", run_id, error)
            return False
    return True


def merged(note: str, job: str, said: str) -> str:
    """Return a note in which a job's line replaces the line before; every other line stays as it is.

    The line is cut if the note would be longer than Airflow allows, and dropped if only a short beginning would remain.
    """
    mark = f"Cairn: {job}: "
    kept = "\n".join(line for line in note.splitlines() if not line.startswith(mark))
    # The line is a paragraph of its own: open Markdown in a user's text ends with the user's paragraph.
    kept = _BLANK_LINES.sub("\n\n", kept).strip("\n") + "\n\n" if kept.strip() else ""
    line, room = mark + said, MAX_NOTE - len(kept)
    return note if room < min(_SHORTEST, len(line)) else kept + _one_line(line, room)


def as_code(text: str) -> str:
    """Return a foreign text as one line of a note in which no Markdown is interpreted."""
    line = _one_line(text.replace("`", "'"))
    return f"`{line}`"


def _one_line(text: str, longest: int = MAX_CAUSE) -> str:
    line = " ".join(text.split())
    if len(line) <= longest:
        return line
    cut = line[: longest - 1]
    if cut.count("`") % 2:  # close code that was cut: the rest would be read as Markdown
        cut = line[: longest - 2]
        return f"{cut}…`" if cut.count("`") % 2 else f"{cut}…"
    return f"{cut}…"
