"""The whole command line."""

from __future__ import annotations

import argparse
from typing import Any

from ..output.suggestions import meant
from . import reports, requests


def parser() -> argparse.ArgumentParser:
    """Make the parser of `cairn`."""
    made: argparse.ArgumentParser = _Parser(
        prog="cairn",
        description="Shows the jobs and checkpoints of a storage and the regions of a DAG, rewinds jobs, takes "
        "savepoints and starts jobs from them. Neither Airflow nor Spark need to run.",
        epilog="Credentials for s3:// come from --conn, else from where boto3 finds them (environment, profile, role).",
    )
    made.add_argument("--version", action=_Version, nargs=0, help="show the version and exit")
    verbs = made.add_subparsers(title="commands", dest="verb", metavar="COMMAND", required=True)
    reports.add(verbs)
    requests.add(verbs)
    return made


class _Version(argparse.Action):
    """Prints the version; looked up only then."""

    def __call__(self, parser: argparse.ArgumentParser, *_: object) -> None:
        from importlib.metadata import version

        print(f"cairn {version('airflow-cairn')}")
        parser.exit()


class _Parser(argparse.ArgumentParser):
    """Says which command a mistyped one may have been meant for."""

    def _check_value(self, action: argparse.Action, value: Any) -> None:
        if action.choices is not None and value not in action.choices:
            raise argparse.ArgumentError(
                action,
                f"there is no command {value!r}{meant(value, action.choices) or '; `cairn --help` lists them'}",
            )
