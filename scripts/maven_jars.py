"""Jars from Maven Central that the wheel of PySpark does not hold, resolved once by Spark's Ivy into `.cache/ivy`."""

from __future__ import annotations

import json
import os
import subprocess
import tempfile
from dataclasses import dataclass
from pathlib import Path

from .setup.base import CACHE, SetupError, only_one, say
from .setup.checksums import check_jars, jar_sums
from .setup.downloads import fetch
from .setup.java import ensure_java
from .setup.venv import ensure_venv

HADOOP = "3.5.0"
"""The version of Hadoop in the wheel of PySpark; parts of Hadoop that join it must be of the same one."""

_CENTRAL = "https://repo1.maven.org/maven2"
_NOTHING_TO_DO = "print('resolved')\n"


@dataclass(frozen=True)
class JarSet:
    """Jars that are used together."""

    name: str
    """Names the folder in the cache, and the jars in messages."""
    packages: tuple[str, ...]
    """Value of `spark-submit --packages`."""
    excludes: tuple[str, ...]
    """Value of `--exclude-packages`."""
    classified: tuple[str, ...] = ()
    """Paths in Maven Central of jars with a classifier, which `--packages` cannot name."""

    @property
    def _folder(self) -> Path:
        return CACHE / "ivy" / self.name

    @property
    def _record(self) -> Path:
        return self._folder / "jars.json"

    def jars(self) -> list[Path]:
        """Give the jars, fetching them first if they are not there."""
        found = self._recorded()
        if found is None:
            with only_one():
                found = self._recorded() or self._resolve()
        return found

    @property
    def _named(self) -> list[str]:
        return [*self.packages, *self.excludes, *self.classified]

    def _recorded(self) -> list[Path] | None:
        try:
            record = json.loads(self._record.read_text())
        except FileNotFoundError:
            return None
        jars = [self._folder / "jars" / name for name in record["jars"]]
        if record["packages"] != self._named or not all(jar.is_file() for jar in jars):
            return None
        if record.get("checked") != jar_sums():
            check_jars(self.name, jars)
            self._note(jars)
        return jars

    def _note(self, jars: list[Path]) -> None:
        """Write down which jars there are, and that they were checked; by a new file, as caches may share this one."""
        record = {
            "packages": self._named,
            "jars": [jar.name for jar in jars],
            "checked": jar_sums(),
        }
        fresh = self._record.with_suffix(f".{os.getpid()}")
        fresh.write_text(json.dumps(record, indent=1))
        fresh.replace(self._record)

    def _resolve(self) -> list[Path]:
        programs = ensure_venv()
        say(f"resolving the {self.name} jars from Maven Central (once, about 30 seconds, 160 MB for all)")
        for old in (self._folder / "jars").glob("*.jar"):
            old.unlink()
        with tempfile.TemporaryDirectory(prefix="cairn-jars-") as folder:
            application = Path(folder, "nothing.py")
            application.write_text(_NOTHING_TO_DO)
            command = [
                str(programs / "spark-submit"),
                *("--master", "local[1]"),
                *("--conf", f"spark.jars.ivy={self._folder}", "--conf", "spark.ui.enabled=false"),
                *("--packages", ",".join(self.packages), "--exclude-packages", ",".join(self.excludes)),
                str(application),
            ]
            env = {
                **os.environ,
                "JAVA_HOME": str(ensure_java()),
                "SPARK_LOCAL_IP": "127.0.0.1",
                "PYSPARK_PYTHON": str(programs / "python"),
            }
            done = subprocess.run(command, env=env, cwd=folder, capture_output=True, text=True, check=False)
        jars = sorted((self._folder / "jars").glob("*.jar"))
        if done.returncode or not jars:
            reasons = (line for line in done.stderr.splitlines() if "unresolved" in line or "Exception" in line)
            raise SetupError(
                f"the {self.name} jars could not be resolved:"
                f" {next(reasons, '').strip() or f'status {done.returncode}'}."
                " Check that Maven Central can be reached, then type: make setup"
            )
        for path in self.classified:
            jars.append(self._folder / "jars" / Path(path).name)
            fetch(f"{_CENTRAL}/{path}", jars[-1])
        check_jars(self.name, jars)
        self._note(jars)
        return jars
