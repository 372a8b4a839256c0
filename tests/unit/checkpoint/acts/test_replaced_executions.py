"""Which executions a stage's next one has to see the end of (semantics V2)."""

from airflow_cairn.checkpoint.acts.carry_over import MAX_REPLACED, replaced_executions
from airflow_cairn.checkpoint.reasons import Reason
from tests.support.airflow_stage import Job


def test_the_tries_before_are_named_newest_first(job: Job) -> None:  # semantics V2
    job.trigger("r1")
    tries = [job.begin("r1", claimant=f"try {each}").token for each in range(3)]
    head = job.coordinator.head()
    assert replaced_executions(head, "routes", tries[2]) == (tries[1], tries[0])
    job.begin("r1", claimant="try 4")
    tries += [job.begin("r1", claimant=f"later {each}").token for each in range(MAX_REPLACED + 2)]
    found = replaced_executions(job.coordinator.head(), "routes", tries[-1])
    assert len(found) == MAX_REPLACED
    assert found[0] == tries[-2]


def test_an_epoch_that_completed_has_left_nothing_running(job: Job) -> None:
    job.complete("r1")
    job.trigger("r2")
    now = job.begin("r2").token
    assert replaced_executions(job.coordinator.head(), "routes", now) == ()


def test_an_execution_that_goes_on_in_a_later_attempt_is_not_replaced(job: Job) -> None:  # semantics F2
    job.trigger("r1", "routes", "airports")
    routes = job.begin("r1", "routes").token
    job.begin("r1", "airports", claimant="one")
    job.begin("r1", "airports", claimant="two")
    head = job.coordinator.head()
    assert head.pending[0].attempt == 2
    assert replaced_executions(head, "routes", routes) == ()
    assert len(replaced_executions(head, "airports", "the newest")) == 1


def test_what_another_epoch_has_left_running_is_named_too(job: Job) -> None:  # semantics V2
    job.trigger("r1")
    dead = job.begin("r1")
    job.coordinator.abort(dead.checkpoint, Reason.JOB_FAILURE, "given up")
    job.trigger("r2")
    assert replaced_executions(job.coordinator.head(), "routes", job.begin("r2").token) == (dead.token,)
