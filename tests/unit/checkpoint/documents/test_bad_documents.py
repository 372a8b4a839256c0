"""Bad input from outside: each kind of document, damaged in each way, is refused by its key (semantics W5, C5)."""

import json
import os
import shutil
import tracemalloc
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest

from airflow_cairn.checkpoint import Coordinator, Runtime
from airflow_cairn.checkpoint.answers import Triggered
from airflow_cairn.checkpoint.documents import codec, layout
from airflow_cairn.checkpoint.documents.attempt import EpochCompletedDocument, Handover, StageSpec
from airflow_cairn.checkpoint.reasons import Reason
from airflow_cairn.checkpoint.store import acks
from airflow_cairn.storage import CairnError, S3Options, open_store
from airflow_cairn.storage.local.store import LocalStore
from tests.support.fake_s3 import GIGABYTE, FakeS3
from tests.support.narrowing import known
from tests.support.world.world import JOB, Clock, World

NEIGHBOUR = f"{JOB}-10"
"""Another job, whose name begins alike."""


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


def _outside(where: str) -> Callable[[Path], None]:
    """Let a key, or the name that becomes one, point somewhere else."""

    def redirect(path: Path) -> None:
        first, *rest = path.read_bytes().splitlines(keepends=True)
        lines = [json.loads(line) for line in (first, *rest)]
        assert sum(_redirected(line, where) for line in lines), "there was something to redirect"
        path.write_bytes(b"".join(codec.encode(line) for line in lines))

    return redirect


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


DAMAGES: dict[str, Callable[[Path], object]] = {
    "empty": lambda path: path.write_bytes(b""),
    "truncated": lambda path: path.write_bytes(path.read_bytes()[:-20]),
    "a gigabyte": lambda path: os.truncate(path, GIGABYTE),
    "of a newer format": lambda path: path.write_bytes(path.read_bytes().replace(b'"format":2', b'"format":99', 1)),
    "climbing": _outside("../../weather/head.json"),
    "absolute": _outside("/etc/passwd"),
    "of another bucket": _outside("s3://other/chk-0000000001/x"),
    "of another scheme": _outside("file:///chk-0000000001/x"),
}


@dataclass(frozen=True)
class Sound:
    """A job with one epoch completed and a second under way, a job beside it, and the key of one document."""

    root: Path
    clock: Clock
    key: str


@pytest.fixture(scope="module")
def sound(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], Sound]:
    """Makes such jobs in files, once for each kind of document."""

    @cache
    def make(which: str) -> Sound:
        root = tmp_path_factory.mktemp(which)
        world = World(LocalStore(root))
        world.run_epoch("a")
        key = _KEYS[which](world)
        _neighbour(world).trigger(world.request("a"))
        return Sound(root, world.clock, key)

    return make


def _neighbour(world: World) -> Coordinator:
    return Coordinator(world.store, NEIGHBOUR, Runtime(world.clock, world.new_token))


class Damaged:
    """A copy of such jobs, of which the one document is damaged."""

    def __init__(self, sound: Sound, root: Path, damage: Callable[[Path], object]) -> None:
        shutil.copytree(sound.root, root, dirs_exist_ok=True)
        self.store = _Capped(root)
        self.world = World(self.store)
        self.world.clock = sound.clock
        for _ in range(100):
            self.world.new_token()  # those of the copy are taken
        self.key = sound.key
        self.neighbour = _neighbour(self.world)
        damage(root / JOB / self.key)
        self._root = root
        self._before = self._others()
        self.store.read.clear()

    @property
    def checkpoint(self) -> int:
        """Id of the pending checkpoint."""
        return self.world.pending_id("b")

    def check_nothing_else_is_harmed(self) -> None:
        after = self._others()
        assert {name: after.get(name) for name in self._before} == self._before
        assert self.neighbour.abort(1, Reason.JOB_FAILURE, "by hand")
        assert isinstance(self.neighbour.trigger(self.world.request("a")), Triggered), "other jobs go on"
        assert self.neighbour.clean().failures == ()

    def _others(self) -> dict[str, bytes]:
        """Every file but the damaged one, and but the head, which may say that the checkpoint has failed."""
        skipped = {self._root / JOB / self.key, self._root / JOB / layout.HEAD}
        files = (path for path in self._root.rglob("*") if path.is_file() and path not in skipped)
        return {str(path): path.read_bytes() for path in files}


def _head(world: World) -> str:
    world.run_stages("b")
    return layout.HEAD


def _metadata(world: World) -> str:
    world.run_stages("b")
    return world.coordinator().head().completed[0].metadata.key


def _pending(world: World) -> str:
    world.bulky = True
    world.run_stages("b")
    entry = world.coordinator().head().pending[0]
    return layout.pending(entry.id, entry.token)


def _marker(world: World) -> str:
    world.run_stages("b")
    return next(key for key in world.standing() if "/acks/clean/" in key)


def _part(world: World) -> str:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(acks, "MARKER_BYTES", 200)
        world.run_stages("b")
    return next(key for key in world.standing() if "/acks/clean/" in key and key.endswith("-00000.json"))


def _decline_of_clean(world: World) -> str:
    world.trigger("b")
    handover = world.submit("b", "clean", "try-1").handover
    world.decline(handover)
    return layout.decline(handover.checkpoint, "clean", handover.token)


def _handover_of_clean(world: World) -> str:
    world.trigger("b")
    return world.submit("b", "clean", "try-1").handover_key


def _slice(world: World) -> str:
    """The epoch's fixed input, which is read again where its checkpoint has to be made anew."""
    world.run_epoch("b")
    world.files.delete([world.coordinator().head().completed[-1].metadata.key])
    return layout.epoch_slice("b")


def _note(world: World) -> str:
    """The note of an epoch that version 0.1 wrote; it is read only where that version's head had forgotten one."""
    world.run_stages("b")
    document = json.loads(world.store.get(f"{JOB}/head.json", max_bytes=10**7).data)
    document["history"].pop(0)
    document.pop("notes_below")
    etag = known(world.store.stat(f"{JOB}/head.json").etag)
    world.store.replace(f"{JOB}/head.json", json.dumps(document).encode(), expected_etag=etag)
    world.files.create(layout.epoch_completed("long-ago"), EpochCompletedDocument(JOB, "long-ago", 1))
    return layout.epoch_completed("long-ago")


_KEYS: dict[str, Callable[[World], str]] = {
    "head": _head,
    "pending": _pending,
    "marker": _marker,
    "part": _part,
    "decline": _decline_of_clean,
    "handover": _handover_of_clean,
    "slice": _slice,
    "note": _note,
    "metadata": _metadata,
}
"""Each kind of document: makes one of a job whose epoch `a` has completed, and gives its key."""


def _said(act: Callable[[], object]) -> str:
    try:
        return str(act())
    except CairnError as error:
        return str(error)


def _begin(of: Damaged) -> object:
    said = _said(lambda: of.world.coordinator().begin("b", "clean", "try-2"))
    return said + str(of.world.coordinator().head().history)


ACTS: dict[str, Callable[[Damaged], object]] = {
    "complete": lambda of: of.world.coordinator().complete(of.world.coordinator().head().next_id - 1),
    "clean": lambda of: of.world.coordinator().clean().failures,
    "verify": lambda of: [str(each) for found in of.world.coordinator().verify() for each in found.damages],
    "progress": lambda of: of.world.coordinator().progress("b"),
    "begin": _begin,
    "fail": lambda of: of.world.coordinator().fail("b", "clean", "try-1", "killed"),
    "open": lambda of: of.world.files.read(Handover, of.key),  # what the Spark driver does first
    "trigger": lambda of: of.world.coordinator().trigger(of.world.request("c")),
    "trigger_long_ago": lambda of: of.world.coordinator().trigger(of.world.request("long-ago")),
}

READERS: dict[str, tuple[str, ...]] = {
    "head": ("complete", "clean", "verify"),
    "pending": ("complete", "clean"),
    "marker": ("complete",),
    "part": ("complete",),
    "decline": ("progress", "fail"),
    "handover": ("begin", "fail", "open"),
    "slice": ("trigger",),
    "note": ("trigger_long_ago",),
    "metadata": ("verify", "clean", "complete"),
}
"""Readers of each document. A finisher needs the previous checkpoint's metadata for the files that it took over."""

NAMES_NO_KEY = ("slice", "note", "part")
"""Documents that hold no key or token that could point elsewhere; of a part any change is noticed by its hash."""

CASES = [
    pytest.param(which, name, read, id=f"{which} {name}_{read}")
    for which, readers in READERS.items()
    for name in DAMAGES
    for read in readers
    if not (DAMAGES[name].__name__ == "redirect" and which in NAMES_NO_KEY)
    # A create tells the tag of what stands there: local files have to be hashed for that. On S3 it is tested below.
    if (name, read) != ("a gigabyte", "begin")
]


@pytest.mark.parametrize(("which", "name", "read"), CASES)
def test_a_damaged_document_is_refused_by_its_key_and_harms_nothing_else(
    tmp_path: Path, sound: Callable[[str], Sound], which: str, name: str, read: str
) -> None:  # semantics W5, C5
    damaged = Damaged(sound(which), tmp_path, DAMAGES[name])
    said = _said(lambda: ACTS[read](damaged))
    assert damaged.key in said, "the key is named"
    damaged.check_nothing_else_is_harmed()
    cap = codec.MAX_HEAD_BYTES if which == "head" else 2 * codec.MAX_MARKER_BYTES
    assert damaged.store.read.get(f"{JOB}/{damaged.key}", 0) <= cap, "no more than the cap is read"


@pytest.mark.large
@pytest.mark.parametrize(
    ("which", "announced"),
    [*((which, True) for which in _KEYS), ("head", False), ("metadata", False)],
    ids=lambda value: value if isinstance(value, str) else "announced" if value else "sent in pieces",
)
def test_a_gigabyte_from_s3_is_refused_before_it_is_read(which: str, announced: bool) -> None:  # semantics W5
    """Through the real adapter: the server would send the gigabyte, and the reader hangs up."""
    with FakeS3() as fake:
        store = open_store("s3://bucket/lake", s3=S3Options(fake.url, None, "access", "secret"))
        world = World(store, stages=(StageSpec("clean"),))
        world.run_epoch("a")
        key = _KEYS[which](world)
        fake.endless[f"lake/{JOB}/{key}"] = announced
        reader = ACTS["complete" if which in ("pending", "marker", "part") else READERS[which][0]]
        tracemalloc.start()
        try:
            said = _said(lambda: reader(cast("Damaged", SimpleNamespace(world=world, key=key))))
            peak = tracemalloc.get_traced_memory()[1]
        finally:
            tracemalloc.stop()
        assert key in said, "the key is named"
        assert peak < 4 * codec.MAX_HEAD_BYTES
        assert fake.sent_bytes < GIGABYTE // 4, "the reader hung up"


@pytest.mark.parametrize(
    ("document", "said"),
    [
        ({"job": "a", "slice": {"sources": {"offsets": "x" * 100}}}, "slice.sources.offsets (102 bytes)"),
        ({"items": ["x", "y" * 50]}, "items.1 (52 bytes)"),
        ({"a": 1, "b": 2}, "the whole (13 bytes)"),
        ({"values": {"a": "x" * 30, "b": "x" * 30, "c": "x" * 30}}, "values (112 bytes)"),
        ({}, "the whole (2 bytes)"),
    ],
    ids=["nested", "list", "small", "many alike", "empty"],
)
def test_the_largest_value_of_a_document_is_named(document: dict[str, object], said: str) -> None:  # semantics W5
    assert codec.largest_in(document) == said
