"""A listing is in the order of the keys' UTF-8 bytes, on any tree of names (semantics W1)."""

from __future__ import annotations

import tempfile
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from airflow_cairn.storage import ObjectStore, S3Options, Written, open_store
from airflow_cairn.storage.local.files import HIDDEN
from airflow_cairn.storage.local.store import LocalStore

# Characters around the slash (0x2f) in byte order, one that UTF-16 sorts differently, and what Spark writes.
segments = st.text("ab!,-./0=_é￮😀".replace("/", ""), min_size=1, max_size=4).filter(
    lambda name: name not in (".", "..", HIDDEN)
)
trees = st.lists(st.lists(segments, min_size=1, max_size=4).map("/".join), unique=True, max_size=12).map(
    lambda found: [key for key in found if not any(other.startswith(f"{key}/") for other in found)]
)


def check(store: ObjectStore, keys: list[str], start_after: str) -> None:
    for key in keys:
        assert isinstance(store.create(key, b"x"), Written)
    ordered = sorted(keys, key=str.encode)
    assert [found.key for found in store.list("")] == ordered
    after = [key for key in ordered if key.encode() > start_after.encode()]
    assert [found.key for found in store.list("", start_after=start_after)] == after
    for prefix in {f"{key.rpartition('/')[0]}/" for key in keys if "/" in key}:
        assert [found.key for found in store.list(prefix)] == [key for key in ordered if key.startswith(prefix)]
    folders = sorted({f"{key.split('/')[0]}/" for key in keys if "/" in key}, key=str.encode)
    assert [f"{name}/" for name in store.list_folders("")] == folders
    assert store.delete(keys) == []
    assert list(store.list("")) == []


@pytest.mark.large
@given(trees, segments)
def test_files(keys: list[str], start_after: str):
    with tempfile.TemporaryDirectory() as folder:
        check(LocalStore(Path(folder) / "lake"), keys, start_after)
        assert [path.name for path in Path(folder).rglob("*") if path.name != HIDDEN] in (["lake"], [])


@pytest.mark.s3
@settings(max_examples=40, suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow])
@given(keys=trees, start_after=segments)
def test_the_real_s3_server(keys: list[str], start_after: str, lake: ObjectStore):
    check(lake, keys, start_after)


@pytest.fixture
def lake(s3_bucket: str, s3_options: S3Options) -> ObjectStore:
    return open_store(f"s3://{s3_bucket}/lake", s3=s3_options)
