"""Submits an application as an operator would, from an environment that has PySpark and nothing else."""

from __future__ import annotations

import json
import os
import subprocess
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from airflow_cairn.spark.handover.runtime_zip import runtime_zip
from scripts.harness.spark.start import fast_conf
from scripts.setup.java import ensure_java


class Submitter:
    """A `spark-submit`, the runtime zip, and a folder to work in.

    Args:
        programs: the environment's.
        folder: empty.
        bare: whether the driver has no packages, as on a cluster where nothing was installed; S3 needs boto3.
    """

    def __init__(self, programs: Path, folder: Path, *, bare: bool = True) -> None:
        self.programs = programs
        self.folder = folder
        self.zip = runtime_zip(folder)
        where: list[str | Path] = [programs / "python", "-c", "import pyspark; print(*pyspark.__path__)"]
        self.spark_home = subprocess.run(where, capture_output=True, text=True, check=True, cwd=folder).stdout.strip()
        self.python = programs / "python"
        if bare:
            # Without site-packages: PySpark comes from its own home, Cairn from the zip, and nothing else is there.
            self.python = folder / "bare-python"
            self.python.write_text(f'#!/bin/sh\nexec "{programs / "python"}" -S "$@"\n')
            self.python.chmod(0o755)

    def submit(
        self, application: Path, conf: Mapping[str, str], *arguments: str, env: Mapping[str, str] | None = None
    ) -> subprocess.CompletedProcess[str]:
        """Run an application to its end.

        Args:
            application: its file.
            conf: more conf.
            arguments: the application's.
            env: more variables, such as credentials.
        """
        settings = {"spark.ui.enabled": "false", "spark.driver.host": "127.0.0.1", **fast_conf(), **conf}
        words = [word for key, value in settings.items() for word in ("--conf", f"{key}={value}")]
        environ = {name: value for name, value in os.environ.items() if not name.startswith(("PYTHON", "PYSPARK_"))}
        return subprocess.run(
            [
                str(self.programs / "spark-submit"),
                *("--master", "local[2]", "--py-files", str(self.zip)),
                *words,
                str(application),
                *arguments,
            ],
            env={
                **environ,
                "JAVA_HOME": str(ensure_java()),
                "SPARK_HOME": self.spark_home,
                "SPARK_LOCAL_IP": "127.0.0.1",
                "SPARK_LOCAL_HOSTNAME": "localhost",
                "PYSPARK_PYTHON": str(self.python),
                **(env or {}),
            },
            cwd=self.folder,
            capture_output=True,
            text=True,
            check=False,
            timeout=600,
        )


def found(done: subprocess.CompletedProcess[str]) -> dict[str, Any]:
    """Give what an application printed that has ended well."""
    assert done.returncode == 0, said(done)
    [line] = [line for line in done.stdout.splitlines() if line.startswith("FOUND ")]
    result: dict[str, Any] = json.loads(line.removeprefix("FOUND "))
    return result


def said(done: subprocess.CompletedProcess[str]) -> str:
    """Give the end of what an application and its Spark have said, without Spark's notes."""
    return "\n".join(line for line in (done.stdout + done.stderr).splitlines() if " INFO " not in line)[-4000:]
