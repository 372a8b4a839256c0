"""Counting a stage's files, against counting them all at once (semantics O1)."""

from collections.abc import Iterable

from hypothesis import given
from hypothesis import strategies as st

from airflow_cairn.checkpoint.documents.acknowledgement import Output, StateHandle
from airflow_cairn.checkpoint.views.stats import OutputRow, SubtaskRow, Tally

OWN, OLD = "chk-0000000002/state/s/1-x/", "chk-0000000001/state/s/1-y/"
OUTPUTS = (Output("state", "totals", f"{OWN}r/state.totals/"), Output("table", "league", f"{OLD}r/table.league/"))

files_of_subtasks = st.lists(
    st.lists(
        st.tuples(
            st.sampled_from(OUTPUTS), st.sampled_from([OWN, OLD]), st.integers(0, 9), st.none() | st.integers(0, 99)
        ),
        max_size=3,
    ),
    min_size=1,
    max_size=12,
)


def _sum(rows: Iterable[int | None]) -> int | None:
    every = list(rows)
    known = [each for each in every if each is not None]
    return sum(known) if len(known) == len(every) else None


@given(files_of_subtasks, st.integers(1, 14))
def test_it_counts_every_file_and_keeps_the_largest_subtasks(
    found: list[list[tuple[Output, str, int, int | None]]], keep: int
) -> None:
    tally = Tally(OUTPUTS, OWN, keep)
    for index, files in enumerate(found):
        for output, folder, size, number in files:
            tally.add(index, StateHandle(output.id, f"{folder}x", size, "", rows=number))
    rows = [
        SubtaskRow(
            index,
            len(files),
            sum(size for _, _, size, _ in files),
            sum(size for _, folder, size, _ in files if folder == OWN),
            _sum(number for *_, number in files),
        )
        for index, files in enumerate(found)
    ]
    by_size = sorted(rows, key=lambda row: (-row.new_bytes, -row.size_bytes, row.index))
    assert tally.subtasks(len(found)) == tuple(by_size[:keep])
    assert tally.new_bytes == sum(row.new_bytes for row in rows)
    everything = [each for files in found for each in files]
    assert tally.outputs() == tuple(
        OutputRow(
            output.kind,
            output.name,
            output.folder,
            sum(each is output for each, *_ in everything),
            sum(size for each, _, size, _ in everything if each is output),
            _sum(number for each, *_, number in everything if each is output),
        )
        for output in OUTPUTS
    )


def test_the_list_of_a_table_and_an_author_s_own_files_have_no_rows() -> None:
    outputs = (Output("table", "league", OWN), Output("files", "model", OWN))
    tally = Tally(outputs, OWN, 1)
    tally.add(0, StateHandle("table.league", f"{OWN}all.json", 9, ""))
    tally.add(0, StateHandle("table.league", f"{OWN}part-00000-x.parquet", 9, "", rows=7))
    tally.add(0, StateHandle("files.model", f"{OWN}weights.parquet", 9, ""))
    assert [each.rows for each in tally.outputs()] == [7, None]
    assert [each.of_rows for each in tally.outputs()] == [True, False]
    assert [each.rows for each in tally.subtasks(1)] == [7]
