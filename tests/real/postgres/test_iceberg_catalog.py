"""Iceberg tables whose catalog is in a real PostgreSQL get each row once (decision 0056).

The library opens the catalog itself, or asks Apache's own REST server, which `make soak` starts in front of it.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from importlib.metadata import version
from pathlib import Path
from typing import Any

import psycopg
import pytest
from pyiceberg.catalog import load_catalog
from pyiceberg.catalog.sql import SqlCatalog
from requests import ConnectionError as LostError
from requests.adapters import HTTPAdapter
from sqlalchemy.exc import OperationalError, ProgrammingError

from airflow_cairn.checkpoint.documents import staged_tables
from airflow_cairn.checkpoint.documents.staged_tables import Mode
from airflow_cairn.checkpoint.errors import CallbackError
from airflow_cairn.checkpoint.extensions.committables import CheckpointNotice
from airflow_cairn.checkpoint.extensions.contracts import RewindNotice
from airflow_cairn.hooks.table_access import IcebergCatalogHook
from scripts.harness.postgres_server import USER, PostgresServer
from scripts.harness.rest_catalog_server import RestCatalog
from scripts.harness.wait import wait_until
from tests.real.spark.branched import ByBranches
from tests.support.airflow_fixtures import Define
from tests.support.errors import raises_code
from tests.support.lake import Iceberg, notice
from tests.support.rest_tables import BOTH, InRest, Two

pytestmark = pytest.mark.s3

CANARY = "canary-0123456789"
STORAGE = "s3://lake/cairn"
WHATS = ("before", "after", "lost", "two", "foreign", "expiry", "rewind")
Hook = Callable[[], Any]


class Killed(BaseException):
    """The process ends here."""


class InPostgres(Iceberg):
    """A table in a catalog in PostgreSQL."""

    def __init__(self, folder: Path, server: PostgresServer, database: str = "") -> None:
        where = psycopg.conninfo.conninfo_to_dict(server.dsn)
        address = database or f"{USER}@/postgres?host={where['host']}&port={where['port']}"
        self.properties = {"uri": f"postgresql+psycopg://{address}", "warehouse": f"file://{folder}/lake"}
        self.catalog = SqlCatalog("lake", **self.properties)
        self.catalog.create_namespace("sales")
        super(Iceberg, self).__init__(folder, f"file://{folder}/lake", partitioned=True)


class Apache:
    """The real REST server, as tables know it."""

    def __init__(self, server: RestCatalog) -> None:
        self.url = server.url
        self.catalog = load_catalog("lake", type="rest", uri=server.url)
        self.catalog.create_namespace_if_not_exists("sales")


@pytest.fixture(scope="module")
def apache(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Apache]:
    warehouse = tmp_path_factory.mktemp("warehouse")
    with PostgresServer(for_java=True) as postgres, RestCatalog(postgres, warehouse) as server:
        yield Apache(server)


class ByBranchesInPostgres(ByBranches, InPostgres):
    """A table that is written by branches, in a catalog in PostgreSQL."""


class ByBranchesInRest(ByBranches, InRest):
    """Branches in Apache's own REST catalog."""


REST = pytest.param("rest", marks=[pytest.mark.spark, pytest.mark.soak])


@pytest.fixture(params=["sql", REST])
def place(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Iceberg]:
    made: Iceberg
    if request.param == "rest":
        made = InRest(tmp_path, request.getfixturevalue("apache"), partitioned=True)
    else:
        made = InPostgres(tmp_path, request.getfixturevalue("postgres"))
    made.owner = staged_tables.owner_of("flights", STORAGE)
    yield made
    dropped(made)


@pytest.fixture(params=["sql", REST])
def branched(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[ByBranches]:
    made: ByBranches
    if request.param == "rest":
        made = ByBranchesInRest(tmp_path, request.getfixturevalue("apache"), partitioned=True)
    else:
        made = ByBranchesInPostgres(tmp_path, request.getfixturevalue("postgres"))
    made.begin_job()
    yield made
    dropped(made)


def dropped(place: Iceberg) -> None:
    """Leave the catalog as it was; the server's keeps its namespace."""
    place.drop()
    if isinstance(place, InPostgres):
        place.catalog.drop_namespace("sales")


@pytest.fixture
def two(apache: Apache, tmp_path: Path) -> Iterator[Two[Apache]]:
    made = Two(tmp_path, apache)
    for each in made.places:
        each.owner = staged_tables.owner_of("flights", STORAGE)
    yield made
    for each in made.places:
        each.drop()


def around(
    patch: pytest.MonkeyPatch, place: Iceberg, before: Hook, after: Hook, path: str = "/tables/orders"
) -> list[int]:
    """Have something happen before and after the first commit that is sent: to the server, or to the database.

    Returns:
        Gets an element for each commit.
    """
    calls: list[int] = []

    def call(send: Callable[..., Any], *given: Any, **options: Any) -> Any:
        calls.append(1)
        first = len(calls) == 1
        if first:
            before()
        answer = send(*given, **options)
        if first:
            after()
        return answer

    sql, send = SqlCatalog.commit_table, HTTPAdapter.send

    def posted(adapter: HTTPAdapter, request: Any, **options: Any) -> Any:
        if request.method == "POST" and request.path_url.endswith(path):
            return call(send, adapter, request, **options)
        return send(adapter, request, **options)

    if isinstance(place, InRest):
        patch.setattr(HTTPAdapter, "send", posted)
    else:
        patch.setattr(SqlCatalog, "commit_table", lambda *given: call(sql, *given))
    return calls


def nothing() -> None:
    """Nothing happens here."""


def in_turn(*acts: Hook) -> Hook:
    def act() -> None:
        for each in acts:
            each()

    return act


def kill() -> None:
    raise Killed


def lose() -> None:
    raise LostError("the connection was reset")


def tidy(place: Iceberg) -> None:
    """Expire what the table's owner need not keep, which has to be something."""
    before = len(place.table.metadata.snapshots)
    place.tidy()
    assert (before, len(place.table.metadata.snapshots)) == (2, 1)


def tell(place: Iceberg, told: CheckpointNotice) -> None:
    place.new_sink().notify_checkpoint_complete(told)


def go_back(place: Iceberg, through: int) -> None:
    """Have the trigger after a rewind to checkpoint 2 tell a new process's sink."""
    place.new_sink().rewound(RewindNotice("flights", STORAGE, 2, through))


@pytest.mark.parametrize(
    ("mode", "what"),
    [
        pytest.param(mode, what, marks=() if mode is Mode.APPEND or what in ("after", "two") else pytest.mark.soak)
        for mode in Mode
        for what in WHATS
    ],
)
def test_each_row_once(
    place: Iceberg, monkeypatch: pytest.MonkeyPatch, mode: Mode, what: str
) -> None:  # semantics C4, D4
    """Each kill point of the commit, and what others do in between; a rewind takes it back, and it stays out."""
    place.foreign(1, 5)
    place.foreign(106)
    staging = place.trigger(3)
    way: dict[str, Any] = {"mode": mode} | ({"key": ("id",), "deletes": [5]} if mode is Mode.UPSERT else {})
    place.stage(staging, "dead", 7, **way)
    late = place.stage(staging, "also", 3, stage="late", **{**way, "deletes": ()})
    rows = place.stage(staging, "good", 1, 2, **way), late
    told = notice(*rows, retained=range(4))
    expected = {
        Mode.APPEND: [1, 1, 2, 3, 5, 106],
        Mode.OVERWRITE: [1, 2, 3, 5, 106],
        Mode.REPLACE: [1, 2, 3],
        Mode.UPSERT: [1, 2, 3, 106],
    }[mode]
    before = {
        "before": kill,
        "two": lambda: tell(place, told),
        "foreign": lambda: place.foreign(9),
        "expiry": lambda: tidy(place),
        "rewind": in_turn(partial(tell, place, told), partial(go_back, place, 3)),
    }
    with monkeypatch.context() as patch:
        around(patch, place, before.get(what, nothing), {"after": kill, "lost": lose}.get(what, nothing))
        if what in ("before", "after"):
            with pytest.raises(Killed):
                tell(place, told)
        elif (mode, what) == (Mode.REPLACE, "foreign"):
            with raises_code("table_changed", match="others have changed rows of .* that replace would remove"):
                tell(place, told)
            assert place.rows() == [1, 5, 9, 106], "neither their rows nor ours are lost"
            return
        else:
            tell(place, told)
    foreign = [9] if what == "foreign" else []
    if what != "rewind":
        for _ in range(2):
            with ThreadPoolExecutor(4) as pool:
                list(pool.map(lambda _: tell(place, told), range(4)))
            assert place.rows() == sorted([*expected, *foreign])
        assert place.staged() == {each for each in place.named() if "_cairn" in each}
    for _ in range(2):
        go_back(place, 3)
        tell(place, told)
        assert place.rows() == sorted([1, 5, *foreign, 106])


def commit(place: Iceberg, at: int, *ids: int, **way: Any) -> CheckpointNotice:
    told = notice(place.stage(place.trigger(at), f"t{at}", *ids, **way), checkpoint=at, retained=range(at))
    tell(place, told)
    return told


@pytest.mark.parametrize("what", ["before", "after", "lost", "foreign"])
def test_a_rewind(place: Iceberg, monkeypatch: pytest.MonkeyPatch, what: str) -> None:  # semantics R5
    """Each kill point of the roll-back, across a replacement and an upsert."""
    commit(place, 2, 1)
    undone = [
        commit(place, 3, 2, mode=Mode.REPLACE),
        commit(place, 4, 3, mode=Mode.UPSERT, key=("id",), deletes=[2]),
    ]
    before = {"before": kill, "foreign": lambda: place.foreign(9)}
    with monkeypatch.context() as patch:
        around(patch, place, before.get(what, nothing), {"after": kill, "lost": lose}.get(what, nothing))
        if what == "foreign":
            with raises_code("table_changed", match="others have committed snapshot"):
                go_back(place, 4)
            assert place.rows() == [3, 9]
            return
        with pytest.raises((Killed, LostError)):
            go_back(place, 4)
    assert place.rows() == ([3] if what == "before" else [1])
    for told in (None, *undone):
        go_back(place, 4)
        if told:
            tell(place, told)
        assert place.rows() == [1]
    commit(place, 5, 4)
    assert place.rows() == [1, 4]


@pytest.mark.parametrize("what", ["before", "after", "lost", "two", "foreign", "expiry"])
def test_a_branch_becomes_main_once(
    branched: ByBranches, monkeypatch: pytest.MonkeyPatch, what: str
) -> None:  # semantics C4
    """Each kill point of the commit, and what others do in between."""
    base = branched.table.metadata.current_snapshot_id
    branched.begin("a")
    branched.run("a", 2, 3)
    branched.pipeline.complete("a")
    before = {
        "before": kill,
        "two": branched.deliver,
        "foreign": lambda: branched.foreign(9),
        "expiry": lambda: expired.append(branched.expire(by_age=False)),
    }
    expired: list[int] = []
    with monkeypatch.context() as patch:
        around(patch, branched, before.get(what, nothing), {"after": kill, "lost": lose}.get(what, nothing))
        if what in ("before", "after"):
            with pytest.raises(Killed):
                branched.deliver()
            assert branched.rows() == ([1] if what == "before" else [1, 2, 3])
        elif what == "foreign":
            for _ in range(2):
                with pytest.raises(CallbackError, match=r"main has moved from snapshot .* `cairn rewind`"):
                    branched.deliver()
                assert (branched.rows(), len(branched.branches())) == ([1, 9], 1), "neither theirs nor ours are lost"
            branched.at(base)
        else:
            branched.deliver()
    assert expired == ([1] if what == "expiry" else [])
    for _ in range(2):
        with ThreadPoolExecutor(4) as pool:
            list(pool.map(lambda _: branched.deliver(), range(4)))
        assert (branched.rows(), branched.branches()) == ([1, 2, 3], set())


@pytest.mark.spark
@pytest.mark.soak
@pytest.mark.parametrize("mode", [Mode.APPEND, Mode.UPSERT])
@pytest.mark.parametrize("what", WHATS)
def test_two_tables_advance_by_one_request(
    two: Two[Apache], monkeypatch: pytest.MonkeyPatch, mode: Mode, what: str
) -> None:  # semantics C4
    for each in two.places:
        each.foreign(1, 5)
        each.foreign(106)
    way: dict[str, Any] = {"mode": mode} | ({"key": ("id",)} if mode is Mode.UPSERT else {})
    told = two.stage(3, 1, 2, retained=range(4), **way)
    orders = two.places[0]

    rewind = in_turn(*(partial(go_back, each, 3) for each in two.places))
    before = {
        "before": kill,
        "two": lambda: two.tell(told),
        "foreign": lambda: orders.foreign(9),
        "expiry": in_turn(*(partial(tidy, each) for each in two.places)),
        "rewind": in_turn(partial(two.tell, told), rewind),
    }
    with monkeypatch.context() as patch:
        sent = around(patch, orders, before.get(what, nothing), {"after": kill, "lost": lose}.get(what, nothing), BOTH)
        if what in ("before", "after"):
            with pytest.raises(Killed):
                two.tell(told)
        else:
            two.tell(told)
    assert len(sent) == (2 if what in ("two", "foreign", "rewind") else 1)
    foreign = [9] if what == "foreign" else []
    expected = [1, 2, 5, 106] if mode is Mode.UPSERT else [1, 1, 2, 5, 106]
    if what != "rewind":
        for _ in range(2):
            two.tell(told)
            assert two.rows() == [sorted([*expected, *foreign]), expected]
        for each in two.places:
            assert {path for path in each.staged() if f"/{each.name}/" in path} <= each.named()
    for _ in range(2):
        rewind()
        two.tell(told)
        assert two.rows() == [sorted([1, 5, 106, *foreign]), [1, 5, 106]]


def test_a_database_that_is_away_and_one_that_refuses(postgres: PostgresServer, tmp_path: Path) -> None:
    """The notice stays, with what the database says; a trigger that it refuses leaves nothing."""
    place = InPostgres(tmp_path, postgres, postgres.create_database("away"))
    told = notice(place.stage(place.trigger(3), "good", 1, 2))
    staged = place.staged()
    place.catalog.close()  # the test's own connection ends before the outage

    def run(query: str, database: str = "postgres") -> None:
        with psycopg.connect(postgres.dsn, autocommit=True, dbname=database) as connection:
            connection.execute(query)

    run("ALTER DATABASE away ALLOW_CONNECTIONS false")
    run("SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE datname = 'away'")
    for act in (partial(tell, place, told), partial(place.new_sink().trigger, 4, 0)):
        with pytest.raises(OperationalError, match='database "away" is not currently accepting connections'):
            act()
    run("ALTER DATABASE away ALLOW_CONNECTIONS true")
    run('CREATE ROLE "a reader" LOGIN')
    run('GRANT SELECT ON ALL TABLES IN SCHEMA public TO "a reader"', "away")
    owner = place.properties["uri"]
    place.properties["uri"] = owner.replace(f"{USER}@", "a reader@")
    with pytest.raises(ProgrammingError, match="permission denied for table iceberg_tables"):
        tell(place, told)
    assert place.staged() == staged, "nothing is lost"
    run('GRANT UPDATE ON iceberg_tables TO "a reader"', "away")
    for _ in range(2):
        tell(place, told)
    assert place.rows() == [1, 2]
    run('DROP OWNED BY "a reader"', "away")
    run('DROP ROLE "a reader"')


Press = Callable[..., tuple[bool, str]]


@pytest.fixture
def press(connections: Define) -> Press:
    """Press the Test button of a connection of type `cairn_iceberg`: URI and extras."""

    def press(uri: str, **extra: str | None) -> tuple[bool, str]:
        given = {"conn_type": "cairn_iceberg", "host": uri, "extra": {"catalog": "lake", **extra}}
        connections("catalog", json.dumps(given))
        return IcebergCatalogHook("catalog").test_connection()

    return press


def test_the_button_says_which_catalog_answers(postgres: PostgresServer, press: Press) -> None:
    name = postgres.create_database("pressed")
    uri = f"postgresql+psycopg://{name}"
    by = f"(SqlCatalog of pyiceberg {version('pyiceberg')})"
    empty = f"the database answers {by}. It holds no catalog yet: the first use makes one"
    assert [press(uri, warehouse=None, type="") for _ in range(2)] == [(True, empty)] * 2, "none was made"
    named = {"lake": ["sales", "b.c", *(f"n{at:02}" for at in range(11))], "other": []}
    some = {"lake": "b, n00, n01, n02, n03, n04, n05, n06, n07, n08 and 3 more", "other": "none"}
    for catalog, namespaces in named.items():
        with SqlCatalog(catalog, uri=uri) as made:
            for each in namespaces:
                made.create_namespace(each)
        text = f"the catalog {catalog} answers {by}, with the namespaces {some[catalog]}"
        assert press(uri, catalog=catalog) == (True, text)


def test_the_button_says_what_keeps_a_catalog_from_an_answer(
    postgres: PostgresServer, press: Press, tmp_path: Path
) -> None:
    uri = f"postgresql+psycopg://reader:{CANARY}@/postgres?port=5432&host="
    rules = postgres.root / "data" / "pg_hba.conf"
    trusting = rules.read_text()
    with psycopg.connect(postgres.dsn, autocommit=True) as admin:
        admin.execute("CREATE ROLE reader LOGIN PASSWORD 'another one'")
        try:
            rules.write_text(f"local all reader scram-sha-256\n{trusting}")
            admin.execute("SELECT pg_reload_conf()")
            wait_until(lambda: not press(f"{uri}{postgres.root}")[0], 30, "the server to ask for a password")
            wrong = press(f"{uri}{postgres.root}")
        finally:
            rules.write_text(trusting)
            admin.execute("SELECT pg_reload_conf()")
            admin.execute("DROP ROLE reader")
    said = {
        "OperationalError: .*password authentication failed for user": wrong,
        "OperationalError: .*No such file": press(f"{uri}{tmp_path}"),
        "ConnectionError: .*Connection refused": press("http://127.0.0.1:1", credential=f"us:{CANARY}"),
    }
    for kind, (passed, text) in said.items():
        assert not passed
        assert re.match(f"the catalog lake does not answer: {kind}.*. Check type, URI, login and password, and", text)
        assert CANARY not in text
