"""`cairn servers`: where the Spark servers of jobs are, and which of them are gone (semantics V1)."""

import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from airflow_cairn.checkpoint.documents.server_record import ANYWHERE, KEY
from airflow_cairn.cli.main import DAMAGED, FAILED, main
from airflow_cairn.spark.remote.register import ServerRegister
from airflow_cairn.storage.clock import Runtime, system_runtime
from tests.support import jobs
from tests.support.command import Cairn
from tests.support.world.world import JOB, World
from tests.unit.cli.test_json import documented, paths

Serving = Callable[[int | None], Cairn]
NOW_MS = system_runtime().now_ms()
DAY_MS = 24 * 3_600_000
HERE = "0f0f0f0f0f0f0f0f0f0f0f0f0f0f0f0f"


@pytest.fixture
def serving(tmp_path: Path, cairn: Cairn) -> Serving:
    """Stores a job, and gives the command on it; it has servers for one run, for all machines, and one that starts."""

    def make(at_ms: int | None) -> Cairn:
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
        return cairn.on(jobs.dump(world.memory, tmp_path))

    return make


def test_the_servers_of_a_job_and_of_all_jobs(serving: Serving) -> None:
    cairn = serving(NOW_MS + DAY_MS)
    of_all = cairn("servers").out
    assert cairn("servers", JOB).out == of_all
    assert [line.split()[1] for line in of_all.splitlines()[2:]] == ["all", "new", "one"], "renewals change no order"
    rows = {line.split()[1]: " ".join(line.split()) for line in of_all.splitlines()[2:]}
    assert rows["one"].startswith(f"{JOB} one up a 2026-01-01 to 2026-01-02 loopback of 0f0f0f0f:15002 ")
    assert rows["all"].startswith(f"{JOB} all up the job - worker-1:15002 ")
    assert rows["new"].startswith(f"{JOB} new starting the job - - ")


def test_one_whose_lease_is_over_is_gone(serving: Serving) -> None:  # semantics V1
    found = {row["server"]: row for row in serving(NOW_MS + DAY_MS).json("servers", JOB)["servers"]}
    assert {name: row["state"] for name, row in found.items()} == {"one": "up", "all": "up", "new": "starting"}
    assert (found["all"]["machine"], found["all"]["host"], found["all"]["port"]) == (None, "worker-1", 15002)
    assert (found["one"]["machine"], found["one"]["host"], found["one"]["run_id"]) == (HERE, None, "a")
    assert {row["state"] for row in serving(NOW_MS - DAY_MS).json("servers", JOB)["servers"]} == {"gone"}


def test_a_damaged_head_hides_no_server(serving: Serving, tmp_path: Path) -> None:
    cairn = serving(NOW_MS)
    (tmp_path / JOB / "head.json").write_text("{")
    assert main(["servers", JOB, "--json", "--storage", cairn.storage]) in (DAMAGED, FAILED)
    found = cairn.json("servers")
    assert [each["input"] for each in found["servers"]] == [None, None, None]


def test_a_damaged_record_of_one_job_hides_no_other(serving: Serving, tmp_path: Path) -> None:
    """The job is named, the others are listed, and the status says that something is damaged."""
    cairn = serving(NOW_MS)
    shutil.copytree(tmp_path / JOB, tmp_path / "a_first_job")
    (tmp_path / "a_first_job" / KEY).write_text("{")
    (tmp_path / "-notes-").mkdir()
    (tmp_path / "-notes-" / "x").touch()
    out = cairn("servers", status=DAMAGED).out
    assert [line.split()[:2] for line in out.splitlines()[2:5]] == [[JOB, name] for name in ("all", "new", "one")]
    assert "a_first_job: its record of servers cannot be read: " in out
    found = cairn.json("servers", status=DAMAGED)
    assert {*paths(found)} == documented("servers")
    assert len(found["servers"]) == 3
    assert [each["job"] for each in found["problems"]] == ["-notes-", "a_first_job"]


def test_a_job_without_servers_and_one_that_is_not_there(serving: Serving) -> None:
    cairn = serving(None)
    assert cairn("servers").out == "no Spark servers\n"
    assert "the storage has no such job" in cairn("servers", "other", status=FAILED).err
