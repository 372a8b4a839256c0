"""Counting a stage's files, against counting them all at once (semantics O1)."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from airflow_cairn.checkpoint.documents.acknowledgement import Output, StateHandle
from airflow_cairn.checkpoint.views.tally import OutputRow, SubtaskRow, Tally

OWN, OLD = "chk-0000000002/state/s/1-x/", "chk-0000000001/state/s/1-y/"
OUTPUTS = (Output("state", "totals", f"{OWN}r/state.totals/"), Output("table", "league", f"{OLD}r/table.league/"))

files_of_subtasks = st.lists(
    st.lists(st.tuples(st.sampled_from(OUTPUTS), st.sampled_from([OWN, OLD]), st.integers(0, 9)), max_size=3),
    min_size=1,
    max_size=12,
)


@given(files_of_subtasks, st.integers(1, 14))
def test_it_counts_every_file_and_keeps_the_largest_subtasks(
    found: list[list[tuple[Output, str, int]]], keep: int
) -> None:
    tally = Tally(OUTPUTS, OWN, keep)
    for index, files in enumerate(found):
        for output, folder, size in files:
            tally.add(index, StateHandle(output.id, f"{folder}x", size, ""))
    rows = [
        SubtaskRow(
            index, len(files), sum(size for *_, size in files), sum(size for _, folder, size in files if folder == OWN)
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
            sum(size for each, _, size in everything if each is output),
        )
        for output in OUTPUTS
    )
