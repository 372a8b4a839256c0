"""A real YARN: a ResourceManager and one small NodeManager on loopback, with local files in the place of HDFS."""

from __future__ import annotations

import json
import os
import urllib.request
from collections.abc import Mapping
from pathlib import Path
from typing import Any
from xml.sax.saxutils import escape

import pyspark

from ...setup.java import ensure_java
from ...yarn_jars import yarn_jars
from ..ports import LOOPBACK, free_port
from ..processes import MARK, RealProcess
from ..service import Service

_SERVERS = "org.apache.hadoop.yarn.server"
_RM, _NM = "yarn.resourcemanager", "yarn.nodemanager"
_START_TIMEOUT_S = 90.0
_JARS = Path(pyspark.__file__).parent / "jars"
_LOGGING = """rootLogger.level = info
rootLogger.appenderRef.stderr.ref = console
appender.console.type = Console
appender.console.name = console
appender.console.target = SYSTEM_ERR
appender.console.layout.type = PatternLayout
appender.console.layout.pattern = %d{HH:mm:ss} %p %c{1}: %m%n%ex
"""


class YarnCluster(Service):
    """The two daemons and the containers that they start.

    A driver of 512 MB takes 896 of `memory_mb`, which the node gives to containers, and an executor likewise.
    """

    def __init__(self, root: Path | None = None, *, memory_mb: int = 3072) -> None:
        super().__init__("yarn", root)
        self.memory_mb = memory_mb
        self.web_port = 0

    @property
    def conf_dir(self) -> Path:
        """The folder that `spark-submit` needs as HADOOP_CONF_DIR."""
        return self.root / "conf"

    @property
    def rm_web_url(self) -> str:
        """The ResourceManager's page; its REST API stands below `/ws/v1/cluster`."""
        return f"http://{LOOPBACK}:{self.web_port}"

    @property
    def container_logs(self) -> Path:
        """Folder of containers' logs: `<application>/<container>/stderr`, `stdout`."""
        return self.root / "container-logs"

    def spark_conf(self) -> dict[str, str]:
        """Give the Spark conf that fits a node of this size, and that takes Spark's jars from where they stand."""
        return {
            "spark.yarn.jars": f"local:{_JARS}/*",
            "spark.yarn.stagingDir": f"file://{self.root}/staging",
            "spark.driver.memory": "512m",
            "spark.executor.memory": "512m",
            "spark.executor.instances": "1",
            "spark.yarn.scheduler.heartbeat.interval-ms": "500",
        }

    def start(self) -> None:
        self._write_conf()
        self._run("resourcemanager", "ResourceManager")
        node = self._run("nodemanager", "NodeManager")
        for process in self._processes.values():
            process.wait_until(
                lambda: self.running_nodes() == 1, _START_TIMEOUT_S, f"{node.name} to join {self.rm_web_url}"
            )

    def running_nodes(self) -> int:
        found = self._ask("nodes")
        return sum(node["state"] == "RUNNING" for node in _rows(found, "nodes", "node"))

    def applications(self) -> list[dict[str, Any]]:
        """Give what the ResourceManager tells about each application, oldest first: `state`, `finalStatus`, …."""
        found = _rows(self._ask("apps", must_answer=True), "apps", "app")
        return sorted(found, key=lambda app: str(app["id"]))

    def _ask(self, what: str, *, must_answer: bool = False) -> Any:
        direct = urllib.request.build_opener(urllib.request.ProxyHandler({}))
        try:
            with direct.open(f"{self.rm_web_url}/ws/v1/cluster/{what}", timeout=5) as answer:
                return json.load(answer)
        except OSError:
            if must_answer:
                raise
            return None

    def _write_conf(self) -> None:
        self.web_port = free_port()
        logging = self.root / "daemon-conf"
        for folder in (self.conf_dir, logging, self.root / "tmp"):
            folder.mkdir(parents=True, exist_ok=True)
        # Not in conf_dir: Spark ships that folder to its containers, whose logging it would change.
        (logging / "log4j2.properties").write_text(_LOGGING)
        core = {"fs.defaultFS": "file:///", "hadoop.tmp.dir": str(self.root / "tmp")}
        _write_xml(self.conf_dir / "core-site.xml", core)
        _write_xml(self.conf_dir / "yarn-site.xml", self._yarn_site())

    def _yarn_site(self) -> dict[str, str]:
        ports = [
            *(f"{_RM}.{name}.address" for name in ("scheduler", "resource-tracker", "admin")),
            *(f"{_RM}.address", f"{_NM}.address", f"{_NM}.localizer.address", f"{_NM}.webapp.address"),
        ]
        return {
            **{name: f"{LOOPBACK}:{free_port()}" for name in ports},
            f"{_RM}.hostname": LOOPBACK,
            f"{_RM}.webapp.address": f"{LOOPBACK}:{self.web_port}",
            f"{_RM}.scheduler.class": f"{_SERVERS}.resourcemanager.scheduler.fifo.FifoScheduler",
            f"{_RM}.nodemanagers.heartbeat-interval-ms": "200",
            "yarn.scheduler.minimum-allocation-mb": "256",
            f"{_NM}.hostname": LOOPBACK,
            f"{_NM}.resource.memory-mb": str(self.memory_mb),
            f"{_NM}.resource.cpu-vcores": "4",
            f"{_NM}.container-executor.class": f"{_SERVERS}.nodemanager.DefaultContainerExecutor",
            f"{_NM}.local-dirs": str(self.root / "local"),
            f"{_NM}.log-dirs": str(self.container_logs),
            f"{_NM}.vmem-check-enabled": "false",
            # A disk of a test machine may be fuller than the 90 % at which YARN takes no more containers. The node
            # looks once when it starts, even where it never does again.
            f"{_NM}.disk-health-checker.enable": "false",
            f"{_NM}.disk-health-checker.max-disk-utilization-per-disk-percentage": "100",
            # The mark: containers that outlive the node are found by it.
            f"{_NM}.env-whitelist": f"JAVA_HOME,PATH,SPARK_LOCAL_IP,SPARK_LOCAL_HOSTNAME,{MARK}",
        }

    def _run(self, name: str, daemon: str) -> RealProcess:
        java = ensure_java()
        kept = {key: value for key, value in os.environ.items() if not key.startswith(_KEPT_OUT)}
        env = {**kept, "JAVA_HOME": str(java), "SPARK_LOCAL_IP": LOOPBACK, "SPARK_LOCAL_HOSTNAME": "localhost"}
        class_path = [self.root / "daemon-conf", self.conf_dir, *yarn_jars(), _JARS / "*"]
        command: list[str | Path] = [
            java / "bin" / "java",
            *("-Xmx256m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1", f"-Djava.io.tmpdir={self.root / 'tmp'}"),
            *("-cp", os.pathsep.join(map(str, class_path)), f"{_SERVERS}.{name}.{daemon}"),
        ]
        process = RealProcess(name, command, self.root / f"{name}.log", env=env, cwd=self.root)
        self._processes[name] = process
        return process


_KEPT_OUT = ("SPARK_", "PYSPARK_", "HADOOP_", "YARN_", "PYTHON", "AWS_")
"""Variables of ours that would change what the daemons and their containers are."""


def _rows(answer: Any, outer: str, inner: str) -> list[dict[str, Any]]:
    """Take the rows out of an answer: YARN says null where there are none."""
    found: list[dict[str, Any]] = ((answer or {}).get(outer) or {}).get(inner, [])
    return found


def _write_xml(path: Path, settings: Mapping[str, str]) -> None:
    lines = [
        f"<property><name>{name}</name><value>{escape(value)}</value></property>" for name, value in settings.items()
    ]
    path.write_text("\n".join(["<configuration>", *lines, "</configuration>", ""]))
