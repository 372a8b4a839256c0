"""What a server's JVM does when its heap is full: it ends, unless author or site say otherwise."""

from __future__ import annotations

from pathlib import Path

import pytest

from airflow_cairn.hooks.drivers.spark_site import SparkSite
from airflow_cairn.hooks.session_server import ending_out_of_memory

OPTIONS = "spark.driver.extraJavaOptions"


def site(folder: Path, defaults: str = "") -> SparkSite:
    (folder / "spark-defaults.conf").write_text(defaults)
    return SparkSite({"SPARK_CONF_DIR": str(folder)})


def test_what_author_or_site_give_their_jvms_stays(tmp_path: Path) -> None:
    end = "-XX:+ExitOnOutOfMemoryError"
    assert ending_out_of_memory({}, site(tmp_path)) == {OPTIONS: end}
    assert ending_out_of_memory({}, site(tmp_path, f"{OPTIONS} -Xss4m\n")) == {OPTIONS: f"-Xss4m {end}"}
    assert ending_out_of_memory({OPTIONS: "-Da=b"}, site(tmp_path, f"{OPTIONS} -Xss4m\n")) == {OPTIONS: f"-Da=b {end}"}


@pytest.mark.parametrize("option", ["-XX:-ExitOnOutOfMemoryError", "-XX:OnOutOfMemoryError='kill -9 %p'"])
def test_what_they_say_of_a_full_heap_counts(option: str, tmp_path: Path) -> None:
    assert ending_out_of_memory({OPTIONS: option}, site(tmp_path)) == {}
    assert ending_out_of_memory({}, site(tmp_path, f"{OPTIONS} {option}\n")) == {}
