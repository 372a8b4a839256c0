"""Finds the live files for one version of the head, which may not be deleted (semantics C3).

Live are: all files of a pending attempt's executions, and of executions of an ended attempt that a next one may carry
over; the checkpoints that these attempts restore; the metadata of every retained checkpoint, and of checkpoints that
savepoints are being made from, with each file that it names; the copies of a savepoint that is being imported; the
files that a waiting notice needs; and the records of the newest failed checkpoints, for people (O3). Positions of
sources, in attempts and checkpoints, name files too.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field

from ...storage.errors import DocumentError, GoneError
from ..documents import layout
from ..documents.acknowledgement import StateHandle
from ..documents.attempt import DocumentRef, PendingDocument
from ..documents.entries import EndedEntry
from ..documents.head import Head
from ..extensions.committables import kept_for
from ..reasons import Status
from ..store import metadata_file
from ..store.attempt_documents import AttemptDocuments
from ..store.job_files import JobFiles
from ..store.metadata_file import LastWritten, References, keys_of


@dataclass(slots=True)
class Live:
    """Live files, as keys, as executions, and as folders whose references are unknown."""

    keys: set[str] = field(default_factory=set)
    tokens: set[tuple[int, str, str]] = field(default_factory=set)
    """Home, stage and token of executions all of whose files are kept."""
    epochs: set[str] = field(default_factory=set)
    """Epochs that may still have to be read (again), so that their input is kept."""
    pending_metadata: set[str] = field(default_factory=set)
    """Keys of pending checkpoints' metadata; variants that leave out stages are kept too."""
    imports: set[int] = field(default_factory=set)
    """Checkpoints into whose folders a savepoint is being copied; all files in them are kept."""
    recorded: Mapping[int, EndedEntry] = field(default_factory=dict)
    """Failed checkpoints whose record is kept, for people (semantics O3)."""
    outdated: bool = False
    """Whether the document of a carryable attempt could not be read. If the head has changed since, another cleaner has
    deleted the document because the next attempt holds those executions now, and this result must not be used."""
    unknown: dict[str, str] = field(default_factory=dict)
    """Unreadable metadata, with the problem; its folder and all older ones are kept."""

    def holds(self, key: str) -> bool:
        """Tell whether a live object refers to the key, or may do so."""
        if key in self.keys or layout.whole_metadata(key) in self.pending_metadata:
            return True
        if layout.execution_of(key) in self.tokens or self._is_record(key):
            return True
        checkpoint = layout.checkpoint_of(key) or 0
        if checkpoint in self.imports:
            return True
        return any(checkpoint <= (layout.checkpoint_of(broken) or 0) for broken in self.unknown)

    def _is_record(self, key: str) -> bool:
        """Tell whether a key is part of a record; a rejected acknowledgement is deleted with its files."""
        ended, execution = self.recorded.get(layout.record_of(key) or 0), layout.execution_of(key)
        if ended is None or execution is None:
            return ended is not None
        return execution[2] not in ended.rejected or not key.startswith(layout.ack_folder(*execution[:2]))


def find_live(files: JobFiles, documents: AttemptDocuments, head: Head, known: LastWritten) -> Live:
    """Find the live files: read the documents of attempts and the metadata of every retained checkpoint.

    Args:
        files: the job's files.
        documents: reads the documents of attempts.
        head: the version of the head.
        known: references of the metadata that this process has written last, which is not read.

    Raises:
        GoneError: the document of a pending attempt is gone.
        DocumentError: it is broken.
    """
    live = Live(recorded=head.recorded())
    for entry in head.pending:
        live.keys.add(layout.pending(entry.id, entry.token))
        live.pending_metadata.add(layout.metadata(entry.id, entry.token))
        _keep_attempt(files, known, live, documents.of(entry), ())
    for epoch in dict.fromkeys(ended.epoch for ended in head.history):
        ended = head.carryable(epoch)
        document = documents.readable(ended)
        live.outdated |= ended is not None and document is None
        if ended is not None and document is not None:
            live.keys.add(layout.pending(ended.id, ended.token))
            _keep_attempt(files, known, live, document, ended.rejected)
        unfinished = head.unfinished(epoch)
        if unfinished is not None:
            # The next attempt needs its document even if none of its executions can be carried over.
            live.keys.add(layout.pending(unfinished.id, unfinished.token))
            live.keys |= _claims(documents.readable(unfinished))
    for completed in head.completed:
        live.epochs.update((completed.epoch, *completed.replayed))
        _keep_completed(files, known, live, completed.metadata)
    live.keys.update(segment.document.key for segment in head.segments)
    if head.importing is not None:
        live.imports.add(head.importing.home)
    for savepoint in head.savepoints:
        if savepoint.status is Status.PENDING and savepoint.source is not None:
            _keep_completed(files, known, live, savepoint.source.metadata)
    # Last, because metadata whose key is live already counts as read.
    for notice in head.notices:
        live.keys |= kept_for(files, notice)
    return live


def _claims(document: PendingDocument | None) -> set[str]:
    """Give the handovers and declines of an attempt, which tell the tasks that have run, and have to run again."""
    if document is None:
        return set()
    executions = document.executions.items()
    claimed = {layout.handover(each.home, uid, each.token) for uid, each in executions}
    return claimed | {layout.decline(each.home, uid, each.token) for uid, each in executions}


def _keep_attempt(
    files: JobFiles, known: LastWritten, live: Live, document: PendingDocument, rejected: Collection[str]
) -> None:
    live.tokens.update(
        (execution.home, uid, execution.token)
        for uid, execution in document.executions.items()
        if execution.token not in rejected
    )
    if document.hooks is not None and document.hooks.token not in rejected:
        live.keys.add(layout.hook_answers(document.hooks.home, document.hooks.token))
    live.epochs.update((document.epoch, *(replayed.epoch for replayed in document.replay)))
    live.keys.update(keys_of(document.slice))
    if document.restore is not None:
        _keep_completed(files, known, live, document.restore.metadata)


def _keep_completed(files: JobFiles, known: LastWritten, live: Live, ref: DocumentRef) -> None:
    if ref.key in live.keys:
        return
    live.keys.add(ref.key)
    referred = known.of(ref)
    try:
        if referred is None:
            referred = References()
            for _ in referred.through(metadata_file.read(files, ref)):
                pass
        for listed in referred.lists:
            _keep_table(files, live, listed)
    except (GoneError, DocumentError) as error:
        problem = f"what it refers to is not known, so neither it nor anything before it was cleaned: {error}"
        live.unknown[ref.key] = problem
    if referred is not None:
        live.keys |= referred.keys
        live.epochs |= referred.epochs


def _keep_table(files: JobFiles, live: Live, listed: StateHandle) -> None:
    """Keep the manifests and files of a growing table; checkpoints share manifests, and each is read once."""
    for manifest in metadata_file.read_list(files, listed).manifests:
        if manifest.document.key not in live.keys:
            live.keys.update(handle.path for handle in metadata_file.read_manifest(files, manifest))
            live.keys.add(manifest.document.key)
