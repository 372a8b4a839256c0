"""Runs a stage's application file in this process, in an epoch on this machine."""

from __future__ import annotations

import os
import runpy
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ..checkpoint import InvalidConfigError, InvalidStateError
from ..spark.epoch import Epoch, as_current
from .epochs import local_epoch
from .written import Written

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


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
