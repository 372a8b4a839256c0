"""Measures an epoch of keyed totals with Cairn and with its neighbours, and the total of each after a kill.

Run it as `.venv/bin/python -m bench.peers [--json] [--keys N] [--share S] [--epochs N] [--tables] [--flink]`. All ways
take turns in one session on local files, with the same number of shuffle partitions and the same input: in each epoch a
share of the keys gets an amount, which is added to its total. The first epochs warm up and do not count.

- `aggregate`: `epoch.aggregate`. `update`: `epoch.state(…, keys=…)` and `epoch.update`.
- `rewrite`: plain Spark reads its folder, adds, writes a new folder and swaps a pointer. All ratios are to this way.
- `rewrite_by_epoch`: the same as a careful author writes it: each epoch's folder is made from the previous epoch's.
- `streaming`: Structured Streaming, state in RocksDB with changelog checkpoints, one available-now trigger per epoch; a
  sink writes the changed totals of each batch into a folder.
- `streaming_resident`: the same query, started once, after the others, because it always runs.
- With `--tables`, on an older Spark that their jars support: `delta` and `iceberg` add by `MERGE`; `delta_marked` and
  `iceberg_marked` mark each commit with its epoch; `delta_on_read`, `iceberg_on_read` and `iceberg_v3_on_read` leave
  the merge to the read.
- With `--flink`, after the others, because it always runs: `flink`, a Flink job with its state in RocksDB, which reads
  each epoch's file as it comes and makes a checkpoint each half second. An epoch ends with the first checkpoint that
  began after its last total. Its epochs are those of the other ways, at another time.

Then comes one epoch that ends after its write and before its success is known, and a retry with the same input. Flink's
processes are killed; of the others nothing is written from then on, as after a kill.

- `NAME_seconds_ratio`, `NAME_bytes_ratio`: the median of an epoch's seconds, and the mean of the bytes in its new
  files, within the rounds, to those of `rewrite`. `NAME_cpu_ratio`: CPU seconds, with those of the JVM.
- `NAME_after_kill`: `exact`, or the error of the sum of all totals, as a multiple of one epoch's input.
- `seconds`: medians. `bytes`: means. `load`, `cores`, `spark`: of the measurement.
"""

from __future__ import annotations

import argparse
import statistics
import sys
import tempfile
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from .measuring import table_formats
from .measuring.peers import Peer, peers, write_input
from .measuring.results import machine, tell
from .measuring.spark_cost import Spent, measured
from .measuring.spark_session import session

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

WARM = 2
"""Epochs before the measured ones."""


def figures(spent: Mapping[str, Sequence[Spent]], sizes: Mapping[str, Sequence[int]]) -> dict[str, object]:
    """Compute the ratios of each way to `rewrite`, within the rounds."""
    found: dict[str, object] = {}
    plain, plain_bytes = spent["rewrite"], sizes["rewrite"]
    for name in spent:
        seconds = [one.seconds / other.seconds for one, other in zip(spent[name], plain, strict=True)]
        cpu = [one.cpu / other.cpu for one, other in zip(spent[name], plain, strict=True)]
        size = [one / other for one, other in zip(sizes[name], plain_bytes, strict=True)]
        found[f"{name}_seconds_ratio"] = round(statistics.median(seconds), 3)
        found[f"{name}_seconds_ratio_spread"] = [round(min(seconds), 3), round(max(seconds), 3)]
        found[f"{name}_cpu_ratio"] = round(statistics.median(cpu), 3)
        found[f"{name}_bytes_ratio"] = round(statistics.mean(size), 4)
    found["seconds"] = {name: round(statistics.median(one.seconds for one in all_), 2) for name, all_ in spent.items()}
    found["bytes"] = {name: round(statistics.mean(all_)) for name, all_ in sizes.items()}
    return found


def verdict(total: int, epochs: int, rows: int) -> str:
    """Compare a sum of totals with the expected one, by epochs and rows."""
    off = total - epochs * rows
    return "exact" if not off else f"off by {off / rows:+.2f} epochs"


def measure(keys: int, share: float, epochs: int, jars: str, *, flink: bool = False) -> dict[str, object]:
    """Let all ways take turns, then kill each once; return the figures."""
    rows = int(keys * share)
    with tempfile.TemporaryDirectory(prefix="cairn-peers-") as name:
        folder = Path(name)
        with session(table_formats.conf(folder, jars) if jars else {}) as spark, ExitStack() as stack:
            ways = peers(spark, folder) + (table_formats.peers(spark, folder) if jars else [])
            if flink:
                from .measuring.flink import Flink  # the environment of --tables lacks its packages

                ways.append(Flink(spark, folder))
            for way in ways:
                stack.callback(way.close)
            return _measured(spark, folder, ways, keys, rows, epochs)


def _measured(
    spark: SparkSession, folder: Path, ways: Sequence[Peer], keys: int, rows: int, epochs: int
) -> dict[str, object]:
    spent: dict[str, list[Spent]] = {each.name: [] for each in ways}
    sizes: dict[str, list[int]] = {each.name: [] for each in ways}
    write_input(spark, folder, 0, keys, keys)  # each key gets a total before the first share changes

    def turn(way: Peer, number: int) -> None:
        before, cpu = way.files(), way.cpu_elsewhere()
        one = measured(spark, partial(way.run, number))
        if number > WARM:
            spent[way.name].append(Spent(one.seconds, one.cpu + way.cpu_elsewhere() - cpu))
            sizes[way.name].append(way.new_bytes(before))

    together = [way for way in ways if not way.always_runs]
    for number in range(WARM + epochs + 1):
        if number:
            write_input(spark, folder, number, keys, rows)
        for way in together if number % 2 else reversed(together):
            turn(way, number)
    for way in ways:
        for number in range(WARM + epochs + 1) if way.always_runs else ():
            turn(way, number)
    last = WARM + epochs + 1
    write_input(spark, folder, last, keys, rows)
    after = {f"{way.name}_after_kill": _after_a_kill(way, last, keys, rows) for way in ways}
    return {**figures(spent, sizes), **after, "spark": spark.version, **machine()}


def _after_a_kill(way: Peer, number: int, keys: int, rows: int) -> str:
    way.run_killed(number)
    way.run(number)
    return verdict(way.total() - keys, number, rows)


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--json", action="store_true", help="print one line of JSON")
    parser.add_argument("--keys", type=int, default=1_000_000)
    parser.add_argument("--share", type=float, default=0.01, help="of the keys, how many change in an epoch")
    parser.add_argument("--epochs", type=int, default=8)
    parser.add_argument(
        "--tables", action="store_true", help="Delta and Iceberg too, on the Spark that both have jars for"
    )
    parser.add_argument("--flink", action="store_true", help="Flink too, in an environment with PyFlink (1.3 GB)")
    parser.add_argument("--jars", default="", help="what --tables gives to the process that it starts")
    options = parser.parse_args()
    if options.tables:
        sys.exit(table_formats.run_there("bench.peers", [each for each in sys.argv[1:] if each != "--tables"]))
    tell(measure(options.keys, options.share, options.epochs, options.jars, flink=options.flink), as_json=options.json)


if __name__ == "__main__":
    main()
