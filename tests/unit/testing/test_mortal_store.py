"""The store of a driver that dies."""

from pathlib import Path

import pytest

from airflow_cairn.testing.exactly_once import KilledError, MortalStore


def test_nothing_is_done_after_the_last_write(tmp_path: Path) -> None:
    store = MortalStore(tmp_path, 2)
    store.create("a", b"1")
    assert store.get("a").data == b"1"
    assert [found.key for found in store.list("")] == ["a"]
    for ask in (
        lambda: store.create("b", b"1"),
        lambda: store.delete(["a"]),
        lambda: store.get("a"),
        lambda: store.stat("a"),
        lambda: store.list(""),
        lambda: store.uploads(""),
        lambda: store.read_range("a", 0, 1),
        lambda: store.replace("a", b"2", expected_etag="x"),
    ):
        with pytest.raises(KilledError):
            ask()
    assert store.died
    living = MortalStore(tmp_path)
    assert [found.key for found in living.list("")] == ["a"]
    living.delete(["a"])
    assert (living.writes, living.died) == (2, False)
