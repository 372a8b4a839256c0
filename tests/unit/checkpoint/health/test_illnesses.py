"""Illnesses of a storage and its jobs, planted one at a time: each is named rightly, and a healthy one has none."""

import json
from collections.abc import Callable, Iterable
from dataclasses import replace
from datetime import timedelta
from typing import TypeVar

import pytest

from airflow_cairn.checkpoint.answers import FilesProgress
from airflow_cairn.checkpoint.documents import head, layout
from airflow_cairn.checkpoint.documents.server_record import KEY
from airflow_cairn.checkpoint.errors import NoCheckpointError
from airflow_cairn.checkpoint.health.examine import CLEANS_MS, examine_storage
from airflow_cairn.checkpoint.health.findings import Examination, Severity
from airflow_cairn.checkpoint.rules import history
from airflow_cairn.checkpoint.store import completed_epochs
from airflow_cairn.cli.output import hints
from airflow_cairn.storage import (
    ConditionFailed,
    DeleteFailure,
    ForbiddenError,
    ObjectStore,
    StorageError,
    UnavailableError,
    UnsupportedStorageError,
    WriteResult,
)
from airflow_cairn.storage.clock import Runtime
from airflow_cairn.storage.errors import GoneError
from airflow_cairn.storage.port import BucketRules, DeleteFailures, LifecycleRule
from tests.support.world.world import JOB, STAGES, TIMEOUT, World
from tests.support.wrapped_stores import WrappedStore

T = TypeVar("T")


def examine(world: World, store: ObjectStore | None = None, job: str | None = None) -> Examination:
    runtime = Runtime(world.clock, world.new_token)
    return examine_storage(store or world.store, runtime, job)


def names(found: Examination) -> list[str]:
    return [each.name for each in found.findings]


@pytest.fixture(scope="module")
def healthy() -> World:
    """A job that has completed three epochs, with all that belongs to it."""
    world = World()
    world.listen("warehouse")
    world.hook()
    world.run_epoch(*"abc")
    world.coordinator().deliver(world.ears)
    world.coordinator().clean()
    world.clock.advance(timedelta(milliseconds=CLEANS_MS))
    return world


@pytest.fixture
def world(healthy: World) -> World:
    """Fork of the healthy world, for one test."""
    return healthy.fork()


class Refusing(WrappedStore):
    """Refuses a verb: `get`, `create`, `list`, `list_folders`, `uploads`, `delete`, `abort_upload`."""

    def __init__(self, inner: ObjectStore, verb: str, error: StorageError) -> None:
        super().__init__(inner)
        self._verb, self._error = verb, error

    def _read(self, verb: str, key: str, call: Callable[[], T]) -> T:
        if verb == self._verb:
            raise self._error
        return call()

    _write = _read


class Ruled(WrappedStore):
    """Has rules, and a clock."""

    def __init__(self, inner: ObjectStore, rules: BucketRules | None = None, clock_ms: int | None = None) -> None:
        super().__init__(inner)
        self._rules, self._clock_ms = rules, clock_ms

    def bucket_rules(self) -> BucketRules | None:
        return self._rules

    def now_ms(self) -> int | None:
        return self._clock_ms


class Careless(WrappedStore):
    """Takes every swap for one of its version."""

    def replace(self, key: str, data: bytes, *, expected_etag: str) -> WriteResult:
        answer = self.inner.replace(key, data, expected_etag=expected_etag)
        if isinstance(answer, ConditionFailed) and answer.etag is not None:
            return self.inner.replace(key, data, expected_etag=answer.etag)
        return answer


class Dropping(WrappedStore):
    """A gateway that does not pass metadata on."""

    def keeps_write_ids(self, key: str) -> bool:
        return False


class Locked(WrappedStore):
    """Deletes nothing."""

    def delete(self, keys: Iterable[str]) -> DeleteFailures:
        return [DeleteFailure(key, "AccessDenied: locked") for key in keys]


def refused(verb: str, error: StorageError) -> Callable[[World], ObjectStore]:
    return lambda world: Refusing(world.store, verb, error)


def unlisted(error: StorageError) -> Callable[[World], ObjectStore]:
    return refused("list_folders", error)


def may_not(verb: str) -> Callable[[World], ObjectStore]:
    return refused(verb, ForbiddenError(NO, code="missing_right"))


def of_a_rule(**does: str) -> Callable[[World], ObjectStore]:
    return ruled(replace(BUCKET, lifecycle=(replace(TIDY, **does),)))  # type: ignore[arg-type]


def ruled(rules: BucketRules) -> Callable[[World], ObjectStore]:
    return lambda world: Ruled(world.store, rules)


def at(seconds: int) -> Callable[[World], ObjectStore]:
    """A store whose clock differs by so much from this machine's."""
    return lambda world: Ruled(world.store, clock_ms=world.clock.now_ms + seconds * 1000)


def spoilt(key: Callable[[World], str], data: bytes | None) -> Callable[[World], ObjectStore]:
    """Puts other content at a key of the job, or takes it away."""

    def plant(world: World) -> ObjectStore:
        full = f"{JOB}/{key(world)}"
        if data is None:
            world.store.delete([full])
        else:
            world.memory.put(full, data)
        return world.store

    return plant


def a_file(world: World) -> str:
    return next(key for key in sorted(world.referred(), reverse=True) if "/state" in key)


def newer_head(world: World) -> ObjectStore:
    head = json.loads(world.store.get(f"{JOB}/head.json").data)
    world.memory.put(f"{JOB}/head.json", json.dumps({**head, "format": head["format"] + 1}).encode())
    return world.store


def outdated_head(world: World) -> ObjectStore:
    """All objects of the older checkpoints are there too, as in a bucket with versions."""
    old = world.fork().memory
    world.run_epoch("d")
    for key in old.all_keys():
        world.memory.put(key, old.get(key).data)
    return world.store


def orphan(world: World) -> ObjectStore:
    world.memory.put(f"{JOB}/{layout.folder(2)}state/left.parquet", b"x" * 2048)
    return world.store


def expired(world: World) -> ObjectStore:
    world.trigger("d")
    world.clock.advance(TIMEOUT + timedelta(hours=1))
    return world.store


def pending_gone(world: World) -> ObjectStore:
    world.bulky = True
    pending = world.trigger("d").pending
    world.store.delete([f"{JOB}/{layout.pending(pending.checkpoint, pending.token)}"])
    return world.store


def unheard(world: World) -> ObjectStore:
    world.listen("warehouse")
    world.run_epoch("d", "e")
    world.coordinator().clean()
    return world.store


def after(act: Callable[[World], object]) -> Callable[[World], ObjectStore]:
    def plant(world: World) -> ObjectStore:
        act(world)
        return world.store

    return plant


NO = "no"
UPLOAD, STRANGER = f"{JOB}/{layout.folder(2)}state/half.parquet", f"{JOB}/{layout.folder(3)[:-1]}.backup/x"
NOTES = "-notes-/readme.txt"
BUCKET = BucketRules("lake")
TIDY = LifecycleRule("tidy", "cairn/")

ILLNESSES: dict[str, tuple[Callable[[World], ObjectStore], str, str]] = {
    "the bucket is not there": (unlisted(GoneError(NO, code="bucket_gone")), "storage-missing", "memory"),
    "no credentials": (unlisted(ForbiddenError(NO, code="no_credentials")), "credentials-missing", "memory"),
    "refused credentials": (unlisted(ForbiddenError(NO)), "credentials-refused", "memory"),
    "no answer": (unlisted(UnavailableError(NO)), "storage-unreachable", "memory"),
    "another region": (unlisted(UnsupportedStorageError(NO)), "storage-unsupported", "memory"),
    "refused for the clock": (unlisted(ForbiddenError(NO, code="clock_skew")), "clock-skew", "memory"),
    "a clock that is a minute behind": (at(60), "clock-skew", "memory"),
    "a clock that is an hour ahead": (at(-3600), "clock-skew", "memory"),
    "may not list": (may_not("list_folders"), "right-missing", "s3:ListBucket"),
    "may not write": (may_not("create"), "right-missing", "s3:PutObject"),
    "may not read": (may_not("get"), "right-missing", "s3:GetObject"),
    "may not list uploads": (may_not("uploads"), "right-missing", "s3:ListBucketMultipartUploads"),
    "may not abort uploads": (may_not("abort_upload"), "right-missing", "s3:AbortMultipart"),
    "may not delete": (may_not("delete"), "right-missing", "s3:DeleteObject"),
    "deletes nothing": (lambda world: Locked(world.store), "right-missing", "s3:DeleteObject"),
    "swaps every version": (lambda world: Careless(world.store), "conditional-writes", "memory"),
    "drops the write id": (lambda world: Dropping(world.store), "conditional-writes", "memory"),
    "a rule deletes": (of_a_rule(expires="after 30 days"), "lifecycle-expires", "rule tidy of lake"),
    "a rule archives": (of_a_rule(archives="GLACIER"), "lifecycle-archives", "rule tidy of lake"),
    "old versions stay": (ruled(replace(BUCKET, versioned=True)), "versions-kept", "lake"),
    "soft delete": (ruled(replace(BUCKET, kept_for="soft delete, 7 days")), "versions-kept", "lake"),
    "Object Lock": (ruled(replace(BUCKET, retention="GOVERNANCE, 30 days")), "object-lock", "lake"),
    "the head is broken": (spoilt(lambda world: "head.json", b"{"), "head-damaged", JOB),
    "the head is of a newer Cairn": (newer_head, "head-newer", JOB),
    "the head is gone": (spoilt(lambda world: "head.json", None), "head-missing", JOB),
    "the head is of a backup": (outdated_head, "head-outdated", JOB),
    "a state's file is gone": (spoilt(a_file, None), "checkpoint-damaged", f"checkpoint 3 of {JOB}"),
    "a state's file is altered": (spoilt(a_file, b"?"), "checkpoint-damaged", f"checkpoint 3 of {JOB}"),
    "a file that nothing refers to": (orphan, "orphans", JOB),
    "an upload of a dead driver": (after(lambda world: world.memory.begin_upload(UPLOAD)), "uploads-pending", JOB),
    "a file of another program": (after(lambda world: world.memory.put(STRANGER, b"x")), "foreign-files", JOB),
    "a folder of another program": (after(lambda world: world.memory.put(NOTES, b"x")), "foreign-files", "-notes-"),
    "a checkpoint that no task looks at": (expired, "pending-expired", f"checkpoint 4 of {JOB}"),
    "a pending checkpoint without its document": (pending_gone, "pending-damaged", f"checkpoint 4 of {JOB}"),
    "a listener that fails": (unheard, "listener-stuck", JOB),
    "a paused job": (after(lambda world: world.coordinator().pause()), "job-stopped", JOB),
    "a broken record of servers": (spoilt(lambda world: KEY, b"{"), "servers-damaged", JOB),
}


@pytest.mark.parametrize("illness", ILLNESSES)
def test_an_illness_is_named_rightly(world: World, illness: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("airflow_cairn.checkpoint.health.examine.NOTICES", 2)
    plant, name, subject = ILLNESSES[illness]
    found = examine(world, plant(world))
    assert set(names(found)) == {name}
    assert not found.healthy
    first = found.findings[0]
    assert subject in first.subject
    assert first.what and first.why and first.mend, "what, why it matters, and what mends it"


def test_a_list_of_completed_epochs_that_is_gone(monkeypatch: pytest.MonkeyPatch) -> None:
    """The job remembers little, so that five epochs make a list."""
    for module in (history, head):
        monkeypatch.setattr(module, "MAX_HISTORY", 2)
    monkeypatch.setattr(completed_epochs, "MAX_NOTED", 1)
    world = World(stages=STAGES[:1])
    world.run_epoch(*"abcde")
    world.coordinator().clean()
    assert names(examine(world)) == []
    [listed] = world.coordinator().head().segments
    world.store.delete([f"{JOB}/{listed.document.key}"])
    assert names(examine(world)) == ["epoch-list-damaged"]


def test_a_job_without_a_new_checkpoint(world: World) -> None:
    """The age counts from the moment when the latest one completed; a job that never completed one is too old."""
    runtime, hour_ms = Runtime(world.clock, world.new_token), 3_600_000

    def after(**time: int) -> list[str]:
        world.clock.advance(timedelta(**time))
        return names(examine_storage(world.store, runtime, max_age_ms=2 * hour_ms))

    world.clock.now_ms = world.coordinator().head().completed[-1].completed_at_ms
    assert after(hours=2) == []
    assert after(seconds=1) == ["checkpoint-old"]
    new = World()
    new.trigger("a")
    found = examine_storage(new.store, Runtime(new.clock, new.new_token), max_age_ms=hour_ms)
    assert [each.what for each in found.findings] == ["no checkpoint has completed"]


def test_the_reference_has_each_finding() -> None:
    planted = {name for _, name, _ in ILLNESSES.values()} | {"epoch-list-damaged", "check-failed"}
    planted |= {"checkpoint-old", "mirror-behind"}
    assert {each.name for each in hints.findings() if each.place == "storage"} == planted


def test_a_healthy_system_has_none(world: World) -> None:
    rules = BucketRules("lake", lifecycle=(LifecycleRule("old versions", "", ends_old_versions=True),), versioned=True)
    before = world.memory.all_keys()
    found = examine(world, Ruled(world.store, rules, world.clock.now_ms - 900))
    assert (names(found), found.skipped) == ([], {})
    assert found.healthy
    assert len(found.passed) == 12
    assert world.memory.all_keys() == before, "what it wrote is deleted again"


def test_work_under_way_is_healthy(world: World) -> None:
    """Files of a failed attempt are there until the next checkpoint completes, and that is no illness."""
    world.trigger("d")
    world.run_stage("d", "clean")
    routes = world.submit("d", "routes").handover
    world.decline(routes, "ValueError: bad row")
    world.coordinator().fail("d", "routes", routes.claimant, "died")
    orphan(world)
    assert names(examine(world)) == []


def test_files_that_the_next_cleaning_deletes_are_healthy(world: World) -> None:
    orphan(world)
    last = max(world.coordinator().head().history, key=lambda entry: entry.id)
    world.clock.now_ms = last.ended_at_ms + CLEANS_MS - 1
    assert names(examine(world)) == []
    world.clock.advance(timedelta(milliseconds=1))
    assert names(examine(world)) == ["orphans"]


def test_what_clean_would_delete_is_found_with_its_size(world: World) -> None:
    orphan(world)
    [found] = examine(world).findings
    assert found.severity is Severity.WARNING
    assert "1 files of 2.0 KiB" in found.what
    assert found.mend == f"cairn clean {JOB} --storage {world.store.uri}"
    assert world.coordinator().clean().deleted == 1
    assert names(examine(world)) == []


def test_nothing_is_written_if_the_user_says_so(world: World) -> None:
    class ReadOnly(WrappedStore):
        def _write(self, verb: str, key: str, call: Callable[[], T]) -> T:
            raise AssertionError(f"{verb} {key}")

    found = examine_storage(ReadOnly(world.store), Runtime(world.clock, world.new_token), write=False)
    assert found.healthy
    assert set(found.skipped) == {"rights", "conditional writes"}


def test_one_job_alone_is_looked_at(world: World) -> None:
    world.memory.put("other/head.json", b"{")
    assert names(examine(world)) == ["head-damaged"]
    assert names(examine(world, job=JOB)) == []
    with pytest.raises(NoCheckpointError, match="the storage has no such job"):
        examine(world, job="nope")


def test_a_check_that_cannot_be_made_is_a_finding_and_ends_no_other(world: World) -> None:
    found = examine(world, Refusing(world.store, "list", UnavailableError("no answer")))
    assert "check-failed" in names(found)
    assert f"{JOB}: servers" in found.passed


def test_what_one_job_has_does_not_keep_another_from_being_looked_at(world: World) -> None:
    for key in world.memory.all_keys():
        world.memory.put(f"later-{key}", world.memory.get(key).data.replace(JOB.encode(), f"later-{JOB}".encode()))
    found = examine(world, pending_gone(world))
    assert "pending-damaged" in names(found)
    assert [each for each in found.skipped if each.endswith("leftovers")] == [f"{JOB}: leftovers"]


def test_rules_that_could_not_be_asked_are_said_and_not_missed(world: World) -> None:
    unknown = replace(BUCKET, unknown={"lifecycle": "AccessDenied"})
    assert names(examine(world, Ruled(world.store, replace(unknown, versioned=True)))) == []
    found = examine(world, Ruled(world.store, unknown))
    assert found.healthy
    assert found.skipped == {"lifecycle": "AccessDenied"}


def test_each_file_that_is_checked_is_told() -> None:
    """A person at a terminal sees how far a long examination is."""
    world = World()
    world.run_epoch("a")
    told: list[FilesProgress] = []
    examine_storage(world.store, Runtime(world.clock, world.new_token), deep=True, on_progress=told.append)
    assert [each.files_done for each in told] == [*range(1, len(told) + 1)]
    assert told[-1].bytes_done == told[-1].size_bytes == world.coordinator().head().completed[-1].size_bytes
