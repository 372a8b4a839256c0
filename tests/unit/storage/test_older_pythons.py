"""Stand-ins for parts of Python 3.11 in a driver on Python 3.10: same results as on 3.11."""

from __future__ import annotations

import importlib.util
import re
import sys
from datetime import datetime
from pathlib import Path
from types import ModuleType

import pytest
from hypothesis import given
from hypothesis import strategies as st

import airflow_cairn
from airflow_cairn.storage import older_pythons

AS_310_READS = re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{6}([+-]\d\d:\d\d(:\d\d)?)?")
"""Texts that `datetime.isoformat` writes; Python 3.10 reads nothing else."""
OFFSETS = ("", "Z", "+00:00", "-0330", "+05", "+01:02:03")


def as_on_310(module: ModuleType, monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    """Load a module anew as Python 3.10 would."""
    monkeypatch.setattr(sys, "version_info", (3, 10, 0))
    return loaded(module)


def loaded(module: ModuleType) -> ModuleType:
    """Load a module anew, under another name."""
    assert module.__file__ is not None
    spec = importlib.util.spec_from_file_location(f"{module.__name__}_again", Path(module.__file__))
    assert spec is not None
    assert spec.loader is not None
    again = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(again)
    return again


def test_a_member_is_its_text_however_it_is_printed(monkeypatch: pytest.MonkeyPatch) -> None:
    older = as_on_310(older_pythons, monkeypatch).StrEnum
    assert older is not older_pythons.StrEnum
    for base in (older, older_pythons.StrEnum):
        (member,) = base("Kind", {"GONE": "gone"})  # type: ignore[call-arg]  # the functional form
        assert (str(member), f"{member}", f"{member:>6}", repr(member)[:10]) == ("gone", "gone", "  gone", "<Kind.GONE")
        assert member == "gone"
        assert {"gone": 1}[member] == 1
        assert isinstance(member, str)


@given(
    moment=st.datetimes(),
    day=st.sampled_from(("%Y-%m-%d", "%Y%m%d")),
    time=st.sampled_from(
        (None, "T%H", " %H:%M", "T%H:%M:%S", "T%H%M%S", "T%H:%M:%S.%f", "T%H:%M:%S,%f", "T%H:%M:%S.5")
    ),
    offset=st.sampled_from(OFFSETS),
)
def test_a_moment_is_written_out_without_changing_it(moment: datetime, day: str, time: str | None, offset: str) -> None:
    text = moment.strftime(day).rjust(10 if "-" in day else 8, "0")
    if time is not None:
        text += moment.strftime(time) + offset
    out = older_pythons.written_out(text)
    assert datetime.fromisoformat(out) == datetime.fromisoformat(text)
    assert datetime.fromisoformat(out).tzinfo == datetime.fromisoformat(text).tzinfo
    assert AS_310_READS.fullmatch(out), out


@pytest.mark.parametrize(
    "text", ["", "yesterday", "2026-13-01", "2026-01-01T25:00", "2026-01-01T", "2026-01-01Z", "x" * 100]
)
def test_what_is_no_moment_is_refused(text: str, monkeypatch: pytest.MonkeyPatch) -> None:
    older = as_on_310(older_pythons, monkeypatch)
    for module in (older_pythons, older):
        with pytest.raises(ValueError, match=r"."):
            module.moment_of(text)


def test_both_read_the_same_moment(monkeypatch: pytest.MonkeyPatch) -> None:
    older = as_on_310(older_pythons, monkeypatch)
    for text in ("2026-01-01T00:00:00Z", "2026-01-01T05:30:00.5+05:30", "20260101T00Z"):
        assert older.moment_of(text) == older_pythons.moment_of(text)


def test_an_older_python_than_that_is_refused_by_its_version(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "version_info", (3, 9, 18))
    with pytest.raises(ImportError, match=r"needs Python 3\.10 or newer, and this is Python 3\.9\. Set spark\.pyspark"):
        loaded(airflow_cairn)
