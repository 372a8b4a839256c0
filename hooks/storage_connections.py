"""Converts an Airflow connection to the options of a store: the supported settings, and those refused by name.

Airflow's providers can turn a connection into another identity (roles, profiles, federation). Cairn passes one identity
to two clients, its own and Spark's connector, and does not guess: a setting that only one of them would follow, or that
is a secret to be passed on, is an error that names it.
"""

from __future__ import annotations

import json
import logging
from collections.abc import Mapping
from typing import Any

from airflow.sdk import Connection
from airflow.sdk.exceptions import AirflowNotFoundException
from airflow.sdk.log import mask_secret

from ..checkpoint.errors import InvalidConfigError
from ..storage import AzureOptions, GcsOptions, S3Options
from ..storage.records import dataclass

log = logging.getLogger("airflow_cairn")

HEADERS = ("request_payer", "server_side_encryption", "sse_kms_key_id", "expected_bucket_owner")
"""Extras for headers that the bucket requires."""

USED = frozenset(
    {
        "aws_access_key_id",
        "aws_secret_access_key",
        "aws_session_token",
        "region_name",
        "endpoint_url",
        "service_config",
        "storage",
        *HEADERS,
    }
)

_OTHER_IDENTITY = frozenset(
    {
        "role_arn",
        "external_id",
        "profile_name",
        "session_kwargs",
        "aws_account_id",
        "aws_iam_role",
        "s3_config_file",
        "s3_config_format",
        "credential_process",
    }
)
_OTHER_CLIENT = frozenset({"config_kwargs", "botocore_config", "verify", "host"})


TYPES = ("aws", "cairn", "generic")
"""Types of a connection to S3. Airflow's form has `generic` if no provider brings `aws`; `cairn` is our own."""


def s3_options_of(connection: Connection) -> S3Options:
    """Read a connection to S3.

    The key pair is login and password, or the extras `aws_access_key_id` and `aws_secret_access_key`; without one,
    boto3's own chain finds the credentials. The endpoint is `service_config.s3.endpoint_url`, else `endpoint_url`.

    Raises:
        InvalidConfigError: the connection has another type, or an extra that would change the identity.
    """
    if connection.conn_type not in TYPES:
        raise InvalidConfigError(
            "the connection is of another type; name one of type `aws`, `cairn` or `generic`, or none to use "
            "boto3's own chain",
            aws_conn_id=connection.conn_id,
            expected=", ".join(TYPES),
            found=connection.conn_type,
        )
    extra: Mapping[str, Any] = connection.extra_dejson
    _refuse(connection, extra)
    service = _s3_service(connection, extra)
    access_key = connection.login or extra.get("aws_access_key_id") or None
    secret_key = connection.password or extra.get("aws_secret_access_key") or None
    session_token = extra.get("aws_session_token") or None
    for secret in (access_key, secret_key, session_token):
        if secret:
            mask_secret(secret)
    return S3Options(
        endpoint_url=service.get("endpoint_url") or extra.get("endpoint_url") or None,
        region=extra.get("region_name") or None,
        access_key=access_key,
        secret_key=secret_key,
        session_token=session_token,
        **{name: str(extra[name]) for name in HEADERS if extra.get(name) not in (None, "")},  # type: ignore[arg-type]
    )


def connection_on_a_shell(conn_id: str) -> Connection:
    """Find a connection outside a task: in the environment, a secrets backend, or Airflow's own database.

    Raises:
        InvalidConfigError: this machine finds no connection with this id.
    """
    from airflow.models.connection import Connection as StoredConnection  # with the ORM, which no task needs

    try:
        found = StoredConnection.get_connection_from_secrets(conn_id)
    except AirflowNotFoundException as error:
        raise InvalidConfigError(
            "Airflow has no such connection, as far as this machine can see. Type `airflow connections list` where "
            f"Airflow's database can be reached, or set AIRFLOW_CONN_{conn_id.upper()}",
            conn_id=conn_id,
        ) from error
    return Connection(
        conn_id=conn_id,
        conn_type=found.conn_type,
        host=found.host,
        login=found.login,
        password=found.password,
        extra=found.extra,
    )


def _refuse(connection: Connection, extra: Mapping[str, Any]) -> None:
    if connection.host:
        raise InvalidConfigError(
            "the connection names a host, which is not read; put the endpoint into the extra `endpoint_url`",
            aws_conn_id=connection.conn_id,
        )
    for name in sorted(extra):
        if name in _OTHER_IDENTITY or name.startswith("assume_role"):
            raise InvalidConfigError(
                f"the extra {name} gives boto3 another identity than Spark's s3a. Remove it and give the key pair "
                "(login and password, aws_session_token for temporary ones), or use aws_conn_id=None and let the "
                "worker and the cluster have that identity themselves",
                aws_conn_id=connection.conn_id,
                extra=name,
            )
        if name in _OTHER_CLIENT and extra[name] not in (None, "", True, {}):
            raise InvalidConfigError(
                f"the extra {name} would change how boto3 speaks to the store and Spark's s3a would not follow. Remove "
                "it; settings of s3a go into the operator's conf (spark.hadoop.fs.s3a.…)",
                aws_conn_id=connection.conn_id,
                extra=name,
            )
    unused = sorted(set(extra) - USED - _OTHER_CLIENT)
    if unused:
        log.warning("Connection %s: these extras are not used by Cairn: %s", connection.conn_id, ", ".join(unused))


def _s3_service(connection: Connection, extra: Mapping[str, Any]) -> Mapping[str, Any]:
    services = extra.get("service_config") or {}
    service = services.get("s3") or {} if isinstance(services, Mapping) else None
    if not isinstance(service, Mapping):
        raise InvalidConfigError(
            'the extra service_config is not of the form {"s3": {"endpoint_url": "https://…"}}',
            aws_conn_id=connection.conn_id,
        )
    return service


@dataclass(frozen=True)
class _Kind:
    cloud: str
    type: str
    used: frozenset[str]
    """Extras that Cairn reads, and those of the provider that change nothing here."""
    secret: frozenset[str]
    other_identity: frozenset[str]
    instead: str
    """The way to give workers and cluster one identity."""

    def extras(self, connection: Connection, *unread: str) -> Mapping[str, Any]:
        """Check a connection, mask its secrets and return its extras; nothing reads the fields `unread`.

        Raises:
            InvalidConfigError: another type, or a setting that would change the identity.
        """
        types = (self.type, "cairn", "generic")
        where = {"aws_conn_id": connection.conn_id}
        if connection.conn_type not in types:
            raise InvalidConfigError(
                f"the connection is of another type, and the storage is on {self.cloud}; name one of type "
                f"`{self.type}`, `cairn` or `generic`, or none to use the identity that is found by itself",
                **where,
                expected=", ".join(types),
                found=connection.conn_type,
            )
        extra: Mapping[str, Any] = {
            # Airflow's older name of an extra
            name.removeprefix(f"extra__{self.type}__"): value
            for name, value in connection.extra_dejson.items()
            if value
        }
        for name in sorted(self.secret & set(extra)):
            mask_secret(_read(extra[name]))
        if connection.password:
            mask_secret(connection.password)
        for name in sorted((self.secret | self.other_identity) & set(extra)):
            raise InvalidConfigError(
                f"the extra {name} gives this process an identity that Spark's connector would not have. Remove it and "
                f"let the workers and the cluster have {self.instead}",
                **where,
                extra=name,
            )
        given = [name for name in unread if getattr(connection, name)]
        if given:
            raise InvalidConfigError(
                f"Cairn does not use {' and '.join(given)} of a connection to {self.cloud}. Remove that, and "
                f"let the workers and the cluster have {self.instead}",
                **where,
            )
        unused = sorted(set(extra) - self.used)
        if unused:
            log.warning("Connection %s: these extras are not used by Cairn: %s.", connection.conn_id, ", ".join(unused))
        return extra


def _read(secret: Any) -> Any:
    """Read a secret that is JSON, so that each value in it is masked by itself."""
    try:
        return {"secret": json.loads(secret)} if isinstance(secret, str) else {"secret": secret}
    except ValueError:
        return secret


_GOOGLE = _Kind(
    "Google Cloud",
    "google_cloud_platform",
    used=frozenset({"key_path", "endpoint_url", "storage", "project", "num_retries", "scope"}),
    secret=frozenset({"keyfile_dict", "credential_config_file", "client_secret"}),
    other_identity=frozenset({
        "key_secret_name", "key_secret_project_id", "impersonation_chain", "idp_issuer_url", "idp_extra_parameters",
        "client_id", "is_anonymous", "quota_project_id",
    }),
    instead=(
        "a service account themselves (workload identity), or put the key file on the machines and give the extra "
        "key_path"
    ),
)  # fmt: skip


def gcs_options_of(connection: Connection) -> GcsOptions:
    """Read a connection to Google Cloud Storage.

    The extra `key_path` names a service account's key on the worker; without it, application default credentials are
    used. The extra `endpoint_url` names an emulator or a private endpoint.
    """
    extra = _GOOGLE.extras(connection, "host", "login", "password")
    return GcsOptions(endpoint_url=extra.get("endpoint_url"), key_path=extra.get("key_path"))


_AZURE = _Kind(
    "Azure",
    "wasb",
    used=frozenset({"managed_identity_client_id", "workload_identity_tenant_id", "endpoint_url", "storage"}),
    secret=frozenset({"connection_string", "shared_access_key", "account_key", "sas_token"}),
    other_identity=frozenset({"tenant_id", "client_secret_auth_config", "credential"}),
    instead=(
        "a managed identity (the extra managed_identity_client_id names one of several) or a workload identity (named "
        "by managed_identity_client_id and workload_identity_tenant_id)"
    ),
)


def azure_options_of(connection: Connection) -> AzureOptions:
    """Read a connection to Azure Blob Storage.

    Host (`https://account.blob.core.windows.net`) or login name the account, which must be the storage's. The extras
    `managed_identity_client_id` and `workload_identity_tenant_id` name an identity, `endpoint_url` an emulator.
    """
    extra = _AZURE.extras(connection, "password")
    host = (connection.host or "").rpartition("://")[2].partition("/")[0]
    return AzureOptions(
        endpoint_url=extra.get("endpoint_url"),
        client_id=extra.get("managed_identity_client_id"),
        tenant_id=extra.get("workload_identity_tenant_id"),
        account=host.partition(".")[0] or connection.login or None,
    )
