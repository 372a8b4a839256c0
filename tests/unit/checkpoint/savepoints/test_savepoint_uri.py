"""A savepoint is named by its folder, or by the metadata in it (semantics P1)."""

import pytest

from airflow_cairn.checkpoint.documents.entries import SavepointEntry
from airflow_cairn.checkpoint.savepoints.savepoint_format import open_entry, savepoint_folder
from airflow_cairn.storage import InvalidKeyError
from airflow_cairn.storage.port import ObjectStore
from tests.support.errors import raises_code


@pytest.mark.parametrize(
    ("uri", "folder"),
    [
        ("file:///kept/nightly", "file:///kept/nightly"),
        ("file:///kept/nightly/", "file:///kept/nightly"),
        ("file:///kept/nightly/_metadata", "file:///kept/nightly"),
        ("s3a://lake/kept/nightly/_metadata", "s3://lake/kept/nightly"),
        ("s3://lake/_metadata", "s3://lake"),
        ("s3://lake/nightly_metadata", "s3://lake/nightly_metadata"),
    ],
)
def test_the_folder(uri: str, folder: str) -> None:  # semantics P1
    assert savepoint_folder(uri) == folder


def test_no_folder_is_left() -> None:
    with pytest.raises(InvalidKeyError, match="the folder is not absolute"):
        savepoint_folder("file:///_metadata")


class _OpenedError(Exception):
    """The place that was opened."""


def _open(uri: str) -> ObjectStore:
    raise _OpenedError(uri)


@pytest.mark.parametrize("named", ["s3://lake/kept", "s3a://lake/kept/", "S3://lake/kept//"])
def test_a_target_is_the_recorded_one_however_it_is_spelt(named: str) -> None:  # semantics W10
    entry = SavepointEntry(3, "nightly", "s3://lake/kept", "savepoint-a", 1, 2, "e")
    with pytest.raises(_OpenedError) as opened:
        open_entry(entry, named, _open)
    assert str(opened.value) == named, "what the caller names, never what is stored"
    for other in (None, "s3://lake/kept2", "s3://lake", "file:///lake/kept"):
        with raises_code("savepoint_refused", match="a target that is not named here"):
            open_entry(entry, other, _open)
