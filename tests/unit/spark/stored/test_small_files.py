"""Small files of a table that grows: which become one, how many stay, how often a row is written (decision 0047)."""

from dataclasses import replace

import pytest

from airflow_cairn.checkpoint.documents.acknowledgement import Appended, Output, StateHandle
from airflow_cairn.checkpoint.store import metadata_file
from airflow_cairn.checkpoint.store.job_files import JobFiles
from airflow_cairn.spark.stored import growing_table
from airflow_cairn.spark.stored.growing_table import ALIKE_FILES as FAN_IN
from airflow_cairn.spark.stored.growing_table import BUDGET_BYTES as BUDGET
from airflow_cairn.spark.stored.growing_table import SMALL_BYTES as SMALL
from airflow_cairn.spark.stored.growing_table import Listing
from airflow_cairn.spark.stored.growing_table import alike_files as alike
from airflow_cairn.spark.stored.outputs import File, Stored
from tests.support.memory_store import MemoryStore

FOOTER = 2_000
"""Bytes of a Parquet file that are no rows, about."""
ROW = 4_000
"""Bytes of a row."""


def files(*sizes: int, partition: str = "") -> list[StateHandle]:
    return [
        StateHandle("table.daily", f"part-{partition}-{at}", size, "tag", partition=partition)
        for at, size in enumerate(sizes)
    ]


def test_enough_files_of_one_partition_and_about_one_size_become_one() -> None:
    day, other = files(*[5_000] * FAN_IN, partition="day"), files(*[5_000] * (FAN_IN - 1), partition="other")
    assert alike([*day, *other]) == (day, other)
    assert alike([*other, *day[1:]]) == ([], [*other, *day[1:]])


def test_larger_files_wait_for_their_like() -> None:
    larger = files(300_000, partition="day")
    assert alike([*larger, *files(*[5_000] * (FAN_IN - 1), partition="day")])[0] == []
    assert alike(files(*[SMALL] * 100))[0] == []


def test_an_epoch_writes_no_more_than_its_budget_anew() -> None:
    chosen, _ = alike(files(*[SMALL - 1] * 100))
    assert chosen == files(*[SMALL - 1] * 100)[: len(chosen)]
    assert BUDGET - SMALL < sum(each.size_bytes for each in chosen) <= BUDGET
    chosen, _ = alike([*files(*[SMALL - 1] * 17, partition="a"), *files(*[5_000] * 17, partition="b")])
    assert len(chosen) == 16
    assert alike([]) == ([], [])


@pytest.mark.parametrize("partitions", [1, 3])
def test_few_files_stay_and_a_row_is_written_a_few_times(partitions: int) -> None:
    epochs = 1_000
    table = _Table()
    most = 0
    for number in range(epochs):
        table.append(number, f"day-{number % partitions}")
        most = max(most, table.files)
    named = table.named()
    assert sorted(row for each in named for row in table.rows[each.path]) == list(range(epochs)), "each row once"
    assert named[-1].path.endswith("part-0"), "the last file is the newest, which has all columns"
    assert most <= 64 * partitions
    assert table.written_anew <= 3 * epochs * ROW


class _Table:
    """A table without Spark: it knows which rows are in which file."""

    def __init__(self) -> None:
        self._job_files = JobFiles(MemoryStore(), "flights")
        self._stored: Stored | None = None
        self.rows: dict[str, list[int]] = {}
        self.files = 0
        self.written_anew = 0
        """Bytes."""

    def append(self, number: int, partition: str) -> None:
        """Append one row."""
        folder = f"chk-{number + 1:010d}/state/report/1-00/11/table.daily/"
        output = Output("table", "daily", folder, appended=Appended())
        listing = Listing(self._job_files, output)
        new = self._file(f"{folder}part-0", [number], partition)
        draft = listing.draft(growing_table.before(self._job_files, self._stored), [new])
        small, others = alike(draft.older)
        larger = [
            self._file(
                f"{folder}small-{name}",
                [row for each in small if each.partition == name for row in self.rows[each.path]],
                name,
            )
            for name in sorted({each.partition for each in small})
        ]
        self.written_anew += sum(each.size_bytes for each in larger)
        listed, self.files, size_bytes = listing.write(draft, [*others, *larger])
        self._stored = Stored(replace(output, appended=Appended(self.files, size_bytes)), [File(0, listed)])

    def named(self) -> list[StateHandle]:
        """Give the files that the list names, and see that it counts them right."""
        assert self._stored is not None
        handles = list(metadata_file.read_table(self._job_files, self._stored.files[0].handle).handles)
        total = self._stored.output.appended
        assert total == Appended(len(handles), sum(each.size_bytes for each in handles))
        return handles

    def _file(self, path: str, rows: list[int], partition: str) -> StateHandle:
        self.rows[path] = rows
        return StateHandle("table.daily", path, FOOTER + ROW * len(rows), "tag", partition=partition)
