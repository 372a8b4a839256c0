"""A storage by an Airflow connection: its credentials, its endpoint, and the storage where the connection names one."""

from __future__ import annotations

import argparse
import os
import sys
from contextlib import redirect_stdout

from ..checkpoint.errors import InvalidConfigError
from ..storage import S3Options


def take_over(options: argparse.Namespace) -> None:
    """Let a command use the connection that it names, and find its storage.

    What is typed counts before what the connection says, and that before what `CAIRN_STORAGE` says.

    Args:
        options: the command's words: `conn`, `storage`, `endpoint_url`, `region`. Gets `s3`, how to reach an S3 store.

    Raises:
        InvalidConfigError: Airflow is not installed here, it has no such connection, or one that Cairn cannot use.
        InvalidRequestError: the options of S3 cannot be right.
    """
    options.s3 = S3Options(endpoint_url=options.endpoint_url, region=options.region)
    from_environment = os.environ.get("CAIRN_STORAGE")
    if options.conn is None:
        options.storage = options.storage or from_environment
        return
    found, storage = _read(options.conn)
    options.storage = options.storage or storage or from_environment
    options.s3 = S3Options(
        endpoint_url=options.endpoint_url or found.endpoint_url,
        region=options.region or found.region,
        access_key=found.access_key,
        secret_key=found.secret_key,
        session_token=found.session_token,
    )


def _read(conn_id: str) -> tuple[S3Options, str | None]:
    # Airflow prints when it is imported; what this command prints must stay readable for a program.
    with redirect_stdout(sys.stderr):
        try:
            from ..hooks.aws_connection import connection_on_a_shell, s3_options_of
            from ..hooks.cairn_connection import STORAGE
        except ImportError as error:
            raise InvalidConfigError(
                f"--conn needs Airflow, which cannot be imported here: {error}. Give the credentials in the "
                "environment (AWS_ACCESS_KEY_ID, AWS_SECRET_ACCESS_KEY), or by AWS_PROFILE",
                conn_id=conn_id,
            ) from error
        found = connection_on_a_shell(conn_id)
        return s3_options_of(found), found.extra_dejson.get(STORAGE) or None
