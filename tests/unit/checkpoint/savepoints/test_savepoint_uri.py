"""A savepoint is named by its folder, or by the metadata in it (semantics P1)."""

from __future__ import annotations

import pytest

from airflow_cairn.checkpoint.savepoints.savepoint_format import savepoint_folder
from airflow_cairn.storage import InvalidKeyError


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
