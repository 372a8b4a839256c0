"""Sources: what an epoch reads, and that nothing is read twice or lost (semantics T8)."""

from collections.abc import Callable, Iterator
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from airflow.sdk import DAG
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from airflow_cairn.checkpoint import Runtime
from airflow_cairn.checkpoint.acts.opening import Opener, Opening
from airflow_cairn.checkpoint.answers import AlreadyRead, Declined, InputRefused, Triggered, TriggerRequest
from airflow_cairn.checkpoint.documents import layout
from airflow_cairn.checkpoint.documents.attempt import MAX_SLICE_BYTES, EpochDocument, Limits, Owner, Slice, StageSpec
from airflow_cairn.checkpoint.errors import InvalidConfigError, InvalidStateError
from airflow_cairn.checkpoint.reasons import Reason, RequestKind
from airflow_cairn.checkpoint.source import AssetEvent, Reading, Refusal, RunFacts, Source, check_sources
from airflow_cairn.checkpoint.sources import files as source_files
from airflow_cairn.checkpoint.sources import placement
from airflow_cairn.checkpoint.sources.files import FileSource, files_in
from airflow_cairn.checkpoint.sources.values import MAX_VALUE_BYTES, AssetEvents, DataInterval, Offsets
from airflow_cairn.checkpoint.store import source_lists
from airflow_cairn.checkpoint.store.source_lists import INLINE_BYTES
from airflow_cairn.storage import ObjectStat, ObjectStore, open_store
from airflow_cairn.storage.names import parse_storage_uri
from airflow_cairn.tasks.messages import already_read
from tests.support.documented import documented
from tests.support.errors import raises_code
from tests.support.kafka_stand_in import Topic
from tests.support.memory_store import MemoryStore
from tests.support.narrowing import expect
from tests.support.world.world import JOB, World
from tests.support.wrapped_stores import T, WrappedStore

DAY_0 = datetime(2026, 1, 1, tzinfo=UTC)


def day(number: int) -> datetime:
    return DAY_0 + timedelta(days=number)


def run(start: int | None, end: int | None, **facts: Any) -> RunFacts:
    return RunFacts(
        "run",
        data_interval_start=None if start is None else day(start),
        data_interval_end=None if end is None else day(end),
        **facts,
    )


def covered(*windows: tuple[int, int]) -> Any:
    return [{"start": day(start).isoformat(), "end": day(end).isoformat()} for start, end in windows] or None


def test_windows_that_touch_are_one() -> None:  # semantics T8
    """The position does not grow with the epochs."""
    (window,) = covered((1, 2))
    assert DataInterval().advance(covered((0, 1), (3, 4)), window) == covered((0, 2), (3, 4))
    assert DataInterval().advance(covered((0, 1), (2, 4)), window) == covered((0, 4))


@pytest.mark.parametrize(
    ("source", "read", "interval", "expected"),
    [
        (DataInterval(), (), (0, 1), (0, 1)),
        (DataInterval(), ((0, 1),), (1, 2), (1, 2)),
        (DataInterval(), ((0, 1),), (3, 4), (1, 4)),  # a gap is read too
        (DataInterval("keep"), ((0, 1),), (3, 4), (3, 4)),
        (DataInterval("keep"), ((0, 1), (3, 4)), (1, 3), (1, 3)),  # a backfill fills the hole
        (DataInterval("refuse"), ((0, 1),), (3, 4), "run a backfill"),
        (DataInterval("refuse"), ((0, 1),), (1, 2), (1, 2)),  # no gap
        (DataInterval(), ((0, 2),), (1, 3), (2, 3)),  # an overlap is trimmed
        (DataInterval(overlap="refuse"), ((0, 2),), (1, 3), "overlap='trim'"),
        (DataInterval(), ((0, 2),), (0, 2), "have read all of"),  # the same interval again
        (DataInterval(), ((0, 2),), (0, 1), "have read all of"),
        (DataInterval(), ((5, 6),), (3, 4), (3, 4)),  # a backfill before all
        (DataInterval("keep"), ((1, 2),), (0, 3), "not one window"),
        (DataInterval(), (), (None, None), "no data interval"),
        (DataInterval(), ((0, 1),), (3, 3), (1, 3)),  # an interval of no length ends a window
        (DataInterval(), (), (3, 3), (None, 3)),
        (DataInterval(), ((0, 3),), (3, 3), "have read all of"),
        (DataInterval("keep"), ((0, 1),), (3, 3), "no length"),
    ],
)
def test_what_a_data_interval_reads(source: DataInterval, read: Any, interval: Any, expected: Any) -> None:
    answer = source.read(run(*interval), covered(*read))
    if isinstance(expected, str):
        assert expected in expect(Refusal, answer).text
    else:
        assert isinstance(answer, Reading)
        assert answer.window == tuple(None if each is None else day(each).isoformat() for each in expected)
        assert not isinstance(source.advance(covered(*read), answer.part), Refusal)


@settings(max_examples=200, deadline=None)
@given(
    gap=st.sampled_from(["extend", "keep", "refuse"]),
    overlap=st.sampled_from(["trim", "refuse"]),
    intervals=st.lists(st.tuples(st.integers(0, 20), st.integers(0, 5)), max_size=12),
)
def test_no_day_is_read_twice_and_the_position_says_which_were(gap: str, overlap: str, intervals: Any) -> None:
    source = DataInterval(gap, overlap)
    position: Any = None
    seen: set[int] = set()
    for start, length in intervals:
        answer = source.read(run(start, start + length), position)
        if isinstance(answer, Refusal):
            continue
        assert answer.window is not None
        assert answer.window[1] is not None
        first = -1 if answer.window[0] is None else (datetime.fromisoformat(answer.window[0]) - DAY_0).days
        days = set(range(first, (datetime.fromisoformat(answer.window[1]) - DAY_0).days))
        assert days
        assert not days & seen
        seen |= days
        position = source.advance(position, answer.part)
        assert isinstance(source.advance(position, answer.part), Refusal)
        if gap == "extend":
            assert set(range(start, start + length)) <= seen


class Folder:
    """A job that reads the files of a folder."""

    def __init__(self, root: Path, world: World, **options: Any) -> None:
        self.root, self.world = root, world
        self.source = FileSource(f"file://{root}", **options)
        self.folded: list[str] = []

    def put(self, *names: str, size: int = 1) -> None:
        for name in names:
            (self.root / name).parent.mkdir(parents=True, exist_ok=True)
            (self.root / name).write_bytes(b"x" * size)

    def trigger(self, epoch: str) -> Any:
        facts = RunFacts(epoch, open_store=lambda uri, _: open_store(uri))
        request = replace(self.world.request(epoch), sources=(self.source,), run=facts)
        return self.world.coordinator().trigger(request)

    def names(self, answer: Any) -> list[str]:
        assert isinstance(answer, Triggered), answer
        return files(answer.pending.slice, self.world)

    def run(self, epoch: str) -> list[str]:
        names = self.names(self.trigger(epoch))
        self.world.run_epoch(epoch)
        self.folded += names
        return names

    def give_up(self, epoch: str) -> None:
        self.world.coordinator().abort(self.world.pending_id(epoch), Reason.JOB_FAILURE, "by hand")


def read_since(what: str) -> str:
    return f"checkpoints that completed since this epoch was fixed have read {what}"


def files(slice_: Slice, world: World) -> list[str]:
    (part,) = (slice_.sources or {}).values()
    found = files_in(part, lambda shelved: source_lists.read(world.files, shelved))
    return [str(file["key"]) for file in found]


@pytest.fixture
def folder(tmp_path: Path, world: World) -> Folder:
    return Folder(tmp_path, world)


def test_each_epoch_reads_what_is_new(folder: Folder) -> None:
    folder.put("a", "b", "_SUCCESS", ".hidden", "_temporary/c", "d._COPYING_")
    assert folder.run("1") == ["a", "b"]
    folder.put("c", "0")
    assert folder.run("2") == ["0", "c"]
    assert folder.run("3") == []


def test_a_source_that_moves_while_an_epoch_waits_for_its_retry_is_refused(folder: Folder, tmp_path: Path) -> None:
    folder.put("a")
    folder.trigger("1")
    folder.give_up("1")
    there, folder.source = folder.source, FileSource(f"file://{tmp_path / 'elsewhere'}")
    answer = expect(InputRefused, folder.trigger("1"))
    assert f"was at {there.uri}" in answer.detail
    folder.source = there
    assert folder.run("1") == ["a"]


@pytest.mark.parametrize(
    ("first", "then"),
    [
        ("s3://lake/in", "s3a://lake/in"),
        ("s3://lake/in", "s3://lake/in/"),
        ("s3a://lake/in/", "S3://lake/in"),
        ("file:///data/in", "file:///data/in/"),
        ("file:///data/in", "file:/data/in"),
    ],
)
def test_a_folder_that_is_spelt_otherwise_is_the_same(folder: Folder, first: str, then: str) -> None:  # semantics T8
    """The next epoch goes on; an epoch fixed before the change is tried again as it was."""

    def trigger(epoch: str, uri: str) -> Any:
        facts = RunFacts(epoch, open_store=lambda _uri, _: open_store(f"file://{folder.root}"))
        request = replace(folder.world.request(epoch), sources=(FileSource(uri),), run=facts)
        return folder.names(folder.world.coordinator().trigger(request))

    folder.put("a")
    assert trigger("1", first) == ["a"]
    folder.world.run_epoch("1")
    folder.put("b")
    assert trigger("2", first) == ["b"]
    folder.put("c")
    folder.give_up("2")
    assert trigger("2", then) == ["b"], "what the first attempt read"
    folder.world.run_epoch("2")
    assert trigger("3", then) == ["c"]
    folder.world.run_epoch("3")
    assert trigger("4", first) == []


def test_a_failed_epoch_that_a_newer_one_overtook_reads_nothing_twice(folder: Folder) -> None:
    folder.put("a")
    folder.trigger("1")
    folder.give_up("1")
    folder.put("b")
    assert folder.run("2") == ["a", "b"]
    answer = folder.trigger("1")
    assert answer == AlreadyRead("1", read_since("all 1 files that it was to read; the first is a"), 2, None, "files")
    assert folder.run("3") == []


def test_a_partly_read_interval_is_named_and_the_rest_read_next(folder: Folder) -> None:
    folder.put("a", "b", "c")
    folder.trigger("1")
    folder.give_up("1")
    folder.source = replace(folder.source, max_files=2)
    assert folder.run("2") == ["a", "b"]
    answer = expect(InputRefused, folder.trigger("1"))
    assert answer.detail == read_since(
        "2 of the 3 files that it was to read; the first is a. Of the others the first is c; the next run reads them. "
        "Mark this run as done instead of clearing it"
    )
    assert folder.run("3") == ["c"]


@pytest.mark.parametrize(
    ("source", "first", "second", "read"),
    [
        (DataInterval(), run(0, 1), run(0, 2), "completed checkpoints have read all of"),
        (Offsets(lambda position, _run: ((position or 0), (position or 0) + 1)), run(0, 1), run(1, 2), "up to 1"),
        (
            AssetEvents(),
            run(0, 1, events=(AssetEvent("a", "s3://in", "2026-01-01T00:00:00+00:00"),)),
            run(1, 2, events=(AssetEvent("a", "s3://in", "2026-01-01T00:00:00+00:00"),)),
            "have read every event",
        ),
    ],
    ids=["interval", "offsets", "events"],
)
@pytest.mark.parametrize("how", ["paused", "its trigger died before its swap", "failed"])
def test_a_run_of_which_another_has_read_all_is_skipped(
    world: World, source: Source, first: RunFacts, second: RunFacts, read: str, how: str
) -> None:  # semantics T8, S1, T2
    """The first has fixed what it reads; the second, of a person, comes before it, and reads that too."""

    def ask(epoch: str, facts: RunFacts) -> Any:
        kind = RequestKind.PERIODIC if epoch == "1" else RequestKind.MANUAL
        asked = world.request(epoch, Owner("flights", epoch))
        request = replace(asked, slice=Slice(), sources=(source,), run=facts, kind=kind)
        return world.coordinator().trigger(request)

    if how == "its trigger died before its swap":
        found = placement.read(Slice(), (source,), first, {})
        assert not isinstance(found, InputRefused)
        world.coordinator()._heads.ensure()
        world.files.create(layout.epoch_slice("1"), EpochDocument(JOB, "1", found[0]))
    else:
        assert isinstance(ask("1", first), Triggered)
        world.coordinator().pause() if how == "paused" else world.coordinator().abort(1, Reason.JOB_FAILURE, "boom")
    assert isinstance(ask("2", second), Triggered)
    world.finish("2")
    world.coordinator().unpause()
    answer = expect(AlreadyRead, ask("1", first))
    assert (answer.checkpoint, answer.source) == (world.coordinator().head().latest_id(), source.name)
    assert read in answer.window
    assert "the run 1 is skipped" in already_read(JOB, parse_storage_uri("file:///x"), answer)
    assert world.coordinator().head().waiting == ()


@pytest.mark.parametrize("completes", [True, False])
def test_of_two_runs_that_fix_the_same_part_at_once_the_later_is_skipped(
    world: World, completes: bool
) -> None:  # semantics T8, T9
    """Both runs have stored the part before either swap. What is read once is in the state once."""

    def ask(epoch: str, store: ObjectStore | None = None) -> Any:
        source = Offsets(lambda position, _run: (position or 0, (position or 0) + 1))
        asked = replace(world.request(epoch, Owner("flights", epoch)), slice=Slice())
        return world.coordinator(store).trigger(replace(asked, sources=(source,), run=RunFacts(epoch)))

    def complete_2() -> None:
        world.finish("2")

    class Beside(WrappedStore):
        def _write(self, verb: str, key: str, call: Callable[[], T]) -> T:
            answer = call()
            if verb == "create" and key.endswith(layout.epoch_slice("1")):
                assert isinstance(ask("2"), Triggered)
                if completes:
                    complete_2()
            return answer

    answer = ask("1", Beside(world.store))
    if not completes:
        assert isinstance(answer, Declined), "it waits for its turn"
        complete_2()
        answer = ask("1")
    assert isinstance(answer, AlreadyRead), answer
    assert "what this run was to read, up to 1, was read" in answer.window


def test_of_two_sources_one_with_something_left_fails_the_run(world: World) -> None:  # semantics T8
    """A skipped run would lose the rest of that source."""
    world.run_epoch("0")
    both = (DataInterval(), Offsets(lambda position, _run: (1, 1)))
    request = replace(world.request("1"), slice=Slice(), sources=both, run=run(0, 1))
    assert isinstance(world.coordinator().trigger(request), Triggered)
    world.coordinator().abort(2, Reason.JOB_FAILURE, "boom")
    with_one = replace(request, epoch="2", sources=both[:1], run=run(0, 1))
    assert isinstance(world.coordinator().trigger(with_one), Triggered)
    world.run_stage("2")
    world.coordinator().complete(3)
    answer = expect(InputRefused, world.coordinator().trigger(request))
    assert answer.source == "interval"


def test_a_rewound_run_is_not_skipped_because_the_position_is_another(world: World) -> None:  # semantics T8, R5
    """The runs before it have to run again first; seeing to that is its author's part."""
    world.count()
    world.config = replace(world.config, retained=4)
    world.run_epoch("1", "2", "3")
    world.coordinator().rewind(1)
    answer = expect(InputRefused, world.ask("3"))
    assert answer.all_read
    world.run_epoch("2", "3")
    world.audit("1", "2", "3")


def test_a_source_that_is_taken_out_or_renamed_is_refused_with_both_names(folder: Folder) -> None:  # semantics R3, T8
    """A renamed source would begin at the beginning, and fold in twice what the old one has read."""
    folder.put("a")
    folder.run("1")
    with raises_code("non_restored_state", match="unclaimed=`files` new=`none`"):
        folder.world.trigger("2")
    folder.source = FileSource(f"file://{folder.root}", name="landing")
    with raises_code("non_restored_state", match="unclaimed=`files` new=`landing`"):
        folder.trigger("2")
    twin = Folder(folder.root, folder.world.fork())
    folder.put("b")
    assert twin.run("2") == ["b"], "put back, the old one goes on where it was"
    folder.world.config = replace(folder.world.config, allow_non_restored_state=True)
    assert folder.run("2") == ["a", "b"], "the author has said to leave the old position behind"
    folder.world.config = replace(folder.world.config, allow_non_restored_state=False)
    assert folder.run("3") == [], "it is gone for good"


def test_only_a_trigger_places_an_input_on_another_checkpoint(world: World) -> None:
    placed = Opening("1", Slice(base=7), world.stages, Limits(1, 1), None)
    with raises_code("source_moved", match="clear"):
        Opener(world.files, Runtime(world.clock, world.new_token)).open(world.coordinator().head(), placed, 0)


def test_a_failed_epoch_that_a_newer_one_left_alone_is_placed_anew(folder: Folder) -> None:
    folder.put("b")
    folder.trigger("1")
    folder.give_up("1")
    (folder.root / "b").rename(folder.root / "_b")
    folder.put("a")
    assert folder.run("2") == ["a"]
    assert folder.run("1") == ["b"]
    (folder.root / "_b").rename(folder.root / "b")
    assert folder.run("3") == []


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        ({"max_files": 2}, [["a", "b"], ["c", "d/e"], []]),
        ({"max_bytes": 25}, [["a", "b"], ["c", "d/e"], []]),
        ({"max_bytes": 5}, [["a"], ["b"], ["c"], ["d/e"], []]),
        ({"pattern": "*"}, [["a", "b", "c"], []]),
        ({"pattern": "**/e"}, [["d/e"], []]),
        ({"pattern": "**/?"}, [["a", "b", "c", "d/e"], []]),
    ],
)
def test_bounds_and_patterns(tmp_path: Path, world: World, options: Any, expected: Any) -> None:
    folder = Folder(tmp_path, world, **options)
    folder.put("a", "b", "c", "d/e", size=10)
    assert [folder.run(f"{number}") for number in range(len(expected))] == expected


@pytest.mark.parametrize(("on_change", "expected"), [("report", []), ("read", ["a"]), ("refuse", None)])
def test_a_file_that_changed(tmp_path: Path, world: World, on_change: str, expected: Any) -> None:
    folder = Folder(tmp_path, world, on_change=on_change)
    folder.put("a")
    folder.run("1")
    folder.put("a", size=2)
    answer = folder.trigger("2")
    if expected is None:
        assert "the first is a" in expect(InputRefused, answer).detail
        return
    assert folder.names(answer) == expected
    assert any("changed" in line for line in answer.log)
    world.run_epoch("2")
    assert folder.run("3") == ([] if on_change == "read" else expected)


class Looked(WrappedStore):
    """Notes what is asked of it, and lets something happen once its listing has named a file."""

    def __init__(self, inner: ObjectStore, then: Callable[[], object] = lambda: None, after: str = "") -> None:
        super().__init__(inner)
        self.read: list[str] = []
        self._then, self._after = then, after

    def _read(self, verb: str, key: str, call: Callable[[], T]) -> T:
        self.read.append(verb)
        return call()

    def list(self, prefix: str, *, start_after: str | None = None) -> Iterator[ObjectStat]:
        for found in super().list(prefix, start_after=start_after):
            if found.key == self._after:
                self._then()
            yield found


def read_of(source: FileSource, store: ObjectStore) -> Reading | Refusal:
    return source.read(RunFacts("r", open_store=lambda *_: store), None)


def keys(answer: Reading | Refusal) -> list[str]:
    assert isinstance(answer, Reading), answer
    return [each["key"] for each in answer.part["files"]]


def test_a_file_that_goes_while_it_is_listed_comes_under_its_new_name(folder: Folder) -> None:
    folder.put("a.csv", "b.csv")
    store = Looked(
        open_store(folder.source.uri), lambda: (folder.root / "b.csv").rename(folder.root / "c.csv"), "b.csv"
    )
    assert keys(read_of(folder.source, store)) == ["a.csv"]
    assert keys(read_of(folder.source, open_store(folder.source.uri))) == ["a.csv", "c.csv"]


def test_that_nothing_lies_in_a_folder_is_said(folder: Folder) -> None:  # semantics T11
    """The folder may be misspelt, on S3; or no disk is mounted there."""
    folder.put("a")
    (folder.root / "a").unlink()
    for there, said in ((None, True), ("_SUCCESS", False), ("a", False)):
        if there:
            folder.put(there)
        answer = expect(Reading, read_of(folder.source, open_store(folder.source.uri)))
        assert any(line.startswith(f"nothing lies in {folder.source.uri}: ") for line in answer.log) is said


def test_no_file_s_content_is_read_to_list_it(folder: Folder) -> None:
    """A local file has no tag without that; 2 GiB took a minute."""
    folder.put("a.csv", size=3)
    store = Looked(open_store(folder.source.uri))
    answer = expect(Reading, read_of(folder.source, store))
    [file] = answer.part["files"]
    assert (file["size_bytes"], file["etag"]) == (3, "")
    assert file["modified_ms"] == (folder.root / "a.csv").stat().st_mtime_ns // 1_000_000
    assert set(store.read) <= {"list", "read_range"}, "the range is of no bytes: only whether the file is there"


def test_what_older_versions_noted_of_a_local_file_is_not_read_again(folder: Folder) -> None:
    folder.put("a")
    position = {"uri": folder.source.uri, "seen": {"a": f"1 sha256:{'0' * 64}"}}
    source = replace(folder.source, on_change="read")
    answer = source.read(RunFacts("r", open_store=lambda uri, _: open_store(uri)), position)
    assert keys(answer) == []


def test_a_folder_that_does_not_exist_is_no_empty_day(folder: Folder) -> None:
    source = FileSource(f"file://{folder.root}/typo")
    with raises_code("source", match=r"source 'files' cannot list file://.*typo: there is no such folder.*mount"):
        read_of(source, open_store(source.uri))
    (folder.root / "typo").mkdir()
    assert keys(read_of(source, open_store(source.uri))) == []


def test_a_symlink_in_the_folder_is_said_with_the_source(folder: Folder) -> None:
    folder.put("a")
    (folder.root / "latest").symlink_to(folder.root / "a")
    with raises_code("source", match=r"source 'files' cannot list .*symlink.*latest"):
        read_of(folder.source, open_store(folder.source.uri))


class Odd(MemoryStore):
    """A bucket with names that no other store holds; it lists them as S3 does."""

    def __init__(self, *names: str) -> None:
        super().__init__("bucket")
        self.names = sorted(names)

    def list(self, prefix: str, *, start_after: str | None = None) -> Iterator[ObjectStat]:
        return (ObjectStat(name, 1, "tag") for name in self.names)


@pytest.mark.parametrize("name", ["in//a.csv", "in/a\nb.csv", "in/\udce9t\udce9.csv", "in/a:[1].csv"])
def test_an_unreadable_name_is_refused_unless_the_pattern_excludes_it(name: str) -> None:
    store = Odd("good/b.csv", name)
    answer = expect(Refusal, read_of(FileSource("s3://bucket", "**", name="landing"), store))
    for said in (repr(name), "'landing'", "s3://bucket", "Rename or remove it", "pattern that leaves it out"):
        assert said in answer.text
    answer.text.encode()
    left_out = read_of(FileSource("s3://bucket", "good/**"), store)
    assert keys(left_out) == ["good/b.csv"]


def test_a_day_on_which_the_pattern_leaves_out_all_files_is_said() -> None:
    """A day that reads something says nothing of it; the name may be one that a log cannot print."""
    store = Odd("a.json", "\udce9.json", "_SUCCESS", "in/")
    answer = expect(Reading, read_of(FileSource("s3://bucket", "*.csv"), store))
    assert answer.part["left_out"] == 2
    assert "the pattern '*.csv' leaves out 2 files; the first is 'a.json'" in answer.log
    store.names = ["a.json", "b.csv"]
    answer = expect(Reading, read_of(FileSource("s3://bucket", "*.csv"), store))
    assert keys(answer) == ["b.csv"]
    assert "left_out" not in answer.part
    assert not [line for line in answer.log if "leaves out" in line]


@pytest.mark.large
@pytest.mark.parametrize("inline_bytes", [INLINE_BYTES, 150], ids=["in the documents", "on the shelf"])
@settings(
    max_examples=20, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow]
)
@given(steps=st.lists(st.sampled_from(["put", "run", "fail", "clear", "damage"]), max_size=14))
def test_however_runs_end_each_file_is_folded_once(
    steps: list[str], inline_bytes: int, tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(source_files, "INLINE_BYTES", inline_bytes)
    folder = Folder(tmp_path_factory.mktemp("files"), World())
    failed: list[str] = []
    for number, step in enumerate(steps):
        if step == "put":
            folder.put(f"{number:03d}")
        elif step == "run":
            folder.run(f"e{number}")
        elif step == "fail":
            folder.trigger(f"e{number}")
            folder.give_up(f"e{number}")
            failed.append(f"e{number}")
        elif step == "clear" and failed:
            epoch = failed.pop(0)
            if isinstance(folder.trigger(epoch), Triggered):
                folder.run(epoch)
        elif step == "damage" and len(folder.world.coordinator().head().completed) > 1:
            folder.world.files.delete([folder.world.coordinator().head().completed[-1].metadata.key])
            folder.run(f"e{number}")  # while older checkpoints are whole
    folder.run("last")
    assert sorted(folder.folded) == [f"{number:03d}" for number, step in enumerate(steps) if step == "put"]


def event(name: str) -> AssetEvent:
    return AssetEvent(name, "s3://in", day(0).isoformat())


def test_an_event_is_read_once() -> None:
    source = AssetEvents()
    first = expect(Reading, source.read(RunFacts("1", events=(event("b"), event("a"))), None))
    assert [each["id"] for each in first.part] == ["a", "b"]
    position = source.advance(None, first.part)
    second = expect(Reading, source.read(RunFacts("2", events=(event("b"), event("c"))), position))
    assert [each["id"] for each in second.part] == ["c"]
    for all_of_it in (source.read(RunFacts("3", events=(event("a"),)), position), source.advance(position, first.part)):
        assert expect(Refusal, all_of_it).all_read
    manual = expect(Refusal, source.read(RunFacts("4", run_type="manual"), position))
    assert not manual.all_read
    some = expect(Refusal, source.advance(position, [{"id": "b"}, {"id": "d"}]))
    assert not some.all_read
    assert "have read 1 of its events, the first is b; 1 are left, the first is d" in some.text


def test_offsets_ask_the_function_and_go_on_where_it_ended() -> None:
    source = Offsets(lambda position, _run: ({"to": (position or 0) + 5}, (position or 0) + 5))
    first = expect(Reading, source.read(RunFacts("1"), None))
    assert source.advance(None, first.part) == 5
    for position, all_read in ((5, True), (7, True), (None, False)):
        refusal = expect(Refusal, source.advance(position, {"from": 0, "read": 5, "to": 5}))
        assert refusal.all_read is all_read
        assert f"from 0, where this one was to begin, and the position is {position} now" in refusal.text


def test_offsets_of_partitions_go_on_where_they_ended(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:  # semantics W11, T8
    """By the function of the page, which asks Kafka's client; a partition that is new begins at its start."""
    topic = Topic(monkeypatch, "orders")
    with DAG("docs"):
        source = Offsets(documented("how-to/sources.md", "new_orders"))
    found = []
    for epoch, topic.ends in (("a", {0: 10, 1: 10}), ("b", {0: 12, 1: 15}), ("c", {0: 12, 1: 16, 2: 3})):
        request = replace(world.request(epoch), sources=(source,), run=RunFacts(epoch))
        answer = expect(Triggered, world.coordinator().trigger(request))
        part = (answer.pending.slice.sources or {})["offsets"]
        found.append([[int(number), part["read"][number], end] for number, end in part["to"].items()])
        world.run_epoch(epoch)
    assert found == [[[0, 0, 10], [1, 0, 10]], [[0, 10, 12], [1, 10, 15]], [[0, 12, 12], [1, 15, 16], [2, 0, 3]]]


@pytest.mark.parametrize("answer", [5, (1, object()), (float("nan"), 1), ("x" * MAX_VALUE_BYTES, 1)])
def test_what_the_function_gives_is_checked_and_it_is_named(answer: Any) -> None:
    def ask(_position: Any, _run: RunFacts) -> Any:
        return answer

    with pytest.raises(InvalidStateError, match="ask of the source 'offsets'"):
        Offsets(ask).read(RunFacts("1"), None)


@pytest.mark.parametrize(
    ("make", "option"),
    [
        (lambda: DataInterval(gap="no"), "gap"),
        (lambda: DataInterval(overlap="no"), "overlap"),
        (lambda: FileSource("file:///a", max_files=0), "max_files"),
        (lambda: FileSource("file:///a", max_bytes=True), "max_bytes"),
        (lambda: FileSource("file:///a", on_change="no"), "on_change"),
        (lambda: FileSource("file:///a", pattern=""), "pattern"),
        (lambda: Offsets(3), "function"),  # type: ignore[arg-type]
        (lambda: check_sources("files", 1), "source must be"),
        (lambda: check_sources(DataInterval, 1), "source must be"),
        (lambda: check_sources([DataInterval(), DataInterval()], 1), "one name"),
        (lambda: check_sources(DataInterval(), 2), "max_concurrent_checkpoints"),
    ],
)
def test_a_wrong_argument_is_refused_where_it_is_given(make: Any, option: str) -> None:  # semantics S3
    with pytest.raises(InvalidConfigError, match=option):
        make()


def test_what_is_too_much_together_is_refused_before_it_is_fixed(world: World) -> None:  # semantics T8, T1
    """Each value is within its bound. What a run has to read and how far it gets then fill an attempt's document."""
    bulk = ["x" * (MAX_VALUE_BYTES - 100)]

    def ask(epoch: str) -> Any:
        source = Offsets(lambda _position, _run: (bulk[0] + epoch, bulk[0]))
        asked = replace(world.request(epoch), slice=Slice(), sources=(source,), run=RunFacts(epoch))
        return world.coordinator().trigger(asked)

    assert isinstance(ask("1"), Triggered)
    world.finish("1")
    with raises_code("source", match=r"fit into the document of an attempt; by source: offsets \d+\. Have offset"):
        ask("2")
    (declined,) = world.coordinator().head().declined
    assert (declined.epoch, declined.reason) == ("2", Reason.TRIGGER_CHECKPOINT_FAILURE)
    bulk[0] = "little"
    assert isinstance(ask("2"), Triggered), "nothing was fixed"


class Stored:
    """A run whose input an older version has fixed, which came with the position after it to more than 1 MiB."""

    def __init__(self, world: World) -> None:
        self.world = world
        self.asked = 0
        self.value = "x" * (MAX_VALUE_BYTES - 10)
        self.fixed = Slice(sources={"offsets": dict.fromkeys(("from", "read", "to"), self.value)})
        self.positions = {"offsets": self.value}
        world.files.create(layout.epoch_slice("1"), EpochDocument(JOB, "1", self.fixed))

    def ask(self, store: ObjectStore | None = None, epoch: str = "1") -> Any:
        return self.world.coordinator(store).trigger(self.request(epoch))

    def request(self, epoch: str = "1") -> TriggerRequest:
        return replace(self.world.request(epoch), slice=Slice(), sources=(Offsets(self.answer),), run=RunFacts(epoch))

    def answer(self, _position: Any, _run: RunFacts) -> Any:
        self.asked += 1
        return self.value, self.value

    @property
    def stored(self) -> Slice:
        return self.world.files.read(EpochDocument, layout.epoch_slice("1"))[0].slice


@pytest.fixture
def stored(world: World) -> Stored:
    """Stored input, and the job at the position at which it begins."""
    value = "x" * (MAX_VALUE_BYTES - 10)
    source = Offsets(lambda *_: (1, value))
    world.coordinator().trigger(replace(world.request("0"), slice=Slice(), sources=(source,), run=RunFacts("0")))
    world.finish("0")
    return Stored(world)


def test_a_stored_input_that_fits_into_no_attempt_is_asked_for_again(stored: Stored) -> None:  # semantics T8
    """No part of it was read. The refusal's text cures it."""
    for times in (1, 2):
        with raises_code("source", match=r"by source: offsets \d+\. Have offsets give less in one run"):
            stored.ask()
        assert (stored.asked, stored.stored) == (times, stored.fixed)
    stored.value = "little"
    answer = expect(Triggered, stored.ask())
    assert answer.pending.slice.sources == stored.stored.sources
    assert "fits into no attempt, so nothing of it was read: the sources were asked again" in answer.log[0]
    stored.value = "other"
    stored.world.coordinator().abort(answer.pending.checkpoint, Reason.JOB_FAILURE, "boom")
    again = expect(Triggered, stored.ask())
    assert again.pending.slice == answer.pending.slice, "fixed for good"


def test_what_another_trigger_has_fixed_in_its_place_counts(stored: Stored) -> None:  # semantics T8, T9
    class Overtaken(WrappedStore):
        def _write(self, verb: str, key: str, call: Callable[[], T]) -> T:
            if verb == "replace" and key.endswith(layout.epoch_slice("1")):
                stored.value = "other"
                assert isinstance(stored.ask(), Triggered)
            return call()

    stored.value = "mine"
    answer = expect(Triggered, stored.ask(Overtaken(stored.world.store)))
    assert not answer.created
    assert answer.pending.slice.sources == stored.stored.sources
    assert stored.stored.sources is not None
    assert stored.stored.sources["offsets"]["read"] == "other"


def test_an_input_that_an_attempt_has_read_stays(stored: Stored) -> None:  # semantics T8
    """Stages may have acknowledged what they made of the input. The error names what is largest."""
    fixed = replace(stored.fixed, sources={"offsets": {**stored.fixed.sources["offsets"], "read": 1, "to": 1}})  # type: ignore[index]
    stored.world.store.delete([stored.world.files.full(layout.epoch_slice("1"))])
    stored.world.files.create(layout.epoch_slice("1"), EpochDocument(JOB, "1", fixed))
    answer = expect(Triggered, stored.ask())
    assert stored.asked == 0
    stored.world.coordinator().abort(answer.pending.checkpoint, Reason.JOB_FAILURE, "boom")
    more = tuple(StageSpec(f"{number:03}" + "s" * 240) for number in range(1500))
    with pytest.raises(InvalidStateError, match=r"larger than may be read back.*largest=`"):
        stored.world.coordinator().trigger(replace(stored.request(), stages=(*stored.world.stages, *more)))
    assert (stored.asked, stored.stored) == (0, fixed)


def test_the_input_of_epochs_to_be_read_again_counts(stored: Stored) -> None:  # semantics T8, R1
    """The document of an attempt holds it too, where the newest checkpoint is damaged."""
    world = stored.world
    world.store.delete([world.files.full(layout.epoch_slice("1"))])
    stored.value = "y" * (MAX_VALUE_BYTES * 3 // 8)
    stored.ask(epoch="2")
    world.finish("2")
    newest = world.coordinator().head().completed[-1]
    world.store.delete([world.files.full(newest.metadata.key)])
    with raises_code("source", match=r"epochs to be read again of \d\d\d,\d\d\d, and 786,432 fit") as refused:
        stored.ask(epoch="3")
    assert refused.value.fields["source"] == "offsets"
    assert not world.files.has(layout.epoch_slice("3"))


def test_too_much_detail_is_refused_before_it_is_fixed(world: World) -> None:  # semantics T8
    def ask(detail: str) -> Any:
        return world.coordinator().trigger(replace(world.request("1"), slice=Slice(detail={"of": detail})))

    large = "x" * MAX_SLICE_BYTES
    with pytest.raises(InvalidStateError, match=r"and 786,432 fit into .* Put less into slice_detail"):
        ask(large)
    world.files.create(layout.epoch_slice("1"), EpochDocument(JOB, "1", Slice(detail={"of": large})))
    assert isinstance(ask("less"), Triggered), "what an older version has stored gives way"
    assert world.files.read(EpochDocument, layout.epoch_slice("1"))[0].slice.detail == {"of": "less"}
