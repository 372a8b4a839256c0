"""The documentation's commands: each is run, here or by the test that is named here, and no other is written."""

from __future__ import annotations

import io
import json
import re
import shlex
import subprocess
from dataclasses import replace
from pathlib import Path

import pytest

from airflow_cairn.checkpoint import system_runtime
from airflow_cairn.cli import main as cli
from airflow_cairn.cli.main import parser
from airflow_cairn.storage import open_store
from scripts.doc_blocks import Kind, doc_blocks
from scripts.setup.base import ROOT
from tests.support.api_stand_in import ApiStandIn
from tests.support.world.world import CONFIG, World
from tests.unit.cli.test_asking import SECRET, Airflow

BLOCKS = [each for each in doc_blocks(ROOT) if each.kind is Kind.SHELL]
LINES = [
    (f"{block.page}:{block.line + number}", re.sub(r"\s+# .*| ?\\$", "", line.removeprefix("$ ")))
    for block in BLOCKS
    for number, line in enumerate(block.text.splitlines())
    if line.startswith("$ ") and "--help" not in line
]
CAIRN = [(where, line) for where, line in LINES if line.startswith("cairn ")]
CHANGES = {"adopt", "dispose", "resume", "rewind", "savepoint", "stop"}
LOOKS = {"jobs", "checkpoints", "show", "verify", "savepoints", "stats", "doctor"}
COMPARED = {"state", "diff", "regions"}
"""Run by test_output_blocks.py, which compares what they print."""
ON_SPARK = {"compact"}
"""Run by test_application_blocks.py."""
ASKS_AIRFLOW = {"checkpoint"}
ON_TWO_STORES = {"mirror", "activate"}
"""Run by real/s3/test_mirror.py, in the order of their page."""
OTHERS = {
    r"pip install (apache-airflow==[\d.]+ )?'airflow-cairn\[[a-z,]+\]'( -c constraints-[\d.]+\.txt)?": (
        "docs/test_tutorial.py",
        "uv, ",
    ),
    "pip install apache-airflow-providers-openlineage": ("unit/tasks/reports/test_lineage.py", "ensure_lineage()"),
    "aws s3 (?:cp|sync|rm) .*": ("real/s3/test_backup.py", "marked("),
    r"airflow dags trigger flights --logical-date \S+ --conf '.*'": (
        "real/airflow/test_demo.py",
        "airflow dags trigger",
    ),
    "airflow backfill create --dag-id flights .*": (
        "unit/checkpoint/sources/test_read_windows.py",
        "airflow backfill create",
    ),
    r"airflow dags trigger flights --run-id cairn_drain__\w+": ("unit/cli/test_stop.py", "airflow dags trigger DAG_ID"),
    "airflow connections add cairn_session .*": ("real/airflow/test_demo.py", "airflow connections add"),
    r"\$SPARK_HOME/sbin/start-connect-server\.sh .*": (
        "../scripts/harness/spark/connect_server.py",
        "SparkConnectServer",
    ),
    "python -m airflow_cairn.testing totals.py .*": (
        "real/spark/test_local_epoch.py",
        "python -m airflow_cairn.testing",
    ),
    "python days.py --local .*": ("unit/testing/test_by_hand.py", "# days.py"),
    r"python -m airflow_cairn\.hooks\.class_archive": ("unit/hooks/test_class_archive.py", "class_archive.main("),
}
"""Programs of others, and what no test of this module could reach: which one runs it, and a word of it that says so."""


def verb(line: str) -> str:
    """Give the command of a line."""
    return shlex.split(line)[1]


@pytest.mark.parametrize(("where", "line"), CAIRN)
def test_the_command_line_takes_every_cairn_command(where: str, line: str) -> None:
    parser().parse_args(shlex.split(line)[1:])


def test_commands_that_look_are_run(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Commands run in a folder that stands for the pages' storages, where `flights` has 17 checkpoints."""
    (tmp_path / "lake").mkdir()
    world = World(open_store(f"file://{tmp_path}/lake"), replace(CONFIG, retained=20))
    for number in range(1, 18):
        world.run_epoch(f"e{number}")
    ran = 0
    for where, line in CAIRN:
        words = shlex.split(re.sub(r"(?:file|s3)://[\w./-]+", f"file://{tmp_path}/lake", line))[1:]
        if "fligths" in words:  # the one that fails: test_output_blocks.py has it
            continue
        if words[0] in LOOKS and "--watch" not in words and "--storage" in words:  # else it looks at a savepoint
            assert cli.main(words) == 0, f"{where}: {line}: {capsys.readouterr().err}"
            ran += 1
    assert ran >= 6


def contents(folder: Path) -> dict[Path, bytes]:
    """Give all files below a folder."""
    return {path: path.read_bytes() for path in folder.rglob("*") if path.is_file()}


class Answers(io.StringIO):
    """A person at a terminal."""

    def isatty(self) -> bool:
        return True


@pytest.mark.parametrize(("where", "line"), [each for each in CAIRN if verb(each[1]) in CHANGES])
def test_commands_that_change_something_are_run(
    where: str, line: str, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each command runs on a job of its own with three checkpoints and a savepoint; who is asked says yes."""
    (tmp_path / "lake").mkdir()
    store = open_store(f"file://{tmp_path}/lake")
    world = World(store, replace(CONFIG, retained=20))
    world.clock.now_ms = system_runtime().now_ms()
    world.read_days("e1", "e2", "e3")
    for number in range(1, 4):
        world.run_epoch(f"e{number}")
    kept = f"file://{tmp_path}/kept"
    assert cli.main(["savepoint", "flights", kept, "--storage", store.uri, "--json"]) == 0
    savepoint = json.loads(capsys.readouterr().out)["savepoint"]
    if line.startswith("cairn resume flights "):  # it goes on under its own name
        assert cli.main(["stop", "flights", "--target", kept, "--storage", store.uri]) == 0
    typed = re.sub(r"s3://lake/kept/savepoint-\S+", savepoint, line).replace("s3://lake/kept", kept)
    typed = re.sub(r"(?:s3|file):///?lake/cairn", store.uri, typed)
    monkeypatch.setattr("sys.stdin", Answers("y\n"))
    before = contents(tmp_path)
    capsys.readouterr()
    assert cli.main(shlex.split(typed)[1:]) == 0, f"{where}: {line}: {capsys.readouterr().err}"
    assert contents(tmp_path) != before, f"{where}: {line} has changed nothing"


def test_the_commands_that_name_a_connection_are_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    World(open_store(f"file://{tmp_path}/lake")).run_epoch("e1")
    connection = {"conn_type": "cairn", "extra": {"storage": f"file://{tmp_path}/lake"}}
    monkeypatch.setenv("AIRFLOW_CONN_LAKE", json.dumps(connection))
    monkeypatch.delenv("CAIRN_STORAGE", raising=False)
    lines = [line for _, line in CAIRN if "--conn lake" in line]
    assert [cli.main(shlex.split(line)[1:]) for line in lines] == [0]


def test_the_commands_that_ask_airflow_are_run(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each command runs with the exports above it, but for the address and the token."""
    airflow = Airflow()
    lines = [line for _, line in CAIRN if verb(line) in ASKS_AIRFLOW]
    assert lines
    with ApiStandIn(airflow) as server:
        monkeypatch.setenv("CAIRN_AIRFLOW_URL", f"{server.url}/team")
        monkeypatch.setenv("CAIRN_AIRFLOW_TOKEN", SECRET)
        for line in lines:
            assert cli.main(shlex.split(line)[1:]) == 0, line
    assert len(airflow.runs) == len(lines)


@pytest.mark.parametrize(("where", "line"), CAIRN)
def test_no_other_command_of_cairn_is_written(where: str, line: str) -> None:
    """Add it to one of the sets above, and run it there"""
    assert verb(line) in LOOKS | CHANGES | COMPARED | ON_SPARK | ON_TWO_STORES | ASKS_AIRFLOW, where


def exported(line: str) -> dict[str, str]:
    """Have bash run a line that sets variables, and give what a program after it finds."""
    done = subprocess.run(["bash", "-euc", f"{line}\nexec env -0"], capture_output=True, text=True, check=True)
    return dict(each.split("=", 1) for each in done.stdout.split("\0") if each)


@pytest.mark.parametrize(("where", "line"), [each for each in LINES if each not in CAIRN])
def test_other_commands_are_run(where: str, line: str) -> None:
    """`make` says what it would run, which tests run one by one; another program is run by the test that is named"""
    words = shlex.split(line)
    if words[0] == "make":
        done = subprocess.run(["make", "-n", *words[1:]], cwd=ROOT, capture_output=True, text=True, check=False)
        assert done.returncode == 0, f"{where}: {done.stderr}"
    elif words[0] == "export":
        wanted = dict(word.split("=", 1) for word in words[1:])
        assert wanted.items() <= exported(line).items(), where
    else:
        named = [test for pattern, test in OTHERS.items() if re.fullmatch(pattern, line)]
        assert len(named) == 1, f"{where}: add {line} to OTHERS, with the test that runs it"
        [(file, word)] = named
        assert word in (ROOT / "tests" / file).read_text(), f"{where}: {file} does not run it any more"


@pytest.mark.parametrize("line", [line for _, line in LINES if line.startswith("airflow ")])
def test_airflow_takes_its_commands(line: str) -> None:
    from airflow.cli.cli_parser import get_parser

    given = get_parser().parse_args(shlex.split(line)[1:])
    assert json.loads(getattr(given, "conf", None) or "{}") is not None


def test_there_are_commands() -> None:
    assert len(CAIRN) > 10
