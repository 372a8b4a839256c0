"""The outputs of a stage in an epoch, for a test to look at."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from ..checkpoint.documents.acknowledgement import AckDocument
from ..checkpoint.documents.attempt import Handover
from ..checkpoint.documents.strict_json import Json
from ..checkpoint.store.job_files import JobFiles
from ..spark.event_time.event_time import RESERVED
from ..spark.kinds import raw_files, small_state
from ..spark.stored.outputs import Stored, frame, of_acknowledgement

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession


@dataclass(frozen=True, slots=True)
class Written:
    """The outputs of a stage in an epoch, by name, including those carried over."""

    outputs: dict[str, DataFrame] = field(default_factory=dict)
    """Written by `write`, for downstream stages."""
    states: dict[str, DataFrame] = field(default_factory=dict)
    """Written by `snapshot`."""
    tables: dict[str, DataFrame] = field(default_factory=dict)
    """Written by `publish`."""
    values: dict[str, Json] = field(default_factory=dict)
    """Written by `put`."""
    lists: dict[str, list[list[Any]]] = field(default_factory=dict)
    """Written by `snapshot_list`: the items of each subtask, as the next epoch gets them."""
    files: dict[str, list[str]] = field(default_factory=dict)
    """Written by `snapshot_files`: the names of the files below the folder, sorted."""
    committables: dict[str, Json] = field(default_factory=dict)
    """Written by `commit_on_complete`."""


def written(spark: SparkSession, files: JobFiles, handover: Handover, ack: AckDocument) -> Written:
    """Read the outputs that an acknowledgement names."""
    own = {name: value for name, value in ack.values.items() if not name.startswith(RESERVED)}
    found = Written(values=own, committables=dict(ack.committables))
    frames = {"exchange": found.outputs, "state": found.states, "table": found.tables}
    for stored in of_acknowledgement(files, ack).outputs.values():
        kind, name = stored.output.kind, stored.output.name
        if kind in frames:
            frames[kind][name] = frame(spark, files, stored)
        elif kind == small_state.LIST_KIND:
            found.lists[name] = small_state.given_out_items(files, stored, handover)
        elif kind == raw_files.KIND:
            found.files[name] = sorted(_below(stored))
        else:
            found.values[name] = small_state.read(files, stored)
    return found


def _below(stored: Stored) -> list[str]:
    folder = f"{stored.output.folder.rstrip('/')}/"
    return [file.handle.path.removeprefix(folder) for file in stored.files]
