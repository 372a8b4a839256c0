"""States of random keys and types, as queries; and some that are hard, whatever is drawn."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from datetime import datetime

from hypothesis import strategies as st

DOUBLES = st.sampled_from(["NaN", "-0.0", "0.0", "Infinity", "-1e-300", "1.5"]).map("double('{}')".format)
TEXTS = st.text(max_size=6).map(lambda text: f"decode(unhex('{text.encode(errors='ignore').hex()}'), 'utf-8')")
ZONED = st.tuples(
    st.datetimes(datetime(1583, 1, 1), datetime(9000, 1, 1)),  # noqa: DTZ001 - the zone is drawn beside it
    st.sampled_from(["UTC", "Europe/Berlin", "America/St_Johns", "Asia/Kathmandu", "+13:59", "-00:01"]),
).map(lambda at: f"TIMESTAMP '{at[0]} {at[1]}'")
VALUES: dict[str, st.SearchStrategy[str]] = {
    "TINYINT": st.integers(-128, 127).map("tinyint('{}')".format),
    "INT": st.integers(-(2**31), 2**31 - 1).map("int('{}')".format),
    "BIGINT": st.integers(-9, 9).map("bigint('{}')".format),
    "BOOLEAN": st.sampled_from(["true", "false"]),
    "DOUBLE": DOUBLES,
    "FLOAT": st.sampled_from(["NaN", "-0.0", "0.0", "3.5"]).map("float('{}')".format),
    "DECIMAL(38,10)": st.decimals(-(10**27), 10**27, places=10).map("CAST('{}' AS DECIMAL(38,10))".format),
    "DECIMAL(5,2)": st.decimals(-9, 9, places=2).map("CAST('{}' AS DECIMAL(5,2))".format),
    "DATE": st.dates().map("DATE '{}'".format),
    "TIMESTAMP": ZONED,
    "TIMESTAMP_NTZ": st.integers(-(2**44), 2**50).map("CAST(timestamp_micros({}) AS TIMESTAMP_NTZ)".format),
    "BINARY": st.binary(max_size=4).map(lambda data: f"unhex('{data.hex()}')"),
    "STRING": st.one_of(TEXTS, st.integers(0, 3).map("repeat('{}', 1048576)".format)),
    "STRUCT<a: DOUBLE, b: STRING>": st.tuples(DOUBLES, TEXTS).map(
        lambda pair: "struct({} AS a, {} AS b)".format(*pair)
    ),
    "ARRAY<DOUBLE>": st.lists(DOUBLES, max_size=2).map(
        lambda items: f"CAST(array({', '.join(items)}) AS ARRAY<DOUBLE>)"
    ),
    "ARRAY<STRUCT<at: TIMESTAMP, of: ARRAY<STRING>>>": st.lists(st.tuples(ZONED, TEXTS), max_size=2).map(
        lambda items: "array({})".format(
            ", ".join(f"struct({at} AS at, array({text}, NULL) AS of)" for at, text in items)
        )
    ),
}
NO_KEYS: dict[str, st.SearchStrategy[str]] = {
    "MAP<STRING, STRUCT<n: DECIMAL(5,2), d: DOUBLE>>": st.dictionaries(
        TEXTS, st.tuples(VALUES["DECIMAL(5,2)"], DOUBLES), max_size=2
    ).map(
        lambda items: "map({})".format(
            ", ".join(f"{key}, struct({pair[0]} AS n, {pair[1]} AS d)" for key, pair in items.items())
        )
    )
}
"""Types that Spark has no hash for."""
Frame = tuple[str, list[str]]
"""A query of a few rows, and its key columns."""


def frame_of(types: Sequence[str], lines: Iterable[Sequence[str]]) -> Frame:
    """Give a frame of these lines, keyed by all columns but the last."""
    selects = (
        ", ".join(f"CAST({value} AS {kind}) AS c{at}" for at, (value, kind) in enumerate(zip(line, types, strict=True)))
        for line in lines
    )
    return " UNION ALL ".join(f"SELECT {each}" for each in selects), [f"c{at}" for at in range(len(types) - 1)]


@st.composite
def frames(draw: st.DrawFn) -> Frame:
    """Draw one to six lines of one or two key columns and another one."""
    keys = draw(st.lists(st.sampled_from(sorted(VALUES)), min_size=1, max_size=2))
    types = [*keys, draw(st.sampled_from(sorted(VALUES | NO_KEYS)))]
    cell = {kind: st.one_of((VALUES | NO_KEYS)[kind], (VALUES | NO_KEYS)[kind], st.just("NULL")) for kind in types}
    return frame_of(types, draw(st.lists(st.tuples(*(cell[kind] for kind in types)), min_size=1, max_size=6)))


HARD = [
    frame_of(
        ["DOUBLE", "DECIMAL(38,10)", "MAP<STRING, ARRAY<DOUBLE>>"],
        [
            (key, decimal, "map('', array(double('NaN'), double('-0.0'), NULL))")
            for key in ("double('NaN')", "double('-0.0')", "double('0.0')", "NULL")
            for decimal in ("-9999999999999999999999999999.9999999999", "NULL", "0.0000000001")
        ],
    ),
    frame_of(
        ["TIMESTAMP", "STRUCT<a: ARRAY<STRUCT<b: TIMESTAMP>>>"],
        [
            (f"TIMESTAMP '{at}'", f"struct(array(struct(TIMESTAMP '{at}' AS b), NULL) AS a)")
            for at in (
                "2026-10-25 02:30:00+02:00",  # the hour that Berlin has twice
                "2026-10-25 02:30:00+01:00",
                "1883-11-18 12:00:00.000001 America/New_York",
                "9999-12-30 23:59:59.999999 Asia/Kathmandu",
            )
        ],
    ),
    frame_of(["STRING", "STRING"], [(f"repeat('{each}', 1048576)", f"repeat('{each}ü', 524288)") for each in "ab"]),
]
"""Hard frames, tested whatever is drawn."""
ITEMS = st.lists(st.one_of(st.none(), st.booleans(), st.integers(), st.text(max_size=4)), max_size=9)
"""Items of list states."""
