"""`run_application`: runs an application's file in this process; `run_by_hand`: the same from a command line."""

from __future__ import annotations

import argparse
import json
import os
import runpy
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ..checkpoint import InvalidConfigError, InvalidStateError
from ..checkpoint.sources.file_names import literal
from ..spark.bootstrap import Keyed
from ..spark.epoch import Epoch, as_current
from ..spark.pyspark_versions import check_starts_here
from .epochs import Written, local_epoch

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession


def run_application(
    spark: SparkSession, application: str | os.PathLike[str], *arguments: str, **options: Any
) -> Written:
    """Run an application in this process; its `Epoch.current()` is a local epoch.

    Args:
        spark: the session that the application gets from the epoch or by `getOrCreate()`.
        application: the Python file.
        *arguments: `application_args`.
        **options: arguments of `local_epoch`: `inputs`, `state`, `start` and so on.

    Returns:
        The outputs of the stage.

    Raises:
        InvalidConfigError: the file is missing.
        InvalidStateError: the application ended without opening an epoch.
        SystemExit: the application exited with a status other than 0.
    """
    epoch = local_epoch(spark, **options)
    run_in(epoch, application, arguments)
    return epoch.written


def run_in(epoch: Epoch, application: str | os.PathLike[str], arguments: Sequence[str]) -> None:
    """Run an application file with this current epoch.

    Raises:
        InvalidConfigError: the file is missing.
        InvalidStateError: the application ended without opening an epoch.
    """
    path = Path(application)
    if not path.is_file():
        raise InvalidConfigError("there is no such application file", application=str(path), folder=str(Path.cwd()))
    with as_current(epoch), _as_main(path, arguments):
        try:
            runpy.run_path(str(path), run_name="__main__")
        except SystemExit as end:
            if end.code not in (None, 0):
                raise
    if not epoch.was_entered:
        raise InvalidStateError(
            "the application ended without opening an epoch: it needs a block `with Epoch.current() as epoch:`",
            application=str(path),
        )


@contextmanager
def _as_main(path: Path, arguments: Sequence[str]) -> Iterator[None]:
    """Set up the process as if it had started the file: its arguments, and imports of modules beside it."""
    argv, found = sys.argv, list(sys.path)
    sys.argv = [str(path), *arguments]
    sys.path.insert(0, str(path.resolve().parent))
    try:
        yield
    finally:
        sys.argv, sys.path[:] = argv, found


_FORMATS: dict[str, tuple[str, dict[str, str]]] = {
    ".csv": ("csv", {"header": "true", "inferSchema": "true"}),
    ".json": ("json", {}),
    ".parquet": ("parquet", {}),
}
"""Spark's reader for each file suffix."""


def run_by_hand(*words: str, spark: SparkSession | None = None) -> int:
    """Run an application without Airflow, and show its outputs.

    Args:
        *words: the file, then the arguments that `python -m airflow_cairn.testing --help` lists.
        spark: the session; None starts a small one.

    Returns:
        The exit status: 2 if an argument is wrong. Errors of the application propagate.
    """
    # argparse accepts arguments after `--` only if no option stands between it and the file.
    at = words.index("--") if "--" in words else len(words)
    given = _parser().parse_args(words[:at])
    try:
        keys = {name: keys.split(",") for name, keys in _pairs("--key", given.key)}
        _check_keys(keys, given.state)
        values = {name: _json(name, text) for name, text in _pairs("--value", given.value)}
        spark = spark or _session()
        written = run_application(
            spark,
            given.application,
            *given.arguments,
            *words[at + 1 :],
            inputs={stage: _read(spark, path) for stage, path in _pairs("--input", given.input)},
            state={
                name: Keyed(_read(spark, path), keys.get(name, ())) for name, path in _pairs("--state", given.state)
            },
            values=values,
            start=given.start,
            end=given.end,
            files=given.file or None,
            folder=given.folder,
        )
    except InvalidConfigError as error:
        print(f"error: {error}", file=sys.stderr)
        return 2
    _show(written)
    return 0


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python -m airflow_cairn.testing",
        description="Run an application in an epoch on this machine, without Airflow, and show what it wrote.",
        epilog="A PATH ends with .parquet, .csv (with a header) or .json.",
    )
    parser.add_argument("application", help="the Python file")
    parser.add_argument("arguments", nargs="*", help="its arguments, after --")
    parser.add_argument("--input", action="append", default=[], metavar="STAGE=PATH", help="what an upstream wrote")
    parser.add_argument("--state", action="append", default=[], metavar="NAME=PATH", help="a state that it restores")
    parser.add_argument("--key", action="append", default=[], metavar="NAME=COLUMN,…", help="the key of a state")
    parser.add_argument("--value", action="append", default=[], metavar="NAME=JSON", help="a value that it restores")
    parser.add_argument("--file", action="append", default=[], metavar="PATH", help="a file of epoch.files()")
    parser.add_argument("--start", help="first moment of the slice, such as 2026-01-01T00:00:00+00:00")
    parser.add_argument("--end", help="first moment after the slice")
    parser.add_argument("--folder", help="an empty folder for the checkpoint, which stays; else it is deleted")
    return parser


def _session() -> SparkSession:
    check_starts_here("an application that runs by hand")
    from pyspark.sql import SparkSession

    builder = SparkSession.builder.master("local[2]").appName("cairn-by-hand")
    return builder.config("spark.ui.enabled", "false").config("spark.sql.session.timeZone", "UTC").getOrCreate()


def _pairs(option: str, given: list[str]) -> list[tuple[str, str]]:
    found = []
    for each in given:
        name, sign, value = each.partition("=")
        if not name or not sign or not value:
            raise InvalidConfigError(f"{option} takes a name, = and a value", given=each)
        found.append((name, value))
    return found


def _check_keys(keys: dict[str, list[str]], states: list[str]) -> None:
    there = {name for name, _ in _pairs("--state", states)}
    unknown = sorted(keys.keys() - there)
    if unknown:
        raise InvalidConfigError(
            "--key names an unknown state", key=", ".join(unknown), states=", ".join(sorted(there)) or "none"
        )


def _json(name: str, text: str) -> Any:
    try:
        return json.loads(text)
    except ValueError as error:
        raise InvalidConfigError(
            "a value is JSON: a number, or text in quotation marks, such as --value 'since=\"2026-01-01\"'",
            value=name,
            given=text,
        ) from error


def _read(spark: SparkSession, path: str) -> DataFrame:
    known = _FORMATS.get(Path(path).suffix)
    if known is None:
        raise InvalidConfigError("the path has none of the known endings", path=path, known=", ".join(_FORMATS))
    if not Path(path).exists():
        raise InvalidConfigError("there is no such file or folder", path=path)
    kind, options = known
    return spark.read.format(kind).options(**options).load(literal(f"file://{Path(path).resolve()}"))


def _show(written: Written) -> None:
    frames = (("state", written.states), ("table", written.tables), ("output", written.outputs))
    for kind, found in frames:
        for name, df in sorted(found.items()):
            print(f"\n{kind} {name}: {df.count()} rows")
            df.show(truncate=False)
    for kind, others in (("value", written.values), ("list", written.lists), ("files", written.files)):
        for name, value in sorted(others.items()):
            print(f"\n{kind} {name}: {json.dumps(value)}")
