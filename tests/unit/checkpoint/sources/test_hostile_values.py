"""Stored values of a source that another writer has replaced: the error shows them, and blames no source (W5)."""

from collections.abc import Iterator
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any

import pytest

from airflow_cairn.checkpoint.documents.metadata import SideList
from airflow_cairn.checkpoint.errors import DocumentError
from airflow_cairn.checkpoint.source import NoShelf, Refusal, RunFacts
from airflow_cairn.checkpoint.sources.files import FileSource, files_in
from airflow_cairn.checkpoint.sources.values import AssetEvents, DataInterval
from tests.support.memory_store import MemoryStore
from tests.support.narrowing import expect

URI = "s3://input/sales"
FILE = {"key": "a", "size_bytes": 1, "etag": "e", "url": "s3a://in/sales/a"}
LISTED = SideList("epoch-lists/e1/files.jsonl", 1, "00", "e", 1)


@dataclass
class Shelf(NoShelf):
    """Holds one list."""

    values: list[Any] = field(default_factory=list)

    def read(self, _listed: SideList) -> Iterator[Any]:
        return iter(self.values)


def listed(**position: Any) -> dict[str, Any]:
    return {"uri": URI, "seen": {}, "pieces": [LISTED.to_reference()], **position}


NO_FILES: list[Any] = [
    *(None, 7, True, "text", [], {}),
    *(FILE | {"key": odd} for odd in (None, 1, ["a"])),
    *(FILE | {"size_bytes": odd} for odd in (None, "1", True, 0.5)),
    *(FILE | {"etag": odd} for odd in (None, 1, {"x": 1})),
]


@pytest.mark.parametrize("value", NO_FILES)
def test_what_is_no_file_is_refused_with_the_list_that_holds_it(value: Any) -> None:  # semantics W5
    source, where = (
        FileSource(URI),
        r"a list of files holds an entry that is not a file \[key=`epoch-lists/e1/files.jsonl`",
    )
    part, empty = {"uri": URI, "list": LISTED.to_reference()}, {"uri": URI, "seen": {"b": "1 e"}}
    facts = RunFacts("run", open_store=lambda *_: MemoryStore("in"), shelf=Shelf([value]))
    with pytest.raises(DocumentError, match=where):
        source.advance(empty, part, Shelf([value]))
    with pytest.raises(DocumentError, match=where):
        source.read(facts, listed())
    with pytest.raises(DocumentError, match="an entry that is not a file"):
        source.advance(empty, {"uri": URI, "files": [value]}, Shelf())


@pytest.mark.parametrize("value", [7, FILE | {"url": None}, FILE | {"etag": 1}, FILE | {"modified_ms": "now"}])
def test_a_driver_is_given_files_alone(value: Any) -> None:  # semantics W5
    part = {"uri": URI, "list": LISTED.to_reference()}
    with pytest.raises(DocumentError, match=r"epoch-lists/e1/files\.jsonl"):
        list(files_in(part, Shelf([FILE, value]).read))
    assert list(files_in(part, Shelf([FILE]).read)) == [FILE]
    by_an_author = {"key": "a", "url": "s3a://in/a"}
    assert list(files_in({"uri": URI, "files": [by_an_author]}, Shelf().read)) == [by_an_author]


@pytest.mark.parametrize(
    ("source", "position", "part", "text"),
    [
        (FileSource(URI), listed(pieces=True), {"uri": URI, "files": []}, "not a position of a FileSource"),
        (FileSource(URI), listed(seen={"a": 1}), {"uri": URI, "files": []}, "not a position of a FileSource"),
        (FileSource(URI), listed(seen={"a": "x e"}), {"uri": URI, "files": []}, "not a position of a FileSource"),
        (FileSource(URI), None, {"uri": URI, "files": "abc"}, "not a part of a FileSource"),
        (AssetEvents(), None, [7], "not a position of AssetEvents"),
        (AssetEvents(), None, [{"id": 7}], "not a position of AssetEvents"),
        (AssetEvents(), [], {"id": "a"}, "not a position of AssetEvents"),
        (DataInterval(), [{"start": None, "end": "soon"}], {"start": None, "end": "2026-01-01T00:00Z"}, "not a window"),
        (DataInterval(), None, {"start": None, "end": "2026-01-01"}, "not a window"),
        (DataInterval(), None, {"start": 7, "end": "2026-01-01T00:00Z"}, "not a window"),
        (DataInterval(), None, {"end": "2026-01-01T00:00Z"}, "not a window"),
        (DataInterval(), None, 7, "not a window"),
    ],
)
def test_another_s_value_is_no_fault_of_the_source(source: Any, position: Any, part: Any, text: str) -> None:
    # semantics W5
    with pytest.raises(DocumentError, match=text):
        source.advance(position, part, Shelf())


def test_a_place_that_is_none_is_another_place() -> None:  # semantics T8
    source, facts = FileSource(URI), RunFacts("run", datetime(2026, 1, 1, tzinfo=UTC).isoformat())
    for stored in ("../../victim", "", "ftp://x/y"):
        answers = (
            source.read(facts, {"uri": stored, "seen": {}}),
            source.advance(None, {"uri": stored, "files": []}, Shelf()),
        )
        for answer in answers:
            assert f"{stored} " in expect(Refusal, answer).text
