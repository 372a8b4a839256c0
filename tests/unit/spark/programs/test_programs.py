"""Places become folders, and what a program wrote is acknowledged as a driver's is (decision 0058).

The program is Python that writes by pyarrow (tests/support/plain_program.py); the store and the domain are real.
"""

from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from airflow_cairn.checkpoint import Coordinator
from airflow_cairn.checkpoint.answers import Reconnect, StageAcknowledged, Submit
from airflow_cairn.checkpoint.documents.acknowledgement import AckDocument, StateHandle, SubtaskAck
from airflow_cairn.checkpoint.documents.acknowledgement import Output as StoredOutput
from airflow_cairn.checkpoint.documents.attempt import Handover, ReplayedEpoch, Slice, StageSpec
from airflow_cairn.checkpoint.documents.layout import epoch_name
from airflow_cairn.checkpoint.documents.metadata import CHECKS
from airflow_cairn.checkpoint.errors import FencedError, InvalidStateError
from airflow_cairn.checkpoint.savepoints.savepoint_request import SavepointRequest
from airflow_cairn.checkpoint.store import acks
from airflow_cairn.operators import NewState, Output, Publish, Read, SliceEnd, SliceFiles, SliceStart, SliceValue, State
from airflow_cairn.spark.programs.arguments import program_of
from airflow_cairn.spark.programs.run import acknowledge, filled, output_folder
from airflow_cairn.storage import open_store
from airflow_cairn.storage.names import parse_storage_uri
from airflow_cairn.storage.port import PendingUpload
from tests.support.acking import ack_of
from tests.support.airflow_stage import Job
from tests.support.narrowing import expect
from tests.support.plain_program import add_up, rows_at, write_to

RAW: tuple[Any, ...] = (Output("main"),)
TOTALS: tuple[Any, ...] = (State("totals", schema="key STRING, n BIGINT"), Read("raw"), NewState("totals"))
STAGES = (StageSpec("raw"), StageSpec("totals", upstream=("raw",)))
DAY = Slice(
    start="2026-01-01T00:00:00+00:00",
    end="2026-01-02T00:00:00+00:00",
    sources={
        "offsets": {"from": 3, "read": {"until": [7, 9]}, "to": 9},
        "files": {
            "uri": "file:///in",
            "files": [{"key": "a.csv", "url": "file:///in/a.csv"}, {"key": "b.csv", "url": "file:///in/b.csv"}],
        },
    },
)


@pytest.fixture
def job(tmp_path: Path) -> Job:
    return Job(tmp_path)


def claimed(job: Job, run: str, stage: str, arguments: Sequence[Any], who: str = "first") -> Handover:
    answer = job.coordinator.begin(epoch_name(run), stage, who, program=program_of(list(arguments), stage))
    assert isinstance(answer, Submit), answer
    return answer.handover


def ended_well(job: Job, handover: Handover) -> None:
    assert handover.program is not None
    acknowledge(job.coordinator, handover, handover.program)


def day(job: Job, run: str, n: int) -> dict[str, int]:
    """Run an epoch of two programs; gives the totals that its checkpoint holds."""
    checkpoint = job.trigger(run, *STAGES)
    raw = claimed(job, run, "raw", RAW)
    write_to(filled(RAW, raw, job.coordinator.files)[0], [{"key": "BER", "n": n}])
    ended_well(job, raw)
    handover = claimed(job, run, "totals", TOTALS)
    before, read, out = filled(TOTALS, handover, job.coordinator.files)
    add_up(before, read, out)
    ended_well(job, handover)
    job.coordinator.complete(checkpoint)
    return {str(row["key"]): int(str(row["n"])) for row in rows_at(out)}


def test_state_goes_from_epoch_to_epoch(job: Job) -> None:  # semantics A7
    """The first epoch begins with an empty folder, the next with what the checkpoint holds."""
    assert [day(job, f"r{n}", n) for n in (1, 2, 3)] == [{"BER": 1}, {"BER": 3}, {"BER": 6}]
    assert all(each.whole for each in job.coordinator.verify(deep=True))


def test_state_goes_by_rewind_and_by_savepoint(job: Job, tmp_path: Path) -> None:
    assert [day(job, f"r{n}", n) for n in (1, 2)] == [{"BER": 1}, {"BER": 3}]
    entry = job.coordinator.savepoint(SavepointRequest(f"file://{tmp_path}-saved", "by hand"), open_store)
    started = Job(Path(f"{tmp_path}-other"))
    started.folder.mkdir()
    started.coordinator.start_from(open_store(f"file://{tmp_path}-saved/{entry.folder}"))
    assert day(started, "r3", 5) == {"BER": 8}
    job.coordinator.rewind(1)
    assert day(job, "r3", 5) == {"BER": 6}


def test_an_acknowledgement_says_what_a_driver_says(job: Job) -> None:
    job.trigger("r1", *STAGES)
    handover = claimed(job, "r1", "raw", RAW)
    write_to(filled(RAW, handover, job.coordinator.files)[0], [{"key": "BER", "n": 1}, {"key": "MUC", "n": 2}])
    ended_well(job, handover)
    files = job.coordinator.files
    ack = acks.read_ack(files, "raw", handover.execution)
    (output,), (handle,) = ack.outputs, ack.subtasks[0].handles
    assert (output.kind, output.name, output.format) == ("exchange", "main", "")
    assert '"name":"key","type":"string"' in str(output.schema)
    assert '"name":"n","type":"long"' in str(output.schema)
    assert (handle.rows, handle.size_bytes) == (2, files.stat(handle.path).size_bytes)
    assert handle.checksum == files.stat(handle.path).etag
    assert ack.metrics.end_to_end_ms >= 0
    assert ack.run == handover.token


def broken(out: Path) -> None:
    write_to(str(out), [])
    (out / "part-00001.parquet").write_bytes(b"PAR1 and no more")


def leaves_temporary(out: Path, left: str = "_temporary/0/part-1") -> None:
    write_to(str(out), [])
    (out / left).parent.mkdir(parents=True)
    (out / left).touch()


def leaves_in_partition(out: Path) -> None:
    leaves_temporary(out, "day=1/.spark-staging-1/part-1")


def two_schemas(out: Path) -> None:
    import pyarrow as pa
    import pyarrow.parquet as pq

    write_to(str(out), [])
    pq.write_table(pa.table({"other": [1]}), out / "part-00001.parquet")


def success_alone(out: Path) -> None:
    out.mkdir(parents=True)
    (out / "_SUCCESS").touch()


@pytest.mark.parametrize(
    ("program", "arguments", "said"),
    [
        (lambda out: None, RAW, "exchange.main was not written, although the program ended with status 0"),
        (lambda out: write_to(f"{out}-elsewhere", []), RAW, "exchange.main was not written"),
        (lambda out: write_to(str(out), [], success=False), RAW, "has 1 files and no _SUCCESS"),
        (leaves_temporary, RAW, "was not committed: '_temporary/0/part-1' is still there"),
        (leaves_in_partition, RAW, "was not committed: 'day=1/.spark-staging-1/part-1' is still there"),
        (broken, RAW, "cannot be read as Parquet"),
        (two_schemas, RAW, "has files with different columns"),
        (success_alone, RAW, "holds no Parquet file"),
        (lambda out: None, (Output(format="csv"),), "was not written"),
    ],
)
def test_a_good_exit_status_is_not_enough(
    job: Job, program: Callable[[Path], None], arguments: tuple[Any, ...], said: str
) -> None:
    """Nothing is acknowledged, and the next attempt gets other folders."""
    job.trigger("r1", *STAGES)
    handover = claimed(job, "r1", "raw", arguments)
    program(Path(filled(arguments, handover, job.coordinator.files)[0].removeprefix("file://")))
    with pytest.raises(InvalidStateError, match=said):
        ended_well(job, handover)
    assert not acks.has_acknowledged(job.coordinator.files, "raw", handover.execution)
    again = claimed(job, "r1", "raw", arguments, "its retry")
    assert filled(arguments, again, job.coordinator.files) != filled(arguments, handover, job.coordinator.files)


def test_an_upload_that_goes_on_is_no_end_of_a_write(job: Job, monkeypatch: pytest.MonkeyPatch) -> None:
    """The magic committer's files are uploads until the job is committed."""
    job.trigger("r1", *STAGES)
    handover = claimed(job, "r1", "raw", RAW)
    files = job.coordinator.files
    write_to(filled(RAW, handover, files)[0], [])
    goes_on = [PendingUpload(f"{files.full(output_folder(handover, 'exchange.main'))}part-1", "u1", 0)]
    monkeypatch.setattr(
        type(files.store), "uploads", lambda _, prefix: (each for each in goes_on if each.key.startswith(prefix))
    )
    with pytest.raises(InvalidStateError, match=r"was not committed: .*part-1' is still there"):
        ended_well(job, handover)
    goes_on.clear()
    ended_well(job, handover)


@pytest.mark.parametrize(
    ("output", "files"),
    [
        (Output("x", format="csv", options={"header": "true"}), {"part-0.csv": True, "_SUCCESS": False, ".crc": False}),
        (Output("x", format="json", success_file=False), {"a.json": True, "_meta": False}),
        (Output("x", format="raw"), {"deep/model.bin": True, "_index": True}),
        (NewState("x", format="raw", success_file=True), {"m": True, "_SUCCESS": False}),
        (Publish("x", format="orc"), {"day=2026-01-01/part-0.orc": True, "_SUCCESS": False}),
    ],
)
def test_other_formats_are_taken_as_declared(job: Job, output: Any, files: dict[str, bool]) -> None:
    job.trigger("r1", *STAGES)
    handover = claimed(job, "r1", "raw", [output])
    (url,) = filled([output], handover, job.coordinator.files)
    for name in files:
        path = Path(url.removeprefix("file://")) / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(name)
    ended_well(job, handover)
    ack = acks.read_ack(job.coordinator.files, "raw", handover.execution)
    named = {each.path.partition(f".{output.name}/")[2] for each in ack.subtasks[0].handles}
    assert named == {name for name, kept in files.items() if kept}
    assert ack.outputs[0].schema is None


def test_values_of_the_slice(job: Job) -> None:
    arguments = [
        *(SliceStart(), SliceEnd("%d.%m.%Y %H:%M", timezone="Europe/Berlin"), "--from=" + SliceStart("%F")),
        *(SliceFiles(), SliceFiles(separator=" "), SliceValue("offsets", ("read", "until", -1)), SliceValue("offsets")),
    ]
    job.trigger("r1", *STAGES)
    handover = replace(claimed(job, "r1", "raw", arguments), slice=DAY)
    files = job.coordinator.files
    assert filled(arguments, handover, files) == [
        *("2026-01-01T00:00:00+00:00", "02.01.2026 01:00", "--from=2026-01-01"),
        *("file:///in/a.csv,file:///in/b.csv", "file:///in/a.csv file:///in/b.csv", "9"),
        '{"from":3,"read":{"until":[7,9]},"to":9}',
    ]
    with pytest.raises(InvalidStateError, match="names a file that does not lie below"):
        filled([SliceFiles()], handover, files, {"files": parse_storage_uri("file:///other")})  # semantics W10
    with pytest.raises(InvalidStateError, match="the slice has no 'till'"):
        filled([SliceValue("offsets", ("read", "till"))], handover, files)


def acknowledged_by_a_driver(job: Job, handover: Handover, outputs: dict[str, Any], **output: Any) -> None:
    """Acknowledge files as an `Epoch` block would have written them: path in the output's folder to its delta."""
    folder = output_folder(handover, "exchange.main")
    handles = [StateHandle("exchange.main", f"{folder}{name}", 1, "e", delta=delta) for name, delta in outputs.items()]
    for each in handles:
        job.coordinator.files.create_bytes(each.path, b"x")
    stored = StoredOutput("exchange", "main", folder, '{"type":"struct","fields":[]}', **output)
    job.coordinator.acknowledge(ack_of(handover, [SubtaskAck(0, tuple(handles))], outputs=(stored,)))


@pytest.mark.parametrize(
    ("files", "output", "expected"),
    [
        ({"part-0": 0}, {}, "{folder}"),
        ({"part-0": 0, "part-1": 0}, {}, "{folder}"),
        ({"part-0": 0, "part-1": 2}, {"key": ("a",)}, "is kept as base and deltas"),
        ({"part-0": 0}, {"key": ("a",), "key_groups": 8}, "is kept as key groups"),
    ],
)
def test_what_an_epoch_block_wrote_is_read_whole_or_refused(
    job: Job, files: dict[str, Any], output: dict[str, Any], expected: str
) -> None:
    job.trigger("r1", *STAGES)
    acknowledged_by_a_driver(job, job.begin("r1", "raw"), files, **output)
    handover = claimed(job, "r1", "totals", [Read("raw")])
    if expected != "{folder}":
        with pytest.raises(InvalidStateError, match=expected):
            filled([Read("raw")], handover, job.coordinator.files)
        return
    folder = output_folder(replace(handover, stage="raw", token=handover.upstream["raw"].token), "exchange.main")
    assert filled([Read("raw")], handover, job.coordinator.files) == [f"{job.storage}/flights/{folder.rstrip('/')}"]
    # A file that the acknowledgement does not name keeps the folder from being read.
    job.coordinator.files.create_bytes(f"{folder}part-9", b"late")
    (pattern,) = filled([Read("raw")], handover, job.coordinator.files)
    assert "part-0" in pattern and "part-9" not in pattern


def test_an_input_without_rows(job: Job) -> None:
    """A driver deletes files without rows: the program gets an empty folder of the same columns, or what it said."""
    job.trigger("r1", *STAGES)
    acknowledged_by_a_driver(job, job.begin("r1", "raw"), {})
    handover = claimed(job, "r1", "totals", [Read("raw")])
    (url,) = filled([Read("raw")], handover, job.coordinator.files)
    assert rows_at(url) == []
    assert filled([State("s", default="none"), NewState("s")], handover, job.coordinator.files)[0] == "none"
    with pytest.raises(InvalidStateError, match="'other'"):
        filled([Read("raw", "other")], handover, job.coordinator.files)


def test_a_state_that_is_not_written_is_kept(job: Job) -> None:
    """A state that became rows, and had been raw files, is there once."""
    single = StageSpec("raw")
    for run, arguments in (
        ("r1", [NewState("kept"), NewState("changed", format="raw")]),
        ("r2", [NewState("changed")]),
    ):
        checkpoint = job.trigger(run, single)
        handover = claimed(job, run, "raw", arguments)
        for url in filled(arguments, handover, job.coordinator.files):
            write_to(url, [{"key": "BER", "n": 1}])
        ended_well(job, handover)
        job.coordinator.complete(checkpoint)
    ack = acks.read_ack(job.coordinator.files, "raw", handover.execution)
    assert [each.id for each in ack.outputs] == ["state.changed", "state.kept"]


def test_values_go_on_and_what_checks_have_noted_does_not(job: Job) -> None:
    checkpoint = job.trigger("r1", StageSpec("raw"))
    noted = {CHECKS: {"execution": "e1", "failed": ["no day: 1 row breaks it"]}, "seen": 1}
    job.coordinator.acknowledge(ack_of(job.begin("r1", "raw"), values=noted))
    job.coordinator.complete(checkpoint)
    job.trigger("r2", StageSpec("raw"))
    handover = claimed(job, "r2", "raw", RAW)
    write_to(filled(RAW, handover, job.coordinator.files)[0], [])
    ended_well(job, handover)
    assert acks.read_ack(job.coordinator.files, "raw", handover.execution).values == {"seen": 1}


def test_one_that_was_replaced_acknowledges_nothing(job: Job) -> None:
    """semantics A2: a program that ends well after its attempt was replaced."""
    job.trigger("r1", *STAGES)
    late = claimed(job, "r1", "raw", RAW)
    write_to(filled(RAW, late, job.coordinator.files)[0], [{"key": "BER", "n": 1}], success=False)
    newer = claimed(job, "r1", "raw", RAW, "its retry")
    with pytest.raises(FencedError, match="has been replaced"):
        ended_well(job, late)
    write_to(filled(RAW, newer, job.coordinator.files)[0], [{"key": "BER", "n": 2}])
    ended_well(job, newer)
    ended_well(job, newer)  # a try that does not know whether the one before it did
    assert isinstance(job.coordinator.begin(epoch_name("r1"), "raw", "third"), StageAcknowledged)


class _Cluster:
    """A driver that lives on a cluster."""

    def outlive(self) -> bool:
        return True

    def driver_loss_reason(self, handover: Handover) -> str | None:
        return None


def test_what_was_declared_at_the_claim_counts(job: Job) -> None:
    """A retry takes over a driver, and the DAG file has another output by now: the driver knows nothing of that."""
    job.trigger("r1", *STAGES)
    coordinator = job.coordinator
    first, second = program_of(list(RAW), "raw"), program_of([Output("renamed")], "raw")
    submitted = expect(Submit, coordinator.begin(epoch_name("r1"), "raw", "first", drivers=_Cluster(), program=first))
    write_to(filled(RAW, submitted.handover, coordinator.files)[0], [{"key": "BER", "n": 1}])
    answer = expect(Reconnect, coordinator.begin(epoch_name("r1"), "raw", "retry", drivers=_Cluster(), program=second))
    assert answer.handover.program == first
    ended_well(job, answer.handover)
    ack: AckDocument = acks.read_ack(coordinator.files, "raw", answer.handover.execution)
    assert [each.id for each in ack.outputs] == ["exchange.main"]


def test_older_epochs_that_are_read_again(job: Job) -> None:
    """semantics B3: moments span all slices where these join; one value of a source cannot stand for two."""
    job.trigger("r1", *STAGES)
    before = Slice(start="2025-12-31T00:00:00+00:00", end="2026-01-01T00:00:00+00:00")
    own = replace(DAY, sources=None)
    handover = replace(claimed(job, "r1", "raw", RAW), replay=(ReplayedEpoch("e0", before),), slice=own)
    files = job.coordinator.files
    assert filled([SliceStart("%F"), SliceEnd("%F")], handover, files) == ["2025-12-31", "2026-01-02"]
    with pytest.raises(InvalidStateError, match="not several"):
        filled([SliceValue("offsets")], handover, files)


def test_the_coordinator_is_asked_by_a_process_of_its_own(job: Job) -> None:
    """A try that knows nothing but the handover acknowledges: all it needs is in the store."""
    job.trigger("r1", *STAGES)
    handover = claimed(job, "r1", "raw", RAW)
    write_to(filled(RAW, handover, job.coordinator.files)[0], [{"key": "BER", "n": 1}])
    fresh = Coordinator(job.coordinator.files.store, job.name)
    assert handover.program is not None
    acknowledge(fresh, handover, handover.program)
    assert acks.has_acknowledged(fresh.files, "raw", handover.execution)
