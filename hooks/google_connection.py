"""Converts an Airflow connection to the options of Google Cloud Storage: the supported settings, and those refused.

The google provider can turn a connection into many identities. Cairn passes one to two clients, its own and Spark's
connector, which both find application default credentials by themselves. A setting that only one of them would follow,
or that is a secret to be passed on, is an error that names it.
"""

from __future__ import annotations

import json
import logging
from collections.abc import Mapping
from typing import Any

from airflow.sdk import Connection
from airflow.sdk.log import mask_secret

from ..checkpoint.errors import InvalidConfigError
from ..storage import GcsOptions

log = logging.getLogger("airflow_cairn")

TYPES = ("google_cloud_platform", "cairn", "generic")
"""Types of a connection to Google Cloud Storage."""

_USED = frozenset({"key_path", "endpoint_url", "storage", "project", "num_retries", "scope"})
"""Extras that Cairn reads, and those of the provider that change nothing here."""
_SECRET = frozenset({"keyfile_dict", "credential_config_file", "client_secret"})
_OTHER_IDENTITY = frozenset({
    "key_secret_name", "key_secret_project_id", "impersonation_chain", "idp_issuer_url", "idp_extra_parameters",
    "client_id", "is_anonymous", "quota_project_id",
})  # fmt: skip
_PREFIX = "extra__google_cloud_platform__"
"""Airflow's older name of each extra of this type."""


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
    where = {"aws_conn_id": connection.conn_id}
    if connection.conn_type not in TYPES:
        raise InvalidConfigError(
            "the connection is of another type, and the storage is on Google Cloud; name one of type "
            "`google_cloud_platform`, `cairn` or `generic`, or none to use application default credentials",
            **where,
            expected=", ".join(TYPES),
            found=connection.conn_type,
        )
    extra: Mapping[str, Any] = {
        name.removeprefix(_PREFIX): value for name, value in connection.extra_dejson.items() if value
    }
    for name in sorted(_SECRET & set(extra)):
        mask_secret(_read(extra[name]))
    if connection.password:
        mask_secret(connection.password)
    for name in sorted((_SECRET | _OTHER_IDENTITY) & set(extra)):
        raise InvalidConfigError(
            f"the extra {name} gives this process an identity that Spark's connector would not have. Remove it and let "
            "the workers and the cluster have a service account themselves (workload identity), or put the key file on "
            "the machines and give key_path",
            **where,
            extra=name,
        )
    if connection.login or connection.password or connection.host:
        raise InvalidConfigError(
            "the connection has a host, login or password, which Google Cloud Storage does not use. Remove them; a key "
            "file is named by the extra key_path",
            **where,
        )
    unused = sorted(set(extra) - _USED)
    if unused:
        log.warning("Connection %s: these extras are not used by Cairn: %s.", connection.conn_id, ", ".join(unused))
    return GcsOptions(endpoint_url=extra.get("endpoint_url"), key_path=extra.get("key_path"))


def _read(secret: Any) -> Any:
    """Read a secret that is JSON, so that each value in it is masked by itself."""
    try:
        return {"secret": json.loads(secret)} if isinstance(secret, str) else {"secret": secret}
    except ValueError:
        return secret
