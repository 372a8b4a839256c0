"""What an author writes into a Spark task's arguments, checked at parse: its form, secrets, and what is reserved.

Airflow's provider takes each option as it is: of one text for a list it passes the letters, and a list for a text
breaks the command once the epoch has begun. So the form is checked here, and again when it has been rendered.

Everything that a Spark task is given is shown: on the command line of spark-submit, in the Spark UI, in the event log,
in Airflow's rendered fields. So a secret is refused by its place, by its shape, and as a template that would fetch one.
Where that is wrong, the author names the setting in `not_secret`, as each refusal says.
Which names stand for a secret is asked of Airflow's own masker too, so the names that a site adds to it
(`[core] sensitive_var_conn_names`) count here. No message repeats a value.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator, Mapping, Sequence
from typing import Any, NoReturn

from airflow.sdk import XComArg
from airflow.sdk.log import redact  # type: ignore[attr-defined]  # imported there for its own use, but public

from ...checkpoint.errors import InvalidConfigError
from ...checkpoint.secrets.names import is_plain, names_a_secret, refers_to_a_secret
from ...checkpoint.secrets.shapes import secret_in
from ...spark.handover.conf import PREFIX
from ...spark.output.committer import ALGORITHM
from ...tasks.job_settings import is_rendered_later

_OPTION = re.compile(r"\A(?:-D(?=[\w.-]+=)|--?)([A-Za-z][\w.-]*)(?:=(.*))?\Z", re.DOTALL)

_JOINED_BY = {
    **dict.fromkeys(("files", "py_files", "archives", "jars", "packages", "exclude_packages", "repositories"), ","),
    "driver_class_path": ":",
}
"""Texts that name several things, and what stands between them."""

TEXTS = (
    *("application", "name", "properties_file", "java_class", "spark_binary", "deploy_mode", "yarn_queue"),
    *("keytab", "principal", "proxy_user", "driver_memory", "executor_memory", *_JOINED_BY),
)
"""Options of spark-submit that are one text each."""

LISTS = {
    "application_args": "['--date', '{{ ds }}']",
    "post_submit_commands": "['curl -X POST localhost:15020/quitquitquit']",
}
"""Options that are lists of texts, with what an author writes."""

MAPPINGS = {"conf": "{'spark.executor.cores': '2'}", "env_vars": "{'REGION': 'eu'}"}
"""Options that are dictionaries of plain values, with what an author writes."""

_PROBE = "cairn-asks"

_CURE = (
    "it would be shown on command lines, in the Spark UI and in logs. The storage's credentials come from "
    "aws_conn_id; whatever else the application needs it should fetch itself: from an instance role, a secret manager, "
    "or a file that the cluster mounts"
)


def check_forms(task: str, options: Mapping[str, object], *, rendered: bool, native: bool) -> None:
    """Refuse an option that is neither the text, the list of texts nor the dictionary that spark-submit can be given.

    Args:
        task: the task's id, for messages.
        options: what the author gave, by the names of the arguments; None is as good as nothing.
        rendered: whether templates and results of other tasks stand there by now.
        native: whether a template may give something else than a text (`render_template_as_native_obj`).

    Raises:
        InvalidConfigError: naming the option and its type, never the value, with what to write.
    """

    def fits(value: object, kind: type | tuple[type, ...]) -> bool:
        later = not rendered and (isinstance(value, XComArg) or (native and is_rendered_later(value)))
        return later or isinstance(value, kind)

    def refuse(option: str, value: object, why: str) -> NoReturn:
        raise InvalidConfigError(f"{option} {why}", task=task, parameter=option, type=type(value).__name__)

    for option, value in options.items():
        if value is None or fits(value, ()):
            continue
        if option in LISTS:
            if not isinstance(value, Sequence) or isinstance(value, str | bytes):
                refuse(option, value, f"must be a list of texts: write {option}={LISTS[option]}")
            for position, each in enumerate(value):
                if not fits(each, str):
                    refuse(f"{option}[{position}]", each, "must be a text: write '3' in place of 3, or str(…)")
        elif option in MAPPINGS:
            if not isinstance(value, Mapping):
                refuse(option, value, f"must be a dictionary: write {option}={MAPPINGS[option]}")
            for key, each in value.items():
                if not isinstance(key, str) or not fits(each, (str, int, float)):
                    refuse(f"{option} {key}", each, "must be a text, a number or a truth value under a name")
        elif not isinstance(value, str):
            joined = _JOINED_BY.get(option)
            many = f", with {joined!r} between several: write {option}='a{joined}b'" if joined else ""
            refuse(option, value, f"must be one text{many}")


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
    """Refuse secrets and reserved keys in what the author wrote; called at parse and again on the rendered values.

    Args:
        task: the task's id, for messages.
        conf: Spark conf; looked into if it is a mapping (it may be known only when the task runs).
        env_vars: environment variables, likewise.
        application_args: the application's arguments, looked into if it is a sequence.
        op_kwargs: a function's arguments by name, looked into if it is a mapping.
        texts: further arguments by name, whose values are looked into.
        not_secret: settings that hold no secret, as their author says: keys, options and names of arguments.

    Raises:
        InvalidConfigError: naming parameter and key, never the value.
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
    """Give the settings that an author says are no secrets; an option without its dashes.

    Raises:
        InvalidConfigError: it is no list of names.
    """
    if isinstance(names, str) or not isinstance(names, Collection) or not all(isinstance(each, str) for each in names):
        raise InvalidConfigError(
            "not_secret lists the names of settings that hold no secret: not_secret=['spark.token.kind', '--token']",
            task=task,
            found=type(names).__name__,
        )
    return tuple(each if each.startswith("[") else each.lstrip("-") for each in names)


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
    # What is no text reaches spark-submit as the text of it: a dictionary with a password in it, say.
    found = secret_in(str(value), _names_a_secret)
    if found is not None:
        where = parameter if key == parameter else f"{parameter} {key}"
        raise InvalidConfigError(
            f"{where} holds {found}: {_CURE}. {_way_out(key)}", task=task, parameter=parameter, key=key
        )


def _way_out(key: str) -> str:
    return f"If it is no secret, say so: not_secret=[{key!r}]"


def _names_a_secret(name: str) -> bool:
    return names_a_secret(name, _airflow_hides)


def _airflow_hides(name: str) -> bool:
    """Tell whether Airflow masks what stands under a name."""
    return bool(redact(_PROBE, name) != _PROBE)


def _options(arguments: Sequence[Any]) -> Iterator[tuple[str, Any]]:
    """Give each argument with the option that it belongs to: `--name=value`, `--name value`, or its position."""
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
