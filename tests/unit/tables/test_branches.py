"""A branch becomes `main` once, whoever dies and whatever others do (semantics C4; decision 0056).

Real tables of pyiceberg, whose `append(branch=…)` stands for Spark's SQL; `make matrix CELLS=iceberg` has a real one.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from pyiceberg.catalog.sql import SqlCatalog

from airflow_cairn.checkpoint.documents.layout import epoch_name
from airflow_cairn.checkpoint.errors import CallbackError, InvalidConfigError, InvalidStateError, RetryLaterError
from airflow_cairn.checkpoint.extensions import listeners
from airflow_cairn.spark import Epoch, staged_tables
from airflow_cairn.tables.branches import BranchSink
from airflow_cairn.tables.declared import IcebergTable
from airflow_cairn.tables.iceberg import OpenIceberg
from tests.real.spark.branched import ByBranches
from tests.real.spark.pipeline import Pipeline
from tests.support.branching_spark import BranchingSpark
from tests.support.lake import rows_of


class Killed(BaseException):
    """The process ends here."""


class Branched(ByBranches):
    """Iceberg table with branches, in a catalog on SQLite."""

    def __init__(self, folder: Path) -> None:
        super().__init__(folder, f"file://{folder}/the lake", partitioned=True)
        self.begin_job()


@pytest.fixture
def place(tmp_path: Path) -> Branched:
    return Branched(tmp_path)


def once(wanted: str, act: Callable[[], Any], at: int = 1) -> Callable[[str], None]:
    """Have something happen at one of the writes of a name, the first."""
    calls: list[str] = []

    def call(name: str) -> None:
        if name == wanted:
            calls.append(name)
            if len(calls) == at:
                act()

    return call


def killing() -> None:
    raise Killed


def losing() -> None:
    raise ConnectionError("reset")


@pytest.mark.parametrize(
    ("what", "write"),
    [
        *((what, write) for what in ("before", "after", "lost", "foreign") for write in ("create", "write")),
        ("expiry", "write"),
    ],
)
def test_a_driver(place: Branched, write: str, what: str) -> None:
    """Each write of a driver; what the dead try has left goes with the epoch's commit."""
    place.begin("a")
    acts: dict[str, Callable[[], Any]] = {"foreign": lambda: place.foreign(9), "expiry": place.tidy, "lost": losing}
    act = acts.get(what, killing)
    hook = once(write, act, at=2 if what == "expiry" else 1)  # the last one: then the first ends no branch
    before, after = (hook, str) if what == "before" else (str, hook)
    spark = BranchingSpark(place.catalog, before, after)
    expected = [1, 2, 3]
    if what == "expiry":
        place.run("a", 2, 3, spark=spark)
    else:
        errors = {"foreign": (RetryLaterError,), "lost": (InvalidStateError, ConnectionError)}
        with pytest.raises(errors.get(what, (Killed,))):
            place.run("a", 2, 3, spark=spark)
        expected += [9] if what == "foreign" else []
        place.run("a", 2, 3)
    place.pipeline.complete("a")
    assert place.rows() == [each for each in expected if each not in (2, 3)], "nothing is visible before the commit"
    for _ in range(2):
        place.deliver()
        assert (place.rows(), place.branches()) == (expected, set())
    snapshot, newest = place.table.current_snapshot(), place.pipeline.coordinator.head().completed[-1].id
    assert snapshot.summary["cairn.checkpoint"] == str(newest)
    assert place.table.properties[f"cairn.checkpoint:{place.pipeline.coordinator.job}.orders"] == str(newest)


@pytest.mark.parametrize("write", [1, 2], ids=["fast-forward", "drop"])
@pytest.mark.parametrize("what", ["before", "after", "lost", "two", "expiry"])
def test_a_listener(place: Branched, monkeypatch: pytest.MonkeyPatch, write: int, what: str) -> None:
    """Each write of the commit. A branch that a driver of a dead try makes late is dropped by the second."""
    place.begin("a")
    place.run("a", 2, 3)
    place.pipeline.complete("a")
    commit = SqlCatalog.commit_table
    calls = []
    main = place.table.metadata.current_snapshot_id
    prefix = next(iter(place.branches())).rsplit("_", 3)[0]

    def others(catalog: Any, *given: Any) -> Any:
        calls.append(1)
        here = len(calls) == write
        if here and what == "before":
            raise Killed
        if here and what == "two":
            place.deliver()
        if here and what == "expiry":
            assert place.expire(by_age=False)
        found = commit(catalog, *given)
        if len(calls) == 1 and write == 2:
            place.table.manage_snapshots().create_branch(main, f"{prefix}_late_late_routes").commit()
        if here and what in ("after", "lost"):
            raise Killed if what == "after" else ConnectionError("reset")
        return found

    with monkeypatch.context() as patch:
        patch.setattr(SqlCatalog, "commit_table", others)
        try:
            place.deliver()
        except (Killed, CallbackError):
            assert what in ("before", "after", "lost")
    assert len(calls) >= write
    for _ in range(2):
        place.tidy()
        place.deliver()
        assert (place.rows(), place.branches()) == ([1, 2, 3], set())


@pytest.mark.parametrize(
    "what",
    [
        "foreign",
        "foreign_at_once",
        "rolled back",
        "written",
        "dropped",
        "gone",
        "no table",
        "other table",
        "two stages",
    ],
)
def test_what_keeps_main_where_it_is(place: Branched, monkeypatch: pytest.MonkeyPatch, what: str) -> None:
    """The notice stays, with its reason and its command; where others undo what they did it is made."""
    first = place.table.metadata.current_snapshot_id
    place.foreign(4)
    place.begin("a")
    base = place.table.metadata.current_snapshot_id
    place.run("a", 2, 3)
    place.pipeline.complete("a")
    [branch] = place.branches()
    head = place.table.metadata.refs[branch].snapshot_id
    undo: Callable[[], Any] = lambda: place.at(base)  # noqa: E731
    why = "main has moved from snapshot"
    if what == "foreign":
        place.foreign(9)
    elif what == "foreign_at_once":
        hook = once("", lambda: place.foreign(9))
        commit = SqlCatalog.commit_table

        def others(catalog: Any, *given: Any) -> Any:
            if len(given[1]) > 1:
                hook("")
            return commit(catalog, *given)

        monkeypatch.setattr(SqlCatalog, "commit_table", others)
    elif what == "rolled back":
        place.at(first)
    elif what == "written":
        place.table.append(rows_of([9]), branch=branch)
        why = "was written after its stage acknowledged"
        undo = lambda: place.table.manage_snapshots().remove_branch(branch).create_branch(head, branch).commit()  # noqa: E731
    elif what == "dropped":
        place.table.manage_snapshots().remove_branch(branch).commit()
        place.deliver()
        assert place.rows() == [1, 2, 3, 4], "its snapshot is there"
        return
    elif what == "gone":
        place.table.manage_snapshots().remove_branch(branch).commit()
        place.tidy()
        why = "is gone, and so is its snapshot"
    elif what == "no table":
        place.catalog.rename_table("sales.orders", "sales.old")
        why = "it was dropped or renamed"
        undo = lambda: place.catalog.rename_table("sales.old", "sales.orders")  # noqa: E731
    elif what == "other table":
        place.drop()
        place.create()
        why = "another table of the same name"
    else:
        notices = BranchSink._staged
        monkeypatch.setattr(BranchSink, "_staged", lambda sink, notice: notices(sink, notice) * 2)
        why = "2 stages of one epoch have each written a branch"
    before = [] if what == "no table" else place.rows()
    for _ in range(2):
        with pytest.raises(CallbackError, match=rf"{why}.*cairn forget-listener flights table.orders --checkpoint 1"):
            place.deliver()
    if what != "no table":
        assert place.rows() == (sorted([*before, 9]) if what == "foreign_at_once" else before)
    monkeypatch.undo()
    if what in ("gone", "other table"):
        return
    if what != "two stages":
        undo()
    place.deliver()
    assert (place.rows(), place.branches()) == ([1, 2, 3, 4], set())


@pytest.mark.parametrize("there", ["at its end", "beyond", "between"])
def test_somebody_has_moved_main_to_the_branch(place: Branched, there: str) -> None:
    place.begin("a")
    place.run("a", 2, 3)
    place.pipeline.complete("a")
    [branch] = place.branches()
    head = place.table.snapshot_by_id(place.table.metadata.refs[branch].snapshot_id)
    place.at(head.parent_snapshot_id if there == "between" else head.snapshot_id)
    if there == "beyond":
        place.foreign(9)
    place.deliver()
    assert (place.rows(), place.branches()) == ([1, 2, 3, *([9] if there == "beyond" else [])], set())
    place.at(head.snapshot_id)
    place.deliver()
    assert place.rows() == [1, 2, 3], "it is marked"


def test_an_epoch_is_overtaken_once(place: Branched) -> None:
    place.begin("a")
    with pytest.raises(RetryLaterError, match="its next try begins with what is there now"):
        place.run("a", 2, after=lambda: place.foreign(8))
    assert [*place.branches()] == [each for each in place.branches() if each.endswith("_overtaken")]
    with pytest.raises(InvalidStateError, match=r"did so before in this epoch\. Have them wait"):
        place.run("a", 2, after=lambda: place.foreign(9))
    assert place.rows() == [1, 8, 9]


def run_again(place: Branched) -> tuple[str, ...]:
    """Do what the task that waits does before it completes the checkpoint."""
    return place.pipeline.coordinator.run_again(epoch_name("a"), [place.new_sink()])


def test_an_epoch_is_overtaken_once_after_its_stage_acknowledged(place: Branched) -> None:
    """The stage runs again on what is there; the second time the commit is owed, and a person is told."""
    place.begin("a")
    place.run("a", 2)
    assert run_again(place) == (), "main has not moved"
    place.foreign(8)
    assert run_again(place) == ("routes",)
    pending = place.pipeline.coordinator.head().pending
    assert [(each.attempt, each.restarts) for each in pending] == [(2, 0)]
    assert run_again(place) == (), "it has not acknowledged yet"
    place.run("a", 2)
    assert run_again(place) == ()
    place.foreign(9)
    assert run_again(place) == ()
    place.pipeline.complete("a")
    with pytest.raises(CallbackError, match=r"main has moved from snapshot .* cairn forget-listener"):
        place.deliver()
    assert place.rows() == [1, 8, 9]


@pytest.mark.parametrize("what", ["before", "after", "lost", "two", "nobody"])
def test_who_dies_before_a_stage_runs_again(place: Branched, monkeypatch: pytest.MonkeyPatch, what: str) -> None:
    """A note in the table, then the swap that opens the next attempt: the next process goes on."""
    place.begin("a")
    place.run("a", 2)
    place.foreign(8)
    commit = SqlCatalog.commit_table
    calls = []

    def others(catalog: Any, *given: Any) -> Any:
        calls.append(1)
        if what == "before":
            raise Killed
        if what == "two" and len(calls) == 1:
            assert run_again(place) == ("routes",)
        found = commit(catalog, *given)
        if what in ("after", "lost"):
            raise Killed if what == "after" else ConnectionError("reset")
        return found

    with monkeypatch.context() as patch:
        patch.setattr(SqlCatalog, "commit_table", others)
        patch.setattr(listeners, "call", lambda _name, _step, _timeout, work: work())  # a process dies with its threads
        try:
            assert run_again(place) == (() if what == "two" else ("routes",))
        except Killed:
            assert what in ("before", "after")
    if what in ("before", "after"):
        place.foreign(9)
        assert run_again(place) == ("routes",)
    place.run("a", 2)
    assert run_again(place) == ()
    place.pipeline.complete("a")
    for _ in range(2):
        place.deliver()
        assert (place.rows(), place.branches()) == ([1, 2, 8, *([9] if what in ("before", "after") else [])], set())


def drop_branch(place: Branched) -> None:
    [name] = place.branches()
    place.table.manage_snapshots().remove_branch(name).commit()
    place.tidy()


@pytest.mark.parametrize("act", [Branched.drop, drop_branch])
def test_who_looks_before_the_commit(place: Branched, act: Callable[[Branched], Any]) -> None:
    """A branch that is gone is made again. Of a table that is gone, or a catalog that is away, the commit tells."""
    place.begin("a")
    place.run("a", 2)
    act(place)
    assert run_again(place) == (("routes",) if act is drop_branch else ())


def test_an_epoch_after_another(place: Branched) -> None:
    """Owed commits land before the next branch is made; a branch that nobody will commit goes then."""
    place.begin("a")
    place.run("a", 2)
    place.pipeline.complete("a")
    [late] = place.branches()
    place.begin("b")
    assert place.rows() == [1, 2]
    place.table.manage_snapshots().create_branch(place.table.metadata.current_snapshot_id, late).commit()
    place.run("b")
    assert place.branches() == {late}, "a branch without a change is dropped at once"
    place.pipeline.complete("b")
    place.begin("c")
    assert (place.rows(), place.branches()) == ([1, 2], {late})
    place.run("c", 3)
    place.pipeline.complete("c")
    place.deliver()
    assert place.rows() == [1, 2, 3]


@pytest.mark.parametrize("expires", [False, True])
@pytest.mark.parametrize("killed", ["", "before", "after"])
def test_a_rewind_takes_back_what_came_by_branches(
    place: Branched, monkeypatch: pytest.MonkeyPatch, killed: str, expires: bool
) -> None:  # semantics R5
    """Each epoch adds two snapshots, of which the first says no job, as Spark's of a DELETE of whole files.

    A tag keeps the version to go back to from expiry, and what lies between is not needed.
    """
    place.pipeline = Pipeline(place.pipeline.storage, None, retained=3)
    for epoch, row in (("a", 2), ("b", 4), ("c", 6)):
        place.begin(epoch)
        place.run(epoch, row, row + 1, spark=BranchingSpark(place.catalog, unnamed=(row,)))
        place.pipeline.complete(epoch)
    place.deliver()
    assert (place.rows(), len(place.tags())) == ([1, 2, 3, 4, 5, 6, 7], 3)
    if expires:
        assert place.expire(by_age=False) == 4
    place.pipeline.coordinator.rewind(1)
    if killed:
        real = OpenIceberg.roll_back

        def dying(*given: Any) -> Any:
            found = real(*given) if killed == "after" else None
            raise Killed(found)

        with monkeypatch.context() as patch:
            patch.setattr(OpenIceberg, "roll_back", dying)
            with pytest.raises(CallbackError, match="failed in rewound: Killed"):
                place.begin("d")
    place.begin("e")
    assert (place.rows(), len(place.tags())) == ([1, 2, 3], 1)
    place.run("e", 8)
    place.pipeline.complete("e")
    place.deliver()
    assert (place.rows(), place.branches(), len(place.tags())) == ([1, 2, 3, 8], set(), 2)


def untag(place: Branched) -> None:
    """Somebody takes the tags away, and expiry what they have kept."""
    for each in place.tags():
        place.table.manage_snapshots().remove_tag(each).commit()
    assert place.expire(by_age=False)


@pytest.mark.parametrize(
    ("act", "why"),
    [
        (lambda place: place.foreign(9), "since checkpoint 2 others have committed"),
        (untag, "of checkpoint 2, the snapshot before has expired"),
    ],
    ids=["foreign", "expired"],
)
def test_what_a_rewind_cannot_take_back(place: Branched, act: Callable[[Branched], Any], why: str) -> None:
    """Nothing changes, and the trigger says why."""
    place.pipeline = Pipeline(place.pipeline.storage, None, retained=3)
    for epoch, row in (("a", 2), ("b", 4)):
        place.begin(epoch)
        place.run(epoch, row, row + 1, row + 2)
        place.pipeline.complete(epoch)
    place.deliver()
    act(place)
    before = place.rows()
    place.pipeline.coordinator.rewind(1)
    with pytest.raises(CallbackError, match=f"cannot be rolled back: {why}"):
        place.begin("c")
    assert place.rows() == before


def other_table(place: Branched) -> None:
    place.drop()
    place.catalog.create_table("sales.orders", rows_of([1]).schema, location=f"{place.url}/elsewhere")


def other_stage(place: Branched) -> None:
    name = f"{place.described.staging}_x_y_report"
    place.table.manage_snapshots().create_branch(place.table.metadata.current_snapshot_id, name).commit()


@pytest.mark.parametrize(
    ("conf", "act", "name", "why"),
    [
        ({"spark.sql.extensions": ""}, str, "orders", "this Spark has no Iceberg: epoch.branch needs its runtime"),
        ({"spark.sql.catalog.lake": ""}, str, "orders", "this Spark has no catalog 'lake'. Give the stage conf="),
        ({}, str, "x", "the group has no table 'x'"),
        ({}, Branched.drop, "orders", r"Spark does not find lake\.sales\.orders"),
        ({}, other_table, "orders", "is another table for Spark than for the group's connection: it lies in"),
        ({}, other_stage, "orders", "another stage of this epoch has made a branch"),
    ],
)
def test_what_is_refused_in_the_driver(
    place: Branched, conf: dict[str, str], act: Callable[[Branched], Any], name: str, why: str
) -> None:
    place.begin("a")
    handover = place.pipeline.begin("a").handover
    place.described = staged_tables.described(place.pipeline.coordinator.files, handover, "orders")
    spark = BranchingSpark(place.catalog)
    spark.conf.update(conf)
    act(place)
    epoch = Epoch(spark, place.pipeline.store, handover)  # type: ignore[arg-type]
    with pytest.raises(InvalidStateError, match=why), epoch, epoch.branch(name):
        pass


def test_a_catalog_that_makes_no_branch(place: Branched) -> None:
    """Its credentials may not commit, or the name is in use."""

    def refuse(_: str) -> None:
        raise ConnectionError("403")

    place.begin("a")
    handover = place.pipeline.begin("a").handover
    why = r"could not make a branch of lake\.sales\.orders\. Give .* the right to commit .* a branch of that name"
    epoch = Epoch(BranchingSpark(place.catalog, before=refuse), place.pipeline.store, handover)  # type: ignore[arg-type]
    with pytest.raises(InvalidStateError, match=why), epoch, epoch.branch("orders"):
        pass
    assert place.branches() == set()


def test_a_table_has_one_block_and_no_other_way(place: Branched) -> None:
    place.begin("a")
    handover = place.pipeline.begin("a").handover
    with Epoch(BranchingSpark(place.catalog), place.pipeline.store, handover) as epoch:  # type: ignore[arg-type]
        with epoch.branch("orders"):
            pass
        with pytest.raises(InvalidStateError, match="'orders' was made before in this epoch"), epoch.branch("orders"):
            pass
        with pytest.raises(InvalidStateError, match=r"is written by branches: use epoch\.branch\('orders'\)"):
            epoch.table("orders")
    assert place.branches() == set()


def enable_wap(place: Branched) -> None:
    with place.table.transaction() as change:
        change.set_properties({"write.wap.enabled": "true"})


@pytest.mark.parametrize(
    ("before", "act", "why"),
    [
        ("", str, r"wap=True needs write\.wap\.enabled on lake\.sales\.orders"),
        ("mine", enable_wap, r"the session has spark\.wap\.branch='mine' already"),
    ],
)
def test_where_a_program_cannot_say_the_name_of_the_table(
    place: Branched, before: str, act: Callable[[Branched], Any], why: str
) -> None:
    place.begin("a")
    act(place)
    spark = BranchingSpark(place.catalog)
    spark.conf["spark.wap.branch"] = before
    handover = place.pipeline.begin("a").handover
    with pytest.raises(InvalidStateError, match=why), Epoch(spark, place.pipeline.store, handover) as epoch:  # type: ignore[arg-type]
        epoch.branch("orders", wap=True).__enter__()
    assert place.branches() == set()


def test_a_program_that_says_the_name_of_the_table(place: Branched) -> None:
    """With wap=True the session's conf names the branch, in the block alone (Iceberg's WAP)."""
    place.begin("a")
    enable_wap(place)
    spark = BranchingSpark(place.catalog)
    with Epoch(spark, place.pipeline.store, place.pipeline.begin("a").handover) as epoch:  # type: ignore[arg-type]
        with epoch.branch("orders", wap=True) as name:
            assert name.endswith(f".`branch_{spark.conf['spark.wap.branch']}`")
        assert "spark.wap.branch" not in spark.conf


@pytest.mark.parametrize("option", ["read", "create"])
def test_what_is_refused_where_the_dag_is_parsed(option: str) -> None:
    with pytest.raises(InvalidConfigError, match="exists, and the stage's own Spark reads it: leave read and create"):
        IcebergTable("a.b.c", branch=True, **{option: True})  # type: ignore[arg-type]


def test_a_table_that_never_rests(place: Branched, monkeypatch: pytest.MonkeyPatch) -> None:
    place.begin("a")
    place.run("a", 2)
    place.pipeline.complete("a")
    monkeypatch.setattr(BranchSink, "_forward", lambda *_: False)
    with pytest.raises(CallbackError, match="the next task tries again"):
        place.deliver()
