"""The manifests of a table that grows: how many there are, what is written anew, and what they name (decision 0047)."""

from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from airflow_cairn.checkpoint.documents import layout
from airflow_cairn.checkpoint.documents.acknowledgement import Appended, Output, StateHandle
from airflow_cairn.checkpoint.errors import DocumentError, InvalidStateError
from airflow_cairn.checkpoint.store import metadata_file
from airflow_cairn.checkpoint.store.job_files import JobFiles
from airflow_cairn.spark.stored import growing_table
from airflow_cairn.spark.stored.growing_table import FAN_IN, Before, Listing, is_older, merged_tail, partition_of
from airflow_cairn.spark.stored.outputs import File, Stored
from tests.support.memory_store import MemoryStore


class Table:
    """A table that grows epoch by epoch, with a plain list of what it should hold."""

    def __init__(self) -> None:
        self.store = MemoryStore()
        self.files = JobFiles(self.store, "flights")
        self.stored: Stored | None = None
        self.expected: list[StateHandle] = []
        self.epochs = 0

    def append(self, *partitions: str, replaced: frozenset[str] = frozenset()) -> int:
        """Add a file for each partition; gives the bytes of manifests and list that this took."""
        self.epochs += 1
        folder = f"chk-{self.epochs:010d}/state/report/1-00/11/table.daily/"
        new = [
            StateHandle(
                "table.daily", f"{folder}part-{at}.parquet", 100 + at, f"tag-{self.epochs}-{at}", partition=name
            )
            for at, name in enumerate(partitions)
        ]
        output = Output("table", "daily", folder, appended=Appended())
        listing = Listing(self.files, output)
        listed, count, size_bytes = listing.write(listing.draft(self.before, new, replaced.intersection))
        self.expected = [each for each in self.expected if each.partition not in replaced] + new
        assert (count, size_bytes) == (len(self.expected), sum(each.size_bytes for each in self.expected))
        output = replace(output, appended=Appended(count, size_bytes))
        self.stored = Stored(output, [File(0, each) for each in (*reversed(new), listed)])
        return sum(found.size_bytes for found in self.files.listing(folder))

    @property
    def before(self) -> Before:
        return growing_table.before(self.files, self.stored)

    def check(self) -> None:
        assert self.stored is not None
        [listed] = [each.handle for each in self.stored.files if metadata_file.is_list(each.handle)]
        assert list(metadata_file.read_table(self.files, listed).handles) == self.expected


partitions = st.lists(st.sampled_from(["", *(f"{each}-0" for each in "abcde")]), max_size=4)


@settings(max_examples=25, deadline=None)
@given(st.lists(st.tuples(partitions, st.booleans()), min_size=1, max_size=40))
def test_it_names_exactly_what_was_appended_and_not_replaced(epochs: list[tuple[list[str], bool]]) -> None:
    table = Table()
    for names, overwrites in epochs:
        table.append(*names, replaced=frozenset(names) if overwrites else frozenset())
        table.check()


@settings(max_examples=60, deadline=None)
@given(st.lists(st.integers(1, 200), min_size=1, max_size=400))
def test_few_manifests_stay_whatever_epochs_add(added: list[int]) -> None:
    sizes: list[int] = []
    for each in added:
        sizes.append(each)
        tail = merged_tail(sizes)
        sizes[-tail:] = [sum(sizes[-tail:])]
    full = sum(size >= growing_table.FULL / FAN_IN for size in sizes)
    levels = 1
    while FAN_IN**levels < sum(added):
        levels += 1
    assert len(sizes) <= (FAN_IN - 1) * levels + full + 1


def test_what_an_epoch_writes_does_not_grow_with_the_table() -> None:
    table = Table()
    wrote = [table.append("") for _ in range(400)]
    table.check()
    assert len(table.before.manifests) <= 3 * 5
    early, late = sum(wrote[16:80]) / 64, sum(wrote[-256:]) / 256
    assert late < 1.6 * early, "a level more, at four times the files"
    assert sorted(wrote)[len(wrote) // 2] < 6_000, "most epochs write a manifest of their own and the list"


def test_a_damaged_document_is_an_error_that_names_it() -> None:
    table = Table()
    table.append("a-0")
    [manifest] = table.before.manifests
    key = f"flights/{manifest.document.key}"
    table.store.put(key, table.store.get(key).data.replace(b"part-0", b"part-9"))
    with pytest.raises(DocumentError, match=r"a manifest of a table has been altered.*manifest-00000\.json"):
        table.append("a-0", replaced=frozenset(["a-0"]))
    assert table.stored is not None
    listed = next(each.handle for each in table.stored.files if metadata_file.is_list(each.handle))
    whole = table.store.get(f"flights/{listed.path}").data
    table.store.put(f"flights/{listed.path}", whole.replace(b'"files":1', b'"files":2'))
    with pytest.raises(DocumentError, match=r"the list of a table has been altered.*all\.json"):
        table.append("b-0")


def test_two_drivers_of_one_folder_are_a_mistake() -> None:
    files = JobFiles(MemoryStore(), "flights")
    output = Output("table", "daily", "chk-0000000001/state/report/1-00/11/table.daily/")
    first, second = Listing(files, output), Listing(files, output)
    first.write(first.draft(Before(), []))
    draft = second.draft(Before(), [StateHandle("table.daily", f"{output.folder}part-0", 1, "tag")])
    with pytest.raises(InvalidStateError, match="a file with this driver's own name is there already"):
        second.write(draft)
    assert metadata_file.is_list(StateHandle("table.daily", f"{output.folder}all.json", 1, "tag"))
    assert not metadata_file.is_list(StateHandle("files.model", f"{output.folder}all.json", 1, "tag"))


@pytest.mark.parametrize(
    ("path", "expected"),
    [
        ("part-0.parquet", ""),
        ("cairn_partition=2026-01-01-FF/part-0.parquet", "2026-01-01-FF"),
        ("chk-1/table.daily/cairn_partition=a.b-0/part-0.parquet", "a.b-0"),
        ("chk-1/xcairn_partition=a/part-0.parquet", ""),
        ("chk-1/cairn_partition=a", ""),
    ],
)
def test_a_folder_names_the_partition(path: str, expected: str) -> None:
    assert partition_of(path) == expected


@pytest.mark.parametrize(
    ("digits", "older"), [(1, True), (16, True), (32, False), *((digits, None) for digits in (0, 17, 31, 33))]
)
@pytest.mark.parametrize("shown", ["", "2026-01-01", f"a-{'F' * 16}", f"b-{'F' * 32}"])
def test_a_name_says_by_which_hash_it_was_made(shown: str, digits: int, older: bool | None) -> None:  # semantics W14
    name = f"{shown}-{'A' * digits}"
    if older is None:
        with pytest.raises(DocumentError, match="this is not a partition of a table"):
            layout.check_partition(name)
    else:
        assert layout.check_partition(name) == name
        assert is_older(name) is older
