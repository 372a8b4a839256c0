"""Opens a storage with an Airflow connection, for Cairn's own store, and configures the Spark driver for the same."""

from __future__ import annotations

import os
import secrets
from collections.abc import Callable
from functools import cached_property

from airflow.sdk import BaseHook, Connection

from ..checkpoint.masking import masked
from ..spark.handover.conf import azure_conf, gcs_conf, gcs_environment, s3a_conf
from ..storage import AzureOptions, GcsOptions, ObjectStore, S3Options, open_store
from ..storage.errors import CairnError
from ..storage.facts import facts_of
from ..storage.names import StorageUri, parse_storage_uri
from ..storage.network.waiting import Waiting
from ..storage.open import StoreOptions
from ..storage.probe import probe
from .storage_connections import azure_options_of, gcs_options_of, s3_options_of

OPTIONS_OF: dict[str, Callable[[Connection], StoreOptions]] = {
    "s3": s3_options_of,
    "gs": gcs_options_of,
    "abfss": azure_options_of,
}


class CheckpointStorageHook(BaseHook):
    """Opens the storage of a job's checkpoints.

    Works in a task, in a callback (task process and dag processor) and in a triggerer's thread: each of these answers
    the task SDK, which fetches the connection.

    Args:
        storage: storage URI, such as `file:///folder` or `s3://bucket/prefix`.
        aws_conn_id: an Airflow connection: of type `aws` for `s3://`, `google_cloud_platform` for `gs://`, `wasb` for
            `abfss://`, or `cairn` or `generic`. None leaves credentials, region and endpoint to boto3's own chain
            (environment, profile, instance role), to Google's application default credentials, or to azure-identity's
            chain. Not used for a `file://` storage.

    Raises:
        UnsupportedStorageError: the URI's scheme is not supported.
        InvalidKeyError: the URI has no accepted form.
    """

    conn_name_attr = "aws_conn_id"
    hook_name = "Cairn checkpoint storage"

    def __init__(self, storage: str | StorageUri, aws_conn_id: str | None = None) -> None:
        super().__init__()
        self._where = parse_storage_uri(storage)
        self.storage = str(self._where)
        self.aws_conn_id = aws_conn_id

    def __repr__(self) -> str:
        """Name the storage and the connection, never the connection's contents."""
        return f"CheckpointStorageHook(storage={self.storage!r}, aws_conn_id={self.aws_conn_id!r})"

    @property
    def is_s3(self) -> bool:
        """Whether the storage is an S3 store."""
        return self._where.scheme == "s3"

    @cached_property
    def options(self) -> StoreOptions | None:
        """The options of the storage's store; None for `file://`, or if its library decides everything.

        Raises:
            AirflowNotFoundException: the connection is not defined, or cannot be fetched here.
            InvalidConfigError: the connection has settings that Cairn cannot follow.
        """
        if self._where.scheme == "file" or self.aws_conn_id is None:
            return None
        return OPTIONS_OF[self._where.scheme](self.get_connection(self.aws_conn_id))

    def open_store(self, *, waits: bool = False) -> ObjectStore:
        """Open the store, without writing and without sending it a request.

        Args:
            waits: wait some minutes for a store that refuses temporarily: for a task, if nothing else asks again.
                During the wait the connection is fetched anew, because its keys may have been renewed.

        Raises:
            AirflowNotFoundException: the connection is not defined, or cannot be fetched here.
            InvalidConfigError: the connection has settings that Cairn cannot follow.
            UnsupportedStorageError: boto3 refuses the options, the packages of the store are missing, or the
                connection is to another account of Azure.
        """
        waiting = None
        if waits:
            whose = f"the connection {self.aws_conn_id}" if self.aws_conn_id else facts_of(self.storage).own_chain
            waiting = Waiting(whose, self._renewed)
        return open_store(self._where, options=self.options, waiting=waiting)

    def _renewed(self) -> StoreOptions | None:
        return CheckpointStorageHook(self._where, self.aws_conn_id).options

    def driver_environment(self) -> dict[str, str]:
        """Return the credentials as environment variables, for the process that runs a driver in client mode.

        Empty if the connection names no key: then the driver's own chain finds one, as the worker's does.
        """
        options = self.options
        if isinstance(options, GcsOptions):
            return gcs_environment(options)
        if not isinstance(options, S3Options) or options.access_key is None or options.secret_key is None:
            return {}
        found = {"AWS_ACCESS_KEY_ID": options.access_key, "AWS_SECRET_ACCESS_KEY": options.secret_key}
        if options.session_token is not None:
            found["AWS_SESSION_TOKEN"] = options.session_token
        return found

    def driver_conf(self) -> dict[str, str]:
        """Return the Spark conf, without any secret, with which Spark writes to the storage; empty for `file://`."""
        options = self.options
        if self._where.scheme == "gs":
            return gcs_conf(options if isinstance(options, GcsOptions) else None)
        if self._where.scheme == "abfss":
            host = self._where.bucket.partition("@")[2]
            return azure_conf(options if isinstance(options, AzureOptions) else None, host)
        if self.is_s3:
            return s3a_conf(options if isinstance(options, S3Options) else None, self._where.bucket)
        return {}


# Airflow's connection type `cairn`: the form of a storage's connection, and its Test button.


STORAGE = "storage"
"""The extra with the storage that the Test button probes."""


class CairnConnectionHook(BaseHook):
    """Tests a connection of type `cairn` for Airflow's form. DAGs name the connection as `aws_conn_id`."""

    conn_name_attr = "cairn_conn_id"
    default_conn_name = "cairn_default"
    conn_type = "cairn"
    hook_name = "Cairn storage"

    def __init__(self, cairn_conn_id: str = default_conn_name) -> None:
        super().__init__()
        self.cairn_conn_id = cairn_conn_id

    def test_connection(self) -> tuple[bool, str]:
        """Probe the connection's storage with its credentials, in the calling process."""
        try:
            storage = self.get_connection(self.cairn_conn_id).extra_dejson.get(STORAGE)
            if not storage:
                return False, "the connection names no storage to be tested: fill in Storage, such as s3://lake/cairn"
            store = CheckpointStorageHook(storage, self.cairn_conn_id).open_store()
            probe(store, nonce=secrets.token_hex(8))
        except CairnError as error:
            return False, masked(str(error), environ=os.environ)
        return True, f"{store.describe()} passes the probe: its conditional writes hold"
