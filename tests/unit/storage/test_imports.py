"""`airflow_cairn.storage` works in a plain Python process: no Airflow, no Spark, and no boto3 until S3 is opened."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

BLOCK = """
import sys
class Blocked:
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] in {"airflow", "pyspark", "boto3", "botocore"}:
            raise ImportError(f"{name} is blocked")
sys.meta_path.insert(0, Blocked())
"""


def run(code: str, *words: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run([sys.executable, "-c", BLOCK + code, *words], capture_output=True, text=True, check=False)


def test_the_blocker_blocks():
    assert "boto3 is blocked" in run("import boto3").stderr


def test_storage_imports_and_local_files_work_without_them(tmp_path: Path):
    code = """
from airflow_cairn.storage import open_store, probe, ensure_probed, S3Options
from airflow_cairn.storage.names import check_storage_uri
store = open_store(f"file://{sys.argv[1]}")
ensure_probed(store, nonce="n")
store.create("a", b"x")
check_storage_uri("s3://lake/x")
S3Options(access_key="a", secret_key="b")
print([found.key for found in store.list("")])
"""
    done = run(code, str(tmp_path / "lake"))
    assert done.stderr == ""
    assert done.stdout.strip() == "['_cairn/probed-v2.json', 'a']"


def test_opening_s3_is_what_needs_boto3():
    assert "botocore is blocked" in run("from airflow_cairn.storage import open_store; open_store('s3://lake')").stderr
