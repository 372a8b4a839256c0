"""Epochs by clients of a real Spark Connect server, and what becomes of a client that is killed (semantics V2)."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from airflow_cairn.checkpoint import FileSource
from airflow_cairn.checkpoint.answers import Failed, Submit
from airflow_cairn.checkpoint.documents.acknowledgement import DeclineDocument
from airflow_cairn.checkpoint.documents.attempt import StageSpec
from airflow_cairn.checkpoint.documents.layout import epoch_name
from airflow_cairn.spark.execution.log_lines import Application
from airflow_cairn.spark.remote.submission import VARIABLE, Submission, session_id
from scripts.harness.spark.connect_server import ConnectServer
from scripts.harness.wait import wait_until
from tests.real.spark.bucketed import check_buckets
from tests.real.spark.connect_kinds import check_restored, found, problem_of
from tests.real.spark.pipeline import Pipeline

pytestmark = pytest.mark.spark

TOKEN = "token-of-the-test"
APPLICATIONS = Path(__file__).parent / "applications"


@pytest.fixture(scope="module")
def server() -> Iterator[ConnectServer]:
    """One server, which asks for a token."""
    with ConnectServer(env={"SPARK_CONNECT_AUTHENTICATE_TOKEN": TOKEN}) as it:
        yield it


class Clients:
    """Runs applications as an operator would."""

    def __init__(self, server: ConnectServer, folder: Path) -> None:
        self.server = server
        self.folder = folder
        self.pipeline = Pipeline(f"file://{folder}/lake", None)

    def submission(self, submit: Submit, application: str, *arguments: str, **options: Any) -> Submission:
        at = {"host": "localhost", "port": self.server.port, "token": TOKEN, **options.pop("server", {})}
        name = application if "." in application else str(APPLICATIONS / f"{application}.py")
        session = session_id(submit.handover.token)
        return Submission(name, session, self.pipeline.conf(submit), at, arguments, **options)

    def start(self, submission: Submission) -> subprocess.Popen[str]:
        return subprocess.Popen(
            [sys.executable, "-m", "airflow_cairn.spark.remote.client"],
            env={**os.environ, VARIABLE: submission.to_json()},
            cwd=self.folder,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )

    def run(self, submit: Submit, application: str, *arguments: str, **options: Any) -> tuple[int, str]:
        with self.start(self.submission(submit, application, *arguments, **options)) as process:
            output, _ = process.communicate(timeout=600)
        assert TOKEN not in output
        return process.returncode, output


@pytest.fixture
def clients(server: ConnectServer, tmp_path: Path) -> Clients:
    """Clients of the module's server, with a job of the test's own."""
    return Clients(server, tmp_path)


def test_every_kind_of_state_goes_over_connect(clients: Clients) -> None:  # semantics A4, A5, B5, C4, R4
    pipeline = clients.pipeline = Pipeline(clients.pipeline.storage, None, (StageSpec("routes", (), 2),))
    work = str(clients.folder)
    pipeline.trigger("one")
    first = found(clients.run(pipeline.begin("one"), "connect_kinds", work, conf={"spark.sql.shuffle.partitions": "2"}))
    assert pipeline.complete("one") == 1
    assert first["pyspark"] == "pyspark.sql.connect.session"
    assert (first["totals"], first["list"], first["large"], first["model"]) == ([], None, 0, False)
    assert (first["conf"], first["sums"]) == ("2", [5, 5, 7, 7, 9, 9, 11, 11, 13, 13])

    pipeline.trigger("two")
    status, output = clients.run(pipeline.begin("two"), "connect_kinds", work, "fail")
    assert status == 1
    assert "boom" in output
    (application,) = filter(None, map(Application.in_line, output.splitlines()))
    assert (application.id[:6], application.ui) == ("local-", ""), "the server's, whose UI a client does not know"
    progress = pipeline.coordinator.progress(epoch_name("two"))
    assert isinstance(progress, Failed)
    assert progress.detail.startswith("routes: SparkRuntimeException: [USER_RAISED_EXCEPTION] boom")
    assert pipeline.listing("chk-0000000002/state/") == [], "what was written is deleted"

    (clients.folder / "restored").rename(clients.folder / "restored by the first try")
    second = found(clients.run(pipeline.begin("two"), "connect_kinds", work))
    assert pipeline.complete("two") == 3
    check_restored(second)


USES_PANDAS = """
import sys
from pyspark.sql.functions import pandas_udf, udf

def plus(x):
    return x + 1

def rows_of(found):
    return sorted(tuple(row) for row in found.collect())

def routes(epoch):
    spark = epoch.spark
    assert rows_of(spark.range(9).groupBy().count()) == [(9,)]
    assert 'pandas' not in sys.modules, 'no Python function is used so far'
    rows = spark.range(3).select(udf(plus, 'long')('id').alias('n'))
    epoch.snapshot('totals', rows)
    assert rows_of(rows) == [(1,), (2,), (3,)]
    from pyspark.sql.connect import session
    frame = rows.toPandas()
    import pandas as pd
    assert type(frame) is pd.DataFrame and session.pd.DataFrame is pd.DataFrame
    frame['at'], frame['took'] = pd.Timestamp('2001-01-01'), pd.Timedelta(hours=1)
    back = spark.createDataFrame(frame.assign(zoned=frame['at'].dt.tz_localize('UTC')))
    assert [kind for _, kind in back.dtypes] == ['bigint', 'timestamp', 'interval day to second', 'timestamp']
    assert len(spark.createDataFrame([(1,)], 'n int').toPandas()) == 1
    more = pandas_udf(lambda n: n + 1, 'long')
    assert rows_of(rows.select(more('n'))) == [(2,), (3,), (4,)]
    assert rows_of(rows.mapInPandas(lambda parts: (pd.concat([each]) for each in parts), 'n long')) == rows_of(rows)
    alone = rows.groupBy('n').applyInPandas(lambda part: part.head(1), 'n long')
    assert rows_of(alone) == rows_of(rows)
"""


@pytest.mark.soak  # tests/unit/spark/remote/test_deferred_pandas.py; functions: test_session.py
def test_a_function_is_called_with_its_open_epoch(clients: Clients) -> None:
    """pandas is loaded when it is first used; all that PySpark does with it works then."""
    (clients.folder / "appmod.py").write_text(USES_PANDAS)
    pipeline = clients.pipeline
    pipeline.trigger("one")
    module = str(clients.folder / "appmod.py")
    status, output = clients.run(pipeline.begin("one"), "appmod.routes", py_files=(module,))
    assert status == 0, output[-3000:]
    assert pipeline.complete("one") == 1


COUNTS_CALLS = """
import collections, json

def routes(epoch):
    stub, asked = epoch.spark.client._stub, collections.Counter()
    for name in ('Config', 'AnalyzePlan', 'ExecutePlan'):
        def counted(request, *more, name=name, call=getattr(stub, name), **named):
            asked[name] += 1
            return call(request, *more, **named)
        setattr(stub, name, counted)
    rows = epoch.spark.range(3).selectExpr('id AS n', 'id * 2 AS value')
    before = epoch.state('totals', keys=rows)
    of_read = dict(asked)
    epoch.update('totals', rows if before is None else before, key='n')
    of_update = dict(asked)
    epoch.append('days', rows)
    print('FOUND', json.dumps({'calls': [of_read, of_update, asked]}))
"""


def test_how_often_a_stage_asks_the_server(clients: Clients) -> None:
    """Raise no number: each call is a round trip, and the application waits for it."""
    (clients.folder / "counting.py").write_text(COUNTS_CALLS)
    pipeline, module = clients.pipeline, str(clients.folder / "counting.py")
    for epoch in ("one", "two"):
        pipeline.trigger(epoch)
        asked = found(clients.run(pipeline.begin(epoch), "counting.routes", py_files=(module,)))
        pipeline.complete(epoch)
    of_read, of_update, of_all = (Counter[str](each) for each in asked["calls"])
    # Two of the first five are PySpark's own. The columns of what the author gives have to be known, and no others.
    assert of_read == {"Config": 2, "AnalyzePlan": 1}
    # A write reads the session's settings, sets some, and puts them back; a keyed one also asks whether Spark adapts.
    assert of_update - of_read == {"Config": 4, "AnalyzePlan": 1, "ExecutePlan": 1}
    assert of_all - of_update == {"Config": 3, "ExecutePlan": 1}


def test_a_table_of_buckets_and_truncated_values(clients: Clients) -> None:  # semantics C4
    def submit(begun: Submit, *arguments: str) -> None:
        status, output = clients.run(begun, "bucketed", *arguments)
        assert status == 0, output[-3000:]

    check_buckets(clients.folder, clients.pipeline, submit)


def test_what_a_killed_client_left_running_is_stopped_before_the_next_try(clients: Clients) -> None:  # semantics V2
    """The server would finish the dead client's write; the next try's client takes the session away first."""
    pipeline = clients.pipeline
    pipeline.trigger("one")
    first = pipeline.begin("one")
    # Twenty minutes on both of the server's cores: until they are stopped, nothing else runs.
    with clients.start(clients.submission(first, "connect_slow", "60000")) as dead:
        wait_until(lambda: len(_parts(pipeline, first)) == 2, 600, "both tasks of the first to write")
        dead.send_signal(signal.SIGKILL)
        dead.wait()
    second = pipeline.begin("one")
    assert second.handover.token != first.handover.token
    replaced = (session_id(first.handover.token),)
    status, output = clients.run(second, "connect_slow", "1", replaced=replaced)
    assert status == 0, output[-3000:]
    assert pipeline.complete("one") == second.handover.checkpoint
    assert not _parts(pipeline, first)

    # A client of the first try that comes only now finds its session closed.
    problem = problem_of(clients.run(first, "connect_slow", "1"))
    assert "has been released: another attempt has replaced it" in problem.message
    assert not problem.incurable


def test_a_client_that_is_told_to_end_declines_and_leaves_nothing(clients: Clients) -> None:  # semantics A5, D1
    pipeline = clients.pipeline
    pipeline.trigger("one")
    submit = pipeline.begin("one")
    with clients.start(clients.submission(submit, "connect_slow", "9000")) as process:
        wait_until(lambda: len(_parts(pipeline, submit)) == 2, 600, "both tasks to write")
        process.terminate()
        output, _ = process.communicate(timeout=600)
    assert process.returncode == 128 + signal.SIGTERM
    assert re.search("TOLD TO END AFTER .*OPERATION_CANCELED", output), "it deletes once the server writes no more"
    assert pipeline.listing(f"chk-{submit.handover.checkpoint:010}/state/") == []
    progress = pipeline.coordinator.progress(epoch_name("one"))
    assert isinstance(progress, Failed)
    assert "SystemExit" in progress.detail


def test_bad_input_is_named_before_anything_is_written(clients: Clients) -> None:  # semantics F4
    pipeline = clients.pipeline
    pipeline.trigger("one")
    submit = pipeline.begin("one")
    bad: dict[str, tuple[dict[str, Any], bool]] = {
        "does not take the connection's token": ({"server": {"token": "wrong"}}, True),
        "asks for a token": ({"server": {"token": None}}, True),
        "cannot be reached": ({"server": {"port": 1}}, False),
        "Set it where the server is started": (
            {"conf": {"spark.executor.memory": "2g"}},
            True,
        ),
    }
    started = {
        said: clients.start(clients.submission(submit, "connect_slow", "1", **options))
        for said, (options, _) in bad.items()
    }
    for said, process in started.items():
        with process:
            output, _ = process.communicate(timeout=600)
        problem = problem_of((process.returncode, output))
        assert said in problem.message
        assert problem.incurable is bad[said][1]
        assert TOKEN not in output
    assert pipeline.listing("chk-0000000001/acks/") == []


@pytest.mark.parametrize(
    ("line", "said"),
    [
        ("epoch.spark.read.parquet('s3a://lake/rows').collect()", "Spark has no hadoop-aws, so it cannot"),
        ("epoch.spark.range(1).select(udf(far)('id')).collect()", "has no module far_away. Install it"),
    ],
    ids=["hadoop-aws", "python"],
)
def test_a_package_that_the_server_lacks_is_named(clients: Clients, line: str, said: str) -> None:  # semantics F4
    file = clients.folder / "lacking.py"
    file.write_text(
        "from pyspark.sql.functions import udf\n"
        "def far(x):\n    import far_away\n    return x\n"
        f"def routes(epoch):\n    {line}\n"
    )
    pipeline = clients.pipeline
    pipeline.trigger("one")
    status, output = clients.run(pipeline.begin("one"), "lacking.routes", py_files=(str(file),))
    assert status == 1, output[-3000:]
    [decline] = pipeline.listing("chk-0000000001/declines/")
    document = pipeline.coordinator.files.read(DeclineDocument, decline)[0]
    assert said in document.detail
    assert document.incurable, "no retry installs it"


def _parts(pipeline: Pipeline, submit: Submit) -> list[str]:
    """Give the data files of a try, those that are being written too."""
    found = pipeline.listing(f"chk-{submit.handover.checkpoint:010}/state/")
    return [each for each in found if submit.handover.token in each and each.endswith(".parquet")]


def test_files_are_read_as_they_were_fixed(clients: Clients) -> None:  # semantics T11
    """Names are taken as they are; over Connect size and time of the last change tell one content from another."""
    incoming = clients.folder / "in"
    incoming.mkdir()
    source = FileSource(f"file://{incoming}")
    names = [f"a{each}b.csv" for each in "[]{}?*\\,#% +'\"ü"] + ["axb.csv", "ab.csv"]
    for number, name in enumerate(names):
        (incoming / name).write_text(f"n\n{number}\n")

    def run(run_id: str, *arguments: str) -> str:
        clients.pipeline.trigger(run_id, sources=(source,))
        return clients.run(clients.pipeline.begin(run_id), "connect_sources", *arguments)[1]

    assert f"FOUND {list(range(len(names)))}" in run("one")
    clients.pipeline.complete("one")
    (incoming / "new.csv").write_text("n\n1\n")
    assert "new.csv had 4 bytes and has 8" in run("two", str(incoming / "new.csv"))
    assert isinstance(clients.pipeline.coordinator.progress(epoch_name("two")), Failed)
    assert "FOUND [12345]" in run("three")
    clients.pipeline.complete("three")
    assert "FOUND []" in run("four")
