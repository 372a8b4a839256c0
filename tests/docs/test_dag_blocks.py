"""The documentation's DAG files are imported by Airflow's own parser, all of them in one process."""

from __future__ import annotations

from pathlib import Path

import pytest

from scripts.doc_blocks import Kind, doc_blocks
from scripts.setup.base import ROOT

BLOCKS = list(doc_blocks(ROOT))


def test_every_dag_in_the_documentation_can_be_imported(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from airflow.dag_processing.dagbag import DagBag

    monkeypatch.syspath_prepend(tmp_path)
    for block in BLOCKS:
        if block.kind is Kind.MODULE:
            (tmp_path / f"{block.module()}.py").write_text(block.text)
    files = {}
    for number, block in enumerate(each for each in BLOCKS if each.kind is Kind.DAG):
        files[tmp_path / f"block_{number}.py"] = block
        (tmp_path / f"block_{number}.py").write_text(block.dag_file())
    problems = []
    for path, block in files.items():
        bag = DagBag(dag_folder=path, safe_mode=False)
        if bag.import_errors:
            last = next(iter(bag.import_errors.values())).strip().splitlines()[-1]
            problems.append(f"{block.where}: {last}")
    assert not problems, "\n".join(problems)
    assert len(files) > 15


def test_a_block_that_is_a_part_says_so_in_the_words_that_are_known() -> None:
    """Most blocks can be copied as they stand; those that cannot are few"""
    parts = [block.where for block in BLOCKS if block.first.startswith("# in the ")]
    assert len(parts) <= 4, parts
