"""Apache's own REST catalog of Iceberg: the server of its test fixtures, over a catalog in a PostgreSQL.

The wheel of PySpark holds most of what it needs. It listens on all addresses of this machine, which it cannot be told.
"""

from __future__ import annotations

import os
from pathlib import Path

import pyspark

from ..maven_jars import JarSet
from ..postgres_jar import postgres_jar
from ..setup.java import ensure_java
from .ports import LOOPBACK
from .postgres_server import PostgresServer
from .service import Service

_ICEBERG, _JETTY = "1.11.0", "12.1.6"
_CLASS = "org.apache.iceberg.rest.RESTCatalogServer"
JARS = JarSet(
    "rest-catalog",
    packages=(
        f"org.apache.iceberg:iceberg-core:{_ICEBERG}",
        f"org.eclipse.jetty.ee10:jetty-ee10-servlet:{_JETTY}",
        f"org.eclipse.jetty.compression:jetty-compression-server:{_JETTY}",
        f"org.eclipse.jetty.compression:jetty-compression-gzip:{_JETTY}",
    ),
    excludes=(
        *("com.fasterxml.jackson.core:*", "com.google.errorprone:*", "io.airlift:*", "jakarta.servlet:*"),
        *("org.apache.avro:*", "org.apache.commons:*", "org.checkerframework:*", "org.locationtech.jts:*"),
        *("org.roaringbitmap:*", "org.slf4j:*"),
    ),
    classified=tuple(
        f"org/apache/iceberg/{name}/{_ICEBERG}/{name}-{_ICEBERG}-{classifier}.jar"
        for name, classifier in (("iceberg-core", "tests"), ("iceberg-open-api", "test-fixtures"))
    ),
)


class RestCatalog(Service):
    """The server.

    The PostgreSQL listens for Java. The warehouse is the folder of tables that are created without a location.
    """

    def __init__(self, postgres: PostgresServer, warehouse: Path) -> None:
        super().__init__("rest-catalog", None)
        self._postgres, self._warehouse = postgres, warehouse
        self.port = 0

    @property
    def url(self) -> str:
        return f"http://{LOOPBACK}:{self.port}"

    def start(self) -> None:
        """Start the server and wait until it listens."""
        of_spark = Path(pyspark.__file__).parent / "jars" / "*"
        classes = ":".join(map(str, [*JARS.jars(), postgres_jar(), of_spark]))
        java: list[str | Path] = [
            ensure_java() / "bin" / "java",
            "-Xmx256m",
            "-XX:TieredStopAtLevel=1",
            "-XX:+UseSerialGC",
        ]
        env = {
            **os.environ,
            "CATALOG_CATALOG__IMPL": "org.apache.iceberg.jdbc.JdbcCatalog",
            "CATALOG_URI": self._postgres.jdbc_url,
            "CATALOG_JDBC_SCHEMA__VERSION": "V1",
            "CATALOG_WAREHOUSE": f"file://{self._warehouse}",
        }
        # The server takes its port from its environment alone.
        self.port = self.start_listening(
            "rest-catalog",
            lambda port: ["env", f"CATALOG_REST_PORT={port}", *java, "-cp", classes, _CLASS],
            env,
        )
