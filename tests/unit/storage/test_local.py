"""Peculiarities of local files: symlinks, folders, names, permissions."""

from __future__ import annotations

import os
import stat
from collections.abc import Iterator
from pathlib import Path

import pytest

from airflow_cairn.storage import (
    ConditionFailed,
    DeleteFailure,
    ForbiddenError,
    GoneError,
    InvalidKeyError,
    ObjectStore,
    UnavailableError,
    UnsupportedStorageError,
    WriteResult,
    Written,
)
from airflow_cairn.storage.local.files import HIDDEN
from airflow_cairn.storage.local.store import LocalStore
from tests.support.narrowing import expect


@pytest.fixture
def root(tmp_path: Path) -> Path:
    return tmp_path / "lake"


@pytest.fixture
def store(root: Path) -> LocalStore:
    return LocalStore(root)


@pytest.fixture
def outside(tmp_path: Path) -> Path:
    folder = tmp_path / "outside"
    (folder / "sub").mkdir(parents=True)
    (folder / "secret").write_text("secret")
    (folder / "sub" / "secret").write_text("secret")
    return folder


def verbs(store: ObjectStore, key: str) -> dict[str, object]:
    return {
        "get": lambda: store.get(key),
        "range": lambda: store.read_range(key, 0, 1),
        "stat": lambda: store.stat(key),
        "create": lambda: store.create(key, b"x"),
        "replace": lambda: store.replace(key, b"x", expected_etag="x"),
        "copy from": lambda: store.copy(key, "target"),
        "copy to": lambda: store.copy("good", key),
        "delete": lambda: store.delete([key]),
        "list": lambda: list(store.list("")),
        "list folders": lambda: list(store.list_folders("")),
    }


@pytest.mark.parametrize("verb", list(verbs(LocalStore("/nowhere"), "k")))
@pytest.mark.parametrize(
    ("link", "target", "key"),
    [
        pytest.param("link", "outside/secret", "link", id="to a file"),
        pytest.param("link", "outside", "link/secret", id="to a folder"),
        pytest.param("job/link", "outside/sub", "job/link/secret", id="to a folder, deeper"),
        pytest.param("link", "nowhere", "link", id="to nothing"),
        pytest.param("link", "lake/good", "link", id="to an object of the store"),
    ],
)
def test_a_symlink_is_refused_by_every_verb(
    store: LocalStore, root: Path, outside: Path, verb: str, link: str, target: str, key: str
):
    store.create("good", b"good")
    place = root / link
    place.parent.mkdir(exist_ok=True)
    place.symlink_to(root.parent / target)
    with pytest.raises(InvalidKeyError, match="symlink"):
        verbs(store, key)[verb]()  # type: ignore[operator]
    assert place.is_symlink()
    assert (outside / "secret").read_text() == (outside / "sub" / "secret").read_text() == "secret"
    assert sorted(path.name for path in outside.rglob("*")) == ["secret", "secret", "sub"]
    assert not (root / "target").exists()


def test_a_folder_of_the_root_may_not_be_behind_a_symlink(store: LocalStore, root: Path, outside: Path) -> None:
    """The root of the one below is no root of its own (semantics W10)."""
    root.mkdir()
    (root / "link").symlink_to(outside)
    below, before = store.below("link"), sorted(outside.rglob("*"))
    assert below.uri == f"file://{root}/link"
    for act in (
        lambda: below.get("k"),
        lambda: below.create("k", b""),
        lambda: list(below.list("")),
        lambda: below.delete(["k"]),
        lambda: below.make_folder("folder/"),
        lambda: below.below("deeper").create("k", b""),
    ):
        with pytest.raises(InvalidKeyError, match="symlink"):
            act()
    assert sorted(outside.rglob("*")) == before
    for name in ("..", "a/../b", "/a", ""):
        with pytest.raises(InvalidKeyError):
            store.below(name)


def test_a_folder_of_the_root_is_made_by_its_first_write(store: LocalStore, root: Path) -> None:
    below = store.below("kept").below("one")
    assert list(below.list("")) == []
    assert isinstance(below.create("a/k", b"x"), Written)
    assert store.get("kept/one/a/k").data == (root / "kept/one/a/k").read_bytes() == b"x"
    assert [found.key for found in below.list("")] == ["a/k"]
    assert below.delete(["a/k"]) == []
    assert list(store.list("")) == []


def test_the_root_itself_may_be_behind_a_symlink(tmp_path: Path):
    (tmp_path / "real").mkdir()
    (tmp_path / "link").symlink_to(tmp_path / "real")
    assert isinstance(LocalStore(tmp_path / "link").create("a/b", b"x"), Written)
    assert LocalStore(tmp_path / "real").get("a/b").data == b"x"


def test_a_key_is_an_object_or_a_folder_not_both(store: LocalStore):
    store.create("a/b", b"x")
    with pytest.raises(InvalidKeyError, match="folder of other objects"):
        store.create("a", b"x")
    with pytest.raises(InvalidKeyError, match="there is an object where"):
        store.create("a/b/c", b"x")
    with pytest.raises(InvalidKeyError, match="there is an object where"):
        store.copy("a/b", "a/b/c/d")
    assert [found.key for found in store.list("")] == ["a/b"]


def test_deleting_the_last_object_removes_the_empty_folders(store: LocalStore, root: Path):
    for key in ("chk-1/state/routes/1/part", "chk-1/state/other", "chk-2/x"):
        store.create(key, b"x")
    store.delete(["chk-1/state/routes/1/part"])
    assert sorted(str(path.relative_to(root)) for path in (root / "chk-1").rglob("*")) == [
        "chk-1/state",
        "chk-1/state/other",
    ]
    store.delete(["chk-1/state/other", "chk-2/x"])
    assert [path.name for path in root.iterdir()] == [HIDDEN]


def test_an_empty_folder_is_no_object_and_can_be_removed_as_a_marker(store: LocalStore, root: Path):
    (root / "chk-1" / "_temporary" / "0").mkdir(parents=True)
    (root / "full").mkdir()
    (root / "full" / "x").write_text("x")
    assert [found.key for found in store.list("")] == ["full/x"]
    assert list(store.list_folders("")) == ["full"]
    assert store.delete(["chk-1/_temporary/0/", "full/", "absent/"]) == []
    assert sorted(path.name for path in root.iterdir()) == ["full"]


def test_a_folder_is_made_with_those_above_it_and_through_no_object_or_symlink(
    store: LocalStore, root: Path, outside: Path
):
    for _ in range(2):
        store.make_folder("job/chk/state/")
        assert (root / "job" / "chk" / "state").is_dir()
    assert list(store.list("")) == []
    store.create("a", b"x")
    with pytest.raises(InvalidKeyError, match="object"):
        store.make_folder("a/b/")
    (root / "link").symlink_to(outside)
    with pytest.raises(InvalidKeyError, match="symlink"):
        store.make_folder("link/b/")
    assert not (outside / "b").exists()


def test_the_hidden_folder_is_neither_shown_nor_named(store: LocalStore, root: Path):
    store.create("a", b"x")
    (root / HIDDEN / "left-behind").write_text("x")
    (root / "inner").mkdir()
    LocalStore(root / "inner").create("b", b"x")
    assert [found.key for found in store.list("")] == ["a", "inner/b"]
    assert list(store.list_folders("")) == ["inner"]
    for key in (f"{HIDDEN}/x", f"inner/{HIDDEN}/x", HIDDEN):
        with pytest.raises(InvalidKeyError):
            store.create(key, b"x")


def test_reading_makes_nothing(store: LocalStore, root: Path):
    assert list(store.list("")) == []
    assert list(store.list_folders("")) == []
    assert store.delete(["a/b"]) == []
    assert store.replace("a", b"", expected_etag="x").etag is None
    with pytest.raises(GoneError):
        store.get("a")
    assert not root.exists()


def test_a_listing_goes_on_while_objects_come_and_go(store: LocalStore):
    for n in range(5):
        store.create(f"f{n}/x", b"")
    listing = store.list("")
    assert next(listing).key == "f0/x"
    store.delete(["f1/x", "f2/x"])
    store.create("f3/y", b"")
    assert [found.key for found in listing] == ["f3/x", "f3/y", "f4/x"]


def test_a_name_too_long_for_the_disk_is_refused(store: LocalStore):
    with pytest.raises(InvalidKeyError, match="255 bytes"):
        store.create("k" * 256, b"x")


def test_a_pipe_is_no_object(store: LocalStore, root: Path):
    root.mkdir()
    os.mkfifo(root / "pipe")
    with pytest.raises(GoneError):
        store.get("pipe")
    assert list(store.list("")) == []


def test_a_root_that_is_a_file_is_refused(tmp_path: Path):
    (tmp_path / "file").write_text("x")
    for store in (LocalStore(tmp_path / "file"), LocalStore(tmp_path / "file" / "below")):
        with pytest.raises(UnsupportedStorageError, match="is a file"):
            store.create("a", b"x")


@pytest.mark.parametrize("root", ["relative", "", "/", "/.."])
def test_a_root_is_an_absolute_folder(root: str):
    with pytest.raises(InvalidKeyError):
        LocalStore(root)


def test_a_lock_that_is_never_let_go_is_reported(root: Path):
    import fcntl

    store = LocalStore(root, sleep=lambda seconds: None)
    first = store.create("head.json", b"x")
    assert isinstance(first, Written)
    with (root / "head.json").open() as held:
        fcntl.flock(held, fcntl.LOCK_EX)
        with pytest.raises(UnavailableError, match="holds the lock"):
            store.replace("head.json", b"y", expected_etag=first.etag)
        assert store.delete(["head.json"])[0].key == "head.json"
    assert isinstance(store.replace("head.json", b"y", expected_etag=first.etag), Written)


def test_a_file_swapped_between_opening_and_locking_is_looked_at_anew(store: LocalStore, root: Path):
    """The lock of a file that its name has left would let a stale swap through."""
    first = store.create("head.json", b"old")
    assert isinstance(first, Written)
    others: list[WriteResult] = []

    def step(name: str) -> None:
        if name == "opened" and not others:
            others.append(store.replace("head.json", b"theirs", expected_etag=first.etag))

    late = LocalStore(root, step=step)
    answer = late.replace("head.json", b"ours", expected_etag=first.etag)
    assert answer == ConditionFailed(expect(Written, others[0]).etag)
    assert store.get("head.json").data == b"theirs"


@pytest.fixture
def unprivileged() -> Iterator[None]:
    """Give up root's right to ignore permissions, where the tests run as root."""
    if os.geteuid() != 0:
        yield
        return
    os.seteuid(65534)
    yield
    os.seteuid(0)


@pytest.fixture
def forbidden(store: LocalStore, root: Path) -> Iterator[Path]:
    store.create("job/head.json", b"x")
    for path in [root, *root.rglob("*")]:
        path.chmod(0o555 if path.is_dir() else 0o444)
    (root / "job" / "head.json").chmod(0)
    for parent in root.parents:
        if parent.owner() == root.owner() and not stat.S_IMODE(parent.stat().st_mode) & 0o005:
            parent.chmod(parent.stat().st_mode | 0o055)
    yield root
    for path in [root, *root.rglob("*")]:
        path.chmod(0o755)


def test_no_permission_is_forbidden_and_not_absence(store: LocalStore, forbidden: Path, unprivileged: None):
    for verb in (
        lambda: store.get("job/head.json"),
        lambda: store.stat("job/head.json"),
        lambda: store.create("job/new", b"x"),
        lambda: store.create("job/head.json", b"x"),
        lambda: store.replace("job/head.json", b"x", expected_etag="x"),
    ):
        with pytest.raises(ForbiddenError, match="file system refuses access"):
            verb()
    assert store.delete(["job/head.json", "job/absent"]) == [DeleteFailure("job/head.json", "Permission denied")]
