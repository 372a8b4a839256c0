"""The database is real: it starts, keeps what is committed, and nothing of it is left."""

from __future__ import annotations

import psutil
import psycopg

from scripts.harness.postgres_server import PostgresServer


def test_it_leaves_no_process_and_no_folder() -> None:
    with PostgresServer() as server:
        with psycopg.connect(server.dsn) as connection:
            connection.execute("CREATE SEQUENCE ids")
        with psycopg.connect(server.dsn) as connection:
            assert connection.execute("SELECT nextval('ids')").fetchone() == (1,)
        pids = [process.pid for process in server.family()]
        assert pids
    assert not [pid for pid in pids if psutil.pid_exists(pid)]
    assert not server.root.exists()
