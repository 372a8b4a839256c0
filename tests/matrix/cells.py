"""The cells of `make matrix`, and the table on docs/reference/versions.md that shows them."""

from __future__ import annotations

from dataclasses import dataclass

MAIN = "4.3.0"
"""The PySpark that this project locks."""


@dataclass(frozen=True, slots=True)
class DriverCell:
    """The Spark and the Python of a cluster: what Cairn ships to a driver runs there."""

    pyspark: str
    python: str
    with_tests: bool = False
    """`make test` runs its keyed pipeline too, by the Python that runs the tests."""
    everything: bool = False
    """Not only the keyed pipeline, but all that an epoch can keep, is run and compared."""
    on_s3: bool = False
    """Checkpoints are in a bucket of the real S3 server, and not in a folder."""

    @property
    def name(self) -> str:
        """Name of the cell in `make matrix CELLS=…`."""
        return f"spark-{self.pyspark}-python-{self.python}{'-s3' if self.on_s3 else ''}"

    @property
    def packages(self) -> tuple[str, ...]:
        """Packages of the cell's environment."""
        return (f"pyspark=={self.pyspark}", *(("boto3",) if self.on_s3 else ()))


DRIVERS = (
    DriverCell("3.5.9", "3.10", everything=True),
    DriverCell("3.5.9", "3.11", with_tests=True, everything=True),
    DriverCell("3.5.9", "3.10", everything=True, on_s3=True),
    DriverCell("4.0.5", "3.10", everything=True),
    DriverCell("4.2.1", "3.10", everything=True),
    DriverCell("4.3.0", "3.11", with_tests=True),
    DriverCell("4.3.0", "3.13", everything=True),
)


@dataclass(frozen=True, slots=True)
class IcebergCell:
    """A Spark for which Iceberg has a runtime."""

    pyspark: str
    python: str

    @property
    def name(self) -> str:
        """Name of the cell in `make matrix CELLS=…`."""
        return f"iceberg-spark-{self.pyspark}-python-{self.python}"


ICEBERG = "1.12.0"
"""The version of Iceberg's runtime, as of bench/measuring/table_formats.py."""
ICEBERGS = (IcebergCell("4.1.4", "3.11"),)
"""In 2026 Iceberg had no runtime for the Spark that this project locks."""
DBT = ("dbt-core==1.11.16", "dbt-spark==1.11.0")


@dataclass(frozen=True, slots=True)
class AirflowCell:
    """One Airflow and the Python that it runs on."""

    airflow: str
    python: str
    is_main: bool = False
    """The version that this project locks, and with which all tests run."""
    constraints: tuple[str, ...] = ()
    """Pins out of Airflow's own constraints of this version, which are on another server than the packages."""

    @property
    def name(self) -> str:
        """Name of the cell in `make matrix CELLS=…`."""
        return f"airflow-{self.airflow}-python-{self.python}"

    @property
    def has_retry_policies(self) -> bool:
        """Airflow has them from 3.3 on, and with them Cairn its restart strategies."""
        return tuple(map(int, self.airflow.split(".")[:2])) >= (3, 3)


@dataclass(frozen=True, slots=True)
class ConnectCell:
    """A Spark Connect server, and the PySpark of a worker that is its client."""

    server: str
    """The version of its Spark."""
    server_python: str
    client: str
    """The version of `pyspark-client`."""

    @property
    def name(self) -> str:
        """Name of the cell in `make matrix CELLS=…`."""
        return f"connect-{self.server}-client-{self.client}"

    @property
    def is_refused(self) -> bool:
        """Between major versions there is no common protocol."""
        return self.server.partition(".")[0] != self.client.partition(".")[0]


CONNECTS = (
    ConnectCell("4.0.5", "3.10", "4.0.4"),
    ConnectCell("4.0.5", "3.10", "4.2.0"),
    ConnectCell("4.3.0", "3.11", "4.0.4"),
    ConnectCell("3.5.9", "3.10", "4.2.0"),
)

_OF_3_2 = ("fastapi<0.137",)
"""With a newer one the API server of Airflow 3.2.2 ends at its start. Airflow 3.3 declares this bound itself."""

AIRFLOWS = (
    AirflowCell("3.2.2", "3.11", constraints=_OF_3_2),
    AirflowCell("3.2.2", "3.13", constraints=_OF_3_2),
    AirflowCell("3.3.2", "3.11", is_main=True),
    AirflowCell("3.3.2", "3.13"),
)


def airflow_table() -> str:
    """Write what the page says of Airflow."""
    head = "| row | Airflow | Python | retry policies, task state | the whole suite |\n|---|---|---|---|---|\n"
    rows = (
        f"| `{cell.name}` | {cell.airflow} | {cell.python} | {'yes' if cell.has_retry_policies else 'no'} | "
        f"{'yes' if cell.is_main else ''} |\n"
        for cell in AIRFLOWS
    )
    return head + "".join(rows)


def driver_table() -> str:
    """Write what the page says of the drivers."""
    head = (
        "| row | PySpark | Python | storage | all that an epoch can keep | in `make test` too |\n"
        "|---|---|---|---|---|---|\n"
    )
    test = "`tests/real/spark/test_submit.py`"
    rows = (
        f"| `{cell.name}` | {cell.pyspark} | {cell.python} | {'S3' if cell.on_s3 else '`file://`'} | "
        f"{'yes' if cell.everything else ''} | {test if cell.with_tests else ''} |\n"
        for cell in DRIVERS
    )
    return head + "".join(rows)


def connect_table() -> str:
    """Write what the page says of Spark Connect."""
    head = "| row | Spark of the server | `pyspark-client` of the worker | stages |\n|---|---|---|---|\n"
    rows = (
        f"| `{cell.name}` | {cell.server} | {cell.client} | {'refused by name' if cell.is_refused else 'run'} |\n"
        for cell in CONNECTS
    )
    return head + "".join(rows)


def iceberg_table() -> str:
    """Write what the page says of Iceberg's runtime."""
    head = "| row | PySpark | Python | Iceberg's runtime |\n|---|---|---|---|\n"
    return head + "".join(f"| `{cell.name}` | {cell.pyspark} | {cell.python} | {ICEBERG} |\n" for cell in ICEBERGS)
