"""`cairn rewind`, as its user sees it: said, asked, done (semantics R1, R5)."""

import os
import re
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from airflow_cairn.checkpoint import MasterHook
from airflow_cairn.checkpoint.answers import Submit, Triggered
from airflow_cairn.checkpoint.documents import staged_tables
from airflow_cairn.checkpoint.documents.staged_tables import Format, Mode, StagedBranch, StagedRows, TableDescription
from airflow_cairn.checkpoint.views import table_changes
from tests.support.command import Cairn, stored_job
from tests.support.world.world import World

pytestmark = pytest.mark.usefixtures("wide", "world")


@pytest.fixture
def world(tmp_path: Path) -> World:
    """A job with three completed epochs, all of them retained."""
    (tmp_path / "store").mkdir()
    world = stored_job(tmp_path, retained=3)
    world.run_epoch("e1", "e2", "e3")
    return world


def test_it_says_what_it_undoes_and_asks(world: World, answer: Callable[[str], None], cairn: Cairn) -> None:
    answer("y")
    said = cairn("rewind", "flights", "--to", "1")
    assert said.err.splitlines()[:4] == [
        "flights goes back to checkpoint 1, which holds everything up to e1. This undoes checkpoints 2, 3",
        "these DAG runs have to run again, in this order:",
        "  e2",
        "  e3",
    ]
    assert said.err.endswith("Rewind? [y/N] ")
    assert said.out.startswith(
        "rewound: the next epoch restores checkpoint 1. Clear those DAG runs one after the other"
    )
    assert [entry.id for entry in world.coordinator().head().completed] == [1]


def test_it_says_what_tables_keep(world: World, cairn: Cairn) -> None:
    """The list goes by undone checkpoint, and has owed commits; metadata that cannot be read is no obstacle."""
    counts = {"clean": 5, "routes": 7}
    for epoch in ("e4", "e5", "e6"):
        owed = () if epoch == "e4" else ("table.orders",)
        world.coordinator().trigger(replace(world.request(epoch), listeners=owed))
        for spec in world.stages:
            answer = world.coordinator().begin(epoch, spec.uid, world.new_claimant())
            assert isinstance(answer, Submit)
            rows = StagedRows("flights.0a", "s3://x/y", "s3://x", "0" * 64, counts.get(spec.uid, 0))
            staged = {"orders": rows, "totals": replace(rows, mode=Mode.UPSERT, key=("id",))}
            if spec.uid == "clean":
                staged["merged"] = StagedRows("f.0a", "b", "b", "", 0, branch=StagedBranch("u", "1", "2"))
            tables = {f"table.{name}": staged_tables.encode(each) for name, each in staged.items()}
            world.coordinator().acknowledge(replace(world.write(answer.handover), committables={**tables, "own": 1}))
        world.coordinator().complete(world.pending_id(epoch))
    newest = world.coordinator().head().completed[-1]
    world.store.delete([f"flights/{newest.metadata.key}"])
    lines = cairn("rewind", "flights", "--to", "4", "--yes").lines
    give_up = f"--yes --storage {world.store.uri}"
    owed_now = (
        "    its commit is owed, or was not noted: the next task makes it unless you give it up, after the rewind"
    )
    assert lines[3:15] == [
        "  e6",
        "tables outside of the storage have this:",
        "  checkpoint 5: merged: branch",
        "    it stays: before the runs, roll back what they would append again",
        "  checkpoint 5: orders: append, 12 rows",
        owed_now,
        f"      cairn forget-listener flights table.orders --checkpoint 5 {give_up}",
        "  checkpoint 5: totals: upsert, 12 rows",
        "    it stays until the run takes its place",
        "  checkpoint 6: orders: its metadata is unreadable",
        owed_now,
        f"      cairn forget-listener flights table.orders --checkpoint 6 {give_up}",
    ]


class Fixed(MasterHook):
    """Answers as a table's sink does."""

    def __init__(self, name: str, answer: TableDescription) -> None:
        self.table, self.answer = name, answer

    @property
    def name(self) -> str:
        return f"table.{self.table}"

    def trigger(self, checkpoint: int, timestamp_ms: int) -> Any:
        return staged_tables.encode(self.answer)


def test_it_says_how_appended_rows_are_taken_back(world: World, cairn: Cairn) -> None:
    """The text names the version at the trigger of the oldest undone checkpoint that appended, and the condition."""

    def table(name: str, uuid: str = "u", **more: Any) -> TableDescription:
        return TableDescription(name, uuid, "s3://x", {"type": "struct", "fields": []}, **more)

    iceberg, delta, uri = {"format": Format.ICEBERG}, {"format": Format.DELTA}, "s3://lake/events"
    tables = {
        "orders": table("lake.sales.orders", version="77", **iceberg),
        "fresh": table("lake.sales.fresh", **iceberg),
        "odd": table("lake.sa-les.o'ne", version="7", **iceberg),
        "events": table(uri, version="7", **delta),
        "made": table(f"{uri}2", "", version="-1", **delta),
        "totals": table("public.totals", "1", format=Format.POSTGRES),
        "older": table("lake.sales.older"),
        "merged": table("lake.a.b", version="5", parts=("lake",), **iceberg),
        **{name: table(f"lake.sales.{name}", version="7", rolls_back=True, **delta) for name in ("taken", "moved")},
    }
    hooks = [Fixed(name, table) for name, table in tables.items()]
    for epoch in ("e4", "e5"):
        owed = ("table.orders", "table.totals", "warehouse")
        request = replace(world.request(epoch), hooks=tuple(each.name for each in hooks), listeners=owed)
        answer = world.coordinator().trigger(request)
        assert isinstance(answer, Triggered)
        world.coordinator().ask_hooks(answer.pending, hooks)
        for spec in world.stages:
            begun = world.coordinator().begin(epoch, spec.uid, world.new_claimant())
            assert isinstance(begun, Submit)
            here = StagedRows(staged_tables.owner_of("flights", world.store.uri), "s3://x/y", "s3://x", "0" * 64, 1)
            staged = {each.name: staged_tables.encode(here) for each in hooks} if spec is world.stages[0] else {}
            if staged:
                staged["table.moved"] = staged_tables.encode(replace(here, owner="flights.0a"))
                branch = StagedRows("f.0a", "b", "b", "", 0, branch=StagedBranch("u", "1", "2"))
                staged["table.merged"] = staged_tables.encode(branch)
            world.coordinator().acknowledge(replace(world.write(begun.handover), committables=staged))
        world.coordinator().complete(world.pending_id(epoch))
        hooks = [Fixed(name, replace(table, version="99")) for name, table in tables.items()]
    found = cairn.json("rewind", "flights", "--to", "3", "--yes")["tables"]
    assert {each["table"] for each in found if each["rolls_back"]} == {"taken"}
    assert "takes it back, if nobody else" in table_changes.said(next(each for each in found if each["rolls_back"]))
    by_hand = {each["table"]: each["roll_back"] for each in found if each["only_if"] and not each["rolls_back"]}
    assert by_hand == {
        "orders": "CALL lake.system.rollback_to_snapshot('sales.orders', 77)",
        "fresh": "TRUNCATE TABLE lake.sales.fresh",
        "odd": "CALL lake.system.rollback_to_snapshot('`sa-les`.`o\\'ne`', 7)",
        "events": "RESTORE TABLE delta.`s3a://lake/events` TO VERSION AS OF 7",
        "made": "RESTORE TABLE delta.`s3a://lake/events2` TO VERSION AS OF 0",
        "totals": "",
        "merged": "CALL lake.system.rollback_to_snapshot('a.b', 5)",
        "moved": "RESTORE TABLE delta.`lake.sales.moved` TO VERSION AS OF 7",
    }
    assert {each["only_if"] for each in found if each["checkpoint"] == 5} == {None}
    assert {(each["checkpoint"], each["table"]): each["give_up"] for each in found if each["give_up"]} == {
        (at, name): f"cairn forget-listener flights table.{name} --checkpoint {at} --yes --storage {world.store.uri}"
        for at in (4, 5)
        for name in ("orders", "totals")
    }, "what is owed would be committed by the next task, after the tables were rolled back"
    conditions = {each["table"]: each["only_if"] for each in found if each["only_if"]}
    assert conditions["made"].startswith("if each version after 0 names cairn.checkpoint 4 or a later one")
    assert conditions["orders"] == (
        "if each version after 77 names cairn.checkpoint 4 or a later one of this job (the summaries in "
        "lake.sales.orders.snapshots)"
    )


@pytest.mark.parametrize("line", ["", "n", "no", "yess"])
def test_anything_but_yes_changes_nothing(line: str, world: World, answer: Callable[[str], None], cairn: Cairn) -> None:
    before = world.coordinator().head()
    answer(line)
    assert "not agreed to; nothing was changed" in cairn("rewind", "flights", "--to", "2", status=2).err
    assert world.coordinator().head() == before


def test_it_says_what_the_runs_read(world: World, cairn: Cairn) -> None:  # semantics T8
    world.read_days("e4", "e5")
    world.run_epoch("e4", "e5")
    said = cairn("rewind", "flights", "--to", "4", "--yes").text
    assert "which holds everything up to e4 (input 2026-01-01 to 2026-01-02). This undoes checkpoint 5" in said
    assert "in this order: e5 (input 2026-01-02 to 2026-01-03) what was" in said


def test_without_a_terminal_it_wants_yes(world: World, monkeypatch: pytest.MonkeyPatch, cairn: Cairn) -> None:
    before = world.coordinator().head()
    with Path(os.devnull).open() as stdin:
        monkeypatch.setattr("sys.stdin", stdin)
        said = cairn("rewind", "flights", "--to", "1", status=2)
    assert "there is no terminal to ask at; give --yes. Nothing was changed" in said.err
    assert world.coordinator().head() == before
    out = cairn("rewind", "flights", "--to", "chk-1", "--yes").out
    assert out.index("This undoes checkpoints 2, 3") < out.index("rewound: the next epoch restores checkpoint 1")


def test_what_the_job_did_since_is_not_undone(world: World, monkeypatch: pytest.MonkeyPatch, cairn: Cairn) -> None:
    """Another epoch completes while the person at the terminal reads the question."""

    class Slow:
        def isatty(self) -> bool:
            return True

        def readline(self) -> str:
            world.run_epoch("e4")
            return "y\n"

    monkeypatch.setattr("sys.stdin", Slow())
    assert "the job has changed since you looked" in cairn("rewind", "flights", "--to", "2", status=2).err
    assert world.coordinator().head().latest_id() == 4


def test_it_refuses_while_one_is_pending(world: World, cairn: Cairn) -> None:
    world.trigger("e4")
    for words in (("--yes",), ()):
        said = cairn("rewind", "flights", "--to", "2", *words, status=2)
        assert re.search(r"is pending; .* --abort-pending\).*runs=`e4`", said.err)
    lines = cairn("rewind", "flights", "--to", "2", "--yes", "--abort-pending").lines
    assert lines[1:5] == [
        "these DAG runs have to run again, in this order:",
        "  e3",
        "pending, and aborted: checkpoint 4; after the others, these have to run again:",
        "  e4",
    ]


def test_as_json(world: World, cairn: Cairn) -> None:
    world.trigger("e4")
    assert cairn.json("rewind", "flights", "--to", "1", "--yes", "--abort-pending") == {
        "job": "flights",
        "checkpoint": 1,
        "run_id": "e1",
        "undone": [2, 3],
        "run_again": ["e2", "e3", "e4"],
        "tables": [],
        "aborted": [4],
    }


def test_the_newest_leaves_nothing_to_undo(cairn: Cairn) -> None:
    """Nobody is asked."""
    for words in ((), ("--yes",)):
        assert cairn("rewind", "flights", "--to", "3", *words).out == (
            "flights is already at checkpoint 3, which holds everything up to e3: there is nothing to undo\n"
        )


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("flights", "--to", "9", "--yes"), "not retained, so the job cannot be rewound to it"),
        (("nosuch", "--to", "1", "--yes"), "the storage has no such job"),
    ],
)
def test_what_cannot_be(words: tuple[str, ...], said: str, cairn: Cairn) -> None:
    assert said in cairn("rewind", *words, status=2).err


def test_what_was_undone_says_so(cairn: Cairn) -> None:  # semantics O1
    cairn("rewind", "flights", "--to", "2", "--yes")
    assert cairn("checkpoints", "flights").lines[-1] == "3: no longer counts, the job was rewound to 2"
    assert "rewound to     2: it no longer counts" in cairn("show", "flights", "3").out
    found = cairn.json("checkpoints", "flights")["checkpoints"]
    assert [(row["id"], row["rewound_to"]) for row in found] == [(3, 2), (2, None), (1, None)]
