"""States of a checkpoint and its damaged files, from the store alone (semantics O2, R1)."""

import json
from dataclasses import replace

import pytest

from airflow_cairn.checkpoint.documents import layout
from airflow_cairn.checkpoint.documents.acknowledgement import ListMode, Output, StateHandle, SubtaskAck
from airflow_cairn.checkpoint.documents.attempt import StageSpec
from airflow_cairn.checkpoint.errors import NoCheckpointError
from airflow_cairn.checkpoint.views.data_sets import NESTED, Column, StateRow, checkpoint_files, states
from airflow_cairn.storage import Written
from tests.support.acking import RUN, ack_of
from tests.support.narrowing import expect
from tests.support.world.world import CONFIG, World

FIELDS = [
    {"name": "origin", "type": "string", "nullable": False, "metadata": {}},
    {
        "name": "legs",
        "type": {
            "type": "array",
            "elementType": {
                "type": "map",
                "keyType": "string",
                "valueType": {
                    "type": "struct",
                    "fields": [{"name": "at", "type": "date", "nullable": True, "metadata": {}}],
                },
                "valueContainsNull": True,
            },
            "containsNull": True,
        },
        "nullable": True,
        "metadata": {},
    },
]


@pytest.fixture
def keyed() -> World:
    """One completed checkpoint: a keyed state of six files in two subtasks, a list state, a value, a table."""
    world = World(config=replace(CONFIG, retained=1), stages=(StageSpec("clean"), StageSpec("idle")))
    world.trigger("a")
    handover = world.submit("a", "clean").handover
    place = (handover.checkpoint, handover.stage, handover.attempt, handover.token, RUN)
    folder, table = (layout.output_folder(*place, name) for name in ("state.totals", "table.out"))
    subtasks = []
    for index in range(2):
        handles = []
        for number in range(3):
            written = expect(Written, world.files.create_bytes(f"{folder}part-{index}-{number}", b"x" * 100))
            handles.append(StateHandle("state.totals", f"{folder}part-{index}-{number}", 100, written.etag))
        subtasks.append(SubtaskAck(index, tuple(handles)))
    schema = json.dumps({"type": "struct", "fields": FIELDS})
    outputs = (
        Output("state", "totals", folder, schema, ("origin",), key_groups=128),
        Output("list", "offsets", folder, mode=ListMode.UNION, items=[[1], [2]]),
        Output("table", "out", table, json.dumps({"type": "struct", "fields": FIELDS[:1]})),
    )
    ack = ack_of(handover, subtasks, outputs=outputs, values={"note": 1})
    world.coordinator().acknowledge(ack)
    world.run_stage("a", "idle")
    world.coordinator().complete(world.pending_id("a"))
    return world


def test_states_come_with_columns_keys_and_sizes(keyed: World) -> None:
    found = states(keyed.coordinator())
    totals, offsets, out, note, *_ = found.states
    assert (totals.stage, totals.kind, totals.name) == ("clean", "state", "totals")
    assert (totals.key, totals.key_groups) == (("origin",), 128)
    assert totals.columns == (
        Column("origin", "string", nullable=False),
        Column("legs", "array<map<string, struct<at: date>>>", nullable=True),
    )
    assert (totals.files, totals.size_bytes) == (6, 600)
    assert (offsets.kind, offsets.mode, offsets.columns) == ("list", "union", ())
    assert (out.kind, [column.name for column in out.columns]) == ("table", ["origin"])
    assert note == StateRow("clean", "json", "note")
    assert found.checkpoint == 1
    assert json.loads(json.dumps(found.as_json()))["states"][0]["columns"][0]["name"] == "origin"
    assert states(keyed.coordinator(), 1) == found


def test_a_long_type_is_shortened(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(FIELDS[1], "type", {"type": "struct", "fields": [FIELDS[0]] * 30})
    world = World(stages=(StageSpec("clean"),))
    world.trigger("a")
    handover = world.submit("a", "clean").handover
    schema = json.dumps({"type": "struct", "fields": FIELDS})
    folder = layout.output_folder(handover.checkpoint, "clean", handover.attempt, handover.token, RUN, "state.s")
    world.coordinator().acknowledge(ack_of(handover, outputs=(Output("state", "s", folder, schema),)))
    world.coordinator().complete(world.pending_id("a"))
    text = states(world.coordinator()).states[0].columns[1].type
    assert len(text) == NESTED
    assert text.startswith("struct<origin: string, origin: string")
    assert text.endswith("…")


def test_files_come_some_at_a_time(keyed: World) -> None:
    found = checkpoint_files(keyed.coordinator(), 1, first=2, limit=3)
    assert [(row.subtask, row.path.rpartition("/")[2]) for row in found.rows] == [
        (0, "part-0-2"),
        (1, "part-1-0"),
        (1, "part-1-1"),
    ]
    assert {(row.stage, row.output, row.size_bytes, row.problem) for row in found.rows} == {
        ("clean", "state.totals", 100, None)
    }
    assert found.files == 6 + checkpoint_files(keyed.coordinator(), 1, stage="idle").files
    assert checkpoint_files(keyed.coordinator(), 1, stage="clean", first=100).rows == ()
    assert checkpoint_files(keyed.coordinator(), 1, stage="clean").files == 6
    assert checkpoint_files(keyed.coordinator(), 1, stage="nothing").files == 0


def test_damaged_files_are_named(keyed: World) -> None:  # semantics R1
    gone, cut = (row.path for row in checkpoint_files(keyed.coordinator(), 1, stage="clean").rows[:2])
    keyed.files.delete([gone])
    keyed.memory.put(f"{keyed.files.job}/{cut}", b"y")
    found = checkpoint_files(keyed.coordinator(), 1, stage="clean")
    assert [row.problem for row in found.rows[:3]] == [
        "it is gone",
        "its size differs: expected 100 bytes, found 1",
        None,
    ]
    assert json.loads(json.dumps(found.as_json()))["files_in_all"] == 6


def test_what_is_not_retained_is_refused(keyed: World) -> None:
    with pytest.raises(NoCheckpointError, match="not retained"):
        checkpoint_files(keyed.coordinator(), 7)
    with pytest.raises(NoCheckpointError, match="not retained"):
        states(keyed.coordinator(), 7)
    with pytest.raises(NoCheckpointError, match="no checkpoint has completed yet"):
        states(World().coordinator())
