"""The values at the edges of each type that Spark stores, as SQL: what Python's types lose first."""

from __future__ import annotations

MOMENTS = (
    "timestamp_micros(-9223372036854775808)",
    "TIMESTAMP '0001-01-01 00:00:00Z'",
    "TIMESTAMP '1500-02-03 00:00:00Z'",
    "TIMESTAMP '1600-01-01 00:00:00Z'",
    "TIMESTAMP '1899-12-31 23:59:59.999999Z'",
    "TIMESTAMP '1969-12-31 23:59:59.999999Z'",
    "TIMESTAMP '2262-04-11 23:47:16.854776Z'",
    "TIMESTAMP '9999-12-31 23:59:59.999999Z'",
    "TIMESTAMP '+10000-01-01 00:00:00Z'",
    "timestamp_micros(9223372036854775807)",
)

EDGES: dict[str, tuple[str, ...]] = {
    "boolean": ("false", "true"),
    "tinyint": ("CAST(-128 AS TINYINT)", "CAST(127 AS TINYINT)"),
    "smallint": ("CAST(-32768 AS SMALLINT)", "CAST(32767 AS SMALLINT)"),
    "int": ("CAST(-2147483648 AS INT)", "2147483647"),
    "bigint": ("CAST('-9223372036854775808' AS BIGINT)", "9223372036854775807L", "9007199254740993L"),
    "float": tuple(
        f"CAST('{each}' AS FLOAT)" for each in ("NaN", "-Infinity", "Infinity", "0.1", "1.4e-45", "16777216", "0.0")
    ),
    "double": tuple(
        f"CAST('{each}' AS DOUBLE)"
        for each in ("NaN", "-Infinity", "Infinity", "0.1", "4.9e-324", "9007199254740992", "0.0")
    ),
    "decimal(38,0)": tuple(f"CAST('{sign}{'9' * 38}' AS DECIMAL(38, 0))" for sign in ("", "-")),
    "decimal(38,38)": tuple(f"CAST('{each}' AS DECIMAL(38, 38))" for each in (f"0.{'9' * 38}", f"0.{'0' * 37}1", "0")),
    "decimal(9,2)": ("CAST('-9999999.99' AS DECIMAL(9, 2))", "CAST('1.50' AS DECIMAL(9, 2))"),
    "decimal(18,10)": ("CAST('99999999.9999999999' AS DECIMAL(18, 10))", "CAST('0' AS DECIMAL(18, 10))"),
    "string": (
        "''",
        "'x'",
        "'Zürich ✈ 👩‍🚀'",
        "CAST(X'00' AS STRING)",
        "'\\\\xff'",
        "CAST(X'EFBFBD' AS STRING)",  # U+FFFD itself
        "CAST(X'fe' AS STRING)",
        "CAST(X'ff' AS STRING)",
        "CAST(X'c328' AS STRING)",
        "CAST(X'eda080' AS STRING)",  # half of a pair of surrogates
        "CAST(X'f48fbfbf' AS STRING)",  # the last character that there is
    ),
    "binary": ("X''", "X'00'", "X'ff'", "X'fe'"),
    "date": (
        "DATE '-5877641-06-23'",
        "DATE '0000-12-31'",
        "DATE '0001-01-01'",
        "DATE '1500-02-03'",
        "DATE '1582-10-10'",
        "DATE '1582-10-15'",
        "DATE '1969-12-31'",
        "DATE '9999-12-31'",
        "DATE '+10000-01-01'",
        "DATE '+5881580-07-11'",
    ),
    "timestamp": MOMENTS,
    "timestamp_ntz": tuple(f"CAST({each} AS TIMESTAMP_NTZ)" for each in MOMENTS),
    "interval year to month": ("make_ym_interval(178956970, 7)", "make_ym_interval(-178956970, -7)"),
    "interval day to second": (
        "make_dt_interval(106751991, 4, 0, 54.775807)",
        "make_dt_interval(-106751991, -4, 0, -54.775807)",
    ),
    "struct<a:date,b:string>": (
        "named_struct('a', DATE '9999-12-31', 'b', CAST(X'ff' AS STRING))",
        "named_struct('a', DATE '+10000-01-01', 'b', CAST(X'fe' AS STRING))",
        "named_struct('a', CAST(NULL AS DATE), 'b', CAST(NULL AS STRING))",
    ),
    "array<timestamp>": (
        "array(TIMESTAMP '1600-01-01 00:00:00Z', TIMESTAMP '9999-12-31 00:00:00Z')",
        "array(TIMESTAMP '+10000-01-01 00:00:00Z', CAST(NULL AS TIMESTAMP))",
        "CAST(array() AS ARRAY<TIMESTAMP>)",
    ),
}
"""By type, values of which no two are equal; each type may be a key."""

VALUES: dict[str, tuple[str, ...]] = {
    **EDGES,
    "map<date,string>": (
        "map(DATE '+10000-01-01', CAST(X'ff' AS STRING))",
        "map(DATE '0001-01-01', 'x', DATE '1500-02-03', CAST(NULL AS STRING))",
        "CAST(map() AS MAP<DATE, STRING>)",
    ),
}
"""Values that may be stored, and are no keys."""

BEYOND = frozenset(
    {
        *MOMENTS[:1],
        *MOMENTS[-2:],
        *(f"CAST({each} AS TIMESTAMP_NTZ)" for each in (*MOMENTS[:1], *MOMENTS[-2:])),
        *("DATE '-5877641-06-23'", "DATE '0000-12-31'", "DATE '+10000-01-01'", "DATE '+5881580-07-11'"),
        *(f"CAST(X'{each}' AS STRING)" for each in ("fe", "ff", "c328", "eda080")),
        *EDGES["struct<a:date,b:string>"][:2],
        EDGES["array<timestamp>"][1],
        VALUES["map<date,string>"][0],
    }
)
"""Values that pandas and polars lack: years that are not 1 to 9999, and texts that are no UTF-8."""

POINT = "X'0101000000000000000000F03F0000000000000040'"
"""As WKB."""
