"""Gathers a machine's equipment for a Spark driver, from the places where `spark-submit` looks."""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

from ...hooks.spark_site import SparkSite

_JAVA = re.compile(r'version "(\d[^"]*)"')
_OF_PYTHON = "import sys; print('%d.%d' % sys.version_info[:2])"
_TIMEOUT_S = 120

Run = Callable[[list[str]], str]
"""Runs a command and returns its output, stdout and stderr; empty if it cannot be run."""


@dataclass(frozen=True, slots=True)
class SparkFacts:
    """The equipment with which a driver in client mode would start."""

    program: str | None
    """Path of spark-submit; None: not found."""
    home: Path | None
    """Home of that Spark; None: not found."""
    jars: frozenset[str]
    """Names of the files in its folder of jars."""
    conf: Mapping[str, str]
    """The site's defaults, overridden by the conf that the caller gives for the stages."""
    java: int | None
    """Major version of Java; None: not found."""
    python: str
    """Version of this process's Python, such as `3.12`."""
    driver_python: str | None
    """Version of the driver's Python; None: it is not on this machine."""
    executor_python: str | None
    packages: Mapping[str, str] = field(default_factory=dict)
    """Versions of the distributions `pyspark` and `pyspark-client`, if installed."""

    @property
    def spark(self) -> str | None:
        """The version of Spark, from its jars; those of Spark 3.5 are usually for Scala 2.12."""
        return self.version_of("spark-core_2.13-") or self.version_of("spark-core_2.12-")

    def version_of(self, prefix: str) -> str | None:
        """Return the version in the name of the jar with this prefix; None if there is none."""
        found = next((name for name in sorted(self.jars) if name.startswith(prefix)), None)
        return found and found.removeprefix(prefix).removesuffix(".jar")

    def is_given(self, artifact: str) -> bool:
        """Return whether a jar is among Spark's own, or comes from the conf."""
        given = " ".join(self.conf.get(name, "") for name in ("spark.jars", "spark.jars.packages"))
        return any(name.startswith(artifact) for name in self.jars) or artifact in given


def gather(
    environ: Mapping[str, str],
    conf: Mapping[str, str] | None = None,
    *,
    binary: str = "spark-submit",
    run: Run | None = None,
) -> SparkFacts:
    """Gather this machine's facts; starts Java and each Python once, to ask for their versions.

    Args:
        environ: the environment of the process that would start spark-submit.
        conf: conf that the stages get besides the site's defaults.
        binary: the program's name or path.
        run: starts a command.
    """
    run = run or _run
    site = SparkSite(environ, binary)
    whole = {**site.conf, **(conf or {})}
    home = next((each for each in site.homes() if (each / "jars").is_dir()), None)
    java = str(Path(environ["JAVA_HOME"], "bin", "java")) if environ.get("JAVA_HOME") else "java"
    workers = whole.get("spark.pyspark.python") or environ.get("PYSPARK_PYTHON") or "python3"
    drivers = (
        whole.get("spark.pyspark.driver.python")
        or whole.get("spark.pyspark.python")
        or environ.get("PYSPARK_DRIVER_PYTHON")
        or workers
    )
    return SparkFacts(
        program=shutil.which(binary, path=environ.get("PATH")),
        home=home,
        jars=frozenset(path.name for path in (home / "jars").glob("*.jar")) if home else frozenset(),
        conf=whole,
        java=java_major(told[1]) if (told := _JAVA.search(run([java, "-version"]))) else None,
        python="{}.{}".format(*sys.version_info[:2]),
        driver_python=run([drivers, "-c", _OF_PYTHON]).strip() or None,
        executor_python=run([workers, "-c", _OF_PYTHON]).strip() or None,
        packages={name: found for name in ("pyspark", "pyspark-client") if (found := installed(name))},
    )


def installed(name: str) -> str | None:
    """Return the version of a distribution in this Python; None if it is not installed."""
    try:
        return version(name)
    except PackageNotFoundError:
        return None


def _run(command: list[str]) -> str:
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=_TIMEOUT_S, check=False)
    except (OSError, subprocess.TimeoutExpired):
        return ""
    return done.stdout + done.stderr if done.returncode == 0 else ""


def java_major(version: str) -> int:
    """Return the major version; before Java 9 the first number was 1.

    Args:
        version: the full version, such as `17.0.12` or `1.8.0_412`.
    """
    numbers = [int(each) for each in re.findall(r"\d+", version)[:2]]
    return numbers[1] if numbers[0] == 1 and len(numbers) > 1 else numbers[0]
