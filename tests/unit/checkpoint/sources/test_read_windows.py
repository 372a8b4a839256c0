"""A job remembers which data intervals it has read: none is folded in twice, whichever process asks (semantics T8)."""

from dataclasses import replace
from datetime import UTC, datetime, timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from airflow_cairn.checkpoint import CheckpointConfig
from airflow_cairn.checkpoint.answers import (
    AlreadyRead,
    Failed,
    FailedOver,
    InputRefused,
    TriggerAnswer,
    Triggered,
    TriggerFirst,
    TriggerRequest,
)
from airflow_cairn.checkpoint.documents.attempt import Owner, Slice
from airflow_cairn.checkpoint.documents.metadata import MetadataHeader
from airflow_cairn.checkpoint.documents.read_windows import (
    MAX_WINDOWS,
    NOTHING_READ,
    Overlap,
    ReadWindow,
    ReadWindows,
    WindowText,
)
from airflow_cairn.checkpoint.reasons import Reason
from airflow_cairn.checkpoint.source import RunFacts
from airflow_cairn.checkpoint.sources.values import DataInterval
from airflow_cairn.checkpoint.store import metadata_file
from tests.support.memory_store import MemoryStore
from tests.support.narrowing import expect, known
from tests.support.world.world import CONFIG, World

DAY_0 = datetime(2001, 1, 1, tzinfo=UTC)


def day(number: float) -> str:
    return (DAY_0 + timedelta(days=number)).isoformat()


def window(start: float, end: float) -> ReadWindow:
    return ReadWindow(DAY_0 + timedelta(days=start), DAY_0 + timedelta(days=end))


OWNER = Owner("flights", "late")
BACKFILL = (
    f"airflow backfill create --dag-id flights --from-date {day(4)} --to-date 2001-01-06T23:59:59+00:00 "
    "--max-active-runs 1 --reprocess-behavior failed"
)


class Daily(World):
    """A job whose epochs read days; one that is not named reads none."""

    days: dict[str, tuple[float, float]]
    again: frozenset[str] = frozenset()

    def request(self, epoch: str, *args: object, **more: object) -> TriggerRequest:
        request = super().request(epoch)
        if epoch not in self.days:
            return request
        start, end = self.days[epoch]
        return replace(request, slice=Slice(day(start), day(end), again=epoch in self.again))

    def read(self) -> list[tuple[str | None, str]]:
        (*_, newest) = self.coordinator().head().completed
        header = expect(MetadataHeader, next(iter(metadata_file.read(self.files, newest.metadata))))
        assert header.read == newest.read, "the head says what the metadata says"
        return [(each.start, each.end) for each in header.read.windows]


@pytest.fixture
def job() -> Daily:
    """Three days were read, each by its scheduled run."""
    job = Daily(config=replace(CONFIG, retained=3))
    job.days = {f"d{number}": (number, number + 1) for number in range(1, 4)}
    job.run_epoch(*job.days)
    return job


def again(*days: float) -> str:
    start, end = (day(each) for each in days)
    return f"`cairn checkpoint flights --window {start} {end} --read-again`"


def test_a_run_by_hand_inside_a_scheduled_day_changes_nothing(job: Daily) -> None:  # semantics T8
    """Trigger in the UI: a run whose data interval a scheduled run has read."""
    job.days["by_hand"] = (2, 3)
    before = job.coordinator().head()
    assert job.ask("by_hand") == AlreadyRead(
        "by_hand",
        str(window(2, 3)),
        checkpoint=2,
        back_to=1,
        again=f"trigger a run that reads it again by {again(2, 3)}",
    )
    assert job.coordinator().head() == before, "no checkpoint, no place in the line, nothing noted"
    assert not [found for found in job.memory.list("flights/epochs/") if "by_hand" in found.key]
    assert job.read() == [(day(1), day(4))], "merged"


@pytest.mark.parametrize("part", [(3.5, 4.5), (0, 1.5), (0, 9)])
def test_a_run_that_overlaps_in_part_is_refused_with_both_windows(job: Daily, part: tuple[float, float]) -> None:
    job.days["part"] = part
    answer = job.ask("part")  # semantics T8
    assert isinstance(answer, InputRefused)
    for text in (str(window(*part)), str(window(1, 4)), again(*part)):
        assert text in answer.detail
    assert job.coordinator().head().declined[-1].epoch == "part"


def test_a_gap_is_read_and_said(job: Daily) -> None:  # semantics T8
    job.days |= {"late": (6, 7), "backfill": (4, 6)}
    answer = expect(Triggered, job.coordinator().trigger(replace(job.request("late"), owner=OWNER)))
    assert answer.log == (f"no run has read {window(4, 6)}: a backfill can read it later: `{BACKFILL}`",)
    job.run_epoch("late")
    assert job.read() == [(day(1), day(4)), (day(6), day(7))]
    filled = expect(Triggered, job.ask("backfill"))
    assert filled.log == ()
    job.run_epoch("backfill")
    assert job.read() == [(day(1), day(7))]


def test_what_another_run_is_reading_is_no_gap(job: Daily) -> None:  # semantics T12
    job.config = replace(job.config, max_concurrent_checkpoints=3)
    job.days |= {"d4": (4, 5), "d5": (5, 6), "late": (7, 8)}
    for epoch, log in (
        ("d4", ()),
        ("d5", ()),
        ("late", (f"no run has read {window(6, 7)}: a backfill can read it later",)),
    ):
        answer = expect(Triggered, job.ask(epoch))
        assert answer.log == log


def test_a_job_refuses_the_run_after_a_gap_until_the_gap_is_read(job: Daily) -> None:  # semantics T12
    job.config = replace(job.config, on_gap="refuse")
    job.days |= {"late": (6, 7), "first": (4, 5), "second": (5, 6)}
    request = replace(job.request("late"), owner=OWNER)
    answer = expect(InputRefused, job.coordinator().trigger(request))
    for text in (f"no run has read {window(4, 6)}, ", f"`{BACKFILL}`, and clear this run", again(6, 7)):
        assert text in answer.detail
    assert job.coordinator().head().declined[-1].epoch == "late"
    assert not [found for found in job.memory.list("flights/epochs/") if "late" in found.key], "nothing was fixed"
    assert isinstance(job.ask("second"), InputRefused), "its state would lack the day before"
    job.run_epoch("first", "second")
    assert expect(Triggered, job.coordinator().trigger(request)).log == ()
    job.run_epoch("late")
    assert job.read() == [(day(1), day(7))]


@pytest.mark.parametrize(
    ("epoch", "days", "log"),
    [
        ("older", (0, 1), ()),
        ("next", (4, 5), ()),
        ("again", (6, 7), (f"no run has read {window(4, 6)}: a backfill can read it later",)),
    ],
)
def test_a_job_that_refuses_gaps_takes(
    job: Daily, epoch: str, days: tuple[float, float], log: tuple[str, ...]
) -> None:  # semantics T12
    """A run without a gap before it, and one whose conf says that it reads all the same."""
    job.config, job.again = replace(job.config, on_gap="refuse"), frozenset({"again"})
    job.days[epoch] = days
    answer = expect(Triggered, job.ask(epoch))
    assert answer.log == log


def test_a_failed_run_and_a_rewind_leave_a_gap_too(job: Daily) -> None:  # semantics T12
    job.config = replace(job.config, on_gap="refuse")
    job.days |= {"d4": (4, 5), "d5": (5, 6)}
    job.coordinator().abort(job.trigger("d4").pending.checkpoint, Reason.JOB_FAILURE, "its run has failed")
    assert isinstance(job.ask("d5"), InputRefused)
    job.run_epoch("d4", "d5")
    job.coordinator().rewind(3)
    assert isinstance(job.ask("d5"), InputRefused)
    job.run_epoch("d4", "d5")
    assert job.read() == [(day(1), day(6))]


def test_a_first_run_has_no_gap_before_it() -> None:  # semantics T12
    job = Daily(config=replace(CONFIG, on_gap="refuse"))
    job.days = {"first": (50, 51)}
    job.run_epoch("first")
    assert job.read() == [(day(50), day(51))]


def test_a_retry_and_a_failover_read_the_same_window(job: Daily) -> None:  # semantics T8, T9, F2
    job.days["d4"] = (4, 5)
    assert job.trigger("d4").created
    assert not job.trigger("d4").created
    job.submit("d4", "clean", "try")
    assert isinstance(job.coordinator().fail("d4", "clean", "try", "it died"), FailedOver)
    job.run_epoch("d4")
    assert job.read() == [(day(1), day(5))]
    assert job.ask("d4") == job.ask("d4"), "it has completed"


def test_an_epoch_that_failed_has_read_nothing(job: Daily) -> None:  # semantics T8
    job.days |= {"d4": (4, 5), "by_hand": (4, 5)}
    job.trigger("d4")
    job.coordinator().abort(job.pending_id("d4"), Reason.JOB_FAILURE, "by hand")
    assert isinstance(job.ask("by_hand"), Triggered)
    job.run_epoch("by_hand")
    assert isinstance(job.ask("d4"), AlreadyRead), "now another run has read it"


def test_a_rewind_takes_back_what_was_read(job: Daily) -> None:  # semantics T8, R5
    job.days["by_hand"] = (3, 4)
    job.coordinator().rewind(2)
    job.run_epoch("by_hand")
    assert job.read() == [(day(1), day(4))]
    assert isinstance(job.ask("d3"), AlreadyRead)


def test_the_conf_reads_it_once_more(job: Daily) -> None:  # semantics T8
    job.days["anew"] = (2, 3)
    job.again = frozenset({"anew"})
    first = job.trigger("anew")
    job.submit("anew", "clean", "try")
    assert isinstance(job.coordinator().fail("anew", "clean", "try", "it died"), FailedOver)
    assert job.run_epoch("anew") > first.pending.checkpoint, "so does its next attempt"
    assert job.read() == [(day(1), day(4))]


def test_a_damaged_checkpoint_s_window_is_replayed_and_not_forgotten(job: Daily) -> None:  # semantics T8, R1
    (*_, newest) = job.coordinator().head().completed
    job.store.delete([job.files.full(newest.metadata.key)])
    job.days |= {"d4": (4, 5), "by_hand": (3, 4)}
    assert isinstance(job.ask("by_hand"), AlreadyRead)
    assert [each.epoch for each in job.trigger("d4").pending.replay] == ["d3"]
    job.run_epoch("d4")
    assert job.read() == [(day(1), day(5))]


def test_of_two_runs_of_one_day_at_once_one_reads_it(job: Daily) -> None:  # semantics T8, C2
    """The overtaken run cannot be opened again: its day is in the state that it would start from."""
    job.config = replace(job.config, max_concurrent_checkpoints=2)
    job.days |= {"d4": (4, 5), "by_hand": (4, 5)}
    job.trigger("d4")
    overtaken = job.trigger("by_hand").pending.checkpoint
    job.run_epoch("d4")
    assert job.coordinator().begin("by_hand", "clean", "try") == TriggerFirst(overtaken)
    answer = expect(Failed, job.coordinator().go_on("by_hand"))
    assert (answer.reason, answer.trigger_first) == (Reason.CHECKPOINT_SUBSUMED, True)
    assert isinstance(job.ask("by_hand"), AlreadyRead)
    assert job.read() == [(day(1), day(5))]


def test_an_older_versions_attempt_keeps_its_place_at_a_failover(job: Daily) -> None:
    """Version 0.1 opened it without asking what had been read; its trigger says what is left to do."""
    job.days["by_hand"] = (3, 4)
    job.again = frozenset({"by_hand"})
    answer = job.coordinator().trigger(replace(job.request("by_hand"), owner=Owner("flights", "by_hand", "prod")))
    assert isinstance(answer, Triggered)
    job.submit("by_hand", "clean", "try")
    _edit_head(job, b'"again":true', b'"again":false')
    job.again = frozenset()
    ended = expect(Failed, job.coordinator().fail("by_hand", "clean", "try", "it died"))
    assert ended.reason is Reason.CHECKPOINT_SUBSUMED
    assert [each.epoch for each in job.coordinator().head().waiting] == ["by_hand"]  # semantics C2, T2
    assert job.coordinator().begin("by_hand", "clean", "try again") == TriggerFirst(answer.pending.checkpoint)
    assert isinstance(job.ask("by_hand"), AlreadyRead)  # semantics T8
    assert not job.coordinator().head().waiting, "and so it waits for no place any more"


def _edit_head(job: Daily, old: bytes, new: bytes) -> None:
    head = job.memory.get("flights/head.json", max_bytes=10**7)
    assert head.data.count(old) == 1
    job.memory.replace("flights/head.json", head.data.replace(old, new), expected_etag=head.etag)


def test_a_source_takes_over_what_plain_intervals_have_read(job: Daily) -> None:  # semantics T8
    def asked(epoch: str, start: float, end: float) -> TriggerAnswer:
        facts = RunFacts(epoch, data_interval_start=DAY_0 + timedelta(start), data_interval_end=DAY_0 + timedelta(end))
        request = replace(World.request(job, epoch), sources=(DataInterval(),), run=facts)
        return job.coordinator().trigger(request)

    assert isinstance(asked("by_hand", 2, 3), AlreadyRead)
    answer = expect(Triggered, asked("d4", 3, 5))
    assert (answer.pending.slice.start, answer.pending.slice.end) == (day(4), day(5)), "the rest"
    assert [(each.start, each.end) for each in answer.pending.read.windows] == [(day(1), day(5))]


def test_what_a_checkpoint_of_an_older_version_had_read_is_not_guessed() -> None:  # semantics T8, C5
    """Such a checkpoint says what its own epoch read, and nothing of those before."""
    job = Daily()
    job.days = {f"d{number}": (number, number + 1) for number in range(1, 8)}
    job.run_epoch("d3")
    _forget_windows(job)
    assert isinstance(job.ask("d2"), InputRefused)
    job.days["by_hand"] = (3, 4)
    assert isinstance(job.ask("by_hand"), AlreadyRead)
    job.run_epoch("d4")
    answer = expect(InputRefused, job.ask("d2"))
    assert f"from {day(4)} on" in answer.detail
    job.again = frozenset({"d2"})
    job.run_epoch("d2")
    assert isinstance(job.ask("by_hand"), AlreadyRead)


def _forget_windows(job: Daily) -> None:
    """Let the head and the metadata be as version 0.1 has written them."""
    for key in [found.key for found in job.memory.list("flights/")]:
        data = job.memory.get(key, max_bytes=10**7).data
        assert isinstance(job.memory, MemoryStore)
        if b'"read":' in data and "_metadata" in key:
            head, _, rest = data.partition(b"\n")
            job.memory.delete([key])
            start = head.index(b',"read":')
            end = head.index(b"]}", start) + 2
            job.memory.create(key, head[:start] + head[end:] + b"\n" + rest)
    import hashlib
    import json

    head = json.loads(job.memory.get("flights/head.json", max_bytes=10**7).data)
    for entry in head["completed"]:
        entry.pop("read", None)
        data = job.memory.get(f"flights/{entry['metadata']['key']}", max_bytes=10**7).data
        entry["metadata"] |= {"size_bytes": len(data), "sha256": hashlib.sha256(data).hexdigest()}
    etag = known(job.memory.stat("flights/head.json").etag)
    job.memory.replace("flights/head.json", json.dumps(head).encode(), expected_etag=etag)


def test_the_windows_are_bounded_and_nothing_is_claimed_beyond() -> None:  # semantics T8
    read = NOTHING_READ
    for number in range(MAX_WINDOWS + 3):
        read = read.having(window(2 * number, 2 * number + 1))
    assert len(read.windows) == MAX_WINDOWS
    assert read.exact_from == day(5)
    assert read.overlap(window(0, 1)) is Overlap.UNKNOWN, "not said to be unread"
    assert read.overlap(window(1, 2)) is Overlap.UNKNOWN, "and not to be read"
    assert read.overlap(window(5, 6)) is Overlap.NONE
    assert read.overlap(window(6, 7)) is Overlap.ALL


@given(st.lists(st.tuples(st.integers(0, 30), st.integers(1, 5)), max_size=20), st.integers(0, 30), st.integers(1, 5))
def test_the_set_says_what_was_read(read: list[tuple[int, int]], start: int, length: int) -> None:
    found, days = NOTHING_READ, set[int]()
    for begin, count in read:
        found = found.having(window(begin, begin + count))
        days |= set(range(begin, begin + count))
    asked = set(range(start, start + length))
    expected = Overlap.ALL if asked <= days else Overlap.SOME if asked & days else Overlap.NONE
    assert found.overlap(window(start, start + length)) is expected
    left = found.left(window(start, start + length))
    assert sorted(asked - days) == [
        day for day in sorted(asked) if any(each.start <= window(day, day + 1).start < each.end for each in left)
    ]
    whole = found
    for each in left:
        assert whole.overlap(each) is Overlap.NONE
        whole = whole.having(each)
    assert whole.overlap(window(start, start + length)) is Overlap.ALL


def test_what_is_left_begins_where_the_set_is_exact() -> None:
    read = ReadWindows((WindowText(day(4), day(3)),), day(2))
    assert read.left(window(0, 5)) == (window(2, 3), window(4, 5))


def test_what_is_no_window_is_refused() -> None:  # semantics C5
    with pytest.raises(ValueError, match="window"):
        WindowText("2001-01-01T00:00:00+00:00", day(1))
    with pytest.raises(ValueError, match="isoformat"):
        ReadWindows((), "soon")


def test_a_job_without_windows_remembers_none() -> None:
    world = World(config=CheckpointConfig())
    world.run_epoch("a", "b")
    assert not any(entry.read for entry in world.coordinator().head().completed)
