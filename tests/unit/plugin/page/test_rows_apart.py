"""First rows of hostile files: the page's server takes no more memory, and says why it shows none (semantics W13)."""

import io
import json
import resource
import struct
import subprocess
import sys
from collections.abc import Callable
from functools import partial
from pathlib import Path
from random import Random
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from airflow_cairn.checkpoint.rows.reading import DELETED
from airflow_cairn.checkpoint.rows.shown import ROWS
from tests.unit.cli.test_state import STAGE, fields, job, keep
from tests.unit.plugin.page.stand_in import ONE, Page, one_job

MIB = 1024 * 1024
PATH = f"/api/v1{ONE}/checkpoints/1/rows?stage={STAGE}&name=totals"
LARGE = 64 * MIB
TOO_LARGE = (409, "takes more than 256 MiB of memory or 20 s")
BROKEN = (502, "cannot be read as Parquet")
ALL = (200, '"more":true,"read_in_part":false')


def written(columns: dict[str, Any], compression: str = "zstd", **more: Any) -> bytes:
    """Write a file."""
    out = io.BytesIO()
    pq.write_table(pa.table(columns), out, compression=compression, write_statistics=False, **more)
    return out.getvalue()


def repeated(size: int, rows: int = 40) -> pa.DictionaryArray:
    """Give one text of so many bytes, again and again."""
    return pa.DictionaryArray.from_arrays(pa.array([0] * rows, pa.int32()), pa.array(["x" * size]))


def dictionary(compression: str = "zstd") -> bytes:
    """Write a dictionary with one large value, and a page that names it often."""
    return written({"k": repeated(1), "v": repeated(LARGE)}, compression, dictionary_pagesize_limit=2 * LARGE)


def large_keys() -> bytes:
    """Write a run whose keys are large."""
    columns = {"k": repeated(LARGE), "v": repeated(1), DELETED: pa.array([False] * 40)}
    return written(columns, dictionary_pagesize_limit=2 * LARGE)


def one_page() -> bytes:
    """Write a page with one huge value."""
    return written({"k": ["a"], "v": ["x" * 300 * MIB]}, use_dictionary=False)


def elements() -> bytes:
    """Write a list of twenty million elements: a few bytes of levels."""
    count = 20_000_000
    return written({"k": ["a"], "v": pa.ListArray.from_arrays(pa.array([0, count]), pa.nulls(count, pa.int8()))})


def nested() -> bytes:
    """Write lists in lists in lists."""
    kind: pa.DataType = pa.int8()
    for _ in range(900):
        kind = pa.list_(kind)
    return written({"k": pa.array(["a"]), "v": pa.nulls(1, kind)}, store_schema=False)


def _varint(value: int, width: int = 0) -> bytes:
    """Give a number as Thrift has it, in so many bytes."""
    left, found = value * 2, bytearray()
    while left > 0x7F or len(found) + 1 < width:
        found.append(left & 0x7F | 0x80)
        left >>= 7
    return bytes((*found, left))


def lying(said: int, *, footer: bool = False) -> bytes:
    """Write the large dictionary with another size of what it unpacks to, in the footer or in the page's header."""
    data = dictionary()
    start = len(data) - 8 - struct.unpack("<I", data[-8:-4])[0]
    column = pq.ParquetFile(io.BytesIO(data)).metadata.row_group(0).column(1)
    true = _varint(column.total_uncompressed_size if footer else LARGE + 4)
    at = data.index(true, *((start,) if footer else (0, start)))
    return data[:at] + _varint(said, len(true)) + data[at + len(true) :]


def long_footer() -> bytes:
    """Write a file whose footer is longer than the file, by its own word."""
    data = written({"k": ["a"], "v": ["b"]})
    return data[:-8] + struct.pack("<I", 2**31 - 1) + data[-4:]


def many_rows() -> bytes:
    """Write fifty million rows: a few bytes of levels."""
    return written({name: pa.nulls(50_000_000, pa.string()) for name in "kv"})


def columns_of(count: int) -> list[str]:
    """Name so many columns."""
    return ["k", "v", *(f"c{number}" for number in range(count - 2))]


def ordinary(columns: int) -> bytes:
    """Write a row group of 100 MiB that does not compress, as wide as was asked for."""
    rows = 100 * MIB // 8 // columns
    some = Random(columns)
    longs = lambda: pa.Array.from_buffers(pa.int64(), rows, [None, pa.py_buffer(some.randbytes(8 * rows))])  # noqa: E731
    return written({name: longs() for name in columns_of(columns)}, "snappy", row_group_size=rows)


def _alone(make: Callable[..., bytes], *arguments: Any) -> tuple[bytes, ...]:
    return (make(*arguments),)


WIDE = {"50 columns": 50, "500 columns": 500}
FILES: dict[str, tuple[Callable[[], tuple[bytes, ...]], tuple[int, str]]] = {
    **{
        f"a large value in a dictionary, {each}": (partial(_alone, dictionary, each), TOO_LARGE)
        for each in ("zstd", "gzip", "brotli", "lz4")
    },
    "large keys of a run": (lambda: (written({"k": ["a"], "v": ["b"]}), large_keys()), TOO_LARGE),
    "one page with one value": (partial(_alone, one_page), TOO_LARGE),
    "a list without end": (partial(_alone, elements), TOO_LARGE),
    "types in types": (partial(_alone, nested), BROKEN),
    "a footer that says less": (partial(_alone, partial(lying, footer=True), 2), TOO_LARGE),
    "a page that says less": (partial(_alone, lying, 2), BROKEN),
    "a page that says more": (partial(_alone, lying, 2**27 - 1), BROKEN),
    "a footer that says more": (partial(_alone, long_footer), BROKEN),
    "an end that is missing": (lambda: (dictionary()[:-100],), BROKEN),
    "rows without end": (partial(_alone, many_rows), ALL),
    **{name: (partial(_alone, ordinary, columns), ALL) for name, columns in WIDE.items()},
}


# The server, in a process of its own, which has not seen what is in the files.


def _peak_mib() -> int:
    [line] = (line for line in Path("/proc/self/status").read_text().splitlines() if line.startswith("VmHWM"))
    return int(line.split()[1]) // 1024


def _show(columns: int, names: list[str]) -> dict[str, Any]:
    parts = [Path(name).read_bytes() for name in names]
    schema = json.dumps(fields(**dict.fromkeys(columns_of(columns), "string")))
    world = job()
    keep(world, "a", *parts, runs=range(len(parts)), schema=schema)
    page = Page(one_job(world.memory))
    Path("/proc/self/clear_refs").write_text("5")  # from here its peak counts
    before = _peak_mib()
    answer = page.get(PATH)
    return {
        "status": answer.status_code,
        "text": answer.text,
        "rows": len(answer.json().get("rows", [])),
        "taken_mib": _peak_mib() - before,
        "children_mib": resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss // 1024,
    }


def main() -> None:
    """Show files as lines of the standard input name them."""
    for line in sys.stdin:
        print(json.dumps(_show(*json.loads(line))), flush=True)


@pytest.fixture(scope="module")
def shown(tmp_path_factory: pytest.TempPathFactory) -> dict[str, dict[str, Any]]:
    """Answers of a server for each of `FILES`."""
    asked = []
    for name, (make, _) in FILES.items():
        paths = []
        for data in make():
            paths.append(tmp_path_factory.mktemp("of-a-state") / "part")
            paths[-1].write_bytes(data)
        asked.append(json.dumps([WIDE.get(name, 2), [str(path) for path in paths]]))
    command = [sys.executable, "-m", __name__]
    done = subprocess.run(command, input="\n".join(asked), stdout=subprocess.PIPE, text=True, check=True)
    answers = [json.loads(line) for line in done.stdout.splitlines() if line.startswith("{")]  # Airflow prints others
    return dict(zip(FILES, answers, strict=True))


@pytest.mark.soak  # gigabytes that are unpacked
@pytest.mark.parametrize("name", FILES)
def test_a_server_takes_little_memory_whatever_a_file_unpacks_to(name: str, shown: dict[str, dict[str, Any]]) -> None:
    status, text = FILES[name][1]
    answer = shown[name]
    assert (answer["status"], text in answer["text"]) == (status, True), answer["text"][:500]
    assert answer["rows"] == (ROWS if FILES[name][1] == ALL else 0)
    assert answer["taken_mib"] < 64
    assert name in WIDE or answer["children_mib"] < 256 + 150, "Python and pyarrow themselves have 70"


if __name__ == "__main__":
    main()
