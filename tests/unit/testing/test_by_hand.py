"""`python -m airflow_cairn.testing`: what is wrong is said before a Spark starts."""

from __future__ import annotations

import pytest

from airflow_cairn.testing import run_by_hand


@pytest.mark.parametrize(
    ("words", "wrong"),
    [
        (["--key", "totals=a", "--state", "others=x.parquet"], "--key names what is no state"),
        (["--value", "days"], "--value takes a name, = and a value [given=`days`]"),
        (["--value", "since=2026-01-01"], "a value is JSON"),
    ],
)
def test_what_is_wrong_is_said(words: list[str], wrong: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert run_by_hand("totals.py", *words) == 2
    assert wrong in capsys.readouterr().err
