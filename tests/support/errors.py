"""Checks of the errors that a test expects."""

from __future__ import annotations

import pytest

from airflow_cairn.storage.errors import CairnError


def raises_code(code: str, match: str | None = None) -> pytest.RaisesExc[CairnError]:
    """Expect an error by its code, which stands for one class, as `pytest.raises` does by its class."""
    return pytest.raises(CairnError, match=match, check=lambda error: error.code == code)
