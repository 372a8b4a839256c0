"""What this machine has for a Spark driver, found where `spark-submit` finds it."""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

from ...hooks.drivers.spark_site import SparkSite

_JAVA = re.compile(r'version "(\d[^"]*)"')
_OF_PYTHON = "import sys; print('%d.%d' % sys.version_info[:2])"
_TIMEOUT_S = 120

Run = Callable[[list[str]], str]
"""Runs a command and gives what it prints, on either output; empty where it cannot be run."""


@dataclass(frozen=True, slots=True)
class SparkFacts:
    """What a driver in client mode would be started with."""

    program: str | None
    """The spark-submit; None: there is none."""
    home: Path | None
    """Of that Spark; None: not found."""
    jars: frozenset[str]
    """Names of the files in its folder of jars."""
    conf: Mapping[str, str]
    """The site's defaults, and over them what the caller says that stages are given."""
    java: int | None
    """Its major version; None: there is none."""
    python: str
    """The version of this process, such as `3.12`."""
    driver_python: str | None
    """The version of the driver's Python; None: it is not on this machine."""
    executor_python: str | None
    packages: Mapping[str, str] = field(default_factory=dict)
    """Versions of the installed distributions `pyspark` and `pyspark-client`, as far as they are there."""

    @property
    def spark(self) -> str | None:
        """The version of Spark, by its jars; those of Spark 3.5 are mostly for Scala 2.12."""
        return self.version_of("spark-core_2.13-") or self.version_of("spark-core_2.12-")

    def version_of(self, prefix: str) -> str | None:
        """Give the version in the name of a jar that begins so; None where there is none."""
        found = next((name for name in sorted(self.jars) if name.startswith(prefix)), None)
        return found and found.removeprefix(prefix).removesuffix(".jar")

    def is_given(self, artifact: str) -> bool:
        """Tell whether a jar is among Spark's own, or is given by the conf."""
        given = " ".join(self.conf.get(name, "") for name in ("spark.jars", "spark.jars.packages"))
        return any(name.startswith(artifact) for name in self.jars) or artifact in given


def gather(
    environ: Mapping[str, str],
    conf: Mapping[str, str] | None = None,
    *,
    binary: str = "spark-submit",
    run: Run | None = None,
) -> SparkFacts:
    """Look at this machine: starts Java and each Python once, to ask for their versions.

    Args:
        environ: of the process that would start spark-submit.
        conf: what stages are given beside the site's defaults.
        binary: the program, or its path.
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
    """Give the version of a distribution in this Python; None where it is not installed."""
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
    """Give the major version; before Java 9 the first number was a 1.

    Args:
        version: such as `17.0.12` or `1.8.0_412`.
    """
    numbers = [int(each) for each in re.findall(r"\d+", version)[:2]]
    return numbers[1] if numbers[0] == 1 and len(numbers) > 1 else numbers[0]
