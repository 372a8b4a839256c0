"""Options of a server's JVM for its end and its temporary files, unless author or site say otherwise."""

from pathlib import Path

import pytest

from airflow_cairn.hooks.session_server import jvm_conf
from airflow_cairn.hooks.spark_site import SparkSite

OPTIONS = "spark.driver.extraJavaOptions"


def site(folder: Path, defaults: str = "", **environ: str) -> SparkSite:
    (folder / "spark-defaults.conf").write_text(defaults)
    return SparkSite({"SPARK_CONF_DIR": str(folder), **environ})


def test_what_author_or_site_give_their_jvms_stays(tmp_path: Path) -> None:
    end = "-XX:+ExitOnOutOfMemoryError"
    assert jvm_conf({}, site(tmp_path), None) == {OPTIONS: end}
    assert jvm_conf({}, site(tmp_path, f"{OPTIONS} -Xss4m\n"), None) == {OPTIONS: f"-Xss4m {end}"}
    assert jvm_conf({OPTIONS: "-Da=b"}, site(tmp_path, f"{OPTIONS} -Xss4m\n"), None) == {OPTIONS: f"-Da=b {end}"}


@pytest.mark.parametrize("option", ["-XX:-ExitOnOutOfMemoryError", "-XX:OnOutOfMemoryError='kill -9 %p'"])
def test_what_they_say_of_a_full_heap_counts(option: str, tmp_path: Path) -> None:
    assert jvm_conf({OPTIONS: option}, site(tmp_path), None) == {}
    assert jvm_conf({}, site(tmp_path, f"{OPTIONS} {option}\n"), None) == {}


def test_files_of_a_server_lie_in_its_folder(tmp_path: Path) -> None:
    end = "-XX:+ExitOnOutOfMemoryError"
    assert jvm_conf({}, site(tmp_path), Path("/tmp/s1")) == {OPTIONS: f"{end} -Djava.io.tmpdir=/tmp/s1"}
    assert jvm_conf({}, site(tmp_path), Path("/a b")) == {OPTIONS: f"{end} '-Djava.io.tmpdir=/a b'"}


@pytest.mark.parametrize(
    ("conf", "defaults", "environ"),
    [
        ({OPTIONS: "-Djava.io.tmpdir=/big"}, "", {}),
        ({"spark.driver.defaultJavaOptions": "-Djava.io.tmpdir=/big"}, "", {}),
        ({}, f"{OPTIONS} -Djava.io.tmpdir=/big", {}),
        ({}, "", {"JAVA_TOOL_OPTIONS": "-Djava.io.tmpdir=/big"}),
        ({}, "", {"SPARK_SUBMIT_OPTS": "-Djava.io.tmpdir=/big"}),
    ],
)
def test_a_folder_that_author_or_site_name_counts(
    conf: dict[str, str], defaults: str, environ: dict[str, str], tmp_path: Path
) -> None:
    [options] = jvm_conf(conf, site(tmp_path, defaults, **environ), Path("/tmp/s1")).values()
    assert "/tmp/s1" not in options
