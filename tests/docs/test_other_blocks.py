"""The documentation's blocks that are neither Python nor commands: settings are read, and output is marked as such."""

from __future__ import annotations

import configparser
import json
import re
import subprocess
from typing import Any

import pytest
import yaml  # type: ignore[import-untyped]

from airflow_cairn.storage import S3Options
from scripts.check_docs import pages
from scripts.doc_blocks import Kind, doc_blocks
from scripts.markdown import Block, parse
from scripts.setup.base import ROOT

BLOCKS = [
    pytest.param(block, id=f"{path.relative_to(ROOT)}:{block.first_line}")
    for path in pages(ROOT)
    if path.parent == ROOT or path.is_relative_to(ROOT / "docs")
    for block in parse(path.read_text()).blocks
]
STORES = [each for each in doc_blocks(ROOT) if each.kind is Kind.STORE]
ELSEWHERE = {"python", "diff", "console", "sql"}
"""Run by the other modules here; the SQL by tests/real/spark/test_tables.py, test_append.py and test_key_groups.py."""
_TYPED = re.compile(r"(?:\$ )?(?:cairn|airflow|make|pip|uv|python3?|export|aws|spark-submit) (?=[a-z-])", re.MULTILINE)


@pytest.mark.parametrize("block", BLOCKS)
def test_every_block_is_read_or_marked_as_output(block: Block) -> None:
    if block.language == "json":
        assert isinstance(json.loads(block.text), dict)
    elif block.language == "yaml":
        assert all(isinstance(each, dict) for each in yaml.safe_load_all(block.text))
    elif block.language == "ini":
        settings = configparser.ConfigParser()
        settings.read_string(block.text)
        assert settings.sections()
    elif block.language == "bash":  # for a file of the shell, such as ~/.bashrc
        assert subprocess.run(["bash", "-n", "-c", block.text], check=False).returncode == 0
    elif block.language == "text":
        assert not _TYPED.match(block.text), "what a user types is a block `console`, each command after `$ `"
    else:
        assert block.language in ELSEWHERE


@pytest.mark.s3
def test_the_block_that_opens_a_store_on_s3_runs(s3_options: S3Options, s3_bucket: str) -> None:
    [block] = STORES
    text = block.text.replace("s3://lake/", f"s3://{s3_bucket}/")
    text = text.replace("http://127.0.0.1:9000", s3_options.endpoint_url or "")
    for key in (s3_options.access_key, s3_options.secret_key):
        text = text.replace('"…"', repr(key), 1)
    names: dict[str, Any] = {}
    exec(compile(text, block.where, "exec", dont_inherit=True), names)
    assert [each.key for each in names["store"].list("_cairn/")], "the probe has written down that the store passed"


def test_there_are_blocks() -> None:
    assert len(BLOCKS) > 100
