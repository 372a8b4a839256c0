"""`cairn servers`: where the Spark servers of jobs are, and which of them are gone (semantics V1)."""

import json
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from airflow_cairn.checkpoint.documents.server_record import ANYWHERE, KEY
from airflow_cairn.cli.main import DAMAGED, FAILED, main
from airflow_cairn.spark.remote.register import ServerRegister
from airflow_cairn.storage.clock import Runtime, system_runtime
from tests.support import jobs
from tests.support.world.world import JOB, World
from tests.unit.cli.test_json import documented, paths

NOW_MS = system_runtime().now_ms()
DAY_MS = 24 * 3_600_000
HERE = "0f0f0f0f0f0f0f0f0f0f0f0f0f0f0f0f"


@pytest.fixture
def storage(tmp_path: Path) -> Callable[..., str]:
    """Dumps a job: it has servers for one run and for all machines, and one that is starting."""

    def make(at_ms: int | None) -> str:
        world = World()
        world.read_days("a")
        world.run_epoch("a")
        if at_ms is not None:
            register = ServerRegister(world.coordinator().files, Runtime(lambda: at_ms, world.new_token))
            for nonce, use, machine, host in (("one", "a", HERE, None), ("all", None, ANYWHERE, "worker-1")):
                register.claim(use, machine, nonce)
                register.come_up(nonce, 15002, host)
            register.claim(None, HERE, "new")
            register.renew("all")
        return jobs.dump(world.memory, tmp_path)

    return make


def test_the_servers_of_a_job_and_of_all_jobs(storage: Callable[..., str], capsys: pytest.CaptureFixture[str]) -> None:
    where = storage(NOW_MS + DAY_MS)
    assert main(["servers", "--storage", where]) == 0
    of_all = capsys.readouterr().out
    assert main(["servers", JOB, "--storage", where]) == 0
    assert capsys.readouterr().out == of_all
    assert [line.split()[1] for line in of_all.splitlines()[2:]] == ["all", "new", "one"], "renewals change no order"
    rows = {line.split()[1]: " ".join(line.split()) for line in of_all.splitlines()[2:]}
    assert rows["one"].startswith(f"{JOB} one up a 2026-01-01 to 2026-01-02 loopback of 0f0f0f0f:15002 ")
    assert rows["all"].startswith(f"{JOB} all up the job - worker-1:15002 ")
    assert rows["new"].startswith(f"{JOB} new starting the job - - ")


def test_one_whose_lease_is_over_is_gone(
    storage: Callable[..., str], capsys: pytest.CaptureFixture[str]
) -> None:  # semantics V1
    assert main(["servers", JOB, "--json", "--storage", storage(NOW_MS + DAY_MS)]) == 0
    found = {row["server"]: row for row in json.loads(capsys.readouterr().out)["servers"]}
    assert {name: row["state"] for name, row in found.items()} == {"one": "up", "all": "up", "new": "starting"}
    assert (found["all"]["machine"], found["all"]["host"], found["all"]["port"]) == (None, "worker-1", 15002)
    assert (found["one"]["machine"], found["one"]["host"], found["one"]["run_id"]) == (HERE, None, "a")
    assert main(["servers", JOB, "--json", "--storage", storage(NOW_MS - DAY_MS)]) == 0
    assert {row["state"] for row in json.loads(capsys.readouterr().out)["servers"]} == {"gone"}


def test_a_damaged_head_hides_no_server(
    storage: Callable[..., str], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    where = storage(NOW_MS)
    (tmp_path / JOB / "head.json").write_text("{")
    assert main(["servers", JOB, "--json", "--storage", where]) in (DAMAGED, FAILED)
    assert main(["servers", "--json", "--storage", where]) == 0
    found = json.loads(capsys.readouterr().out)
    assert [each["input"] for each in found["servers"]] == [None, None, None]


def test_a_damaged_record_of_one_job_hides_no_other(
    storage: Callable[..., str], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """The job is named, the others are listed, and the status says that something is damaged."""
    where = storage(NOW_MS)
    shutil.copytree(tmp_path / JOB, tmp_path / "a_first_job")
    (tmp_path / "a_first_job" / KEY).write_text("{")
    (tmp_path / "-notes-").mkdir()
    (tmp_path / "-notes-" / "x").touch()
    assert main(["servers", "--storage", where]) == DAMAGED
    out = capsys.readouterr().out
    assert [line.split()[:2] for line in out.splitlines()[2:5]] == [[JOB, name] for name in ("all", "new", "one")]
    assert "a_first_job: its record of servers cannot be read: " in out
    assert main(["servers", "--json", "--storage", where]) == DAMAGED
    found = json.loads(capsys.readouterr().out)
    assert len(found["servers"]) == 3
    assert [each["job"] for each in found["problems"]] == ["-notes-", "a_first_job"]


def test_the_json_has_the_fields_of_the_reference(
    storage: Callable[..., str], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    where = storage(NOW_MS)
    shutil.copytree(tmp_path / JOB, tmp_path / "other")
    (tmp_path / "other" / KEY).write_text("{")
    assert main(["servers", "--json", "--storage", where]) == DAMAGED
    assert {*paths(json.loads(capsys.readouterr().out))} == documented("servers")


def test_a_job_without_servers_and_one_that_is_not_there(
    storage: Callable[..., str], capsys: pytest.CaptureFixture[str]
) -> None:
    where = storage(None)
    assert main(["servers", "--storage", where]) == 0
    assert capsys.readouterr().out == "no Spark servers\n"
    assert main(["servers", "other", "--storage", where]) == FAILED
    assert "the storage has no such job" in capsys.readouterr().err
