"""The sink of one table: fixes it for an epoch at the trigger, and commits the epoch's rows once (decision 0056).

Two processes may commit at once, and one may die before or after the commit. So the token of the commit is kept in the
table, in the same transaction as the rows: a process that finds it there commits nothing, and of two that do not the
format refuses the second, which then looks again.
"""

from __future__ import annotations

import copy
import logging
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from datetime import timedelta
from typing import TYPE_CHECKING, Any

from ..checkpoint.documents import staged_tables
from ..checkpoint.documents.staged_tables import (
    DATA,
    HIDDEN,
    PREFIX,
    READ,
    Mode,
    StagedRows,
    TableDescription,
    staged_of,
    types_of,
)
from ..checkpoint.errors import DamagedError, InvalidConfigError, InvalidStateError, RetryLaterError
from ..checkpoint.extensions.contracts import DEFAULT_TIMEOUT, FailedCheckpoint, MasterHook, RewindNotice
from ..checkpoint.remedies import forget_listener
from ..storage.clock import system_runtime
from .contract import (
    Access,
    Change,
    Mark,
    NewTable,
    OpenTable,
    OvertakenError,
    Staged,
    Undone,
    misfit,
    refused,
    unreadable,
)
from .staged_files import StagedFiles, listed
from .transactions import Due, commit_together, has_transactions

if TYPE_CHECKING:
    from ..checkpoint.documents.strict_json import Json
    from ..checkpoint.extensions.committables import CheckpointNotice
    from .declared import Declared

log = logging.getLogger("airflow_cairn")

LISTING = timedelta(minutes=30)
"""Longest time in which the trigger lists the files of a table that stages read, or takes rows back.

There may be some 100,000 files, and PostgreSQL finds the rows of a transaction by no index.
"""
TRIES = 10
"""Number of times that one call commits anew after another writer was faster."""


class TableSink(MasterHook):
    """The master hook and listener of one table.

    Args:
        name: by which the group knows the table.
        table: the declared table.
        access: gives the settings of a connection.
        new_token: makes the name of a folder.
        within: the timeout of the job's checkpoints; no call may take longer.
    """

    def __init__(
        self,
        name: str,
        table: Declared,
        access: Access,
        new_token: Callable[[], str] | None = None,
        within: timedelta = LISTING,
    ) -> None:
        self._name = name
        self.timeout = min(within, LISTING if table.read or table.on_rewind == "roll_back" else DEFAULT_TIMEOUT)
        self.table = table
        self._access = access
        self._earlier = self._since = self._table_id = self._restored = ""
        self._owner = ""
        self.beside: tuple[TableSink, ...] = ()
        """Sinks of other tables of the same catalog."""
        self._new_token = new_token or system_runtime().new_token

    def of_job(self, job: str, storage: str) -> TableSink:
        """Return this sink for a job, whose staged files have names of their own."""
        mine = copy.copy(self)
        mine._owner = staged_tables.digest(staged_tables.owner_of(job, storage))[:16]
        return mine

    @property
    def name(self) -> str:
        """The sink's name as a hook and as a listener."""
        return f"{PREFIX}{self._name}"

    stages_files = True
    """Whether stages write files beside the table, not to a branch of it."""

    @property
    def reads(self) -> bool:
        """Whether stages read the table: then the former epochs' rows are committed before the trigger asks."""
        return self.table.read

    def restore(self, checkpoint: int, state: Json | bytes | None) -> None:
        """Remember the list that the checkpoint's epoch has read by, which nothing reads again."""
        before = described_at(checkpoint, state)
        self.reset()
        if before:
            self._earlier, self._since, self._table_id = before.read, before.version, before.table_id
            self._restored = before.staging

    def reset(self) -> None:
        """Forget what `restore` has remembered."""
        self._earlier = self._since = self._table_id = self._restored = ""

    def discard(self, failed: Sequence[FailedCheckpoint]) -> None:
        """Delete what was staged for checkpoints that failed, but not what the restored one's epoch took over."""
        if not self._restored:
            return
        files = self.open().files
        # By name alone: the table may have moved since, or its URL may be spelled otherwise.
        taken_over = self._restored.rpartition("/")[0].rpartition("/")[2]
        for each in failed:
            name = f"{self._name}-{self._attempt(each.checkpoint, each.timestamp_ms)}"
            if name != taken_over:
                files.delete(f"{files.url}/{HIDDEN}/{name}")

    def _attempt(self, checkpoint: int, timestamp_ms: int) -> str:
        """Name a checkpoint as no other is named: of a job that began anew, the ids come again, but at other times."""
        return f"{self._owner}_{checkpoint}_{timestamp_ms:x}"

    def rewound(self, notice: RewindNotice) -> None:
        """Roll the table back to what it was before commits of checkpoints that no longer count.

        Raises:
            InvalidStateError: others have changed the table since.
        """
        if self.table.on_rewind == "keep":
            return
        table = self.open()
        kin = rf"{re.escape(notice.job)}\.[0-9a-f]{{8}}\.{re.escape(self._name)}"
        owner, shown = self._names(staged_tables.owner_of(notice.job, notice.storage))
        undone = Undone(owner, notice.to, notice.through, self._since, kin, shown, self._table_id)
        for _ in range(TRIES):
            if isinstance(table, NewTable):
                return
            try:
                found = table.roll_back(undone)
            except OvertakenError as why:
                raise InvalidStateError(
                    f"the job is at checkpoint {notice.to} again, and {self.table.title} cannot be rolled back: {why}. "
                    f"Take the rows of the later checkpoints out yourself ({why.by_hand}), or leave them: in both "
                    "cases give the table on_rewind='keep' until an epoch has completed",
                    code="table_changed",
                    table=self.table.title,
                ) from why
            if found is not None:
                if found:
                    text = "Rolled %s back: %d versions of checkpoints after %d no longer count."
                    log.info(text, self.table.title, found, notice.to)
                return
            table = self.open()
        raise self._busy()

    def trigger(self, checkpoint: int, timestamp_ms: int) -> Json:
        """Fix the table's columns, a folder that no other epoch uses, and the files that stages read.

        Raises:
            InvalidStateError: the library cannot append to the table, or its files are not its rows.
        """
        table = self.open()
        if self._earlier.startswith(f"{table.files.url}/"):
            table.files.delete(self._earlier)
        at = f"{self._name}-{self._attempt(checkpoint, timestamp_ms)}"
        staging = f"{table.files.url}/{HIDDEN}/{at}/{self._new_token()}"
        found, files = self.look_at(table, staging)
        if self.reads:
            found = replace(found, read=f"{staging}/{READ}", read_sha256=staged_tables.digest_of_list(files))
            table.files.write(f"{found.read}/files.parquet", listed(files))
        return staged_tables.encode(found)

    def look_at(
        self, table: OpenTable | NewTable, staging: str = ""
    ) -> tuple[TableDescription, list[tuple[str, Mapping[str, str | None]]]]:
        """Describe a loaded table, and list the files that stages read, if they do; nothing is changed.

        Raises:
            InvalidStateError: the library cannot append to the table, or its files are not its rows.
        """
        rolls_back = self.table.on_rewind == "roll_back" and not table.no_way_back
        found = replace(table.describe(staging), rolls_back=rolls_back)
        if problem := _unpromised(found.columns):
            found = replace(found, refused={each.value: problem for each in Mode})
        if not self.reads:
            if len(found.refused) == len(Mode):
                raise refused(found.name, found.refused[Mode.APPEND.value])
            return found, []
        files = [(each.url, each.partition) for each in table.data_files()]
        if odd := _unread(files, found.columns):
            raise unreadable(found.name, f"{odd}: rewrite it")
        return found, files

    def notify_checkpoint_complete(self, notice: CheckpointNotice) -> None:
        """Commit the checkpoint's rows, unless that has been done; then delete what else was staged for its epoch.

        Raises:
            InvalidStateError: the table has changed since the epoch began, so that the rows no longer fit, or lies
                elsewhere than they do; or stages change it in ways that do not go together.
            DamagedError: staged rows are gone or altered.
        """
        found = self._staged(notice)
        if not found:
            return
        mark = self._mark(notice, found)
        try:
            table = self.open()
        except InvalidConfigError as gone:
            raise self._changed(mark, gone.message) from gone
        if not _lie_below(table.files, found) and table.has(mark):
            log.warning("%s was not deleted: the files of %s lie elsewhere now", found[0].staging, self.table.title)
            return
        self._check_place(table, mark, found)
        manifests = [(each, table.files.manifest(each)) for each in found]
        staged = [Staged(rows, manifest) for rows, manifest in manifests if manifest is not None]
        mark = replace(mark, since=staged[0].manifest.version if staged else "")
        changing = [each for each in found if each.changes]
        if changing and not table.has(mark):
            if len(staged) == len(found):
                change = self._change(table, mark, changing, staged)
                if isinstance(table, NewTable):
                    table = self._created(table, mark, change)
                    self._check_place(table, mark, found)
                if not self._commit_beside(notice, self._due_of(table, mark, change)):
                    self._commit(table, mark, change)
            else:
                self._check_committed(mark)
        keep = [url for each in staged for url in each.data]
        keep += [f"{rows.folder}/{DATA}" for rows, manifest in manifests if manifest is None]
        stay = changing and changing[0].mode in table.names_files
        table.files.delete(found[0].staging, but=keep if stay else ())

    def due(self, notice: CheckpointNotice) -> Due | None:
        """Give the commit that another table's may take along; None if there is none, or the notice has a fault."""
        found = [each for each in self._staged(notice) if each.changes]
        if not found:
            return None
        mark, table = self._mark(notice, self._staged(notice)), self.open()
        if isinstance(table, NewTable) or table.has(mark) or not _lie_below(table.files, found):
            return None
        manifests = [table.files.manifest(each) for each in found]
        staged = [Staged(rows, each) for rows, each in zip(found, manifests, strict=True) if each is not None]
        if len(staged) < len(found):
            return None
        return self._due_of(table, mark, self._change(table, mark, found, staged))

    def _due_of(self, table: OpenTable, mark: Mark, change: Change) -> Due:
        return Due(table, self.table.title, mark, change, lambda: self._check_fits(table, mark, change))

    def _commit_beside(self, notice: CheckpointNotice, own: Due) -> bool:
        """Commit the tables of one catalog by one request. False: nothing goes along, or not all of it came through."""
        waiting = [each for each in self.beside if each.name in notice.waiting]
        if not waiting or not has_transactions(own.table):
            return False
        others = list[Due]()
        for each in waiting:
            try:
                others.extend(filter(None, [each.due(notice)]))
            except Exception as why:  # noqa: BLE001 - its own notice raises it
                log.info("Checkpoint %d: %s is not committed along: %s", notice.checkpoint, each.table.title, why)
        return bool(others) and commit_together([own, *others])

    def _mark(self, notice: CheckpointNotice, found: Sequence[StagedRows]) -> Mark:
        folders = "\n".join(sorted(each.folder for each in found))
        retained = notice.retained if self.table.on_rewind == "roll_back" else None
        owner, shown = self._names(found[0].owner)
        return Mark(owner, notice.checkpoint, staged_tables.digest(folders)[:32], shown, retained, notice.storage)

    def _names(self, job: str) -> tuple[str, str]:
        """Name the job's sink, and the checkpoint for readers, in the table.

        A job whose storage has another URI is another owner, and moves the same checkpoint on for readers.

        Args:
            job: the job, as a committable names it.
        """
        return f"{job}.{self._name}", f"cairn.checkpoint:{job.rpartition('.')[0]}.{self._name}"

    def notify_checkpoint_aborted(self, notice: CheckpointNotice) -> None:
        """Delete the rows of executions that no checkpoint will hold."""
        found = self._staged(notice)
        if found:
            files = self.open().files
            for each in found:
                if _lie_below(files, [each]):
                    files.delete(each.folder)
                else:
                    log.warning("%s was not deleted: the files of %s lie elsewhere now", each.folder, self.table.title)

    def _check_place(self, table: OpenTable | NewTable, mark: Mark, found: Sequence[StagedRows]) -> None:
        """Refuse a table that lies elsewhere than at the trigger: a catalog, or who creates it, may choose that."""
        if not _lie_below(table.files, found):
            raise InvalidStateError(
                f"the files of {self.table.title} lie in {table.files.url}, and the rows were staged in "
                f"{found[0].staging}. Have the table there, or {self._give_up(mark)}, and read the epoch again by "
                "`cairn rewind`: its next trigger stages where the table lies",
                code="table_changed",
                table=self.table.title,
            )

    def _created(self, table: NewTable, mark: Mark, change: Change) -> OpenTable:
        """Create the table, or find the one that somebody else has created."""
        columns = change.staged[0].manifest.columns
        if any(types_of(each.manifest.columns) != types_of(columns) for each in change.staged):
            raise self._changed(mark, "it does not exist, and its stages would create it with different columns")
        if any(each.manifest.table_id for each in change.staged):
            raise self._changed(mark, "it was dropped or renamed")
        table.create(columns)
        found = self.open()
        if isinstance(found, NewTable):
            raise RetryLaterError(f"{self.table.title} was dropped as soon as it was created", table=self.table.title)
        log.info("Created %s.", self.table.title)
        return found

    def open(self) -> OpenTable | NewTable:
        """Load the table's newest version."""
        return self.table.open(self._access)

    def _staged(self, notice: CheckpointNotice) -> list[StagedRows]:
        return [staged_of(each.value, where=each.name) for each in notice.committables if each.name == self.name]

    def _change(
        self, table: OpenTable | NewTable, mark: Mark, changing: Sequence[StagedRows], staged: Sequence[Staged]
    ) -> Change:
        ways = sorted({(each.mode.value, each.key) for each in changing})
        if len(ways) > 1:
            named = ", ".join(f"{mode}(key={list(key)})" if key else mode for mode, key in ways)
            raise InvalidStateError(
                f"the stages of one epoch change {self.table.title} in ways that do not go together: {named}. Have "
                f"them write in one way, {self._give_up(mark)}, and read the epoch again by `cairn rewind`",
                code="table_changed",
                table=self.table.title,
            )
        change = Change(Mode(ways[0][0]), ways[0][1], tuple(each for each in staged if each.rows.changes))
        if change.mode is Mode.UPSERT and len(change.staged) > 1:
            self._check_keys(mark, change, table.files)
        return change

    def _check_keys(self, mark: Mark, change: Change, files: StagedFiles) -> None:
        """Refuse a key that two stages have staged; one driver has looked at its own."""
        import pyarrow

        try:
            found = pyarrow.concat_tables(pyarrow.Table.from_batches([each]) for each in change.keys(files))
        except FileNotFoundError:
            self._check_committed(mark)
            return
        if len(found.group_by(list(change.key)).aggregate([])) < len(found):
            raise InvalidStateError(
                f"two stages of one epoch upsert a row of {self.table.title} with the same key, so it is open which "
                f"counts. Have one stage write each key, {self._give_up(mark)}, and read the epoch again by "
                "`cairn rewind`",
                code="table_changed",
                table=self.table.title,
            )

    def _commit(self, table: OpenTable, mark: Mark, change: Change) -> None:
        def attempt() -> bool:
            self._check_fits(table, mark, change)
            try:
                return table.commit(mark, change)
            except OvertakenError as why:
                raise InvalidStateError(
                    f"since the epoch was triggered, others have changed rows of {self.table.title} that "
                    f"{change.mode.value} would remove: {why}. Roll the table back to what it was, or "
                    f"{self._give_up(mark)}, and read the epoch again by `cairn rewind`; then clear "
                    "wait_for_checkpoint",
                    code="table_changed",
                    table=self.table.title,
                ) from why
            except FileNotFoundError:
                if table.files.are_there([*change.data, *(url for each in change.staged for url in each.deletes)]):
                    raise
                self._check_committed(mark)
                return False

        rows = sum(each.rows.rows for each in change.staged)
        self._commit_with(table, mark, attempt, f"committed {rows} rows to {self.table.title} ({change.mode.value})")

    def _commit_with(self, table: OpenTable, mark: Mark, attempt: Callable[[], bool], done: str) -> None:
        """Commit, and where another writer was faster look for the mark and commit again."""
        for _ in range(TRIES):
            if table.has(mark):
                return
            try:
                committed = attempt()
            except InvalidStateError:
                raise
            except Exception:
                # The answer may be lost, and the commit not: then the newest version has the mark.
                table.refresh()
                if table.has(mark):
                    return
                raise
            if committed:
                log.info("Checkpoint %d: %s.", mark.checkpoint, done)
                return
            table.refresh()
        raise self._busy()

    def _busy(self) -> RetryLaterError:
        return RetryLaterError(
            f"{self.table.title} is changed so often by others that no commit came through; the next task tries again",
            table=self.table.title,
            tries=TRIES,
        )

    def _check_committed(self, mark: Mark) -> None:
        """Look again where staged files are gone: another process deletes them once it has committed."""
        if not self.open().has(mark):
            raise DamagedError(
                f"rows that were staged for {self.table.title} are gone, and not in the table. Put the files back, or "
                f"{self._give_up(mark)} and read the epoch again by `cairn rewind`",
                code="staged_rows",
                table=self.table.title,
            )

    def _check_fits(self, table: OpenTable, mark: Mark, change: Change) -> None:
        try:
            now = table.describe("", [change.mode])
        except InvalidStateError as why:
            raise self._changed(mark, why.message) from why
        for each in change.staged:
            problem = misfit(each.manifest, now)
            if not problem and change.mode.value in now.refused:
                problem = f"it {now.refused[change.mode.value]}"
            if problem:
                raise self._changed(mark, problem)

    def _changed(self, mark: Mark, problem: str) -> InvalidStateError:
        return InvalidStateError(
            f"{self.table.title} has changed since the epoch began: {problem}. Change it back, or "
            f"{self._give_up(mark)}; then clear wait_for_checkpoint",
            code="table_changed",
            table=self.table.title,
        )

    def _give_up(self, mark: Mark) -> str:
        job = mark.owner.removesuffix(f".{self._name}").rpartition(".")[0]
        return f"give these rows up: {forget_listener(job, self.name, mark.checkpoint, mark.storage)}"


def _lie_below(files: StagedFiles, found: Sequence[StagedRows]) -> bool:
    return all(each.staging.startswith(f"{files.url}/{HIDDEN}/") for each in found)


def described_at(checkpoint: int, state: Json | bytes | None) -> TableDescription | None:
    """Give the table as a checkpoint's trigger has described it; None if it had none."""
    assert not isinstance(state, bytes), "a sink answers JSON"
    return None if state is None else staged_tables.description_of(state, where=f"checkpoint {checkpoint}")


def _unread(files: Iterable[tuple[str, Mapping[str, str | None]]], columns: Mapping[str, Any]) -> str | None:
    """Say which file Spark passes over, or lacks a column whose values cannot be given as texts."""
    kinds = {each["name"]: str(each["type"]).partition("(")[0] for each in columns["fields"]}
    for url, given in files:
        if _SKIPPED.match(url.rpartition("/")[2]):
            return f"has the file {url}, which Spark skips for its name"
        for name in given:
            if kinds.get(name) not in _GIVEN:
                return f"has the file {url} without the column {name}, whose values no text gives"
    return None


def _unpromised(columns: Mapping[str, Any]) -> str | None:
    """Say which column takes no null although no DataFrame can promise that of its type."""
    for each in columns["fields"]:
        if not each["nullable"] and each["type"] not in _REQUIRED:
            return (
                f"takes no null in the column {each['name']}, which no DataFrame can promise of its type: let the "
                "column take nulls"
            )
    return None


_REQUIRED = ("string", "binary", "boolean", "date", "timestamp", "byte", "short", "integer", "long", "float", "double")
"""Types of columns without nulls of which a DataFrame can promise that."""
_GIVEN = (*(each for each in _REQUIRED if each != "binary"), "decimal", "timestamp_ntz")
"""Types whose values Spark casts from a text."""
_SKIPPED = re.compile(r"[_.]|.*\._COPYING_\Z")
"""Names of files that Spark passes over without a word."""
