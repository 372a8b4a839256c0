"""A stage whose driver the triggerer waits for: what dies, comes twice or is done by people between submission and end.

The provider's operator and hook, the store, the domain and the trigger are real; services are stand-ins of their REST
APIs. The triggerer is an event loop here; a real one is in tests/real/airflow/test_failover_around.py.
"""

import asyncio
import json
import re
from collections.abc import Iterator
from contextlib import suppress
from datetime import timedelta
from threading import Event
from types import SimpleNamespace
from typing import Any

import pytest
from airflow.sdk.exceptions import AirflowTaskTimeout, TaskDeferralError, TaskDeferred
from airflow.sdk.execution_time.task_runner import RuntimeTaskInstance
from airflow.sdk.execution_time.xcom import XCom

from airflow_cairn.checkpoint.errors import InvalidConfigError
from airflow_cairn.launchers.launcher import DriverState, launcher_at
from airflow_cairn.operators import epoch_stage
from airflow_cairn.operators.failure.callbacks import report
from airflow_cairn.operators.stage import launched, programs
from airflow_cairn.operators.stage.outcome import StageFailedError, StageRun
from airflow_cairn.triggers import driver as driver_trigger
from airflow_cairn.triggers.driver import DriverTrigger
from airflow_cairn.triggers.polling import pause_after
from tests.support.airflow_fixtures import Said
from tests.support.airflow_stage import Job, Ti, context
from tests.support.errors import raises_code
from tests.support.plain_program import write_to
from tests.support.service_stand_ins import DONE, FAILED, RUNNING, STAND_INS, ServiceStandIn, SparkKubernetesStandIn
from tests.support.skipping_loop import SkippingLoop
from tests.unit.operators.stage.test_launched import (
    PLACED,
    RUN,
    Killed,
    a_try,
    acknowledge,
    dies,
    killed,
    kind_of,
    on_some,
    service,
)

__all__ = ["service"]

pytestmark = [pytest.mark.large, pytest.mark.usefixtures("launcher_providers")]

on_livy = pytest.mark.parametrize("service", ["livy"], indirect=True)


@pytest.fixture(autouse=True)
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    """The triggerer looks without long pauses, and has an Airflow for links."""
    monkeypatch.setattr(driver_trigger, "LOOK_S", 0.01)
    monkeypatch.setattr(XCom, "set", lambda *_args, **_more: None)


def stage(job: Job, service: ServiceStandIn, *, durable: bool = True, **arguments: Any) -> Any:
    made: Any = epoch_stage(kind_of(service), storage=job.storage, job=job.name, durable=durable)
    return made(task_id="routes", retries=3, deferrable=True, **service.arguments() | arguments)


def deferred(job: Job, service: ServiceStandIn, ti: Ti | None = None, **arguments: Any) -> TaskDeferred:
    """Run a try until it is deferred."""
    if ti is None:
        job.trigger(RUN)
    with pytest.raises(TaskDeferred) as found:
        stage(job, service, **arguments).execute(context(ti or a_try()))
    return found.value


def posted(waits: TaskDeferred) -> DriverTrigger:
    """Give the trigger as a triggerer gets it."""
    path, arguments = waits.trigger.serialize()
    assert path == f"{DriverTrigger.__module__}.{DriverTrigger.__name__}"
    return DriverTrigger(**json.loads(json.dumps(arguments)))


async def ran(trigger: DriverTrigger) -> dict[str, Any]:
    (event,) = [each async for each in trigger.run()]
    found: dict[str, Any] = event.payload
    return found


def event_of(trigger: DriverTrigger) -> dict[str, Any]:
    return asyncio.run(asyncio.wait_for(ran(trigger), 60))


def resume(job: Job, service: ServiceStandIn, waits: TaskDeferred, event: dict[str, Any], ti: Ti | None = None) -> Any:
    """Start the task anew, as Airflow does with an event."""
    task = stage(job, service)
    return getattr(task, waits.method_name)(context(ti or a_try()), event, **json.loads(json.dumps(waits.kwargs)))


def airflow_says(monkeypatch: pytest.MonkeyPatch, trigger: DriverTrigger, state: str | None, index: int = -1) -> None:
    """Let Airflow hold the trigger's task in a state."""
    ti: Any = SimpleNamespace(dag_id="flights", task_id="epoch.routes", run_id=RUN, map_index=index)
    trigger._task_instance = ti
    name = ti.task_id if index < 0 else f"{ti.task_id}_{index}"
    said = {} if state == "gone" else {RUN: {name: state}}
    monkeypatch.setattr(RuntimeTaskInstance, "get_task_states", staticmethod(lambda **_: said))


def changed(_stage: object) -> None:
    raise InvalidConfigError("the DAG file has changed since")


def test_the_triggerer_waits(job: Job, service: ServiceStandIn, monkeypatch: pytest.MonkeyPatch) -> None:
    """The task's process is gone; another triggerer may go on, and an event that comes twice changes nothing."""
    links: list[object] = []
    monkeypatch.setattr(XCom, "set", lambda _key, value, **_more: links.append(value))
    waits = deferred(job, service)
    assert (service.submitted, len(service.live), waits.timeout) == (1, 1, None)
    said = json.dumps([waits.trigger.serialize(), waits.kwargs])
    assert "example" not in said.lower()
    assert "token" not in json.dumps(waits.trigger.serialize())
    trigger = posted(waits)
    airflow_says(monkeypatch, trigger, "deferred")
    event = event_of(trigger)
    assert (event["status"], event["succeeded"]) == ("ended", True)
    assert links == ([service.ui] if service.ui else [])
    assert event_of(posted(waits)) == event
    first = resume(job, service, waits, event)
    assert (first["attempt"], first["stage"]) == (1, "routes")
    with monkeypatch.context() as patch:
        patch.setattr(launched.LaunchedStage, "_prepare", changed)
        assert resume(job, service, waits, event) == first
    assert service.submitted == 1
    assert job.coordinator.head().latest_completed() is not None


@pytest.mark.parametrize("service", list(STAND_INS), indirect=True)  # Dataproc is asked about each
def test_many_drivers_are_few_questions(job: Job, service: ServiceStandIn) -> None:
    """A driver that is missing in a list is asked about alone: it has ended, or is not known."""
    service.act = lambda _conf, _looks: RUNNING
    stages = ("routes", "clean", "totals")
    job.trigger(RUN, *stages)
    triggers = []
    for uid in stages:
        made: Any = epoch_stage(kind_of(service), storage=job.storage, job=job.name, uid=uid)
        with pytest.raises(TaskDeferred) as found:
            made(task_id=uid, deferrable=True, **service.arguments()).execute(context(a_try()))
        triggers.append(posted(found.value))
    launcher = launcher_at(triggers[0].operator, triggers[0].fields)
    ended, forgotten, lives = (each.driver for each in triggers)
    asked = len(service.asked)
    states = dict(launcher.states([ended, forgotten, lives]))
    assert [state.lives for state in states.values()] == [True] * 3  # type: ignore[union-attr]
    # Of one entry each here; Livy says before how many there are.
    pages = next((n for name, n in (("databricks", 3), ("glue", 3), ("livy", 2)) if name in service.operator), 1)
    assert len(service.asked) - asked == pages
    first, second, _ = service.drivers
    service.drivers[first].state = DONE
    del service.drivers[second]
    states = dict(launcher.states([ended, forgotten, lives]))
    wanted: list[Any] = [states[each] for each in (ended, forgotten, lives)]
    assert [(state.lives, state.succeeded) for state in wanted] == [(False, True), (False, False), (True, False)]
    if isinstance(service, SparkKubernetesStandIn):
        service.waits_for_an_image(601)
        stuck: Any = dict(launcher.states([ended, lives]))[lives]
        assert (stuck.lives, service.live) == (False, []), "the list does not tell for what an application waits"


@on_livy
def test_the_triggers_of_a_service_share_a_question(job: Job, service: ServiceStandIn) -> None:
    waits = deferred(job, service)
    service.act = lambda _conf, _looks: RUNNING
    service.crowd()  # 71
    asked = len(service.asked)

    async def both() -> list[dict[str, Any]]:
        first, second = posted(waits), posted(waits)
        second.driver = "71"

        async def end() -> None:
            while len(service.asked) < asked + 5:
                await asyncio.sleep(0.01)
            service.drivers["1"].state, service.drivers["71"].state = DONE, FAILED

        one, other, _ = await asyncio.gather(ran(first), ran(second), end())
        return [one, other]

    assert [event["word"] for event in asyncio.run(asyncio.wait_for(both(), 60))] == ["success", "dead"]
    lists = [each for each in service.asked[asked:] if "?from=" in each.path]
    assert len(lists) >= (len(service.asked) - asked) / 2
    assert len(lists) >= 3


def before_it_is_deferred(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(launched.LaunchedStage, "_defer", dies)


@on_livy
def test_a_worker_is_killed_before_it_defers(job: Job, service: ServiceStandIn) -> None:
    """semantics F5: the next try takes the driver over, and defers itself."""
    job.trigger(RUN)
    service.act = lambda _conf, _looks: RUNNING
    killed(stage(job, service), before_it_is_deferred)
    waits = deferred(job, service, a_try(2))
    service.act = lambda conf, _looks: acknowledge(job, conf)
    assert resume(job, service, waits, event_of(posted(waits)), a_try(2))["attempt"] == 1
    assert service.submitted == 1


@on_livy
def test_a_worker_is_killed_after_the_event(job: Job, service: ServiceStandIn) -> None:
    """The driver has acknowledged: the next try finds that, and submits nothing."""
    waits = deferred(job, service)
    event = event_of(posted(waits))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(StageRun, "check_acknowledged", dies)
        with pytest.raises(Killed):
            resume(job, service, waits, event)
    assert stage(job, service).execute(context(a_try(2))) is None
    assert service.submitted == 1
    assert [entry.id for entry in job.coordinator.head().history] == [1]


@pytest.mark.parametrize("written", [True, False])
@on_livy
def test_a_program_without_a_block(job: Job, service: ServiceStandIn, written: bool) -> None:
    """decision 0058: the task that the event wakes acknowledges; one that dies before leaves it to the next try."""
    service.act = lambda _conf, _looks: RUNNING
    waits = deferred(job, service, **PLACED["livy"])
    (url,) = re.findall(r"file://\S*/exchange\.clean", service.drivers["1"].body["args"][0])
    if written:
        write_to(url, [{"key": "a", "n": 1}])
    service.drivers["1"].state = DONE
    event = event_of(posted(waits))
    if not written:
        with pytest.raises(StageFailedError, match="was not written, although the program ended"):
            resume(job, service, waits, event)
        return
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(programs, "acknowledge", lambda *_args, **_more: dies())
        with pytest.raises(Killed):
            resume(job, service, waits, event)
    assert stage(job, service, **PLACED["livy"]).execute(context(a_try(2)))["attempt"] == 1
    assert service.submitted == 1


@on_livy
def test_a_triggerer_dies_and_another_goes_on(job: Job, service: ServiceStandIn) -> None:
    waits = deferred(job, service)
    service.act = lambda _conf, _looks: RUNNING

    async def cut_off() -> None:
        async for _ in posted(waits).run():
            raise AssertionError

    with suppress(TimeoutError):
        asyncio.run(asyncio.wait_for(cut_off(), 0.1))
    service.act = lambda conf, _looks: acknowledge(job, conf)
    assert resume(job, service, waits, event_of(posted(waits)))["attempt"] == 1
    assert service.killed == []


@on_some(1)
def test_a_task_that_is_cleared_while_deferred_has_a_driver_of_its_own(
    job: Job, service: ServiceStandIn, monkeypatch: pytest.MonkeyPatch
) -> None:
    """semantics F3, F5: the old driver lives and is the task's own, and yet the new try ends it."""
    waits = deferred(job, service)
    trigger = posted(waits)
    airflow_says(monkeypatch, trigger, None)
    asyncio.run(trigger.on_kill())
    assert len(service.live) == 1, "the next try does that, when it has an attempt of its own"
    cleared = Ti(run_id=RUN, try_number=2, max_tries=4)
    waits = deferred(job, service, cleared)
    assert service.killed == ["1"]
    assert service.submitted == 2
    assert resume(job, service, waits, event_of(posted(waits)), cleared)["attempt"] == 2
    (first, second) = job.coordinator.head().history
    assert "its task was cleared while its driver ran" in first.detail + second.detail


@pytest.mark.parametrize(
    ("state", "ends"),
    [
        ("failed", True),
        ("success", True),
        ("skipped", True),
        ("gone", True),
        ("deferred", False),
        ("scheduled", False),
        ("up_for_retry", False),
        (None, False),
    ],
)
@pytest.mark.parametrize("index", [-1, 1])
@on_livy
def test_who_ends_the_driver(
    job: Job, service: ServiceStandIn, monkeypatch: pytest.MonkeyPatch, state: str | None, ends: bool, index: int
) -> None:
    """Airflow calls `on_kill` for people's acts, and also where a trigger has moved or its task goes on."""
    trigger = posted(deferred(job, service))
    service.act = lambda _conf, _looks: RUNNING
    airflow_says(monkeypatch, trigger, state, index)
    asyncio.run(trigger.on_kill())
    assert (service.killed == ["1"]) is ends


@on_livy
def test_a_driver_that_has_ended_keeps_its_record(
    job: Job, service: ServiceStandIn, monkeypatch: pytest.MonkeyPatch, said: Said
) -> None:
    """To end a batch of Livy is to delete it, with its log."""
    trigger = posted(deferred(job, service))
    service.drivers["1"].state = DONE
    airflow_says(monkeypatch, trigger, "failed")
    asyncio.run(trigger.on_kill())
    assert list(service.drivers) == ["1"]
    service.down = True
    asyncio.run(trigger.on_kill())
    assert "Driver 1 could not be ended" in said.text


@on_livy
def test_a_driver_that_no_retry_waits_for_is_ended_too(job: Job, service: ServiceStandIn) -> None:
    """`durable=False` ends it, after a try that was lost or cleared."""
    service.act = lambda _conf, _looks: RUNNING
    deferred(job, service, durable=False)
    waits = deferred(job, service, a_try(2), durable=False)
    assert ((waits.kwargs or {})["attempt"], service.killed) == (2, ["1"])


@on_livy
def test_a_driver_fails(job: Job, service: ServiceStandIn) -> None:
    waits = deferred(job, service)
    service.act = lambda _conf, _looks: FAILED
    with pytest.raises(StageFailedError, match=r"Livy batch 1 ended \(dead\): .*the day is broken"):
        resume(job, service, waits, event_of(posted(waits)))


@pytest.mark.parametrize("acknowledged", [True, False])
@on_livy
def test_the_service_has_forgotten_the_driver(job: Job, service: ServiceStandIn, acknowledged: bool) -> None:
    """The triggerer was down for an hour. The store says how the driver ended."""
    waits = deferred(job, service)
    if acknowledged:
        acknowledge(job, service.conf_of("1"))
    service.drivers.clear()
    event = event_of(posted(waits))
    assert event == {"status": "ended", "word": "unknown to Livy", "succeeded": False}
    if acknowledged:
        assert resume(job, service, waits, event)["attempt"] == 1
    else:
        with pytest.raises(StageFailedError, match="unknown to Livy"):
            resume(job, service, waits, event)


@on_livy
def test_later_epochs_have_completed_since(job: Job, service: ServiceStandIn) -> None:
    """The records of this one are cleaned away."""
    waits = deferred(job, service)
    event = event_of(posted(waits))
    job.coordinator.complete(1)
    for year in range(2002, 2008):
        job.complete(RUN.replace("2001", str(year)))
    job.coordinator.clean()
    assert resume(job, service, waits, event)["checkpoint"] == 1


@on_livy
def test_the_service_does_not_answer(
    job: Job, service: ServiceStandIn, monkeypatch: pytest.MonkeyPatch, said: Said
) -> None:
    """Unknown is not gone: the task looks itself, and defers again once it has an answer."""
    monkeypatch.setattr(driver_trigger, "UNANSWERED_S", 0.1)
    monkeypatch.setattr(launched, "UNANSWERED", 2)
    waits = deferred(job, service, execution_timeout=timedelta(hours=1))
    service.act = lambda _conf, _looks: RUNNING
    service.down = True
    event = event_of(posted(waits))
    assert event == {"status": "unanswered"}
    assert "no answer about its state" in said.text
    with raises_code("driver_unknown"):
        resume(job, service, waits, event)
    service.down = False
    with pytest.raises(TaskDeferred) as again:
        resume(job, service, waits, event)
    assert again.value.kwargs == waits.kwargs
    service.act = lambda conf, _looks: acknowledge(job, conf)
    assert resume(job, service, waits, event_of(posted(again.value)))["attempt"] == 1


def test_one_look_without_an_answer_ends_no_wait(monkeypatch: pytest.MonkeyPatch) -> None:
    """The driver has been in its state for longer than a service may be silent."""
    running, done = DriverState("running", lives=True), DriverState("success", lives=False, succeeded=True)
    answers: list[DriverState | Exception] = [running, running, running, ConnectionError("reset"), done]

    async def look(*_: object) -> DriverState | Exception:
        loop.ahead_s += driver_trigger.UNANSWERED_S / 2
        return answers.pop(0)

    monkeypatch.setattr(driver_trigger._Service, "look", look)
    with asyncio.Runner(loop_factory=SkippingLoop) as runner:
        loop: Any = runner.get_loop()
        event = runner.run(ran(DriverTrigger("livy", {}, "1")))
    assert event["status"] == "ended"


@on_livy
def test_a_driver_that_takes_too_long_is_ended(job: Job, service: ServiceStandIn) -> None:
    """`execution_timeout` runs on while the task is deferred; Airflow's own timeout of a trigger ends no driver."""
    waits = deferred(job, service, execution_timeout=timedelta(milliseconds=1))
    service.act = lambda _conf, _looks: RUNNING
    event = event_of(posted(waits))
    assert event == {"status": "timeout"}
    with pytest.raises(AirflowTaskTimeout, match="Livy batch 1 took longer than execution_timeout"):
        resume(job, service, waits, event)
    assert service.killed == ["1"]


@pytest.mark.parametrize("sent", [False, True])
@on_livy
def test_a_driver_has_ended_before_its_deadline(job: Job, service: ServiceStandIn, sent: bool) -> None:
    """No triggerer ran around the deadline; or the driver ends between the event and the task."""
    service.act = lambda _conf, _looks: RUNNING
    waits = deferred(job, service, execution_timeout=timedelta(milliseconds=1))
    event = event_of(posted(waits)) if sent else None
    acknowledge(job, service.conf_of("1"))
    service.drivers["1"].state = DONE
    assert resume(job, service, waits, event or event_of(posted(waits)))["attempt"] == 1
    assert service.killed == []


class SlowLauncher:
    """A service without a list, which takes its time, or for ever."""

    asked = 0

    def __init__(self, seconds: float | None) -> None:
        self.seconds = seconds
        self.free = Event()

    def states(self, drivers: list[str]) -> Iterator[tuple[str, DriverState]]:
        for driver in drivers:
            self.asked += 1
            self.free.wait(self.seconds)
            yield driver, DriverState("RUNNING", lives=True)


def test_a_service_that_never_answers_keeps_one_thread(monkeypatch: pytest.MonkeyPatch) -> None:
    """The threads of the event loop are few, and the triggerer's other triggers need them."""
    monkeypatch.setattr(driver_trigger, "ANSWER_S", 0.01)
    launcher: Any = SlowLauncher(None)

    async def looks() -> None:
        service = driver_trigger._Service()
        watch = service.watch("1")
        try:
            for _ in range(40):
                assert isinstance(await service.look(watch, 0, lambda: launcher), TimeoutError)
            await asyncio.wait_for(asyncio.to_thread(int), 1)
        finally:
            launcher.free.set()

    asyncio.run(looks())
    assert launcher.asked == 1


def test_drivers_that_are_asked_about_alone_get_their_answers_as_they_come(monkeypatch: pytest.MonkeyPatch) -> None:
    """Three times as many as are answered in time: none of them counts as unanswered."""
    monkeypatch.setattr(driver_trigger, "ANSWER_S", 0.1)
    launcher: Any = SlowLauncher(0.01)

    async def looks() -> None:
        service = driver_trigger._Service()

        async def answered(driver: str) -> None:
            watch = service.watch(driver)
            while (answer := await service.look(watch, 0.01, lambda: launcher)) is None:
                pass
            assert isinstance(answer, DriverState)

        await asyncio.gather(*(answered(str(each)) for each in range(30)))

    asyncio.run(asyncio.wait_for(looks(), 30))


@on_livy
def test_drivers_that_cannot_be_listed_are_asked_about_alone(
    job: Job, service: ServiceStandIn, monkeypatch: pytest.MonkeyPatch, said: Said
) -> None:
    """The right to list may be missing, or an entry of another's driver be strange."""
    trigger = posted(deferred(job, service))
    service.act = lambda _conf, _looks: RUNNING
    launcher = launcher_at(trigger.operator, trigger.fields)
    monkeypatch.setattr(launcher, "_pages", lambda: [[{"id": 1}]])
    states = dict(launcher.states(["1", "2"]))
    assert [state.lives for state in states.values()] == [True, False]  # type: ignore[union-attr]
    assert "Drivers cannot be listed, so each Livy batch is asked about alone" in said.text


@on_livy
def test_a_trigger_that_fails_decides_nothing(job: Job, service: ServiceStandIn) -> None:
    """semantics F2: the trigger has not seen how the driver ended, and the next try takes that over."""
    ti = a_try()
    job.trigger(RUN)
    service.act = lambda _conf, _looks: RUNNING
    deferred(job, service, ti)
    report(context(ti, exception=TaskDeferralError("the triggerer has no such module")), "routes", job.coordinator)
    waits = deferred(job, service, a_try(2))
    assert (waits.kwargs or {})["attempt"] == 1
    assert service.submitted == 1


@pytest.mark.parametrize(
    "arguments",
    [
        {"extra_headers": {"X-Key": "secret"}},
        {"livy_conn_auth_type": object},
        {"extra_options": {"proxies": {"https": "http://me:secret@proxy"}}},
    ],
)
@on_livy
def test_what_may_be_a_secret_is_not_handed_to_the_triggerer(
    job: Job, service: ServiceStandIn, arguments: dict[str, Any]
) -> None:
    with pytest.raises(InvalidConfigError, match="set deferrable=False"):
        stage(job, service, **arguments)


def test_of_a_template_the_triggerer_gets_where_the_cluster_is(job: Job) -> None:
    stand_in = STAND_INS["spark_kubernetes"]()
    where = {"in_cluster": True, "env_vars": [{"name": "KEY", "value": "secret"}]}
    spark = stand_in.arguments()["template_spec"]
    given = {**stand_in.arguments(), "template_spec": {"kubernetes": where, "spark": spark}}
    made: Any = epoch_stage(kind_of(stand_in), storage=job.storage, job=job.name)
    fields = made(task_id="routes", deferrable=True, **given).made_launcher().fields()
    assert fields["template_spec"] == {"kubernetes": {"in_cluster": True}, "spark": {}}


def test_a_wait_looks_ever_less_often(monkeypatch: pytest.MonkeyPatch) -> None:
    """The looks go from 5 s to 60 s apart; a change of the driver's state begins anew."""
    monkeypatch.undo()
    pauses = [pause_after(quiet, driver_trigger.LOOK_S, driver_trigger.LONGEST_PAUSE_S) for quiet in (0, 100, 1000)]
    assert pauses == [5.0, 10.0, 60.0]
