"""The head against the files: what it names and is damaged, and what is there and it does not name."""

from __future__ import annotations

from collections.abc import Callable, Iterator

from ..answers import FilesProgress
from ..coordinator import Coordinator
from ..documents.head import Head
from ..reasons import Status
from ..runtime import Runtime
from ..views.wording import duration, size
from .findings import Finding, error, warning

NAMED = 3
"""Keys that one finding names."""
CLEANS_MS = 60_000
"""How long the cleaning after a completion may take, before what it should have deleted is worth a finding."""


def damages(
    storage: str, coordinator: Coordinator, *, deep: bool, on_progress: Callable[[FilesProgress], None]
) -> Iterator[Finding]:
    """Compare every retained checkpoint with its files, and tell of each file that has been checked."""
    found = coordinator.verify(deep=deep, on_progress=on_progress)
    whole = next((each.checkpoint for each in found if each.whole), None)
    for each in found:
        if each.whole:
            continue
        restores = f"the next restore takes checkpoint {whole}" if whole else "no retained checkpoint is whole"
        yield error(
            "checkpoint-damaged",
            f"checkpoint {each.checkpoint} of {coordinator.job}",
            _named([f"{damage.key}: {damage.problem}" for damage in each.damages]),
            f"it cannot be restored: {restores}, and what came later is read again",
            f"Put the files back from a bucket version or a backup, then `cairn verify {coordinator.job} "
            f"{each.checkpoint} --storage {storage}`",
        )


def lists(storage: str, coordinator: Coordinator, *, deep: bool) -> Iterator[Finding]:
    """Check the lists of epochs that completed long ago."""
    for key, problem in coordinator.verify_lists(deep=deep).items():
        yield error(
            "epoch-list-damaged",
            coordinator.job,
            f"{key}: {problem}",
            "whether an old run has completed is not known, so it is refused",
            f"Put `{storage}/{coordinator.job}/{key}` back from a bucket version or a backup",
        )


def leftovers(storage: str, coordinator: Coordinator, runtime: Runtime) -> Iterator[Finding]:
    """Find what nothing refers to.

    While a checkpoint is pending, or the last one has failed, such files are as they should be: the next one that
    completes deletes them. So are they just after it: the cleaning follows the completion.
    """
    found = coordinator.leftovers()
    cleaned = _is_cleaned(coordinator.head(), runtime.now_ms())
    job = coordinator.job
    clean = f"cairn clean {job} --storage {storage}"
    if found.dead and cleaned:
        bytes_ = sum(each.size_bytes for each in found.dead)
        yield warning(
            "orphans",
            job,
            f"{len(found.dead)} files of {size(bytes_)} belong to no checkpoint: "
            + _named([each.key for each in found.dead]),
            "the last completed checkpoint should have deleted them: the cleaning failed, and the storage grows",
            clean,
        )
    if found.uploads and cleaned:
        oldest_ms = runtime.now_ms() - min(each.initiated_ms for each in found.uploads)
        yield warning(
            "uploads-pending",
            job,
            f"{len(found.uploads)} uploads of dead drivers were never ended, the oldest from {duration(oldest_ms)} ago",
            "their parts are paid for, and no listing shows them",
            clean,
        )
    if found.foreign:
        yield warning(
            "foreign-files",
            job,
            f"another program has written among the checkpoints: {_named(found.foreign)}",
            "Cairn leaves them alone, but deleting the job's folder deletes them too",
            f"Move them away: `aws s3 mv` or `mv` out of `{storage}/{job}/`",
        )


def _is_cleaned(head: Head, now_ms: int) -> bool:
    """Tell whether the last thing that happened was a completion, and its cleaning has had its time."""
    last = max(head.history, key=lambda entry: entry.id, default=None)
    if head.pending or last is None or last.status is not Status.COMPLETED:
        return False
    return now_ms - last.ended_at_ms >= CLEANS_MS


def _named(items: list[str] | tuple[str, ...]) -> str:
    more = f", and {len(items) - NAMED} more" if len(items) > NAMED else ""
    return "; ".join(items[:NAMED]) + more
