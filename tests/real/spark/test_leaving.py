"""End of a driver: exceptions decline and leave nothing, replaced drivers are fenced, misuse is refused."""

# ruff: noqa: PT012 - the epoch's block as a whole is what raises
from __future__ import annotations

import logging
from collections.abc import Iterable
from datetime import timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from airflow_cairn.checkpoint import Runtime
from airflow_cairn.checkpoint.answers import Failed
from airflow_cairn.checkpoint.documents import layout
from airflow_cairn.checkpoint.documents.layout import epoch_name
from airflow_cairn.checkpoint.errors import FencedError, InvalidConfigError, InvalidStateError
from airflow_cairn.checkpoint.reasons import Reason
from airflow_cairn.spark import Epoch
from airflow_cairn.spark.execution.fence import LOOK_EVERY_MS
from airflow_cairn.storage import UnavailableError
from airflow_cairn.storage.clock import system_runtime
from airflow_cairn.storage.local.store import LocalStore
from airflow_cairn.storage.port import DeleteFailures, WriteResult
from tests.real.spark.pipeline import Pipeline, counts, rows
from tests.support.errors import raises_code
from tests.support.world.world import Clock

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.spark


@pytest.mark.parametrize(
    ("leave", "reason", "detail"),
    [
        (
            ZeroDivisionError("secret.key=hunter22 broke\nit"),
            Reason.CHECKPOINT_DECLINED,
            "ZeroDivisionError: secret.key=*** broke it",
        ),
        (
            UnavailableError("the store did not answer", key="k"),
            Reason.IO_EXCEPTION,
            "UnavailableError: the store did not answer [key=`k`]",
        ),
        (KeyboardInterrupt(), Reason.CHECKPOINT_DECLINED_TASK_CLOSING, "KeyboardInterrupt"),
        (SystemExit(1), Reason.CHECKPOINT_DECLINED_TASK_CLOSING, "SystemExit: 1"),
        (SystemExit("no input"), Reason.CHECKPOINT_DECLINED_TASK_CLOSING, "SystemExit: no input"),
        (GeneratorExit(), Reason.CHECKPOINT_DECLINED, "GeneratorExit"),
    ],
    ids=["an error", "the store", "interrupted", "exit 1", "exit with a text", "a generator"],
)
def test_an_exception_deletes_what_was_written_and_declines(
    spark: SparkSession, pipeline: Pipeline, leave: BaseException, reason: Reason, detail: str
) -> None:  # semantics A5, D1, F2
    with pytest.raises(type(leave)), pipeline.running("one") as epoch:
        epoch.snapshot("totals", counts(spark, ("A-B", 1)))
        epoch.write(counts(spark, ("A-B", 1)))
        assert pipeline.listing("chk-0000000001/state/")
        raise leave
    assert pipeline.listing("chk-0000000001/state/") == []
    assert pipeline.folders() == [], "no empty folder either"
    assert (pipeline.declined().reason, pipeline.declined().detail) == (reason, detail)
    progress = pipeline.coordinator.progress(epoch_name("one"))
    assert isinstance(progress, Failed)
    assert progress.detail == f"routes: {detail}"
    with pipeline.epoch("one") as epoch:
        assert epoch.attempt == 2
        epoch.snapshot("totals", counts(spark, ("A-B", 1)))
    assert pipeline.complete("one") == 2


def test_a_write_that_fails_halfway_leaves_nothing(spark: SparkSession, pipeline: Pipeline) -> None:
    """semantics A5

    One task writes it: another one of the same job may go on for a moment after the job has failed, as with any Spark
    job, and what it leaves is the cleaner's (C3).
    """
    broken = spark.range(0, 1000, 1, 1).selectExpr("id", "if(id = 999, raise_error('boom'), 'fine') as x")
    with pytest.raises(Exception, match="boom"), pipeline.running("one") as epoch:
        epoch.snapshot("good", counts(spark, ("A-B", 1)))
        epoch.snapshot("broken", broken)
    assert pipeline.listing("chk-0000000001/state/") == []
    assert pipeline.folders() == []
    assert "boom" in pipeline.declined().detail
    assert "\n" not in pipeline.declined().detail


@pytest.mark.parametrize("code", [0, None])
def test_exit_with_success_acknowledges(spark: SparkSession, pipeline: Pipeline, code: int | None) -> None:
    with pytest.raises(SystemExit), pipeline.running("one") as epoch:
        epoch.snapshot("totals", counts(spark, ("A-B", 1)))
        raise SystemExit(code)
    assert pipeline.complete("one") == 1


class _Undeletable(LocalStore):
    """A store whose deletes fail, as under Object Lock at its worst."""

    def delete(self, keys: Iterable[str]) -> DeleteFailures:
        raise UnavailableError("no deletes today")


def test_the_cause_is_raised_even_if_declining_fails(
    spark: SparkSession, pipeline: Pipeline, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    pipeline.trigger("one")
    submit = pipeline.begin("one")
    epoch = Epoch(spark, _Undeletable(tmp_path / "lake"), submit.handover)
    with pytest.raises(UnavailableError, match="no deletes today"), epoch:
        epoch.snapshot("totals", counts(spark, ("A-B", 1)))
    with caplog.at_level(logging.WARNING):
        assert "could not be deleted; the cleaner deletes it later" in caplog.text
    assert pipeline.declined().reason is Reason.IO_EXCEPTION


class _NoAnswer(LocalStore):
    """A store that stops answering writes when told to."""

    silent = False

    def create(self, key: str, data: bytes) -> WriteResult:
        if self.silent and "/acks/" in key:
            raise UnavailableError("no answer")
        return super().create(key, data)


def test_an_unknown_ack_outcome_deletes_and_declines_nothing(
    spark: SparkSession, pipeline: Pipeline, tmp_path: Path
) -> None:  # semantics A2
    pipeline.trigger("one")
    store = _NoAnswer(tmp_path / "lake")
    epoch = Epoch(spark, store, pipeline.begin("one").handover)
    with pytest.raises(UnavailableError, match="no answer"), epoch:
        epoch.snapshot("totals", counts(spark, ("A-B", 1)))
        store.silent = True
    assert pipeline.listing("chk-0000000001/state/") != []
    assert pipeline.listing("chk-0000000001/declines/") == []


def test_a_replaced_driver_is_fenced_and_its_files_deleted(spark: SparkSession, pipeline: Pipeline) -> None:
    """semantics A2, F3, W4"""
    pipeline.trigger("one")
    zombie = pipeline.epoch("one")
    with pytest.raises(FencedError) as fenced, zombie:
        zombie.snapshot("totals", counts(spark, ("A-B", 1)))
        retry = pipeline.begin("one")
    assert str(fenced.value).startswith("this attempt has been replaced: the head answered DISCARDED. What it wrote is")
    assert "stage=`routes` checkpoint=`1` attempt=`1`" in str(fenced.value)
    assert pipeline.listing("chk-0000000001/state/") == []
    with pipeline.submitted(retry) as epoch:
        assert (epoch.attempt, epoch.checkpoint) == (2, 2)
        epoch.snapshot("totals", counts(spark, ("A-B", 2)))
    assert pipeline.complete("one") == 2
    of_first = [key for key in pipeline.listing() if key.startswith("chk-0000000001")]
    assert [key for key in of_first if layout.record_of(key) is None] == [], "only its record is kept (semantics O3)"


def test_a_replaced_driver_that_only_starts_stops_before_it_works(pipeline: Pipeline) -> None:  # semantics F3
    pipeline.trigger("one")
    late = pipeline.epoch("one")
    pipeline.begin("one")
    with pytest.raises(FencedError, match="replaced: attempt 2, checkpoint 2, runs the stage now"), late:
        pytest.fail("the block must not run")


def test_a_driver_that_no_longer_counts_computes_no_further_write(
    spark: SparkSession, pipeline: Pipeline, tmp_path: Path
) -> None:  # semantics B4, F3
    pipeline.trigger("one")
    clock = Clock(system_runtime().now_ms())
    runtime = Runtime(clock, system_runtime().new_token)
    zombie = Epoch(spark, pipeline.store, pipeline.begin("one").handover, runtime)
    computed = spark.range(1).selectExpr("raise_error('computed') AS x")
    with pytest.raises(FencedError, match="replaced: attempt 2, checkpoint 2, runs the stage now"), zombie:
        zombie.snapshot("totals", counts(spark, ("zombie", 1)))
        pipeline.begin("one")
        clock.advance(timedelta(milliseconds=LOOK_EVERY_MS))
        for write in (
            lambda: zombie.snapshot("x", computed),
            lambda: zombie.snapshot("y", computed, background=True),
            lambda: zombie.publish("x", computed),
            lambda: zombie.write(computed),
            lambda: zombie.snapshot_list("x", [[1]]),
            lambda: zombie.snapshot_files("x", tmp_path / "none"),
        ):
            # The block catches it; its end raises it all the same.
            with pytest.raises(FencedError):
                write()
    assert pipeline.listing("chk-0000000001/state/") == []
    assert pipeline.listing("chk-0000000001/acks/") == []


def test_the_second_driver_of_an_execution_is_told_so(spark: SparkSession, pipeline: Pipeline) -> None:
    """semantics A2: DUPLICATE, the first one stays"""
    pipeline.trigger("one")
    submit = pipeline.begin("one")
    second = pipeline.submitted(submit)
    with pytest.raises(FencedError, match="has been acknowledged already"), second:
        second.snapshot("totals", counts(spark, ("second", 2)))
        with pipeline.submitted(submit) as first:
            first.snapshot("totals", counts(spark, ("first", 1)))
    with pytest.raises(FencedError, match="use one block an application"), pipeline.submitted(submit):
        pytest.fail("the block must not run")
    pipeline.complete("one")
    assert len(pipeline.parquet("chk-0000000001/state/")) == 1
    with pipeline.running("two") as epoch:
        assert rows(epoch.state("totals")) == [("first", 1)]


def test_a_driver_of_a_completed_epoch_is_fenced(pipeline: Pipeline) -> None:
    pipeline.trigger("one")
    submit = pipeline.begin("one")
    late = pipeline.submitted(submit)
    with pipeline.submitted(submit):
        pass
    pipeline.complete("one")
    with pytest.raises(FencedError, match="replaced: checkpoint 1 has completed the epoch"), late:
        pytest.fail("the block must not run")
    pipeline.coordinator.files.delete([submit.handover_key])
    with pytest.raises(FencedError, match="replaced: its handover is gone"):
        pipeline.submitted(submit)


def test_an_application_that_cairn_did_not_start_says_so(spark: SparkSession, pipeline: Pipeline) -> None:
    pipeline.forget()
    said = (
        r"^this application was not submitted by SparkEpochOperator: conf spark\.cairn\.handover is missing\. Run it as"
    )
    with pytest.raises(InvalidConfigError, match=said):
        Epoch.current(spark)


def test_each_name_is_used_once(spark: SparkSession, pipeline: Pipeline) -> None:
    frame = counts(spark, ("A-B", 1))
    with pipeline.running("one") as epoch:
        epoch.snapshot("x", frame)
        epoch.publish("x", frame)
        epoch.write(frame, "x")
        for again, kind in (
            (lambda: epoch.snapshot("x", frame), "state"),
            (lambda: epoch.publish("x", frame), "table"),
            (lambda: epoch.write(frame, "x"), "exchange"),
        ):
            with pytest.raises(InvalidStateError, match=f"the {kind} 'x' was written or dropped before"):
                again()
    with pipeline.running("two") as epoch:
        epoch.snapshot("x", frame)
        with pytest.raises(InvalidStateError, match=r"state\.x was written in this epoch and cannot be dropped"):
            epoch.drop("x", kind="state")
        with pytest.raises(InvalidStateError, match="more than one thing to drop by the name 'x'; say which kind"):
            epoch.drop("x")


@pytest.mark.parametrize("name", ["a/b", "..", ".hidden", "a\n", "", "x" * 251, "ä", "_cairn"])
def test_odd_names_are_refused(spark: SparkSession, pipeline: Pipeline, name: str) -> None:  # semantics W1
    frame = counts(spark, ("A-B", 1))
    with pipeline.running("one") as epoch:
        for call in (
            lambda: epoch.state(name),
            lambda: epoch.snapshot(name, frame),
            lambda: epoch.publish(name, frame),
            lambda: epoch.write(frame, name),
            lambda: epoch.put(name, 1),
            lambda: epoch.get(name),
            lambda: epoch.drop(name),
        ):
            with raises_code("invalid_name", match=r"name (cannot be used|is reserved)"):
                call()


def test_bad_frames_and_keys_are_refused(spark: SparkSession, pipeline: Pipeline) -> None:
    with pipeline.running("one") as epoch:
        with pytest.raises(InvalidStateError, match=r"state\.x must be a Spark DataFrame and is a list"):
            epoch.snapshot("x", [("A-B", 1)])  # type: ignore[arg-type]
        with pytest.raises(InvalidStateError, match=r"key column 'origin' is not in .* \[columns=`route, flights`\]"):
            epoch.snapshot("x", counts(spark, ("A-B", 1)), key=["route", "origin"])
        epoch.snapshot("x", counts(spark, ("A-B", 1)))


def test_methods_belong_into_the_block(spark: SparkSession, pipeline: Pipeline) -> None:
    pipeline.trigger("one")
    epoch = pipeline.epoch("one")
    frame = counts(spark, ("A-B", 1))

    calls: dict[str, tuple[Any, ...]] = {"state": ("x",), "read": ("clean",), "snapshot": ("x", frame)}
    calls |= {"publish": ("x", frame), "write": (frame,), "put": ("x", 1), "get": ("x",), "drop": ("x",)}
    for when in ("before", "after"):
        for method, arguments in calls.items():
            with pytest.raises(InvalidStateError, match=rf"epoch\.{method} was called {when} the epoch's block"):
                getattr(epoch, method)(*arguments)
        if when == "before":
            with epoch:
                pass
    with pytest.raises(InvalidStateError, match="an epoch is entered once"), epoch:
        pytest.fail("the block must not run")


def test_values_that_do_not_fit_decline_at_the_latest_when_leaving(spark: SparkSession, pipeline: Pipeline) -> None:
    """semantics W5"""
    wide = spark.range(1).selectExpr(*(f"id as {'c' * 200}{number}" for number in range(1000)))
    with pytest.raises(InvalidStateError, match="do not fit into an acknowledgement"), pipeline.running("one") as epoch:
        for name in ("a", "b", "c"):
            epoch.snapshot(name, wide)
    assert pipeline.listing("chk-0000000001/state/") == []
    assert pipeline.declined().detail.startswith("InvalidStateError: the schemas and values")
