"""Notes on a DAG run and on tasks that failed over, where Airflow's people look: what became of the epoch, in a line.

A note may hold what a person has written. Cairn changes one line of it, which begins with `Cairn` and the job's name,
and keeps every other. A note is a courtesy: what goes wrong with it is one line in the log, and fails nothing.

Airflow shows notes as Markdown, where an image is fetched and an address becomes a link. A cause quotes input, so it
stands as code: nothing in it means anything.
"""

from __future__ import annotations

import logging
import re
from collections.abc import Iterable
from typing import TYPE_CHECKING

from airflow.sdk.exceptions import AirflowNotFoundException

from ...hooks.airflow_api import AirflowApiHook
from ...hooks.clear_body import MAX_NOTE, TaskRef

if TYPE_CHECKING:
    from ...checkpoint.answers import Failed
    from ...checkpoint.documents.attempt import PendingDocument
    from ...checkpoint.documents.entries import EndedEntry
    from ...checkpoint.documents.read_windows import ReadWindow

log = logging.getLogger("airflow_cairn")

MAX_CAUSE = 300
"""Characters of a cause in a note; the job's history has all of it."""
TIMEOUT_S = 10.0
"""For each step of a request: login, question and change are sent once each."""

_BLANK_LINES = re.compile(r"\n{3,}")
_SHORTEST = 60
"""Characters below which a line is left out, rather than cut."""


def completed(entry: EndedEntry, gaps: Iterable[ReadWindow] = ()) -> str:
    """Say of a run that its checkpoint completed, and which gap lies before what it has read."""
    after = [gap.short for gap in gaps if entry.window is not None and gap.end == entry.window.window.start]
    without = f" · without {', '.join(entry.left_out)}" if entry.left_out else ""
    restored = f"restored from checkpoint {entry.restored_from}" if entry.restored_from else "started empty"
    return f"checkpoint {entry.id} completed · attempt {entry.attempt} · {restored}{without}" + "".join(
        f" · no run has read {gap}" for gap in after
    )


def failed(ended: Failed, next_step: str) -> str:
    """Say of a run that its checkpoint failed, and what to do.

    Args:
        ended: its newest attempt.
        next_step: what a person does next.
    """
    cause = f"{ended.reason}: {as_code(ended.detail)}" if ended.detail else str(ended.reason)
    return f"checkpoint {ended.checkpoint} failed · attempt {ended.attempt} · {cause} · {_one_line(next_step)}"


def skipped(trigger: str) -> str:
    """Say of a run that it was skipped, whatever had become of its checkpoint before.

    Args:
        trigger: the task that triggers, whose log has the reason.
    """
    return f"the run was skipped · the log of {trigger} says why"


def failed_over(stage: str, why: str, pending: PendingDocument, *, final: bool) -> str:
    """Say of a run, and of the task that failed, which attempt follows.

    Args:
        stage: the one that failed.
        why: its cause.
        pending: the attempt that follows.
        final: whether Airflow does not try the task again by itself.
    """
    restored = f"restores checkpoint {pending.restore.checkpoint}" if pending.restore else "starts empty"
    cause = f" ({as_code(why)})" if why else ""
    begins = "begins once its task is cleared" if final else "begins with its next try"
    follows = f"checkpoint {pending.checkpoint} · attempt {pending.attempt} {begins}"
    return f"`{stage}` failed{cause} · {follows} · {restored}"


def rewound(checkpoint: int, actor: str) -> str:
    """Say of a run that its checkpoint was undone.

    Args:
        checkpoint: the one that the job went back to.
        actor: who wanted it.
    """
    undone = f"undone: {as_code(actor)} took the job back to checkpoint {checkpoint}"
    return f"{undone} · clear this run to read its input again"


def write(conn_id: str | None, dag_id: str, run_id: str, job: str, said: str, tasks: Iterable[TaskRef] = ()) -> None:
    """Put a line about a job into a run's note, and into those of some of its tasks; in place of the line before.

    Args:
        conn_id: the connection to Airflow's API; None: nothing is written.
        dag_id: of the DAG.
        run_id: of the run.
        job: the job's name.
        said: the line.
        tasks: the tasks.
    """
    if conn_id is None:
        return
    try:
        with AirflowApiHook(conn_id, waits_s=(), timeout_s=TIMEOUT_S) as api:
            put(api, dag_id, run_id, job, said, tasks)
    except Exception as error:  # noqa: BLE001 - whatever the connection's back end raises: the epoch is more than its note
        log.warning("no note on the run: %s", error)


def put(api: AirflowApiHook, dag_id: str, run_id: str, job: str, said: str, tasks: Iterable[TaskRef] = ()) -> bool:
    """As `write`, with an API that is open.

    Returns:
        Whether all of them were written. After the first that was not, no other is tried.
    """
    for task in (None, *tasks):
        try:
            api.rewrite_note(dag_id, run_id, task, lambda note: merged(note, job, said))
        except AirflowNotFoundException:
            log.info("no note on the run: the connection %s to Airflow's API is not defined", api.airflow_api_conn_id)
            return False
        except Exception as error:  # noqa: BLE001 - as in `write`
            log.warning("no note on %s %s: %s", "the run" if task is None else f"the task {task} of", run_id, error)
            return False
    return True


def merged(note: str, job: str, said: str) -> str:
    """Give a note with a line about a job in place of the line before; every other line stays as it is.

    Args:
        note: what is there.
        job: the job's name.
        said: the line. It is cut where the note would be longer than Airflow takes, and left out where it would be
            a mere beginning.
    """
    mark = f"Cairn: {job}: "
    kept = "\n".join(line for line in note.splitlines() if not line.startswith(mark))
    # A paragraph of its own: a mark of Markdown that a person has left open ends with theirs.
    kept = _BLANK_LINES.sub("\n\n", kept).strip("\n") + "\n\n" if kept.strip() else ""
    line, room = mark + said, MAX_NOTE - len(kept)
    return note if room < min(_SHORTEST, len(line)) else kept + _one_line(line, room)


def as_code(text: str) -> str:
    """Give a text that Cairn has not written, as one line of a note in which nothing is Markdown."""
    line = _one_line(text.replace("`", "'"))
    return f"`{line}`"


def _one_line(text: str, longest: int = MAX_CAUSE) -> str:
    line = " ".join(text.split())
    if len(line) <= longest:
        return line
    cut = line[: longest - 1]
    if cut.count("`") % 2:  # code that is cut ends all the same: else what is left of it would be read as Markdown
        cut = line[: longest - 2]
        return f"{cut}…`" if cut.count("`") % 2 else f"{cut}…"
    return f"{cut}…"
