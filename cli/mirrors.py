"""`cairn mirror` and `cairn activate`."""

from __future__ import annotations

import argparse
import secrets
from collections.abc import Callable, Iterator
from dataclasses import asdict
from typing import Any

from ..checkpoint import Coordinator
from ..checkpoint.documents.head import run_of_head
from ..checkpoint.documents.layout import run_id_of
from ..checkpoint.mirrors.activation import Activation
from ..checkpoint.views import wording
from ..storage import ensure_probed
from ..storage.port import ObjectStore
from .output import text
from .output.text import ProgressLine, ask


def mirror(coordinator: Coordinator, target: ObjectStore) -> tuple[list[str], dict[str, Any], bool]:
    """Make one pass to a job's mirror.

    Returns:
        Lines and JSON document of the result, and whether something could not be deleted.
    """
    ensure_probed(target, nonce=secrets.token_hex(8))
    with ProgressLine("copied") as line:
        found = coordinator.mirror(target, line.show)
    run = run_of_head(coordinator.head(), found.epoch)
    said = f"{target.uri} holds {coordinator.job} up to checkpoint {found.checkpoint}, {run}: "
    said += f"{found.files} files copied, {wording.size(found.size_bytes)}; {found.deleted} deleted"
    lines = text.paragraph(said, text.width())
    lines += [f"not deleted: {failure.key}: {failure.reason}" for failure in found.failures]
    document = {"job": coordinator.job, "mirror": target.uri, **asdict(found), "run_id": run_id_of(found.epoch)}
    del document["epoch"]
    return list(lines), document, bool(found.failures)


def give_up(coordinator: Coordinator, uri: str, opened: Callable[[], ObjectStore]) -> tuple[list[str], dict[str, Any]]:
    """Have a job know nothing of a mirror any more.

    Returns:
        Lines and JSON document of the result.
    """
    known = coordinator.give_up_mirror(uri, opened)
    said = "is not mirrored there any more; the files stay" if known else "has no mirror there; nothing was changed"
    return [f"{uri}: {coordinator.job} {said}"], {"job": coordinator.job, "mirror": uri, "given_up": known}


def activate(
    coordinator: Coordinator, first: ObjectStore | None, options: argparse.Namespace
) -> tuple[list[str], dict[str, Any]]:
    """Make a mirror the job, after the user at the terminal has agreed.

    Returns:
        Lines and JSON document of the result.
    """
    ensure_probed(coordinator.files.store, nonce=secrets.token_hex(8))
    plan = coordinator.activation_plan()
    if not plan.done and not options.yes:
        ask(_lines(coordinator, plan, first), "Activate it?", "mirror_refused", job=coordinator.job)
    with ProgressLine("copied") as line:
        found = coordinator.activate(first, line.show)
    of, latest = found.head.mirror_of, found.head.latest_completed()
    assert of is not None
    assert latest is not None
    before = "was active before" if plan.done else "is active"
    lines = [f"{coordinator.job} {before} in {coordinator.files.store.uri}; unpause its DAG with this storage"]
    document = {
        "job": coordinator.job,
        "activated": not plan.done,
        "first": of.uri,
        "told": first is not None,
        "checkpoint": latest.id,
        "run_id": run_id_of(latest.epoch),
        "run_again": [run_id_of(epoch) for epoch in of.again],
        "staged": [{**asdict(each), "epoch": run_id_of(each.epoch)} for each in found.staged],
    }
    return [*_lines(coordinator, found, first), *lines], document


def _lines(coordinator: Coordinator, found: Activation, first: ObjectStore | None) -> Iterator[str]:
    columns, head = text.width(), found.head
    of, latest = head.mirror_of, head.latest_completed()
    assert of is not None
    assert latest is not None
    yield from text.paragraph(
        f"{coordinator.files.store.uri} holds {coordinator.job} of {of.uri} up to checkpoint {latest.id}, "
        f"{run_of_head(head, latest.epoch)}, as of {wording.moment(of.at_ms)}. Runs after that have to run again here",
        columns,
    )
    if of.again:
        yield "these had begun:"
        yield from (f"  {run_of_head(head, epoch)}" for epoch in of.again)
    if first is None and not found.done:
        yield from text.paragraph(
            f"{of.uri} is not asked. If it still answers, give --from: the job ends there, and nothing is lost. "
            "Otherwise see that its DAG is paused: what completes there from now on is lost",
            columns,
        )
    yield from text.paragraph(
        "sinks outside of the storage are as they are: what they have committed since stays, and runs that run again "
        "commit again",
        columns,
    )
    for each in found.staged:
        what = "its metadata is unreadable" if each.names is None else ", ".join(each.names) or "nothing"
        told = f"; told again: {', '.join(each.undelivered)}" if each.undelivered else ""
        yield from text.paragraph(f"  checkpoint {each.checkpoint} has staged: {what}{told}", columns)
