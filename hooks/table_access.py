"""The sinks of a group's tables, the settings of a catalog or storage from an Airflow connection, and its Test."""

from __future__ import annotations

import os
from collections.abc import Mapping
from datetime import timedelta
from functools import partial

from airflow.sdk import BaseHook
from airflow.sdk.log import mask_secret

from ..checkpoint.health.findings import Examination
from ..checkpoint.masking import masked, one_line
from ..tables.branches import BranchSink
from ..tables.contract import STAGING, Access
from ..tables.declared import Declared, IcebergTable, PostgresTable
from ..tables.health import examine_tables
from ..tables.sink import LISTING, TableSink
from .storage_connections import s3_options_of

_LIBPQ = ("sslmode", "sslrootcert", "sslcert", "sslkey", "options", "service", "application_name", "connect_timeout")
"""Extras of a connection that the database's library takes."""

CATALOG = "catalog"
"""The extra with the name of the catalog that the Test button asks."""


def sinks_of(tables: Mapping[str, Declared], within: timedelta) -> tuple[TableSink, ...]:
    """Return a sink for each table; connections are fetched when a sink opens its table."""
    found = {
        name: (BranchSink if isinstance(table, IcebergTable) and table.branch else TableSink)(
            name, table, _access_to(table), within=within
        )
        for name, table in tables.items()
    }
    catalogs: dict[tuple[str | None, str], list[TableSink]] = {}
    for name, table in tables.items():
        if isinstance(table, IcebergTable) and not table.branch:
            catalogs.setdefault((table.conn_id, table.parts[0]), []).append(found[name])
    for together in catalogs.values():
        for sink in together:
            sink.beside = tuple(each for each in together if each is not sink)
    return tuple(found.values())


def examined(tables: Mapping[str, Declared], *, write: bool) -> Examination:
    """Check tables with the credentials of their connections; see `examine_tables`."""
    return examine_tables(sinks_of(tables, LISTING), write=write)


def _access_to(table: Declared) -> Access:
    if isinstance(table, PostgresTable):
        return partial(postgres_settings, staging_conn_id=table.staging_conn_id)
    return catalog_properties if isinstance(table, IcebergTable) else s3_options


def catalog_properties(conn_id: str) -> Mapping[str, str]:
    """Return the properties of an Iceberg catalog: the connection's extras, its host and its login."""
    connection = BaseHook.get_connection(conn_id)
    extras = connection.extra_dejson.items()  # the form leaves an empty field as null
    found = {name: str(value) for name, value in extras if value not in (None, "") and name != CATALOG}
    if connection.host:
        found.setdefault("uri", connection.host)
    if connection.password:
        mask_secret(connection.password)
        found.setdefault("credential", f"{connection.login or ''}:{connection.password}".removeprefix(":"))
    return found


def postgres_settings(conn_id: str, *, staging_conn_id: str | None) -> Mapping[str, str]:
    """Return psycopg's parameters, and the access to the folder of staged rows."""
    connection = BaseHook.get_connection(conn_id)
    if connection.password:
        mask_secret(connection.password)
    named = {
        "host": connection.host,
        "port": connection.port,
        "dbname": connection.schema,
        "user": connection.login,
        "password": connection.password,
        **{name: value for name, value in connection.extra_dejson.items() if name in _LIBPQ},
    }
    staging = s3_options(staging_conn_id) if staging_conn_id else {}
    return {
        **{name: str(value) for name, value in named.items() if value not in (None, "")},
        **{f"{STAGING}{name}": value for name, value in staging.items()},
    }


def s3_options(conn_id: str) -> Mapping[str, str]:
    """Return the options by which a library reaches S3."""
    s3 = s3_options_of(BaseHook.get_connection(conn_id))
    options = {
        "AWS_ACCESS_KEY_ID": s3.access_key,
        "AWS_SECRET_ACCESS_KEY": s3.secret_key,
        "AWS_SESSION_TOKEN": s3.session_token,
        "AWS_REGION": s3.region,
        "AWS_ENDPOINT_URL": s3.endpoint_url,
        "AWS_ALLOW_HTTP": "true" if (s3.endpoint_url or "").startswith("http:") else None,
    }
    return {name: value for name, value in options.items() if value is not None}


class IcebergCatalogHook(BaseHook):
    """Tests a connection of type `cairn_iceberg` for Airflow's form. DAGs name it as a table's `conn_id`."""

    conn_name_attr = "cairn_iceberg_conn_id"
    default_conn_name = "cairn_iceberg_default"
    conn_type = "cairn_iceberg"
    hook_name = "Cairn Iceberg catalog"

    def __init__(self, cairn_iceberg_conn_id: str = default_conn_name) -> None:
        super().__init__()
        self.cairn_iceberg_conn_id = cairn_iceberg_conn_id

    def test_connection(self) -> tuple[bool, str]:
        """Ask the catalog for its namespaces, in the calling process; nothing is written."""
        name = self.get_connection(self.cairn_iceberg_conn_id).extra_dejson.get(CATALOG)
        if not name:
            return (
                False,
                "the connection names no catalog: fill in Catalog, such as lake for the table lake.sales.orders",
            )
        properties = catalog_properties(self.cairn_iceberg_conn_id)
        try:
            from ..tables.iceberg_catalog import answer_of

            return True, answer_of(name, properties)
        except ImportError as missing:
            mend = "pip install 'airflow-cairn[iceberg]' where Airflow's API server runs"
            return False, f"{missing}: {mend}"
        except Exception as failed:  # noqa: BLE001 - of a library: whatever it raises
            said = masked(one_line(f"{type(failed).__name__}: {failed}"), environ=os.environ)
            mend = "Check type, URI, login and password, and whether Airflow's API server reaches the catalog"
            return False, f"the catalog {name} does not answer: {said.rstrip('.')}. {mend}"
