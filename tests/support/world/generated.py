"""Documents made up by hypothesis, each as a writer of ours could have made it."""

from __future__ import annotations

import json
import types
from dataclasses import KW_ONLY
from datetime import UTC, datetime, timedelta
from enum import Enum
from typing import Annotated, Any, Union, get_args, get_origin, get_type_hints

from hypothesis import strategies as st

from airflow_cairn.checkpoint.documents import codec, layout, programs, schemas
from airflow_cairn.checkpoint.documents.entries import EndedEntry
from airflow_cairn.checkpoint.documents.head import Head
from airflow_cairn.checkpoint.documents.read_windows import ReadWindows, WindowText
from airflow_cairn.checkpoint.reasons import Status

NAMES = st.from_regex(r"\A[A-Za-z0-9_][A-Za-z0-9._-]{0,30}\Z").filter(lambda name: name != "_cairn")
TOKENS = st.from_regex(r"\A[0-9a-f]{16}\Z")
TEXTS = st.text(st.characters(exclude_categories=["Cs"]), max_size=30)
SEGMENTS = st.text(st.characters(exclude_categories=["Cs", "Cc"], exclude_characters="/\\"), min_size=1, max_size=20)
KEYS = st.builds(
    lambda checkpoint, segments: layout.folder(checkpoint) + "/".join(segments),
    st.integers(1, 9_999_999_999),
    st.lists(SEGMENTS.filter(lambda segment: segment not in (".", "..")), min_size=1, max_size=4),
)
JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | TEXTS,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(TEXTS, inner, max_size=3),
    max_leaves=6,
)
SCHEMAS = st.none() | st.sampled_from(("long", "string", "decimal(5,2)")).map(
    lambda kind: json.dumps({"type": "struct", "fields": [{"name": "a", "type": kind, "nullable": True}]})
)
CHECKSUMS = st.from_regex(r"\Asha256:[0-9a-f]{64}\Z") | st.from_regex(r"\Acrc64nvme:[0-9a-f]{16}\Z")
MOMENTS = st.integers(0, 2**32).map(lambda seconds: datetime.fromtimestamp(seconds, UTC))
WINDOWS = st.tuples(MOMENTS, MOMENTS, st.booleans()).map(
    lambda drawn: WindowText(
        (max(drawn[:2]) + timedelta(hours=1)).isoformat(), min(drawn[:2]).isoformat() if drawn[2] else None
    )
)
_OF_ALIAS: dict[Any, st.SearchStrategy[Any]] = {
    codec.Token: TOKENS,
    codec.Key: KEYS,
    codec.OutputName: NAMES,
    codec.OutputId: st.builds("{}.{}".format, st.sampled_from(("state", "table", "exchange", "list")), NAMES),
    codec.ListenerName: NAMES,
    codec.HookName: NAMES,
    codec.Stage: NAMES,
    codec.Epoch: NAMES,
    codec.Job: st.just("flights"),
    codec.RequestId: TEXTS.map(lambda text: "r" + "".join(each for each in text if each.isprintable())),
    codec.Target: NAMES.map("s3://bucket/{}".format),
    codec.Host: st.sampled_from(("worker-1", "10.0.0.7", "fd00::7")),
    codec.Partition: st.sampled_from(("2026-01-01-0F", "a.b-1", "-0")),
    codec.FolderName: NAMES,
    codec.Checksum: CHECKSUMS,
    WindowText: WINDOWS,
    codec.Count: st.integers(0, 2**62),
}
_OF_CHECK: dict[Any, st.SearchStrategy[Any]] = {
    schemas.check_schema: SCHEMAS,
    programs.check_format: st.sampled_from(sorted(programs.FORMATS)),
    programs.check_options: st.dictionaries(st.sampled_from(sorted(programs.FORMATS["csv"])), TEXTS, max_size=2),
    programs.check_program_kind: st.sampled_from(sorted(programs.PROGRAM_KINDS)),
}


def values_of(hint: Any) -> st.SearchStrategy[Any]:
    """Give values that fit an annotation of our documents."""
    if hint in _OF_ALIAS:
        return _OF_ALIAS[hint]
    origin = get_origin(hint)
    if hint is Any:
        return JSON
    if origin is Annotated:
        return next((_OF_CHECK[check] for check in get_args(hint)[1:] if check in _OF_CHECK), st.integers(1, 2**40))
    if origin in (Union, types.UnionType):
        return st.none() | values_of(next(each for each in get_args(hint) if each is not type(None)))
    if origin is tuple:
        return st.lists(values_of(get_args(hint)[0]), max_size=3).map(tuple)
    if origin is dict:
        name, item = get_args(hint)
        return st.dictionaries(values_of(name), values_of(item), max_size=3)
    if hint is float:
        return st.floats(allow_nan=False, allow_infinity=False)
    if hint is str:
        return TEXTS
    if isinstance(hint, type) and issubclass(hint, Enum):
        return st.sampled_from(list(hint))
    return documents_of(hint)


def documents_of(cls: Any) -> st.SearchStrategy[Any]:
    """Give documents of one class."""
    hints = get_type_hints(cls, include_extras=True)
    parts = {name: values_of(hint) for name, hint in hints.items() if hint is not KW_ONLY}
    if cls is EndedEntry:
        parts["status"] = st.sampled_from([Status.COMPLETED, Status.FAILED])
    if cls is Head:
        parts["job"] = st.just("flights")
    if cls is ReadWindows:
        parts["exact_from"] = st.none() | MOMENTS.map(datetime.isoformat)
    return st.builds(cls, **parts)
