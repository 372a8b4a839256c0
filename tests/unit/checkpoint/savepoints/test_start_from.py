"""A job starts from a savepoint: copied in, it is the newest checkpoint, and the savepoint is not needed any more."""

import json
import re
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import replace
from datetime import timedelta
from pathlib import Path

import pytest

from airflow_cairn.checkpoint.answers import Declined, EpochCompleted, FilesProgress, Triggered
from airflow_cairn.checkpoint.documents import metadata
from airflow_cairn.checkpoint.documents.attempt import StageSpec
from airflow_cairn.checkpoint.documents.metadata import InFlightLine, Line, MetadataHeader, StageLine
from airflow_cairn.checkpoint.errors import (
    DocumentError,
    InvalidConfigError,
    InvalidStateError,
    NoCheckpointError,
    NoSavepointError,
)
from airflow_cairn.checkpoint.reasons import Reason, RequestKind
from airflow_cairn.checkpoint.rules import history, rewinds
from airflow_cairn.checkpoint.rules.rewinds import Superseded
from airflow_cairn.checkpoint.savepoints import copy_in
from airflow_cairn.checkpoint.savepoints.savepoint_format import METADATA
from airflow_cairn.checkpoint.savepoints.savepoint_request import ImportOptions
from airflow_cairn.checkpoint.sources import files as source_files
from airflow_cairn.checkpoint.store import metadata_file, source_lists
from airflow_cairn.storage import ConditionFailed, ObjectStore, UnavailableError, open_store
from airflow_cairn.storage.checksums import SHA256, checksum_of
from tests.support.errors import raises_code
from tests.support.memory_store import MemoryStore
from tests.support.narrowing import expect, known
from tests.support.world import world as world_module
from tests.support.world.lagging import UNALIGNED, complete_without, run_some
from tests.support.world.listed_folder import Job
from tests.support.world.saved import audit_started, save, saved, thrown_away
from tests.support.world.savepoints import Below, asked, take
from tests.support.world.world import CONFIG, STAGES, World
from tests.support.wrapped_stores import Crashed, Fault, FaultyStore, InterleavingStore, RecordingStore

pytestmark = pytest.mark.usefixtures("parsed_documents")

REFUSING = ImportOptions(give_up=False)


@pytest.fixture
def old() -> World:
    """A job with two completed epochs, both retained."""
    world = World()
    world.run_epoch("e1", "e2")
    return world


def test_a_new_job_starts_from_it_and_needs_it_no_more(old: World) -> None:  # semantics R1, R6, T5
    folder = saved(old)
    new = World()
    told: list[FilesProgress] = []
    before = [each.key for each in folder.list("")]
    found = new.coordinator().start_from(folder, on_progress=told.append)
    assert [each.key for each in folder.list("")] == before, "its owner keeps it (R6)"
    assert (found.checkpoint, found.created, found.gave_up) == (1, True, Superseded(0))
    assert (told[-1].files_done, told[-1].bytes_done) == (told[-1].files, told[-1].size_bytes)
    assert (found.files, found.size_bytes) == (told[-1].files, told[-1].size_bytes)
    thrown_away(folder)
    audit_started(new, "e1", "e2")
    assert new.run_epoch("e3") == 2
    audit_started(new, "e1", "e2", "e3")
    ended = known(new.coordinator().head().ended_by_id(2))
    assert ended.restored_from == 1


def test_a_new_job_has_ids_and_epochs_of_its_own(old: World) -> None:  # semantics T5, T9
    new = World()
    new.coordinator().start_from(saved(old, job="rides"))
    head = new.coordinator().head()
    assert (head.next_id, head.completions(), head.rewinds) == (2, {}, ())
    assert new.run_epoch("e2") == 2, "that its other job had a run of that name says nothing of this one's"
    assert new.folded()["clean"] == ["e1", "e2", "e2"]
    assert isinstance(new.ask("e2"), EpochCompleted)


def test_what_stands_there_already_is_started_from_once(old: World) -> None:
    folder = saved(old)
    new = World()
    new.coordinator().start_from(folder)
    before = new.coordinator().head()
    again = new.coordinator().start_from(folder)
    assert (again.checkpoint, again.created) == (1, False)
    assert new.coordinator().head() == before
    new.run_epoch("e3")
    before = new.coordinator().head()
    moved = saved(old, "elsewhere")
    assert new.coordinator().start_from(moved).created is False, "it is the same, wherever it lies"
    assert new.coordinator().head() == before


def test_it_can_be_started_from_once_more_if_that_is_meant(old: World) -> None:
    folder = saved(old)
    new = World()
    new.coordinator().start_from(folder)
    new.run_epoch("e3")
    found = new.coordinator().start_from(folder, ImportOptions(again=True))
    assert (found.checkpoint, found.created, found.gave_up.epochs) == (3, True, ("e3",))
    audit_started(new, "e1", "e2")
    assert new.run_epoch("e3") == 4
    audit_started(new, "e1", "e2", "e3")


def test_whoever_went_back_behind_it_may_start_from_it(old: World) -> None:  # semantics R5
    folder = saved(old)
    old.coordinator().start_from(folder)
    old.coordinator().rewind(1)
    assert old.coordinator().start_from(folder).created
    audit_started(old, "e1", "e2")


def test_only_a_new_job_starts_from_it(old: World) -> None:  # semantics R1
    folder, only_if_new = saved(old), ImportOptions(only_if_new=True)
    new = World()
    assert new.coordinator().start_from(folder, only_if_new).created
    new.run_epoch("e3")
    thrown_away(folder)
    before = new.coordinator().head()
    found = new.coordinator().start_from(folder, only_if_new)
    assert (found.checkpoint, found.created) == (2, False), "it is not even looked for"
    assert new.coordinator().head() == before
    assert old.coordinator().start_from(folder, only_if_new).created is False


def test_what_the_savepoint_does_not_hold_runs_again(old: World) -> None:  # semantics R5, T5, T9
    folder = saved(old)
    old.run_epoch("e3")
    pending = old.trigger("e4").pending.checkpoint
    found = old.coordinator().start_from(folder)
    assert found.gave_up == Superseded(2, (3,), ("e3",), (pending,), ("e4",))
    assert found.gave_up.said == "checkpoints 3; epochs e3; pending 4"
    head = old.coordinator().head()
    ended = known(head.ended_by_id(pending))
    assert ended.reason is Reason.CHECKPOINT_COORDINATOR_SUSPEND
    assert ended.detail == "the job was started from a savepoint, as checkpoint 5"
    assert [entry.id for entry in head.completed] == [2, 5]
    with pytest.raises(InvalidConfigError, match="started from a savepoint, as checkpoint 5, after the epoch's last"):
        old.coordinator().begin("e3", "clean", old.new_claimant())
    assert isinstance(old.ask("e2"), EpochCompleted)
    assert [old.run_epoch("e3"), old.run_epoch("e4")] == [6, 7]
    audit_started(old, "e1", "e2", "e3", "e4")


def test_an_older_savepoint_of_the_job_is_known_by_the_note_of_its_epoch(
    old: World, monkeypatch: pytest.MonkeyPatch
) -> None:  # semantics T9
    monkeypatch.setattr(history, "MAX_HISTORY", 2)
    folder = saved(old)
    old.run_epoch("e3", "e4", "e5", "e6")
    assert old.coordinator().head().ended_by_id(2) is None, "the history has forgotten it"
    found = old.coordinator().start_from(folder)
    assert found.gave_up.back_to == 2
    assert isinstance(old.ask("e1"), EpochCompleted)
    assert isinstance(old.ask("e3"), Triggered), "also where only a note knew that it had completed"


def test_one_of_a_checkpoint_that_was_made_from_a_savepoint_is_known_too(old: World) -> None:  # semantics T9
    made = old.coordinator().start_from(saved(old)).checkpoint
    folder = saved(old, "before-the-upgrade")
    old.run_epoch("e3", "e4", "e5", "e6")
    assert old.coordinator().head().completed_by_id(made) is None, "no longer retained"
    found = old.coordinator().start_from(folder)
    assert (found.gave_up.back_to, found.gave_up.epochs) == (made, ("e3", "e4", "e5", "e6"))
    assert isinstance(old.ask("e2"), EpochCompleted), "the savepoint holds it"
    audit_started(old, "e1", "e2")


def test_one_that_nobody_goes_on_with_is_given_up(old: World) -> None:  # semantics D2, C3
    folder = saved(old)
    with suppress(Crashed):
        old.coordinator(FaultyStore(old.store, 3, Fault.CRASH_AFTER)).start_from(folder)
    old.clock.advance(timedelta(days=6))
    old.run_epoch("e3")
    head = old.coordinator().head()
    assert head.importing is not None
    assert [key for key in old.standing() if head.importing.token in key], "what was copied waits for who goes on"
    old.clock.advance(timedelta(days=2))
    old.run_epoch("e4")
    audit_started(old, "e1", "e2", "e3", "e4")
    old.coordinator().start_from(folder)
    audit_started(old, "e1", "e2")


def test_whoever_copies_for_longer_than_that_is_told(old: World) -> None:  # semantics D2
    def look(_: FilesProgress) -> None:
        old.clock.advance(timedelta(days=2))
        old.coordinator().look_for_savepoint("none")

    with raises_code("resume_refused", match="this import was abandoned"):
        old.coordinator().start_from(saved(old), on_progress=look)
    audit_started(old, "e1", "e2")


def test_half_a_deletion_of_a_claimed_one_is_in_the_plan(old: World) -> None:  # semantics R6
    folder, claim, new = saved(old), ImportOptions(claim=True), World()
    with suppress(UnavailableError):
        new.coordinator().start_from(FaultyStore(folder, 1, Fault.FAILS), claim)
    assert [each.key for each in folder.list("")] == [METADATA]
    plan = new.coordinator().start_plan(folder)
    assert (plan.standing, plan.gives_up.anything) == (1, False)
    new.coordinator().start_from(folder, claim)
    assert list(folder.list("")) == []


def test_one_of_a_checkpoint_that_was_rewound_goes_back_before_it(old: World) -> None:  # semantics R5
    folder = saved(old)
    old.coordinator().rewind(1)
    old.run_epoch("e2")
    found = old.coordinator().start_from(folder)
    assert found.gave_up == Superseded(1, (3,), ("e2",))
    spans = [(each.to, each.through) for each in old.coordinator().head().rewinds]
    assert spans == [(1, 3)]


def test_another_jobs_savepoint_replaces_all_that_was(old: World) -> None:  # semantics T9, R5
    new = World()
    new.run_epoch("x1", "x2")
    folder = saved(old, job="rides")
    with raises_code("resume_refused", match=r"which would be lost.*gives_up=`checkpoints 1, 2; epochs x1, x2`"):
        new.coordinator().start_from(folder, REFUSING)
    assert new.coordinator().head().importing is None
    new.coordinator().start_from(folder)
    audit_started(new, "e1", "e2")
    assert new.run_epoch("x1") == 4
    audit_started(new, "e1", "e2", "x1")


def test_another_job_may_have_the_same_runs_under_the_same_ids(old: World) -> None:  # semantics T5
    folder = saved(old, job="rides")
    assert old.coordinator().start_plan(folder).gives_up == Superseded(0, (1, 2), ("e1", "e2"))
    new = World()
    new.run_epoch("x1", "x2", "x3")
    assert new.coordinator().start_plan(saved(old)).gives_up.back_to == 0, "nor is one of its name elsewhere this job"


def test_whoever_is_replaced_while_he_copies_is_told(old: World) -> None:  # semantics R6
    """The replacement has not ended either: its copies are kept, and those of the replaced start are not."""
    first, second, new = saved(old), saved(old, request="another"), World()

    def begin_another() -> None:
        recording = RecordingStore(new.fork().store)
        new.fork().coordinator(recording).start_from(second)
        last = FaultyStore(new.store, len(recording.writes) - 1, Fault.CRASH_BEFORE)
        with pytest.raises(Crashed):
            new.coordinator(last).start_from(second)

    store = InterleavingStore(new.store, "replace", 1, begin_another, suffix="head.json")
    with raises_code("resume_refused", match="that of another savepoint took its place"):
        new.coordinator(store).start_from(first)
    assert new.coordinator().head().importing is not None
    assert new.coordinator().start_from(second).created
    audit_started(new, "e1", "e2")


def test_the_plan_says_what_it_does_and_does_nothing(old: World) -> None:
    folder = saved(old)
    old.run_epoch("e3")
    before = old.coordinator().head()
    plan = old.coordinator().start_plan(folder)
    assert (plan.standing, plan.gives_up.checkpoints, plan.origin.checkpoint) == (None, (3,), 2)
    assert old.coordinator().head() == before
    old.run_epoch("e4")
    with raises_code("resume_refused", match=r"has changed since you looked.*agreed=`checkpoints 3; epochs e3`"):
        old.coordinator().start_from(folder, agreed=plan)
    assert old.coordinator().head().importing is None
    old.coordinator().start_from(folder, agreed=old.coordinator().start_plan(folder))
    assert old.coordinator().start_plan(folder).standing == 5


def test_what_is_pending_is_told_to_listeners(old: World) -> None:  # semantics D4
    old.listen("sink")
    folder = saved(old)
    old.trigger("e3")
    old.coordinator().start_from(folder)
    old.coordinator().deliver(old.ears)
    assert [(each.checkpoint, each.latest) for each in old.ears[0].heard] == [(3, 4)]


def broken_off(folder: ObjectStore) -> None:
    folder.delete([next(found.key for found in folder.list("chk-0000000002/"))])


def of_a_newer_format(folder: ObjectStore) -> None:
    data = folder.get(METADATA).data
    folder.delete([METADATA])
    folder.create(METADATA, data.replace(b'"format":2', b'"format":99', 1))


@pytest.mark.parametrize(
    ("damage", "error", "said"),
    [
        (thrown_away, NoSavepointError, "there is no savepoint: its _metadata is missing"),
        (broken_off, NoSavepointError, "not whole: files are missing.*lacking=`1` first=`chk-0000000002/"),
        (of_a_newer_format, DocumentError, r"written by a newer Cairn.*found=`99`"),  # semantics C5
    ],
)
def test_what_is_no_whole_savepoint_changes_nothing(
    old: World, damage: Callable[[ObjectStore], object], error: type[Exception], said: str
) -> None:
    folder, new = saved(old), World()
    damage(folder)
    before = old.coordinator().head()
    for job in (old, new):
        with pytest.raises(error, match=said):
            job.coordinator().start_from(folder)
    assert old.coordinator().head() == before
    assert new.memory.all_keys() == [], "not even a job that is empty"


def test_a_file_that_was_altered_leaves_the_job_as_it_was(old: World) -> None:  # semantics R1
    folder = saved(old)
    altered = next(found.key for found in folder.list("chk-0000000002/"))
    data = folder.get(altered).data
    folder.delete([altered])
    folder.create(altered, data[:-1] + b"?")
    new = World()
    with pytest.raises(NoSavepointError, match=rf"not whole: {altered}: expected {len(data)} bytes of sha256:"):
        new.coordinator().start_from(folder)
    head = new.coordinator().head()
    assert (head.importing, head.completed) == (None, ())
    new.coordinator().clean()
    assert new.standing() == set()
    assert new.run_epoch("e1") == 2


@pytest.mark.parametrize("place", ["memory/flights", "memory/flights/kept"])
def test_it_may_not_lie_in_the_jobs_own_prefix(old: World, place: str) -> None:
    with pytest.raises(InvalidConfigError, match="lies in the job's own prefix"):
        old.coordinator().start_from(saved(old, place))


@pytest.mark.large
def test_it_can_be_moved_to_files_and_back(old: World, tmp_path: Path) -> None:  # semantics C5
    folder = saved(old)
    files, back = open_store(f"file://{tmp_path}/moved"), MemoryStore("back")
    for source, target in ((folder, files), (files, back)):
        for found in list(source.list("")):
            target.create(found.key, source.get(found.key).data)
    for place, job in ((files, World()), (back, World(open_store(f"file://{tmp_path}/jobs")))):
        job.coordinator().start_from(place)
        job.run_epoch("e3")
        audit_started(job, "e1", "e2", "e3")


RENAMED = tuple(replace(stage, uid=stage.uid.replace("report", "summary"), upstream=stage.upstream) for stage in STAGES)


def test_what_was_not_allowed_at_first_can_be_allowed_by_naming_it_again(old: World) -> None:  # semantics R3
    """The process that does what the trigger's error says."""
    new, folder = World(stages=RENAMED), saved(old)
    new.coordinator().start_from(folder)
    told = f"`cairn resume flights --from {folder.uri} --allow-non-restored-state --storage {new.store.uri}`"
    with raises_code("non_restored_state", match=re.escape(told)) as refused:
        new.trigger("e3")
    assert {name: refused.value.fields[name] for name in ("unclaimed", "new", "stages")} == {
        "unclaimed": "report",
        "new": "summary",
        "stages": "airports, clean, routes, summary",
    }
    ids = new.coordinator().head().next_id
    allowed = new.coordinator().start_from(folder, ImportOptions(allow_non_restored_state=True))
    assert (allowed.checkpoint, allowed.created, allowed.allowed, allowed.files) == (1, False, True, 0)
    before = new.coordinator().head()
    assert before.next_id == ids, "nothing is copied again"
    assert not new.coordinator().start_from(folder, ImportOptions(allow_non_restored_state=True)).allowed, (
        "it is already"
    )
    assert not new.coordinator().start_from(folder).allowed, "and stays so"
    assert new.coordinator().head() == before
    new.run_epoch("e3")
    assert new.folded()["summary"] == ["e3"]


@pytest.mark.parametrize("claim", [False, True])
def test_what_has_been_copied_and_is_gone_may_be_named_again(old: World, claim: bool) -> None:  # semantics R1, R3, R6
    """A task that is retried, and the process that allows its state to be left behind then."""
    new, folder = World(stages=RENAMED), saved(old)
    new.coordinator().start_from(folder, ImportOptions(claim=claim))
    if not claim:
        thrown_away(folder)
    before = new.coordinator().head()
    again = new.coordinator().start_from(folder, ImportOptions(claim=claim))
    assert (again.checkpoint, again.created, again.allowed) == (1, False, False)
    plan = new.coordinator().start_plan(folder)
    assert (plan.standing, plan.gives_up.anything) == (1, False)
    assert new.coordinator().head() == before
    with pytest.raises(NoSavepointError, match="its _metadata is missing"):
        new.coordinator().start_from(folder, ImportOptions(again=True))
    assert new.coordinator().start_from(folder, ImportOptions(allow_non_restored_state=True)).allowed
    new.run_epoch("e3")


def test_a_part_of_what_has_been_copied_is_no_savepoint(old: World) -> None:  # semantics C5, R5
    """Another savepoint is being copied to the place of the first; or the job has gone back behind the copy."""
    new, folder = World(), saved(old)
    for job in (new, old):
        job.coordinator().start_from(folder)
    assert folder.delete([METADATA]) == []
    with pytest.raises(NoSavepointError, match="its _metadata is missing"):
        new.coordinator().start_from(folder)
    thrown_away(folder)
    old.coordinator().rewind(1)
    with pytest.raises(NoSavepointError, match="its _metadata is missing"):
        old.coordinator().start_from(folder)


def test_what_comes_after_its_restore_is_not_allowed_by_it(old: World) -> None:  # semantics R3
    new, folder = World(), saved(old)
    new.coordinator().start_from(folder)
    new.run_epoch("e3")
    before = new.coordinator().head()
    assert not new.coordinator().start_from(folder, ImportOptions(allow_non_restored_state=True)).allowed
    assert new.coordinator().head() == before


def test_whoever_copied_beside_one_who_did_not_allow_it_allows_it(old: World) -> None:  # semantics R3
    """Both starts copy under the same names; the other one's swap lands."""
    new, folder = World(stages=RENAMED), saved(old)
    beside = InterleavingStore(new.store, "create", 2, lambda: new.coordinator().start_from(folder))
    found = new.coordinator(beside).start_from(folder, ImportOptions(allow_non_restored_state=True))
    assert (found.checkpoint, found.created, found.allowed) == (1, False, True)
    new.run_epoch("e3")


def test_state_may_be_left_behind_by_the_restore_from_it_alone(old: World) -> None:  # semantics R3
    new = World(stages=RENAMED)
    new.coordinator().start_from(saved(old), ImportOptions(allow_non_restored_state=True))
    new.run_epoch("e3")
    assert new.folded() == {**{uid: ["e1", "e2", "e3"] for uid in ("clean", "routes", "airports")}, "summary": ["e3"]}
    new.stages = STAGES
    with raises_code("non_restored_state", match="unclaimed=`summary`"):
        new.trigger("e4")


def test_a_maximum_that_was_changed_is_named_with_the_old_one(old: World) -> None:  # semantics R4
    new = World(stages=(*STAGES[:3], StageSpec("report", ("routes",), 2, 256)))
    new.coordinator().start_from(saved(old))
    with pytest.raises(
        InvalidStateError, match=r"max_parallelism differs.*`report`.*`256` restored_max_parallelism=`128`"
    ):
        new.trigger("e3")


def test_what_lags_is_caught_up_with_in_the_other_job() -> None:  # semantics B3
    old = World(config=UNALIGNED)
    old.run_epoch("e1")
    run_some(old, "e2", "clean", "routes", "report")
    complete_without(old, "e2", "airports")
    folder = saved(old, job="rides")
    new = World(config=UNALIGNED)
    new.coordinator().start_from(folder)
    thrown_away(folder)
    assert new.owed()["airports"] == ["e2"]
    (entry,) = new.coordinator().head().completed
    lines = list(metadata_file.read(new.files, entry.metadata))
    executions = [line.execution for line in lines if isinstance(line, StageLine | InFlightLine)]
    owed = [
        each for line in lines if isinstance(line, StageLine) for owed in line.owes for each in owed.inputs.values()
    ]
    assert {each.home for each in (*executions, *owed)} == {entry.id}, "ids of another job mean nothing here"
    new.run_epoch("e3")
    audit_started(new, "e1", "e2", "e3")


def test_master_hooks_and_sources_go_on_where_they_stood() -> None:  # semantics T7, T8
    old, new = World(), World()
    for world in (old, new):
        world.hook()
        world.count()
    old.run_epoch("e1")
    new.coordinator().start_from(saved(old, job="rides"))
    first = new.trigger("e1").pending.slice  # one number has come in, which the other job has read
    assert (first.sources, first.positions) == ({"ledger": {"from": 1, "read": [], "to": 1}}, {"ledger": 1})
    assert [call for call in new.hooks[0].calls if call[0] == "restore"] == [("restore", 1, {"first": 1, "next": 11})]


def test_a_damaged_one_is_no_reason_to_go_back_before_it(old: World) -> None:  # semantics R1
    new = World()
    new.run_epoch("x1")
    new.coordinator().start_from(saved(old))
    lost = next(key for key in new.referred() if "/state/" in key and key.startswith("chk-0000000002/"))
    new.files.delete([lost])
    with pytest.raises(NoCheckpointError, match=r"started from a savepoint, as checkpoint 2, and that is damaged: .*"):
        new.trigger("x2")


def test_the_first_epoch_after_it_need_not_wait(old: World) -> None:  # semantics T3
    new = World(config=replace(CONFIG, min_pause=timedelta(hours=1)))
    new.coordinator().start_from(saved(old))
    request = replace(new.request("e3"), kind=RequestKind.PERIODIC)
    assert isinstance(new.coordinator().trigger(request), Triggered)


def test_the_files_keep_short_names_however_often_they_move(old: World) -> None:  # semantics W1
    world = old
    lengths = []
    for _ in range(4):
        folder = saved(world)
        lengths.append(max(len(found.key) for found in folder.list("")))
        world = World()
        world.coordinator().start_from(folder)
    assert lengths[1] == lengths[2] == lengths[3]
    audit_started(world, "e1", "e2")


def test_a_savepoint_that_is_claimed_is_deleted_once_it_is_copied(old: World) -> None:  # semantics R6
    folder, claim = saved(old), ImportOptions(claim=True)
    folder.create("notes.txt", b"not the savepoint's")
    new = World()
    found = new.coordinator().start_from(folder, claim)
    assert [each.key for each in folder.list("")] == ["notes.txt"]
    assert new.coordinator().head().imports[0].claimed is False
    audit_started(new, "e1", "e2")
    with pytest.raises(NoSavepointError):
        new.coordinator().start_from(folder, claim)
    assert found.created


@pytest.mark.parametrize(
    ("copied", "options"),
    [(True, ImportOptions()), (False, ImportOptions(claim=True))],
    ids=["of who did not claim", "of which the job has no copy"],
)
def test_a_record_that_says_claimed_deletes_nothing(
    old: World, copied: bool, options: ImportOptions
) -> None:  # semantics R6, W10
    folder, new = saved(old), World()
    new.coordinator().start_from(folder)
    before = [found.key for found in folder.list("")]
    head = json.loads(new.memory.get("flights/head.json").data)
    assert "claimed" not in head["imports"][0]
    head["imports"][0]["claimed"] = True
    head["completed"] = head["completed"] if copied else []
    new.memory.put("flights/head.json", json.dumps(head).encode())
    found = new.coordinator().start_from(folder, options)
    assert not (copied and found.created)
    assert [found.key for found in folder.list("")] == before


def test_another_savepoint_in_the_place_of_a_claimed_one_stays(  # semantics R6, W10
    old: World, caplog: pytest.LogCaptureFixture
) -> None:
    folder, claim, new = saved(old), ImportOptions(claim=True), World()
    with pytest.raises(UnavailableError):
        new.coordinator().start_from(FaultyStore(folder, 0, Fault.FAILS), claim)
    assert new.coordinator().head().imports[0].claimed
    folder.delete([found.key for found in folder.list("")])
    old.run_epoch("e3")
    for found in (another := saved(old)).list(""):
        folder.create(found.key, another.get(found.key).data)
    before = [found.key for found in folder.list("")]
    new.coordinator().start_from(folder, claim)
    assert [found.key for found in folder.list("")] == before
    assert "another savepoint than the one that the job was started from lies in the folder" in caplog.text


def test_the_last_imports_are_remembered(old: World, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(rewinds, "MAX_IMPORTS", 3)
    new = World()
    for number in range(5):
        new.coordinator().start_from(saved(old, request=f"r{number}"))
    head = new.coordinator().head()
    assert [each.checkpoint for each in head.imports] == [3, 4, 5]
    assert [entry.id for entry in head.completed] == [5]
    audit_started(new, "e1", "e2")


class OneServer(MemoryStore):
    """Has its objects on one server with those of every other one of its kind, which copies and says what it copied."""

    def __init__(self, name: str = "memory") -> None:
        super().__init__(name)
        self.copied: list[str] = []
        self.lies = False

    def copy_from(
        self,
        source: ObjectStore,
        source_key: str,
        key: str,
        *,
        etag: str,
        algorithms: Sequence[str] = (SHA256,),
        content: str | None = None,
    ) -> tuple[str, ...] | None:
        assert tuple(algorithms) == (SHA256,) and content is None
        data = source.get(source_key).data
        if source.stat(source_key).etag != etag or isinstance(self.create(key, data), ConditionFailed):
            return None
        self.copied.append(source_key)
        return (f"sha256:{'0' * 64}" if self.lies else checksum_of(data),)


def test_what_a_server_copies_is_what_the_savepoint_says_or_nothing(old: World) -> None:  # semantics R1
    store, folder = OneServer(), saved(old)
    store.lies = True
    new = World(store)
    with pytest.raises(NoSavepointError, match=r"not whole: .*: expected sha256:.*, found sha256:0000"):
        new.coordinator().start_from(folder)
    assert new.coordinator().head().importing is None
    store.lies = False
    store.copied.clear()
    found = new.coordinator().start_from(folder)
    assert len(store.copied) == found.files
    thrown_away(folder)
    audit_started(new, "e1", "e2")


def test_what_others_have_copied_is_looked_at_once_more(old: World, monkeypatch: pytest.MonkeyPatch) -> None:
    """The process that died may have had it copied by the server, without hearing what it was."""
    monkeypatch.setattr(copy_in, "AT_ONCE", 1)
    folder, new = saved(old), World()
    twin = new.fork()
    recording = RecordingStore(twin.store)
    twin.coordinator(recording).start_from(folder)
    at, write = next((at, write) for at, write in enumerate(recording.writes) if "/state/" in write.key)
    with pytest.raises(Crashed):
        new.coordinator(FaultyStore(new.store, at, Fault.CRASH_BEFORE)).start_from(folder)
    new.memory.put(write.key, b"?")
    with pytest.raises(DocumentError, match="another object has the name made for this one"):
        new.coordinator().start_from(folder)
    assert new.coordinator().start_from(folder).created, "under other names"
    audit_started(new, "e1", "e2")


def test_the_lists_of_another_jobs_sources_become_its_own(monkeypatch: pytest.MonkeyPatch) -> None:  # semantics T8, C3
    monkeypatch.setattr(source_files, "INLINE_BYTES", 512)
    with monkeypatch.context() as elsewhere:
        elsewhere.setattr(world_module, "JOB", "rides")
        rides = Job(40)
        read = rides.run("e1")
        rides.folder.add(*(f"year=2026/month=02/{number:0200d}" for number in range(5)))
        read += rides.run("e2")
        folder = saved(rides.world, job="rides")
    new = Job(45)
    new.folder.add(*(f"year=2026/month=02/{number:0200d}" for number in range(5)))
    new.world.coordinator().start_from(folder)
    thrown_away(folder)
    new.world.coordinator().clean()
    assert new.named() == new.pieces(), "what the positions name is kept, and lies in the job"
    assert new.named()
    rest = new.run("e3")
    assert (len(rest), set(rest) & set(read)) == (5, set())
    assert all(each.whole for each in new.world.coordinator().verify())


def test_a_list_that_is_missing_is_a_file_that_is_missing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(source_files, "INLINE_BYTES", 512)
    job = Job(40)
    job.run("e1")
    folder = saved(job.world)
    (lost,) = (found.key for found in folder.list("epoch-lists/"))
    folder.delete([lost])
    with pytest.raises(NoSavepointError, match=rf"files are missing.*first=`{lost}`"):
        World().coordinator().start_from(folder)


def test_one_that_was_taken_and_not_made_by_hand(old: World) -> None:  # semantics P1, R6
    entry = take(old)
    new = World()
    place = Below(old.store, entry.uri)
    assert new.coordinator().start_from(place, ImportOptions(claim=True)).created
    assert list(place.list("")) == [], "with the note that says whose the folder is"
    audit_started(new, "e1", "e2")
    old.coordinator().start_from(Below(old.store, take(old, asked("mine")).uri), ImportOptions(claim=True))
    assert [each.request for each in old.coordinator().head().savepoints] == ["by hand"], "its own is forgotten"


def test_a_rewind_goes_back_behind_it_and_back_to_it(old: World) -> None:  # semantics R5
    old.config = replace(CONFIG, retained=4)
    old.coordinator().start_from(saved(old))
    old.run_epoch("e3")
    assert old.coordinator().rewind(3).epochs == ("e3",)
    assert old.folded()["clean"] == ["e1", "e2"]
    plan = old.coordinator().rewind_plan(2)
    assert (plan.undone, plan.epochs) == ((3,), ()), "what was made from a savepoint is no run that could run again"


def without_positions(line: Line) -> Line:
    """A source need not name in its position what it has said to read."""
    return replace(line, slice=replace(line.slice, positions=None)) if isinstance(line, MetadataHeader) else line


def test_the_lists_that_a_stage_owes_are_kept(monkeypatch: pytest.MonkeyPatch) -> None:  # semantics B3, T8, C3
    monkeypatch.setattr(source_files, "INLINE_BYTES", 512)
    rides, new = Job(40), World(config=UNALIGNED)
    rides.world.config = UNALIGNED
    rides.trigger("e1")
    rides.world.run_stage("e1", "clean", "routes", "report")
    complete_without(rides.world, "e1", "airports")
    folder = MemoryStore("saved")
    save(rides.world, folder, alter=without_positions)
    new.coordinator().start_from(folder)
    new.coordinator().clean()
    (entry,) = new.coordinator().head().completed
    stages = [line for line in metadata_file.read(new.files, entry.metadata) if isinstance(line, StageLine)]
    slices = [owed.slice for line in stages for owed in line.owes if owed.slice is not None]
    lists = [each for slice_ in slices for each in metadata.referred(slice_.sources)]
    assert lists
    assert all(len(list(source_lists.read(new.files, each))) == 40 for each in lists)


def test_a_savepoints_end_starts_the_pause_of_a_started_job() -> None:
    """semantics T4, T3: the imported checkpoint took nobody's time, and the savepoint since has."""
    world = World(config=replace(CONFIG, min_pause=timedelta(minutes=1)))
    world.run_epoch("a")
    folder = saved(world)
    fresh = World(config=world.config)
    fresh.coordinator().start_from(folder)

    def ask(epoch: str) -> object:
        return fresh.coordinator().trigger(replace(fresh.request(epoch), kind=RequestKind.PERIODIC))

    take(fresh)
    answer = expect(Declined, ask("b"))
    assert answer.reason is Reason.MINIMUM_TIME_BETWEEN_CHECKPOINTS
    fresh.clock.advance(timedelta(minutes=1))
    assert isinstance(ask("b"), Triggered)
