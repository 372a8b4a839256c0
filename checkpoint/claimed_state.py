"""State that no stage of the job claims, no hook and no source (semantics R3, T7, T8). Pure functions."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from itertools import islice

from .assignment import RestoredStage
from .errors import NonRestoredStateError
from .model import StageSpec

ALLOWING = "CheckpointConfig(allow_non_restored_state=True)"
"""What lets state be left behind by every restore, for error texts."""


def check_claimed_by_stages(
    restored: Iterable[RestoredStage], stages: Sequence[StageSpec], allowing: str, **where: str | int
) -> None:
    """Check that each stage that has state is still there, by its uid (semantics R3).

    Args:
        restored: what the checkpoint or savepoint holds of each stage.
        stages: what the job runs.
        allowing: what lets state be left behind, for the error text.
        **where: the job, and which checkpoint or savepoint, for the error text.

    Raises:
        NonRestoredStateError: a stage is gone; the text names the uids on both sides.
    """
    claimed, restored = {stage.uid for stage in stages}, tuple(restored)
    unclaimed = sorted((each for each in restored if each.state and each.uid not in claimed), key=lambda each: each.uid)
    if unclaimed:
        raise NonRestoredStateError(
            "the checkpoint holds state that no stage claims: was a stage renamed or removed? Give the stage its old "
            f"name by `uid=`, or leave that state behind by {allowing}",
            **where,
            unclaimed=", ".join(each.uid for each in unclaimed),
            state=_listed(f"{each.uid}: {name}" for each in unclaimed for name in each.state),
            new=", ".join(sorted(claimed - {each.uid for each in restored})) or "none",
            stages=", ".join(sorted(claimed)),
        )


def check_claimed_by_hooks(stateful: Iterable[str], names: Collection[str], **where: str | int) -> None:
    """Check that each state of a master hook belongs to one that is there.

    Args:
        stateful: names of the hooks whose state there is.
        names: of the hooks that are there.
        **where: the job, and which checkpoint or savepoint, for the error text.

    Raises:
        NonRestoredStateError: one belongs to none (semantics T7, R3).
    """
    unclaimed = sorted(set(stateful) - set(names))
    if unclaimed:
        raise NonRestoredStateError(
            "the checkpoint holds state that no master hook claims: was a hook renamed or removed? Give it its old "
            "name, or leave that state behind by allow_non_restored_state=True",
            **where,
            unclaimed=", ".join(unclaimed),
            hooks=", ".join(sorted(names)) or "none",
        )


def check_claimed_by_sources(
    positions: Iterable[str], names: Collection[str], allowing: str, **where: str | int | None
) -> None:
    """Check that each source whose position there is is still there, by its name.

    A source that was renamed begins at the beginning, and reads again what the old one has read.

    Args:
        positions: names of the sources that have a position.
        names: of the sources that are there.
        allowing: what lets positions be left behind, for the error text.
        **where: the job, and which checkpoint or savepoint, for the error text.

    Raises:
        NonRestoredStateError: a source is gone; the text names the sources on both sides (semantics R3).
    """
    positions = set(positions)
    unclaimed = sorted(positions - set(names))
    if unclaimed:
        raise NonRestoredStateError(
            "the checkpoint holds the position of a source that the DAG no longer has: was a source renamed or "
            "removed? What it has read would be read again. Give the source its old name by `name=`, or leave its "
            f"position behind by {allowing}",
            **where,
            unclaimed=", ".join(unclaimed),
            new=", ".join(sorted(set(names) - positions)) or "none",
            sources=", ".join(sorted(names)) or "none",
        )


def _listed(names: Iterable[str]) -> str:
    """List the first of many names for an error text."""
    first = list(islice(names, 11))
    return ", ".join(first[:10]) + (", …" if len(first) > 10 else "")
