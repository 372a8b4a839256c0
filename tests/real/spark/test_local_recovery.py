"""State that is kept beside a server that Cairn runs: a real Spark, and S3 with each request counted (semantics V3)."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path

import pytest
from airflow.sdk import DAG

from airflow_cairn.checkpoint import Coordinator
from airflow_cairn.operators import CheckpointedTaskGroup, ConnectSession, SparkEpochOperator
from airflow_cairn.operators.stage.outcome import StageFailedError
from airflow_cairn.storage import S3Options, open_store
from scripts.harness.s3_server import S3Server
from scripts.harness.spark.start import small_conf
from scripts.harness.wait import wait_until
from scripts.s3a_jars import s3a_jars
from tests.support.airflow_fixtures import Said
from tests.support.airflow_stage import Job, Ti, context
from tests.support.s3_proxy import S3Proxy
from tests.support.shut_down import shut_down

pytestmark = [pytest.mark.s3, pytest.mark.spark]

APPLICATION = """
from pathlib import Path
from airflow_cairn.spark import Epoch
from airflow_cairn.spark.stored import merges
merges.WHOLE_BYTES = 0  # the states count as large, so that each epoch adds a run
with Epoch.current() as epoch:
    before, behind = epoch.state("totals"), epoch.state("behind")
    rows = epoch.spark.range(100).selectExpr("id % 7 AS key", f"id + {epoch.checkpoint} * 1000 AS n")
    if before is not None:
        print("RESTORED", epoch.checkpoint, before.count(), before.groupBy().sum("n").first()[0], behind.count(),
            len(epoch.get("large")), len(epoch.list_state("offsets")[0]))
        grown, sums = epoch.state("grown"), epoch.state("sums")
        print("GROWN", epoch.checkpoint, grown.count(), grown.groupBy().sum("n").first()[0], sums.count(),
            sums.groupBy().sum("n").first()[0])
    model = Path(__file__).with_name(f"model-{epoch.checkpoint}")
    if epoch.restore_files("model", model):
        print("MODEL", epoch.checkpoint, (model / "trees" / "0.bin").read_text(), (model / "large.bin").stat().st_size)
    else:
        (model / "trees").mkdir(parents=True)
        (model / "large.bin").write_bytes(bytes(range(256)) * 1000)
    (model / "trees" / "0.bin").write_text(f"of {epoch.checkpoint}")
    epoch.snapshot_files("model", model)
    epoch.update("grown", epoch.spark.range(3).selectExpr(f"id + {epoch.checkpoint} AS key", "100L AS n"), key="key")
    epoch.aggregate("sums", epoch.spark.sql("SELECT 'all' AS key, 1L AS n"), "key", merge={"n": "sum"})
    epoch.snapshot("behind", epoch.spark.range(epoch.checkpoint), background=True)
    epoch.snapshot("totals", rows, key="key")
    epoch.publish("league", rows)
    epoch.put("large", "x" * 30_000)
    epoch.snapshot_list("offsets", [[*range(9_000)]])
    failing = Path(__file__).with_name("failing")
    if failing.exists():
        failing.unlink()
        raise ValueError("boom")
"""


@dataclass
class OnS3(Job):
    """A job on S3, whose requests all go through a proxy."""

    uri: str = ""
    s3: S3Options = field(default_factory=S3Options)

    @property
    def storage(self) -> str:
        return self.uri

    @property
    def coordinator(self) -> Coordinator:
        return Coordinator(open_store(self.uri, s3=self.s3), self.name)


@dataclass
class Lake:
    """The job, and what was asked of its store."""

    job: OnS3
    proxy: S3Proxy

    def reads_of_state(
        self, checkpoint: int, kinds: tuple[str, ...] = ("/state.", "/value.", "/list.", "/run.", "/files.")
    ) -> int:
        """Requests for the content of a checkpoint's states, since the last look at any."""
        folder = f"/chk-{checkpoint:010}/state/"
        seen = [each for each in self.proxy.requests if each.method == "GET" and folder in each.key]
        return sum(any(kind in each.key for kind in kinds) for each in seen)

    def uploads(self, checkpoint: int, kind: str) -> int:
        """Files of a kind of output that were written in one request each: Spark writes each in parts."""
        folder = f"/chk-{checkpoint:010}/state/"
        puts = [each for each in self.proxy.requests if each.method == "PUT" and "uploadId" not in each.target]
        own = [each.key for each in puts if folder in each.key and "/__magic" not in each.key]
        return sum(f"/{kind}." in key and key.endswith(".parquet") for key in own)


@pytest.fixture
def lake(
    s3_server: S3Server,
    s3_bucket: str,
    tmp_path: Path,
    connections: Callable[[str, str], None],
    monkeypatch: pytest.MonkeyPatch,
) -> Iterator[Lake]:
    monkeypatch.setenv("PATH", f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}")
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    monkeypatch.setattr("tempfile.tempdir", None)
    with S3Proxy(s3_server.endpoint_url) as proxy:
        s3 = S3Options(
            endpoint_url=proxy.url,
            region=s3_server.region,
            access_key=s3_server.access_key,
            secret_key=s3_server.secret_key,
        )
        extra = {"endpoint_url": proxy.url, "region_name": s3_server.region}
        aws = {"conn_type": "aws", "login": s3_server.access_key, "password": s3_server.secret_key, "extra": extra}
        connections("lake", json.dumps(aws))
        connections("spark_here", json.dumps({"conn_type": "spark", "host": "local[2]"}))
        connections("cairn_session", json.dumps({"conn_type": "generic", "password": "0123456789abcdef" * 2}))
        it = Lake(OnS3(tmp_path, uri=f"s3://{s3_bucket}/team", s3=s3), proxy)
        yield it
        shut_down(it.job.coordinator)
        # The server has to end while the proxy is there: it asks the store whether it may go on.
        wait_until(lambda: not [*tmp_path.glob("cairn-server-*")], 300, "the server to end and delete its folder")


def run(lake: Lake, application: Path, run_id: str, try_number: int = 1) -> None:
    conf = {"spark.ui.enabled": "false", "spark.driver.host": "127.0.0.1", "spark.sql.shuffle.partitions": "2"}
    conf["spark.jars"] = ",".join(map(str, s3a_jars()))
    session = ConnectSession(conf={**conf, **small_conf()}, local_state_mb=16)  # more than that is free on any disk
    with DAG("flights"):
        group = CheckpointedTaskGroup(
            "epoch",
            storage=lake.job.storage,
            job=lake.job.name,
            aws_conn_id="lake",
            conn_id="spark_here",
            session=session,
            reads_window=False,
        )
        with group:
            stage = SparkEpochOperator(task_id="routes", application=str(application))
    if try_number == 1:
        lake.job.trigger(run_id)
    lake.proxy.requests.clear()
    stage.execute(context(Ti(run_id=run_id, try_number=try_number, max_tries=2)))


@pytest.mark.soak  # a cluster; tests/unit/spark/stored/test_local_state.py
def test_a_warm_epoch_reads_no_state_from_the_store(lake: Lake, tmp_path: Path, said: Said) -> None:  # semantics V3
    application = tmp_path / "routes.py"
    application.write_text(APPLICATION)
    run(lake, application, "e1")
    assert lake.uploads(1, "state") >= 2
    assert lake.uploads(1, "table") == 0, "tables are Spark's to write"
    assert lake.job.coordinator.head().completed[-1].id == 1

    run(lake, application, "e2")
    assert "RESTORED 2 100 104950 1 30000 9000" in said.text
    assert "GROWN 2 3 300 1 1" in said.text
    assert "MODEL 2 of 1 256000" in said.text
    assert lake.reads_of_state(1) == 0
    assert lake.reads_of_state(2) == 0, "what was written is not read back"
    assert lake.uploads(2, "run") == 2

    [server] = tmp_path.glob("cairn-server-*")
    for file in (server / "local-state").rglob("part-*.parquet"):
        if not file.relative_to(server / "local-state").parts[0].startswith("run"):
            file.write_bytes(file.read_bytes()[:-1] + b"X")
    for file in (server / "local-state").rglob("*"):
        if file.is_file() and file.read_bytes() == b"of 2":
            file.write_bytes(b"of 7")
    run(lake, application, "e3")
    assert "RESTORED 3 100 204950 2 30000 9000" in said.text
    assert "The local copy of state.totals is damaged, and the store is read" in said.text
    assert lake.reads_of_state(2) > 0, "what the proxy counts is what Spark reads"
    assert "MODEL 3 of 2 256000" in said.text
    assert "The local copy of files.model is damaged, and the store is read" in said.text
    assert lake.reads_of_state(2, ("/files.model/",)) >= 2
    assert "GROWN 3 4 400 1 2" in said.text
    assert lake.reads_of_state(1, ("/state.grown/",)) > 0
    assert lake.reads_of_state(1, ("/state.sums/",)) > 0
    assert lake.reads_of_state(2, ("/run.",)) == 0, "base from the store, and runs from their copies"
    assert [each.id for each in lake.job.coordinator.head().completed][-1] == 3
    [verified] = lake.job.coordinator.verify(3, deep=True)
    assert verified.whole

    (tmp_path / "failing").touch()
    with pytest.raises(StageFailedError, match="boom"):
        run(lake, application, "e4")
    run(lake, application, "e4", try_number=2)
    assert "RESTORED 5 100 304950 3 30000 9000" in said.text
    assert "GROWN 5 5 500 1 3" in said.text
    assert "MODEL 5 of 3 256000" in said.text
    assert [lake.reads_of_state(each) for each in (2, 3)] == [0, 0], "a retry reads the copies too: no request, no byte"
    assert lake.reads_of_state(1) == lake.reads_of_state(1, ("/state.grown/", "/state.sums/")), "damaged copies"
    assert [each.id for each in lake.job.coordinator.head().completed][-1] == 5
