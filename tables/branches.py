"""The sink of an Iceberg table that stages write by branches: it fast-forwards `main` once (decision 0056).

One request asserts where `main` and the branch are, moves `main`, sets the mark and removes the epoch's branches, so a
process that dies leaves all of it or nothing. Where `main` is no longer between the branch's beginning and its end,
others have written, or have rolled back what the branch begins with: then the notice stays.
"""

from __future__ import annotations

import logging
import re
from collections.abc import Iterator, Mapping, Sequence
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

from ..checkpoint.documents import staged_tables
from ..checkpoint.documents.staged_tables import Format, StagedBranch, StagedRows, TableDescription, staged_of
from ..checkpoint.errors import InvalidConfigError, InvalidStateError
from .contract import Mark, NewTable, OpenTable, refused
from .declared import IcebergTable
from .iceberg import OpenIceberg, retention
from .iceberg_history import tag_of, tags_of
from .sink import TRIES, TableSink, described_at

if TYPE_CHECKING:
    from ..checkpoint.documents.strict_json import Json
    from ..checkpoint.extensions.committables import CheckpointNotice, Committable
    from ..checkpoint.extensions.contracts import FailedCheckpoint

log = logging.getLogger("airflow_cairn")

MAIN = "main"


class BranchSink(TableSink):
    """The master hook and listener of one table that is written by branches."""

    stages_files = False

    @property
    def reads(self) -> bool:
        """Always: a branch begins with what the former epochs have written."""
        return True

    def restore(self, checkpoint: int, state: Json | bytes | None) -> None:
        """Remember how the checkpoint's epoch has named its branches, which nothing commits any more."""
        super().restore(checkpoint, state)
        before = described_at(checkpoint, state)
        self._earlier = before.staging if before and before.parts else ""

    def discard(self, failed: Sequence[FailedCheckpoint]) -> None:
        """Drop the branches of checkpoints that failed; the trigger drops those of the restored one."""
        table = self._loaded()
        for each in failed:
            _drop(table, f"cairn_{self._attempt(each.checkpoint, each.timestamp_ms)}")

    def trigger(self, checkpoint: int, timestamp_ms: int) -> Json:
        """Fix the table and the beginning of the names of the epoch's branches.

        Raises:
            InvalidStateError: the library cannot move the table's branches.
        """
        table = self._loaded()
        described, _ = self.look_at(table, f"cairn_{self._attempt(checkpoint, timestamp_ms)}_{self._new_token()}")
        if self._earlier:
            _drop(table, self._earlier)
        return staged_tables.encode(described)

    def look_at(self, table: OpenTable | NewTable, staging: str = "") -> tuple[TableDescription, list[Any]]:
        """Describe a loaded table; its columns are Spark's matter.

        Raises:
            InvalidStateError: the library cannot move the table's branches.
        """
        assert isinstance(table, OpenIceberg), "a table with branch=True has no create=True"
        metadata = table.library.metadata
        if metadata.format_version > 2:
            raise refused(self.table.title, f"has format version {metadata.format_version}")
        described = TableDescription(
            self.table.title,
            str(metadata.table_uuid),
            staging,
            {"type": "struct", "fields": []},
            version=str(metadata.current_snapshot_id or ""),
            format=Format.ICEBERG,
            parts=self._parts,
            location=table.library.location(),
            rolls_back=self.table.on_rewind == "roll_back",
        )
        return described, []

    def runs_again(self, committables: Sequence[Committable]) -> Mapping[str, str]:
        """Give the stage whose branch cannot become `main`, unless a stage has run again for that in this epoch.

        A branch beside the epoch's notes for which one that was. So a process that finds its own branch's note goes on.
        """
        again = {}
        for each in (each for each in committables if each.name == self.name):
            rows = staged_of(each.value, where=each.name)
            assert rows.branch is not None, "a branch was staged"
            table = self._loaded()
            metadata = table.library.metadata
            problem = _unfit(metadata, rows.folder, rows.branch)
            if problem is None or str(metadata.table_uuid) != rows.branch.table_id:
                continue
            if _note(table, staged_tables.notes_of(rows.staging), rows.folder):
                again[each.stage] = f"{problem}; it begins with what is there now"
        return again

    def notify_checkpoint_complete(self, notice: CheckpointNotice) -> None:
        """Fast-forward `main` to the checkpoint's branch, unless that has been done; then remove the epoch's branches.

        Raises:
            InvalidStateError: `main` has moved since the stage acknowledged, the branch is gone or was written since,
                or two stages have each written one.
            RetryLaterError: others change the table so often that no request came through.
        """
        found = self._staged(notice)
        if not found:
            return
        mark = self._mark(notice, found)
        table = self._loaded(mark)
        if not table.has(mark):
            if len(found) > 1:
                raise self._refused(
                    mark,
                    f"{len(found)} stages of one epoch have each written a branch, and one of them can become main",
                )
            done = f"moved main of {self.table.title} to the branch {found[0].folder}"
            self._commit_with(table, mark, lambda: self._forward(table, mark, found[0]), done)
        _drop(table, found[0].staging)

    def notify_checkpoint_aborted(self, notice: CheckpointNotice) -> None:
        """Drop the branches of executions that no checkpoint will hold."""
        for each in self._staged(notice):
            _drop(self._loaded(), each.folder)

    @property
    def _parts(self) -> tuple[str, ...]:
        assert isinstance(self.table, IcebergTable), "no other table has branches"
        return self.table.parts

    def _loaded(self, mark: Mark | None = None) -> OpenIceberg:
        try:
            table = self.open()
        except InvalidConfigError as gone:
            if mark is not None:
                raise self._refused(mark, "it was dropped or renamed") from gone
            raise InvalidConfigError(
                f"the catalog has no table {self.table.title}, which branch=True expects: create it, or name another "
                "one in the group's tables",
                table=self.table.title,
            ) from gone
        assert isinstance(table, OpenIceberg), "a table with branch=True has no create=True"
        return table

    def _forward(self, table: OpenIceberg, mark: Mark, staged: StagedRows) -> bool:
        """Move `main`, if the loaded version is still the newest.

        Returns:
            False: another writer was faster.
        """
        from pyiceberg.exceptions import CommitFailedException
        from pyiceberg.table.update import AssertTableUUID, SetPropertiesUpdate

        assert staged.branch is not None, "a branch was staged"
        library = table.library
        refs, now = library.metadata.refs, library.metadata.current_snapshot_id
        head = int(staged.branch.head)
        if problem := _unfit(library.metadata, staged.folder, staged.branch):
            raise self._refused(mark, problem)
        updates: list[Any] = [
            SetPropertiesUpdate(
                action="set-properties",
                updates={**table.properties(mark), **table.branch_properties(mark, int(staged.branch.base or 0), head)},
            ),
            *_removals(refs, staged.staging),
            *_tagged(library.metadata, mark, head),
        ]
        if head not in _history(library.metadata, now):
            updates.insert(0, _set_ref(MAIN, "branch", head, retention(library.metadata)))
        there = refs.get(staged.folder)
        requirements = (
            AssertTableUUID(type="assert-table-uuid", uuid=library.metadata.table_uuid),
            _at(MAIN, now),
            _at(staged.folder, there and there.snapshot_id),
        )
        try:
            library.catalog.commit_table(library, requirements, tuple(updates))
        except CommitFailedException:
            return False
        return True

    def _refused(self, mark: Mark, problem: str) -> InvalidStateError:
        return InvalidStateError(
            f"main of {self.table.title} cannot be moved to the branch of checkpoint {mark.checkpoint}: {problem}. "
            f"Undo that if you can, or {self._give_up(mark)}, and read the epoch again by `cairn rewind`; then clear "
            "wait_for_checkpoint",
            code="table_changed",
            table=self.table.title,
        )


def _unfit(metadata: Any, name: str, branch: StagedBranch) -> str | None:
    """Say why `main` cannot be moved to a branch's end."""
    head, now = int(branch.head), metadata.current_snapshot_id
    there = metadata.refs.get(name)
    if str(metadata.table_uuid) != branch.table_id:
        return "it is another table of the same name"
    if metadata.snapshot_by_id(head) is None:
        return f"the branch {name} is gone, and so is its snapshot {head}"
    if there is not None and there.snapshot_id != head:
        return f"the branch {name} was written after its stage acknowledged: it is at snapshot {there.snapshot_id}"
    if str(now or "") == branch.base or head in _history(metadata, now):
        return None
    written = []
    for number in _history(metadata, head):
        if str(number) == branch.base:
            break
        written.append(number)
    else:
        written = []  # its beginning has expired, or main had no snapshot: then main is where it was, or has moved
    if now in written:
        return None
    snapshot = metadata.snapshot_by_id(now) if now else None
    about = f", {snapshot.summary.operation.value}" if snapshot and snapshot.summary else ""
    return (
        f"since the stage acknowledged, main has moved from snapshot {branch.base or 'none'} to {now or 'none'}{about}"
    )


def _history(metadata: Any, number: int | None) -> Iterator[int]:
    """Yield a snapshot and those before it, until one has expired."""
    while number and (snapshot := metadata.snapshot_by_id(number)):
        yield number
        number = snapshot.parent_snapshot_id


def _note(table: OpenIceberg, beginning: str, branch: str) -> bool:
    """Note that a stage runs again for a branch; False where one of the epoch has done so for another branch."""
    from pyiceberg.exceptions import CommitFailedException
    from pyiceberg.table.update import AssertTableUUID

    own = f"{beginning}_{staged_tables.digest(branch)[:16]}"
    for _ in range(TRIES):
        metadata = table.library.metadata
        if noted := [name for name in metadata.refs if name.startswith(beginning)]:
            return noted == [own]
        if metadata.current_snapshot_id is None:
            return False
        note = _set_ref(own, "branch", metadata.current_snapshot_id)
        requirements = (AssertTableUUID(type="assert-table-uuid", uuid=metadata.table_uuid), _at(own, None))
        try:
            table.library.catalog.commit_table(table.library, requirements, (note,))
        except CommitFailedException:
            table.refresh()
        except Exception:
            table.refresh()
            if own not in table.library.metadata.refs:
                raise
        else:
            return True
    return False


def _at(name: str, snapshot: int | None) -> Any:
    """Require that a branch is at a snapshot, or does not exist."""
    from pyiceberg.table.update import AssertRefSnapshotId

    return AssertRefSnapshotId.model_validate({"ref": name, "snapshot-id": snapshot})


def _set_ref(name: str, kind: str, snapshot: int, more: Mapping[str, Any] = MappingProxyType({})) -> Any:
    from pyiceberg.table.update import SetSnapshotRefUpdate

    to = {"action": "set-snapshot-ref", "ref-name": name, "type": kind, "snapshot-id": snapshot}
    return SetSnapshotRefUpdate.model_validate({**to, **more})


def _removal(name: str) -> Any:
    from pyiceberg.table.update import RemoveSnapshotRefUpdate

    return RemoveSnapshotRefUpdate.model_validate({"action": "remove-snapshot-ref", "ref-name": name})


def _removals(refs: dict[str, Any], beginning: str) -> list[Any]:
    return [_removal(name) for name in refs if re.match(rf"{re.escape(beginning)}(_|\Z)", name)]


def _tagged(metadata: Any, mark: Mark, head: int) -> list[Any]:
    """Tag what the checkpoint has made of the table, which a rewind may go back to, and take away what none may."""
    if mark.retained is None:
        return []
    tags = tags_of(metadata, mark.owner).items()
    gone = [_removal(name) for checkpoint, name in tags if checkpoint not in mark.retained]
    return [_set_ref(tag_of(mark.owner, mark.checkpoint), "tag", head), *gone]


def _drop(table: OpenIceberg, beginning: str) -> None:
    """Drop the branches whose names begin so; what another process drops at the same time is dropped too."""
    from pyiceberg.exceptions import CommitFailedException
    from pyiceberg.table.update import AssertTableUUID

    table.refresh()
    library = table.library
    if removals := _removals(library.metadata.refs, beginning):
        uuid = AssertTableUUID(type="assert-table-uuid", uuid=library.metadata.table_uuid)
        try:
            library.catalog.commit_table(library, (uuid,), tuple(removals))
        except CommitFailedException as error:
            log.info(
                "Could not drop the branches %s… of %s (%s). The next epoch drops them.",
                beginning,
                library.name(),
                error,
            )
