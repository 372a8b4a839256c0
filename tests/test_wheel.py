"""The wheel holds what a user needs, and nothing that only this repository needs."""

from __future__ import annotations

import re
import tomllib
import zipfile
from importlib.metadata import version
from pathlib import Path

import pytest
from packaging.requirements import Requirement

from tests.support.wheel import built_wheel

INFO = f"airflow_cairn-{version('airflow-cairn')}.dist-info"
ROOT = Path(__file__).parents[1]
PACKAGES = {path.parent.name for path in ROOT.glob("*/__init__.py")} - {"tests", "scripts", "bench"}


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> zipfile.Path:
    return zipfile.Path(built_wheel(tmp_path_factory.mktemp("wheel")))


def names(wheel: zipfile.Path) -> set[str]:
    return {name for name in wheel.root.namelist() if not name.endswith("/")}


def test_every_module_is_shipped(wheel: zipfile.Path) -> None:
    modules = {path.relative_to(ROOT) for package in PACKAGES for path in (ROOT / package).rglob("*.py")}
    assert {"checkpoint", "dags", "operators", "spark", "storage"} <= PACKAGES
    assert not {f"airflow_cairn/{module}" for module in modules} - names(wheel)


def test_the_example_is_shipped_whole(wheel: zipfile.Path) -> None:
    """A DAG file without its applications fails at its first task; without .airflowignore those count as DAG files."""
    wanted = {"__init__.py", "flights.py", ".airflowignore"} | {
        f"{path.parent.name}/{path.name}" for path in (ROOT / "dags").glob("*/*.py")
    }
    assert len(wanted) > 10
    prefix = "airflow_cairn/dags/"
    assert {name.removeprefix(prefix) for name in names(wheel) if name.startswith(prefix)} == wanted


def test_the_page_is_shipped_with_its_templates_and_files(wheel: zipfile.Path) -> None:
    folder = ROOT / "plugin" / "page"
    wanted = {path.relative_to(ROOT) for kind in ("static/*", "templates/*.html") for path in folder.glob(kind)}
    assert len(wanted) > 10
    assert {f"airflow_cairn/{path}" for path in wanted} <= names(wheel)


def test_the_texts_of_help_are_shipped(wheel: zipfile.Path) -> None:
    wanted = {f"airflow_cairn/cli/output/{name}.txt" for name in ("errors", "fields", "findings")}
    assert wanted <= names(wheel)


def test_nothing_else_is(wheel: zipfile.Path) -> None:
    tops = {tuple(name.split("/")[:2]) for name in names(wheel)}
    inside = {name for top, name in tops if top == "airflow_cairn"}
    assert inside == PACKAGES | {"__init__.py", "py.typed"}
    assert {top for top, _ in tops} - {"airflow_cairn"} == {INFO}


def test_the_description_leads_nowhere_that_an_index_does_not_have(wheel: zipfile.Path) -> None:
    """README.md's links into the repository are plain text there, and so it says all that it says here"""
    text = (wheel / INFO / "METADATA").read_text(encoding="utf-8")
    assert "\nDescription-Content-Type: text/markdown" in text
    description = text.partition("\n\n")[2]
    targets = re.findall(r"\]\(([^)\s]*)", description)
    assert not [each for each in targets if not each.startswith(("https://", "#"))]
    assert "![" not in description
    readme = (ROOT / "README.md").read_text(encoding="utf-8")
    headings = re.findall(r"^#+ .*$", readme, re.MULTILINE)
    assert len(headings) > 3
    assert [each for each in headings if each not in description] == []


def test_what_airflow_and_the_shell_find(wheel: zipfile.Path) -> None:
    text = (wheel / INFO / "entry_points.txt").read_text()
    lines = set(text.split("\n"))
    assert {
        "cairn = airflow_cairn.cli.main:main",
        "cairn = airflow_cairn.plugin.cairn_plugin:CairnPlugin",
        "provider_info = airflow_cairn.plugin.provider_info:get_provider_info",
    } <= lines


def test_the_provider_that_private_names_were_read_in(wheel: zipfile.Path) -> None:
    """tests/unit/operators/stage/test_provider_contract.py holds the names; a major version may rename them."""
    text = (wheel / INFO / "METADATA").read_text()
    assert "Requires-Dist: apache-airflow-providers-apache-spark<7,>=6.3" in text


def test_no_address_is_named_that_does_not_exist(wheel: zipfile.Path) -> None:
    """The package is on no registry and no public forge; the release that puts it there names the address"""
    assert "\nProject-URL: " not in (wheel / INFO / "METADATA").read_text()


def test_the_extra_spark_names_both_packages_of_pyspark_in_one_version(wheel: zipfile.Path) -> None:
    """pip takes the newest of each otherwise, and there is no client for the newest pyspark"""
    lines = (wheel / INFO / "METADATA").read_text().splitlines()
    pins = [line.split()[1] for line in lines if line.endswith('; extra == "spark"')]
    names, versions = zip(*(pin.removesuffix(";").split("==") for pin in pins), strict=True)
    assert sorted(names) == ["pyspark", "pyspark-client"]
    assert len(set(versions)) == 1


def test_without_an_extra_there_is_one_pyspark(wheel: zipfile.Path) -> None:
    """Airflow's Spark provider brings the client. A second package beside it, unpinned, would be of another version."""
    lines = (wheel / INFO / "METADATA").read_text().splitlines()
    assert [line for line in lines if line.startswith("Requires-Dist: pyspark") and "extra ==" not in line] == []


def test_what_only_a_command_or_spark_connect_needs_is_an_extra(wheel: zipfile.Path) -> None:
    lines = (wheel / INFO / "METADATA").read_text().splitlines()
    named = ("pyarrow", "pandas", "grpcio>", "zstandard", "boto3", "amazon>")
    assert sorted(
        line for line in lines if line.startswith("Requires-Dist") and any(each in line for each in named)
    ) == [
        'Requires-Dist: apache-airflow-providers-amazon>=9.9; extra == "amazon"',
        "Requires-Dist: boto3>=1.36",
        'Requires-Dist: boto3>=1.36; extra == "s3"',
        'Requires-Dist: grpcio>=1.76; extra == "connect"',
        'Requires-Dist: pandas<3,>=2.2; extra == "connect"',
        'Requires-Dist: pyarrow>=21; extra == "connect"',
        'Requires-Dist: pyarrow>=21; extra == "delta"',
        'Requires-Dist: pyarrow>=21; extra == "iceberg"',
        'Requires-Dist: pyarrow>=21; extra == "postgres"',
        'Requires-Dist: pyarrow>=21; extra == "state"',
        'Requires-Dist: zstandard>=0.25; extra == "connect"',
    ]


def test_the_lock_holds_what_each_extra_brings_and_a_page_lists_each() -> None:
    """PySpark is locked in a newer version than the extra's (pyproject.toml says why); `make constraints` mends that"""
    extras = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["optional-dependencies"]
    locked = {one["name"]: one for one in tomllib.loads((ROOT / "uv.lock").read_text())["package"]}
    own = locked["airflow-cairn"]["optional-dependencies"]
    assert own.keys() == extras.keys()
    for extra, lines in extras.items():
        for wanted in map(Requirement, lines):
            if not wanted.name.startswith("pyspark"):
                assert wanted.name in [each["name"] for each in own[extra]]
                assert wanted.specifier.contains(locked[wanted.name]["version"]), wanted
    table = (ROOT / "docs/how-to/install.md").read_text().partition("| extra | for |")[2].partition("\n\n")[0]
    assert set(re.findall(r"^\| `(\w+)` \|", table, re.MULTILINE)) == extras.keys()
