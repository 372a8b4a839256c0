"""Bad input from outside: every option at and beyond its bounds, and documents that are none (semantics S3, W5)."""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from airflow_cairn.checkpoint import documents, layout
from airflow_cairn.storage import CairnError
from airflow_cairn.storage.local import LocalStore
from tests.checkpoint.world import JOB, World

GIGABYTE = 1 << 30


class _Capped(LocalStore):
    """Counts the bytes that were read of one key."""

    def __init__(self, root: Path) -> None:
        super().__init__(root)
        self.read: dict[str, int] = {}

    def get(self, key: str, *, max_bytes: int | None = None) -> Any:
        blob = super().get(key, max_bytes=max_bytes)
        self.read[key] = self.read.get(key, 0) + len(blob.data)
        return blob

    def read_range(self, key: str, start: int, length: int) -> bytes:
        data = super().read_range(key, start, length)
        self.read[key] = self.read.get(key, 0) + len(data)
        return data


def _empty(path: Path) -> None:
    path.write_bytes(b"")


def _truncated(path: Path) -> None:
    path.write_bytes(path.read_bytes()[:-20])


def _gigabyte(path: Path) -> None:
    os.truncate(path, GIGABYTE)


def _newer(path: Path) -> None:
    path.write_bytes(path.read_bytes().replace(b'"format":1', b'"format":99', 1))


def _outside(where: str) -> Callable[[Path], None]:
    """Let a key, or the name that becomes one, point somewhere else."""

    def damage(path: Path) -> None:
        first, *rest = path.read_bytes().splitlines(keepends=True)
        lines = [json.loads(line) for line in (first, *rest)]
        assert sum(_redirected(line, where) for line in lines), "there was something to redirect"
        path.write_bytes(b"".join(documents.encode(line) for line in lines))

    return damage


def _redirected(value: Any, where: str) -> int:
    changed = 0
    if isinstance(value, dict):
        for name, each in value.items():
            if name in ("folder", "path", "token") or (name == "key" and isinstance(each, str)):
                value[name] = where
                changed += 1
            else:
                changed += _redirected(each, where)
    elif isinstance(value, list):
        changed = sum(_redirected(each, where) for each in value)
    return changed


DAMAGES: dict[str, Callable[[Path], None]] = {
    "empty": _empty,
    "truncated": _truncated,
    "a gigabyte": _gigabyte,
    "of a newer format": _newer,
    "climbing": _outside("../../weather/head.json"),
    "absolute": _outside("/etc/passwd"),
    "of another bucket": _outside("s3://other/chk-0000000001/x"),
    "of another scheme": _outside("file:///chk-0000000001/x"),
}


class Damaged:
    """A job with one epoch completed and a second ready to complete, of which one document is damaged."""

    def __init__(self, root: Path, which: str, damage: Callable[[Path], None]) -> None:
        self.store = _Capped(root)
        self.world = World(self.store)
        self.world.run_epoch("a")
        self.world.run_stages("b")
        self.checkpoint = self.world.pending_id("b")
        head = self.world.coordinator().head()
        entry = head.pending[0]
        document = self.world.coordinator().pending_document(entry)
        assert document is not None
        execution = document.executions["clean"]
        self.key = {
            "head": layout.HEAD,
            "pending": layout.pending(entry.id, entry.token),
            "marker": layout.ack(execution.home, "clean", execution.token),
            "metadata": head.completed[0].metadata.key,
        }[which]
        damage(root / JOB / self.key)
        self._root = root
        self._before = self._others()
        self.store.read.clear()

    def check_nothing_else_is_harmed(self) -> None:
        after = self._others()
        assert {name: after.get(name) for name in self._before} == self._before

    def _others(self) -> dict[str, bytes]:
        """Every file but the damaged one, and but the head, which may say that the checkpoint has failed."""
        skipped = {self._root / JOB / self.key, self._root / JOB / layout.HEAD}
        files = (path for path in self._root.rglob("*") if path.is_file() and path not in skipped)
        return {str(path): path.read_bytes() for path in files}


def _complete(of: Damaged) -> str:
    try:
        of.world.coordinator().complete(of.checkpoint)
    except CairnError as error:
        return str(error)
    return ""


def _clean(of: Damaged) -> str:
    try:
        return str(of.world.coordinator().clean().failures)
    except CairnError as error:
        return str(error)


def _verify(of: Damaged) -> str:
    try:
        return str([str(damage) for found in of.world.coordinator().verify() for damage in found.damages])
    except CairnError as error:
        return str(error)


READERS: dict[str, tuple[Callable[[Damaged], str], ...]] = {
    "head": (_complete, _clean, _verify),
    "pending": (_complete, _clean),
    "marker": (_complete,),
    "metadata": (_verify, _clean, _complete),
}
"""Who reads a document. A finisher needs the metadata of the checkpoint before for the files that it took over."""

CASES = [
    pytest.param(which, name, read, id=f"{which} {name}{read.__name__}")
    for which, readers in READERS.items()
    for name in DAMAGES
    for read in readers
]


@pytest.mark.parametrize(("which", "name", "read"), CASES)
def test_a_damaged_document_is_refused_by_its_key_and_harms_nothing_else(
    tmp_path: Path, which: str, name: str, read: Callable[[Damaged], str]
) -> None:  # semantics W5, C5
    damaged = Damaged(tmp_path, which, DAMAGES[name])
    said = read(damaged)
    assert damaged.key in said, "the key is named"
    damaged.check_nothing_else_is_harmed()
    cap = documents.MAX_HEAD_BYTES if which == "head" else 2 * documents.MAX_MARKER_BYTES
    assert damaged.store.read.get(f"{JOB}/{damaged.key}", 0) <= cap, "no more than the cap is read"
