"""A launcher starts a stage's application by an operator of a service; this module says what Cairn needs of one.

A driver belongs to one execution, whose token the service keeps: in a name that its listing shows, and in the field by
which it refuses a second submission, if it has one. So the token alone finds the driver, also after the task died
before it had heard the driver's id, and never finds the driver of another execution.
"""

from __future__ import annotations

import logging
from abc import abstractmethod
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from importlib import import_module
from itertools import islice
from typing import TYPE_CHECKING, Any, Protocol

from airflow.sdk import BaseOperator

from ..checkpoint.errors import InvalidConfigError
from ..spark.execution.failure_kinds import error_line
from ..spark.programs.arguments import unmarked
from ..storage.records import dataclass
from ..tasks.job_settings import is_rendered_later

if TYPE_CHECKING:
    from airflow.sdk import Context

log = logging.getLogger("airflow_cairn")

ANSWER_S = 60.0
"""Seconds within which a service must answer a request, where its client would wait for ever."""


@dataclass(frozen=True, slots=True)
class DriverState:
    """A driver's state, as the service has just said. Without an answer there is no state, but an error."""

    word: str
    """The service's own word."""
    lives: bool
    """Whether the driver may still acknowledge; False too if the service answers that it does not know the driver."""
    succeeded: bool = False
    link: str = ""
    """The address of its Spark UI or run page; empty if the service names none."""
    may_have_run: bool = True
    """False for a driver that was ended because it did not start."""

    @classmethod
    def of(cls, word: str, why: str, ended: Collection[str], succeeded: str) -> DriverState:
        """Make the state of a driver from the service's words.

        Args:
            word: the state.
            why: the service's reason, which follows the word once the driver has ended; empty if it gives none.
            ended: the words of drivers that have ended.
            succeeded: the one of these that means success.
        """
        return cls(f"{word}: {why}" if word in ended and why else word, word not in ended, word == succeeded)


def tries_again(what: str, instead: str) -> str:
    """Say why a service must not start a driver again, and what the author does."""
    return (
        f"{what} again by itself, and a failure has to reach the task, which restores first: {instead}, and give the "
        "task retries"
    )


class Tracker(Protocol):
    """Finds, looks at and ends drivers that may outlive their task. Any method may raise the provider's errors."""

    missing: str
    """Why a driver may not be found, for people."""

    def tracks(self) -> bool:
        """Return whether a driver submitted now can be found again."""
        ...

    def find(self, tokens: Sequence[str]) -> dict[str, str]:
        """Return drivers by the token of their execution; a driver that has ended may be missing."""
        ...

    def others(self, token: str, replaced: Sequence[str]) -> Iterable[str]:
        """Return drivers of other executions that may live."""
        ...

    def state(self, driver: str) -> DriverState:
        """Ask for a driver's state; raises where the service does not answer, for unknown is not gone."""
        ...

    def cancel(self, driver: str) -> None:
        """End a driver; one that has ended is not an error."""
        ...


@dataclass(frozen=True, slots=True)
class HandedOver:
    """Cairn's part of a submission, besides the author's."""

    token: str
    """Token of the execution; letters and digits."""
    name: str
    """Name of the execution, for people; ends with the token."""
    defaults: Mapping[str, str]
    """Spark conf that the author may override."""
    conf: Mapping[str, str]
    """Spark conf that nothing overrides."""
    code: tuple[str, ...]
    """The address of Cairn's code for the driver, for Spark's Python path: a zip, or a wheel. Empty for a program
    without an `Epoch` block, which needs none and may be a jar."""


class Launcher(Tracker):
    """Starts drivers by an operator of a service."""

    service: str
    """The service's name for a run of it, such as `Livy batch`."""
    takes_wheel = False
    """Whether the driver's code has to be a wheel."""
    has_block = True
    """Whether the program opens an epoch. One that knows nothing of Cairn needs neither its conf nor its code."""
    writes = False
    """Whether a program without a block has a place to write to, and so an address with the execution's token."""
    asks_with: tuple[str, ...]
    """The operator's fields by which the service is asked about a driver: ids of connections, and no secrets."""

    def __init__(self, operator: Any) -> None:
        self._operator = operator

    @property
    @abstractmethod
    def conf(self) -> object:
        """The author's Spark conf."""

    @property
    def texts(self) -> Mapping[str, object]:
        """Other texts of the author, by argument, that the service shows to people."""
        return {}

    @property
    @abstractmethod
    def arguments(self) -> object:
        """The application's arguments, which the service shows; a list once they are known."""

    @abstractmethod
    def check(self) -> None:
        """Check the author's options at parse; templates are not rendered yet.

        Raises:
            InvalidConfigError: an option leaves no way to hand over, or takes what the handover needs.
        """

    @abstractmethod
    def hand_over(self, handed: HandedOver) -> None:
        """Put the handover into the operator's own fields, rendered by now.

        Raises:
            InvalidConfigError: the rendered options leave no way to hand over.
        """

    @abstractmethod
    def run_instead(self, program: str, arguments: Sequence[str]) -> None:
        """Put a Python file in place of the author's program, and pairs of `--name` and value for its arguments.

        Raises:
            InvalidConfigError: the operator, or the place where it runs, takes no other program.
        """

    def check_dictionary(self, name: str) -> None:
        """Refuse an option of the operator that is there, is rendered, and is not a dictionary.

        Raises:
            InvalidConfigError: the option is not a dictionary.
        """
        given = getattr(self._operator, name)
        if given is not None and not isinstance(given, Mapping) and not is_rendered_later(given):
            raise InvalidConfigError(
                f"{name} is a {type(given).__name__} and has to be a dictionary: give the DAG "
                "render_template_as_native_obj=True, or the task a dictionary with templates in it",
                task=self._operator.task_id,
            )

    def give_places(self, texts: Mapping[str, str]) -> None:
        """Put texts in place of their marks, in any argument of the operator."""
        fields = vars(self._operator)
        fields.update({name: unmarked(value, texts) for name, value in fields.items()})

    def fields(self) -> dict[str, Any]:
        """Return the operator's fields with which another process can ask the service (`known.launcher_at`)."""
        return {name: getattr(self._operator, name) for name in self.asks_with}

    def start(self, context: Context) -> str:
        """Submit by the operator's own `execute`, without waiting; returns the driver."""
        return str(self._execute(context))

    def _execute(self, context: Context) -> Any:
        return type(self._operator).execute.__wrapped__(self._operator, context)

    def tracks(self) -> bool:
        """See `Tracker`: the service knows each driver by its token."""
        return True

    def others(self, token: str, replaced: Sequence[str]) -> Iterable[str]:  # noqa: ARG002 - see `Tracker`
        return self.find(replaced).values()

    def states(self, drivers: Collection[str]) -> Iterator[tuple[str, DriverState | Exception]]:
        """Ask for the states of several drivers, in few requests where the service lists them.

        Yields:
            Each driver with its state, or why the service does not say it, as soon as it is known.
        """
        found: Mapping[str, DriverState] = {}
        if len(drivers) > 1:
            try:
                found = self.listed(drivers)
            except Exception as error:  # noqa: BLE001 - such as a right that only the list needs
                log.warning(
                    "Drivers cannot be listed, so each %s is asked about alone: %s", self.service, error_line(error)
                )
        yield from found.items()
        for driver in drivers:
            if driver not in found:
                try:
                    yield driver, self.state(driver)
                except Exception as error:  # noqa: BLE001 - the others have their answers
                    yield driver, error

    def listed(self, drivers: Collection[str]) -> dict[str, DriverState]:  # noqa: ARG002 - see the docstring
        """List drivers, in at most as many requests as there are; one that is missing may have ended."""
        return {}

    def leave(self, driver: str) -> None:
        """Remove what the operator removes after a driver's end."""

    def logs(self, driver: str) -> Iterable[str]:  # noqa: ARG002 - see the docstring
        """Return the last lines of a driver's output; none where its log is elsewhere, and the operator links to it."""
        return ()


# Shared by launchers: drivers by the end of their names, the states of an API of AWS, addresses on S3.


AWS = ("aws_conn_id", "region_name", "verify", "botocore_config")
"""The fields by which each operator of AWS makes its client."""


def by_token(tokens: Sequence[str], drivers: Iterable[tuple[str, str]]) -> dict[str, str]:
    """Return drivers by the token at the end of their name."""
    found = {name.rpartition("-")[2]: driver for name, driver in drivers}
    return {token: found[token] for token in tokens if token in found}


def on_pages(
    drivers: Collection[str],
    pages: Iterable[Iterable[Mapping[str, Any]]],
    key: str,
    state_of: Callable[[Mapping[str, Any]], DriverState],
) -> dict[str, DriverState]:
    """Return the states of drivers that a listing shows; ends where asking for each alone would be cheaper.

    `key` is the field of an entry that has the driver's id.
    """
    found: dict[str, DriverState] = {}
    for page in islice(pages, len(drivers)):
        found |= {str(each[key]): state_of(each) for each in page if str(each[key]) in drivers}
        if len(found) == len(drivers):
            break
    return found


def alive(client: Any, shape: str, ended: Collection[str]) -> list[str]:
    """Return the states that the API's enumeration `shape` has, without those of drivers that have ended."""
    return [each for each in client.meta.service_model.shape_for(shape).enum if each not in ended]


def as_s3(address: str) -> str:
    """Return Spark's address of an object as a service's own API writes it."""
    return address.replace("s3a://", "s3://", 1)


# The operators that have a launcher. Names only: a DAG file's parse imports no provider that it does not use.


LAUNCHERS = {
    "airflow.providers.amazon.aws.operators.emr.EmrAddStepsOperator": "emr.EmrStepLauncher",
    "airflow.providers.amazon.aws.operators.emr.EmrContainerOperator": "emr.EmrContainerLauncher",
    "airflow.providers.amazon.aws.operators.emr.EmrServerlessStartJobOperator": "emr.EmrServerlessLauncher",
    "airflow.providers.amazon.aws.operators.glue.GlueJobOperator": "glue.GlueLauncher",
    "airflow.providers.cncf.kubernetes.operators.spark_kubernetes.SparkKubernetesOperator": (
        "spark_kubernetes.SparkKubernetesLauncher"
    ),
    "airflow.providers.databricks.operators.databricks.DatabricksRunNowOperator": "databricks.DatabricksJobLauncher",
    "airflow.providers.databricks.operators.databricks.DatabricksSubmitRunOperator": "databricks.DatabricksLauncher",
    "airflow.providers.google.cloud.operators.dataproc.DataprocCreateBatchOperator": "dataproc.DataprocBatchLauncher",
    "airflow.providers.google.cloud.operators.dataproc.DataprocSubmitJobOperator": "dataproc.DataprocJobLauncher",
    "airflow.providers.apache.livy.operators.livy.LivyOperator": "livy.LivyLauncher",
}
"""By operator: module and class of its launcher."""


def launcher_of(kind: type[BaseOperator], operator: BaseOperator) -> Launcher:
    """Return the launcher over an operator."""
    module, _, name = LAUNCHERS[known_as(kind)].partition(".")
    made: Launcher = getattr(import_module(f".{module}", __package__), name)(operator)
    return made


def launcher_at(operator: str, fields: Mapping[str, Any]) -> Launcher:
    """Return a launcher in a process that has no operator; it finds, looks at and ends drivers.

    `fields` are as `Launcher.fields` gave them.
    """
    module, _, name = operator.rpartition(".")
    kind = getattr(import_module(module), name)
    plain = kind.__new__(kind)
    vars(plain).update(fields)
    return launcher_of(kind, plain)


def check_known(kind: object) -> None:
    """Check that an operator's class has a launcher.

    Raises:
        InvalidConfigError: it has none; names those that have.
    """
    if not isinstance(kind, type) or not issubclass(kind, BaseOperator) or not known_as(kind):
        raise InvalidConfigError(
            "epoch_stage has no launcher for this: it takes the class of an operator, one of "
            f"{', '.join(sorted(name.rpartition('.')[2] for name in LAUNCHERS))}, or a class derived from it",
            operator=getattr(kind, "__name__", repr(kind)),
        )


def has_launcher(kind: type) -> bool:
    """Return whether an operator's class can be made a stage."""
    return bool(known_as(kind))


def known_as(kind: type) -> str:
    """Return the operator of `LAUNCHERS` that a class is, or is derived from; empty if there is none."""
    names = (f"{each.__module__}.{each.__qualname__}" for each in kind.__mro__)
    return next((name for name in names if name in LAUNCHERS), "")
