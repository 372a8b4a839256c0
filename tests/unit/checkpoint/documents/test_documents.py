"""Documents: round trips, caps, and everything a broken or hostile one may hold (semantics W1, W5, C5)."""

import dataclasses
import json
import time
from collections.abc import Iterator
from typing import Any
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

import pytest
from hypothesis import given
from hypothesis import strategies as st

from airflow_cairn.checkpoint.documents import attempt, codec, layout
from airflow_cairn.checkpoint.documents.acknowledgement import AckDocument
from airflow_cairn.checkpoint.documents.attempt import BacklogEpoch, Handover, PendingDocument, Slice
from airflow_cairn.checkpoint.documents.head import Head
from airflow_cairn.checkpoint.documents.metadata import StageLine, Trailer
from airflow_cairn.checkpoint.documents.strict_json import from_json, to_json
from airflow_cairn.checkpoint.errors import InvalidStateError
from airflow_cairn.checkpoint.store.job_files import KINDS, JobFiles, encode
from airflow_cairn.storage import DocumentError, InvalidKeyError
from airflow_cairn.storage.names import check_name
from tests.support.errors import raises_code
from tests.support.memory_store import MemoryStore
from tests.support.world.generated import documents_of
from tests.support.world.golden import EXAMPLES

FILES = JobFiles(MemoryStore(), "flights")
ANY_DOCUMENT = st.one_of([documents_of(cls) for cls in KINDS])


def _parse(cls: type, data: bytes, **limits: int) -> object:
    document: object = FILES.parse(cls, "chk-0000000001/x", data, **limits)
    repr(document)  # with the fields that are read when they are used
    return document


@given(ANY_DOCUMENT)
def test_what_is_written_is_what_is_read(document: Any) -> None:  # semantics C5
    assert _parse(type(document), encode(document), max_bytes=codec.MAX_HEAD_BYTES) == document
    again = from_json(type(document), json.loads(json.dumps(to_json(document))), key="x")
    assert encode(again) == encode(document), "equal documents are equal bytes"


def _strings(value: Any, path: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    """Give the path to every text in a JSON value that names something: a job, a stage, a token, a key."""
    if isinstance(value, dict):
        for name, each in value.items():
            yield from _strings(each, (*path, name))
    elif isinstance(value, list):
        for index, each in enumerate(value):
            yield from _strings(each, (*path, index))
    elif isinstance(value, str):
        yield path


_FREE = {
    "actor", "cause", "checksum", "claimant", "dag_id", "data", "deployment", "detail", "end", "kind", "reason",
    "request", "run_id", "savepoint_target", "schema", "sha256", "start", "status", "target", "task_id", "uri", "why",
}  # fmt: skip
"""Fields that hold text for people or for comparing, never part of a key; and a savepoint's place, a URI of its own."""

_FREE_BELOW = {"committables", "damages", "merge", "options", "others", "partition_by", "slice", "values"}

HOSTILE = ["..", ".", "", "/etc/passwd", "../other", "a/../../b", "s3://b/x", "a\nb", "a\x00b", "-x", "x" * 2000]


def _is_free(path: tuple[Any, ...]) -> bool:
    # `key` names an object where it is a text, and columns where it is a list.
    return path[-1] in _FREE or bool(_FREE_BELOW & set(path)) or (len(path) > 1 and path[-2] == "key")


def _example(cls: type, golden: dict[type, Any]) -> Any:
    return json.loads(encode(golden[cls]))


@pytest.mark.parametrize("cls", list(KINDS), ids=lambda cls: cls.__name__)
@pytest.mark.parametrize("hostile", HOSTILE, ids=lambda text: repr(text[:14]))
def test_hostile_names_are_refused_wherever_a_name_can_stand(
    cls: type, hostile: str, examples: dict[type, Any]
) -> None:  # semantics W1, W5
    document = _example(cls, examples)
    for path in [path for path in _strings(document) if not _is_free(path)]:
        if (path[-1], hostile) == ("format", ""):
            continue  # Parquet
        broken = json.loads(json.dumps(document))
        place = broken
        for step in path[:-1]:
            place = place[step]
        place[path[-1]] = hostile
        with pytest.raises(DocumentError):
            _parse(cls, codec.encode(broken))
    for name in ("executions", "upstream", "values", "committables", "tables"):
        for holder in _holders(document, name):
            holder[hostile] = next(iter(holder.values()))
            with pytest.raises(DocumentError):
                _parse(cls, codec.encode(document))
            del holder[hostile]
    _parse(cls, codec.encode(document))


def _holders(value: Any, name: str) -> Iterator[dict[str, Any]]:
    if isinstance(value, dict):
        found = value.get(name)
        if isinstance(found, dict) and found:
            yield found
        for each in value.values():
            yield from _holders(each, name)
    elif isinstance(value, list):
        for each in value:
            yield from _holders(each, name)


@pytest.mark.parametrize("cls", list(KINDS), ids=lambda cls: cls.__name__)
def test_every_field_is_checked_for_its_type(cls: type, examples: dict[type, Any]) -> None:  # semantics W5
    document = _example(cls, examples)
    required = {f.name for f in dataclasses.fields(cls) if f.default is f.default_factory is dataclasses.MISSING}
    for name in set(document) - {"kind", "format"}:
        wrongs: tuple[Any, ...] = (None, True, 1.5, [[]], {"x": [None]}, "\x00", -1, 10**4000)
        for wrong in wrongs:
            try:
                read = _parse(cls, codec.encode({**document, name: wrong}))
            except DocumentError:
                continue
            assert _parse(cls, encode(read)) == read, "what is let in is a document like any other"
            assert name not in required or wrong is not None
        without = {key: value for key, value in document.items() if key != name}
        if name in required:
            with pytest.raises(DocumentError, match="the field is missing"):
                _parse(cls, codec.encode(without))
        else:
            _parse(cls, codec.encode(without))


@pytest.mark.parametrize("cls", list(KINDS), ids=lambda cls: cls.__name__)
def test_half_a_document_is_never_used(cls: type, examples: dict[type, Any]) -> None:  # semantics W5
    data = encode(examples[cls])
    for cut in range(0, len(data) - 2, max(1, len(data) // 60)):
        with pytest.raises(DocumentError):
            _parse(cls, data[:cut])


@pytest.mark.parametrize("cls", list(KINDS), ids=lambda cls: cls.__name__)
def test_another_kind_job_or_format_is_refused_by_name(cls: type, examples: dict[type, Any]) -> None:  # semantics C5
    document = _example(cls, examples)
    for change, message in (
        ({"format": 99}, "written by a newer Cairn"),
        ({"format": 0}, "names no format version"),
        ({"format": True}, "names no format version"),
        ({"format": "1"}, "names no format version"),
        ({"kind": "cairn.other"}, "of another kind"),
        ({"job": "weather"}, "belongs to another job"),
    ):
        with pytest.raises(DocumentError, match=message) as caught:
            _parse(cls, codec.encode({**document, **change}))
        assert "flights/chk-0000000001/x" in str(caught.value), "the key is named"


def test_a_head_with_a_field_too_many_is_refused_at_every_level(examples: dict[type, Any]) -> None:  # semantics C5
    """The process that writes it back would lose the field."""
    document = _example(Head, examples)
    for place in (document, document["completed"][0], document["counters"], document["pending"][0]):
        place["newer"] = 1
        with pytest.raises(DocumentError, match="'newer' is unknown here"):
            _parse(Head, codec.encode(document))
        del place["newer"]


def test_a_marker_with_a_field_too_many_is_read(examples: dict[type, Any]) -> None:  # semantics C5
    document = {**_example(AckDocument, examples), "newer": 1}
    assert _parse(AckDocument, codec.encode(document)) == examples[AckDocument]


@pytest.mark.parametrize(
    ("data", "message"),
    [
        (b'{"a":1,"a":2}', "'a' is there twice"),
        (b'{"x":{"b":1,"c":2,"b":3}}', "'b' is there twice"),
        (b'{"a":NaN}', "NaN is not JSON"),
        (b'{"a":-Infinity}', "-Infinity is not JSON"),
        (b'{"a":1e999}', "not a finite number"),
        (b"\xff\xfe", "cannot be read"),
        (b"", "cannot be read"),
        (b"[" * 21 + b"]" * 21, "nested too deeply"),
        (b'{"a":' * 21 + b"1" + b"}" * 21, "nested too deeply"),
        (b"[" * 900_000, "nested too deeply"),
        # In a text, what would close the bracket before it, and open the one after it.
        (b'["]",' * 21 + b"1" + b',"["]' * 21, "nested too deeply"),
        (b'["]",' * 5000 + b"1" + b',"["]' * 5000, "nested too deeply"),
        (b'["\\"]",' * 21 + b"1" + b',"\\"["]' * 21, "nested too deeply"),
        (b'{"a":' + b"9" * 5000 + b"}", "cannot be read"),
        (b'{"a":1}x', "cannot be read"),
        (b'{"a":"\\ud800"}', "surrogates not allowed"),
        (b'{"\\uDFFF":1}', "surrogates not allowed"),
    ],
)
def test_json_that_is_none_of_ours_is_refused(data: bytes, message: str) -> None:  # semantics W5
    with pytest.raises(DocumentError, match=message):
        codec.parse(data, key="k")


def test_depth_counts_structure_and_not_text() -> None:  # semantics W5
    codec.parse(b"[" * 20 + b"]" * 20, key="k")
    codec.parse(json.dumps({"schema": "[{" * 500 + '"\\' * 50}).encode(), key="k")
    codec.parse(json.dumps(["[" * 30, "]}" * 30]).encode(), key="k")


def test_texts_that_never_close_cost_no_more_than_others() -> None:  # semantics W5
    hostile = b'"' + b'\\"[' * 340_000
    started = time.thread_time()
    with pytest.raises(DocumentError):
        codec.parse(hostile, key="k")
    # Of a processor, so no other process lengthens it. A search from each of its quotes would be quadratic: minutes.
    assert time.thread_time() - started < 10


def test_too_large_is_refused_before_it_is_parsed() -> None:  # semantics W5
    with pytest.raises(DocumentError, match="larger than its kind may be"):
        _parse(AckDocument, b"[" * (codec.MAX_MARKER_BYTES + 1))
    store = MemoryStore()
    store.put("flights/chk-0000000001/x", b" " * (codec.MAX_MARKER_BYTES + 1))
    with pytest.raises(DocumentError, match="larger than it may be"):
        JobFiles(store, "flights").read(AckDocument, "chk-0000000001/x")


@pytest.mark.parametrize("value", [float("nan"), float("inf"), {1, 2}, object(), "half \ud800", b"bytes"])
def test_what_json_cannot_hold_is_refused_on_writing(value: object, examples: dict[type, Any]) -> None:  # semantics W5
    ack = dataclasses.replace(examples[AckDocument], values={"v": value})
    with pytest.raises(InvalidStateError, match="cannot be stored as JSON"):
        encode(ack)


@given(st.text(), st.text())
def test_epoch_names_are_injective_and_within_the_grammar(one: str, other: str) -> None:  # semantics W1
    assert check_name("epoch", layout.epoch_name(one)) == layout.epoch_name(one)
    assert (layout.epoch_name(one) == layout.epoch_name(other)) == (one == other)


@given(st.text(max_size=60))
def test_a_run_id_comes_back_from_its_epoch_name(run_id: str) -> None:  # semantics W1
    name = layout.epoch_name(run_id)
    assert layout.run_id_of(name) == (run_id if ".h" not in name else name)


@pytest.mark.parametrize(
    ("run_id", "name"),
    [
        ("scheduled__2026-01-01T00:00:00+00:00", "scheduled__2026-01-01T00.3a00.3a00.2b00.3a00"),
        ("manual__x", "manual__x"),
        ("_x", "__x"),
        ("", "_"),
        ("..", "_.2e.2e"),
        ("a/b", "a.2fb"),
        ("café", "caf.c3.a9"),
        ("half \ud800", "half.20.ed.a0.80"),
    ],
)
def test_epoch_names_as_they_are(run_id: str, name: str) -> None:  # semantics W1
    assert layout.epoch_name(run_id) == name
    assert layout.run_id_of(name) == run_id


def test_long_run_ids_stay_apart() -> None:  # semantics W1
    names = {layout.epoch_name("r" * 300 + end) for end in ("", "a", "b")}
    assert len(names) == 3
    assert {len(name) for name in names} == {200}
    assert {layout.run_id_of(name) for name in names} == names, "shown as they are"


def test_every_key_of_the_layout_is_a_key() -> None:  # semantics W1, W5
    longest = "s" * 250
    token = "f" * 16
    keys = [
        layout.pending(1, token),
        layout.metadata(1, token),
        layout.ack(1, longest, token),
        layout.ack_part(1, longest, token, token, 99_999),
        layout.decline(1, longest, token),
        layout.handover(1, longest, token),
        *(layout.output_folder(1, longest, 1, token, token, f"{kind}.{longest}") for kind in ("state", "exchange")),
        layout.position_piece(1, longest, token),
    ]
    for key in keys:
        assert layout.check_relative(key) == key
        assert layout.checkpoint_of(key) == 1
        assert all(len(segment.encode()) <= 255 for segment in key.split("/")), "local files take no more"
    listed = layout.epoch_list(longest, longest)
    assert layout.check_side_list(listed) == listed
    for key in (layout.epoch_slice(longest), layout.epoch_completed(longest), listed):
        assert all(len(segment) <= 255 for segment in key.split("/"))
    assert layout.epoch_slice("a.completed") != layout.epoch_completed("a")


def test_long_names_stay_apart_in_keys() -> None:  # semantics W1
    token = "f" * 16
    folders = {layout.output_folder(1, "s", 1, token, token, f"state.{'n' * 249}{end}") for end in "ab"}
    pieces = {layout.position_piece(1, "n" * 249 + end, token) for end in "ab"}
    assert len(folders) == len(pieces) == 2
    assert layout.output_folder(1, "s", 1, token, token, "state." + "n" * 194).endswith(f"/state.{'n' * 194}/")


@pytest.mark.parametrize(
    "output", ["state." + "n" * 251, "state.", "state...", "state.a/b", "state", ".a", "St.a", "s" * 33 + ".a", "s.a\n"]
)
def test_what_names_no_output_has_no_folder(output: str) -> None:  # semantics W1
    with raises_code("invalid_name", match="this names no output"):
        layout.output_folder(1, "s", 1, "f" * 16, "f" * 16, output)


@pytest.mark.parametrize(
    "key",
    [
        "", "/", "/chk-0000000001/x", "chk-1/x", "chk-00000000011/x", "head.json", "epochs/a.json",
        "../chk-0000000001/x",
        "chk-0000000001/../x", "chk-0000000001/./x", "chk-0000000001//x", "chk-0000000001/x//", "chk-0000000001/a\\b",
        "chk-0000000001/a\nb", "s3://b/chk-0000000001/x", "file:///etc/passwd", "chk-0000000001/" + "x" * 2000,
        "chk-000000000١/x",
    ],
)  # fmt: skip
def test_keys_outside_a_checkpoint_are_refused(key: str) -> None:  # semantics W5
    with pytest.raises((DocumentError, InvalidKeyError)):
        layout.check_relative(key)


def test_the_error_says_where_in_the_document(examples: dict[type, Any]) -> None:
    document = _example(PendingDocument, examples)
    document["stages"][1]["upstream"] = ["..", "clean"]
    with pytest.raises(DocumentError, match=r"broken at `stages\[1\]\.upstream\[0\]`"):
        _parse(PendingDocument, codec.encode(document))
    handover = _example(Handover, examples)
    handover["upstream"]["clean"]["token"] = "../x"
    with pytest.raises(DocumentError, match=r"broken at `upstream\.clean\.token`"):
        _parse(Handover, codec.encode(handover))


def test_a_job_that_leaves_nobody_out_has_the_documents_that_it_always_had() -> None:  # semantics B3, F6
    whole = dataclasses.replace(EXAMPLES[Handover], backlog=())
    assert "backlog" not in to_json(whole)
    assert _parse(Handover, encode(whole)) == whole
    assert "inputs" not in to_json(BacklogEpoch("a", Slice()))
    assert "owes" not in to_json(StageLine("clean", EXAMPLES[Handover].upstream["clean"], 1))
    assert "in_flight" not in to_json(Trailer(1, 2))


@pytest.mark.parametrize(
    ("zone", "start", "end", "dates"),
    [
        ("UTC", "2026-01-01T00:00:00+00:00", "2026-01-02T00:00:00+00:00", ("2026-01-01", "2026-01-02")),
        # The clock is put on, and back: days of 23 and 25 hours.
        ("Europe/Berlin", "2026-03-28T23:00:00+00:00", "2026-03-29T22:00:00+00:00", ("2026-03-29", "2026-03-30")),
        ("Europe/Berlin", "2026-10-24T22:00:00+00:00", "2026-10-25T23:00:00+00:00", ("2026-10-25", "2026-10-26")),
        ("Europe/Berlin", "2026-10-25T00:00:00+02:00", "2026-11-01T00:00:00+01:00", ("2026-10-25", "2026-11-01")),
        ("America/New_York", "2026-03-08T05:00:00Z", "2026-03-09T04:00:00Z", ("2026-03-08", "2026-03-09")),
        ("Asia/Kolkata", "2025-12-31T18:30:00+00:00", "2026-01-01T18:30:00+00:00", ("2026-01-01", "2026-01-02")),
        # At midnight itself: the day begins at 01:00, and 00:00 comes twice.
        ("Asia/Beirut", "2024-03-30T22:00:00+00:00", "2024-03-31T21:00:00+00:00", ("2024-03-31", "2024-04-01")),
        ("America/Havana", "2024-11-03T04:00:00+00:00", "2024-11-04T05:00:00+00:00", ("2024-11-03", "2024-11-04")),
    ],
)
def test_the_dates_of_a_slice(zone: str, start: str, end: str, dates: tuple[str, str]) -> None:  # semantics T8
    assert Slice(start, end).dates(zone) == dates


def test_a_machine_without_time_zones_knows_utc(monkeypatch: pytest.MonkeyPatch) -> None:
    def none(zone: str) -> ZoneInfo:
        raise ZoneInfoNotFoundError(zone)

    monkeypatch.setattr(attempt, "ZoneInfo", none)
    window = Slice("2026-01-01T00:00:00+00:00", "2026-01-02T00:00:00+00:00")
    assert window.dates("UTC") == ("2026-01-01", "2026-01-02")
    with pytest.raises(InvalidStateError, match="install the package tzdata there"):
        window.dates("Europe/Berlin")


@pytest.mark.parametrize(
    ("slice_", "zone", "why"),
    [
        (Slice("2026-01-01T00:00:00+00:00", "2026-01-02T00:00:00+00:00"), "Europe/Berlin", "not consist of whole days"),
        (Slice("2026-01-01T00:00:00+00:00", "2026-01-01T06:00:00+00:00"), "UTC", "its end is not a beginning of a day"),
        (Slice("2024-11-03T05:00:00+00:00", "2024-11-04T05:00:00+00:00"), "America/Havana", "its start is no"),
        (Slice(None, "2026-01-02T00:00:00+00:00"), "UTC", "the slice has no start"),
        (Slice("2026-01-01T00:00:00+00:00", "../soon"), "UTC", "the end of the slice is not a moment.*end=`'../soon'`"),
        (Slice("2026-01-01T00:00:00+00:00", "2026-01-02T00:00:00+00:00"), "Europe/Berln", "this is not a time zone"),
        (Slice("2026-01-01T00:00:00+00:00", "2026-01-02T00:00:00+00:00"), "../etc/passwd", "this is not a time zone"),
    ],
)
def test_a_slice_that_has_no_dates_there(slice_: Slice, zone: str, why: str) -> None:  # semantics T8
    with pytest.raises(InvalidStateError, match=why):
        slice_.dates(zone)
