"""The benchmark runs, and what it prints is what is documented; it is run small, and no timing is asserted."""

from __future__ import annotations

import json

import pytest

from bench import page
from tests.support.figures import undocumented


@pytest.mark.large
@pytest.mark.soak
def test_a_small_run_prints_what_is_documented(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(page, "EPOCHS", 12)
    monkeypatch.setattr(page, "LOOK_S", 30)
    monkeypatch.setattr("sys.argv", ["page", "--json", "--rounds", "1"])
    page.main()
    found = json.loads(capsys.readouterr().out.splitlines()[-1])
    assert found["requests_per_minute_100"] == found["requests_per_minute_1"] > 0
    assert undocumented(found, page.__doc__) == []
