"""What an author writes into a Spark task's arguments, checked where the DAG is parsed: secrets, and what is reserved.

Everything that a Spark task is given is shown: on the command line of spark-submit, in the Spark UI, in the event log,
in Airflow's rendered fields. So a secret is refused by its place, by its shape, and as a template that would fetch one.
Which names stand for a secret is asked of Airflow's own masker too, so the names that a site adds to it
(`[core] sensitive_var_conn_names`) count here. No message repeats a value.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from airflow.sdk.log import redact  # type: ignore[attr-defined]  # imported there for its own use, but public

from ...checkpoint.errors import InvalidConfigError
from ...checkpoint.secrets.names import is_plain, names_a_secret
from ...checkpoint.secrets.shapes import secret_in
from ...spark.handover.conf import PREFIX
from ...spark.output.committer import ALGORITHM

_OPTION = re.compile(r"\A(?:-D(?=[\w.-]+=)|--?)([A-Za-z][\w.-]*)(?:=(.*))?\Z", re.DOTALL)

_PROBE = "cairn-asks"

_CURE = (
    "it would be shown on command lines, in the Spark UI and in logs. The storage's credentials come from "
    "aws_conn_id; whatever else the application needs it should fetch itself: from an instance role, a secret manager, "
    "or a file that the cluster mounts"
)


def check_author_settings(
    task: str,
    *,
    conf: object = None,
    env_vars: object = None,
    application_args: object = None,
    op_kwargs: object = None,
    texts: Mapping[str, object] | None = None,
) -> None:
    """Refuse secrets and reserved keys in what the author wrote; called at parse and again on the rendered values.

    Args:
        task: the task's id, for messages.
        conf: Spark conf; looked into if it is a mapping (it may be known only when the task runs).
        env_vars: environment variables, likewise.
        application_args: the application's arguments, looked into if it is a sequence.
        op_kwargs: a function's arguments by name, looked into if it is a mapping.
        texts: further arguments by name, whose values are looked into.

    Raises:
        InvalidConfigError: naming parameter and key, never the value.
    """
    for parameter, settings in (("conf", conf), ("env_vars", env_vars), ("op_kwargs", op_kwargs)):
        if isinstance(settings, Mapping):
            for key, value in settings.items():
                if parameter == "conf":
                    _check_reserved(task, str(key), value)
                _check_setting(task, parameter, str(key), value)
    if isinstance(application_args, Sequence) and not isinstance(application_args, str):
        for name, value in _options(application_args):
            _check_setting(task, "application_args", name, value)
    elif isinstance(application_args, str):
        _check_text(task, "application_args", "application_args", application_args)
    for name, value in (texts or {}).items():
        if value is not None:
            _check_text(task, name, name, value)


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
    if _names_a_secret(key):
        raise InvalidConfigError(f"{parameter} {key} holds a secret: {_CURE}", task=task, parameter=parameter, key=key)
    _check_text(task, parameter, key, value)


def _check_text(task: str, parameter: str, key: str, value: object) -> None:
    # What is no text reaches spark-submit as the text of it: a dictionary with a password in it, say.
    found = secret_in(str(value), _names_a_secret)
    if found is not None:
        where = parameter if key == parameter else f"{parameter} {key}"
        raise InvalidConfigError(f"{where} holds {found}: {_CURE}", task=task, parameter=parameter, key=key)


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
