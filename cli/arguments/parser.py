"""The whole command line."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterator, Sequence
from typing import Any, NoReturn

from ...checkpoint.secrets.masking import masked
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
    """Says which command or option a mistyped one may have been meant for, and what to type next."""

    def error(self, message: str) -> NoReturn:
        """Refuse what was typed, as argparse does, and end with the command to type."""
        self.print_usage(sys.stderr)
        self.exit(2, f"{self.prog}: error: {masked(message)}\nnext: {self.prog} --help\n")

    def parse_known_args(self, args: Any = None, namespace: Any = None) -> Any:
        """Refuse an option that is a misspelt one; argparse would name none, or what is missing."""
        for word in self._own(sys.argv[1:] if args is None else args):
            option = word.partition("=")[0].removeprefix("--")
            known = [each.removeprefix("--") for each in self._option_string_actions if each.startswith("--")]
            # The beginning of an option stands for the whole.
            hint = "" if any(each.startswith(option) for each in known) else meant(option, known, "--")
            if hint:
                self.error(f"there is no option --{option}{hint}")
        return super().parse_known_args(args, namespace)

    def _own(self, words: Sequence[str]) -> Iterator[str]:
        """Give the words that look like long options of this parser: none after a command, or after `--`."""
        for word in words:
            if word == "--" or (self._subparsers is not None and not word.startswith("-")):
                return
            if word.startswith("--"):
                yield word

    def _check_value(self, action: argparse.Action, value: Any) -> None:
        if action.choices is not None and value not in action.choices:
            raise argparse.ArgumentError(
                action,
                f"there is no command {value!r}{meant(value, action.choices) or '; `cairn --help` lists them'}",
            )
