"""Small JSON state, inside the acknowledgement or in a file; list states as they are given and given out (A4, R4)."""

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from airflow_cairn.checkpoint.documents.acknowledgement import ListMode, Output
from airflow_cairn.checkpoint.documents.attempt import Handover, Slice
from airflow_cairn.checkpoint.errors import InvalidStateError
from airflow_cairn.checkpoint.store.job_files import JobFiles
from airflow_cairn.spark.kinds import small_state
from airflow_cairn.spark.kinds.small_state import MAX_BYTES, MAX_INLINE_BYTES, MAX_INLINE_TOTAL_BYTES, to_files
from airflow_cairn.spark.output.writer import Writer
from airflow_cairn.spark.stored.local_state import LocalState
from airflow_cairn.spark.stored.outputs import Stored
from airflow_cairn.storage import Blob
from airflow_cairn.storage.errors import DocumentError, GoneError
from tests.support.memory_store import MemoryStore
from tests.support.wrapped_stores import WrappedStore

HANDOVER = Handover(1, "e", 1, "t0", "flights", "routes", "try", Slice())


def _writer(store: MemoryStore) -> Writer:
    return Writer(JobFiles(store, "flights"), HANDOVER, "r0", lambda: 0)


@given(st.dictionaries(st.text(), st.integers(2, 3 * MAX_INLINE_BYTES // 2), max_size=60))
def test_what_is_large_and_no_more_than_must_goes_into_files(sizes: dict[str, int]) -> None:  # semantics A4
    chosen = to_files(sizes)
    left = {each: size for each, size in sizes.items() if each not in chosen}
    assert sum(left.values()) <= MAX_INLINE_TOTAL_BYTES
    assert all(size <= MAX_INLINE_BYTES for size in left.values())
    assert chosen == to_files(dict(reversed(sizes.items())))
    small = [sizes[each] for each in chosen if sizes[each] <= MAX_INLINE_BYTES]
    if small:
        assert sum(left.values()) + min(small) > MAX_INLINE_TOTAL_BYTES, "the last one was one too many"
        assert min(small) >= max(left.values(), default=0), "the largest go first"


@pytest.mark.parametrize(("size", "in_file"), [(MAX_INLINE_BYTES, False), (MAX_INLINE_BYTES + 1, True)])
def test_a_value_of_20_kib_is_the_largest_inside_an_acknowledgement(size: int, in_file: bool) -> None:  # semantics A4
    store = MemoryStore()
    value = "x" * (size - 2)
    outputs, values = small_state.settle(_writer(store), {}, {"seen": value, "other": 1})
    assert store.all_keys() == (
        ["flights/chk-0000000001/state/routes/1-t0/r0/value.seen/content.json"] if in_file else []
    )
    assert values == ({"other": 1} if in_file else {"seen": value, "other": 1})
    if in_file:
        assert small_state.read(JobFiles(store, "flights"), outputs["value.seen"]) == value
        assert outputs["value.seen"].files[0].handle.size_bytes == store.stat(store.all_keys()[0]).size_bytes


def test_a_large_value_is_read_from_its_copy_and_not_from_the_store(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:  # semantics V3
    def process() -> LocalState:
        return LocalState(tmp_path, 1 << 20, "owner")

    store, value = MemoryStore(), "x" * MAX_INLINE_BYTES
    writer = Writer(JobFiles(store, "flights"), HANDOVER, "r0", lambda: 0, process())
    outputs, _ = small_state.settle(writer, {}, {"seen": value})
    stored = outputs["value.seen"]
    nothing = JobFiles(MemoryStore(), "flights")
    assert small_state.read(nothing, stored, process()) == value
    with pytest.raises(GoneError):
        small_state.read(nothing, stored)
    [copy] = tmp_path.glob("*/content.json")
    copy.write_bytes(copy.read_bytes().replace(b"xx", b"xy", 1))
    with pytest.raises(GoneError):
        small_state.read(nothing, stored, process())
    assert "The local copy of value.seen is damaged" in caplog.text
    assert small_state.read(JobFiles(store, "flights"), stored, process()) == value


def test_a_list_that_is_large_goes_into_a_file_with_its_mode() -> None:  # semantics A4
    store = MemoryStore()
    writer = _writer(store)
    items = [["x" * 9_000], ["y" * 12_000]]
    small = small_state.held_items(writer, "list.small", [[1]], ListMode.SPLIT)
    large = small_state.held_items(writer, "list.large", items, ListMode.UNION)
    outputs, values = small_state.settle(writer, {"list.small": small, "list.large": large}, {})
    assert (outputs["list.small"], values) == (small, {})
    stored = outputs["list.large"]
    assert (stored.output.mode, stored.output.items, len(stored.files)) == (ListMode.UNION, None, 1)
    assert small_state.given_out_items(JobFiles(store, "flights"), stored, HANDOVER) == [items[0] + items[1]] * 2


def test_too_many_pieces_are_refused() -> None:
    values = {f"v{number}": "x" * MAX_INLINE_BYTES for number in range(101)}
    store = MemoryStore()
    with pytest.raises(InvalidStateError, match=r"too many together.* \[number=`101` files=`101` limit_files=`100`"):
        small_state.settle(_writer(store), {}, values)
    assert store.all_keys() == []


def test_what_is_too_large_for_a_file_is_refused() -> None:
    small_state.check_size("the value 'x'", "x" * (MAX_BYTES - 2))
    with pytest.raises(InvalidStateError, match=r"the value 'x' is too large to be kept as JSON"):
        small_state.check_size("the value 'x'", "x" * (MAX_BYTES - 1))


@pytest.mark.parametrize(
    ("damage", "text"),
    [
        (lambda data: data.replace(b"xx", b"yy"), "has been altered"),
        (lambda data: data + b" ", "larger than"),
        (lambda data: data[:-9], "has been altered"),
    ],
)
def test_a_file_that_was_altered_is_an_error(damage: Any, text: str) -> None:
    store = MemoryStore()
    outputs, _ = small_state.settle(_writer(store), {}, {"seen": "x" * 30_000})
    [key] = store.all_keys()
    store.put(key, damage(store.get(key).data))
    with pytest.raises(DocumentError, match=text):
        small_state.read(JobFiles(store, "flights"), outputs["value.seen"])


@pytest.mark.parametrize(
    ("document", "text"),
    [
        ({"kind": "cairn.ack", "format": 1, "content": 1}, "of another kind"),
        ({"kind": small_state.KIND, "format": 99, "content": 1}, "newer Cairn"),
        ({"kind": small_state.KIND, "format": 1}, "holds no content"),
    ],
)
def test_a_file_of_another_making_is_refused(document: dict[str, Any], text: str) -> None:  # semantics W5
    store = MemoryStore()
    writer = _writer(store)
    output = Output("value", "seen", writer.folder_of("value.seen"))
    stored = writer.create(output, small_state.FILE, json.dumps(document).encode())
    with pytest.raises(DocumentError, match=text):
        small_state.read(JobFiles(store, "flights"), stored)
    with pytest.raises(DocumentError, match="has one file"):
        small_state.read(JobFiles(store, "flights"), Stored(output))


@pytest.mark.parametrize("size", [17 * 1024 * 1024, 10**15])
def test_a_claimed_size_does_not_raise_the_read_limit(size: int) -> None:  # semantics W5
    store, asked = MemoryStore(), list[int | None]()

    class Asked(WrappedStore):
        def get(self, key: str, *, max_bytes: int | None = None) -> Blob:
            asked.append(max_bytes)
            return super().get(key, max_bytes=max_bytes)

    outputs, _ = small_state.settle(_writer(store), {}, {"seen": "x" * 30_000})
    [file] = outputs["value.seen"].files
    stored = Stored(outputs["value.seen"].output, [replace(file, handle=replace(file.handle, size_bytes=size))])
    assert small_state.read(JobFiles(Asked(store), "flights"), stored) == "x" * 30_000
    assert asked == [MAX_BYTES + 1024]


def test_two_processes_of_one_name_are_refused(tmp_path: Path) -> None:
    writer = _writer(MemoryStore())
    output = Output("value", "seen", writer.folder_of("value.seen"))
    writer.create(output, "content.json", b"1")
    with pytest.raises(InvalidStateError, match="with this driver's own name"):
        writer.create(output, "content.json", b"2")


@pytest.mark.parametrize(
    ("per_subtask", "mode", "text"),
    [
        ([[1]], "shared", "there is no mode 'shared' of a list state. Use one of split, union, broadcast"),
        ([], "split", "a list that holds one list of items for each subtask"),
        ([1, 2], "split", "a list that holds one list of items for each subtask"),
        ({"a": 1}, "split", "a list that holds one list of items for each subtask"),
        ("ab", "split", "a list that holds one list of items for each subtask"),
        ([[1]], "split", "[stage=`routes` subtasks=`1` parallelism=`2`]"),
        ([[1], [2], []], "union", "[stage=`routes` subtasks=`3` parallelism=`2`]"),
        ([[1], [2]], "broadcast", "its subtasks hold different items"),
        ([[1], [float("nan")]], "split", "the list state 'offsets' cannot be kept as JSON at [0]: nan is not JSON"),
        ([["x" * MAX_BYTES], []], "split", "the list state 'offsets' is too large"),
    ],
)
def test_what_is_no_list_state_is_refused(per_subtask: Any, mode: str, text: str) -> None:
    with pytest.raises(InvalidStateError) as refused:
        small_state.items_of(replace(HANDOVER, parallelism=2), "offsets", per_subtask, mode)
    assert text in str(refused.value)


@pytest.mark.parametrize(
    ("mode", "parallelism", "expected"),
    [
        ("split", 2, [[1, 2, 3], [4]]),
        ("split", 3, [[1, 2], [3], [4]]),
        ("split", None, [[1, 2, 3], [4]]),
        ("union", 3, [[1, 2, 3, 4]] * 3),
        ("union", None, [[1, 2, 3, 4]] * 2),
    ],
)
def test_list_state_is_given_out_anew(mode: str, parallelism: int | None, expected: list[Any]) -> None:  # semantics R4
    writer = _writer(MemoryStore())
    items, checked = small_state.items_of(HANDOVER, "offsets", ((1, 2, 3), (4,)), mode)
    stored = small_state.held_items(writer, "list.offsets", items, checked)
    at = replace(HANDOVER, parallelism=parallelism)
    assert small_state.given_out_items(JobFiles(MemoryStore(), "flights"), stored, at) == expected


@pytest.mark.parametrize(("parallelism", "copies"), [(None, 1), (1, 1), (4, 4)])
def test_broadcast_state_is_kept_once(parallelism: int | None, copies: int) -> None:  # semantics R4
    items, mode = small_state.items_of(HANDOVER, "rules", [["a", "b"]] * 3, "broadcast")
    assert items == [["a", "b"]]
    stored = small_state.held_items(_writer(MemoryStore()), "list.rules", items, mode)
    at = replace(HANDOVER, parallelism=parallelism)
    found = small_state.given_out_items(JobFiles(MemoryStore(), "flights"), stored, at)
    assert found == [["a", "b"]] * copies
    found[0].append("c")
    assert found[1:] == [["a", "b"]] * (copies - 1), "everybody has a copy of their own"


@pytest.mark.parametrize(("mode", "items"), [(None, [[1]]), (ListMode.SPLIT, [1]), (ListMode.UNION, {"a": 1})])
def test_a_checkpoint_that_holds_something_else_by_that_name(mode: ListMode | None, items: Any) -> None:
    stored = Stored(Output("list", "offsets", "chk-0000000001/x", mode=mode, items=items))
    with pytest.raises(DocumentError, match="holds no list state by this name"):
        small_state.given_out_items(JobFiles(MemoryStore(), "flights"), stored, HANDOVER)
