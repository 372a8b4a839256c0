"""Measures a change of a few rows of a keyed state, against three ways in which plain Spark would make it.

Run it as `.venv/bin/python -m bench.state [--json] [--keys N [N]] [--share S] [--epochs N] [--history N] [--fan-in N]
[--store local|s3] [--only WAY …]`. In each epoch the same share of the keys changes. These ways take turns, in one
session, on local files or on an S3 server:

- `update`: a job with `epoch.update`. On S3 it has copies beside the server (task-local state).
- `store`: the same without copies; only on S3, because local files are beside the server anyway.
- `aggregate`: a job with `epoch.aggregate`.
- `snapshot`: a job reads its state, takes the newest row of each key, and writes all rows by `epoch.snapshot`.

The rivals, always included, are plain Spark in the same session:

- `anti_join`: reads its folder, leaves out the keys that change, adds their rows, and writes a new folder.
- `max_by`: the same, by the newest row of each key.
- `log`: writes only the rows that change, in a folder of their own. Its reader finds the newest; no compaction.

Other epochs (`--history`) precede the measured ones, for all but `snapshot`: with 60 of them, of 1 % each, the
measured epochs begin with many deltas and write a new base once. The figures weight that epoch, and those that merge
deltas, as often as they occur.

- `update_by_anti_join_ratio`: seconds of a block that updates, to those of the rival, including epochs with a new base;
  `…_cpu_ratio`: CPU seconds, with those of the JVM; `…_epoch_ratio`: seconds of the whole epoch, from its trigger to
  the cleaning. `update_by_max_by_ratio`, `update_by_log_ratio` and so on: to those of the other rivals.
- `…_run_ratio`, `…_merge_ratio`, `…_base_ratio`: of the epochs that wrote a delta, that merged deltas, and that wrote a
  new base; medians.
- `aggregate_by_anti_join_ratio` and so on: the same of `epoch.aggregate`, `store` and `snapshot`.
- `by_snapshot_ratio`: seconds of the block that updates, to those of the block that writes a snapshot.
- `bytes_share`: bytes of data that an updating epoch writes, to those of a whole snapshot: deltas, merged deltas and
  new bases, and everything that the epoch deletes again.
- `read_all_ratio`, `read_all_aggregate_ratio`: seconds to read a state, to those of the folder of `anti_join`, with the
  deltas at the end (`runs`); `read_all_before_base`: just before a new base, with the most deltas.
  `read_all_store_ratio`: without copies; `log_read_all_ratio`: of the log's reader, which has each epoch's folder.
- `base_every`: epochs from one new base to the next, by a job's limits.
- `live_files`: the most files of the updated state that a checkpoint named.
- `restore_any`: true if each of the `retained` checkpoints has the state that `anti_join` had after that epoch.
- `savepoint`: of the updated state at the end, `carried` with its deltas, and `flattened`, after a compaction:
  `seconds` until it exists, with the compaction, `bytes` of data, and `read_seconds` to read the state; None if there
  are no deltas.
- `at_200_million_keys`: with two sizes (`--keys 500000 5000000`), the extrapolation of a straight line through both:
  bytes of a snapshot, seconds of an epoch, and a sentence. The other figures are of the second size.
- `measured`: epochs of each kind; `…_spread`: the smallest and the largest ratio of each. All ways must have the same
  rows in the end. `seconds`: medians. `load`, `cores`.
"""

from __future__ import annotations

import argparse
import os
import statistics
import tempfile
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING
from unittest import mock

from airflow_cairn.checkpoint.answers import Submit
from airflow_cairn.spark import Epoch, state
from airflow_cairn.spark.handover.conf import LOCAL_STATE, LOCAL_STATE_BYTES, s3a_conf
from airflow_cairn.spark.output.writer import Writer
from airflow_cairn.spark.stored import deltas
from airflow_cairn.spark.stored.outputs import of_checkpoint
from airflow_cairn.storage import S3Options
from scripts.harness.s3_server import S3Server
from scripts.s3a_jars import s3a_jars
from tests.real.spark.pipeline import Pipeline

from .measuring import state_savepoints
from .measuring.results import machine, tell
from .measuring.spark_cost import Spent, measured
from .measuring.spark_session import session
from .measuring.state_figures import Kind, Round, at_200_million, bytes_share, cycle, ratios
from .measuring.state_rivals import RIVALS, AntiJoin, newest

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

    from airflow_cairn.spark.stored.outputs import File

_NAME, _STAGE = "totals", "routes"
_MERGE = {"value": "max", "text": "max", "share": "max"}
_COLUMNS = ("key", *_MERGE)
_READS = 5
_RETAINED = 3
"""Retained checkpoints, each of which is restored at the end."""
_COPIES_BYTES = 16 << 30
WAYS = ("update", "store", "aggregate", "snapshot")


@dataclass(frozen=True)
class Place:
    """The place of all files."""

    url: str
    """URLs: of a folder; of the pipelines' storage."""
    spark_url: str
    s3: S3Options | None = None
    copies: Path | None = None


class _Copied(Pipeline):
    """A pipeline whose server keeps copies of its state (semantics V3)."""

    copies: Path

    def conf(self, submit: Submit) -> dict[str, str]:
        return {**super().conf(submit), LOCAL_STATE: str(self.copies), LOCAL_STATE_BYTES: str(_COPIES_BYTES)}


@contextmanager
def _place(folder: Path, store: str) -> Iterator[tuple[Place, Mapping[str, str]]]:
    """Yield the place of all files, and Spark's conf for access."""
    if store == "local":
        yield Place(f"file://{folder}", f"file://{folder}"), {}
        return
    copies = folder / "copies"
    copies.mkdir(mode=0o700)
    with S3Server(folder / "server") as server, mock.patch.dict(os.environ, server.env):
        options = S3Options(
            endpoint_url=server.endpoint_url,
            region=server.region,
            access_key=server.access_key,
            secret_key=server.secret_key,
        )
        bucket = server.create_bucket("state")
        conf = {"spark.jars": ",".join(map(str, s3a_jars())), **s3a_conf(S3Options(server.endpoint_url, server.region))}
        yield Place(f"s3://{bucket}/jobs", f"s3a://{bucket}", options, copies), conf


@contextmanager
def _deleted_bytes() -> Iterator[list[int]]:
    """Collect the bytes of data that drivers write and then delete themselves."""
    found: list[int] = []
    delete = Writer.delete_output

    def counted(writer: Writer, folder: str) -> None:
        found.extend(each.size_bytes for each in writer._files.listing(folder) if each.key.endswith(".parquet"))
        delete(writer, folder)

    with mock.patch.object(Writer, "delete_output", counted):
        yield found


def measure(
    keys: int, share: float, epochs: int, history: int, fan_in: int, store: str, only: Sequence[str]
) -> dict[str, object]:
    """Let the ways take turns; return the figures."""
    with (
        tempfile.TemporaryDirectory(prefix="cairn-state-") as folder,
        _place(Path(folder), store) as (place, conf),
        session({"spark.driver.memory": "3g", **conf}) as spark,
    ):
        ways = [each for each in only if each != "store" or place.s3 is not None]
        return {**_Bench(spark, place, keys, share, fan_in, ways).run(epochs, history), "store": store}


@dataclass(frozen=True)
class _Output:
    block: Spent
    epoch: Spent
    size_bytes: int
    kind: Kind


class _Bench:
    def __init__(
        self, spark: SparkSession, place: Place, keys: int, share: float, fan_in: int, ways: Sequence[str]
    ) -> None:
        self._spark, self._place, self._keys, self._fan_in = spark, place, keys, fan_in
        self._count = max(1, int(keys * share))
        made = [kind(spark, f"{place.spark_url}/{kind.name}", self._changed, tuple(_MERGE)) for kind in RIVALS]
        self._rivals = {each.name: each for each in made}
        self._jobs = {name: self._pipeline(name) for name in ways}
        self._files = {name: self._sizes(name) for name in self._jobs}
        self._most_live = 0
        self._epoch_of: dict[int, int] = {}
        """By checkpoint of the updating job, its epoch's number."""
        self._before_base: dict[str, dict[str, float]] = {}
        """By job, the ratio of a read just before a new base, and the deltas that it had."""

    def _pipeline(self, name: str) -> Pipeline:
        kind = _Copied if name == "update" and self._place.copies is not None else Pipeline
        made = kind(f"{self._place.url}/{name}", self._spark, retained=_RETAINED, s3=self._place.s3)
        if isinstance(made, _Copied):
            assert self._place.copies is not None
            made.copies = self._place.copies
        return made

    def run(self, epochs: int, history: int) -> dict[str, object]:
        first = self._rows(self._spark.range(self._keys).withColumnRenamed("id", "key"), 0)
        for rival in self._rivals.values():
            rival.begin(first)
        for name in self._jobs:
            self._epoch(name, 0, first)
        # A base has a snapshot's size: its files are laid out alike.
        snapshot = sum(self._sizes("update").values())
        for number in range(1, history + 1):
            for name in self._jobs:
                if name != "snapshot":
                    self._epoch(name, number, self._changed(number))
        if history:
            for rival in self._rivals.values():
                rival.merge(1, history)
        found: dict[str, list[Round]] = {name: [] for name in self._jobs}
        for number in range(history + 1, history + epochs + 1):
            turns = [*self._rivals, *self._jobs]
            spent: dict[str, Spent] = {}
            outputs: dict[str, _Output] = {}
            for name in turns if number % 2 else reversed(turns):
                if name in self._rivals:
                    spent[name] = measured(self._spark, partial(self._rivals[name].merge, number, number))
                else:
                    self._read_before_base(name, number)
                    outputs[name] = self._epoch(name, number, self._changed(number))
            for name, each in outputs.items():
                found[name].append(Round(each.block, spent, each.size_bytes, each.kind, each.epoch))
            for rival in self._rivals.values():
                rival.forget(number - _RETAINED)
        return self._figures(found, snapshot, history + epochs + 1)

    def _figures(self, found: dict[str, list[Round]], snapshot: int, number: int) -> dict[str, object]:
        counts: dict[str, dict[Kind, int]] = {}
        for name, rounds in found.items():
            of_runs = [each.size_bytes for each in rounds if each.kind == "run"]
            share = self._count / self._keys
            # If each epoch writes a base, its delta is gone.
            written = int(statistics.median(of_runs) if of_runs else share * snapshot)
            with mock.patch.object(deltas, "FAN_IN", self._fan_in):
                counts[name] = cycle(snapshot, written, share, partials=name == "aggregate")
        if "snapshot" in counts:
            counts["snapshot"] = {"base": 1}
        updates = found["update"]
        seconds = {name: round(statistics.median(each.mine.seconds for each in found[name]), 3) for name in found}
        for rival in self._rivals:
            seconds[rival] = round(statistics.median(each.rivals[rival].seconds for each in updates), 3)
        figures: dict[str, object] = {}
        for name, rounds in found.items():
            for rival in self._rivals:
                figures |= ratios(f"{name}_by_{rival}", rounds, rival, counts[name])
        if "snapshot" in found:
            pairs = zip(updates, found["snapshot"], strict=True)
            against = [replace(one, rivals={"snapshot": other.mine}) for one, other in pairs]
            figures |= ratios("by_snapshot", against, "snapshot", counts["update"])
        if not self._are_equal():
            raise RuntimeError("the ways have kept different states, so their times say nothing")
        restores = self._restores_any()
        read = {f"read_all_{name}_ratio": self._read_all(name, number) for name in found if name != "snapshot"}
        read["log_read_all_ratio"] = self._times_plain(lambda: _read(self._rivals["log"].rows()))
        runs = {name: self._deltas(name) for name in found if name != "snapshot"}
        return {
            **figures,
            "bytes_share": round(bytes_share(updates, snapshot, counts["update"]), 4),
            **{name.replace("_update", ""): round(each, 3) for name, each in read.items()},
            "runs": runs,
            "read_all_before_base": self._before_base,
            "base_every": {name: sum(each.values()) for name, each in counts.items()},
            "live_files": self._most_live,
            "restore_any": restores,
            "retained": _RETAINED,
            "measured": {name: dict(Counter(each.kind for each in rounds)) for name, rounds in found.items()},
            "savepoint": self._savepoints() if runs["update"] else None,
            "seconds": seconds,
            "snapshot_bytes": snapshot,
            "keys": self._keys,
            "changed": self._count,
            "epochs": len(updates),
            "fan_in": self._fan_in,
            **machine(),
        }

    def _savepoints(self) -> dict[str, object]:
        target = f"{self._place.url}/kept"
        return state_savepoints.both(self._spark, self._jobs["update"], _STAGE, _NAME, target, _read)

    def _are_equal(self) -> bool:
        whole, *others = (each.rows() for each in self._rivals.values())
        jobs = all(self._is_equal(None, whole, name) for name in self._jobs)
        return jobs and all(_same(each, whole) for each in others)

    def _is_equal(self, checkpoint: int | None, wanted: DataFrame, name: str = "update") -> bool:
        pipeline = self._jobs[name]
        found = state(self._spark, pipeline.storage, pipeline.job, _STAGE, _NAME, checkpoint=checkpoint, s3=pipeline.s3)
        return _same(found, wanted)

    def _restores_any(self) -> bool:
        """Tell whether each retained checkpoint has the rival's state, for those after which it wrote a folder."""
        retained = [each.id for each in self._jobs["update"].coordinator.head().completed][-_RETAINED:]
        plain = f"{self._place.spark_url}/{AntiJoin.name}"
        known = {each: f"{plain}/{self._epoch_of[each]}" for each in retained if each in self._epoch_of}
        read = self._spark.read.parquet
        return bool(known) and all(self._is_equal(each, read(folder)) for each, folder in known.items())

    def _read_before_base(self, name: str, number: int) -> None:
        """Read a state that has as many deltas as it ever has: its next epoch writes a new base."""
        if name == "snapshot" or name in self._before_base:
            return
        if deltas.is_due([file.handle for file in self._live(name)], partials=name == "aggregate"):
            ratio = round(self._read_all(name, number), 3)
            self._before_base[name] = {"ratio": ratio, "runs": self._deltas(name)}

    def _deltas(self, name: str) -> int:
        return len({file.handle.delta for file in self._live(name) if file.handle.delta})

    def _live(self, name: str = "update") -> list[File]:
        """Return the files of a state in the newest checkpoint."""
        coordinator = self._jobs[name].coordinator
        entry = coordinator.head().completed[-1]
        [mine] = of_checkpoint(coordinator.files, entry.metadata, lambda _: True)
        return mine.outputs[f"state.{_NAME}"].files

    def _rows(self, keys: DataFrame, number: int) -> DataFrame:
        return keys.selectExpr("key", f"{number}L AS value", "md5(CAST(key AS STRING)) AS text", "key / 7 AS share")

    def _changed(self, number: int) -> DataFrame:
        """Return the rows of one epoch; `value` grows, so that a key's newest row also has the largest value."""
        if self._count == self._keys:
            return self._rows(self._spark.range(self._keys).withColumnRenamed("id", "key"), number)
        keys = self._spark.range(self._count).selectExpr(f"pmod(xxhash64(id, {number}L), {self._keys}L) AS key")
        return self._rows(keys.distinct(), number)

    def _epoch(self, name: str, number: int, changed: DataFrame) -> _Output:
        """Run one epoch; return the cost of its block and of all of it, the bytes that it wrote, and their kind."""
        pipeline, run_id = self._jobs[name], f"epoch {number}"
        triggered = measured(self._spark, lambda: pipeline.trigger(run_id))
        epoch = pipeline.epoch(run_id)

        def block() -> None:
            with epoch:
                self._write(name, epoch, number, changed)

        with mock.patch.object(deltas, "FAN_IN", self._fan_in), _deleted_bytes() as deleted:
            spent = measured(self._spark, block)
        new = {key: size for key, size in self._sizes(name).items() if key not in self._files[name]}
        completed = measured(self._spark, lambda: pipeline.complete(run_id))
        if name == "update":
            self._epoch_of[pipeline.coordinator.head().completed[-1].id] = number
            self._most_live = max(self._most_live, len(self._live()))
        self._files[name] = self._sizes(name)
        kind: Kind = "base" if any("/state." in key for key in new) else "run"
        if any("/merged." in key for key in new):
            kind = "merge"
        parts = (triggered, spent, completed)
        whole = Spent(sum(each.seconds for each in parts), sum(each.cpu for each in parts))
        return _Output(spent, whole, sum(new.values()) + sum(deleted), kind)

    def _write(self, name: str, epoch: Epoch, number: int, changed: DataFrame) -> None:
        if name == "aggregate":
            epoch.aggregate(_NAME, changed, "key", merge=_MERGE)
        elif name == "snapshot":
            before = epoch.state(_NAME)
            rows = changed if before is None else newest(before, self._changed, tuple(_MERGE), number, number)
            epoch.snapshot(_NAME, rows, "key")
        else:
            epoch.update(_NAME, changed, key="key")

    def _read_all(self, name: str, number: int) -> float:
        pipeline, run_id = self._jobs[name], f"before epoch {number}"
        pipeline.trigger(run_id)
        with pipeline.epoch(run_id) as epoch:
            found = self._times_plain(lambda: _read(epoch.state(_NAME)))
        pipeline.complete(run_id)
        return found

    def _times_plain(self, read: Callable[[], None]) -> float:
        """Compare some reads with those of the folder of `anti_join`, in turn; return the median ratio."""
        found = []
        for _ in range(_READS):
            mine = measured(self._spark, read)
            plain = measured(self._spark, lambda: _read(self._rivals[AntiJoin.name].rows()))
            found.append(mine.seconds / plain.seconds)
        return round(statistics.median(found), 3)

    def _sizes(self, name: str) -> dict[str, int]:
        pipeline = self._jobs[name]
        found = pipeline.store.list(f"{pipeline.job}/")
        return {each.key: each.size_bytes for each in found if each.key.endswith(".parquet")}


def _read(df: DataFrame | None) -> None:
    assert df is not None
    df.write.format("noop").mode("overwrite").save()


def _same(one: DataFrame, other: DataFrame) -> bool:
    mine, wanted = one.select(*_COLUMNS), other.select(*_COLUMNS)
    return not mine.exceptAll(wanted).count() and not wanted.exceptAll(mine).count()


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--json", action="store_true", help="print one line of JSON")
    parser.add_argument(
        "--keys", type=int, nargs="+", default=[5_000_000], metavar="N", help="one size, or two to extrapolate from"
    )
    parser.add_argument("--share", type=float, default=0.01, help="of the keys, how many change in an epoch")
    parser.add_argument("--epochs", type=int, default=24)
    parser.add_argument("--history", type=int, default=60, help="epochs before those that are counted")
    parser.add_argument(
        "--fan-in", type=int, default=deltas.FAN_IN, help="deltas of updates that become one; a large number: none do"
    )
    parser.add_argument("--store", choices=("local", "s3"), default="local", help="where all is stored")
    parser.add_argument(
        "--only", nargs="+", choices=WAYS, default=WAYS, help="ways beside the rivals; update is always there"
    )
    options = parser.parse_args()
    if options.history < 0:
        parser.error(f"--history is to be at least 0, and is {options.history}")
    if options.fan_in < 2:
        parser.error(f"--fan-in is to be at least 2, and is {options.fan_in}")
    if len(options.keys) > 2 or sorted(set(options.keys)) != options.keys or options.keys[0] < 1:
        parser.error(f"--keys is to be one size, or two, the smaller one first, and is {options.keys}")
    ways = [each for each in WAYS if each == "update" or each in options.only]
    more = (options.share, options.epochs, options.history, options.fan_in, options.store, ways)
    sizes = [measure(each, *more) for each in options.keys]
    further = {"at_200_million_keys": at_200_million(*sizes)} if len(sizes) == 2 else {}
    tell({**sizes[-1], **further}, as_json=options.json)


if __name__ == "__main__":
    main()
