"""The table from rules to tests notices a rule that no test of its letter's module cites."""

from __future__ import annotations

from pathlib import Path

from scripts.rules import citations, homeless, rules

PAGE = """
| T1 | one |
| A1 | two |
| S1 | exempt |
| A2 | three |

## Which tests hold which rule

| T9 | of the table |
"""


def test_a_rule_is_at_home_in_the_module_of_its_letter(tmp_path: Path) -> None:
    (tmp_path / "rules").mkdir()
    (tmp_path / "rules" / "test_t.py").write_text("# semantics T1, A1\n")
    (tmp_path / "rules" / "test_a.py").write_text('"""semantics: A2 and T1"""\n')
    assert rules(PAGE) == ["T1", "A1", "S1", "A2"]
    cited = citations(tmp_path)
    assert cited == {
        "T1": {"rules/test_a.py", "rules/test_t.py"},
        "A1": {"rules/test_t.py"},
        "A2": {"rules/test_a.py"},
    }
    assert homeless(PAGE, cited) == ["A1"]
