"""`python -m airflow_cairn.testing`, and a file that runs itself: what is wrong is said before a Spark starts."""

import runpy
from pathlib import Path

import pytest

from airflow_cairn.testing import by_hand, run_by_hand
from scripts.markdown import parse
from scripts.setup.base import ROOT


@pytest.mark.parametrize(
    ("words", "wrong"),
    [
        (["--key", "totals=a", "--state", "others=x.parquet"], "--key names an unknown state"),
        (["--value", "days"], "--value takes a name, = and a value [given=`days`]"),
        (["--value", "since=2026-01-01"], "a value is JSON"),
    ],
)
def test_what_is_wrong_is_said(words: list[str], wrong: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert run_by_hand("totals.py", *words) == 2
    assert wrong in capsys.readouterr().err


@pytest.mark.parametrize(
    ("words", "status", "shown"),
    [
        ([], 0, "value days: 1"),
        (["--value", "days=2"], 0, "value days: 3"),
        (["--value", "days=2", "--", "AMS", "--value"], 0, 'value given: ["AMS", "--value"]'),
        (["--value", "days"], 2, "--value takes a name"),
    ],
)
def test_the_file_of_the_page_runs_itself(
    words: list[str],
    status: int,
    shown: str,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The file keeps a value, which needs no Spark; its own arguments follow the dashes."""
    page = (ROOT / "docs" / "how-to" / "test-a-pipeline.md").read_text()
    [text] = [each.text for each in parse(page).blocks if each.text.startswith("# days.py")]
    file = tmp_path / "days.py"
    file.write_text(f'{text}    epoch.put("given", sys.argv[1:])\n')
    monkeypatch.setattr(by_hand, "_session", object)
    monkeypatch.setattr("sys.argv", [str(file), "--local", *words])
    with pytest.raises(SystemExit) as left:
        runpy.run_path(str(file), run_name="__main__")
    said = capsys.readouterr()
    assert left.value.code == status, said.err
    assert shown in said.out + said.err
