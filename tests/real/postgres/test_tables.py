"""A table of a real PostgreSQL gets each row once, whoever dies and however many commit at once (decision 0056)."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from operator import methodcaller
from pathlib import Path
from typing import Any

import psycopg
import pytest

from airflow_cairn.checkpoint.documents import staged_tables
from airflow_cairn.checkpoint.documents.staged_tables import NO_KEY, Mode, description_of
from airflow_cairn.checkpoint.errors import InvalidConfigError, InvalidStateError
from airflow_cairn.checkpoint.extensions.contracts import RewindNotice
from airflow_cairn.tables.contract import STAGING, NewTable
from airflow_cairn.tables.declared import PostgresTable
from airflow_cairn.tables.health import examine_tables
from airflow_cairn.tables.postgres import OpenPostgres
from airflow_cairn.tables.sink import TableSink
from scripts.harness.postgres_server import PostgresServer
from scripts.harness.s3_server import S3Server
from tests.support.errors import raises_code
from tests.support.lake import Place, notice, route_of, way_to

pytestmark = pytest.mark.s3


class Postgres(Place):
    """A table `orders` in a schema of its own, whose name needs quotes; its rows are staged on S3."""

    schema = "the.shop"

    def __init__(self, folder: Path, dsn: str, s3: Mapping[str, str]) -> None:
        self.dsn = dsn
        super().__init__(folder, "s3://lake/the staging", s3)

    def create(self) -> None:
        self.run('CREATE SCHEMA "the.shop"')
        self.run('CREATE TABLE "the.shop".orders (n serial, id bigint NOT NULL, route varchar(9), PRIMARY KEY (n))')
        self.run('ALTER TABLE "the.shop".orders DROP COLUMN n')

    def new_sink(self, table: str = "orders", **options: Any) -> TableSink:
        settings = {name: str(value) for name, value in psycopg.conninfo.conninfo_to_dict(self.dsn).items()}
        settings |= {f"{STAGING}{name}": value for name, value in self.s3.items()}
        declared = PostgresTable((self.schema, table), "dwh", self.url, **options)
        return TableSink("orders", declared, lambda _: settings)

    def run(self, query: Any) -> list[Any]:
        with psycopg.connect(self.dsn) as connection:
            found = connection.execute(query)
            return found.fetchall() if found.description else []

    def rows(self) -> list[int]:
        return [row[0] for row in self.run('SELECT id FROM "the.shop".orders ORDER BY id')]


@pytest.fixture
def place(postgres: PostgresServer, tmp_path: Path) -> Iterator[Postgres]:
    with S3Server(keep_alive=False) as server:
        server.create_bucket("lake")
        made = Postgres(tmp_path, postgres.dsn, way_to(server))
        yield made
        made.run('DROP SCHEMA "the.shop" CASCADE')


def test_each_row_once(place: Postgres, monkeypatch: pytest.MonkeyPatch) -> None:  # semantics C4, D4
    staging = place.trigger(3)
    place.stage(staging, "dead", 7)
    told = notice(place.stage(staging, "good", 1, 2), place.stage(staging, "also", 3, stage="late"))
    texts = OpenPostgres._texts

    def broken(table: OpenPostgres, *given: Any) -> Iterator[bytes]:
        yield from texts(table, *given)
        raise ConnectionError("the file system is away")

    with monkeypatch.context() as patch:
        patch.setattr(OpenPostgres, "_texts", broken)
        with pytest.raises(ConnectionError):
            place.sink.notify_checkpoint_complete(told)
    assert place.rows() == [], "one transaction, or nothing"
    commit = OpenPostgres.commit

    def lost(*given: Any) -> bool:
        commit(*given)
        raise ConnectionError("reset")

    with monkeypatch.context() as patch:
        patch.setattr(OpenPostgres, "commit", lost)
        place.sink.notify_checkpoint_complete(told)
    with ThreadPoolExecutor(4) as pool:
        list(pool.map(lambda sink: sink.notify_checkpoint_complete(told), [place.new_sink() for _ in range(4)]))
    assert place.rows() == [1, 2, 3]
    assert place.staged() == set()
    later = notice(place.stage(place.trigger(1), "later", 4, 5), checkpoint=1)
    with ThreadPoolExecutor(4) as pool:
        list(pool.map(lambda sink: sink.notify_checkpoint_complete(later), [place.new_sink() for _ in range(4)]))
    assert place.rows() == [1, 2, 3, 4, 5]


def test_rows_take_the_place_of_others(place: Postgres, monkeypatch: pytest.MonkeyPatch) -> None:  # semantics C4
    place.run("INSERT INTO \"the.shop\".orders VALUES (1, 'old'), (5, 'old'), (6, NULL)")
    way: dict[str, Any] = {"mode": Mode.UPSERT, "key": ("id",)}
    staging = place.trigger(3)
    told = notice(
        place.stage(staging, "a", 1, 2, **way, deletes=[5, 99]), place.stage(staging, "b", 3, stage="c", **way)
    )
    with ThreadPoolExecutor(4) as pool:
        list(pool.map(lambda sink: sink.notify_checkpoint_complete(told), [place.new_sink() for _ in range(4)]))
    expected = [*((each, route_of(each)["route"][0]) for each in (1, 2, 3)), (6, None)]
    assert place.run('SELECT * FROM "the.shop".orders ORDER BY id') == expected
    both: dict[str, Any] = {"mode": Mode.UPSERT, "key": ("id", "route"), "deletes": [3]}
    place.sink.notify_checkpoint_complete(notice(place.stage(place.trigger(4), "d", 1, **both), checkpoint=4))
    assert place.rows() == [1, 2, 6]
    copy, seen = OpenPostgres._copy, []

    def looking(*given: Any) -> None:
        copy(*given)
        seen.append(place.rows())
        waits = pytest.raises(psycopg.errors.LockNotAvailable)
        with waits, psycopg.connect(place.dsn, options="-c lock_timeout=200") as other:
            other.execute('INSERT INTO "the.shop".orders VALUES (7)')

    later = notice(place.stage(place.trigger(5), "e", 8, mode=Mode.REPLACE), checkpoint=5)
    with monkeypatch.context() as patch:
        patch.setattr(OpenPostgres, "_copy", looking)
        place.sink.notify_checkpoint_complete(later)
    place.sink.notify_checkpoint_complete(later)
    assert (seen, place.rows()) == ([[1, 2, 6]], [8]), "readers see the rows before, and other writers wait"
    described = description_of(place.sink.trigger(6, 0), where="answer")
    assert [*described.refused] == [Mode.OVERWRITE]


@pytest.mark.parametrize("mode", [Mode.UPSERT, Mode.REPLACE])
def test_what_others_add_before_the_lock_is_changed_too(
    place: Postgres, monkeypatch: pytest.MonkeyPatch, mode: Mode
) -> None:  # semantics C4
    """Also where the user's default is a snapshot of the transaction's begin, and another encoding."""
    place.run("ALTER ROLE postgres SET default_transaction_isolation = 'repeatable read'")
    place.dsn = psycopg.conninfo.make_conninfo(place.dsn, client_encoding="latin1")
    key = ("id",) if mode is Mode.UPSERT else ()
    told = notice(place.stage(place.trigger(3), "a", 1, mode=mode, key=key))
    lock = OpenPostgres._lock

    def late(*given: Any) -> None:
        place.run("INSERT INTO \"the.shop\".orders VALUES (1, 'theirs')")
        lock(*given)

    monkeypatch.setattr(OpenPostgres, "_lock", late)
    try:
        place.new_sink().notify_checkpoint_complete(told)
        assert place.run('SELECT * FROM "the.shop".orders') == [(1, route_of(1)["route"][0])]
    finally:
        place.run("ALTER ROLE postgres RESET default_transaction_isolation")


def test_added_rows_are_taken_back(place: Postgres) -> None:  # semantics R5
    """Rows go by the transaction that has added them, if nobody has changed one; an upsert stays."""
    place.owner = staged_tables.owner_of("flights", "s3://lake/cairn")
    ways: dict[int, dict[str, Any]] = {2: {}, 3: {}, 4: {"mode": Mode.UPSERT, "key": ("id",)}, 5: {}}
    told = [
        notice(place.stage(place.trigger(at), f"t{at}", at, 10 * at, **way), checkpoint=at) for at, way in ways.items()
    ]
    place.run("INSERT INTO \"the.shop\".orders VALUES (7, 'theirs')")
    for each in told:
        place.sink.notify_checkpoint_complete(each)
    for _ in range(2):
        place.sink.rewound(RewindNotice("flights", "s3://lake/cairn", 2, 5))
        assert place.rows() == [2, 4, 7, 20, 40]
        its_own = r"sink ~ '^flights\.[0-9a-f]{8}\.orders$'"
        shown = f'SELECT checkpoint FROM "the.shop".cairn_commits WHERE {its_own} ORDER BY xact DESC'
        assert place.run(f"{shown} LIMIT 1") == [(2,)]
    place.sink.notify_checkpoint_complete(told[-1])
    place.sink.notify_checkpoint_complete(notice(place.stage(place.trigger(6), "t6", 6, 60), checkpoint=6))
    assert place.rows() == [2, 4, 6, 7, 20, 40, 60]
    place.run("UPDATE \"the.shop\".orders SET route = 'x' WHERE id = 6")
    with raises_code("table_changed", match="1 of the 2 rows of checkpoint 6 are as they were added") as raised:
        place.new_sink().rewound(RewindNotice("flights", "s3://lake/cairn", 2, 6))
    for statement in re.findall(r"(?:DELETE|UPDATE) [^;]*?\)(?=,|\))", str(raised.value)):
        place.run(statement)
    place.new_sink().rewound(RewindNotice("flights", "s3://lake/cairn", 2, 6))
    assert place.rows() == [2, 4, 6, 7, 20, 40], "who follows the advice needs no other"
    place.sink.notify_checkpoint_complete(notice(place.stage(place.trigger(7), "t7", 70), checkpoint=7))
    place.owner = staged_tables.owner_of("flights", "s3://mirror/cairn")
    with raises_code("table_changed", match="checkpoint 7 was committed as flights.*had another URI"):
        place.new_sink().rewound(RewindNotice("flights", "s3://mirror/cairn", 2, 7))
    place.new_sink(on_rewind="keep").rewound(RewindNotice("flights", "s3://lake/cairn", 2, 7))
    assert place.rows() == [2, 4, 6, 7, 20, 40, 70]


def test_two_triggers_take_rows_back_once(place: Postgres, monkeypatch: pytest.MonkeyPatch) -> None:  # semantics R5
    place.owner = staged_tables.owner_of("flights", "s3://lake/cairn")
    place.sink.notify_checkpoint_complete(notice(place.stage(place.trigger(3), "t3", 3), checkpoint=3))
    back, lock = RewindNotice("flights", "s3://lake/cairn", 2, 3), OpenPostgres._lock

    def late(*given: Any) -> None:
        monkeypatch.setattr(OpenPostgres, "_lock", lock)
        place.new_sink().rewound(back)
        lock(*given)

    monkeypatch.setattr(OpenPostgres, "_lock", late)
    place.sink.rewound(back)
    assert place.rows() == []


REFERS = 'CREATE TABLE "the.shop".notes (id bigint REFERENCES "the.shop".orders (id) ON DELETE {})'
TRIGGER = """CREATE FUNCTION "the.shop".noted() RETURNS trigger LANGUAGE plpgsql AS $$BEGIN RETURN NULL; END$$;
CREATE TRIGGER noted AFTER DELETE ON "the.shop".orders EXECUTE FUNCTION "the.shop".noted()"""
RULE = 'CREATE RULE kept AS ON DELETE TO "the.shop".orders DO INSTEAD NOTHING'


@pytest.mark.parametrize(
    ("plant", "why"),
    [
        *((REFERS.format(how), f"notes references it by ON DELETE {how}") for how in ("CASCADE", "SET NULL")),
        (TRIGGER, "it has the trigger noted on DELETE"),
        (RULE, "it has the rule kept on DELETE"),
        (REFERS.format("RESTRICT"), "rows of others need them: .*notes"),
        ("", "no right to SELECT or DELETE: GRANT it .*permission denied"),
    ],
    ids=["cascade", "set null", "trigger", "rule", "restrict", "rights"],
)
def test_rows_stay_where_a_delete_would_do_more(place: Postgres, plant: str, why: str) -> None:  # semantics R5
    """The trigger says so only where something is to be taken back, and the doctor before."""
    place.owner = staged_tables.owner_of("flights", "s3://lake/cairn")
    place.run('ALTER TABLE "the.shop".orders ADD PRIMARY KEY (id)')
    place.run(plant)
    dsn = place.dsn
    if not plant:
        place.run('CREATE ROLE "a writer" LOGIN; GRANT USAGE, CREATE ON SCHEMA "the.shop" TO "a writer"')
        place.run('GRANT INSERT ON "the.shop".orders TO "a writer"')
        place.dsn = psycopg.conninfo.make_conninfo(dsn, user="a writer")
        place.sink = place.new_sink()
    place.sink.notify_checkpoint_complete(notice(place.stage(place.trigger(2), "t2", 2), checkpoint=2))
    place.sink.rewound(RewindNotice("flights", "s3://lake/cairn", 2, 4))
    place.sink.notify_checkpoint_complete(notice(place.stage(place.trigger(3), "t3", 3), checkpoint=3))
    if "RESTRICT" not in plant:
        [hint] = [each for each in examine_tables([place.sink], write=True).hints if "after a rewind" in each]
        assert re.search(why.removesuffix(" .*permission denied").replace(" or ", ", "), hint)
        assert not place.described.rolls_back
    with psycopg.connect(dsn) as owner:
        if "REFERENCES" in plant:
            owner.execute('INSERT INTO "the.shop".notes VALUES (3)')
    with raises_code("table_changed", match=rf"(?s){why}.*DELETE FROM .*on_rewind='keep'"):
        place.new_sink().rewound(RewindNotice("flights", "s3://lake/cairn", 2, 3))
    place.dsn = dsn
    assert place.rows() == [2, 3]
    if "REFERENCES" in plant:
        assert place.run('SELECT id FROM "the.shop".notes') == [(3,)]
    if not plant:
        place.run('DROP OWNED BY "a writer" CASCADE; DROP ROLE "a writer"')


def test_the_first_commit_creates_the_table(place: Postgres) -> None:  # semantics C4
    for checkpoint in range(3, 13):  # a race that is lost now and then
        place.run('DROP TABLE "the.shop".orders; DROP TABLE IF EXISTS "the.shop".cairn_commits')
        place.sink = place.new_sink(create=True)
        staging = place.trigger(checkpoint)
        told = notice(place.stage(staging, "a", 1), place.stage(staging, "b", 2, stage="c"))
        with ThreadPoolExecutor(4) as pool:
            sinks = [place.new_sink(create=True) for _ in range(4)]
            list(pool.map(methodcaller("notify_checkpoint_complete", told), sinks))
        assert place.rows() == [1, 2]
    place.run('DROP TABLE "the.shop".orders')
    kinds = ["short", "integer", "long", "float", "double", "boolean", "date", "timestamp_ntz", "timestamp", "string"]
    fields = [{"name": f'a "{each}"', "type": each, "nullable": True} for each in [*kinds, "decimal(10,2)"]]
    new = place.sink.open()
    assert isinstance(new, NewTable)
    for _ in range(2):
        new.create({"fields": fields})
    found = description_of(place.sink.trigger(4, 0), where="answer").columns["fields"]
    assert [(each["name"], each["type"]) for each in found] == [(each["name"], each["type"]) for each in fields]


def test_names_with_a_per_cent_sign(place: Postgres) -> None:  # semantics C4, R5
    """In a query with parameters psycopg takes it for the begin of a placeholder."""
    place.run('CREATE SCHEMA "50%s"; ALTER TABLE "the.shop".orders SET SCHEMA "50%s"; DROP SCHEMA "the.shop"')
    place.run('ALTER TABLE "50%s".orders RENAME TO "100% \'x\' "" ü"')
    place.schema, place.owner = "50%s", staged_tables.owner_of("flights", "s3://lake/cairn")
    place.sink = place.new_sink("100% 'x' \" ü")
    told = notice(place.stage(place.trigger(3), "a", 1, 2))
    for _ in range(2):
        place.sink.notify_checkpoint_complete(told)
    count = 'SELECT count(*) FROM "50%s"."100% \'x\' "" ü"'
    assert place.run(count) == [(2,)]
    place.sink.rewound(RewindNotice("flights", "s3://lake/cairn", 2, 3))
    assert place.run(count) == [(0,)]
    place.run('ALTER SCHEMA "50%s" RENAME TO "the.shop"')


@pytest.mark.parametrize(
    ("plant", "why"),
    [
        (
            'ALTER TABLE "the.shop".orders RENAME TO old; CREATE VIEW "the.shop".orders AS TABLE "the.shop".old',
            "a view",
        ),
        ('ALTER TABLE "the.shop".orders ENABLE ROW LEVEL SECURITY', "row-level security, which its connection's user"),
        ('ALTER TABLE "the.shop".orders ADD COLUMN price numeric(39,0)', r"price of the type numeric\(39,0\)"),
    ],
    ids=["view", "policies", "numeric"],
)
def test_what_takes_no_copy_is_refused_at_the_trigger(place: Postgres, plant: str, why: str) -> None:
    place.run(plant)
    place.run('CREATE ROLE "a writer" LOGIN; GRANT USAGE, CREATE ON SCHEMA "the.shop" TO "a writer"')
    place.run('GRANT ALL ON "the.shop".orders TO "a writer"')
    dsn, place.dsn = place.dsn, psycopg.conninfo.make_conninfo(place.dsn, user="a writer")
    for create in (False, True):
        with pytest.raises(
            InvalidStateError, match=rf"cannot be used by epochs: it (has|is) .*{why}.*Publish the rows"
        ):
            place.new_sink(create=create).trigger(3, 0)
    place.dsn = dsn
    place.run('DROP OWNED BY "a writer"; DROP ROLE "a writer"')


def test_what_does_not_fit(place: Postgres) -> None:
    assert examine_tables([place.sink], write=True).healthy
    assert place.run("SELECT to_regclass('\"the.shop\".cairn_commits')") == [(None,)], "the probe leaves no table"
    committable = place.stage(place.trigger(3), "good", 1)
    place.run('ALTER TABLE "the.shop".orders DROP COLUMN route')
    with raises_code("table_changed", match="column route is gone"):
        place.sink.notify_checkpoint_complete(notice(committable))
    for column in ("route text", "price numeric(10,2)", "at timestamp(3)"):
        place.run(f'ALTER TABLE "the.shop".orders ADD COLUMN {column}')
    place.sink.notify_checkpoint_complete(notice(committable))
    assert place.run('SELECT * FROM "the.shop".orders') == [(1, *route_of(1)["route"], None, None)]
    found = description_of(place.sink.trigger(4, 0), where="answer")
    types = [(each["name"], each["type"], each["nullable"]) for each in found.columns["fields"]]
    assert types == [
        ("id", "long", False),
        ("route", "string", True),
        ("price", "decimal(10,2)", True),
        ("at", "timestamp_ntz", True),
    ]
    place.run('ALTER TABLE "the.shop".orders ADD COLUMN who uuid, ADD COLUMN about jsonb, ADD COLUMN code character(3)')
    found = description_of(place.sink.trigger(5, 0), where="answer")
    no_keys = {each["name"] for each in found.columns["fields"] if NO_KEY in each["metadata"]}
    assert no_keys == {"at", "who", "about", "code"}, "other texts or moments for Spark may be the same one here"
    place.run('CREATE ROLE "a reader" LOGIN')
    place.run('GRANT USAGE ON SCHEMA "the.shop" TO "a reader"; GRANT SELECT ON "the.shop".orders TO "a reader"')
    dsn, place.dsn = place.dsn, psycopg.conninfo.make_conninfo(place.dsn, user="a reader")
    [finding] = examine_tables([place.new_sink()], write=True).findings
    assert (finding.name, "no right to INSERT: GRANT it" in finding.what) == ("table-refused", True)
    with pytest.raises(InvalidStateError, match="gives its connection's user no right to INSERT: GRANT it"):
        place.new_sink().trigger(5, 0)
    columns = ["id", "route", "price", "at", "who", "about"]
    place.dsn = dsn
    place.run(f'GRANT INSERT ({", ".join(columns)}) ON "the.shop".orders TO "a reader"')
    place.dsn = psycopg.conninfo.make_conninfo(dsn, user="a reader")
    with pytest.raises(InvalidStateError, match="no right to INSERT: GRANT it"):
        place.new_sink().trigger(5, 0)
    with pytest.raises(InvalidConfigError, match=r"user no right to CREATE in the schema the\.shop"):
        place.new_sink("new", create=True).trigger(5, 0)
    place.dsn = dsn
    place.run('GRANT INSERT (code) ON "the.shop".orders TO "a reader"')
    place.run("REVOKE TEMPORARY ON DATABASE postgres FROM PUBLIC")
    place.dsn = psycopg.conninfo.make_conninfo(dsn, user="a reader")
    refused = description_of(place.new_sink().trigger(5, 0), where="answer").refused
    assert (*refused,) == (Mode.OVERWRITE, Mode.REPLACE, Mode.UPSERT)
    assert refused[Mode.UPSERT].endswith("no right to UPDATE, DELETE, TEMPORARY: GRANT it")
    [finding] = examine_tables([place.new_sink()], write=True).findings
    assert (finding.name, "InsufficientPrivilege" in finding.what) == ("table-commit", True), "of the marks"
    place.dsn = dsn
    place.run('DROP OWNED BY "a reader"; DROP ROLE "a reader"; GRANT TEMPORARY ON DATABASE postgres TO PUBLIC')
    place.run('ALTER TABLE "the.shop".orders ADD COLUMN span interval')
    with pytest.raises(InvalidStateError, match="the column span of the type interval"):
        place.sink.trigger(5, 0)
    with pytest.raises(InvalidConfigError, match=r"no table the\.shop\.none"):
        place.new_sink("none").trigger(5, 0)
    with pytest.raises(InvalidConfigError, match=r"no table the\.shop\.Orders: the name is taken .* with its capitals"):
        place.new_sink("Orders").trigger(5, 0)
    place.schema = "none"
    with pytest.raises(InvalidConfigError, match="has no schema none"):
        place.new_sink(create=True).trigger(5, 0)
