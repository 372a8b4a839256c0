"""A cell of Spark Connect: a server of one version, and a worker with another PySpark whose stage is its client.

On the worker is what a user installs: Airflow, Cairn's wheel with the extra `connect`, and this `pyspark-client`.
"""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

from airflow_cairn.checkpoint.answers import Failed, Submit
from airflow_cairn.checkpoint.documents.attempt import StageSpec
from airflow_cairn.checkpoint.documents.layout import epoch_name
from airflow_cairn.spark.remote.submission import VARIABLE, Submission, session_id
from scripts.harness.spark.connect_server import ConnectServer
from tests.matrix import airflow_side
from tests.matrix.cells import AIRFLOWS, ConnectCell, DriverCell
from tests.matrix.environments import programs_of
from tests.matrix.spark_3_jars import connect_jars_of_spark_3
from tests.real.spark.connect_kinds import check_restored, found, problem_of
from tests.real.spark.pipeline import Pipeline

APPLICATION = Path(__file__).parents[1] / "real" / "spark" / "applications" / "connect_kinds.py"


def check(cell: ConnectCell, folder: Path) -> None:
    """Start the server, and run two epochs of one stage as its client.

    The second fails once, and then restores what the first has kept.
    """
    spark = DriverCell(cell.server, cell.server_python)
    [main] = [each for each in AIRFLOWS if each.is_main]
    worker = programs_of(
        f"worker-{cell.client}",
        main.python,
        [*airflow_side.packages(main, "connect"), f"pyspark-client=={cell.client}"],
    )
    airflow_side.install(worker, folder)
    conf = {}
    if cell.server.startswith("3."):
        conf["spark.jars"] = ",".join(str(jar) for jar in connect_jars_of_spark_3())
    with ConnectServer(conf, programs=programs_of(spark.name, spark.python, spark.packages)) as server:
        _run(cell, server, worker, folder)


def _run(cell: ConnectCell, server: ConnectServer, worker: Path, folder: Path) -> None:
    pipeline = Pipeline(f"file://{folder}/lake", None, (StageSpec("routes", (), 2),))

    def client(submit: Submit, *arguments: str) -> tuple[int, str]:
        at = {"host": "localhost", "port": server.port}
        session = session_id(submit.handover.token)
        submission = Submission(str(APPLICATION), session, pipeline.conf(submit), at, (str(folder), *arguments))
        kept = {name: value for name, value in os.environ.items() if not name.startswith(("PYTHON", "SPARK_"))}
        done = subprocess.run(
            [worker / "python", "-m", "airflow_cairn.spark.remote.client"],
            env={**kept, VARIABLE: submission.to_json()},
            cwd=folder,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            check=False,
            timeout=600,
        )
        return done.returncode, done.stdout

    pipeline.trigger("one")
    if cell.is_refused:
        _check_refused(cell, client(pipeline.begin("one")))
        assert pipeline.listing("chk-0000000001/acks/") == []
        return
    status, said = client(pipeline.begin("one"))
    first = found((status, said))
    assert pipeline.complete("one") == 1
    assert (first["totals"], first["list"], first["model"]) == ([], None, False)
    differ = cell.server.split(".")[:2] != cell.client.split(".")[:2]
    warning = f"is Spark {cell.server} and this worker has PySpark {cell.client}"
    assert (warning in said) is differ, said[-4000:]

    pipeline.trigger("two")
    status, said = client(pipeline.begin("two"), "fail")
    assert status == 1, said[-4000:]
    progress = pipeline.coordinator.progress(epoch_name("two"))
    assert isinstance(progress, Failed), f"an application that fails declines: {progress}"
    assert "boom" in progress.detail, progress.detail
    (folder / "restored").rename(folder / "restored by the first try")
    second = found(client(pipeline.begin("two")))
    assert pipeline.complete("two") == 3
    check_restored(second)


def _check_refused(cell: ConnectCell, ended: tuple[int, str]) -> None:
    problem = problem_of(ended)
    wanted = f"the Spark Connect server is Spark {cell.server}, and this worker has PySpark {cell.client}. Use a server"
    assert problem.message.startswith(wanted), problem.message
    assert problem.incurable, "no retry helps"
