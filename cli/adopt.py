"""`cairn adopt`: gives a job another owner, after its DAG was renamed or has moved to another deployment (W8)."""

from __future__ import annotations

import argparse
from typing import Any

from ..checkpoint import Coordinator
from ..checkpoint.decisions.ownership import described
from .output import text


def adopt(coordinator: Coordinator, options: argparse.Namespace) -> tuple[list[str], dict[str, Any]]:
    """Let a DAG own a job.

    Returns:
        The lines and the JSON document to print.

    Raises:
        AdoptionRefusedError: a checkpoint is pending; nothing was changed.
        InvalidConfigError: a name cannot be one.
    """
    found = coordinator.ownership.adopt(options.dag, options.deployment, abort_pending=options.abort_pending)
    before = described(found.before) if found.before else "no recorded owner"
    said = f"{coordinator.job} belongs to {described(found.after)}"
    said += " as before" if found.before == found.after else f" now; before: {before}"
    lines = list(text.paragraph(said, text.width()))
    if found.aborted:
        lines.append(f"ended: checkpoint {', '.join(str(each) for each in found.aborted)}")
    document = {
        "job": coordinator.job,
        "dag_id": found.after.dag_id,
        "deployment": found.after.deployment,
        "before": {"dag_id": found.before.dag_id, "deployment": found.before.deployment} if found.before else None,
        "aborted": list(found.aborted),
    }
    return lines, document
