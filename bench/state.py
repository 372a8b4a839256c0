"""What it costs to change a few rows of a keyed state, against Spark alone that merges and writes the whole.

Run it as `.venv/bin/python -m bench.state [--json] [--keys N [N]] [--share S] [--epochs N] [--history N] [--fan-in N]`.
In each epoch the same share of the keys changes. One job does it by `epoch.update`, one by `epoch.aggregate`, and plain
Spark reads its folder, unites it with the changes, takes the newest row of each key and writes a new folder. The three
take turns, in one session on local files. Before them come epochs of the two jobs alone (`--history`), which are not
counted: with 60 of them, of 1 % each, the counted ones begin with many runs and write a new base once. The figures
count that epoch, and those that merge runs, as often as they come.

- `update_ratio`: seconds of a block that updates by those of plain Spark, epochs with a new base included;
  `update_cpu_ratio`: CPU seconds, with those of the JVM.
- `update_run_ratio`, `update_merge_ratio`, `update_base_ratio`: of the epochs that wrote a run, of those that merged
  runs, and of those that wrote a new base; medians.
- `aggregate_ratio` and the four others like it: the same of `epoch.aggregate`.
- `bytes_share`: bytes of data that an updating epoch writes, new bases included, by those of a whole snapshot.
- `read_all_ratio`: seconds to read the updated state, by those of plain Spark's folder, with the `runs` of the end.
- `base_every`: epochs from one new base to the next, by the bounds that a job has. `live_files`: of the state.
- `at_200_million_keys`: with two sizes (`--keys 500000 5000000`), what a straight line through both says of that many:
  bytes of a snapshot, seconds of an epoch, and a sentence. The figures beside it are of the second size.
- `equal`: whether the updated state is what plain Spark has. `seconds`: medians. `load`, `cores`.
"""

from __future__ import annotations

import argparse
import statistics
import tempfile
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any, Literal
from unittest import mock

from airflow_cairn.checkpoint.documents.acknowledgement import StateHandle
from airflow_cairn.spark import state
from airflow_cairn.spark.stored import runs
from tests.real.spark.pipeline import Pipeline, session_builder

from .measuring.results import machine, tell
from .measuring.spark_cost import Spent, measured

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

_NAME, _STAGE = "totals", "routes"
_MERGE = {"value": "max", "text": "max", "share": "max"}
_COLUMNS = ("key", *_MERGE)
_READS = 5
_EXTRAPOLATED = 200_000_000


Kind = Literal["run", "merge", "base"]
"""What an epoch wrote: its run, several runs as one, or a new base."""


@dataclass(frozen=True)
class Round:
    """One epoch of one way to keep a state, and plain Spark in its turn."""

    mine: Spent
    plain: Spent
    size_bytes: int = 0
    """Of the files of data that the epoch left."""
    kind: Kind = "run"


def cycle(snapshot_bytes: int, run_bytes: int, share: float, *, partials: bool = False) -> dict[Kind, int]:
    """Give how many epochs of each kind there are from one new base to the next, by the bounds of a job (semantics K3).

    Args:
        snapshot_bytes: of a base.
        run_bytes: of an epoch's run.
        share: of the keys, how many change in an epoch, drawn anew each time; a merged run has each key once.
        partials: whether the runs are partial aggregates.
    """
    counts: dict[Kind, int] = {"run": 0, "merge": 0, "base": 1}
    live: dict[int, int] = {}
    """By number, the epochs that a run stands for."""
    for number in range(1, runs.MAX_EPOCHS + 1):
        live[number] = 1
        there = [StateHandle("", "", snapshot_bytes, "")]
        for run, epochs in live.items():
            keys = epochs if share >= 1 else (1 - (1 - share) ** epochs) / share
            there.append(StateHandle("", "", int(run_bytes * keys), "", run=run))
        if runs.is_due(there, partials=partials):
            break
        together = runs.to_merge(there, partials=partials)
        counts["merge" if together else "run"] += 1
        if together:
            live[number] = sum(live.pop(run) for run in together)
    return counts


def amortised(rounds: Sequence[Round], value: Iterable[float], counts: Mapping[Kind, int]) -> float:
    """Give the mean of an epoch where so many of each kind come one after the other.

    Of each kind the median of what was measured counts.

    Raises:
        ValueError: a kind was not measured.
    """
    of = medians(rounds, value)
    if missing := [kind for kind, count in counts.items() if count and kind not in of]:
        raise ValueError(f"no epoch wrote a {missing[0]}: give other --epochs, --history or --fan-in")
    return sum(of[kind] * count for kind, count in counts.items() if count) / sum(counts.values())


def medians(rounds: Sequence[Round], value: Iterable[float]) -> dict[Kind, float]:
    """Give the median of each kind of epoch that there was."""
    found: dict[Kind, list[float]] = {}
    for each, one in zip(rounds, value, strict=True):
        found.setdefault(each.kind, []).append(one)
    return {kind: statistics.median(values) for kind, values in found.items()}


def ratios(name: str, rounds: Sequence[Round], counts: Mapping[Kind, int]) -> dict[str, object]:
    """Give the figures of one way."""
    seconds = [each.mine.seconds / each.plain.seconds for each in rounds]
    cpu = [each.mine.cpu / each.plain.cpu for each in rounds]
    return {
        f"{name}_ratio": round(amortised(rounds, seconds, counts), 3),
        f"{name}_cpu_ratio": round(amortised(rounds, cpu, counts), 3),
        **{f"{name}_{kind}_ratio": round(one, 3) for kind, one in sorted(medians(rounds, seconds).items())},
    }


def bytes_share(rounds: Sequence[Round], snapshot_bytes: float, counts: Mapping[Kind, int]) -> float:
    """Give the bytes of an epoch by those of a snapshot."""
    return amortised(rounds, [each.size_bytes for each in rounds], counts) / snapshot_bytes


def at_200_million(small: Mapping[str, Any], large: Mapping[str, Any]) -> dict[str, object]:
    """Give what two measured sizes say of 200 million keys, if all goes on as from the first to the second.

    A straight line says nothing of what begins only beyond both: runs that are not broadcast any more, more cores.
    """

    def there(one: float, other: float) -> float:
        step: float = (other - one) / (large["keys"] - small["keys"])
        return max(0.0, other + step * (_EXTRAPOLATED - int(large["keys"])))

    seconds = {name: round(there(small["seconds"][name], large["seconds"][name]), 1) for name in large["seconds"]}
    snapshot = there(small["snapshot_bytes"], large["snapshot_bytes"])
    words = (
        f"If all goes on as from {small['keys']:,} to {large['keys']:,} keys, with 200 million keys on these cores an "
        f"epoch updates {large['changed'] / large['keys']:.1%} of them in {seconds['update']:,.0f} s and writes "
        f"{large['bytes_share'] * snapshot / 1e9:.1f} GB in the mean; plain Spark takes {seconds['plain']:,.0f} s and "
        f"writes {snapshot / 1e9:.1f} GB."
    )
    return {"snapshot_bytes": int(snapshot), "seconds": seconds, "words": words}


def measure(keys: int, share: float, epochs: int, history: int, fan_in: int) -> dict[str, object]:
    """Let the three take turns; give the figures."""
    spark = session_builder().config("spark.driver.memory", "3g").getOrCreate()
    try:
        with tempfile.TemporaryDirectory(prefix="cairn-state-") as folder:
            return _Bench(spark, f"file://{folder}", keys, share, fan_in).run(epochs, history)
    finally:
        spark.stop()


class _Bench:
    def __init__(self, spark: SparkSession, folder: str, keys: int, share: float, fan_in: int) -> None:
        self._spark, self._folder, self._keys, self._fan_in = spark, folder, keys, fan_in
        self._count = max(1, int(keys * share))
        self._plain = f"{folder}/plain-0"
        self._jobs = {name: Pipeline(f"{folder}/{name}", spark) for name in ("update", "aggregate")}
        self._files = {name: self._sizes(name) for name in self._jobs}

    def run(self, epochs: int, history: int) -> dict[str, object]:
        first = self._rows(self._spark.range(self._keys).withColumnRenamed("id", "key"), 0)
        first.write.parquet(self._plain)
        for name in self._jobs:
            self._epoch(name, 0, first)
        # A base's size is a snapshot's: its files are laid out alike.
        snapshot = sum(self._sizes("update").values())
        for number in range(1, history + 1):
            for name in self._jobs:
                self._epoch(name, number, self._changed(number))
        self._merge(1, history)
        found: dict[str, list[Round]] = {name: [] for name in self._jobs}
        for number in range(history + 1, history + epochs + 1):
            plain = measured(self._spark, partial(self._merge, number, number))
            for name in self._jobs if number % 2 else reversed(self._jobs):
                mine, size_bytes, kind = self._epoch(name, number, self._changed(number))
                found[name].append(Round(mine, plain, size_bytes, kind))
        return self._figures(found, snapshot, history + epochs + 1)

    def _figures(self, found: dict[str, list[Round]], snapshot: int, number: int) -> dict[str, object]:
        counts = {}
        for name, rounds in found.items():
            of_runs = [each.size_bytes for each in rounds if each.kind == "run"]
            written, share = int(statistics.median(of_runs)) if of_runs else 0, self._count / self._keys
            with mock.patch.object(runs, "FAN_IN", self._fan_in):
                counts[name] = cycle(snapshot, written, share, partials=name == "aggregate")
        files = [each for each in self._jobs["update"].listing() if each.endswith(".parquet")]
        pipeline = self._jobs["update"]
        mine = state(self._spark, pipeline.storage, pipeline.job, _STAGE, _NAME).select(*_COLUMNS)
        plain = self._spark.read.parquet(self._plain)
        equal = not mine.exceptAll(plain).count() and not plain.exceptAll(mine).count()
        seconds = {name: round(statistics.median(each.mine.seconds for each in found[name]), 3) for name in found}
        seconds["plain"] = round(statistics.median(each.plain.seconds for each in found["update"]), 3)
        return {
            **ratios("update", found["update"], counts["update"]),
            **ratios("aggregate", found["aggregate"], counts["aggregate"]),
            "bytes_share": round(bytes_share(found["update"], snapshot, counts["update"]), 4),
            "read_all_ratio": round(self._read_all(number), 3),
            "runs": len({each.rpartition("/")[0] for each in files if "/state." not in each}),
            "base_every": {name: sum(each.values()) for name, each in counts.items()},
            "live_files": len(files),
            "equal": equal,
            "seconds": seconds,
            "snapshot_bytes": snapshot,
            "keys": self._keys,
            "changed": self._count,
            "epochs": len(found["update"]),
            "fan_in": self._fan_in,
            **machine(),
        }

    def _rows(self, keys: DataFrame, number: int) -> DataFrame:
        return keys.selectExpr("key", f"{number}L AS value", "md5(CAST(key AS STRING)) AS text", "key / 7 AS share")

    def _changed(self, number: int) -> DataFrame:
        """Give the rows of one epoch; `value` grows, so that the newest of a key is the largest too."""
        keys = self._spark.range(self._count).selectExpr(f"pmod(xxhash64(id, {number}L), {self._keys}L) AS key")
        return self._rows(keys.distinct(), number)

    def _merge(self, first: int, last: int) -> None:
        """Have plain Spark take in the rows of some epochs."""
        from pyspark.sql import functions as F

        rows = self._spark.read.parquet(self._plain).withColumn("epoch", F.lit(0))
        for number in range(first, last + 1):
            rows = rows.unionByName(self._changed(number).withColumn("epoch", F.lit(number)))
        self._plain = f"{self._folder}/plain-{last}"
        rows.groupBy("key").agg(*(F.max_by(each, "epoch").alias(each) for each in _MERGE)).write.parquet(self._plain)

    def _epoch(self, name: str, number: int, changed: DataFrame) -> tuple[Spent, int, Kind]:
        """Run one epoch; gives what its block took, the bytes of data that it left, and what it wrote."""
        pipeline, run_id = self._jobs[name], f"epoch {number}"
        pipeline.trigger(run_id)
        epoch = pipeline.epoch(run_id)

        def block() -> None:
            with epoch:
                if name == "update":
                    epoch.update(_NAME, changed, key="key")
                else:
                    epoch.aggregate(_NAME, changed, "key", merge=_MERGE)

        with mock.patch.object(runs, "FAN_IN", self._fan_in):
            spent = measured(self._spark, block)
        new = {key: size for key, size in self._sizes(name).items() if key not in self._files[name]}
        pipeline.complete(run_id)
        self._files[name] = self._sizes(name)
        kind: Kind = "base" if any("/state." in key for key in new) else "run"
        if any("/merged." in key for key in new):
            kind = "merge"
        # The run that went into a merged one, or into a new base, was written too, and deleted.
        return spent, sum(new.values()), kind

    def _read_all(self, number: int) -> float:
        pipeline, found = self._jobs["update"], []
        pipeline.trigger(f"epoch {number}")
        with pipeline.epoch(f"epoch {number}") as epoch:
            for _ in range(_READS):
                mine = measured(self._spark, lambda: _read(epoch.state(_NAME)))
                plain = measured(self._spark, lambda: _read(self._spark.read.parquet(self._plain)))
                found.append(mine.seconds / plain.seconds)
        pipeline.complete(f"epoch {number}")
        return statistics.median(found)

    def _sizes(self, name: str) -> dict[str, int]:
        pipeline = self._jobs[name]
        found = pipeline.store.list(f"{pipeline.job}/")
        return {each.key: each.size_bytes for each in found if each.key.endswith(".parquet")}


def _read(df: DataFrame | None) -> None:
    assert df is not None
    df.write.format("noop").mode("overwrite").save()


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--json", action="store_true", help="print one line of JSON")
    parser.add_argument(
        "--keys", type=int, nargs="+", default=[5_000_000], metavar="N", help="one size, or two to extrapolate from"
    )
    parser.add_argument("--share", type=float, default=0.01, help="of the keys, how many change in an epoch")
    parser.add_argument("--epochs", type=int, default=24)
    parser.add_argument("--history", type=int, default=60, help="epochs before those that are counted, at least 1")
    parser.add_argument(
        "--fan-in", type=int, default=runs.FAN_IN, help="runs of updates that become one; a large number: none do"
    )
    options = parser.parse_args()
    if options.history < 1:
        parser.error(f"--history is to be at least 1, and is {options.history}")
    if options.fan_in < 2:
        parser.error(f"--fan-in is to be at least 2, and is {options.fan_in}")
    if len(options.keys) > 2 or sorted(set(options.keys)) != options.keys or options.keys[0] < 1:
        parser.error(f"--keys is to be one size, or two, the smaller one first, and is {options.keys}")
    sizes = [measure(each, options.share, options.epochs, options.history, options.fan_in) for each in options.keys]
    further = {"at_200_million_keys": at_200_million(*sizes)} if len(sizes) == 2 else {}
    tell({**sizes[-1], **further}, as_json=options.json)


if __name__ == "__main__":
    main()
