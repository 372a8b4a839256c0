"""A job in numbers, against numbers counted by hand (semantics O1, O2)."""

import subprocess
import sys
from collections.abc import Iterable
from dataclasses import replace
from datetime import timedelta
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from airflow_cairn.checkpoint.answers import Cancelled
from airflow_cairn.checkpoint.documents import head
from airflow_cairn.checkpoint.documents.acknowledgement import AckMetrics, Output, StateHandle, SubtaskAck
from airflow_cairn.checkpoint.documents.attempt import Owner, StageSpec
from airflow_cairn.checkpoint.documents.entries import Slowest, Stopped
from airflow_cairn.checkpoint.documents.head import Head
from airflow_cairn.checkpoint.reasons import Reason, RequestKind, Status
from airflow_cairn.checkpoint.rules import history
from airflow_cairn.checkpoint.views.checkpoint_list import checkpoints, listing
from airflow_cairn.checkpoint.views.stats import Distribution, OutputRow, SubtaskRow, Tally, distribution, stats
from airflow_cairn.storage.local.store import LocalStore
from tests.support.narrowing import known
from tests.support.shut_down import shut_down
from tests.support.world.world import World


def test_percentiles_are_values_that_occurred() -> None:  # semantics O1
    assert distribution([]) is None
    assert distribution([7]) == Distribution(1, 7, 7.0, 7, 7, 7, 7)
    assert distribution(range(100, 0, -1)) == Distribution(100, 1, 50.5, 50, 95, 99, 100)
    assert distribution([1, 1, 1, 9]) == Distribution(4, 1, 3.0, 1, 9, 9, 9)


def test_a_job_that_never_ran_has_no_distributions() -> None:  # semantics O1
    found = stats(Head("flights"))
    assert (found.triggered, found.duration_ms, found.failures, found.failovers) == (0, None, {}, ())


def test_a_job_in_numbers(world: World) -> None:  # semantics O1, O2
    for epoch, seconds in (("a", 1), ("b", 3)):
        world.run_stages(epoch)
        world.clock.advance(timedelta(seconds=seconds))
        world.run_epoch(epoch)
    world.trigger("c")
    world.run_stage("c", "clean")
    world.submit("c", "routes", "try-x")
    world.coordinator().fail("c", "routes", "try-x", "killed by signal 9")
    head = world.coordinator().head()
    found = stats(head)
    assert (found.triggered, found.in_progress, found.completed, found.failed, found.restored) == (4, 1, 2, 1, 3)
    assert found.duration_ms == Distribution(2, 1000, 2000.0, 1000, 3000, 3000, 3000)
    assert found.acks == Distribution(2, 4, 4.0, 4, 4, 4, 4)
    assert found.failures == {"JOB_FAILOVER_REGION": 1}
    (failover,) = found.failovers
    assert (failover.checkpoint, failover.attempt, failover.root) == (3, 1, "routes: killed by signal 9")
    assert (failover.acks, failover.stages, failover.others) == (1, 4, ())
    first, second = (entry for entry in head.history if entry.status == "COMPLETED")
    assert first.new_bytes == first.size_bytes > 0
    assert second.size_bytes - second.new_bytes == len('"written once"'), "one file is referred to, not written again"
    assert known(found.new_bytes).max == max(first.new_bytes, second.new_bytes)
    assert [restore.checkpoint for restore in found.restores] == [1, 2, 2]


def test_a_failover_that_who_waits_has_settled_is_one(world: World) -> None:  # semantics O1, D1, D5
    """A waiting task sees the decline before anybody reports the failed try, ends the attempt, and opens the next."""
    world.config = replace(world.config, tolerable_failed_checkpoints=1)
    world.trigger("a")
    world.run_stage("a", "clean")
    world.decline(world.submit("a", "routes").handover, "ValueError: bad row")
    world.coordinator().progress("a")
    assert stats(world.coordinator().head()).failovers == (), "nothing has followed it yet"
    world.coordinator().go_on("a")
    (failover,) = stats(world.coordinator().head()).failovers
    assert (failover.checkpoint, failover.root, failover.acks) == (1, "routes: ValueError: bad row", 1)
    world.coordinator().abort(2, Reason.CHECKPOINT_EXPIRED, "not a stage's failure")
    world.run_epoch("a")
    assert len(stats(world.coordinator().head()).failovers) == 1


def test_each_checkpoint_says_what_became_of_it(world: World) -> None:  # semantics O1
    """Id, status, trigger time, duration, size, incremental size, acknowledged of expected, reason."""
    begun = world.clock.now_ms
    world.run_stages("a")
    world.clock.advance(timedelta(seconds=2))
    world.run_epoch("a")
    world.trigger("b")
    world.decline(world.submit("b", "clean").handover, "ValueError: bad row")
    world.coordinator().progress("b")
    failed, done = checkpoints(world.coordinator())
    assert (done.id, done.run_id, done.status) == (1, "a", Status.COMPLETED)
    assert (done.triggered_at_ms, done.duration_ms) == (begun, 2000)
    assert (done.acks, done.stages, done.size_bytes > 0, done.retained) == (4, 4, True, True)
    assert (done.kind, done.new_bytes, done.subtasks) == (RequestKind.MANUAL, done.size_bytes, 8)
    assert done.slowest is not None
    assert (failed.kind, failed.new_bytes, failed.slowest) == (RequestKind.MANUAL, None, None)
    assert (failed.id, failed.status, failed.reason) == (2, Status.FAILED, Reason.CHECKPOINT_DECLINED)
    assert failed.detail == "clean: ValueError: bad row"


def test_a_failover_names_the_others_that_came_with_it(world: World) -> None:  # semantics O1
    world.trigger("a")
    world.run_stage("a", "clean")
    routes, airports = world.submit("a", "routes").handover, world.submit("a", "airports").handover
    world.decline(airports, "OSError: disk full")
    world.decline(routes, "ValueError: bad row")
    assert isinstance(world.coordinator().begin("a", "report", "try-1"), Cancelled)  # passes the cancellation on (B4)
    world.coordinator().fail("a", "routes", routes.claimant, "the driver died")
    (failover,) = stats(world.coordinator().head()).failovers
    assert failover.root == "routes: ValueError: bad row"
    cancelled = "report: routes, which it reads from, has declined: ValueError: bad row"
    assert failover.others == ("airports: OSError: disk full", cancelled), "consequences come last"


def test_a_declined_checkpoint_names_a_bounded_number_of_others(world: World) -> None:  # semantics O1
    world.stages = tuple(StageSpec(f"s{number:02d}") for number in range(14))
    world.trigger("a")
    for stage in reversed(world.stages):
        world.decline(world.submit("a", stage.uid).handover, f"no {stage.uid}")
    world.coordinator().progress("a")
    (failed,) = checkpoints(world.coordinator())
    assert failed.detail == "s00: no s00"
    assert failed.others == tuple(f"s{number:02d}: no s{number:02d}" for number in range(1, 11))


def test_the_slowest_stage_is_one_that_ran_in_the_checkpoint(world: World) -> None:  # semantics O1
    world.trigger("a")
    for stage, took_ms in (("clean", 9000), ("airports", 50)):
        ack = world.write(world.submit("a", stage).handover)
        world.coordinator().acknowledge(replace(ack, metrics=AckMetrics(end_to_end_ms=took_ms)))
    world.coordinator().fail("a", "routes", world.submit("a", "routes").handover.claimant, "died")
    for stage, took_ms in (("routes", 70), ("report", 60)):
        ack = world.write(world.submit("a", stage).handover)
        handles = ack.subtasks[0].handles
        split = (SubtaskAck(0, handles[:1]), SubtaskAck(1, handles[1:]))
        world.coordinator().acknowledge(replace(ack, metrics=AckMetrics(end_to_end_ms=took_ms), subtasks=split))
    world.coordinator().complete(2)
    done, _ = checkpoints(world.coordinator())
    assert done.slowest == Slowest("routes", 70, 0), "clean was taken over; the exchange of subtask 1 is not kept"


def test_all_bytes_ever_written_are_counted(world: World) -> None:  # semantics O1
    world.run_epoch(*"abc")
    written = [row.new_bytes or 0 for row in checkpoints(world.coordinator())]
    assert stats(world.coordinator().head()).total_bytes == sum(written) > 0


def test_what_waits_and_what_is_refused_is_said(world: World) -> None:  # semantics O1, T2
    world.trigger("a")
    world.coordinator().trigger(world.request("b", Owner("flights", "b")))
    found = listing(world.coordinator())
    assert [(each.epoch, each.kind) for each in found.waiting] == [("b", RequestKind.MANUAL)]
    assert (stats(world.coordinator().head()).waiting, found.stopped) == (1, None)
    shut_down(world.coordinator())
    assert listing(world.coordinator()).stopped is Stopped.SHUTDOWN


def test_the_history_is_bounded_and_the_counts_are_not(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:  # semantics O1
    for module in (history, head):
        monkeypatch.setattr(module, "MAX_HISTORY", 3)
    world.run_epoch(*"abcde")
    found = stats(world.coordinator().head())
    assert (found.history, found.completed, found.triggered) == (3, 5, 5)


@pytest.mark.parametrize("held", [3, 1], ids=["with others", "alone"])
def test_a_full_history_drops_the_lowest_ids(
    world: World, monkeypatch: pytest.MonkeyPatch, held: int
) -> None:  # semantics O1
    """The first checkpoint stays pending while later ones fail; the newest end is in the history all the same."""
    for module in (history, head):
        monkeypatch.setattr(module, "MAX_HISTORY", held)
    world.config = replace(world.config, max_concurrent_checkpoints=2, tolerable_failed_checkpoints=100)
    world.trigger("a")

    def fail(epoch: str) -> list[int]:
        world.decline(world.submit(epoch, "clean").handover)
        world.coordinator().progress(epoch)
        return [entry.id for entry in world.coordinator().head().history]

    for epoch in "bcd":
        world.trigger(epoch)
        ended = fail(epoch)
    assert ended == [2, 3, 4][-held:]
    assert fail("a") == [*[3, 4][: held - 1], 1], "it has ended last, and everybody may see it"
    world.trigger("e")
    assert fail("e") == [3, 4, 5][-held:], "the lowest id, and not what ended first"


def test_all_of_it_is_read_from_the_store_without_spark_or_airflow(tmp_path: Path) -> None:  # semantics O2
    """A process that may import neither reads the counts and every checkpoint of a job from its files."""
    local = World(LocalStore(tmp_path))
    local.run_epoch("a")
    program = """
import sys
for name in ("airflow", "pyspark", "py4j", "boto3"):
    sys.modules[name] = None
from airflow_cairn.checkpoint import Coordinator
from airflow_cairn.checkpoint.views import stats, checkpoint_list as views
from airflow_cairn.storage import open_store
coordinator = Coordinator(open_store(sys.argv[1]), "flights")
print(stats.stats(coordinator.head()).completed, [row.id for row in views.checkpoints(coordinator)])
"""
    command = [sys.executable, "-c", program, tmp_path.as_uri()]
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=300)
    assert (done.stdout, done.returncode) == ("1 [1]\n", 0), done.stderr


def test_the_last_twenty_restores_are_kept_and_all_are_counted(world: World) -> None:  # semantics O1, R5
    world.run_epoch("a")
    for _ in range(25):
        world.coordinator().restore_latest()
    head = world.coordinator().head()
    assert (len(head.restores), head.counters.restored) == (20, 25)


def test_where_a_clock_goes_back_nothing_took_less_than_no_time(world: World) -> None:  # semantics O1
    world.run_stages("a")
    world.clock.advance(timedelta(seconds=-5))
    world.run_epoch("a")
    world.trigger("b")
    world.clock.advance(timedelta(seconds=-5))
    world.coordinator().abort(2, Reason.JOB_FAILURE, "by hand")
    head = world.coordinator().head()
    assert [entry.ended_at_ms - entry.triggered_at_ms for entry in head.history] == [0, 0]
    assert head.completed[0].completed_at_ms == head.completed[0].triggered_at_ms


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
