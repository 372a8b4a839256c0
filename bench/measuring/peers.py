"""The ways of `bench.peers` to keep totals by key, each with its own folder."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, TypeVar

from airflow_cairn.checkpoint import CheckpointConfig, Slice, StageSpec
from airflow_cairn.checkpoint.answers import Submit
from airflow_cairn.spark import Epoch, state
from airflow_cairn.storage import ObjectStore
from airflow_cairn.testing.epochs import LocalJob
from tests.support.wrapped_stores import Crashed, WrappedStore

from .spark_session import PARTITIONS

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

_T = TypeVar("_T")

SCHEMA = "key long, amount long"
"""Of the input and of all totals."""


class KilledError(Exception):
    """The driver died after its write, and before it reported success."""


def write_input(spark: SparkSession, folder: Path, number: int, keys: int, rows: int) -> None:
    """Write the input of an epoch: different keys, each with the amount 1. A prime spreads the keys."""
    frame = spark.range(rows).selectExpr(f"(id * 7919 + {number} * 104729) % {keys} AS key", "1L AS amount")
    frame.coalesce(2).write.parquet(f"file://{folder}/input/epoch={number}")


class Peer:
    """One way to add each epoch's amounts to totals by key."""

    name: str
    always_runs: ClassVar[bool] = False
    """True if the way also works between its epochs, so that it cannot take turns with the others."""

    def __init__(self, spark: SparkSession, folder: Path) -> None:
        self.spark = spark
        self._all = folder
        self.folder = folder / self.name
        self.folder.mkdir()

    def run(self, number: int) -> None:
        """Run an epoch."""
        raise NotImplementedError

    def run_killed(self, number: int) -> None:
        """Run an epoch whose driver dies after its write, before its success is known."""
        self.run(number)

    def close(self) -> None:
        """End everything that this way has started."""

    def cpu_elsewhere(self) -> float:
        """Return the CPU seconds of everything that this way has started."""
        return 0.0

    def totals(self) -> DataFrame:
        """Return the totals: `key`, `amount`."""
        raise NotImplementedError

    def total(self) -> int:
        """Return the sum of all totals."""
        return int(self.totals().selectExpr("sum(amount)").head()[0])  # type: ignore[index]

    def files(self) -> dict[Path, tuple[int, int]]:
        """Return the existing files, with the time of the last change and the size of each."""
        found = {}
        for path in self.folder.rglob("*"):
            with suppress(FileNotFoundError):  # the file goes while its store cleans
                if path.is_file():
                    found[path] = (path.stat().st_mtime_ns, path.stat().st_size)
        return found

    def new_bytes(self, before: dict[Path, tuple[int, int]]) -> int:
        """Return the bytes of the files that are new or changed since."""
        return sum(each[1] for path, each in self.files().items() if before.get(path) != each)

    def input(self, number: int) -> DataFrame:
        """Return the input of an epoch."""
        return self.spark.read.schema(SCHEMA).parquet(f"file://{self._all}/input/epoch={number}")


def _added(*frames: DataFrame) -> DataFrame:
    whole = frames[0]
    for each in frames[1:]:
        whole = whole.unionByName(each)
    return whole.groupBy("key").sum("amount").toDF("key", "amount")


class _DyingStore(WrappedStore):
    """The store of a driver that ends before its acknowledgement arrives; no write of it arrives from then on."""

    _dead = False

    def _write(self, verb: str, key: str, call: Callable[[], _T]) -> _T:  # noqa: ARG002 - as it is called
        self._dead = self._dead or "/acks/" in key
        if self._dead:
            raise Crashed
        return call()


class Aggregate(Peer):
    """Cairn: `epoch.aggregate` writes partial sums and reads nothing."""

    name = "aggregate"

    def __init__(self, spark: SparkSession, folder: Path) -> None:
        super().__init__(spark, folder)
        self._job = LocalJob(self.folder, config=CheckpointConfig(retained=1))
        self._triggered = -1

    def write(self, epoch: Epoch, new: DataFrame) -> None:
        epoch.aggregate("totals", _added(new), key="key", merge={"amount": "sum"})

    def run(self, number: int) -> None:
        self._work(number, self._job.store)
        self._job.complete(f"e{number}")

    def run_killed(self, number: int) -> None:
        """Run the driver until it has written everything and acknowledges; a retried task finds its claim."""
        with suppress(Crashed):
            self._work(number, _DyingStore(self._job.store))

    def _work(self, number: int, store: ObjectStore) -> None:
        run, stage = f"e{number}", StageSpec("totals", (), PARTITIONS, 128)
        if number != self._triggered:
            self._job.trigger(run, [stage], Slice())
            self._triggered = number
        answer = self._job.claim(run, stage.uid)
        if isinstance(answer, Submit):
            with Epoch(self.spark, store, answer.handover, self._job.runtime) as epoch:
                self.write(epoch, self.input(number))

    def totals(self) -> DataFrame:
        return state(self.spark, f"file://{self.folder}", "local", "totals", "totals")


class Update(Aggregate):
    """Cairn: `epoch.update` reads the totals of the changing keys, and writes them."""

    name = "update"

    def write(self, epoch: Epoch, new: DataFrame) -> None:
        before = epoch.state("totals", keys=new)
        epoch.update("totals", _added(new) if before is None else _added(new, before), key="key")


class Rewrite(Peer):
    """Plain Spark: rewrites the whole state, then points a pointer to it. Spark shuffles only the changed keys."""

    name = "rewrite"

    def __init__(self, spark: SparkSession, folder: Path) -> None:
        super().__init__(spark, folder)
        self._written = 0

    def run(self, number: int) -> None:
        """Read the current folder, add, write, swap the pointer."""
        self._written += 1
        self.write(number, self.current(), f"v{self._written}")

    def current(self) -> str | None:
        pointer = self.folder / "current"
        return pointer.read_text() if pointer.exists() else None

    def write(self, number: int, before: str | None, after: str) -> None:
        """Write the totals after an epoch, from those before it."""
        rows = _added(self.input(number))
        if before is not None:
            old, keys = self._read(before), rows.select("key").hint("broadcast")
            changed = _added(rows, old.join(keys, "key", "left_semi"))
            rows = old.join(keys, "key", "left_anti").unionByName(changed)
        rows.write.mode("overwrite").parquet(f"file://{self.folder}/{after}")
        (self.folder / "next").write_text(after)
        (self.folder / "next").rename(self.folder / "current")

    def totals(self) -> DataFrame:
        return self._read(self.current() or "")

    def _read(self, name: str) -> DataFrame:
        return self.spark.read.schema(SCHEMA).parquet(f"file://{self.folder}/{name}")


class RewriteByEpoch(Rewrite):
    """Rewrite of a careful author: an epoch's folder is made from the previous epoch's, however often."""

    name = "rewrite_by_epoch"

    def run(self, number: int) -> None:
        self.write(number, f"e{number - 1}" if number else None, f"e{number}")


class Streaming(Peer):
    """Structured Streaming: state in RocksDB, one available-now trigger per epoch."""

    name = "streaming"

    @property
    def _source(self) -> Path:
        return self._all / "input"

    def run(self, number: int) -> None:  # noqa: ARG002 - it reads all new files
        self._trigger(killed=False)

    def run_killed(self, number: int) -> None:  # noqa: ARG002 - it reads all new files
        """Die when the sink has written, before the batch is committed."""
        with suppress(Exception):  # the query ends with the error of the sink
            self._trigger(killed=True)

    def _trigger(self, *, killed: bool) -> None:
        self._start(killed=killed, availableNow=True).awaitTermination()

    def _start(self, *, killed: bool = False, **trigger: Any) -> Any:
        def write(changed: DataFrame, batch: int) -> None:
            changed.write.mode("overwrite").parquet(f"file://{self.folder}/out/batch={batch}")
            if killed:
                raise KilledError

        new = self.spark.readStream.schema(SCHEMA).parquet(f"file://{self._source}/epoch=*")
        writer: Any = _added(new).writeStream.outputMode("update").foreachBatch(write)
        return writer.option("checkpointLocation", f"file://{self.folder}/checkpoint").trigger(**trigger).start()

    def totals(self) -> DataFrame:
        stored = self.spark.read.format("statestore").load(f"file://{self.folder}/checkpoint")
        return stored.selectExpr("key.key AS key", "value.sum AS amount")


class ResidentStreaming(Streaming):
    """Streaming query that is started once: its state stays open, and an epoch ends when its input is processed."""

    name = "streaming_resident"
    always_runs = True
    _query: Any = None

    @property
    def _source(self) -> Path:
        return self.folder / "in"

    def run(self, number: int) -> None:
        """Hand the input of an epoch to the query, and wait until it is processed."""
        self._process(number, killed=False)

    def run_killed(self, number: int) -> None:
        """Die when the sink has written, before the batch is committed."""
        self.close()
        with suppress(Exception):  # the query ends with the error of the sink
            self._process(number, killed=True)

    def _process(self, number: int, *, killed: bool) -> None:
        given = self._source / f"epoch={number}"
        if not given.exists():
            shutil.copytree(self._all / "input" / given.name, self._source / "next")
            (self._source / "next").rename(given)
        if self._query is None or not self._query.isActive:
            self._query = self._start(killed=killed, processingTime="0 seconds")
        self._query.processAllAvailable()

    def files(self) -> dict[Path, tuple[int, int]]:
        return {path: facts for path, facts in super().files().items() if not path.is_relative_to(self._source)}

    def close(self) -> None:
        if self._query is not None:
            self._query.stop()


def peers(spark: SparkSession, folder: Path) -> list[Peer]:
    """Make one of each way."""
    return [kind(spark, folder) for kind in (Aggregate, Update, Rewrite, RewriteByEpoch, Streaming, ResidentStreaming)]
