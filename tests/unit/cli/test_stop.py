"""`cairn stop`, as its user sees it (semantics P2)."""

from argparse import Namespace
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from airflow_cairn.checkpoint import Coordinator
from airflow_cairn.checkpoint.answers import Declined
from airflow_cairn.checkpoint.documents.entries import Stopped
from airflow_cairn.checkpoint.documents.layout import epoch_name
from airflow_cairn.checkpoint.reasons import Reason
from airflow_cairn.checkpoint.savepoints.savepoint_request import drain_run
from airflow_cairn.cli import airflow_api, savepoints
from airflow_cairn.storage import open_store
from tests.support.api_stand_in import Answer, ApiStandIn, Asked
from tests.support.command import Cairn, Printed, stored_job
from tests.support.narrowing import expect
from tests.support.world.world import World
from tests.unit.cli.test_json import documented, paths


@pytest.fixture(autouse=True)
def alone(monkeypatch: pytest.MonkeyPatch, wide: None, root: Path) -> None:
    """No Airflow is known."""
    monkeypatch.delenv("CAIRN_AIRFLOW_URL", raising=False)


def stop(cairn: Cairn, *words: str, status: int = 0) -> Printed:
    target = cairn.storage.removesuffix("store") + "out"
    return cairn("stop", "flights", "--target", target, "--request-id", "upgrade", *words, status=status)


def job(root: Path) -> World:
    return stored_job(root, tolerable_failed_checkpoints=3)


def test_an_idle_job_stops_and_starts_from_it(root: Path, cairn: Cairn) -> None:
    uri, *rest = stop(cairn).lines
    held = "up to e1 (input 2026-01-01 to 2026-01-02): 6 files, "
    assert " ".join(rest).startswith(f"flights has stopped with savepoint 2, {held}")
    told = f"until `cairn resume flights --storage file://{root / 'store'}`; pause the DAG"
    assert told.replace(" ", "") in "".join(rest).replace(" ", "")
    assert job(root).coordinator().head().stopped is Stopped.SHUTDOWN
    found = stop(cairn, "--json").document  # asked again
    assert set(paths(found)) == documented("stop")
    assert (found["savepoint"], found["stopped"], found["last_run"]) == (uri, "shutdown", None)
    cairn("resume", "flights", "--from", uri)  # nothing is given up, so nothing is asked
    assert job(root).coordinator().head().stopped is None


def test_a_run_that_is_under_way_ends_first(root: Path, cairn: Cairn) -> None:
    world = job(root)
    world.trigger("e2")
    said = stop(cairn).text
    assert said.startswith(
        "flights is being stopped; the savepoint waits for e2 to complete. No run begins after that. Then ask"
    )
    assert "Airflow starts no tasks of a paused one" in said
    answer = expect(Declined, world.ask("e3"))
    assert answer.reason is Reason.CHECKPOINT_COORDINATOR_SUSPEND
    world.run_epoch("e2")
    assert "has stopped with savepoint 3, up to e2" in stop(cairn).out


def test_it_waits_if_asked_to(root: Path, capsys: pytest.CaptureFixture[str]) -> None:
    world = job(root)
    world.trigger("e2")
    waited: list[float] = []

    def wait(seconds: float) -> None:
        waited.append(seconds)
        world.run_epoch("e2")

    options = Namespace(target=f"file://{root}/out", request_id=None, drain=False, wait=True)
    _, document, failed = savepoints.stop(Coordinator(world.store, "flights"), options, open_store, wait)
    assert (document["run_id"], document["stopped"], failed, len(waited)) == ("e2", "shutdown", False, 1)
    assert capsys.readouterr().err.startswith("request id: stop-")


def test_if_it_fails_the_job_goes_on(root: Path, cairn: Cairn) -> None:
    world = job(root)
    pending = world.trigger("e2").pending.checkpoint

    def wait(_: float) -> None:
        world.coordinator().abort(pending, Reason.JOB_FAILURE, "the DAG run has ended")

    options = Namespace(target=f"file://{root}/out", request_id="upgrade", drain=False, wait=True)
    lines, document, failed = savepoints.stop(Coordinator(world.store, "flights"), options, open_store, wait)
    assert (failed, document["stopped"]) == (True, None)
    assert lines[0].startswith("flights goes on: savepoint 3 FAILED: checkpoint 2, which it waited for")
    assert "has stopped with savepoint 4, up to e1" in stop(cairn).out  # the person tries once more


def test_the_last_run_is_named(root: Path, cairn: Cairn) -> None:
    run = drain_run("upgrade")
    said = stop(cairn, "--drain").lines
    assert said[-2:] == ["start the last run:", f"  airflow dags trigger DAG_ID --run-id {run}"]
    world = job(root)
    assert isinstance(world.ask("e2"), Declined)
    assert world.trigger(epoch_name(run)).pending.draining
    world.run_epoch(epoch_name(run))
    found = stop(cairn, "--drain", "--json").document
    assert (found["run_id"], found["last_run"], found["stopped"]) == (run, run, "shutdown")


@dataclass
class Dag:
    """One DAG, `flights`, as Airflow's API shows it."""

    paused: bool = False
    refuses_to_pause: bool = False
    overloaded: int = 0
    """Number of requests that the server answers with an error because it is overloaded."""
    runs: list[str] = field(default_factory=list)

    def __call__(self, asked: Asked) -> Answer:
        if asked.path.partition("?")[0] not in ("/api/v2/dags/flights", "/api/v2/dags/flights/dagRuns"):
            return 404, {"detail": "not found"}
        if self.overloaded and asked.method == "PATCH":
            self.overloaded -= 1
            return 500, {"detail": {"reason": "Database error"}}
        if asked.method == "PATCH":
            if self.refuses_to_pause:
                return 403, {"detail": "Forbidden"}
            assert (asked.path.partition("?")[2], asked.body) == ("update_mask=is_paused", {"is_paused": True})
            self.paused = True
        elif asked.method == "POST":
            self.runs.append(asked.body["dag_run_id"])
        return 200, {"dag_id": "flights", "is_paused": self.paused}


@pytest.fixture
def dag(monkeypatch: pytest.MonkeyPatch) -> Iterator[Dag]:
    found = Dag()
    monkeypatch.setattr(airflow_api, "WAITS_S", (0.0, 0.0, 0.0))
    with ApiStandIn(found) as server:
        monkeypatch.setenv("CAIRN_AIRFLOW_URL", server.url)
        monkeypatch.setenv("CAIRN_AIRFLOW_TOKEN", "canary")
        yield found


def test_the_dag_is_paused_when_the_job_has_stopped(root: Path, dag: Dag, cairn: Cairn) -> None:  # semantics P2
    world = job(root)
    world.trigger("e2")
    stop(cairn)
    assert not dag.paused, "the run that is under way would not finish"
    world.run_epoch("e2")
    said = stop(cairn)
    assert dag.paused
    assert said.text.replace(" ", "").endswith("/store`;flightsispaused")


def test_whoever_asks_again_later_pauses_nothing(dag: Dag, cairn: Cairn) -> None:  # semantics S1
    stop(cairn)
    dag.paused = False
    cairn("resume", "flights")
    said = stop(cairn)
    assert not dag.paused
    assert "flights had stopped with savepoint 2, and was resumed since" in said.out


def test_if_only_the_pause_fails_the_savepoint_is_kept_and_named(root: Path, dag: Dag, cairn: Cairn) -> None:
    """semantics P2"""
    dag.refuses_to_pause = True
    said = stop(cairn, status=2).err
    assert "the job has stopped, and its savepoint is kept; but the DAG is not paused: Airflow's API does not" in said
    assert f"savepoint=`file://{root}/out/savepoint-flights-" in said
    assert job(root).coordinator().head().stopped is Stopped.SHUTDOWN
    dag.refuses_to_pause = False
    stop(cairn)  # the same once more
    assert dag.paused


@pytest.mark.parametrize(("times", "status"), [(3, 0), (4, 2)])
def test_an_api_that_cannot_just_now_is_asked_again(dag: Dag, cairn: Cairn, times: int, status: int) -> None:
    """semantics P2: an Airflow on SQLite answers so when a request meets a task's heartbeat (measured)."""
    dag.overloaded = times
    stop(cairn, status=status)
    assert dag.paused == (status == 0)


def test_a_dag_that_does_not_exist_is_found_out_before_the_job_is_held(root: Path, dag: Dag, cairn: Cairn) -> None:
    assert "Airflow has no such DAG; name it by --dag" in stop(cairn, "--dag", "rides", status=2).err
    assert job(root).coordinator().head().savepoints == ()
    dag.paused = True
    assert "the DAG is paused, so a run of it would not start" in stop(cairn, "--drain", status=2).err
    assert job(root).coordinator().head().savepoints == ()


def test_the_last_run_is_started_and_the_same_stop_told_by_its_id_alone(
    root: Path, dag: Dag, cairn: Cairn
) -> None:  # semantics P2
    assert "airflow dags trigger" not in stop(cairn, "--drain").out
    assert dag.runs == [drain_run("upgrade")]
    again = stop(cairn, "--json").document
    assert again["last_run"] == drain_run("upgrade"), "it drains, whether that is said again or not"
    job(root).run_epoch(epoch_name(drain_run("upgrade")))
    stop(cairn, "--drain")
    assert dag.paused
    stop(cairn, "--drain")  # no last run is wanted any more, so the pause is no obstacle


def test_a_last_run_that_failed_is_followed_by_another(root: Path, dag: Dag, cairn: Cairn) -> None:  # semantics P2
    world = job(root)
    for _ in range(2):
        stop(cairn, "--drain")
        pending = world.trigger(epoch_name(dag.runs[-1])).pending.checkpoint
        world.coordinator().abort(pending, Reason.JOB_FAILURE, "the DAG run has ended")
    assert len(set(dag.runs)) == 2, "Airflow has a run's id once"


def test_what_is_refused(root: Path, cairn: Cairn) -> None:
    said = stop(cairn, "--dag", "flights", status=2)
    assert "--dag is for Airflow: give --airflow-url, or set CAIRN_AIRFLOW_URL" in said.err
    job(root).trigger("e2")
    stop(cairn)
    said = stop(cairn, "--drain", status=2)
    assert "a stop was asked for with this request id already, without a last run" in said.err


def test_a_job_that_is_being_stopped_says_so(root: Path, cairn: Cairn) -> None:  # semantics P2
    job(root).trigger("e2")
    stop(cairn)
    said = cairn("checkpoints", "flights").lines[0]
    assert said == (
        "flights is being stopped with savepoint 3 after e2; no other run begins. `cairn resume flights` gives that up"
    )
    assert cairn.json("checkpoints", "flights")["stopping"] == 3
    said = cairn("resume", "flights").text
    assert said.startswith("flights was being stopped with savepoint 3, which is cancelled: the next epoch restores ch")
    assert cairn.json("resume", "flights")["gave_up_stop"] is None
