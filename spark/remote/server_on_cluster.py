"""A server whose driver runs on the cluster: what it needs in deploy mode cluster, and how it gets its secrets (V4)."""

from __future__ import annotations

import shlex
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager

from ...checkpoint.errors import InvalidConfigError
from ..handover.hadoop_credentials import TOKEN_FILES, to_bytes
from .server_task import ServerTask

_WAITS = {
    "yarn": "spark.yarn.submit.waitAppCompletion",
    "k8s://": "spark.kubernetes.submission.waitAppCompletion",
}
"""By the beginning of the master: whether `spark-submit` stays until the driver has ended."""
_OPTIONS = "SPARK_SUBMIT_OPTS"
"""Of Spark: options for the JVM of `spark-submit`, which is not the driver's here."""

ANY_ADDRESS = "0.0.0.0"  # noqa: S104 - the author asks for it
"""All IPv4 addresses of a machine."""


_OWN_LOGIN = ("spark.kerberos.keytab", "spark.yarn.keytab", "spark.kubernetes.kerberos.tokenSecret.name")
"""Conf by which `spark-submit` takes other credentials than those that its process was given."""


def cluster_conf(master: str, task: ServerTask, conn_id: str) -> dict[str, str]:
    """Give the conf for a server in deploy mode cluster.

    `spark-submit` stays while the server starts, so that the stage sees it end if the driver does not come up.

    Args:
        master: of the connection.
        task: what the server is told.
        conn_id: the connection, for messages.

    Raises:
        InvalidConfigError: this master runs no such server, or stages could not reach it.
    """
    waits = next((conf for begins, conf in _WAITS.items() if master.startswith(begins)), None)
    if waits is None:
        raise InvalidConfigError(
            "in deploy mode cluster session=ConnectSession() starts its server on YARN and Kubernetes only: no other "
            "master runs a Python driver so. Set the connection's deploy mode to client",
            conn_id=conn_id,
            master=master,
        )
    if task.bind_address != ANY_ADDRESS:
        raise InvalidConfigError(
            "in deploy mode cluster the server runs on a machine of the cluster, so it must listen for stages on other "
            f'machines: ConnectSession(bind_address="{ANY_ADDRESS}"). Or set the connection\'s deploy mode to client',
            conn_id=conn_id,
            bind_address=task.bind_address,
        )
    return {waits: "true"}


def check_login(keytab: str | None, conf: Mapping[str, str], conn_id: str) -> None:
    """See that `spark-submit` hands on the credentials that it is given.

    Args:
        keytab: of the connection.
        conf: what is submitted with.
        conn_id: the connection, for messages.

    Raises:
        InvalidConfigError: it would take others in their place.
    """
    own = "the connection's keytab" if keytab else next((key for key in _OWN_LOGIN if conf.get(key)), None)
    if own is not None:
        raise InvalidConfigError(
            f"in deploy mode cluster the server's token is a Hadoop credential, and spark-submit by {own} would take "
            "other ones. Let the worker log in, so that it has a ticket (airflow kerberos, kinit); or set "
            "the connection's deploy mode to client",
            conn_id=conn_id,
        )


@contextmanager
def handing_over(secrets: Mapping[str, str], environ: Mapping[str, str]) -> Iterator[tuple[dict[str, str], int]]:
    """Give the environment by which `spark-submit` finds secrets, and the file that it must inherit.

    The file has no name: once both processes have closed it, nothing of it is left, however they end.

    Args:
        secrets: by name.
        environ: of `spark-submit` as it would be.
    """
    with tempfile.TemporaryFile() as file:
        file.write(to_bytes(secrets))
        file.flush()
        option = f"-D{TOKEN_FILES}=/dev/fd/{file.fileno()}"
        yield {**environ, _OPTIONS: " ".join(filter(None, [environ.get(_OPTIONS), shlex.quote(option)]))}, file.fileno()
