"""Checksums of what set-up fetches: other content is refused with what to type."""

from __future__ import annotations

import json
import platform
import re
import tarfile
import zipfile
from collections.abc import Callable
from pathlib import Path

import pytest

from scripts import azure_jars, gcs_jars, maven_jars, s3a_jars, sbom, yarn_jars
from scripts.harness import rest_catalog_server
from scripts.setup import checksums, downloads, gcsserver, go_programs, java, kubernetes, receivers, s3server, uv
from scripts.setup.base import SetupError


@pytest.fixture
def jars(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> maven_jars.JarSet:
    """A set of one jar in a cache of its own, written down as it is."""
    monkeypatch.setattr(maven_jars, "CACHE", tmp_path)
    monkeypatch.setattr(checksums, "_JARS", tmp_path / "jars.sha256")
    folder = tmp_path / "ivy" / "mine" / "jars"
    folder.mkdir(parents=True)
    (folder / "a.jar").write_bytes(b"a")
    digest = "ca978112ca1bbdcafac231b39a23dc4da786eff8147c4e72b9807785afee48bb"
    (tmp_path / "jars.sha256").write_text(f"{digest}  mine/a.jar\n")
    (folder.parent / "jars.json").write_text(json.dumps({"packages": ["x:a:1"], "jars": ["a.jar"]}))
    return maven_jars.JarSet("mine", ("x:a:1",), ())


def test_jars_that_are_written_down_are_checked_once(jars: maven_jars.JarSet, tmp_path: Path) -> None:
    (found,) = jars.jars()
    record = json.loads((tmp_path / "ivy" / "mine" / "jars.json").read_text())
    assert record == {"packages": ["x:a:1"], "jars": ["a.jar"], "checked": checksums.jar_sums()}
    found.write_bytes(b"b")
    assert jars.jars() == [found], "what lies in the cache was checked when it came"
    (tmp_path / "jars.sha256").write_text(f"{'0' * 64}  mine/a.jar\n")
    with pytest.raises(SetupError):
        jars.jars()


@pytest.mark.parametrize("written", ["", f"{'0' * 64}  mine/a.jar\n", f"{'0' * 64}  other/a.jar\n"])
def test_a_jar_of_other_content_is_refused(jars: maven_jars.JarSet, tmp_path: Path, written: str) -> None:
    (tmp_path / "jars.sha256").write_text(written)
    with pytest.raises(SetupError, match=r"a\.jar is not the one that is written down.*found ca978112.*make setup"):
        jars.jars()


def test_a_cache_that_shares_its_record_is_not_written_into(jars: maven_jars.JarSet, tmp_path: Path) -> None:
    """Worktrees share the caches by hard links"""
    record, other = tmp_path / "ivy" / "mine" / "jars.json", tmp_path / "other.json"
    other.hardlink_to(record)
    before = other.read_text()
    jars.jars()
    assert other.read_text() == before != record.read_text()


def test_every_jar_of_the_sets_is_written_down() -> None:
    names = checksums._written_down()
    for jar_set in (s3a_jars._S3A, gcs_jars._GCS, azure_jars._AZURE, yarn_jars._YARN, rest_catalog_server.JARS):
        packages = [each.split(":") for each in jar_set.packages]
        jars = [f"{group}_{artifact}-{version}.jar" for group, artifact, version in packages]
        for jar in (*jars, *(Path(each).name for each in jar_set.classified)):
            assert f"{jar_set.name}/{jar}" in names, "type: python -m scripts.setup.checksums"


@pytest.mark.parametrize(
    "program", [s3server.SERVER, gcsserver.SERVER, receivers.EXPORTER, receivers.PROMETHEUS, receivers.PROMTOOL]
)
def test_a_program_in_go_is_known_by_its_content(program: go_programs.GoProgram) -> None:
    known = re.escape(f"{program.module} {program.version}")
    with pytest.raises(SetupError, match=rf"{known} is not the one .*expected h1:.*found h1:other"):
        checksums.check_module(program.module, program.version, "h1:other")
    with pytest.raises(SetupError, match="expected None"):
        checksums.check_module(program.module, "v9.9.9", "h1:other")


@pytest.mark.parametrize("program", [kubernetes.ETCD, kubernetes.API_SERVER])
def test_kubernetes_is_known_by_the_content_of_all_that_it_needs(program: go_programs.GoProgram) -> None:
    assert program.within is not None
    wanted, sums = ((program.within / name).read_text() for name in ("go.mod", "go.sum"))
    assert f"\n\t{program.module} {program.version}\n" in wanted
    assert f"{program.module} {program.version} h1:" in sums


def test_another_source_is_not_built(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    go = tmp_path / "go"
    go.write_text(f'#!/bin/sh\necho \'{{"Sum": "h1:other", "Dir": "{tmp_path}"}}\'\ntouch {tmp_path}/ran-$1\n')
    go.chmod(0o755)
    monkeypatch.setattr(go_programs, "CACHE", tmp_path)
    with pytest.raises(SetupError, match=r"h1:other\. Do not use it"):
        go_programs.build(s3server.SERVER, go)
    assert (tmp_path / "ran-mod").exists()
    assert not (tmp_path / "ran--C").exists()


@pytest.mark.parametrize("name", ["uv", "go", "node"])
def test_tools_from_pypi_are_pinned_by_hash(name: str) -> None:
    *_, file = checksums.requirements(name)
    text = Path(file).read_text()
    assert re.match(r"[\w-]+==[\d.]+ \\\n", text)
    assert all(re.fullmatch(r"    --hash=sha256:[0-9a-f]{64}( \\)?", line) for line in text.splitlines()[1:])


@pytest.fixture
def pinned(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[[str, Path, str], None]:
    """Pin a file of the test's own as an archive for this platform."""
    monkeypatch.setattr(downloads, "_PINNED", tmp_path / "downloads.txt")
    for module in (downloads, uv, java):
        monkeypatch.setattr(module, "CACHE", tmp_path)
    monkeypatch.setattr(uv, "_HOME", tmp_path / "uv")
    monkeypatch.setattr(java, "_JDK", tmp_path / "jdk")

    def pin(name: str, archive: Path, digest: str) -> None:
        here = f"{platform.system()}-{platform.machine()}"
        (tmp_path / "downloads.txt").write_text(f"{name} {here} {digest} {archive.as_uri()}\n")

    return pin


def test_uv_is_unpacked_from_its_wheel(tmp_path: Path, pinned: Callable[[str, Path, str], None]) -> None:
    wheel = tmp_path / "uv-1.whl"
    with zipfile.ZipFile(wheel, "w") as file:
        file.writestr("uv-1.data/scripts/uv", "#!/bin/sh\necho uv 1\n")
    pinned("uv", wheel, checksums.sha256_of(wheel))
    assert uv._works(uv._by_wheel())
    assert not (tmp_path / "uv.part").exists()


def test_java_is_unpacked_from_its_archive(tmp_path: Path, pinned: Callable[[str, Path, str], None]) -> None:
    program = tmp_path / "jdk-21+8-jre" / "bin" / "java"
    program.parent.mkdir(parents=True)
    program.write_text("#!/bin/sh\necho 'openjdk version \"21.0.12\"' >&2\n")
    program.chmod(0o755)
    with tarfile.open(tmp_path / "java.tar.gz", "w:gz") as file:
        file.add(program, "jdk-21+8-jre/bin/java")
    pinned("java", tmp_path / "java.tar.gz", checksums.sha256_of(tmp_path / "java.tar.gz"))
    java._by_archive()
    assert java.major_version(tmp_path / "jdk" / "jdk-21+8-jre" / "bin" / "java") == 21


def test_an_archive_of_other_content_is_refused(tmp_path: Path, pinned: Callable[[str, Path, str], None]) -> None:
    archive = tmp_path / "java.tar.gz"
    archive.write_bytes(b"a")
    pinned("java", archive, "0" * 64)
    with pytest.raises(SetupError, match=r"java\.tar\.gz is not the pinned archive: .*found ca978112.*Do not use it"):
        java._by_archive()
    assert not (tmp_path / "java.part").exists()
    assert not (tmp_path / "jdk").exists()
    with pytest.raises(SetupError, match="no archive of uv is pinned"):
        uv._by_wheel()
    archive.unlink()
    with pytest.raises(SetupError, match="cannot be fetched"):
        java._by_archive()


def test_every_platform_of_the_project_is_pinned() -> None:
    """Linux on both architectures; uv for macOS too"""
    pinned = [line.split() for line in downloads._PINNED.read_text().splitlines()]
    assert all(re.fullmatch("[0-9a-f]{64}", digest) and url.startswith("https://") for _, _, digest, url in pinned)
    of_uv = Path(checksums.requirements("uv")[-1]).read_text()
    assert all(digest in of_uv for name, _, digest, _ in pinned if name == "uv"), "one version, whichever way it comes"
    found = {(name, where) for name, where, _, _ in pinned}
    assert found >= {(name, f"Linux-{machine}") for name in ("java", "uv") for machine in ("x86_64", "aarch64")}


def test_the_bill_of_materials_holds_what_is_locked_and_what_is_fetched(tmp_path: Path) -> None:
    assert sbom.main([str(tmp_path / "sbom.json")]) == 0
    document = json.loads((tmp_path / "sbom.json").read_text())
    names = {each["name"] for each in document["components"]}
    assert document["bomFormat"] == "CycloneDX"
    assert {"pyspark", "apache-airflow", "boto3", "github.com/versity/versitygw", "@sparticuz/chromium"} <= names
    assert any(name.endswith("hadoop-aws-3.5.0.jar") for name in names)
