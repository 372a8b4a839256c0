"""Files that a pattern matches, patterns that are refused, and the escape of names that look like patterns."""

import pytest

from airflow_cairn.checkpoint import FileSource, InvalidConfigError
from airflow_cairn.checkpoint.sources import file_names

LANDING = ("1.csv", "1.json", "2026/1.csv", "day=1/x.csv", "a[1].csv", "a{1}.csv", "b*.csv")


@pytest.mark.parametrize(
    ("pattern", "taken"),
    [
        ("*.{csv,json}", ["1.csv", "1.json", "a[1].csv", "a{1}.csv", "b*.csv"]),
        ("**/*.{csv,json}", list(LANDING)),
        ("[0-9]*.csv", ["1.csv"]),
        ("[!0-9]*.csv", ["a[1].csv", "a{1}.csv", "b*.csv"]),
        ("[^0-9ab]*", []),
        ("2026[!a]1.csv", []),  # a class stays in one folder
        ("{2026,day=?}/*", ["2026/1.csv", "day=1/x.csv"]),
        ("{1.{csv,json},day=1/**}", ["1.csv", "1.json", "day=1/x.csv"]),
        ("1{,.csv}", ["1.csv"]),
        ("a[[]*", ["a[1].csv"]),
        ("a[{]1[}].csv", ["a{1}.csv"]),
        ("*[]]*", ["a[1].csv"]),
        ("b[*]*", ["b*.csv"]),
        ("{a[{,]1*,x}", ["a{1}.csv"]),  # in a class a comma is one
        ("**", list(LANDING)),
    ],
)
def test_what_a_pattern_takes(pattern: str, taken: list[str]) -> None:  # semantics T11
    expression = file_names.compiled(pattern)
    assert [name for name in LANDING if expression.fullmatch(name)] == taken


@pytest.mark.parametrize(
    ("pattern", "advice"),
    [
        ("/*.csv", "leave out the / at its beginning"),
        ("./*.csv", "no part '.'; leave it out"),
        ("a/../b", "no part '..'"),
        ("{a,./b}", "no part '.'"),
        ("2026/", "write '2026/*'"),
        ("{2026/,x}", "write '2026/*'"),
        ("a//b", "write / instead of //"),
        ("s3://bucket/in/*", "write / instead of //"),
        ("_tmp/*", "begins with . or _"),
        ("a/.b", "begins with . or _"),
        ("a/[.]b", "begins with . or _"),
        ("[_]b", "begins with . or _"),
        ("{x,_b}/*", "begins with . or _"),
        ("*._COPYING_", "ends in ._COPYING_"),
        ("{{ ds }}/*.csv", "a source is not rendered"),
        ("{% if a %}x", "a source is not rendered"),
        ("{a,b", r"write [{]"),
        ("a,b}", r"write [}]"),
        ("a[bc", r"write [[]"),
        ("a]", r"write []]"),
        ("[]", r"write [[]"),
        ("[!]", "[!] is not a class"),
        ("[a/b]", "characters other than /"),
        ("[9-0]", "write 0-9"),
        (r"a\*", "such as [*]"),
        ("a\n", "control character"),
        ("{a,b}" * 10, "more than 1000 patterns"),
        ("~/in/*.csv", "give the folder as its uri, or write [~]"),
        ("~", "write [~]"),
        ("~ada/*.csv", "write [~]"),
        ("$HOME/in/*.csv", "$HOME is not a variable here"),
        ("in/${DAY}.csv", "write [$]"),
        ("$(date)/*", "write [$]"),
        ("day-{1..3}.csv", "write {1,2,3}"),
        ("day-{08..10}.csv", "write {08,09,10}"),
        ("{a..c}.csv", "a..c is not a range here; write {a,b,c}"),
        ("{x,1..900..2}", "1..900..2 is not a range here"),
        ("*.csv,*.json", "write '{*.csv,*.json}', or [,]"),
        ("{a,b},c", "write '{{a,b},c}'"),
    ],
)
def test_a_pattern_without_matches_is_refused_at_parse(pattern: str, advice: str) -> None:
    with pytest.raises(InvalidConfigError) as refused:
        FileSource("s3://bucket/in", pattern)
    assert advice in str(refused.value)
    assert "pattern=" in str(refused.value)


@pytest.mark.parametrize(
    ("key", "hidden"),
    [
        ("a/b.csv", False),
        ("_day=1/b.csv", False),
        ("_day=1/_SUCCESS", True),
        ("_a/b=1.csv", True),
        (".day=1/b.csv", True),
        ("b.csv._COPYING_", True),
    ],
)
def test_which_names_are_hidden_as_in_spark(key: str, hidden: bool) -> None:  # semantics T11
    assert file_names.is_hidden(key) is hidden
    for pattern in ("**", "_*/*", "_day=?/*"):
        FileSource("s3://bucket/in", pattern)


@pytest.mark.parametrize(
    ("url", "given", "problem"),
    [
        ("file:///in/sales1.csv", "file:///in/sales1.csv", None),
        ("file:///in/a[1]{2}?*.csv", r"file:///in/a\[1\]\{2\}\?\*.csv", None),
        ("s3a://b/a\\b.csv", r"s3a://b/a\\b.csv", None),
        ("s3a://b/a b%20#,+'\"ü.csv", "s3a://b/a b%20#,+'\"ü.csv", None),
        ("s3a://b/a:b.csv", "s3a://b/a:b.csv", None),
        ("file:///in/10:00/x.csv", "file:///in/10:00/x.csv", None),
        ("file:///in/a:b.csv", "file:///in/a:b.csv", "a local file with a colon"),
        ("s3a://b/10:00/x[1].csv", r"s3a://b/10:00/x\[1\].csv", "a colon and one of"),
    ],
)
def test_how_spark_is_given_a_name(url: str, given: str, problem: str | None) -> None:
    assert file_names.literal(url) == given
    assert (problem or "") in (file_names.unreadable(url) or "")
    assert (file_names.unreadable(url) is None) is (problem is None)
