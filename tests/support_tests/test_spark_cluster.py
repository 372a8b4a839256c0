"""The Spark cluster is real: its workers compute, and nothing of it is left."""

from __future__ import annotations

import json
import os
import socket
import subprocess
import sys
from pathlib import Path
from threading import Thread

import psutil
import pytest

from scripts.harness.ports import is_listening
from scripts.harness.spark.cluster import SparkCluster
from scripts.harness.spark.start import small_conf

_APPLICATION = """
import json, sys
from pyspark.sql import SparkSession
builder = SparkSession.builder.master(sys.argv[1]).config("spark.ui.enabled", "false")
spark = builder.config("spark.executor.memory", "512m").config(map=json.loads(sys.argv[2])).getOrCreate()
where = spark.sparkContext.parallelize(range(4), 4).map(lambda _: __import__("os").getcwd()).distinct().collect()
print("where", *where)
spark.stop()
"""


@pytest.mark.parametrize(
    "answer", [b"HTTP/1.1 200 OK\r\nContent-Length: 6\r\n\r\n<html>", b"nothing of HTTP\r\n\r\n", b""]
)
def test_a_master_that_is_starting_has_no_state_yet(answer: bytes) -> None:
    """The master's web server is up before its page."""
    with socket.create_server(("127.0.0.1", 0)) as listening:

        def answer_once() -> None:
            connection, _ = listening.accept()
            with connection:
                connection.recv(65536)
                connection.sendall(answer)

        thread = Thread(target=answer_once)
        thread.start()
        cluster = SparkCluster()
        cluster.web_port = listening.getsockname()[1]
        assert cluster.state() is None
        thread.join()


@pytest.mark.soak  # test_executor_daemons.py uses it
@pytest.mark.spark
def test_the_workers_do_the_work_and_everything_ends(tmp_path: Path) -> None:
    with SparkCluster() as cluster:
        assert cluster.alive_workers() == 2
        pids = [process.pid for process in cluster.family()]
        assert len(pids) >= 3
        done = subprocess.run(
            [sys.executable, "-c", _APPLICATION, cluster.master_url, json.dumps(small_conf())],
            env={**os.environ, "PYSPARK_PYTHON": sys.executable},
            cwd=tmp_path,
            capture_output=True,
            text=True,
            timeout=600,
            check=False,
        )
        assert done.returncode == 0, done.stderr[-4000:]
        where = next(line for line in done.stdout.splitlines() if line.startswith("where ")).split()[1:]
        assert where
        assert all(folder.startswith(str(cluster.root / "worker-")) for folder in where)
    assert not [pid for pid in pids if psutil.pid_exists(pid)]
    assert not is_listening(cluster.port)
    assert not cluster.root.exists()
