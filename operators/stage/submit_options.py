"""Checks the arguments of a Spark task when the DAG is parsed: their form, secrets, and reserved names.

Airflow's provider takes each option as it is: a text given for a list is passed letter by letter, and a list given for
a text breaks the command after the epoch has begun. So the form is checked at parse, and again after rendering.

Everything that a Spark task is given is visible: on the command line of spark-submit, in the Spark UI, in the event
log, in Airflow's rendered fields. So a secret is refused by its place, by its shape, and as a template that would fetch
one. If such a refusal is wrong, the author names the setting in `not_secret`, as each refusal says. Airflow's own
masker also decides which names mean a secret, so names that a site adds to it (`[core] sensitive_var_conn_names`) count
here. No message repeats a value.

spark-submit resolves a relative path from the folder in which the worker was started. An author means a file beside the
DAG file, whose folder differs from worker to worker (a version of a bundle). So the task looks there first when it
runs.
"""

from __future__ import annotations

import glob
import logging
import re
import sys
from collections.abc import Collection, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, NoReturn

from airflow.sdk import DAG, XComArg
from airflow.sdk.definitions._internal.contextmanager import DagContext
from airflow.sdk.log import redact  # type: ignore[attr-defined]  # re-imported there, but public

from ...checkpoint.errors import InvalidConfigError
from ...checkpoint.masking import is_plain, names_a_secret, refers_to_a_secret, secret_in
from ...checkpoint.validation import check_whole
from ...spark.handover.conf import PREFIX
from ...spark.output.committer import ALGORITHM
from ...spark.programs.arguments import Argument, places_in
from ...spark.remote.submission import is_function
from ...tasks.job_settings import is_rendered_later

log = logging.getLogger("airflow_cairn")

_OPTION = re.compile(r"\A(?:-D(?=[\w.-]+=)|--?)([A-Za-z][\w.-]*)(?:=(.*))?\Z", re.DOTALL)

_JOINED_BY = {
    **dict.fromkeys(("files", "py_files", "archives", "jars", "packages", "exclude_packages", "repositories"), ","),
    "driver_class_path": ":",
}
"""Texts that list several things, and their separator."""

TEXTS = (
    *("application", "name", "properties_file", "java_class", "spark_binary", "deploy_mode", "yarn_queue"),
    *("keytab", "principal", "proxy_user", "driver_memory", "executor_memory", *_JOINED_BY),
)
"""Options of spark-submit that are a single text each."""

FILES = ("application", "properties_file", "py_files", "files", "archives", "jars")
"""Texts that name files."""

NUMBERS = ("num_executors", "executor_cores", "total_executor_cores")
"""Options that are whole numbers above 0, or texts of them: the provider drops 0, and Spark refuses '0'."""

SECONDS = "status_poll_interval"
"""Option in seconds; the provider passes it to `sleep`, so a text is not allowed."""

_WHOLE = re.compile(r"\A[0-9]{1,10}\Z")
_LARGEST = 2**31 - 1

MEMORIES = ("driver_memory", "executor_memory")
"""Texts for an amount of memory."""

_MEMORY = re.compile(r"\A(?=.*[1-9])[0-9]+(?:[kmgtp]b?|b)?\Z", re.IGNORECASE)

LISTS = {
    "application_args": "['--date', '{{ ds }}']",
    "post_submit_commands": "['curl -X POST localhost:15020/quitquitquit']",
}
"""Options that are lists of texts, with an example of each."""

MAPPINGS = {"conf": "{'spark.executor.cores': '2'}", "env_vars": "{'REGION': 'eu'}"}
"""Options that are dictionaries of plain values, with an example of each."""

NO_PROGRAMS = {
    "ipynb": "spark-submit runs no notebook: export it to a Python file (jupyter nbconvert --to script), whose "
    "arguments name its places. On Databricks it is a stage as it is: epoch_stage(DatabricksSubmitRunOperator) with a "
    "notebook_task, whose base_parameters name them",
    "sql": "spark-submit runs no SQL file: application names the jar of Spark's own shell, and application_args the "
    "file, ['-f', 'totals.sql', '--hivevar', 'out=' + Output('totals')], with "
    "java_class='org.apache.spark.sql.hive.thriftserver.SparkSQLCLIDriver'",
}
"""Suffixes of files that spark-submit cannot run, each with how such a file becomes a stage."""

_PROBE = "cairn-asks"
_ELSEWHERE = re.compile(r"[A-Za-z][A-Za-z0-9+.-]*:|/")
"""The beginning of a URL or of an absolute path."""

_CURE = (
    "it would be shown on command lines, in the Spark UI and in logs. The storage's credentials come from "
    "aws_conn_id; whatever else the application needs it should fetch itself: from an instance role, a secret manager, "
    "or a file that the cluster mounts"
)


def option_of(operator: Any, name: str) -> Any:
    """Return an option of the provider's operator, which keeps some private; they have an underscore in front."""
    return getattr(operator, name) if hasattr(operator, name) else getattr(operator, f"_{name}")


def check_forms(
    task: str, options: Mapping[str, object], *, rendered: bool, native: bool, templated: Collection[str]
) -> None:
    """Refuse an option that is not the text, number, list of texts or dictionary that spark-submit takes.

    Args:
        task: the task's id, for error messages.
        options: the author's values by argument name; None counts as not given.
        rendered: whether templates and other tasks' results are already replaced by their values.
        native: whether a template may give another type than a text (`render_template_as_native_obj`).
        templated: the options in which templates are rendered.

    Raises:
        InvalidConfigError: an option has another form; names the option and its type, never the value.
    """

    def fits(value: object, kind: type | tuple[type, ...]) -> bool:
        later = not rendered and (isinstance(value, XComArg) or (native and is_rendered_later(value)))
        return (later and option in templated) or isinstance(value, kind)

    def refuse(option: str, value: object, why: str) -> NoReturn:
        if place := next(places_in(value), None):
            why = (
                f"cannot hold {place!r}: a place of a program stands in application_args alone, as an item of its own "
                "or joined to a text: application_args=['--out', Output('clean')]"
            )
        raise InvalidConfigError(f"{option} {why}", task=task, parameter=option, type=type(value).__name__)

    for option, value in options.items():
        if value is None or fits(value, ()):
            continue
        later = not rendered and option in templated and is_rendered_later(value)
        if option in LISTS:
            if not isinstance(value, Sequence) or isinstance(value, str | bytes):
                refuse(option, value, f"must be a list of texts: write {option}={LISTS[option]}")
            for position, each in enumerate(value):
                if not fits(each, (str, Argument) if option == "application_args" else str):
                    refuse(f"{option}[{position}]", each, "must be a text: write '3' in place of 3, or str(…)")
        elif option in MAPPINGS:
            if not isinstance(value, Mapping):
                refuse(option, value, f"must be a dictionary: write {option}={MAPPINGS[option]}")
            for key, each in value.items():
                if not isinstance(key, str) or not fits(each, (str, int, float)):
                    refuse(f"{option} {key}", each, "must be a text, a number or a truth value under a name")
        elif later:
            continue
        elif option == SECONDS:
            check_whole(option, value, 0, task=task)
        elif option in NUMBERS:
            if not _is_above_zero(value):
                refuse(option, value, f"must be a whole number above 0: write {option}=2")
        elif not isinstance(value, str):
            joined = _JOINED_BY.get(option)
            many = f", with {joined!r} between several: write {option}='a{joined}b'" if joined else ""
            refuse(option, value, f"must be one text{many or _memory_text(option)}")
        elif option in MEMORIES and value and not _MEMORY.match(value):
            refuse(option, value, f"must be memory above 0, a whole number and a unit{_memory_text(option)}")


def check_program(application: object, task: str) -> None:
    """Refuse a file that spark-submit cannot run.

    Args:
        application: the author's.
        task: the task's id, for error messages.

    Raises:
        InvalidConfigError: it is a notebook or a SQL file; says how it becomes a stage.
    """
    end = str(application).rpartition(".")[2].lower()
    if end in NO_PROGRAMS:
        raise InvalidConfigError(NO_PROGRAMS[end], task=task, application=str(application))


def check_author_settings(
    task: str,
    *,
    conf: object = None,
    env_vars: object = None,
    application_args: object = None,
    op_kwargs: object = None,
    texts: Mapping[str, object] | None = None,
    not_secret: Collection[str] = (),
) -> None:
    """Refuse secrets and reserved keys in the author's settings; called at parse and again on the rendered values.

    Args:
        task: the task's id, for error messages.
        conf: Spark conf; checked if it is a mapping (it may be known only at run time).
        env_vars: environment variables; checked if it is a mapping.
        application_args: the application's arguments; checked if it is a sequence.
        op_kwargs: a function's arguments by name; checked if it is a mapping.
        texts: further arguments by name, whose values are checked.
        not_secret: settings that hold no secret, according to their author: keys, options and names of arguments.
    """
    for parameter, settings in (("conf", conf), ("env_vars", env_vars), ("op_kwargs", op_kwargs)):
        if isinstance(settings, Mapping):
            for key, value in settings.items():
                if parameter == "conf":
                    _check_reserved(task, str(key), value)
                if key not in not_secret:
                    _check_setting(task, parameter, str(key), value)
    if isinstance(application_args, Sequence) and not isinstance(application_args, str):
        for name, value in _options(application_args):
            if name not in not_secret:
                _check_setting(task, "application_args", name, value)
    elif isinstance(application_args, str):
        texts = {**(texts or {}), "application_args": application_args}
    for name, value in (texts or {}).items():
        if value is not None and name not in not_secret:
            _check_text(task, name, name, value)


def checked_not_secret(names: object, task: str) -> tuple[str, ...]:
    """Return the names of settings that an author declares not secret; options without their dashes.

    Raises:
        InvalidConfigError: `names` is not a list of names.
    """
    if isinstance(names, str) or not isinstance(names, Collection) or not all(isinstance(each, str) for each in names):
        raise InvalidConfigError(
            "not_secret lists the names of settings that hold no secret: not_secret=['spark.token.kind', '--token']",
            task=task,
            found=type(names).__name__,
        )
    return tuple(each if each.startswith("[") else each.lstrip("-") for each in names)


def folder_of(dag: DAG) -> Path:
    """Return the folder of a DAG's file on this machine; during the import, the DAG may name a helper's file."""
    importing = sys.modules.get(DagContext.current_autoregister_module_name or "")
    return Path(getattr(importing, "__file__", None) or dag.fileloc).absolute().parent


def place_beside(folder: Path, option: str, value: str) -> str:
    """Return an option of `FILES` with whole paths for files that lie beside the DAG file; others stay unchanged."""
    return (_JOINED_BY.get(option) or "").join(_placed(folder, option, path) for path in _paths(option, value))


def not_found(folder: Path | None, option: str, value: str) -> tuple[str, str] | None:
    """Look for the files of an option beside the DAG file and in the folder of this process.

    Args:
        folder: the DAG file's folder; None without a DAG.
        option: one of `FILES`.
        value: the option's value.

    Returns:
        The names of files that are in neither folder, and the searched folders with a remedy; None if all exist.
    """
    folders = [each for each in (folder, Path.cwd()) if each is not None]
    relative = [path for path in _paths(option, value) if _is_relative(option, path)]
    missing = [path for path in relative if not any(_is_there(each, path) for each in folders)]
    if not missing:
        return None
    places = f"in {Path.cwd()}, where this process was started"
    if folder is None:
        return ", ".join(missing), f"was looked for {places}. Give the whole path"
    return ", ".join(missing), (
        f"was looked for in {folder}, beside the DAG file, and {places}. Put it beside the DAG file, or give the whole "
        "path"
    )


def _is_above_zero(value: object) -> bool:
    if isinstance(value, str):
        value = int(value) if _WHOLE.match(value) else None
    return isinstance(value, int) and not isinstance(value, bool) and 0 < value <= _LARGEST


def _memory_text(option: str) -> str:
    return f": write {option}='2g'" if option in MEMORIES else ""


def _placed(folder: Path, option: str, path: str) -> str:
    if not _is_relative(option, path):
        return path
    here, there = _is_there(Path.cwd(), path), _is_there(folder, path)
    if there:
        if here and not folder.samefile(Path.cwd()):
            log.warning(
                "File %s is in %s too: the one beside the DAG file is taken, %s", path, Path.cwd(), folder / path
            )
        return str(folder / path)
    if here:
        log.info(
            "File %s is not beside the DAG file: the one in %s is taken, where this worker was started",
            path,
            Path.cwd(),
        )
    return path


def _paths(option: str, value: str) -> list[str]:
    joined = _JOINED_BY.get(option)
    return [value] if joined is None else [each.strip() for each in value.split(joined) if each.strip()]


def _is_relative(option: str, path: str) -> bool:
    return not _ELSEWHERE.match(path) and not (option == "application" and is_function(path))


def _is_there(folder: Path, path: str) -> bool:
    """Look for a file by its name, or as Spark looks for jars and files: by a pattern, and without `#alias`."""
    name = path.partition("#")[0]
    return (folder / name).exists() or bool(glob.glob(glob.escape(f"{folder}/") + name))


def _check_reserved(task: str, key: str, value: object) -> None:
    if key.startswith(PREFIX):
        raise InvalidConfigError(
            f"conf {key} is set by Cairn itself for each attempt; remove it", task=task, parameter="conf", key=key
        )
    if key.endswith(ALGORITHM) and str(value).strip() == "2":
        raise InvalidConfigError(
            f"conf {key} is 2: that committer shows files of a task before the task is done, so a killed one leaves "
            "half its output. Remove the setting; version 1 is the default, and the magic committer is used on s3a "
            "where its classes are there",
            task=task,
            parameter="conf",
            key=key,
        )


def _check_setting(task: str, parameter: str, key: str, value: object) -> None:
    if is_plain(value):
        return
    if _names_a_secret(key) and not refers_to_a_secret(key, value):
        raise InvalidConfigError(
            f"{parameter} {key} holds a secret: {_CURE}. {_way_out(key)}", task=task, parameter=parameter, key=key
        )
    _check_text(task, parameter, key, value)


def _check_text(task: str, parameter: str, key: str, value: object) -> None:
    # Any other value reaches spark-submit as its text: a dictionary with a password in it, for example.
    found = secret_in(str(value), _names_a_secret)
    if found is not None:
        where = parameter if key == parameter else f"{parameter} {key}"
        raise InvalidConfigError(
            f"{where} holds {found}: {_CURE}. {_way_out(key)}", task=task, parameter=parameter, key=key
        )


def _way_out(key: str) -> str:
    return f"If it is not a secret, say so: not_secret=[{key!r}]"


def _names_a_secret(name: str) -> bool:
    return names_a_secret(name, _airflow_hides)


def _airflow_hides(name: str) -> bool:
    """Return whether Airflow masks the value under a name."""
    return bool(redact(_PROBE, name) != _PROBE)


def _options(arguments: Sequence[Any]) -> Iterator[tuple[str, Any]]:
    """Yield each argument with its option: from `--name=value`, from `--name value`, or its position."""
    option: str | None = None
    for position, argument in enumerate(arguments):
        match = _OPTION.match(argument) if isinstance(argument, str) else None
        if match is None:
            yield option or f"[{position}]", argument
            option = None
            continue
        option = match[1] if match[2] is None else None
        if match[2] is not None:
            yield match[1], match[2]
