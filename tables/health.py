"""Checks of a group's tables before a run: can they be reached, written and committed to? (decision 0056).

Each check does what an epoch will do, and leaves nothing: a file below the folder of staged files is written and
deleted, and a commit is tried that cannot win. What no probe sees is skipped by name.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from importlib.metadata import requires, version

from packaging.requirements import Requirement

from ..checkpoint.documents.staged_tables import HIDDEN
from ..checkpoint.errors import CheckpointError, InvalidConfigError
from ..checkpoint.health.findings import Examination, Finding, error
from ..checkpoint.masking import one_line
from ..storage.clock import system_runtime
from .contract import NewTable, OpenTable
from .sink import TableSink

_PACKAGE = "airflow-cairn"
_NO_EPOCH = "no epoch of the job could write the table"


def examine_tables(sinks: Iterable[TableSink], *, write: bool) -> Examination:
    """Check each table of a group, with the credentials of its connection.

    Args:
        sinks: those of the group.
        write: whether the probes of the rights may be made.
    """
    found = Examination()
    for sink in sinks:
        examine_table(found, sink, write=write)
    return found


def examine_table(found: Examination, sink: TableSink, *, write: bool) -> None:
    """Check one table; a check that needs what an earlier one misses is left out."""
    name, kind = f"table {sink.name.partition('.')[2]}", sink.table.extra
    if not found.run(f"{name}: versions", lambda: _versions(name, kind)):
        return
    opened: list[OpenTable | NewTable] = []

    def look() -> Iterator[Finding]:
        try:
            opened.append(sink.open())
            _features(found, name, sink, opened[0])
        except InvalidConfigError as missing:
            yield error("table-missing", name, missing.message, _NO_EPOCH, "Do that, then check again")
        except CheckpointError as refused:
            yield error("table-refused", name, refused.message, _NO_EPOCH, "Change the table, or publish the rows")
        except Exception as away:  # noqa: BLE001 - of a library: whatever it raises
            mend = f"Look at the connection {sink.table.conn_id or 'of this worker'}, and whether its server answers"
            yield error("table-unreachable", name, _said(away), _NO_EPOCH, mend)

    if not found.run(f"{name}: there", look):
        return
    table = opened[0]
    if not write:
        found.skipped[f"{name}: rights"] = "nothing was to be written"
        return
    token = system_runtime().new_token()
    who = f"the identity of the connection {sink.table.conn_id}" if sink.table.conn_id else "this worker's identity"

    def stage() -> Iterator[Finding]:
        mend = f"Let {who} write and delete in {table.files.url}/{HIDDEN}/"
        yield from _tried("table-write", name, mend, lambda: table.files.probe(f"{HIDDEN}/doctor-{token}"))

    if sink.stages_files:
        found.run(f"{name}: staging", stage)
    if isinstance(table, NewTable):
        found.skipped[f"{name}: commit"] = "there is no table yet: whether the first commit may create it is not seen"
        return

    def commit() -> Iterator[Finding]:
        yield from _tried("table-commit", name, f"Let {who} do that", lambda: table.probe(token))

    found.run(f"{name}: commit", commit)
    if table.unseen:
        found.hints.append(f"{name}: the probe of the commit does not see {table.unseen}")


def _versions(name: str, extra: str) -> Iterator[Finding]:
    for requirement in map(Requirement, requires(_PACKAGE) or ()):
        if requirement.marker is None or not requirement.marker.evaluate({"extra": extra}):
            continue
        if not requirement.specifier.contains(found := version(requirement.name), prereleases=True):
            what = f"{requirement.name} {found} is installed, and this Cairn is made for {requirement.specifier}"
            yield error("table-library", name, what, _NO_EPOCH, f"pip install 'airflow-cairn[{extra}]'")


def _features(found: Examination, name: str, sink: TableSink, table: OpenTable | NewTable) -> None:
    described, _ = sink.look_at(table)
    by_reason: dict[str, list[str]] = {}
    for mode, why in described.refused.items():
        by_reason.setdefault(why, []).append(mode)
    found.hints += [f"{name} takes no {', '.join(modes)}: it {why}" for why, modes in by_reason.items()]
    if table.no_way_back and sink.table.on_rewind == "roll_back":
        found.hints.append(f"{name}: after a rewind appended rows cannot be taken back: {table.no_way_back}")


def _tried(kind: str, name: str, mend: str, probe: Callable[[], None]) -> Iterator[Finding]:
    try:
        probe()
    except Exception as failed:  # noqa: BLE001 - of a library: whatever it raises
        yield error(kind, name, _said(failed), "the rows of an epoch would be computed, and kept out", mend)


def _said(failed: Exception) -> str:
    return one_line(f"{type(failed).__name__}: {failed}")
