"""Submission of a server in deploy mode cluster, and what is refused before it (semantics V4)."""

import os
import re
import subprocess
from pathlib import Path

import pytest

from airflow_cairn.checkpoint.errors import InvalidConfigError
from airflow_cairn.checkpoint.rules.server import Limits
from airflow_cairn.spark.handover.conf import credential_file as to_bytes
from airflow_cairn.spark.remote.server import ServerTask, check_login, cluster_conf, handing_over

SECRETS = {"token": "canary-of-the-token"}


def task(address: str | None = "0.0.0.0") -> ServerTask:
    return ServerTask("s3://lake/cairn", "flights", "n1", Limits(1, 1, 1), folder=None, bind_address=address)


@pytest.mark.parametrize(
    ("master", "conf"),
    [
        ("yarn", "spark.yarn.submit.waitAppCompletion"),
        ("k8s://https://k.example:6443", "spark.kubernetes.submission.waitAppCompletion"),
    ],
)
def test_the_submission_stays_to_see_a_driver_that_does_not_come_up(master: str, conf: str) -> None:
    assert cluster_conf(master, task(), "spark_there") == {conf: "true"}


@pytest.mark.parametrize("master", ["spark://m:7077", "local[2]", "mesos://x"])
def test_a_master_that_runs_no_python_driver_is_refused(master: str) -> None:
    with pytest.raises(InvalidConfigError, match=r"YARN and Kubernetes only.*mode to client.*conn_id=`spark_there`"):
        cluster_conf(master, task(), "spark_there")


@pytest.mark.parametrize("address", [None, "10.0.0.7"])
def test_an_address_at_which_no_machine_of_the_cluster_listens_is_refused(address: str | None) -> None:
    with pytest.raises(InvalidConfigError, match=r'ConnectSession\(bind_address="0\.0\.0\.0"\).*mode to client'):
        cluster_conf("yarn", task(address), "spark_there")


@pytest.mark.parametrize(
    ("keytab", "conf", "own"),
    [
        ("/etc/airflow.keytab", {}, "the connection's keytab"),
        (None, {"spark.kerberos.keytab": "/k"}, "spark.kerberos.keytab"),
        (None, {"spark.kubernetes.kerberos.tokenSecret.name": "t"}, "spark.kubernetes.kerberos.tokenSecret.name"),
    ],
)
def test_a_login_that_would_drop_the_credentials_is_refused(keytab: str | None, conf: dict[str, str], own: str) -> None:
    with pytest.raises(
        InvalidConfigError, match=rf"by {re.escape(own)} would.*kinit.*mode to client.*conn_id=`spark_there`"
    ):
        check_login(keytab, conf, "spark_there")


def test_a_ticket_of_the_worker_drops_none() -> None:
    check_login(None, {"spark.executor.memory": "1g"}, "spark_there")


def test_the_secrets_are_in_an_inherited_nameless_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    with handing_over(SECRETS, {"SPARK_SUBMIT_OPTS": "-Xmx1g", "HOME": "/x"}) as (environ, file):
        assert [*tmp_path.iterdir()] == []
        assert environ["HOME"] == "/x"
        assert environ["SPARK_SUBMIT_OPTS"] == f"-Xmx1g -Dhadoop.token.files=/dev/fd/{file}"
        assert "canary" not in str(environ)
        for _ in range(2):  # more than one process may read it, each from its beginning
            done = subprocess.run(["cat", f"/dev/fd/{file}"], pass_fds=(file,), capture_output=True, check=True)
            assert done.stdout == to_bytes(SECRETS)
    with pytest.raises(OSError, match="Bad file descriptor"):
        os.fstat(file)


def test_without_options_of_others_there_are_ours_alone() -> None:
    with handing_over(SECRETS, {}) as (environ, file):
        assert environ == {"SPARK_SUBMIT_OPTS": f"-Dhadoop.token.files=/dev/fd/{file}"}
