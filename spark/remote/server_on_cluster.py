"""A server in deploy mode cluster: its conf, and the handover of its secrets (V4)."""

from __future__ import annotations

import shlex
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager

from ...checkpoint.errors import InvalidConfigError
from ..handover.conf import TOKEN_FILES
from ..handover.conf import credential_file as to_bytes
from .server import ServerTask

_WAITS = {
    "yarn": "spark.yarn.submit.waitAppCompletion",
    "k8s://": "spark.kubernetes.submission.waitAppCompletion",
}
"""By prefix of the master: the setting that makes `spark-submit` stay until the driver has ended."""
_OPTIONS = "SPARK_SUBMIT_OPTS"
"""Spark's setting for JVM options of `spark-submit`, which is not the driver here."""

ANY_ADDRESS = "0.0.0.0"  # noqa: S104 - the author asks for it
"""All IPv4 addresses of a machine."""


_OWN_LOGIN = ("spark.kerberos.keytab", "spark.yarn.keytab", "spark.kubernetes.kerberos.tokenSecret.name")
"""Conf by which `spark-submit` takes other credentials than those given to its process."""


def cluster_conf(master: str, task: ServerTask, conn_id: str) -> dict[str, str]:
    """Build the conf for a server in deploy mode cluster.

    `spark-submit` stays while the server starts, so that the stage sees it end if the driver does not come up.

    Args:
        master: the connection's master.
        task: the server's task.
        conn_id: the connection, for messages.

    Raises:
        InvalidConfigError: this master cannot run such a server, or stages could not reach it.
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
    """Check that `spark-submit` passes on the credentials that it is given.

    Args:
        keytab: the connection's keytab.
        conf: the submitted conf.
        conn_id: the connection, for messages.

    Raises:
        InvalidConfigError: `spark-submit` would use other credentials.
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
    """Yield the environment by which `spark-submit` finds secrets, and the file that it must inherit.

    The file has no name: once both processes have closed it, nothing is left, however they end.

    Args:
        secrets: by name.
        environ: the environment of `spark-submit` without secrets.
    """
    with tempfile.TemporaryFile() as file:
        file.write(to_bytes(secrets))
        file.flush()
        option = f"-D{TOKEN_FILES}=/dev/fd/{file.fileno()}"
        yield {**environ, _OPTIONS: " ".join(filter(None, [environ.get(_OPTIONS), shlex.quote(option)]))}, file.fileno()
