"""A real Spark Connect server from the pyspark wheel, on loopback."""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from pathlib import Path

from ...setup.java import ensure_java
from ...setup.venv import VENV
from ..ports import LOOPBACK
from ..processes import RealProcess
from ..service import Service
from .start import small_conf

_CLASS = "org.apache.spark.sql.connect.service.SparkConnectServer"
_STARTED = re.compile(r"Spark Connect server started at: \S+:([0-9]+)")
_START_TIMEOUT_S = 600.0


class ConnectServer(Service):
    """The server; it takes a port that is free and tells it in its log.

    All its sessions share what `env` has: the token, credentials of S3. With `few_rows` it starts with the conf for
    queries over a few rows, without as Spark is by itself.
    """

    def __init__(
        self,
        conf: Mapping[str, str] | None = None,
        root: Path | None = None,
        *,
        env: Mapping[str, str] | None = None,
        programs: Path = VENV / "bin",
        few_rows: bool = True,
    ) -> None:
        super().__init__("connect", root)
        self._programs = programs
        self.port = 0
        self._conf = {**(small_conf() if few_rows else {}), **(conf or {})}
        self._extra_env = dict(env or {})

    @property
    def process(self) -> RealProcess:
        return self._processes["server"]

    def start(self) -> None:
        conf = {
            "spark.connect.grpc.binding.address": "localhost",
            "spark.connect.grpc.binding.port": "0",
            "spark.driver.host": LOOPBACK,
            "spark.driver.bindAddress": LOOPBACK,
            "spark.ui.enabled": "false",
            "spark.sql.shuffle.partitions": "3",
            "spark.sql.session.timeZone": "UTC",
            "spark.local.dir": str(self.root / "scratch"),
            **self._conf,
        }
        words = [word for key, value in conf.items() for word in ("--conf", f"{key}={value}")]
        logging = self.root / "log4j2.properties"
        logging.write_text(_LOGGING)
        kept = {key: value for key, value in os.environ.items() if not key.startswith(("SPARK_", "PYSPARK_"))}
        env = {
            **kept,
            "JAVA_HOME": str(ensure_java()),
            "SPARK_CONF_DIR": str(self.root),
            "SPARK_LOCAL_IP": LOOPBACK,
            "PYSPARK_PYTHON": str(self._programs / "python"),
            **self._extra_env,
        }
        log = self.root / "server.log"
        submit: list[str | Path] = [self._programs / "spark-submit", "--master", "local[2]", *words]
        command = [*submit, "--class", _CLASS, "spark-internal"]
        self._processes["server"] = RealProcess("server", command, log, env=env, cwd=self.root)

        def port() -> int | None:
            found = _STARTED.search(log.read_text(errors="replace"))
            return int(found[1]) if found else None

        self.port = self.process.wait_until(port, _START_TIMEOUT_S, "the Spark Connect server")


# The server tells its port at INFO.
_LOGGING = """
rootLogger.level = warn
rootLogger.appenderRef.stderr.ref = stderr
appender.stderr.type = Console
appender.stderr.name = stderr
appender.stderr.target = SYSTEM_ERR
appender.stderr.layout.type = PatternLayout
appender.stderr.layout.pattern = %d{HH:mm:ss.SSS} %p %c{1}: %m%n
logger.connect.name = org.apache.spark.sql.connect
logger.connect.level = info
"""
