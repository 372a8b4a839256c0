"""`cairn doctor`: problems of a storage, its jobs and this machine, their consequences and their fixes."""

from __future__ import annotations

import argparse
import logging
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager, redirect_stdout
from typing import Any

from ..checkpoint import system_runtime
from ..checkpoint.answers import FilesProgress
from ..checkpoint.errors import InvalidConfigError
from ..checkpoint.health.examine import examine_storage
from ..checkpoint.health.findings import Examination, Finding, Severity
from ..storage.port import ObjectStore
from .output import text

_UNITS_MS = {"m": 60_000, "h": 3_600_000, "d": 86_400_000}


def doctor(
    store: ObjectStore | None,
    options: argparse.Namespace,
    on_progress: Callable[[FilesProgress], None] = lambda _: None,
    *,
    ask: Callable[[], Any] | None = None,
    dag: Callable[[], Any],
) -> Examination:
    """Run every requested check; anything that looks like a secret is masked.

    Without a store it examines only this machine. `on_progress` is called for each checked file of a job, `ask` asks
    the cluster of `--stage`, and `dag` parses the DAG of `--dag-file`.

    Raises:
        InvalidConfigError: there is nothing to check, `--spark-conn` or `--stage` is given without `--cluster`, both
            are given, `--stage` is given without `--dag-file`, or Airflow is not installed here.
    """
    if options.spark_conn is not None and not options.cluster:
        raise InvalidConfigError("--spark-conn names the cluster that --cluster asks; give --cluster too")
    if options.stage is not None and (options.spark_conn is not None or not options.cluster):
        raise InvalidConfigError("--stage names the stage by which --cluster asks; give --cluster and no --spark-conn")
    if options.stage is not None and options.dag_file is None:
        raise InvalidConfigError("--stage is a task of a DAG: say which by --dag-file FILE DAG_ID", stage=options.stage)
    found = Examination()
    if store is not None:
        found.add(
            examine_storage(
                store,
                system_runtime(),
                options.job,
                write=not options.read_only,
                deep=options.deep,
                max_age_ms=options.max_age,
                before_jobs=_of_worker(options),
                on_progress=on_progress,
            )
        )
    elif options.job is not None or not _of_worker(options):
        raise InvalidConfigError(
            "there is nothing to check: give --storage URI (or set CAIRN_STORAGE), and --worker for this machine"
        )
    if not _of_worker(options):
        # Also without --worker: the errors of a broken PySpark do not name the cause.
        from ..spark.pyspark_versions import check_installed

        found.run("pyspark", check_installed)
    else:
        found.add(_worker(options, ask, s3=store is not None and store.uri.startswith("s3:")))
    if options.dag_file is not None:
        found.add(_tables(dag, write=not options.read_only))
    return found.masked()


def _of_worker(options: argparse.Namespace) -> bool:
    return bool(options.worker or options.dag or options.dag_file or options.cluster)


def _worker(options: argparse.Namespace, ask: Callable[[], Any] | None, *, s3: bool) -> Examination:
    # Airflow prints when it is imported; this command's output must stay machine-readable.
    with redirect_stdout(sys.stderr), _without_sparks_log():
        try:
            from ..tasks.health.examine import examine_worker
        except ImportError as error:
            raise InvalidConfigError(
                f"--worker is for a machine on which Airflow's workers run; here Airflow cannot be imported: {error}"
            ) from error
        cluster = options.stage or options.spark_conn or "spark_default"
        return examine_worker(
            s3=s3,
            spark_conf=dict(options.conf),
            airflow_api_conn_id=options.api_conn,
            dag_id=options.dag,
            cluster=cluster if options.cluster else None,
            ask=ask,
        )


def _tables(dag: Callable[[], Any], *, write: bool) -> Examination:
    with redirect_stdout(sys.stderr):
        from ..operators.group.checks import examine_tables_of

        return examine_tables_of(dag(), write=write)


@contextmanager
def _without_sparks_log() -> Iterator[None]:
    """Hide a driver's output: the finding has its cause. Airflow's logging setup would show all of it."""
    log = logging.getLogger("spark")
    before, log.propagate = log.propagate, False
    try:
        yield
    finally:
        log.propagate = before


def setting(word: str) -> tuple[str, str]:
    """Parse a word of the form NAME=VALUE.

    Raises:
        argparse.ArgumentTypeError: the word has another form.
    """
    name, equals, value = word.partition("=")
    if not equals or not name:
        raise argparse.ArgumentTypeError(f"expected NAME=VALUE, found {word!r}")
    return name, value


def age(word: str) -> int:
    """Parse a duration such as `90m`, `2h` or `3d`; returns milliseconds.

    Raises:
        argparse.ArgumentTypeError: the word has another form.
    """
    number, unit = word[:-1], _UNITS_MS.get(word[-1:])
    if unit is None or not number.isascii() or not number.isdigit() or int(number) < 1:
        raise argparse.ArgumentTypeError(f"expected a number and m, h or d, such as 2h, found {word!r}")
    return int(number) * unit


def lines(found: Examination) -> Iterator[str]:
    """Yield the findings as lines, errors first, and the number of checks."""
    for each in found.sorted():
        yield from _finding(each)
        yield ""
    for name, reason in found.skipped.items():
        yield from text.paragraph(f"not checked: {name}: {reason}")
    for hint in found.hints:
        yield from text.paragraph(f"hint: {hint}")
    errors = sum(each.severity is Severity.ERROR for each in found.findings)
    warnings = len(found.findings) - errors
    said = f"{_count(errors, 'error')}, {_count(warnings, 'warning')}; " if found.findings else "nothing is wrong; "
    yield f"{said}{_count(len(found.passed), 'check')} passed, {len(found.skipped)} not made"


def _finding(each: Finding) -> Iterator[str]:
    yield from text.paragraph(f"{each.severity.upper()} {each.name}: {each.subject}")
    yield from text.labelled("what", each.what)
    yield from text.labelled("why", each.why)
    yield from text.labelled("to mend it", each.mend)


def _count(number: int, of: str) -> str:
    return f"{number} {of}" if number == 1 else f"{number} {of}s"
