"""What of Spark's errors says that an upstream's output cannot be read (semantics F1)."""

from __future__ import annotations

import pytest

from airflow_cairn.checkpoint import layout
from airflow_cairn.checkpoint.model import Execution
from airflow_cairn.spark import unreadable

CLEAN, ROUTES = Execution("1" * 16, 3, 1), Execution("2" * 16, 4, 2)
UPSTREAM = {"clean": CLEAN, "routes": ROUTES}
FILE = f"s3a://lake/flights/{layout.execution_folder(3, 'clean', 1, '1' * 16)}r/exchange.main/part-0.parquet"


@pytest.mark.parametrize(
    ("text", "found"),
    [
        (f"[FAILED_READ_FILE.FILE_NOT_EXIST] Encountered error while reading file {FILE}.", ("clean",)),
        (f"[PATH_NOT_FOUND] Path does not exist: {FILE}. SQLSTATE: 42K03", ("clean",)),
        (f"Caused by: java.lang.RuntimeException: {FILE} is not a Parquet file.", ("clean",)),
        (f"[FAILED_READ_FILE.NO_HINT] Encountered error while reading file {FILE}. Caused by: SlowDown", ()),
        ("java.io.FileNotFoundException: s3a://elsewhere/part-0.parquet", ()),
        (f"a bad row in {FILE}", ()),
    ],
)
def test_an_error_names_who_cannot_be_read(text: str, found: tuple[str, ...]) -> None:  # semantics F1, R1
    assert unreadable.of(RuntimeError(text), UPSTREAM) == found


def test_causes_count_too() -> None:  # semantics F1
    try:
        try:
            raise RuntimeError(f"{FILE} is not a Parquet file")
        except RuntimeError as error:
            raise ValueError("the job failed") from error
    except ValueError as error:
        assert unreadable.of(error, UPSTREAM) == ("clean",)
    looped = RuntimeError("x")
    looped.__cause__ = looped
    assert unreadable.of(looped, UPSTREAM) == ()
