"""The work of operator and sensor around an application, by hand: trigger, begin, set conf, complete, clean."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager
from datetime import timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from airflow_cairn.checkpoint import CheckpointConfig, Coordinator, MasterHook, RunFacts, Source, TriggerRequest
from airflow_cairn.checkpoint.answers import Ready, Submit, Triggered
from airflow_cairn.checkpoint.documents.acknowledgement import AckDocument, DeclineDocument
from airflow_cairn.checkpoint.documents.attempt import Slice, StageSpec
from airflow_cairn.checkpoint.documents.layout import epoch_name
from airflow_cairn.checkpoint.source import folders_of
from airflow_cairn.checkpoint.store import acks, attempt_documents
from airflow_cairn.spark import Epoch
from airflow_cairn.spark.handover import conf
from airflow_cairn.spark.handover.conf import PREFIX, handover_conf
from airflow_cairn.spark.stored import deltas
from airflow_cairn.storage import S3Options, open_store
from airflow_cairn.storage.names import parse_storage_uri
from airflow_cairn.storage.open import StoreOptions
from scripts.harness.spark.start import small_conf
from scripts.postgres_jar import postgres_jar
from tests.support.wrapped_stores import Crashed, DyingStore, Write

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

ROUTES = (StageSpec("routes"),)
TWO_STAGES = (StageSpec("clean"), StageSpec("routes", ("clean",)))
At = Callable[..., "Pipeline"]
"""Gives a pipeline of one stage, `routes`, at this parallelism, maximum parallelism and other options."""


@contextmanager
def configured(spark: SparkSession, conf: Mapping[str, str]) -> Iterator[None]:
    """Set conf of the session for a while."""
    before = {row.key: row.value for row in spark.sql("SET").collect()}
    for key, value in conf.items():
        spark.conf.set(key, value)
    try:
        yield
    finally:
        for key in conf:
            if key in before:
                spark.conf.set(key, before[key])
            else:
                spark.conf.unset(key)


def in_zone(spark: SparkSession, zone: str) -> AbstractContextManager[None]:
    """Let the session be in a time zone for a while."""
    return configured(spark, {"spark.sql.session.timeZone": zone})


def session_builder() -> Any:
    """Give the builder of a small local session."""
    from pyspark.sql import SparkSession

    builder = SparkSession.builder.master("local[2]").appName("cairn-tests")
    return (
        builder.config("spark.ui.enabled", "false")
        .config("spark.sql.shuffle.partitions", "3")
        .config("spark.driver.host", "127.0.0.1")
        .config("spark.driver.bindAddress", "127.0.0.1")
        .config("spark.sql.session.timeZone", "UTC")
        # A process has one JVM, which takes no jar after its start: the documentation's application for a database may
        # run in the JVM of an earlier module.
        .config("spark.jars", str(postgres_jar()))
        .config(map={**small_conf()})
    )


class Pipeline:
    """One job, and the Airflow tasks around its applications."""

    def __init__(
        self,
        storage: str,
        spark: SparkSession | None,
        stages: tuple[StageSpec, ...] = ROUTES,
        *,
        job: str = "flights",
        retained: int = 1,
        s3: S3Options | None = None,
        options: StoreOptions | None = None,
    ) -> None:
        self.storage = storage
        self.spark = spark
        self.stages = stages
        self.s3 = s3
        self.options = s3 or options
        self.store = open_store(storage, options=self.options)
        self.job = job
        self.coordinator = Coordinator(self.store, job)
        self.config = CheckpointConfig(timeout=timedelta(hours=1), retained=retained)
        self.sources: tuple[Source, ...] = ()
        self._claims = 0

    def trigger(
        self,
        run_id: str,
        window: Slice | None = None,
        *,
        sources: tuple[Source, ...] = (),
        hooks: tuple[MasterHook, ...] = (),
        listeners: tuple[str, ...] = (),
    ) -> Triggered:
        """Do what the first task does."""
        self.sources = sources or self.sources
        request = TriggerRequest(
            epoch_name(run_id),
            window or Slice(),
            self.stages,
            self.config,
            listeners=listeners,
            hooks=tuple(hook.name for hook in hooks),
            sources=sources,
            run=RunFacts(run_id, open_store=lambda uri, _: open_store(uri, s3=self.s3)) if sources else None,
        )
        answer = self.coordinator.trigger(request)
        assert isinstance(answer, Triggered), answer
        if hooks:
            self.coordinator.ask_hooks(answer.pending, hooks)
        return answer

    def begin(self, run_id: str, stage: str = "routes") -> Submit:
        """Do what the operator does before it submits: every call is a new try."""
        self._claims += 1
        answer = self.coordinator.begin(epoch_name(run_id), stage, f"try-{self._claims}")
        assert isinstance(answer, Submit), answer
        return answer

    def conf(self, submit: Submit) -> dict[str, str]:
        """Give what the operator puts into the application's conf."""
        return handover_conf(
            submit.handover,
            submit.handover_key,
            storage=parse_storage_uri(self.storage),
            options=self.options,
            sources=folders_of(self.sources),
        )

    def epoch(self, run_id: str, stage: str = "routes") -> Epoch:
        """Begin a stage and give the application's epoch."""
        return self.submitted(self.begin(run_id, stage))

    def submitted(self, submit: Submit) -> Epoch:
        """Give the epoch of an application that was submitted so."""
        assert self.spark is not None
        self.forget()
        for key, value in self.conf(submit).items():
            self.spark.conf.set(key, value)
        return Epoch.current()

    def failed(self, run_id: str, body: Callable[[Epoch], Any]) -> None:
        """Try a stage whose application fails at its end, once it has done its work."""
        epoch = self.epoch(run_id)
        with pytest.raises(RuntimeError, match="the author's"):
            _run_and_fail(epoch, body)

    def has_acknowledged(self, run_id: str) -> bool:
        """Tell whether all stages of the epoch's attempt have."""
        return isinstance(self.coordinator.progress(epoch_name(run_id)), Ready)

    def killed(self, run_id: str, body: Callable[[Epoch], Any], at: int, *, after: bool) -> Write | None:
        """Try a stage whose driver dies at a write: it deletes nothing and reports nothing.

        What Spark has begun to write it writes, as a Connect server does whose client is killed.

        Args:
            run_id: of the epoch.
            body: the application.
            at: at which of the driver's own writes, 0-based.
            after: whether that write lands.

        Returns:
            The write; None: there are not so many, and the stage has acknowledged.
        """
        dying = DyingStore(self.store, at, after=after)
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(conf, "open_driver_store", lambda *_, **__: dying)
            try:
                with self.epoch(run_id) as epoch:
                    body(epoch)
            except Crashed:
                assert dying.dead is not None
        return dying.dead

    def forget(self) -> None:
        """Take the handover out of the session's conf."""
        assert self.spark is not None
        conf = self.spark.conf
        # Spark 3.5 has no `getAll`.
        names = conf.getAll if hasattr(conf, "getAll") else [row.key for row in self.spark.sql("SET").collect()]
        for key in list(names):
            if key.startswith(PREFIX):
                conf.unset(key)

    def complete(self, run_id: str) -> int:
        """Do what the sensor does once all have acknowledged; give the checkpoint's id."""
        progress = self.coordinator.progress(epoch_name(run_id))
        assert isinstance(progress, Ready), progress
        answer = self.coordinator.complete(progress.checkpoint)
        self.coordinator.clean()
        return answer.checkpoint

    @contextmanager
    def running(self, run_id: str, window: Slice | None = None, **asked: Any) -> Iterator[Epoch]:
        """Run an epoch of one stage: triggered before the block of the application, and completed after it."""
        self.trigger(run_id, window, **asked)
        with self.epoch(run_id) as epoch:
            yield epoch
        self.complete(run_id)

    def run(self, run_id: str, body: Callable[[Epoch], Any], window: Slice | None = None) -> Any:
        """Run an epoch of one stage; give what the application gives."""
        with self.running(run_id, window) as epoch:
            found = body(epoch)
        return found  # noqa: RET504 - the checkpoint has completed

    def ack(self, stage: str = "routes") -> AckDocument:
        """Give a stage's acknowledgement in the pending attempt."""
        [entry] = self.coordinator.head().pending
        files = self.coordinator.files
        return acks.read_ack(files, stage, attempt_documents.read(files, entry).executions[stage])

    def declined(self) -> DeclineDocument:
        """Give what the one driver that has declined says."""
        [key] = [each for each in self.listing() if "/declines/" in each]
        return self.coordinator.files.read(DeclineDocument, key)[0]

    def folders(self) -> list[str]:
        """List the folders of states that are on the disk."""
        lake = Path(self.storage.removeprefix("file://"))
        return [str(each) for each in lake.rglob("*") if each.is_dir() and "state" in each.parts]

    def listing(self, prefix: str = "") -> list[str]:
        """List the job's objects, relative to its prefix."""
        return [found.key.removeprefix(f"{self.job}/") for found in self.store.list(f"{self.job}/{prefix}")]

    def parquet(self, prefix: str = "") -> list[str]:
        """List the job's files of rows, relative to its prefix."""
        return [key for key in self.listing(prefix) if key.endswith(".parquet")]


def _run_and_fail(epoch: Epoch, body: Callable[[Epoch], Any]) -> None:
    with epoch:
        body(epoch)
        raise RuntimeError("the author's")


def bounds(patch: pytest.MonkeyPatch, epochs: int) -> None:
    """Have two runs become one, and a new base come after so many epochs; the size of a tiny base decides nothing."""
    patch.setattr(deltas, "FAN_IN", 2)
    patch.setattr(deltas, "MAX_EPOCHS", epochs)
    patch.setattr(deltas, "MAX_SHARE", 100.0)


def rows(frame: DataFrame | None) -> list[tuple[Any, ...]]:
    """Give a frame's rows, sorted."""
    assert frame is not None
    return sorted(tuple(row) for row in frame.collect())


def counts(spark: SparkSession, *pairs: tuple[str, int]) -> DataFrame:
    """Make a frame of one partition, without Python workers."""
    values = ", ".join(f"('{route}', {flights}L)" for route, flights in pairs)
    return spark.sql(f"SELECT * FROM VALUES {values} AS t(route, flights)").coalesce(1)
