"""Every released document stays readable, and means what it meant (semantics C5)."""

from __future__ import annotations

from pathlib import Path

import pytest

from airflow_cairn.checkpoint import documents, metadata, savepoint_format
from airflow_cairn.checkpoint.codec import to_json
from airflow_cairn.checkpoint.job_files import KINDS, JobFiles, encode, reference
from tests.checkpoint.golden import EXAMPLES, FOLDER, METADATA, ROOT, SAVEPOINT, SAVEPOINT_HEADER, name_of, savepoint
from tests.support.memory_store import MemoryStore

FORMATS = sorted(ROOT.iterdir())


@pytest.mark.parametrize("cls", list(KINDS), ids=lambda cls: cls.__name__)
@pytest.mark.parametrize("folder", FORMATS, ids=lambda folder: f"format {folder.name}")
def test_every_format_is_read_still(folder: Path, cls: type) -> None:
    files = JobFiles(MemoryStore(), "flights")
    data = (folder / name_of(cls)).read_bytes()
    assert files.parse(cls, "chk-0000000001/x", data, max_bytes=documents.MAX_HEAD_BYTES) == EXAMPLES[cls]


@pytest.mark.parametrize("folder", FORMATS, ids=lambda folder: f"format {folder.name}")
def test_metadata_of_every_format_is_read_still(folder: Path) -> None:
    store = MemoryStore()
    data = (folder / "metadata").read_bytes()
    store.put("flights/chk-0000000003/_metadata-x", data)
    ref = reference("chk-0000000003/_metadata-x", data)
    assert tuple(metadata.read(JobFiles(store, "flights"), ref)) == METADATA


@pytest.mark.parametrize("folder", FORMATS, ids=lambda folder: f"format {folder.name}")
def test_a_savepoint_of_every_format_is_read_still(folder: Path) -> None:
    store = MemoryStore()
    store.put("_metadata", (folder / "savepoint").read_bytes())
    *lines, _ = savepoint_format.read(store)
    assert lines == [SAVEPOINT_HEADER, *SAVEPOINT]


@pytest.mark.parametrize("cls", list(KINDS), ids=lambda cls: cls.__name__)
def test_the_current_format_is_written_as_ever(cls: type) -> None:
    """A difference means that older readers may stumble: raise the format, or regenerate before the first release."""
    assert encode(EXAMPLES[cls]) == (FOLDER / name_of(cls)).read_bytes()


def test_metadata_is_written_as_ever() -> None:
    assert savepoint() == (FOLDER / "savepoint").read_bytes()
    assert metadata.encode(METADATA) == (FOLDER / "metadata").read_bytes()


@pytest.mark.parametrize("cls", list(KINDS), ids=lambda cls: cls.__name__)
def test_the_examples_fill_every_field(cls: type) -> None:
    assert all(value not in (None, [], {}, "") for value in to_json(EXAMPLES[cls]).values())
