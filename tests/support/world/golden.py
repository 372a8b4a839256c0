"""Example of each document of the current format, with every field filled.

`python -m tests.support.world.golden` writes the files in `tests/golden/<format>/` of the current format anew, after a
field was added. What a released Cairn wrote is in `tests/golden_released/`; later versions must read it, so it never
changes.
"""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

from airflow_cairn.checkpoint.documents import codec
from airflow_cairn.checkpoint.documents.acknowledgement import (
    AckDocument,
    AckMetrics,
    AckPart,
    Appended,
    CompactionDocument,
    DeclineDocument,
    ListMode,
    Manifest,
    ManifestDocument,
    Output,
    StateHandle,
    SubtaskAck,
    TableDocument,
)
from airflow_cairn.checkpoint.documents.attempt import (
    BacklogEpoch,
    DocumentRef,
    EpochCompletedDocument,
    EpochDocument,
    Execution,
    Handover,
    HookAnswer,
    HookAnswersDocument,
    HooksRef,
    LeaveOut,
    Limits,
    Owner,
    PendingDocument,
    ReplayedEpoch,
    RestartKind,
    RestartMemory,
    RestartRule,
    RestorePointer,
    Slice,
    StageSpec,
)
from airflow_cairn.checkpoint.documents.entries import (
    CompletedEntry,
    Counters,
    DeclinedRequest,
    EndedEntry,
    ImportEntry,
    ImportRecord,
    Intervention,
    InterventionKind,
    JobOwner,
    LateAck,
    Notice,
    PendingEntry,
    RestoreRecord,
    RewindRecord,
    SavepointEntry,
    SavepointOrigin,
    Slowest,
    Stopped,
    TriggeringTask,
    WaitingRequest,
)
from airflow_cairn.checkpoint.documents.head import CompletedNote, Head, Segment
from airflow_cairn.checkpoint.documents.metadata import (
    HandedOn,
    HandleLine,
    HookLine,
    InFlightLine,
    Line,
    MetadataHeader,
    StageLine,
)
from airflow_cairn.checkpoint.documents.mirrors import MirrorEntry, MirrorHold, MirrorOf, Moved
from airflow_cairn.checkpoint.documents.programs import Program, ProgramOutput
from airflow_cairn.checkpoint.documents.server_record import ANYWHERE, ServerEntry, ServersDocument, ServerState
from airflow_cairn.checkpoint.reasons import Reason, RequestKind, Status
from airflow_cairn.checkpoint.savepoints import savepoint_format
from airflow_cairn.checkpoint.savepoints.savepoint_format import SavepointHeader
from airflow_cairn.checkpoint.store import metadata_file
from airflow_cairn.checkpoint.store.job_files import KINDS, encode

ROOT = Path(__file__).parents[2] / "golden"
RELEASED = Path(__file__).parents[2] / "golden_released"
"""Documents of each released version, by version; never written anew."""
FOLDER = ROOT / str(codec.FORMAT)

_EPOCH = "scheduled__2026-01-02T00.3a00.3a00.2b00.3a00"
_BEFORE = "scheduled__2026-01-01T00.3a00.3a00.2b00.3a00"
_SLICE = Slice("2026-01-02T00:00:00+00:00", "2026-01-03T00:00:00+00:00", {"files": ["day=2.csv"], "offset": 17})
_OWNER = Owner("flights", "scheduled__2026-01-02T00:00:00+00:00", "https://airflow.example.com")
_CLEAN = Execution("00000000000000c1", 2, 1)
_ROUTES = Execution("00000000000000d1", 3, 2)
_TRY = "01981c5e-0000-7000-8000-000000000001"
_REF = DocumentRef("chk-0000000001/_metadata-00000000000000a1", 512, "ab" * 32)
_FOLDER = "chk-0000000003/state/routes/2-00000000000000d1/00000000000000e1/state.totals/"
_TOTALS = Output(
    "state",
    "totals",
    _FOLDER,
    '{"type":"struct","fields":[]}',
    ("origin", "destination"),
    key_groups=16,
    merge={"flights": "sum"},
    appended=Appended(17, 900, ("day",)),
)
_OFFSETS = Output("list", "offsets", _FOLDER.replace("state.totals", "list.offsets"), mode=ListMode.UNION, items=[[7]])
_HANDLE = StateHandle(
    "state.totals",
    f"{_FOLDER}part-00000-ü.parquet",
    20_480,
    '"0123456789abcdef"',
    delta=2,
    partition="2026-01-01-0F",
    rows=0,
)
_DAILY_FOLDER = "chk-0000000002/state/report/1-00000000000000d3/00000000000000e3/table.daily/"
_APPENDED_FILE = StateHandle(
    "table.daily", f"{_DAILY_FOLDER}cairn_partition=2026-01-01-0F/part-0.parquet", 9, "e", partition="2026-01-01-0F"
)
_OWED = BacklogEpoch(_BEFORE, Slice(), {"clean": Execution("00000000000000c0", 1, 1)})
_OWED_EDGE = BacklogEpoch(_BEFORE, inputs=_OWED.inputs)
_ROWS_FOLDER = "chk-0000000001/state/clean/1-00000000000000c0/00000000000000e2/exchange.main/"
_ROWS = Output(
    "exchange", "main", _ROWS_FOLDER, '{"type":"struct","fields":[]}', format="csv", options={"header": "true"}
)
_STAGES = (StageSpec("clean"), StageSpec("routes", ("clean",), 2, 16))
_RESTART = RestartRule(RestartKind.EXPONENTIAL_DELAY, 3, 1_000, 60_000, 1.5, 0.1, 3_600_000)
_HOOKS = HooksRef(("ids", "feed", "none"), 2, "00000000000000a2")
_ANSWERS = (HookAnswer("ids", {"next": 201}), HookAnswer("feed", data="AP8="))
_ACK = AckDocument(
    job="flights",
    checkpoint=3,
    epoch=_EPOCH,
    attempt=2,
    stage="routes",
    token=_ROUTES.token,
    run="00000000000000e1",
    parallelism=2,
    outputs=(_TOTALS, _OFFSETS),
    values={"rows": 17, "seen": {"JFK": [1.5, None, True]}},
    metrics=AckMetrics(12, 340, 56, 8_192, 900),
    subtasks=(SubtaskAck(0, (_HANDLE,)), SubtaskAck(1)),
    parts=(DocumentRef("chk-0000000003/acks/routes/x-y-00000.json", 9, "cd" * 32),),
    committables={"orders": {"staging": "0f"}},
    consumed={"clean": _CLEAN.token},
)

_PENDING = PendingDocument(
    job="flights",
    checkpoint=3,
    token="00000000000000b3",
    epoch=_EPOCH,
    attempt=2,
    slice=_SLICE,
    stages=_STAGES,
    executions={"clean": _CLEAN, "routes": _ROUTES},
    limits=Limits(21_600_000, 3, 1, 2, LeaveOut(60_000, 4, 0.3, 2), at_least_once=True, restart=_RESTART),
    restore=RestorePointer(1, _REF),
    replay=(ReplayedEpoch(_BEFORE, Slice()),),
    owner=_OWNER,
    cause="routes: killed",
    listeners=("warehouse",),
    max_parallelism={"routes": 16},
    hooks=_HOOKS,
    backlogs={"routes": (_OWED,)},
    draining=True,
)

_ORIGIN = SavepointOrigin("s3://lake/kept/savepoint-rides-0a1b2c3d4e5f", "ab" * 32, "rides", 7, "e7")

_MACHINE = "0f" * 16

EXAMPLES: dict[type, Any] = {
    Head: Head(
        job="flights",
        revision=41,
        next_id=4,
        pending=(
            PendingEntry(3, _EPOCH, 2, "00000000000000b3", 1_700_000_600_000, 1_700_022_200_000, _OWNER, 3, ("x",),
                         ("warehouse",), restored_from=1, base=1, stages=2,
                         kind=RequestKind.MANUAL, tolerable=1, regional=2, restarts=1,
                         restart_at_ms=1_700_000_601_000, restarts_left=2, draining=True, places=2, document=_PENDING),
        ),
        completed=(
            CompletedEntry(
                1, _BEFORE, 1, "00000000000000b1", 1_700_000_000_000, 1_700_000_100_000, _REF, 2, 40_960, ("w",),
                {"league": "chk-0000000001/state/routes/1-00000000000000d0/00000000000000e0/table.league/"},
                ("routes",), 1,
            ),
        ),
        history=(
            EndedEntry(1, _BEFORE, 1, "00000000000000b1", 1_700_000_000_000, Status.COMPLETED, 1_700_000_100_000, None,
                       "", 2, 40_960, stages=2, new_bytes=20_480, kind=RequestKind.PERIODIC, subtasks=3,
                       slowest=Slowest("routes", 99_000, 1), left_out=("routes",)),
            EndedEntry(2, _EPOCH, 1, "00000000000000b2", 1_700_000_300_000, Status.FAILED, 1_700_000_600_000,
                       Reason.JOB_FAILOVER_REGION, "routes: killed", 1, 0, ("00000000000000d9",), stages=2,
                       restored_from=1, base=1,
                       others=("clean: killed too",), kind=RequestKind.MANUAL, restarts=3, for_good=True,
                       restart_at_ms=1_700_000_610_000,
                       late=(LateAck("routes", AckMetrics(1, 2, 3, 4, 5)),), places=2, left_behind=True),
        ),
        restores=(
            RestoreRecord(checkpoint=1, into=3, at_ms=1_700_000_600_000, took_ms=7, why="routes: killed",
                          damages=("checkpoint 2: x: it is gone",)),
        ),
        notices=(
            Notice(2, _EPOCH, 1, "00000000000000b2", Status.FAILED, 1, ("warehouse",), Reason.JOB_FAILOVER_REGION,
                   "routes: killed"),
            Notice(1, _BEFORE, 1, "00000000000000b1", Status.COMPLETED, 1, ("warehouse",), metadata=_REF),
        ),
        counters=Counters(3, 1, 1, 2, 20_480),
        waiting=(WaitingRequest("x1", RequestKind.PERIODIC, 1_700_000_700_000, _OWNER),),
        stopped=Stopped.PAUSED,
        owner=JobOwner("flights", "https://airflow.example.com"),
        declined=(
            DeclinedRequest("x2", RequestKind.PERIODIC, Reason.PERIODIC_SCHEDULER_SHUTDOWN, "paused", 1_700_000_700),
        ),
        restart_memory=RestartMemory((1_700_000_600_000,), 2_000, 1, "00000000000000b1", 1_700_000_500_000),
        savepoint_target="s3://bucket/savepoints",
        savepoints=(
            SavepointEntry(3, "nightly", "s3://bucket/savepoints", "savepoint-flights-0a", 1_700_000_000_000,
                           1_700_086_400_000, _BEFORE, Status.FAILED, RestorePointer(1, _REF), 1_700_000_900_000, 2, 9,
                           Reason.IO_EXCEPTION, "x: it is gone", stops=True, drains=True, actor="ada"),
        ),
        forgotten=2,
        interventions=(Intervention(InterventionKind.REWIND, "ada", 1_700_000_550_000, 1),),
        rewinds=(RewindRecord(1, 2, 1_700_000_550_000, imported=3),),
        importing=ImportEntry(_ORIGIN, 6, "00000000000000a6", 1_700_000_700_000),
        imports=(
            ImportRecord(
                _ORIGIN, 3, 1_700_000_550_000, "00000000000000a3", allow_non_restored_state=True, claimed=True
            ),
        ),
        noted=(CompletedNote("w", 1),),
        segments=(Segment(DocumentRef("chk-0000000002/epochs-00000000000000a7.jsonl", 63, "ab" * 32), 1),),
        notes_below=2,
        triggering=(TriggeringTask("x1", "epoch.parts", 1, failed=True, claimant=_TRY),),
        mirrors=(
            MirrorEntry(
                "s3://west/cairn", "00000000000000c1", 1, 1_700_000_100_000, 1, 40, True,
                holds=(
                    MirrorHold("00000000000000c2", RestorePointer(1, _REF), 1_700_003_600_000,
                               ("chk-0000000002/epochs-00000000000000a7.jsonl",), (_BEFORE,)),
                ),
            ),
        ),
        mirror_of=MirrorOf("00000000000000c3", "s3://east/cairn", 40, 1_700_000_000_000, ("x1",), 1_700_000_300_000),
        moved=Moved("00000000000000c1", "s3://west/cairn", 1_700_000_800_000),
        writes=("00000000000000f1", "00000000000000f2"),
    ),
    EpochDocument: EpochDocument("flights", _EPOCH, _SLICE),
    EpochCompletedDocument: EpochCompletedDocument("flights", _BEFORE, 1),
    PendingDocument: _PENDING,
    Handover: Handover(
        job="flights",
        checkpoint=3,
        epoch=_EPOCH,
        attempt=2,
        stage="routes",
        token=_ROUTES.token,
        claimant="0199a3c4-0000-7000-8000-000000000002",
        slice=_SLICE,
        restore=RestorePointer(1, _REF),
        replay=(ReplayedEpoch(_BEFORE, Slice()),),
        upstream={"clean": _CLEAN},
        parallelism=2,
        backlog=(_OWED,),
        at_least_once=True,
        hooks=_HOOKS,
        durable=True,
        adopted=True,
        draining=True,
        max_parallelism=16,
        program=Program((ProgramOutput("table", "daily", "csv", {"header": "true"}, success_file=False),)),
    ),
    HookAnswersDocument: HookAnswersDocument("flights", 2, "00000000000000a2", ("ids", "feed", "none"), _ANSWERS),
    AckDocument: _ACK,
    AckPart: AckPart("flights", _ROUTES.token, "00000000000000e1", _ACK.subtasks),
    DeclineDocument: DeclineDocument(
        "flights", 3, _EPOCH, "routes", _ROUTES.token, Reason.CHECKPOINT_DECLINED, "ValueError: bad row", True,
        server="00000000000000b2", of_store=True,
    ),
    ServersDocument: ServersDocument(
        "flights",
        4,
        (
            ServerEntry("00000000000000b2", _MACHINE, ServerState.UP, 1_700_000_600_000, 1_700_000_660_000, _EPOCH, 1),
            ServerEntry(
                "00000000000000b4", ANYWHERE, ServerState.UP, 1_700_000_600_000, 1_700_000_660_000, None, 1, "worker-1"
            ),
            ServerEntry("00000000000000b3", _MACHINE, ServerState.STARTING, 1_700_000_650_000, 1_700_000_710_000),
        ),
    ),
    TableDocument: TableDocument(
        "flights", "table.daily", 17,
        (Manifest(DocumentRef("chk-0000000003/state/report/1-a/b/table.daily/manifest-00000.json", 9, "cd" * 32), 17),),
    ),
    ManifestDocument: ManifestDocument("flights", "table.daily", (_APPENDED_FILE,)),
    CompactionDocument: CompactionDocument(
        "flights", "routes", "00000000000000d1", _TOTALS, 1_700_000_700_000, (_HANDLE,),
        (SubtaskAck(0, (_HANDLE,)),), given_up=True,
    ),
}  # fmt: skip

METADATA: tuple[Line, ...] = (
    MetadataHeader("flights", 3, _EPOCH, 2, _SLICE, ("clean", "routes"), 1),
    *(HookLine(answer) for answer in _ANSWERS),
    StageLine("clean", _CLEAN, 1),
    StageLine(
        "routes",
        _ROUTES,
        2,
        (_TOTALS, _OFFSETS),
        _ACK.values,
        _ACK.metrics,
        16,
        (_OWED_EDGE,),
        _ACK.committables,
        handed_on=HandedOn(3, 4_711, 16_000),
    ),
    HandleLine(0, _HANDLE),
    StageLine("report", Execution("00000000000000a7", 1, 1), 1, (), {}, AckMetrics(), None, (_OWED,)),
    InFlightLine("clean", _OWED.inputs["clean"], (_ROWS,)),
    HandleLine(0, StateHandle("exchange.main", f"{_ROWS_FOLDER}part-00000.parquet", 512, '"89abcdef01234567"')),
)


_SHELVED = {
    "key": "chk-0000000003/positions/new-0f.jsonl",
    "size_bytes": 9,
    "sha256": "cd" * 32,
    "etag": "e",
    "values": 1,
}
SAVEPOINT_HEADER = SavepointHeader("flights", 4, "nightly/scheduled__2026-01-02T00:00:00+00:00", 1_767_312_000_000)
SAVEPOINT: tuple[Line, ...] = tuple(
    replace(line, handle=replace(line.handle, checksum="sha256:" + "ef" * 32))
    if isinstance(line, HandleLine)
    else replace(line, slice=replace(line.slice, positions={"new": {"cairn.shelved": _SHELVED}}))
    if isinstance(line, MetadataHeader)
    else savepoint_format.travelling(line)
    for line in METADATA
)


def savepoint() -> bytes:
    """Give the metadata of a savepoint."""
    body = bytearray()
    savepoint_format.write(SAVEPOINT_HEADER, SAVEPOINT, body.extend)
    return bytes(body)


def name_of(cls: type) -> str:
    """Give the file of a document's kind."""
    return f"{KINDS[cls].removeprefix('cairn.')}.json"


def main() -> None:
    """Write the files of the current format anew."""
    FOLDER.mkdir(parents=True, exist_ok=True)
    for cls, document in EXAMPLES.items():
        (FOLDER / name_of(cls)).write_bytes(encode(document))
    (FOLDER / "metadata").write_bytes(metadata_file.encode(METADATA))
    (FOLDER / "savepoint").write_bytes(savepoint())


if __name__ == "__main__":
    main()
