"""The tutorial's packages go into uv's cache once for each lock file, and once more if that cache is emptied."""

from __future__ import annotations

from pathlib import Path

import pytest

from scripts.setup import tutorial


def test_it_is_done_once_for_each_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    cache, asked, uv = tmp_path / "cache", tmp_path / "asked", tmp_path / "uv"
    uv.write_text(f'#!/bin/sh\necho "$1" >> {asked}\n[ "$1" != cache ] || echo {cache}\n')
    uv.chmod(0o755)
    cache.mkdir()
    monkeypatch.setattr(tutorial, "ensure_uv", lambda: uv)
    monkeypatch.setattr(tutorial, "constraints", lambda: ["pyspark==4.2.0"])

    tutorial.ensure_tutorial()
    assert asked.read_text().split() == ["cache", "venv", "pip"]
    tutorial.ensure_tutorial()
    assert asked.read_text().split() == ["cache", "venv", "pip", "cache"], "nothing is made a second time"
    for stamp in cache.iterdir():
        stamp.unlink()
    tutorial.ensure_tutorial()
    assert asked.read_text().split()[4:] == ["cache", "venv", "pip"]
