"""The check of rules notices a rule that no fast test cites."""

from __future__ import annotations

from pathlib import Path

from scripts.rules import citations, homeless, rules

PAGE = """
| T1 | one |
| A1 | two |
| A2 | three |
"""


def test_a_rule_is_cited_where_neither_airflow_nor_spark_is_needed(tmp_path: Path) -> None:
    for name, text in (
        ("unit/test_trigger.py", "# semantics T1\n"),
        ("protocol/test_crash_points.py", '"""semantics: A2 and T1"""\n'),
        ("real/airflow/test_failover.py", "# semantics A1\n"),
    ):
        path = tmp_path / name
        path.parent.mkdir(parents=True)
        path.write_text(text)
    assert rules(PAGE) == ["T1", "A1", "A2"]
    cited = citations(tmp_path)
    assert cited == {
        "T1": {"unit/test_trigger.py", "protocol/test_crash_points.py"},
        "A1": {"real/airflow/test_failover.py"},
        "A2": {"protocol/test_crash_points.py"},
    }
    assert homeless(PAGE, cited) == ["A1"]
