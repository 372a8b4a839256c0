"""Set-up of every test: a clean environment, and the real parts as fixtures."""

from __future__ import annotations

import gc
import os
import shutil
import sys
import tempfile
from collections.abc import Iterator
from functools import cache
from typing import Any

import pytest
from hypothesis import HealthCheck, settings
from xdist.remote import Producer
from xdist.workermanage import WorkerController

from airflow_cairn.storage import S3Options
from scripts.harness.azure_server import AzureServer
from scripts.harness.gcs_server import GcsServer
from scripts.harness.postgres_server import PostgresServer
from scripts.harness.s3_server import S3Server
from scripts.setup.java import ensure_java
from tests import lanes
from tests.support import compiled, covering, in_memory
from tests.support.signals import pass_no_ignored_signals_on

pytest_plugins = ("tests.support.airflow_fixtures", "tests.support.world.fixtures")

# No timing decides a test: a busy machine makes examples slowly.
settings.register_profile("default", deadline=None, max_examples=20, suppress_health_check=[HealthCheck.too_slow])
settings.register_profile("ci", settings.get_profile("default"), derandomize=True, print_blob=True)
settings.register_profile("soak", settings.get_profile("default"), max_examples=200)

_NEEDS_JAVA = ("spark", "e2e")
LEFT_OUT = ("soak", "kubernetes")
"""Markers of what `make test` leaves out; each is an option too."""


def pytest_addoption(parser: pytest.Parser) -> None:
    """Offer what `make soak` and `make kubernetes` ask for."""
    for name in LEFT_OUT:
        parser.addoption(f"--{name}", action="store_true", help=f"run the tests marked {name} too")


def pytest_configure(config: pytest.Config) -> None:
    """Keep the tests away from the user's own Airflow and AWS set-up, before anything imports them."""
    pass_no_ignored_signals_on()
    covering.gives_all = config.getoption("soak", default=False)
    settings.load_profile("soak" if covering.gives_all else "ci" if os.environ.get("CI") else "default")
    if not hasattr(config, "workerinput"):
        in_memory.use_for_temporary_files(config)
    for name in [name for name in os.environ if name.startswith(("AIRFLOW_", "AWS_", "SPARK_"))]:
        del os.environ[name]
    home = tempfile.mkdtemp(prefix="cairn-airflow-unit-")
    config.add_cleanup(lambda: shutil.rmtree(home, ignore_errors=True))
    os.environ.update(
        AIRFLOW_HOME=home,
        AIRFLOW__CORE__LOAD_EXAMPLES="False",
        AIRFLOW__CORE__UNIT_TEST_MODE="True",
        AIRFLOW__USAGE_DATA_COLLECTION__ENABLED="False",
        # Airflow 3 ships so; the configuration that it loads for unit tests has Airflow 2's values.
        AIRFLOW__SCHEDULER__CREATE_CRON_DATA_INTERVALS="False",
        AIRFLOW__SCHEDULER__CREATE_DELTA_DATA_INTERVALS="False",
        AWS_EC2_METADATA_DISABLED="true",
        AWS_CONFIG_FILE=os.devnull,
        AWS_SHARED_CREDENTIALS_FILE=os.devnull,
        SPARK_LOCAL_IP="127.0.0.1",
        SPARK_LOCAL_HOSTNAME="localhost",
    )


@pytest.hookimpl(wrapper=True)
def pytest_collection(session: pytest.Session) -> Iterator[None]:
    """Let the garbage collector pass over what the collection makes: it lives as long as the session.

    Each full pass would look at all of it, a tenth of the time of tests that need nothing real.
    """
    worker = getattr(session.config, "workerinput", {})
    if worker.get("lanes"):
        compiled.compile_share(
            session.config, session.config.rootpath, int(worker["workerid"][2:]), worker["workercount"]
        )
    gc.disable()
    try:
        yield
    finally:
        gc.freeze()
        gc.enable()


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Leave to `make soak` and `make kubernetes` what is theirs, and put what takes longest first."""
    for name in LEFT_OUT:
        if not config.getoption(name, default=False):  # unknown where a plugin of tests is loaded alone
            config.hook.pytest_deselected(items=[item for item in items if item.get_closest_marker(name)])
            items[:] = [item for item in items if not item.get_closest_marker(name)]
    lanes.put_in_order(items)


def pytest_collection_finish(session: pytest.Session) -> None:
    """Bring Java and the archive of classes once the selection is known, and only if a selected test starts a JVM."""
    for item in session.items:
        if "spark" in getattr(item, "fixturenames", ()) and not item.get_closest_marker("spark"):
            raise pytest.UsageError(f"{item.nodeid} starts a JVM: mark it with pytest.mark.spark")
        if "spark" in getattr(item, "fixturenames", ()) and lanes.of(item.nodeid) != lanes.SPARK:
            raise pytest.UsageError(f"{item.nodeid} runs Spark in its process: name its module in lanes.IN_ONE_JVM")
        if lanes.of(item.nodeid) == lanes.QUICK and any(item.get_closest_marker(name) for name in _NEEDS_JAVA):
            raise pytest.UsageError(f"{item.nodeid} starts a JVM: move it below tests/real")
    if session.config.option.collectonly:
        return
    if any(item.get_closest_marker(name) for item in session.items for name in _NEEDS_JAVA):
        os.environ["JAVA_HOME"] = str(ensure_java())
        from scripts.harness.spark.start import ensure_archive  # here: it imports PySpark

        ensure_archive()


def pytest_sessionfinish(session: pytest.Session, exitstatus: int) -> None:
    """Delete what tests have left in memory, if all have passed."""
    in_memory.delete_unless(exitstatus != 0, session.config)


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Producer) -> lanes.Lanes | None:
    """Give `--dist loadscope` the lanes; what else xdist can do stays as it is."""
    return lanes.Lanes(config, log) if config.option.dist == "loadscope" else None


def pytest_sessionstart(session: pytest.Session) -> None:
    """Keep the form of logs that tests read, and let what the lane with the Airflow starts go before all else."""
    logs: Any = session.config.pluginmanager.get_plugin("logging-plugin")
    for handler in (logs.caplog_handler, logs.report_handler):
        # Pytest adds these to each logger that does not propagate. A logger of PySpark's class gives what is added to
        # it a formatter of JSON, and that class comes to any logger made while another thread makes one of PySpark's.
        handler.setFormatter = lambda _: None
    if session.config.option.dist == "loadscope" and not hasattr(session.config, "workerinput"):
        session.config.add_cleanup(lanes.SessionGivesWay().close)


@pytest.hookimpl(optionalhook=True)
def pytest_configure_node(node: WorkerController) -> None:
    """Tell a worker whether it runs a lane; xdist does not."""
    node.workerinput["lanes"] = node.config.option.dist == "loadscope"


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_setup(item: pytest.Item) -> None:
    """Let the lane with the Airflow go first."""
    if getattr(item.config, "workerinput", {}).get("lanes"):
        lanes.give_way(item.nodeid)


@pytest.fixture(scope="module", autouse=True)
def _no_wait_for_the_disk(request: pytest.FixtureRequest) -> Iterator[None]:
    """Let no fsync wait: no test cuts the power. `tests/unit/storage/` asks what a store waits for, and waits."""
    folder = request.path.relative_to(request.config.rootpath).parts[:-1]
    with pytest.MonkeyPatch.context() as patch:
        if folder[:2] != ("tests", "real") and folder[:3] != ("tests", "unit", "storage"):
            patch.setattr(os, "fsync", lambda fd: None)
        yield


@pytest.fixture(scope="session", autouse=True)
def _services_of_aws_read_once() -> Iterator[None]:
    """Let each description of a service of AWS be read once: each session of boto3 reads its own, up to 0.2 s."""
    from botocore.loaders import JSONFileLoader  # here: not every run needs it

    read = cache(JSONFileLoader().load_file)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(JSONFileLoader, "load_file", lambda _, path: read(path))
        yield


@pytest.fixture(autouse=True)
def _secrets_of_this_test_alone() -> Iterator[None]:
    """Forget what a test had Airflow mask: the word "another", once a test's password, is `***` in all later texts."""

    def maskers() -> list[Any]:
        named = (sys.modules.get(f"airflow.{name}_shared.secrets_masker") for name in ("", "sdk."))
        return [module._secrets_masker() for module in named if module is not None]

    before = {id(masker): (masker.patterns.copy(), masker.replacer) for masker in maskers()}
    yield
    for masker in maskers():
        masker.patterns, masker.replacer = before.get(id(masker), (set(), None))


@pytest.fixture(scope="session")
def s3_server() -> Iterator[S3Server]:
    """A real S3 server for the whole session; take a bucket of your own from it."""
    with S3Server() as server:
        yield server


@pytest.fixture(scope="session")
def gcs_server() -> Iterator[GcsServer]:
    """A Google Cloud Storage for the whole session; take a bucket of your own from it."""
    with GcsServer() as server:
        yield server


@pytest.fixture(scope="session")
def azure_server() -> Iterator[AzureServer]:
    """Azure's blobs for the whole session; take a container of your own from it."""
    with AzureServer() as server:
        yield server


@pytest.fixture
def s3_options(s3_server: S3Server) -> S3Options:
    """The way to the real S3 server."""
    return S3Options(
        endpoint_url=s3_server.endpoint_url, access_key=s3_server.access_key, secret_key=s3_server.secret_key
    )


@pytest.fixture(scope="session")
def postgres() -> Iterator[PostgresServer]:
    """A real PostgreSQL for the whole session; make a table or a sequence of your own in it."""
    with PostgresServer() as server:
        yield server


@pytest.fixture
def s3_bucket(s3_server: S3Server, request: pytest.FixtureRequest) -> str:
    """A new empty bucket on the real S3 server."""
    digest = f"{abs(hash(request.node.nodeid)):x}"
    return s3_server.create_bucket(f"b-{digest}-{os.getpid()}")
