"""The way to Airflow's own API: who we are, what is sent, once or again, and what nobody may read afterwards."""

import asyncio
import datetime
import ipaddress
import json
import ssl
import traceback
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest
from airflow.api_fastapi.core_api.datamodels.task_instances import ClearTaskInstancesBody
from airflow.sdk import Connection
from airflow.sdk.exceptions import AirflowNotFoundException, ErrorType
from airflow.sdk.execution_time import task_runner
from airflow.sdk.execution_time.comms import ErrorResponse, GetConnection
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID
from fastapi import FastAPI
from hypothesis import given
from hypothesis import strategies as st

from airflow_cairn.checkpoint.errors import AirflowApiError, AirflowApiRefusedError, InvalidConfigError
from airflow_cairn.hooks.airflow_api import AirflowApiHook, TaskFacts
from airflow_cairn.hooks.airflow_api_access import access_of
from airflow_cairn.hooks.task_refs import TaskRef, clear_body, failed_body
from airflow_cairn.plugin.page.airflow_server import OwnAirflowApi
from tests.support.airflow_fixtures import DagFile, Define
from tests.support.api_stand_in import Answer, ApiStandIn, Asked

A = TaskRef("epoch.a")
FOUND = {"id": "0001", "state": "success", "more": 1}


class Scripted:
    """Takes tokens t1, t2, … and gives what was put in line; the last answer stays."""

    def __init__(self, *answers: Answer) -> None:
        self.answers = list(answers)
        self.tokens = 0

    def __call__(self, asked: Asked) -> Answer:
        if asked.path == "/auth/token":
            self.tokens += 1
            return 201, {"access_token": f"t{self.tokens}"}
        return self.answers.pop(0) if len(self.answers) > 1 else self.answers[0]


@pytest.fixture
def waits() -> list[float]:
    return []


@pytest.fixture
def hook_to(connections: Define, waits: list[float]) -> Callable[..., AirflowApiHook]:
    """Make the hook for a stand-in."""

    def make(api: ApiStandIn, **more: Any) -> AirflowApiHook:
        who = {"login": "cairn", "password": "canary-12345"} if "password" not in more else {}
        connections("cairn_airflow_api", json.dumps({"conn_type": "generic", "host": api.url, **who, **more}))
        return AirflowApiHook(sleep=waits.append)

    return make


HookTo = Callable[..., AirflowApiHook]


def test_it_logs_in_once_and_looks(hook_to: HookTo) -> None:
    with ApiStandIn(Scripted((200, FOUND))) as api, hook_to(api) as hook:
        for _ in range(2):
            assert hook.task_facts("flights", "manual__2026-01-01T00:00:00+00:00", A) == TaskFacts("0001", "success")
        hook.task_facts("d/1", "r", TaskRef("b", 2))
    path = "/api/v2/dags/flights/dagRuns/manual__2026-01-01T00%3A00%3A00%2B00%3A00/taskInstances/epoch.a"
    assert [(each.method, each.path, each.token) for each in api.asked] == [
        ("POST", "/auth/token", None),
        ("GET", path, "t1"),
        ("GET", path, "t1"),
        ("GET", "/api/v2/dags/d%2F1/dagRuns/r/taskInstances/b/2", "t1"),
    ]
    assert api.asked[0].body == {"username": "cairn", "password": "canary-12345"}


def look(hook: AirflowApiHook) -> TaskFacts | None:
    return hook.task_facts("flights", "r", A)


def clear(hook: AirflowApiHook) -> None:
    hook.clear("flights", "r", [A], "why")


def test_a_task_that_is_not_there(hook_to: HookTo) -> None:
    with ApiStandIn(Scripted((404, {"detail": "no"}))) as api, hook_to(api) as hook:
        assert look(hook) is None


@pytest.mark.parametrize("expired", [(401, {"detail": "Token Expired"}), (403, {"detail": "Invalid JWT token"})])
def test_a_token_that_has_run_out_is_renewed_once(hook_to: HookTo, expired: Answer) -> None:
    """Airflow answers so to a token that is too old, and to one signed with a key that it no longer has."""
    with ApiStandIn(Scripted((200, FOUND), expired, (200, FOUND), expired)) as api, hook_to(api) as hook:
        look(hook)
        look(hook)
        assert [each.token for each in api.asked] == [None, "t1", "t1", None, "t2"]
        with pytest.raises(AirflowApiRefusedError, match="does not take the token"):
            look(hook)
    assert [each.token for each in api.asked[5:]] == ["t2", None, "t3"]


READY: dict[str, Any] = {"password": "ready-made-7431"}
SENT = ("GET", "ready-made-7431")
CLEARED = ("POST", "ready-made-7431")


@pytest.mark.parametrize(
    ("call", "answer", "where", "error", "says", "asked"),
    [
        # A new token is not renewed.
        (look, (401, {}), {}, AirflowApiRefusedError, None, [("POST", None), ("GET", "t1")]),
        *(
            (look, (401, {}), where, AirflowApiRefusedError, "give the connection a valid one", [SENT])
            for where in (READY, {"password": "x", "login": "me", "extra": {"token": "ready-made-7431"}})
        ),
        (
            look,
            (503, {"detail": "later"}),
            READY,
            AirflowApiError,
            "an unexpected answer.*status=`503` answer=`later`",
            [SENT] * 4,  # trying comes to an end
        ),
        # A clear is never sent twice: it may have landed; then a second one would stop what has just begun.
        (clear, None, READY, AirflowApiError, None, [CLEARED]),
        (clear, (503, {}), READY, AirflowApiError, None, [CLEARED]),
        (
            clear,
            (403, {"detail": "Forbidden"}),
            READY,
            AirflowApiRefusedError,
            "right to read and edit task instances.*answer=`Forbidden`",
            [CLEARED],
        ),
        *(
            (look, answer, READY, AirflowApiError, "an unexpected answer", [SENT])
            for answer in ((200, [1]), (200, {"id": 7}), (200, "text"), (422, {"detail": "bad"}), (302, {}))
        ),
        (look, (200, FOUND), {"extra": {"verify": "/no/such.pem"}}, InvalidConfigError, "cannot be read", []),
    ],
)
def test_what_fails_and_how_often_it_was_sent(
    hook_to: HookTo,
    call: Any,
    answer: Answer,
    where: dict[str, Any],
    error: type[Exception],
    says: str | None,
    asked: Any,
) -> None:
    with ApiStandIn(Scripted(answer)) as api, hook_to(api, **where) as hook, pytest.raises(error, match=says):
        call(hook)
    assert [(each.method, each.token) for each in api.asked] == asked


def test_the_clear_that_is_sent(hook_to: HookTo) -> None:
    with ApiStandIn(Scripted((200, {"task_instances": []}))) as api, hook_to(api) as hook:
        hook.clear("flights", "r", [A, TaskRef("epoch.b", 1)], "why")
    sent = api.asked[-1]
    assert (sent.method, sent.path) == ("POST", "/api/v2/dags/flights/clearTaskInstances")
    assert (sent.body["dag_run_id"], sent.body["task_ids"]) == ("r", ["epoch.a", ["epoch.b", 1]])


@pytest.mark.parametrize("answer", [None, (503, {}), (429, {})])
def test_looking_is_tried_again(hook_to: HookTo, waits: list[float], answer: Answer) -> None:
    with ApiStandIn(Scripted(answer, answer, (200, FOUND))) as api, hook_to(api) as hook:
        assert look(hook) is not None
    assert waits == [0.5, 2.0]


def test_nobody_listens(hook_to: HookTo, waits: list[float]) -> None:
    """No connection was made, so nothing was sent: even a clear is tried again."""
    with ApiStandIn(Scripted((200, {}))) as api:
        hook = hook_to(api, **READY)
    with hook, pytest.raises(AirflowApiError, match=r"cannot be reached \(ConnectError") as caught:
        clear(hook)
    assert len(waits) == 3
    assert caught.value.fields["url"] == api.url


@pytest.mark.parametrize(
    "answer",
    [
        (401, {"detail": "canary-12345 is wrong"}),
        (422, {"detail": [{"input": {"password": "canary-12345"}}]}),
        (201, {"access_token": "canary-\n12345"}),
        (201, {"other": "canary-12345"}),
        (500, {"detail": "canary-12345"}),
    ],
)
def test_no_secret_is_told(hook_to: HookTo, answer: Answer) -> None:
    """Neither by the text of the error, nor by its trace, nor by a repr."""
    with ApiStandIn(lambda _: answer) as api, hook_to(api) as hook:
        with pytest.raises(AirflowApiError) as caught:
            look(hook)
        told = "".join(traceback.format_exception(caught.value)) + repr(caught.value.fields) + repr(hook)
        assert "canary" not in told + repr(hook.access) + repr(vars(hook))


def test_an_undefined_connection() -> None:
    with AirflowApiHook("nowhere") as hook, pytest.raises(AirflowNotFoundException):
        look(hook)


def test_a_connection_that_the_task_may_not_read(monkeypatch: pytest.MonkeyPatch) -> None:
    """A supervisor denies it; nothing else is asked for it then."""

    class Supervisor:
        def send(self, msg: Any) -> ErrorResponse:
            return ErrorResponse(error=ErrorType.PERMISSION_DENIED)

    monkeypatch.setattr(task_runner, "SUPERVISOR_COMMS", Supervisor(), raising=False)
    with AirflowApiHook("not_ours") as hook, pytest.raises(AirflowApiRefusedError, match="may not read the connection"):
        look(hook)


@pytest.mark.parametrize(
    ("facts", "url"),
    [
        (
            {"conn_type": "https", "host": "air.example", "port": 8443, "schema": "team"},
            "https://air.example:8443/team",
        ),
        ({"conn_type": "http", "host": "localhost", "port": 8080}, "http://localhost:8080"),
        ({"conn_type": "http", "host": "air.example", "schema": "https"}, "https://air.example"),
        ({"conn_type": "generic", "host": "air.example"}, "https://air.example"),
        ({"conn_type": "generic", "host": "http://air.example:81/x/"}, "http://air.example:81/x"),
        ({"conn_type": "http", "host": "::1", "port": 8080}, "http://[::1]:8080"),
    ],
)
def test_addresses(facts: dict[str, Any], url: str) -> None:
    assert access_of(Connection(conn_id="c", login="me", password="it", **facts)).base_url == url


def test_a_url_as_the_environment_has_it() -> None:
    connection = Connection.from_uri("https://me:it@air.example:8443/team", conn_id="c")
    access = access_of(connection)
    assert (access.base_url, access.login, access.password) == ("https://air.example:8443/team", "me", "it")


@pytest.mark.parametrize(
    ("facts", "says"),
    [
        ({"host": None}, "has no host"),
        ({"host": "ftp://air.example"}, "not a plain http or https URL"),
        ({"host": "https://me:canary-12345@air.example"}, "not a plain http or https URL"),
        ({"host": "https://air.example?x=1"}, "not a plain http or https URL"),
        ({"host": "https://air.example:notaport"}, "not a plain http or https URL"),
        ({"password": None}, "names no user"),
        ({"login": None, "password": None}, "names no user"),
        ({"extra": '{"verify": false}'}, "any server"),
        ({"extra": '{"verify": ""}'}, "any server"),
        ({"login": None, "password": "canary-12345\r\nHost: x"}, "not a token"),
    ],
)
def test_connections_that_are_refused(facts: dict[str, Any], says: str) -> None:
    whole = {"conn_type": "https", "host": "air.example", "login": "me", "password": "canary-12345", **facts}
    with pytest.raises(InvalidConfigError, match=says) as caught:
        access_of(Connection(conn_id="c", **whole))
    assert "canary" not in str(caught.value)


def test_extras_that_are_not_used_are_told(caplog: pytest.LogCaptureFixture) -> None:
    access_of(Connection(conn_id="c", conn_type="https", host="air.example", password="t", extra='{"timeout": 3}'))
    assert "Connection c: these extras are not used by Cairn: timeout" in caplog.text


def test_tls_is_verified(hook_to: HookTo, tmp_path: Path) -> None:
    """A certificate that nobody knows is refused; the CA bundle of the connection makes it known."""
    bundle = _certificate(tmp_path)
    tls = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    tls.load_cert_chain(bundle)
    with ApiStandIn(Scripted((200, FOUND)), tls=tls) as api:
        with hook_to(api) as hook, pytest.raises(AirflowApiError, match="CERTIFICATE_VERIFY_FAILED"):
            look(hook)
        assert api.asked == []
        with hook_to(api, extra={"verify": str(bundle)}) as hook:
            assert look(hook) == TaskFacts("0001", "success")


def _certificate(folder: Path) -> Path:
    """Make a certificate for 127.0.0.1, with its key, in one file."""
    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "127.0.0.1")])
    begin = datetime.datetime(2020, 1, 1, tzinfo=datetime.UTC)
    made = (
        x509.CertificateBuilder()
        .subject_name(name)
        .issuer_name(name)
        .public_key(key.public_key())
        .serial_number(1)
        .not_valid_before(begin)
        .not_valid_after(begin + datetime.timedelta(days=36500))
        .add_extension(x509.SubjectAlternativeName([x509.IPAddress(ipaddress.ip_address("127.0.0.1"))]), critical=False)
        .add_extension(x509.BasicConstraints(ca=True, path_length=None), critical=True)
        .sign(key, hashes.SHA256())
    )
    path = folder / "api.pem"
    private = key.private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    )
    path.write_bytes(private + made.public_bytes(serialization.Encoding.PEM))
    return path


@pytest.mark.parametrize("status", [301, 302, 303, 307, 308])
@pytest.mark.parametrize("where", ["the login", "a request with a token"])
def test_no_redirect_is_followed(hook_to: Callable[..., AirflowApiHook], status: int, where: str) -> None:
    """A 307 or 308 sends the body on, and the login's holds the password."""

    def move(asked: Asked) -> Answer:
        if asked.path == "/auth/token" and where != "the login":
            return 201, {"access_token": "t1"}
        return status, {}

    with (
        ApiStandIn(lambda _: (200, {"access_token": "theirs", **FOUND})) as elsewhere,
        ApiStandIn(move, location=elsewhere.url) as api,
        hook_to(api) as hook,
    ):
        with pytest.raises(AirflowApiError, match="follows no redirect") as told:
            hook.task_facts("flights", "run", A)
        assert elsewhere.asked == [], "nobody else heard of the login or of the token"
        assert "canary" not in str(told.value)


GROUP = """
with DAG("flights", schedule=None), CheckpointedTaskGroup("epoch", reads_window=False,
    storage="file:///tmp/x"{options}) as group:
    a = SparkEpochOperator(task_id="a", application="a.py")
    b = SparkEpochOperator(task_id="b", application="b.py")
    a >> {edge} b
group.serialize_for_task_group()
"""


class Supervisor:
    """Answers a process as the supervisor of the dag processor does: no connection is stored in Airflow."""

    def __init__(self) -> None:
        self.asked: list[str] = []

    def send(self, msg: Any) -> ErrorResponse:
        assert isinstance(msg, GetConnection)
        self.asked.append(msg.conn_id)
        return ErrorResponse(error=ErrorType.CONNECTION_NOT_FOUND)


@pytest.fixture
def dag_processor(monkeypatch: pytest.MonkeyPatch) -> Supervisor:
    supervisor = Supervisor()
    monkeypatch.setattr(task_runner, "SUPERVISOR_COMMS", supervisor, raising=False)
    return supervisor


def group(edge: str = "Pipelined() >>", options: str = "") -> str:
    return GROUP.format(edge=edge, options=options)


@pytest.mark.parametrize(
    ("edge", "options", "why"),
    [
        ("Pipelined() >>", "", "the stages a, b form one region"),
        (
            "",
            ', tables={"t": IcebergTable("lake.sales.t", branch=True)}',
            "a stage whose branch of a table others have",
        ),
    ],
    ids=["region", "branch"],
)
def test_a_connection_that_is_not_there(
    dag_file: DagFile, dag_processor: Supervisor, edge: str, options: str, why: str
) -> None:
    error = dag_file.error(f"from airflow_cairn import IcebergTable\n{group(edge, options)}")
    assert why in error
    assert "Define it where the dag processor sees it too" in error
    assert "airflow_api_conn_id=None to clear manually" in error
    assert "group=`epoch` airflow_api_conn_id=`cairn_airflow_api`" in error
    assert dag_processor.asked == ["cairn_airflow_api"]


def test_a_connection_that_cannot_be_used(dag_file: DagFile, dag_processor: Supervisor, connections: Define) -> None:
    connections("of_team_a", '{"conn_type": "https", "host": "airflow.example"}')
    assert "the connection names no user" in dag_file.error(group(options=', airflow_api_conn_id="of_team_a"'))
    connections("cairn_airflow_api", "https://me:it@airflow.example")
    dag_file.dag(group())


@pytest.mark.parametrize(
    ("edge", "options"), [("", ""), ("Pipelined() >>", ", airflow_api_conn_id=None")], ids=["blocking", "by hand"]
)
def test_who_does_not_need_it_is_not_looked_up(
    dag_file: DagFile, dag_processor: Supervisor, edge: str, options: str
) -> None:
    dag_file.dag(group(edge, options))
    assert dag_processor.asked == []


def test_a_task_does_not_look(dag_file: DagFile, dag_processor: Supervisor, monkeypatch: pytest.MonkeyPatch) -> None:
    """A task's own parse would pay a request for what is known already."""
    monkeypatch.setenv("_AIRFLOW_PARSING_CONTEXT_DAG_ID", "flights")
    monkeypatch.setenv("_AIRFLOW_PARSING_CONTEXT_TASK_ID", "epoch.a")
    dag_file.dag(group())
    assert dag_processor.asked == []


def test_who_parses_without_an_airflow_does_not_look(dag_file: DagFile) -> None:
    """A test, or `cairn regions`."""
    dag_file.dag(group())


@pytest.fixture
def api() -> Iterator[OwnAirflowApi]:
    loop = asyncio.new_event_loop()
    yield OwnAirflowApi(FastAPI(), "", "token", loop)
    loop.close()


def test_no_answer_in_time_is_no_matter_of_a_connection(api: OwnAirflowApi) -> None:
    request = httpx.Request("GET", "http://airflow/api/v2/dags/flights")
    found = api._unreachable(httpx.ReadTimeout("too slow", request=request))
    assert "has not answered its own question (ReadTimeout: too slow)" in found.message
    assert "address" not in found.message


@pytest.mark.parametrize(
    ("answer", "said"),
    [
        (httpx.Response(200, json=[]), "Airflow's answer is not what was expected"),
        (httpx.Response(422, json={"detail": "no date"}), "Airflow answers 422: no date"),
    ],
)
def test_an_answer_that_is_none_is_told_from_a_refusal(api: OwnAirflowApi, answer: httpx.Response, said: str) -> None:
    answer.request = httpx.Request("GET", "http://airflow/api/v2/dags/flights")
    with pytest.raises(AirflowApiError, match=said):
        api._json(answer)


TASKS = st.builds(TaskRef, st.text(min_size=1), st.integers(-1, 100))


@given(st.text(min_size=1), st.lists(TASKS, min_size=1), st.text(max_size=1000))
def test_nothing_but_these_tasks_of_this_run(run: str, tasks: list[TaskRef], note: str) -> None:
    """Airflow itself reads the body as it is meant; each of its fields that widens is there and shut."""
    body = ClearTaskInstancesBody.model_validate(clear_body(run, tasks, note))
    assert body.dag_run_id == run
    assert body.task_ids is not None
    read = {TaskRef(each) if isinstance(each, str) else TaskRef(*each) for each in body.task_ids}
    assert read == set(tasks)
    widening = ("include_upstream", "include_downstream", "include_future", "include_past", "run_on_latest_version")
    narrowing = ("dry_run", "only_failed", "only_running", "prevent_running_task")
    assert {name: getattr(body, name) for name in (*widening, *narrowing)} == dict.fromkeys(
        (*widening, *narrowing), False
    )
    assert (body.start_date, body.end_date, body.reset_dag_runs) == (None, None, True)
    assert body.note == note


@given(st.text(min_size=1), st.lists(TASKS, min_size=1), st.booleans())
def test_what_has_failed_is_cleared_with_what_is_behind_it(run: str, tasks: list[TaskRef], dry_run: bool) -> None:
    """Both bodies are the same but for what a person means by them."""
    body = failed_body(run, tasks, "why", dry_run=dry_run)
    ClearTaskInstancesBody.model_validate(body)
    meant = {"dry_run": dry_run, "only_failed": True, "include_downstream": True}
    assert body == {**clear_body(run, tasks, "why"), **meant}


def test_every_field_that_airflow_knows_is_sent() -> None:
    """A field that is left out takes Airflow's default, which a later version may widen."""
    known = set(ClearTaskInstancesBody.model_fields) - {"start_date", "end_date"}
    assert set(clear_body("r", [TaskRef("a")], "")) == known
    body = ClearTaskInstancesBody.model_validate(clear_body("r", [TaskRef("a")], "why " * 500))
    assert body.note == "why " * 250, "cut to what Airflow takes"


@pytest.mark.parametrize(
    ("run", "tasks", "says"),
    [
        ("", [TaskRef("a")], "every run of the DAG"),
        (None, [TaskRef("a")], "every run of the DAG"),
        ("r", [], "the whole run"),
        ("r", [TaskRef("")], "needs its id"),
        ("r", [TaskRef("a", -2)], "an index of at least 0"),
    ],
)
def test_what_would_reach_further_is_refused(run: Any, tasks: list[TaskRef], says: str) -> None:
    with pytest.raises(InvalidConfigError, match=says):
        clear_body(run, tasks, "")
