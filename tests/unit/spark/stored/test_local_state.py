"""Copies of state beside a server: found by what the metadata says, believed only after a look at each byte (V3)."""

from __future__ import annotations

import errno
import fcntl
import os
import stat
import subprocess
import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import TYPE_CHECKING, cast

import pytest
from hypothesis import given
from hypothesis import strategies as st

from airflow_cairn.checkpoint.documents.acknowledgement import Output, StateHandle
from airflow_cairn.checkpoint.store.job_files import JobFiles
from airflow_cairn.spark.output.updates import Update
from airflow_cairn.spark.output.updates import write as write_update
from airflow_cairn.spark.output.writer import Writer
from airflow_cairn.spark.stored import local_state, merges
from airflow_cairn.spark.stored.local_state import COPIES, Copy, LocalState, delta_of
from airflow_cairn.spark.stored.outputs import File, Stored, urls
from airflow_cairn.storage import open_store
from airflow_cairn.storage.checksums import checksum_of
from tests.support.narrowing import known

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

CONTENT = {"part-00000-a.parquet": b"PAR1 one", "part-00001-a.parquet": b"PAR1 another"}
OWNER = "s3://lake/cairn/flights/routes"
Handles = list[StateHandle]
Open = Callable[..., LocalState]


def handles_of(content: dict[str, bytes] = CONTENT, run: str = "r0", name: str = "seen") -> Handles:
    """A state's files as a checkpoint on S3 names them: an etag that is no checksum, and the SHA-256 of the content."""
    folder = f"chk-0000000001/state/routes/1-t0/{run}/state.{name}/"
    return [
        StateHandle(f"state.{name}", folder + file, len(data), f'"{data.hex()}"', checksum_of(data))
        for file, data in content.items()
    ]


def with_change(at: int, **changes: object) -> Handles:
    handles = handles_of()
    handles[at] = replace(handles[at], **changes)  # type: ignore[arg-type]
    return handles


def output_of(handles: Handles) -> str:
    return handles[0].output if handles else "state.seen"


def find(state: LocalState, handles: Handles) -> Path | None:
    return state.find(output_of(handles), handles)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    made = tmp_path / "local-state"
    made.mkdir(mode=0o700)
    return made


@pytest.fixture
def open_state(folder: Path) -> Open:
    """Opens the folder as another process would: no open copy is shared."""

    def opened(owner: str = OWNER, limit_bytes: int = 1000) -> LocalState:
        return LocalState(folder, limit_bytes, owner)

    return opened


def write(state: LocalState, handles: Handles, content: dict[str, bytes] = CONTENT, name: str | None = None) -> None:
    with known(state.draft(name or output_of(handles))) as draft:
        draft.data.mkdir()
        for file, data in content.items():
            (draft.data / file).write_bytes(data)
        draft.keep(handles)


def write_run(state: LocalState, handles: Handles, content: dict[str, bytes] = CONTENT) -> None:
    write(state, handles, content, delta_of(output_of(handles)))


def copies(folder: Path) -> list[Path]:
    return sorted(each for each in folder.iterdir() if each.is_dir())


Damage = Callable[[Path], object]


def test_what_was_written_is_found_again_by_a_restore_of_the_same(open_state: Open) -> None:
    write(open_state(), handles_of())
    found = known(find(open_state(), handles_of()))
    assert {each.name: each.read_bytes() for each in found.iterdir()} == CONTENT
    assert find(open_state(f"{OWNER}-2"), handles_of()) is None, "that of another stage or job"


@pytest.mark.parametrize(
    "asked",
    [
        handles_of(run="r1"),
        handles_of(name="other"),
        handles_of({**CONTENT, "part-00002-a.parquet": b"PAR1"}),
        handles_of({"part-00000-a.parquet": CONTENT["part-00000-a.parquet"]}),
        with_change(0, checksum='"another etag"'),
        with_change(0, content=checksum_of(b"PAR1 ONE")),
        with_change(0, size_bytes=9),
        with_change(1, path="chk-0000000002/state/routes/1-t0/r0/state.seen/part-00001-a.parquet"),
    ],
    ids=["driver", "state", "file more", "file less", "etag", "checksum", "size", "checkpoint"],
)
def test_what_differs_in_anything_from_the_metadata_is_not_found(
    open_state: Open, asked: Handles
) -> None:  # semantics V3
    write(open_state(), handles_of())
    assert find(open_state(), asked) is None
    assert find(open_state(), handles_of()) is not None


def swap_for_a_link(copy: Path) -> None:
    file = copy / "part-00000-a.parquet"
    target = copy.parent.parent / "elsewhere"
    target.write_bytes(file.read_bytes())
    file.unlink()
    file.symlink_to(target)


@pytest.mark.parametrize(
    "damage",
    [
        lambda copy: (copy / "part-00001-a.parquet").write_bytes(b"PAR1 Another"),
        lambda copy: [each.write_bytes(each.read_bytes()[::-1]) for each in copy.iterdir()],
        lambda copy: (copy / "part-00001-a.parquet").write_bytes(b"PAR1"),
        lambda copy: (copy / "part-00001-a.parquet").write_bytes(b"PAR1 another."),
        lambda copy: (copy / "part-00001-a.parquet").unlink(),
        lambda copy: (copy / "part-00000-a.parquet").rename(copy / "part-00001-a.parquet"),
        swap_for_a_link,
        lambda copy: ((copy / "part-00001-a.parquet").unlink(), (copy / "part-00001-a.parquet").mkdir()),
    ],
    ids=["byte", "all of it", "truncated", "longer", "gone", "swapped", "link", "folder"],
)
def test_a_damaged_copy_is_not_used_and_does_not_stay(
    open_state: Open, folder: Path, damage: Damage, caplog: pytest.LogCaptureFixture
) -> None:  # semantics V3
    write(open_state(), handles_of())
    [copy] = copies(folder)
    damage(copy)
    assert find(open_state(), handles_of()) is None
    assert "The local copy of state.seen is damaged, and the store is read" in caplog.text
    assert copies(folder) == []


@pytest.mark.parametrize(
    "handles",
    [handles_of({}), with_change(0, content="crc64nvme:0123456789abcdef"), with_change(0, content=None)],
    ids=["no files", "another checksum", "no checksum"],
)
def test_what_cannot_be_compared_is_not_kept(open_state: Open, folder: Path, handles: Handles) -> None:  # semantics V3
    write(open_state(), handles)
    assert copies(folder) == []
    assert find(open_state(), handles) is None


def test_the_tag_of_a_file_that_is_a_checksum_is_compared_too(open_state: Open) -> None:
    handles = with_change(0, checksum=checksum_of(CONTENT["part-00000-a.parquet"]), content=None)
    write(open_state(), handles)
    assert find(open_state(), handles) is not None


@given(st.permutations(range(4)))
def test_the_order_of_files_does_not_matter(order: list[int]) -> None:
    handles = handles_of({f"part-0000{at}-a.parquet": bytes([at]) for at in range(4)})
    assert Copy.of([handles[at] for at in order]) == Copy.of(handles)


def test_two_copies_of_a_state_stay_the_ones_used_last(open_state: Open, folder: Path) -> None:
    for at in range(COPIES):
        write(open_state(), handles_of(run=f"r{at}"))
        _settle(folder)
    restoring = open_state()
    assert find(restoring, handles_of(run="r0")) is not None
    write(open_state(), handles_of(run="r2"))
    later = open_state()
    assert [find(later, handles_of(run=f"r{at}")) is not None for at in range(3)] == [True, False, True]


def test_runs_push_out_no_copy_of_the_base_and_are_bounded_too(
    open_state: Open, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:  # semantics K1, V3
    monkeypatch.setattr(local_state, "DELTA_COPIES", 4)
    write(open_state(), handles_of())
    for at in range(6):
        _settle(folder)
        write_run(open_state(), handles_of(run=f"r{at}"))
    later = open_state()
    assert find(later, handles_of()) is not None
    name = delta_of("state.seen")
    assert [later.find(name, handles_of(run=f"r{at}")) is not None for at in range(6)] == [False] * 2 + [True] * 4
    assert later.find("state.seen", handles_of(run="r5")) is None, "a run is no base"


def test_a_process_holds_no_more_runs_than_it_may_and_each_base(
    open_state: Open, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each is an open file, and a process has a bounded number of them; a base saves more than many runs."""
    monkeypatch.setattr(local_state, "_HELD_DELTAS", 2)
    write(open_state(), handles_of())
    for at in range(3):
        write_run(open_state(), handles_of(run=f"r{at}"))
    later, name = open_state(), delta_of("state.seen")
    for _ in range(2):
        assert [later.find(name, handles_of(run=f"r{at}")) is not None for at in range(3)] == [True, True, False]
    assert find(later, handles_of()) is not None


def with_runs() -> tuple[Stored, list[dict[str, bytes]]]:
    """A base and three runs of two files each, and their content."""
    stored = Stored(Output("state", "seen", "chk-0000000001/state/routes/1-t0/r0/state.seen/", "{}", ("route",)))
    contents = []
    for number in range(4):
        contents.append({name: data + bytes([number]) for name, data in CONTENT.items()})
        made = handles_of(contents[-1], run=f"r{number}")
        stored.files += [File(at, replace(handle, delta=number)) for at, handle in enumerate(made)]
    return stored, contents


def keep_all(state: LocalState, stored: Stored, contents: list[dict[str, bytes]]) -> list[Path]:
    """Keep a copy of each; gives their folders, the base's first."""
    folders = []
    for number, content in enumerate(contents):
        before = copies(state.folder)
        handles = [file.handle for file in stored.files if file.handle.delta == number]
        (write_run if number else write)(state, handles, content)
        [made] = [each for each in copies(state.folder) if each not in before]
        folders.append(made)
    return folders


@pytest.mark.parametrize("damaged", range(4))
def test_base_and_deltas_come_from_copies_or_the_store_if_damaged(
    open_state: Open, damaged: int, tmp_path: Path
) -> None:  # semantics K1, V3
    stored, contents = with_runs()
    folders = keep_all(open_state(), stored, contents)
    (folders[damaged] / "part-00001-a.parquet").write_bytes(b"PAR1 anotheX" + bytes([damaged]))
    files = JobFiles(open_store(f"file://{tmp_path}/lake"), "flights")
    wanted = [stored.files[at] for at in (7, 0, 3, 2, 5, 1, 4, 6)]
    assert urls(files, stored, wanted, None) == [files.spark_url(file.handle.path) for file in wanted]
    expected = [
        files.spark_url(file.handle.path)
        if file.handle.delta == damaged
        else f"file://{folders[file.handle.delta]}/{file.handle.path.rpartition('/')[2]}"
        for file in wanted
    ]
    assert urls(files, stored, wanted, open_state()) == expected


def test_runs_that_have_changed_places_are_read_from_the_store(
    open_state: Open, tmp_path: Path
) -> None:  # semantics K1, V3
    """Each is whole, under the name of another one: the newest row would be another."""
    stored, contents = with_runs()
    folders = keep_all(open_state(), stored, contents)
    folders[1].rename(folders[1].parent / "aside")
    folders[2].rename(folders[1])
    (folders[1].parent / "aside").rename(folders[2])
    files = JobFiles(open_store(f"file://{tmp_path}/lake"), "flights")
    found = urls(files, stored, stored.files, open_state())
    read_here = [
        file.handle.delta for file, url in zip(stored.files, found, strict=True) if str(open_state().folder) in url
    ]
    assert read_here == [0, 0, 3, 3]


def test_an_update_that_reads_no_base_keeps_its_copy_before_those_of_runs(
    open_state: Open, folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:  # semantics K1, V3
    monkeypatch.setattr(merges, "WHOLE_BYTES", 0)
    stored, contents = with_runs()
    folders = keep_all(open_state(), stored, contents)
    new = contents[-1]
    for path in folders:  # the base was used longest ago
        os.utime(path, ns=(0, folders.index(path)))
    four = sum(sum(map(len, content.values())) for content in contents)
    local = open_state(limit_bytes=four)
    made = handles_of(new, run="r4")

    def written(_: object) -> Stored:
        write_run(local, made, new)
        return Stored(stored.output, [File(at, replace(handle, delta=4)) for at, handle in enumerate(made)])

    # The rows and their plan stay on the way to `written`, which stands for Spark.
    writer, rows = cast(Writer, SimpleNamespace(plan_delta=lambda *_, **__: None)), cast("DataFrame", object())
    update = Update("seen", rows, None, ("route",), stored, {"count": "sum"})
    files = JobFiles(open_store(f"file://{tmp_path}/lake"), "flights")
    after = write_update(update, files, writer, written, local, lambda df: df)
    assert len(after.files) == 10
    assert [path.exists() for path in folders] == [True, False, True, True]
    assert len(copies(folder)) == 4


def test_runs_that_are_read_keep_the_copy_of_their_base_before_their_own(
    open_state: Open, tmp_path: Path
) -> None:  # semantics K1, V3
    stored, contents = with_runs()
    folders = keep_all(open_state(), stored, contents)
    files = JobFiles(open_store(f"file://{tmp_path}/lake"), "flights")
    for path in folders:
        os.utime(path, ns=(0, folders.index(path)))
    urls(files, stored, stored.files[2:], open_state())
    times = [path.stat().st_mtime_ns for path in folders]
    assert times[0] == max(times)


def test_what_takes_too_much_goes_the_longest_unused_first(open_state: Open, folder: Path) -> None:
    size = sum(map(len, CONTENT.values()))
    for name in ("a", "b", "c"):
        write(open_state(limit_bytes=2 * size), handles_of(name=name))
        _settle(folder)
    later = open_state()
    assert [find(later, handles_of(name=name)) is not None for name in ("a", "b", "c")] == [False, True, True]


def test_a_copy_that_is_larger_than_all_may_be_is_not_kept(open_state: Open, folder: Path) -> None:
    write(open_state(limit_bytes=sum(map(len, CONTENT.values())) - 1), handles_of())
    assert copies(folder) == []
    assert open_state(limit_bytes=1 << 62).draft("state.seen") is None, "a disk without room for all copies"


def _settle(folder: Path) -> None:
    """Make what is there older than what comes next, whatever the clock of the file system is."""
    for each in folder.iterdir():
        os.utime(each, ns=(each.stat().st_atime_ns, each.stat().st_mtime_ns - 10**9))


_HOLD = """
import sys
from pathlib import Path
sys.path[:0] = {path!r}
from tests.unit.spark.stored.test_local_state import OWNER, find, handles_of
from airflow_cairn.spark.stored.local_state import LocalState
state = LocalState(Path({folder!r}), 1000, OWNER)
if sys.argv[1] == "reads":
    assert find(state, handles_of(run="r0")) is not None
else:
    draft = state.draft("state.seen").__enter__()
    draft.data.mkdir()
print("ready", flush=True)
sys.stdin.readline()
import os
os.kill(os.getpid(), 9)
"""


@pytest.mark.parametrize("does", ["reads", "writes"])
def test_what_a_process_uses_stays_until_it_dies(open_state: Open, folder: Path, does: str) -> None:
    write(open_state(), handles_of(run="r0"))
    [copy] = copies(folder)
    code = _HOLD.format(path=sys.path, folder=str(folder))
    with subprocess.Popen(
        [sys.executable, "-c", code, does], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "ready\n"
        used = copy if does == "reads" else next(folder.glob("draft-*"))
        _settle(folder)
        for run in ("r1", "r2"):
            write(open_state(), handles_of(run=run))
        assert used.is_dir()
        process.communicate("die\n", timeout=300)
    open_state().clean()
    assert not used.exists()


def test_a_draft_that_is_not_kept_leaves_nothing(open_state: Open, folder: Path) -> None:
    with known(open_state().draft("state.seen")) as draft:
        draft.data.mkdir()
        assert stat.S_IMODE(draft.data.parent.stat().st_mode) == 0o700
    assert [*folder.iterdir()] == []


def test_a_state_that_was_given_up_is_not_written_here_again(open_state: Open) -> None:
    with known(open_state().draft("state.seen")) as draft:
        draft.give_up("it is large")
    assert open_state().draft("state.seen") is None
    with known(open_state().draft("state.other")):
        pass


def test_a_folder_that_cannot_be_trusted_is_not_used(
    folder: Path, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    assert LocalState.beside(str(folder), 1, OWNER) is not None
    assert LocalState.beside(None, 1, OWNER) is None
    assert LocalState.beside(str(tmp_path / "none"), 1, OWNER) is None
    link = tmp_path / "link"
    link.symlink_to(folder)
    assert LocalState.beside(str(link), 1, OWNER) is None
    folder.chmod(0o750)
    assert LocalState.beside(str(folder), 1, OWNER) is None
    assert "is not a folder of this user alone" in caplog.text
    pattern = tmp_path / "a[b]"
    pattern.mkdir(mode=0o700)
    assert LocalState.beside(str(pattern), 1, OWNER) is None


def _before_the_first_lock(monkeypatch: pytest.MonkeyPatch, then: Callable[[], object]) -> None:
    """Let another process come between the opening of a folder and its lock."""
    flock, waiting = fcntl.flock, [then]

    def locking(fd: int, operation: int) -> None:
        if waiting:
            waiting.pop()()
        flock(fd, operation)

    monkeypatch.setattr(fcntl, "flock", locking)


def test_a_copy_that_is_deleted_while_it_is_opened_is_not_used(
    open_state: Open, monkeypatch: pytest.MonkeyPatch
) -> None:
    write(open_state(), handles_of())
    _before_the_first_lock(monkeypatch, open_state(limit_bytes=0).clean)
    assert find(open_state(), handles_of()) is None


def test_a_draft_that_is_taken_for_a_dead_ones_is_begun_anew(
    open_state: Open, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    _before_the_first_lock(monkeypatch, open_state().clean)
    with known(open_state().draft("state.seen")) as draft:
        assert [draft.data.parent] == [*folder.glob("draft-*")]


def test_a_disk_that_refuses_costs_the_copy_and_nothing_else(
    open_state: Open, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def refuse(*_: object) -> None:
        raise OSError(errno.ENOLCK, os.strerror(errno.ENOLCK))

    write(open_state(), handles_of())
    monkeypatch.setattr(fcntl, "flock", refuse)
    assert find(open_state(), handles_of()) is None
    assert open_state().draft("state.seen") is None
    assert os.strerror(errno.ENOLCK) in caplog.text
