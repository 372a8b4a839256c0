"""From an Airflow connection to a storage: for our own store, and for the Spark driver that is to use the same one."""

from __future__ import annotations

from functools import cached_property

from airflow.sdk import BaseHook

from ..spark.output.committer import s3a_conf
from ..storage import ObjectStore, S3Options, open_store
from ..storage.uris import StorageUri, parse_storage_uri
from .aws_connection import s3_options_of


class CheckpointStorageHook(BaseHook):
    """Opens the storage of a job's checkpoints.

    Works in a task, in a callback (task process and dag processor) and in a triggerer's thread: the connection is
    fetched by the task SDK, which each of these answers.

    Args:
        storage: storage URI, `file:///folder` or `s3://bucket/prefix`.
        aws_conn_id: an Airflow connection of type `aws`, `cairn` or `generic`; None leaves credentials, region and
            endpoint to boto3's own chain (environment, profile, instance role). Not looked at where the storage is
            `file://`.

    Raises:
        UnsupportedStorageError: the URI's scheme is none of ours.
        InvalidKeyError: the URI is not of an accepted form.
    """

    conn_name_attr = "aws_conn_id"
    hook_name = "Cairn checkpoint storage"

    def __init__(self, storage: str | StorageUri, aws_conn_id: str | None = None) -> None:
        super().__init__()
        self._where = parse_storage_uri(storage)
        self.storage = str(self._where)
        self.aws_conn_id = aws_conn_id

    def __repr__(self) -> str:
        """Say which storage and which connection; never what the connection holds."""
        return f"CheckpointStorageHook(storage={self.storage!r}, aws_conn_id={self.aws_conn_id!r})"

    @property
    def is_s3(self) -> bool:
        """Whether the storage is an S3 store."""
        return self._where.scheme == "s3"

    @cached_property
    def s3_options(self) -> S3Options | None:
        """How to reach the S3 store; None for `file://`, or where all of it is left to boto3.

        Raises:
            AirflowNotFoundException: the connection is not defined, or cannot be fetched here.
            InvalidConfigError: the connection says what Cairn cannot follow.
        """
        if not self.is_s3 or self.aws_conn_id is None:
            return None
        return s3_options_of(self.get_connection(self.aws_conn_id))

    def open_store(self) -> ObjectStore:
        """Open the store. Nothing is written, and no request is sent to it.

        Raises:
            AirflowNotFoundException: the connection is not defined, or cannot be fetched here.
            InvalidConfigError: the connection says what Cairn cannot follow.
            UnsupportedStorageError: boto3 refuses the options.
        """
        return open_store(self._where, s3=self.s3_options)

    def driver_environment(self) -> dict[str, str]:
        """Give the credentials as environment variables, for the process that runs a driver in client mode.

        Empty where the connection names no key pair: then the driver's own chain finds one, as the worker's does.
        """
        options = self.s3_options
        if options is None or options.access_key is None or options.secret_key is None:
            return {}
        found = {"AWS_ACCESS_KEY_ID": options.access_key, "AWS_SECRET_ACCESS_KEY": options.secret_key}
        if options.session_token is not None:
            found["AWS_SESSION_TOKEN"] = options.session_token
        return found

    def driver_conf(self) -> dict[str, str]:
        """Give the Spark conf, without any secret, that lets Spark's s3a write to the storage; empty for `file://`."""
        return s3a_conf(self.endpoint, self.region) if self.is_s3 else {}

    @property
    def endpoint(self) -> str | None:
        """URL of an S3 server other than AWS."""
        return self.s3_options.endpoint_url if self.s3_options else None

    @property
    def region(self) -> str | None:
        """The bucket's region, where the connection names one."""
        return self.s3_options.region if self.s3_options else None
