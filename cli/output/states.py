"""Output of `cairn state`, `cairn diff` and `cairn compact`: the rows of a state, and the merging of its deltas.

pyarrow reads rows; only `cairn compact` starts a Spark. A file that both checkpoints name holds the same rows in both,
so `cairn diff` does not read it, unless the state has deltas (semantics K1), which replace rows of older files.
"""

from __future__ import annotations

import argparse
import hashlib
import json
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from dataclasses import asdict, field
from functools import partial
from itertools import islice
from typing import TYPE_CHECKING, Any

from ...checkpoint import Coordinator
from ...checkpoint.documents.entries import CompletedEntry
from ...checkpoint.documents.head import Head
from ...checkpoint.errors import InvalidConfigError, NoCheckpointError
from ...checkpoint.rows.reading import StoredState, columns_of, find_state, pyarrow_parquet, rows_of
from ...checkpoint.rows.values import readable, same
from ...checkpoint.views.wording import size
from ...storage.port import ObjectStore
from ...storage.records import dataclass
from . import text

if TYPE_CHECKING:
    from ...spark.compaction import Compaction

Row = dict[str, Any]
Rows = Callable[[], Iterator[Row]]
"""Reads rows, anew on each call."""
_SIGNS = {"added": "+", "removed": "-", "changed": "~"}
_CELL = 40
"""Terminal columns for a value."""


@dataclass(slots=True)
class _Difference:
    counts: Counter[str] = field(default_factory=Counter)
    shown: list[tuple[str, Row | None, Row | None]] = field(default_factory=list)
    """Kind of difference, the row before and the row after; up to the requested number."""


def diff(coordinator: Coordinator, options: argparse.Namespace) -> tuple[list[str], dict[str, Any]]:
    """Compare a state in two checkpoints."""
    parquet = pyarrow_parquet("cairn diff")

    def look(head: Head) -> tuple[StoredState, _Difference]:
        sides = [
            find_state(coordinator.files, head.retained(each), options.stage, options.name)
            for each in (options.old, options.new)
        ]
        return sides[1], _compare(parquet, coordinator, sides[0], sides[1], options.head)

    # A newer checkpoint may complete in between, and cleaning may delete one that is read: then it looks again.
    state, found = coordinator.observe(look)
    counts = {what: found.counts[what] for what in _SIGNS}
    document = {
        "job": coordinator.job,
        "stage": options.stage,
        "name": options.name,
        "from": options.old,
        "to": options.new,
        "key": list(state.output.key),
        **counts,
        "rows": [
            {"change": what, "before": readable(before), "after": readable(after)}
            for what, before, after in found.shown
        ],
        "more": sum(counts.values()) > len(found.shown),
    }
    return list(_diff_lines(document)), document


def _compare(parquet: Any, coordinator: Coordinator, old: StoredState, new: StoredState, limit: int) -> _Difference:
    if old.output.key != new.output.key:
        raise InvalidConfigError(
            "the two checkpoints hold the state by different keys, so no row of one is a row of the other",
            before=", ".join(old.output.key) or "none",
            after=", ".join(new.output.key) or "none",
        )
    both = {handle.path for _, handle in old.files} & {handle.path for _, handle in new.files}
    if any(handle.delta for _, handle in (*old.files, *new.files)):
        both = set()  # a delta beside a file decides which of its rows count

    def rows(state: StoredState) -> Iterator[Row]:
        files = [(subtask, handle) for subtask, handle in state.files if handle.path not in both]
        return rows_of(parquet, coordinator.files, StoredState(state.output, files))

    key = old.output.key
    before, after = partial(rows, old), partial(rows, new)
    return _by_key(key, before, after, limit) if key else _as_bag(before, after, limit)


def _by_key(key: tuple[str, ...], old: Rows, new: Rows, limit: int) -> _Difference:
    """Compare rows with the same key. Only digests of the old rows are kept; rows to show are read once more."""
    before = {_key(row, key): _values(row, key) for row in old()}
    found = _Difference()
    wanted: dict[bytes, int] = {}
    seen: set[bytes] = set()
    for row in new():
        this = _key(row, key)
        if this not in before:
            _note(found, "added", None, row, limit)
            continue
        seen.add(this)
        if before[this] != _values(row, key) and _note(found, "changed", None, row, limit):
            wanted[this] = len(found.shown) - 1
    for row in old():
        this = _key(row, key)
        if this in wanted:
            what, _, after = found.shown[wanted[this]]
            found.shown[wanted[this]] = (what, row, after)
        elif this not in seen:
            _note(found, "removed", row, None, limit)
    return found


def _as_bag(old: Rows, new: Rows, limit: int) -> _Difference:
    """Compare rows without a key: a changed row counts as one removed and one added."""
    left = Counter(_digest(row) for row in old())
    found = _Difference()
    for row in new():
        this = _digest(row)
        if left[this] > 0:
            left[this] -= 1
        else:
            _note(found, "added", None, row, limit)
    for row in old():
        this = _digest(row)
        if left[this] > 0:
            left[this] -= 1
            _note(found, "removed", row, None, limit)
    return found


def _note(found: _Difference, what: str, before: Row | None, after: Row | None, limit: int) -> bool:
    """Count a difference; True if it should be shown."""
    found.counts[what] += 1
    if len(found.shown) >= limit:
        return False
    found.shown.append((what, before, after))
    return True


def _key(row: Row, key: tuple[str, ...]) -> bytes:
    return _digest([row[name] for name in key])


def _values(row: Row, key: tuple[str, ...]) -> bytes:
    return _digest({name: value for name, value in row.items() if name not in key})


def _digest(value: Any) -> bytes:
    """Digest a row or a part of it; values that are equal in Spark have one digest."""
    return hashlib.blake2b(json.dumps(same(value)).encode(), digest_size=16).digest()


def _diff_lines(document: dict[str, Any]) -> Iterator[str]:
    keyed = f", by {', '.join(document['key'])}" if document["key"] else ""
    yield f"state {document['name']} of {document['stage']}{keyed}: checkpoint {document['from']} to {document['to']}"
    yield ", ".join(f"{document[what]} {what}" for what in _SIGNS)
    for each in document["rows"]:
        row = each["after"] or each["before"]
        values = (f"{name}={_value(each, name)}" for name in row)
        yield from text.paragraph(f"{_SIGNS[each['change']]} {'  '.join(values)}")
    if document["more"]:
        yield "… and more rows; raise --head to see them"


def _value(each: dict[str, Any], name: str) -> str:
    before, after = each["before"], each["after"]
    if before is None or after is None:
        return _cell((after or before)[name])
    if name in before and before[name] == after[name]:
        return _cell(after[name])
    return f"{_cell(before[name]) if name in before else ''}→{_cell(after[name])}"


def _cell(value: Any) -> str:
    return text.fit(value if isinstance(value, str) else json.dumps(value, ensure_ascii=False), _CELL)


HEAD = 20
"""Default number of rows shown."""


def rows(coordinator: Coordinator, options: argparse.Namespace) -> tuple[list[str], dict[str, Any]]:
    """Return the first rows of a state, in the newest checkpoint unless one is named."""
    parquet = pyarrow_parquet("cairn state")

    def look(head: Head) -> tuple[int, StoredState, list[dict[str, Any]]]:
        entry = _entry(head, options.checkpoint)
        found = find_state(coordinator.files, entry, options.stage, options.name)
        count = options.head + 1
        return entry.id, found, list(islice(rows_of(parquet, coordinator.files, found, count), count))

    # A newer checkpoint may complete in between, and cleaning may delete the one that is read: then it looks again.
    checkpoint, found, there = coordinator.observe(look)
    shown, more = readable(there[: options.head]), len(there) > options.head
    output, names = found.output, [*columns_of(found.output)]
    deltas = len({handle.delta for _, handle in found.files if handle.delta})
    document = {
        "job": coordinator.job,
        "checkpoint": checkpoint,
        "stage": options.stage,
        "name": options.name,
        "url": coordinator.files.spark_url(output.folder),
        "files": [coordinator.files.spark_url(handle.path) for _, handle in found.files],
        "key": list(output.key),
        "key_groups": output.key_groups,
        "deltas": deltas,
        "runs": deltas,  # the key until version 0.2
        "merge": output.merge,
        "columns": names,
        "rows": shown,
        "more": more,
    }
    return list(_head_lines(document)), document


def _head_lines(document: dict[str, Any]) -> Iterator[str]:
    keyed = f", by {', '.join(document['key'])}" if document["key"] else ""
    groups = f" in {document['key_groups']} key groups" if document["key_groups"] else ""
    deltas = f", {document['deltas']} delta{'s' if document['deltas'] > 1 else ''}" if document["deltas"] else ""
    where = f"{document['stage']} in checkpoint {document['checkpoint']}"
    yield f"state {document['name']} of {where}{keyed}{groups}{deltas}"
    if document["deltas"]:
        yield "read it with airflow_cairn.spark.state, which merges the deltas with the base"
    else:
        yield f"files: {document['url']}"
    yield ""
    names = document["columns"]
    cells = [[_cell(row[name]) for name in names] for row in document["rows"]]
    numbers = {name for name in names if all(isinstance(row[name], int | float | None) for row in document["rows"])}
    yield from text.table([text.fit(name, _CELL) for name in names], cells, right=numbers)
    if document["more"]:
        yield "… and more rows; raise --head to see them"
    elif not cells:
        yield "no rows"


def _entry(head: Head, checkpoint: int | None) -> CompletedEntry:
    if checkpoint is not None:
        return head.retained(checkpoint)
    latest = head.latest_completed()
    if latest is None:
        raise NoCheckpointError("no checkpoint of the job has completed yet, so it has no state", job=head.job)
    return latest


_SAID = {
    "compacted": "compacted; an epoch that begins from now on adopts the new base",
    "small": "left, because its deltas are small beside its base; name the state to compact it all the same",
    "over budget": "left, because it has more bytes than --max-bytes leaves",
    "waits": "left, because a new base waits until an epoch adopts it",
    "under way": "left, because another compactor is at work on it",
    "lost": "not compacted: an epoch has replaced its files, or another compactor gave it up; try again",
}


def compact(
    store: ObjectStore, options: argparse.Namespace, say: Callable[[str], None]
) -> tuple[Iterable[str], dict[str, Any]]:
    """Compact states, and report each: as lines one by one; with `--json` in one document when all are done.

    `say` receives the name of the next state, whose merge may take hours.
    """
    from ...spark.pyspark_versions import check_starts_here

    check_starts_here("cairn compact (or submit an application that calls airflow_cairn.spark.compact)")

    from ...spark.compaction import compact_in

    job: str = options.job
    found = compact_in(
        store,
        job,
        None,
        options.stage,
        options.name,
        max_bytes=options.max_bytes,
        on_begin=lambda each: say(f"merging {_parts(each)}"),
    )
    if options.json:
        # The keys `runs` and `run_bytes` are those until version 0.2.
        return [], {
            "job": job,
            "states": [{**asdict(each), "runs": each.deltas, "run_bytes": each.delta_bytes} for each in found],
        }
    return _compaction_lines(job, found), {}


def _compaction_lines(job: str, found: Iterable[Compaction]) -> Iterator[str]:
    none = True
    for each in found:
        none = False
        written = f", new base {size(each.written_bytes)}" if each.outcome == "compacted" else ""
        yield f"{_parts(each, written)}: {_SAID[each.outcome]}"
    if none:
        yield f"no state of {job} has deltas, so there is nothing to compact"


def _parts(each: Compaction, written: str = "") -> str:
    return (
        f"{each.state} of {each.stage} (base {size(each.base_bytes)}, {each.deltas} deltas {size(each.delta_bytes)}"
        f"{written})"
    )
