"""Every released document stays readable, and means what it meant (semantics C5)."""

import json
from enum import StrEnum
from pathlib import Path
from typing import Any

import pytest

from airflow_cairn.checkpoint.documents import codec
from airflow_cairn.checkpoint.documents.acknowledgement import CompactionDocument, ManifestDocument, TableDocument
from airflow_cairn.checkpoint.documents.entries import Stopped
from airflow_cairn.checkpoint.documents.server_record import ServersDocument
from airflow_cairn.checkpoint.documents.strict_json import to_json
from airflow_cairn.checkpoint.reasons import Reason, RequestKind
from airflow_cairn.checkpoint.savepoints import savepoint_format
from airflow_cairn.checkpoint.store import metadata_file
from airflow_cairn.checkpoint.store.job_files import KINDS, JobFiles, encode, reference
from tests.support.memory_store import MemoryStore
from tests.support.world.golden import (
    EXAMPLES,
    FOLDER,
    METADATA,
    RELEASED,
    ROOT,
    SAVEPOINT,
    SAVEPOINT_HEADER,
    name_of,
    savepoint,
)

FORMATS = sorted(ROOT.iterdir())
NEWER_KINDS: frozenset[type] = frozenset({ServersDocument, TableDocument, ManifestDocument, CompactionDocument})
"""Kinds of documents that came after version 0.1."""


@pytest.mark.parametrize("cls", list(KINDS), ids=lambda cls: cls.__name__)
@pytest.mark.parametrize("folder", FORMATS, ids=lambda folder: f"format {folder.name}")
def test_every_format_is_read_still(folder: Path, cls: type) -> None:
    if not (folder / name_of(cls)).exists():
        assert folder != FOLDER  # a kind of document that the format did not have
        assert cls in NEWER_KINDS
        return
    files = JobFiles(MemoryStore(), "flights")
    data = (folder / name_of(cls)).read_bytes()
    read: Any = files.parse(cls, "chk-0000000001/x", data, max_bytes=codec.MAX_HEAD_BYTES)
    assert _holds(to_json(EXAMPLES[cls]), to_json(read))
    assert read == EXAMPLES[cls] or folder != FOLDER


@pytest.mark.parametrize("folder", FORMATS, ids=lambda folder: f"format {folder.name}")
def test_metadata_and_a_savepoint_of_every_format_are_read_still(folder: Path) -> None:
    store = MemoryStore()
    data = (folder / "metadata").read_bytes()
    store.put("flights/chk-0000000003/_metadata-x", data)
    lines = tuple(metadata_file.read(JobFiles(store, "flights"), reference("chk-0000000003/_metadata-x", data)))
    assert _holds(list(map(to_json, METADATA)), list(map(to_json, lines)))
    assert lines == METADATA or folder != FOLDER
    store.put("_metadata", (folder / "savepoint").read_bytes())
    *saved, _ = savepoint_format.read(store)
    assert _holds(list(map(to_json, [SAVEPOINT_HEADER, *SAVEPOINT])), list(map(to_json, saved)))
    assert saved == [SAVEPOINT_HEADER, *SAVEPOINT] or folder != FOLDER


@pytest.mark.parametrize("cls", list(KINDS), ids=lambda cls: cls.__name__)
def test_the_current_format_is_written_as_ever(cls: type) -> None:
    """A difference means that older readers may stumble: raise the format, or write these files anew."""
    assert encode(EXAMPLES[cls]) == (FOLDER / name_of(cls)).read_bytes()


def test_metadata_is_written_as_ever() -> None:
    assert savepoint() == (FOLDER / "savepoint").read_bytes()
    assert metadata_file.encode(METADATA) == (FOLDER / "metadata").read_bytes()


@pytest.mark.parametrize("cls", list(KINDS), ids=lambda cls: cls.__name__)
def test_the_examples_fill_every_field(cls: type) -> None:
    assert all(value not in (None, [], {}, "") for value in to_json(EXAMPLES[cls]).values())


RENAMED = {"suspended": "shutdown"}
"""Words of version 0.1 that no part of Cairn writes any more, each with the one that stands for it now."""


def _holds(new: Any, old: Any) -> bool:
    """Whether everything that an old document says stands in the new one, which may say more."""
    if isinstance(old, dict) and isinstance(new, dict):
        return all(name in new and _holds(new[name], value) for name, value in old.items())
    if isinstance(old, list) and isinstance(new, list):
        return len(new) == len(old) and all(map(_holds, new, old))
    return new in (old, RENAMED.get(str(old), old))


@pytest.mark.parametrize("cls", list(KINDS), ids=lambda cls: cls.__name__)
@pytest.mark.parametrize("version", sorted(RELEASED.iterdir()), ids=lambda version: version.name)
def test_what_a_released_version_wrote_keeps_its_meaning(version: Path, cls: type) -> None:
    path = version / name_of(cls)
    if not path.exists():
        assert cls in NEWER_KINDS  # a kind of document that the version did not have
        return
    files = JobFiles(MemoryStore(), "flights")
    read: Any = files.parse(cls, "chk-0000000001/x", path.read_bytes(), max_bytes=codec.MAX_HEAD_BYTES)
    assert _holds(
        to_json(read), {k: v for k, v in json.loads(path.read_bytes()).items() if k not in ("format", "kind")}
    )


@pytest.mark.parametrize("version", sorted(RELEASED.iterdir()), ids=lambda version: version.name)
def test_metadata_and_savepoints_of_a_released_version_are_read_still(version: Path) -> None:
    store = MemoryStore()
    data = (version / "metadata").read_bytes()
    store.put("flights/chk-0000000003/_metadata-x", data)
    lines = tuple(metadata_file.read(JobFiles(store, "flights"), reference("chk-0000000003/_metadata-x", data)))
    assert [type(line) for line in lines] == [type(line) for line in METADATA]
    store.put("_metadata", (version / "savepoint").read_bytes())
    header, *rest, _ = savepoint_format.read(store)
    assert header == SAVEPOINT_HEADER
    assert [type(line) for line in rest] == [type(line) for line in SAVEPOINT]


@pytest.mark.parametrize(
    ("cls", "old", "now"),
    [
        (Stopped, "suspended", Stopped.SHUTDOWN),
        (RequestKind, "savepoint", RequestKind.MANUAL),
        (RequestKind, "forced", RequestKind.MANUAL),
        (Reason, "NOT_ALL_REQUIRED_TASKS_RUNNING", Reason.TRIGGER_CHECKPOINT_FAILURE),
        (Reason, "CHECKPOINT_DECLINED_TASK_NOT_READY", Reason.CHECKPOINT_DECLINED),
        (Reason, "CHECKPOINT_DECLINED_INPUT_END_OF_STREAM", Reason.CHECKPOINT_DECLINED),
    ],
)
def test_a_word_that_is_not_written_any_more_is_read_still(cls: type[StrEnum], old: str, now: StrEnum) -> None:
    """semantics C5: version 0.1 could write it."""
    assert cls(old) is now
    assert old not in [each.value for each in cls]
    with pytest.raises(ValueError, match="is not a valid"):
        cls("something else")
