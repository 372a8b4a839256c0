"""A job in numbers as text: counts, distributions, failures by reason, failovers, restores."""

from __future__ import annotations

from collections.abc import Callable, Iterator

from ...checkpoint.documents.run_window import run_text
from ...checkpoint.views import wording
from ...checkpoint.views.stats import Distribution, Failover, JobStats
from . import text

_FAILOVERS = 10
"""Number of failovers to show."""


def lines(found: JobStats) -> list[str]:
    """Return the lines about a job."""
    columns = text.width()
    written = [
        f"job {found.job}{f' is {wording.how_stopped(found.stopped)}' if found.stopped else ''}",
        (
            f"  triggered {found.triggered}, in progress {found.in_progress}, completed {found.completed}, "
            f"failed {found.failed}, restored {found.restored}"
        ),
        (
            f"  wrote {wording.size(found.total_bytes)} in all; {found.waiting} requests wait; "
            f"{found.failures_in_a_row} counted failures in a row"
        ),
    ]
    for each in found.restarts:
        counted = wording.restart(each.restarts, each.left)
        said = f"  {run_text(each.run_id, each.input)}, checkpoint {each.checkpoint}: {counted}"
        written += text.paragraph(said, columns)
    written.append("")
    rows = [
        _cells("duration", found.duration_ms, lambda value: wording.duration(round(value))),
        _cells("size", found.size_bytes, lambda value: wording.size(round(value))),
        _cells("new bytes", found.new_bytes, lambda value: wording.size(round(value))),
        _cells("acks", found.acks, lambda value: f"{value:.3g}"),
    ]
    headings = (f"last {found.history}", "min", "avg", "p50", "p95", "p99", "max")
    written += text.table(headings, rows, right=headings[1:])
    if found.failures:
        written += ["", "failed, by reason:"]
        written += [f"  {count:>3} {reason}" for reason, count in found.failures.items()]
    if found.failovers:
        shown = found.failovers[-_FAILOVERS:]
        written += ["", "failovers:"]
        if len(found.failovers) > len(shown):
            written.append(f"  … {len(found.failovers) - len(shown)} older; --json has them")
        written += [line for each in shown for line in _failover(each, columns)]
    if found.restores:
        written += ["", "restores:"]
        for restore in found.restores:
            into = f" into {restore.into}" if restore.into else ""
            said = f"  {wording.moment(restore.at_ms)}  {restore.checkpoint}{into}, {restore.took_ms} ms: {restore.why}"
            written += text.paragraph(said, columns)
            for damage in restore.damages:
                written += text.paragraph(f"    bypassed: {damage}", columns)
    return written


def _failover(found: Failover, columns: int) -> Iterator[str]:
    yield from text.paragraph(
        f"  {wording.moment(found.at_ms)}  checkpoint {found.checkpoint} of {run_text(found.run_id, found.input)}, "
        f"attempt {found.attempt}, {found.acks}/{found.stages} acknowledged",
        columns,
    )
    yield from text.paragraph(f"    {found.root}", columns)
    for other in found.others:
        yield from text.paragraph(f"    with it: {other}", columns)


def _cells(name: str, found: Distribution | None, say: Callable[[float], str]) -> tuple[str, ...]:
    if found is None:
        return (name, *("-" for _ in range(6)))
    return (name, *(say(each) for each in (found.min, found.avg, found.p50, found.p95, found.p99, found.max)))
