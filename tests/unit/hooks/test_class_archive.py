"""Archive of classes from which drivers start, unless author or site say otherwise."""

from pathlib import Path

import pytest

from airflow_cairn.hooks import class_archive
from airflow_cairn.hooks.class_archive import DEFAULTS, EXTRA, FILE, class_archive_conf, lacks_archive
from airflow_cairn.hooks.spark_site import SparkSite


@pytest.fixture
def home(tmp_path: Path) -> Path:
    """A Spark with an archive."""
    (tmp_path / "jars").mkdir()
    (tmp_path / "conf").mkdir()
    (tmp_path / FILE).touch()
    return tmp_path


def conf_of(home: Path, conf: dict[str, str] | None = None, **environ: str) -> dict[str, str]:
    return class_archive_conf(conf or {}, SparkSite({"SPARK_HOME": str(home), **environ}))


def test_a_driver_starts_from_the_archive_of_its_spark(home: Path) -> None:
    found = conf_of(home, {EXTRA: "-Xmx1g"})
    assert found.keys() == {DEFAULTS}, "what the author has set is added to it by Spark"
    assert f"-XX:SharedArchiveFile={home / FILE}" in found[DEFAULTS]
    (home / FILE).unlink()
    assert conf_of(home) == {}
    assert class_archive_conf({}, SparkSite({"PATH": str(home)})) == {}, "no Spark at all"


@pytest.mark.parametrize(
    "said",
    [
        {"conf": {DEFAULTS: "-Xmx1g"}},
        {"conf": {EXTRA: "-Xshare:off"}},
        {"conf": {EXTRA: "-XX:SharedArchiveFile=/mine.jsa"}},
        {"conf": {EXTRA: "-XX:ArchiveClassesAtExit=/mine.jsa"}},
        {"JAVA_TOOL_OPTIONS": "-XX:AOTCache=/mine.aot"},
        {"SPARK_SUBMIT_OPTS": "-Xshare:off"},
    ],
)
def test_author_and_site_may_say_otherwise(home: Path, said: dict[str, object]) -> None:
    assert conf_of(home, **said) == {}  # type: ignore[arg-type]


def test_it_is_missing_only_where_it_would_be_used_and_can_be_made(home: Path, tmp_path: Path) -> None:
    def lacks(conf: dict[str, str] | None = None, **environ: str) -> bool:
        return lacks_archive(conf or {}, SparkSite({"SPARK_HOME": str(home), **environ}))

    assert not lacks(), "there is one"
    (home / FILE).unlink()
    assert lacks()
    assert not lacks({EXTRA: "-Xshare:off"}), "the author says otherwise"
    assert not lacks_archive({}, SparkSite({"PATH": str(home)})), "no Spark at all"
    (home / "conf" / "log4j2.properties").touch()
    assert not lacks(), "Java makes none while a folder on the class path has files"
    (tmp_path / "empty").mkdir()
    assert lacks(SPARK_CONF_DIR=str(tmp_path / "empty"))
    assert not lacks(SPARK_CONF_DIR=str(tmp_path / "empty"), HADOOP_CONF_DIR=str(home / "conf"))
    assert not lacks(SPARK_CONF_DIR=str(tmp_path / "empty"), YARN_CONF_DIR=str(home / "conf"))


def test_so_may_the_defaults_of_the_site(home: Path, tmp_path: Path) -> None:
    (home / "conf" / "spark-defaults.conf").write_text(f"{EXTRA} -Xshare:off\n")
    assert conf_of(home) == {}
    file = tmp_path / "given.conf"
    file.write_text("spark.ui.enabled false\n")
    found = class_archive_conf({}, SparkSite({"SPARK_HOME": str(home)}, properties_file=str(file)))
    assert DEFAULTS in found, "spark-submit reads the file that it is given instead"


def test_a_program_that_is_missing_or_fails_makes_no_archive(
    home: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    (home / FILE).unlink()
    monkeypatch.setenv("SPARK_HOME", str(home))
    assert class_archive.main([str(home / "missing")]) == 1
    fails = home / "fails"
    fails.write_text(f"{WRITES}echo no room\nexit 3\n")
    fails.chmod(0o755)
    assert class_archive.main([str(fails)]) == 1
    told = capsys.readouterr().err
    assert "no room" in told
    assert "the driver ended with 3" in told
    monkeypatch.setenv("SPARK_HOME", str(home / "conf"))
    assert class_archive.main([]) == 1
    assert "set SPARK_HOME" in capsys.readouterr().err
    assert not list(home.glob(f"{Path(FILE).stem}.*")), "nothing half made stays"


WRITES = """#!/bin/sh
for word in "$@"; do
    case $word in *ArchiveClassesAtExit=*) file=${word#*ArchiveClassesAtExit=} ;; esac
done
echo classes > "${file%% *}"
chmod 444 "${file%% *}"
"""
"""A `spark-submit` whose driver writes the archive that it is told to write, with the rights that Java gives it."""


def test_it_is_made_in_the_home_of_spark_or_where_it_is_told(
    home: Path, tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch
) -> None:
    (home / FILE).unlink()
    monkeypatch.setenv("SPARK_HOME", str(home))
    writes = home / "writes"
    writes.write_text(WRITES)
    writes.chmod(0o755)
    assert class_archive.main([str(writes)]) == 0
    elsewhere = tmp_path_factory.mktemp("elsewhere") / "other.jsa"
    assert class_archive.main([str(writes), str(elsewhere)]) == 0
    for made in (home / FILE, elsewhere):
        assert made.read_text() == "classes\n"
        assert made.stat().st_mode & 0o777 == 0o644, "every user's drivers read it"
        assert [*made.parent.glob("*.jsa"), *made.parent.glob("*.[0-9]*")] == [made], "no draft stays"
