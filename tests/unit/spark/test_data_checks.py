"""Checks of truth values, which need no Spark: what they decline, also if the application catches the error."""

from __future__ import annotations

from contextlib import suppress
from pathlib import Path
from typing import Any, cast

import pytest

from airflow_cairn.checkpoint import InvalidStateError
from airflow_cairn.spark import DataCheckError
from airflow_cairn.testing import local_epoch

NO_SPARK: Any = cast("Any", object())


def test_a_check_that_fails_declines_although_it_is_caught(tmp_path: Path) -> None:  # semantics D1, F4
    epoch = local_epoch(NO_SPARK, folder=tmp_path)
    with pytest.raises(DataCheckError, match="the check 'some flights' failed: its condition is false"), epoch:  # noqa: PT012
        with suppress(DataCheckError):
            epoch.check("some flights", condition=False)
        epoch.put("days", 1)
    with pytest.raises(InvalidStateError, match="has not acknowledged"):
        _ = epoch.written
    [decline] = (path for path in tmp_path.rglob("*.json") if "declines" in path.parts)
    assert '"incurable":true' in decline.read_text().replace(" ", "")


def test_a_check_that_only_warns_lets_the_stage_go_on(tmp_path: Path) -> None:
    with local_epoch(NO_SPARK, folder=tmp_path) as epoch:
        assert epoch.check("some flights", condition=True)
        assert not epoch.check("some flights", condition=False, warn=True)
        epoch.put("days", 1)
    assert epoch.written.values == {"days": 1}
