"""Sessions that a server closes by itself: those of executions that are over, and no other (semantics V2)."""

from dataclasses import dataclass, field

import pytest
from py4j.protocol import Py4JError

from airflow_cairn.checkpoint.config import CheckpointConfig
from airflow_cairn.checkpoint.documents.attempt import Handover
from airflow_cairn.checkpoint.documents.layout import epoch_name
from airflow_cairn.checkpoint.reasons import Reason
from airflow_cairn.plugin.interventions.acts import give_up
from airflow_cairn.spark.remote.jvm_sessions import ServerSession, StaleSessions
from airflow_cairn.spark.remote.submission import session_id
from tests.support.airflow_fixtures import Said
from tests.support.airflow_stage import Job
from tests.support.shut_down import shut_down


@dataclass
class Sessions:
    """Sessions of a server."""

    open: set[str] = field(default_factory=set)
    closed: list[str] = field(default_factory=list)
    fails: bool = False

    def opened(self) -> list[ServerSession]:
        return [ServerSession(each, f"server's {each}", ("cairn", each)) for each in self.open]

    def close(self, session: ServerSession) -> None:
        self.open.discard(session.id)
        self.closed.append(session.id)
        if self.fails:
            raise Py4JError("Session is already closed.")

    def begin(self, handover: Handover) -> str:
        """Have the client of an execution open its session; gives its id."""
        session = session_id(handover.token)
        self.open.add(session)
        return session


class Driver:
    """Driver of a server: a process of its own, with a coordinator of its own."""

    def __init__(self, job: Job) -> None:
        self.coordinator = job.coordinator
        self.sessions = Sessions()
        self._stale = StaleSessions(self.coordinator, self.sessions)

    def look(self) -> None:
        self._stale.close(self.coordinator.head())


@pytest.fixture
def driver(job: Job) -> Driver:
    return Driver(job)


def test_of_a_try_that_was_replaced_the_session_is_closed_and_no_other(job: Job, driver: Driver, said: Said) -> None:
    """The next try runs elsewhere, so it does not reach this server (semantics V2)"""
    job.trigger("r1", "routes", "airports")
    dead = driver.sessions.begin(job.begin("r1", "routes"))
    sibling = driver.sessions.begin(job.begin("r1", "airports"))
    driver.sessions.open.add("somebody else's")
    driver.look()
    assert driver.sessions.closed == []
    again = driver.sessions.begin(job.begin("r1", "routes", claimant="the next try"))
    driver.look()
    driver.look()
    assert driver.sessions.closed == [dead]
    assert driver.sessions.open == {sibling, again, "somebody else's"}, "airports goes on in attempt 2 (F2)"
    assert "session of stage routes, attempt 1 of r1, is closed: attempt 2, checkpoint 2, runs the stage" in said.text


def test_an_execution_that_the_head_at_hand_does_not_name_is_left_alone(job: Job, driver: Driver) -> None:
    """The execution has just been claimed: an unknown one never counts as over."""
    before = driver.coordinator.head()
    job.trigger("r1")
    driver.sessions.begin(job.begin("r1"))
    stale = StaleSessions(driver.coordinator, driver.sessions)
    stale.close(before)
    assert driver.sessions.closed == []


def test_a_head_at_hand_that_is_outdated_closes_nothing_that_still_counts(job: Job, driver: Driver) -> None:
    job.trigger("r1", "routes", "airports")
    job.begin("r1", "routes")
    kept = driver.sessions.begin(job.begin("r1", "airports"))
    before = driver.coordinator.head()
    job.begin("r1", "routes", claimant="the next try")
    StaleSessions(driver.coordinator, driver.sessions).close(before)
    driver.look()
    assert driver.sessions.open == {kept}


def _one_of_two_failed(job: Job, driver: Driver, reason: Reason, *, acknowledged: bool) -> tuple[Handover, str, str]:
    """End an attempt by a failure of `routes`; gives the execution of `airports`, and the sessions of both."""
    job.trigger("r1", "routes", "airports")
    failed = job.begin("r1", "routes")
    sibling = job.begin("r1", "airports")
    dead, kept = driver.sessions.begin(failed), driver.sessions.begin(sibling)
    if acknowledged:
        job.acknowledge(sibling)
    job.coordinator.abort(failed.checkpoint, reason, "killed")
    return sibling, dead, kept


@pytest.mark.parametrize("acknowledged", [False, True])
@pytest.mark.parametrize("reason", [Reason.JOB_FAILURE, Reason.CHECKPOINT_EXPIRED])
def test_what_the_next_attempt_takes_over_keeps_its_session(
    job: Job, driver: Driver, reason: Reason, *, acknowledged: bool
) -> None:
    """One stage has failed, and its next try has not been reported yet (semantics F2)"""
    sibling, dead, kept = _one_of_two_failed(job, driver, reason, acknowledged=acknowledged)
    driver.look()
    assert driver.sessions.open == {dead, kept}, "a next try of either stage takes the other one over"
    again = driver.sessions.begin(job.begin("r1", "routes", claimant="the next try"))
    driver.look()
    assert driver.sessions.closed == [dead], "of the stage that runs anew"
    assert job.coordinator.standing(sibling).current
    driver.look()
    assert driver.sessions.open == {kept, again}


@pytest.mark.parametrize("acknowledged", [False, True])
def test_an_adopted_execution_keeps_its_session_at_a_first_look(
    job: Job, driver: Driver, *, acknowledged: bool
) -> None:
    _, dead, kept = _one_of_two_failed(job, driver, Reason.JOB_FAILURE, acknowledged=acknowledged)
    job.begin("r1", "routes", claimant="the next try")
    driver.look()
    assert (driver.sessions.closed, driver.sessions.open) == ([dead], {kept})


@pytest.mark.parametrize("acknowledged", [False, True])
def test_after_an_incurable_failure_only_acknowledged_sessions_stay(
    job: Job, driver: Driver, *, acknowledged: bool
) -> None:  # semantics F4
    job.trigger("r1", "routes", "airports")
    dead = driver.sessions.begin(job.begin("r1", "routes", claimant="one"))
    sibling = job.begin("r1", "airports")
    session = driver.sessions.begin(sibling)
    if acknowledged:
        job.acknowledge(sibling)
    job.coordinator.fail(epoch_name("r1"), "routes", "one", "no file of this name", curable=False)
    assert driver.coordinator.head().history[-1].for_good
    driver.look()
    assert driver.sessions.open == ({session} if acknowledged else set())
    assert dead in driver.sessions.closed


@pytest.mark.parametrize("acknowledged", [False, True])
def test_a_job_that_has_stopped_takes_its_sessions_along(job: Job, driver: Driver, *, acknowledged: bool) -> None:
    job.trigger("r1", "routes", "airports")
    handover = job.begin("r1")
    session = driver.sessions.begin(handover)
    if acknowledged:
        job.acknowledge(handover)
    shut_down(job.coordinator)
    driver.look()
    assert driver.sessions.closed == [session]


def test_so_does_an_attempt_that_a_person_has_given_up(job: Job, driver: Driver) -> None:
    job.trigger("r1")
    handover = job.begin("r1")
    session = driver.sessions.begin(handover)
    give_up(job.coordinator, handover.checkpoint, "ada")
    driver.look()
    assert driver.sessions.closed == [session]


def test_what_another_epoch_has_overtaken_is_over(job: Job, driver: Driver, said: Said) -> None:
    """No attempt starts from what was the newest checkpoint before (semantics C2)"""
    config = CheckpointConfig(max_concurrent_checkpoints=2)
    job.trigger("r1", config=config)
    session = driver.sessions.begin(job.begin("r1"))
    job.trigger("r2", config=config)
    other = job.begin("r2")
    job.acknowledge(other)
    job.coordinator.complete(other.checkpoint)
    driver.look()
    assert driver.sessions.closed == [session]
    assert "its attempt has ended (CHECKPOINT_SUBSUMED), and none that follows takes it over" in said.text


def test_a_sibling_is_left_to_the_attempt_that_will_take_it_over(job: Job, driver: Driver) -> None:  # semantics F2
    """One stage has declined, and is tried again; the other one goes on."""
    job.trigger("r1", "routes", "airports")
    declined = job.begin("r1", "routes")
    sibling = driver.sessions.begin(job.begin("r1", "airports"))
    job.decline(declined, "it could not")
    job.coordinator.progress(declined.epoch)
    assert driver.coordinator.head().pending == ()
    driver.look()
    job.begin("r1", "routes", claimant="the next try")
    driver.look()
    assert driver.sessions.open == {sibling}


def test_a_client_that_has_acknowledged_may_go_on_behind_its_block(job: Job, driver: Driver) -> None:
    job.trigger("r1")
    handover = job.begin("r1")
    session = driver.sessions.begin(handover)
    driver.look()
    job.acknowledge(handover)
    job.coordinator.complete(handover.checkpoint)
    assert driver.coordinator.head().latest_id() == 1
    driver.look()
    driver.look()
    assert driver.sessions.open == {session}


def test_one_that_was_replaced_is_closed_after_its_epoch_has_completed_too(job: Job, driver: Driver) -> None:
    """Between two looks the next try ran elsewhere, and completed the epoch."""
    job.trigger("r1")
    dead = driver.sessions.begin(job.begin("r1"))
    again = job.begin("r1", claimant="the next try")
    job.acknowledge(again)
    job.coordinator.complete(again.checkpoint)
    driver.look()
    assert driver.sessions.closed == [dead]


def test_the_sessions_of_a_job_with_large_attempts_are_known_too(job: Job, driver: Driver) -> None:
    """Large attempts have their documents in objects of their own (`attempt_documents`)."""
    stages = [f"stage-{number:03d}" for number in range(300)]
    job.trigger("r1", *stages)
    assert driver.coordinator.head().pending[0].document is None
    dead = driver.sessions.begin(job.begin("r1", "stage-250"))
    job.begin("r1", "stage-250", claimant="the next try")
    driver.look()
    assert driver.sessions.closed == [dead]


def test_looks_at_what_runs_and_at_strangers_cost_no_request(
    job: Job, driver: Driver, monkeypatch: pytest.MonkeyPatch
) -> None:
    job.trigger("r1")
    driver.sessions.begin(job.begin("r1"))
    driver.sessions.open.add("somebody else's")
    driver.look()
    head = driver.coordinator.head()
    monkeypatch.setattr(driver.coordinator.files, "get", None)
    monkeypatch.setattr(driver.coordinator.files, "read", None)
    driver._stale.close(head)
    assert driver.sessions.closed == []


def test_a_session_that_spark_fails_to_end_is_said_and_the_others_follow(job: Job, driver: Driver, said: Said) -> None:
    job.trigger("r1", "routes", "airports", config=CheckpointConfig())
    both = {driver.sessions.begin(job.begin("r1", each)) for each in ("routes", "airports")}
    shut_down(job.coordinator)
    driver.sessions.fails = True
    driver.look()
    assert set(driver.sessions.closed) == both
    assert "Spark could not end what ran in the session of stage" in said.text
