"""Jobs and batches of Dataproc, over their operators and their hook.

The token is `request_id`, by which a second submission gives the first driver, and the end of the id that Dataproc
keeps the driver by. So the id follows from the token, and a driver is found without a listing.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import cached_property
from typing import TYPE_CHECKING, Any

from ..checkpoint.errors import InvalidConfigError
from ..hooks.spark_submit import YARN_DEFAULTS
from ..tasks.job_settings import is_rendered_later
from .launcher import ANSWER_S, DriverState, HandedOver, Launcher, tries_again

if TYPE_CHECKING:
    from airflow.providers.google.cloud.operators.dataproc import DataprocCreateBatchOperator, DataprocSubmitJobOperator
    from airflow.sdk import Context

FILES = ("python_file_uris", "jar_file_uris", "file_uris", "archive_uris")
ONE_TRY: Mapping[str, Any] = {"retry": None, "timeout": ANSWER_S}
"""Retry of a question about a driver: the client would ask again for a quarter of an hour by itself."""


class DataprocLauncher(Launcher):
    """Starts drivers that have an id which the caller chooses; a subclass has the words of jobs or of batches."""

    missing = "Dataproc has no driver of this execution: it was not submitted"
    asks_with = ("gcp_conn_id", "impersonation_chain", "project_id", "region")
    option: str
    """The operator's option that describes the driver."""
    kinds: tuple[str, ...]
    """The option's parts that name an application, first the part of PySpark, which an `Epoch` block needs."""
    holder: str | None = None
    """The option's part that holds the Spark conf; None: the part that names the application."""
    defaults: Mapping[str, str] = {}
    """Spark conf for the sake of the place, which the author may override."""

    _operator: Any

    @property
    def conf(self) -> object:
        """The author's `properties`."""
        return _part(self._described(), self.holder or self._kind()).get("properties")

    @property
    def arguments(self) -> object:
        """The application's arguments; of a SQL script its variables."""
        part = _part(self._described(), self._kind())
        variables = part.get("script_variables") or part.get("query_variables")
        return list(variables.values()) if isinstance(variables, Mapping) else part.get("args")

    def check(self) -> None:
        """Check the author's options.

        Raises:
            InvalidConfigError: see `Launcher`.
        """
        self.check_dictionary(self.option)
        described, taken = self._described(), self._taken()
        why = (
            f"{taken} is set by Cairn, which gives each attempt another: remove it"
            if taken
            else f"{self.option} has no {self._kind()}: an application with an Epoch block is PySpark, {self.option}="
            f"{{'{self._kind()}': {{'main_python_file_uri': 'gs://…/routes.py'}}, …}}. One without a block has places "
            "in its arguments"
            if self._kind() not in described and not is_rendered_later(getattr(self._operator, self.option))
            else self._why_no_stage()
        )
        if why is not None:
            raise InvalidConfigError(why, task=self._operator.task_id)

    def hand_over(self, handed: HandedOver) -> None:
        self.check()
        operator, described = self._operator, self._described()
        kind, changed = self._kind(), dict(described)
        if handed.code:
            spark = _part(described, kind)
            changed[kind] = {**spark, "python_file_uris": [*(spark.get("python_file_uris") or ()), *handed.code]}
        holder = _part(changed, self.holder or kind)
        conf = {**self.defaults, **handed.defaults, **(holder.get("properties") or {}), **handed.conf}
        changed[self.holder or kind] = {**holder, "properties": conf}
        operator.request_id, operator.asynchronous, operator.deferrable = handed.token, True, False
        self._name(changed, _driver(handed.token))
        setattr(operator, self.option, changed)

    def run_instead(self, program: str, arguments: Sequence[str]) -> None:
        """See `Launcher`; whatever kind it is, PySpark runs in the same place."""
        described = self._described()
        author, (python, *_) = _part(described, self._kind()), self.kinds
        kept = {name: author[name] for name in (*FILES, "properties") if name in author}
        others = {name: part for name, part in described.items() if name not in self.kinds}
        asks = {**kept, "main_python_file_uri": program, "args": [*arguments]}
        setattr(self._operator, self.option, {**others, python: asks})

    def find(self, tokens: Sequence[str]) -> dict[str, str]:
        """Return the drivers that Dataproc knows, ended ones too."""
        return {token: _driver(token) for token in tokens if self._known(_driver(token)) is not None}

    def state(self, driver: str) -> DriverState:
        found = self._known(driver)
        return DriverState("unknown to Dataproc", lives=False) if found is None else self._state(found)

    def cancel(self, driver: str) -> None:
        from google.api_core.exceptions import GoogleAPICallError

        try:
            self._end(driver)
        except GoogleAPICallError:
            if self.state(driver).lives:
                raise

    @abstractmethod
    def _taken(self) -> str | None:
        """Return the author's option that would take the token's place; None if there is none."""

    def _why_no_stage(self) -> str | None:
        """Return why the author's options leave no stage; None if they do."""
        return None

    @abstractmethod
    def _name(self, described: dict[str, Any], driver: str) -> None:
        """Give the driver its id."""

    @abstractmethod
    def _ask(self, driver: str) -> Any:
        """Ask for a driver; raises `NotFound` if there is none."""

    @abstractmethod
    def _state(self, found: Any) -> DriverState:
        """Return the state in an answer."""

    @abstractmethod
    def _end(self, driver: str) -> None:
        """Ask Dataproc to end a driver."""

    def _known(self, driver: str) -> Any:
        from google.api_core.exceptions import NotFound  # the DAG file has imported it

        try:
            return self._ask(driver)
        except NotFound:
            return None

    def _kind(self) -> str:
        kinds = self.kinds[:1] if self.has_block else self.kinds
        return next((each for each in kinds if each in self._described()), kinds[0])

    def _described(self) -> Mapping[str, Any]:
        return _part(vars(self._operator), self.option)

    def _place(self) -> dict[str, Any]:
        return {"project_id": self._operator.project_id, "region": self._operator.region}

    @cached_property
    def _hook(self) -> Any:
        from airflow.providers.google.cloud.hooks.dataproc import DataprocHook

        it = self._operator
        return DataprocHook(gcp_conn_id=it.gcp_conn_id, impersonation_chain=it.impersonation_chain)


class DataprocJobLauncher(DataprocLauncher):
    """Starts jobs on a cluster."""

    service, option, defaults = "Dataproc job", "job", YARN_DEFAULTS
    kinds = ("pyspark_job", "spark_job", "spark_r_job", "spark_sql_job")

    _operator: DataprocSubmitJobOperator

    def _taken(self) -> str | None:
        if self._operator.request_id is not None:
            return "request_id"
        return "reference.job_id" if _part(self._described(), "reference").get("job_id") else None

    def _why_no_stage(self) -> str | None:
        if any(_part(self._described(), "scheduling").values()):
            return tries_again("scheduling lets Dataproc start a failed driver", "remove it")
        if self._operator.start_from_trigger:
            return "start_from_trigger submits before there is a task that could claim the stage: remove it"
        return None

    def _name(self, described: dict[str, Any], driver: str) -> None:
        described["reference"] = {**_part(described, "reference"), "job_id": driver}

    def _ask(self, driver: str) -> Any:
        return self._hook.get_job(job_id=driver, **self._place(), **ONE_TRY)

    def _state(self, found: Any) -> DriverState:
        ended = frozenset({"DONE", "ERROR", "CANCELLED"})
        return DriverState.of(found.status.state.name, found.status.details, ended, "DONE")

    def _end(self, driver: str) -> None:
        self._hook.cancel_job(job_id=driver, **self._place(), **ONE_TRY)


class DataprocBatchLauncher(DataprocLauncher):
    """Starts batches without a cluster."""

    service, option, holder = "Dataproc batch", "batch", "runtime_config"
    kinds = ("pyspark_batch", "spark_batch", "spark_r_batch", "spark_sql_batch")

    _operator: DataprocCreateBatchOperator

    def start(self, context: Context) -> str:
        return str(self._execute(context)["name"]).rpartition("/")[2]

    def _taken(self) -> str | None:
        names = ("request_id", "batch_id", "batch_id_prefix")
        return next((name for name in names if getattr(self._operator, name) is not None), None)

    def _name(self, described: dict[str, Any], driver: str) -> None:  # noqa: ARG002 - see `DataprocLauncher`
        self._operator.batch_id = driver

    def _ask(self, driver: str) -> Any:
        return self._hook.get_batch(batch_id=driver, **self._place(), **ONE_TRY)

    def _state(self, found: Any) -> DriverState:
        word, why, ended = found.state.name, found.state_message, frozenset({"SUCCEEDED", "FAILED", "CANCELLED"})
        link = next(iter(found.runtime_info.endpoints.values()), "")
        return replace(DriverState.of(word, why, ended, "SUCCEEDED"), link=link)

    def _end(self, driver: str) -> None:
        operation = self._ask(driver).operation
        self._hook.get_operations_client(self._operator.region).cancel_operation(operation)


def _driver(token: str) -> str:
    return f"cairn-{token}"


def _part(of: Mapping[str, Any], name: str) -> Mapping[str, Any]:
    found = of.get(name)
    return found if isinstance(found, Mapping) else {}
