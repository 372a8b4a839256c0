"""The runtime zip: the same bytes for the same sources, and all that an application needs besides PySpark."""

import re
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

from airflow_cairn import __version__
from airflow_cairn.checkpoint.errors import InvalidConfigError
from airflow_cairn.spark.handover import runtime_zip
from scripts.setup.uv import ensure_uv

ROOT = Path(__file__).parents[4]

BLOCKED = """
import importlib.abc, sys
sys.path.insert(0, sys.argv[1])
class Blocked(importlib.abc.MetaPathFinder):
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] in {"airflow", "pyspark", "boto3", "botocore", "pendulum"}:
            raise ImportError(f"{name} is blocked")
sys.meta_path.insert(0, Blocked())
try:
    import pyspark
except ImportError:
    pass
else:
    raise SystemExit("nothing is blocked")
"""


def isolated(zip_path: Path, code: str) -> subprocess.CompletedProcess[str]:
    """Run code in a Python that sees the standard library and the zip, and nothing else."""
    return subprocess.run(
        [sys.executable, "-I", "-S", "-c", BLOCKED + code, str(zip_path)],
        capture_output=True,
        text=True,
        check=False,
        timeout=300,
        cwd="/",
    )


def said(folder: Path, code: str) -> str:
    """Give what code prints beside the zip."""
    done = isolated(runtime_zip.runtime_zip(folder), code)
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_equal_sources_give_equal_bytes_and_an_equal_name(tmp_path: Path) -> None:
    first, second = tmp_path / "first", tmp_path / "second"
    first.mkdir()
    second.mkdir()
    one, two = runtime_zip.runtime_zip(first), runtime_zip.runtime_zip(second)
    assert one.name == two.name
    assert one.name.startswith(f"airflow_cairn-{__version__}-")
    assert one.read_bytes() == two.read_bytes()
    stamp = one.stat().st_mtime_ns
    assert runtime_zip.runtime_zip(first) == one
    assert one.stat().st_mtime_ns == stamp, "what is there is not written again"
    assert [path.name for path in first.iterdir()] == [one.name]


def test_other_sources_give_another_name(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    before = runtime_zip.runtime_zip(tmp_path)
    for package in runtime_zip.PACKAGES:
        for path in (ROOT / package).rglob("*.py"):
            copy = tmp_path / "copy" / path.relative_to(ROOT)
            copy.parent.mkdir(parents=True, exist_ok=True)
            copy.write_bytes(path.read_bytes())
    (tmp_path / "copy" / "__init__.py").write_bytes((ROOT / "__init__.py").read_bytes())
    monkeypatch.setattr(runtime_zip, "_ROOT", tmp_path / "copy")
    assert runtime_zip.runtime_zip(tmp_path) == before
    changed = tmp_path / "copy" / "spark" / "epoch.py"
    changed.write_text(changed.read_text() + "\n")
    assert runtime_zip.runtime_zip(tmp_path) != before


def test_without_sources_on_disk_it_says_so(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "__init__.py").touch()
    monkeypatch.setattr(runtime_zip, "_ROOT", tmp_path)
    with pytest.raises(InvalidConfigError, match="Install airflow-cairn unpacked, not as a zip"):
        runtime_zip.runtime_zip(tmp_path)


def test_the_zip_holds_the_three_layers_and_no_more(tmp_path: Path) -> None:
    with zipfile.ZipFile(runtime_zip.runtime_zip(tmp_path)) as archive:
        names = archive.namelist()
        assert all(info.date_time == (1980, 1, 1, 0, 0, 0) for info in archive.infolist())
    assert {name.split("/")[1] for name in names} == {"__init__.py", "__init__.pyc", "checkpoint", "spark", "storage"}
    sources = [name for name in names if name.endswith(".py")]
    assert set(names) - set(sources) == {f"{name}c" for name in sources}
    assert sources[1:] == sorted(sources[1:])
    assert "airflow_cairn/spark/epoch.py" in names


SAYS_FROM_WHAT = """
import airflow_cairn.spark
from airflow_cairn.spark import epoch, table
print(sorted({each.__file__.rpartition(".")[2] for each in (airflow_cairn, airflow_cairn.spark, epoch)}))
print(table.__code__.co_filename)
"""


def test_it_is_imported_from_bytecode_that_names_no_path_of_this_machine(tmp_path: Path) -> None:
    done = isolated(runtime_zip.runtime_zip(tmp_path), SAYS_FROM_WHAT)
    assert done.stderr == ""
    assert done.stdout.splitlines() == ["['pyc']", "airflow_cairn/spark/tables.py"]
    assert str(ROOT).encode() not in runtime_zip.runtime_zip(tmp_path).read_bytes()


def test_another_version_of_python_takes_the_sources(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    ours = runtime_zip.runtime_zip(tmp_path)
    monkeypatch.setattr(runtime_zip, "MAGIC_NUMBER", b"\x00\x00\r\n")
    theirs = runtime_zip.runtime_zip(tmp_path)
    assert theirs != ours, "their bytes differ, and so do their names"
    done = isolated(theirs, SAYS_FROM_WHAT)
    assert done.stderr == ""
    assert done.stdout.splitlines()[0] == "['py']"


def test_bytecode_without_assertions_has_another_name(tmp_path: Path) -> None:
    code = "from airflow_cairn.spark.handover.runtime_zip import runtime_zip as made; print(made(sys.argv[1]).name)"
    done = subprocess.run(
        [sys.executable, "-O", "-c", f"import sys; {code}", str(tmp_path)], check=True, capture_output=True, text=True
    )
    assert done.stdout.strip() not in ("", runtime_zip.runtime_zip(tmp_path).name)


def test_the_wheel_installs_the_sources_of_the_zip(tmp_path: Path) -> None:
    wheel = runtime_zip.runtime_wheel(tmp_path)
    assert runtime_zip.runtime_wheel(tmp_path) == wheel
    words = ("pip", "install", "--quiet", "--no-config", "--no-index", "--no-deps", "--python", sys.executable)
    target = ("--target", str(tmp_path / "there"), str(wheel))
    done = subprocess.run([ensure_uv(), *words, *target], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    installed = {each.relative_to(tmp_path / "there").as_posix() for each in (tmp_path / "there").rglob("*.py")}
    with zipfile.ZipFile(runtime_zip.runtime_zip(tmp_path)) as archive:
        assert installed == {name for name in archive.namelist() if name.endswith(".py")}


def test_a_traceback_shows_the_lines_of_the_source(tmp_path: Path) -> None:
    code = """
import traceback
from airflow_cairn.storage.names import parse_storage_uri
try:
    parse_storage_uri("ftp://somewhere")
except Exception as error:
    print(traceback.extract_tb(error.__traceback__)[-1].line)
"""
    assert said(tmp_path, code).strip().startswith("raise ")


def test_a_bare_python_imports_it_and_works_on_local_files(tmp_path: Path) -> None:
    code = f"""
from airflow_cairn.spark import Epoch, table
from airflow_cairn.spark.handover import conf, runtime_zip as shipping
from airflow_cairn.spark.output import committer
from airflow_cairn.checkpoint import Coordinator, TriggerRequest
from airflow_cairn.checkpoint.documents.attempt import Slice, StageSpec
from airflow_cairn.storage import open_store, UnsupportedStorageError
import airflow_cairn
assert airflow_cairn.__file__.startswith(sys.argv[1]), airflow_cairn.__file__
job = Coordinator(open_store("file://{tmp_path}/lake"), "flights")
job.trigger(TriggerRequest("one", Slice(), (StageSpec("routes"),)))
print(type(job.begin("one", "routes", "try")).__name__)
try:
    conf.open_driver_store("s3://lake/cairn", None)
except ImportError as error:
    print(error)
"""
    assert said(tmp_path, code).splitlines() == ["Submit", "botocore is blocked"]


def test_a_driver_without_boto3_is_told_what_to_install(tmp_path: Path) -> None:
    code = """
del sys.meta_path[0]
from airflow_cairn.spark.handover import conf
from airflow_cairn.storage import UnsupportedStorageError
try:
    conf.open_driver_store("s3://lake/cairn", None)
except UnsupportedStorageError as error:
    print(error)
"""
    assert re.match("this driver's Python has no boto3.*pip install boto3", said(tmp_path, code), re.DOTALL)
