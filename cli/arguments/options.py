"""Options that several commands share, and the parsing of values."""

from __future__ import annotations

import argparse
import os
from collections.abc import Callable
from datetime import UTC, datetime
from typing import TypeAlias

INTERVAL_S = 2
"""Default interval of `--watch`."""

Command = argparse.ArgumentParser
Verbs: TypeAlias = "argparse._SubParsersAction[Command]"


def described(verbs: Verbs, name: str, text: str, more: str = "") -> Command:
    """Add a command; its own help says more than the list of all commands."""
    return verbs.add_parser(name, help=text, description=f"{text[0].upper()}{text[1:]}.{more}")


def job_command(verbs: Verbs, name: str, text: str) -> Command:
    """Add a command about one job of a storage."""
    verb = command(verbs, name, text)
    verb.add_argument("job", metavar="JOB")
    return verb


def command(verbs: Verbs, name: str, text: str) -> Command:
    """Add a command that reads a storage."""
    verb = described(verbs, name, text)
    verb.add_argument("--storage", metavar="URI", help="file:///folder or s3://bucket/prefix (or set CAIRN_STORAGE)")
    verb.add_argument(
        "--conn",
        metavar="ID",
        help="the Airflow connection with the credentials, of type cairn, aws or generic; needs Airflow",
    )
    verb.add_argument("--endpoint-url", metavar="URL", help="an S3 server other than AWS")
    verb.add_argument("--region", metavar="NAME", help="the region that S3 requests are signed for")
    as_json(verb)
    verb.set_defaults(on_store=True)
    return verb


def as_json(verb: Command) -> None:
    """Add the option for JSON output."""
    verb.add_argument("--json", action="store_true", help="print JSON instead of a table")


def airflow(verb: Command) -> None:
    """Add the options for questions to Airflow's API about a DAG."""
    verb.add_argument(
        "--dag",
        metavar="DAG_ID",
        help="the DAG that makes the job's checkpoints; by default the one with the job's name",
    )
    verb.add_argument(
        "--airflow-url",
        metavar="URL",
        default=os.environ.get("CAIRN_AIRFLOW_URL"),
        help="the URL of Airflow's API server (or set CAIRN_AIRFLOW_URL)",
    )


def watchable(verb: Command) -> None:
    """Add the options for watching a command's output."""
    verb.add_argument("--watch", action="store_true", help="show it again each time it changes, until Ctrl-C")
    verb.add_argument(
        "--interval",
        metavar="SECONDS",
        type=between(1, 3_600),
        help=f"how often --watch looks, from 1 to 3600 ({INTERVAL_S})",
    )


def number(verb: Command, option: str, what: str, most: int, default: int) -> None:
    """Add an option for the number of things to show."""
    verb.add_argument(
        option, metavar="N", type=between(1, most), default=default, help=f"{what}, from 1 to {most} ({default})"
    )


def between(low: int, high: int) -> Callable[[str], int]:
    """Return a parser for a number within bounds."""

    def parse(text: str) -> int:
        if not text.isascii() or not text.isdigit() or not low <= int(text) <= high:
            raise argparse.ArgumentTypeError(f"expected a number from {low} to {high}, found {text!r}")
        return int(text)

    return parse


def moment(text: str) -> datetime:
    """Parse a moment in ISO 8601; UTC if it has no time zone.

    Raises:
        argparse.ArgumentTypeError: the text is no moment.
    """
    try:
        found = datetime.fromisoformat(text)
    except ValueError:
        raise argparse.ArgumentTypeError(
            f"expected a moment such as 2026-01-02T06:00:00+00:00, found {text!r}"
        ) from None
    return found if found.tzinfo else found.replace(tzinfo=UTC)


def checkpoint_id(text: str) -> int:
    """Parse the id of a checkpoint, as shown or as in its folder's name.

    Raises:
        argparse.ArgumentTypeError: the text is no id.
    """
    digits = text.removeprefix("chk-")
    if not digits.isascii() or not digits.isdigit() or int(digits) < 1:
        raise argparse.ArgumentTypeError(f"a checkpoint's id is a number from 1 on, not {text!r}")
    return int(digits)
