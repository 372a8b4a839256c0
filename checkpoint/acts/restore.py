"""Chooses the checkpoint to restore: the newest completed one that is whole (semantics R1, R2, R3).

If a file of a checkpoint is gone or altered, the search falls back to the checkpoint before, and the report names the
file and the damage. A store that does not answer is an error, never damage. Nothing is written or deleted.
"""

from __future__ import annotations

from dataclasses import replace

from ...storage.errors import GoneError
from ..answers import Damage
from ..documents import layout
from ..documents.attempt import EpochDocument, ReplayedEpoch, RestorePointer
from ..documents.entries import CompletedEntry
from ..documents.head import Head
from ..errors import NoCheckpointError
from ..rules.restored_state import RestoreChoice
from ..store.job_files import JobFiles
from ..store.verification import verify


def choose(files: JobFiles, head: Head) -> RestoreChoice:
    """Find the newest completed checkpoint that is whole.

    Raises:
        NoCheckpointError: every completed checkpoint is damaged, or the input of a damaged one is gone. Starting empty
            would lose their state, so a user has to decide.
        UnavailableError: the store did not answer.
        ForbiddenError: the store refused to answer.
    """
    damages: list[Damage] = []
    bypassed: list[CompletedEntry] = []
    for entry in reversed(head.completed):
        found = verify(files, entry)
        if found.whole:
            # A bypassed checkpoint may itself have replayed epochs, which are lost with it.
            lost = [epoch for each in reversed(bypassed) for epoch in (*each.replayed, each.epoch)]
            replay = tuple(_replayed(files, epoch) for epoch in lost)
            pointer = RestorePointer(entry.id, entry.metadata)
            return RestoreChoice(
                pointer, replay, tuple(damages), found.stages, found.hooks, found.slice, found.backlogs, found.read
            )
        damages.extend(found.damages)
        record = head.import_of(entry.id)
        if record is not None:
            raise NoCheckpointError(
                f"the job was started from a savepoint, as checkpoint {entry.id}, and that is damaged: "
                f"{found.damages[0]}. The job cannot go back to what came before it. Put the file back, or start from "
                f"a savepoint again: `cairn resume {files.job} --from PATH --again {files.storage_option}`",
                job=files.job,
                checkpoint=entry.id,
                savepoint=record.origin.uri,
                damages=len(damages),
            )
        bypassed.append(entry)
    if bypassed:
        raise NoCheckpointError(
            f"no retained checkpoint can be restored: {damages[0]}; put the file back, or run the job under another "
            "name to start empty",
            job=files.job,
            retained=len(bypassed),
            damages=len(damages),
        )
    return RestoreChoice(None)


def _replayed(files: JobFiles, epoch: str) -> ReplayedEpoch:
    key = layout.epoch_slice(epoch)
    try:
        document, _ = files.read(EpochDocument, key)
    except GoneError as error:
        raise NoCheckpointError(
            "the newest checkpoint is damaged, and the input of the epoch that it held is not known any more; put the "
            "checkpoint's file or the epoch's document back",
            job=files.job,
            epoch=layout.run_id_of(epoch),
            key=files.full(key),
        ) from error
    # The checkpoint before holds the positions.
    return ReplayedEpoch(epoch, replace(document.slice, positions=None))
