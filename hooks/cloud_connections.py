"""Converts Airflow connections to the options of Google Cloud Storage and of Azure: the supported, and those refused.

The providers can turn a connection into many identities. Cairn passes one to two clients, its own and Spark's
connector, which both find the machine's or the pod's identity by themselves. A setting that only one of them would
follow, or that is a secret to be passed on, is an error that names it.
"""

from __future__ import annotations

import json
import logging
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from airflow.sdk import Connection
from airflow.sdk.log import mask_secret

from ..checkpoint.errors import InvalidConfigError
from ..storage import AzureOptions, GcsOptions

log = logging.getLogger("airflow_cairn")


@dataclass(frozen=True)
class _Kind:
    """A kind of connection."""

    cloud: str
    type: str
    """Airflow's name of it."""
    used: frozenset[str]
    """Extras that Cairn reads, and those of the provider that change nothing here."""
    secret: frozenset[str]
    other_identity: frozenset[str]
    instead: str
    """How workers and cluster get one identity."""

    def extras(self, connection: Connection, *unread: str) -> Mapping[str, Any]:
        """Check a connection, mask its secrets and return its extras.

        Args:
            connection: the connection.
            *unread: names of its fields that nothing reads.

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

    Args:
        connection: the connection.

    Returns:
        The options, which hold no credential.

    Raises:
        InvalidConfigError: the connection has another type, or an extra that would change the identity.
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

    Args:
        connection: the connection.

    Returns:
        The options, which hold no credential.

    Raises:
        InvalidConfigError: the connection has another type, or a setting that would change the identity.
    """
    extra = _AZURE.extras(connection, "password")
    host = (connection.host or "").rpartition("://")[2].partition("/")[0]
    return AzureOptions(
        endpoint_url=extra.get("endpoint_url"),
        client_id=extra.get("managed_identity_client_id"),
        tenant_id=extra.get("workload_identity_tenant_id"),
        account=host.partition(".")[0] or connection.login or None,
    )
