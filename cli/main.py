"""`cairn`: parses the arguments, runs the command, returns the exit status."""

from __future__ import annotations

import argparse
import io
import json
import os
import sys
import textwrap
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any, NoReturn

from ..checkpoint import system_runtime
from ..checkpoint.masking import masked
from ..storage.clock import system_sleep
from ..storage.errors import CairnError
from ..storage.port import ObjectStore
from ..storage.printable import printable
from . import commands
from .airflow_api import take_over
from .arguments import reports, requests
from .arguments.options import INTERVAL_S
from .commands import Outcome
from .output.next_command import Typed, after, after_damage
from .output.text import alarming, meant, painted
from .watch import Watch

# The whole command line.


def parser() -> argparse.ArgumentParser:
    """Return the parser of `cairn`."""
    made: argparse.ArgumentParser = _Parser(
        prog="cairn",
        description="Shows the jobs and checkpoints of a storage and the regions of a DAG, rewinds jobs, takes "
        "savepoints and starts jobs from them. Neither Airflow nor Spark need to run.",
        epilog="`cairn help COMMAND` says what a command takes. Credentials for s3:// come from --conn, else from "
        "where boto3 finds them (environment, profile, role). A shell completes commands and options after\n"
        'eval "$(register-python-argcomplete cairn)"',
        formatter_class=_Help,
    )
    made.add_argument("--version", action=_Version, nargs=0, help="show the version and exit")
    verbs = made.add_subparsers(title="commands", dest="verb", metavar="COMMAND", required=True)
    reports.add(verbs)
    requests.add(verbs)
    return made


class _Help(argparse.HelpFormatter):
    """Keeps the lines of a text, so that each may be copied; argparse would join them, and break them at hyphens."""

    def _fill_text(self, text: str, width: int, indent: str) -> str:  # noqa: ARG002 - as argparse calls it
        return "\n".join(textwrap.fill(line, width, break_on_hyphens=False) for line in text.splitlines())


class _Version(argparse.Action):
    """Prints the version; looks it up only on request."""

    def __call__(self, parser: argparse.ArgumentParser, *_: object) -> None:
        from importlib.metadata import version

        print(f"cairn {version('airflow-cairn')}")
        parser.exit()


class _Parser(argparse.ArgumentParser):
    """Suggests the intended command or option for a mistyped one, and the next command to type."""

    def error(self, message: str) -> NoReturn:
        """Reject the arguments as argparse does, and add the command to type."""
        self.print_usage(sys.stderr)
        self.exit(2, f"{self.prog}: error: {masked(message)}\nnext: {self.prog} --help\n")

    def parse_known_args(self, args: Any = None, namespace: Any = None) -> Any:
        """Reject a misspelt option with a suggestion; argparse would not name it, or would name a missing argument."""
        for word in self._own(sys.argv[1:] if args is None else args):
            option = word.partition("=")[0].removeprefix("--")
            known = [each.removeprefix("--") for each in self._option_string_actions if each.startswith("--")]
            # The beginning of an option stands for the whole option.
            hint = "" if any(each.startswith(option) for each in known) else meant(option, known, "--")
            if hint:
                self.error(f"there is no option --{option}{hint}")
        return super().parse_known_args(args, namespace)

    def _own(self, words: Sequence[str]) -> Iterator[str]:
        """Yield the words that look like long options of this parser: none after a command, or after `--`."""
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


DAMAGED = 1
FAILED = 2
INTERRUPTED = 130
"""Exit status after Ctrl-C, as in shells."""

_NO_STORAGE = (
    "the storage is missing: give --storage URI, set CAIRN_STORAGE, or give --conn with a connection that names one"
)


def main(argv: Sequence[str] | None = None) -> int:
    """Run one command.

    Returns:
        0; 1 if `verify` found damage, `doctor` found a problem, or `clean` could not delete all; 2 if the command
        failed; 130 after Ctrl-C.
    """
    line = parser()
    if "_ARGCOMPLETE" in os.environ:  # a shell requests completions
        import argcomplete

        # Without it, files would be offered for each argument; most arguments are jobs. The shell itself offers files.
        argcomplete.autocomplete(line, default_completer=argcomplete.completers.SuppressCompleter())
    words = list(sys.argv[1:] if argv is None else argv)
    if not words or words[0] == "help":
        words = [*words[1:2], "--help"]
    options = line.parse_args(words)
    typed = Typed(words, options)
    named = options.job if commands.is_path(getattr(options, "job", None) or "") else None
    if getattr(options, "interval", None) is not None and not options.watch:
        line.error("--interval says how often --watch looks; give --watch too")
    if isinstance(sys.stdout, io.TextIOWrapper):
        sys.stdout.reconfigure(errors="backslashreplace")
    try:
        if hasattr(options, "conn"):
            take_over(options)
        where = named or getattr(options, "storage", None) or ""
        if options.on_store and not where:
            return _failed(_NO_STORAGE, typed.again("--storage", "URI"))
        if not options.on_store:
            return _once(options.run(options), typed)
        store = commands.opened_savepoint(where, options) if where == named else commands.opened(where, options)
        return _watch(store, options) if getattr(options, "watch", False) else _once(options.run(store, options), typed)
    except CairnError as error:
        return _failed(str(error), after(error, typed))
    except KeyboardInterrupt:
        return INTERRUPTED


def _once(outcome: Outcome, typed: Typed) -> int:
    with _reader_may_leave():
        if typed.options.json:
            print(json.dumps(outcome.document, indent=2, sort_keys=True))
        else:
            lines = (painted(printable(line), sys.stdout) for line in outcome.lines)
            for text in ["\n".join(lines)] if isinstance(outcome.lines, list) else lines:
                print(text, flush=True)
        sys.stdout.flush()
    if outcome.damaged and (follows := after_damage(typed)) is not None:
        _say_next(follows)
    return DAMAGED if outcome.damaged else 0


def _failed(why: str, follows: str) -> int:
    print(f"{alarming('cairn:', sys.stderr)} {printable(masked(why))}", file=sys.stderr)
    _say_next(follows)
    return FAILED


def _say_next(command: str) -> None:
    """Print the command to type after a failure, on stderr: stdout may go to a file."""
    print(f"next: {printable(masked(command))}", file=sys.stderr)


def _watch(store: ObjectStore, options: argparse.Namespace) -> int:
    watch = Watch(
        look=lambda: options.run(store, options),
        pulse=lambda: options.pulse(store, options),
        interval_s=options.interval or INTERVAL_S,
        wait=system_sleep,
        now_ms=system_runtime().now_ms,
        as_json=options.json,
    )
    with _reader_may_leave():
        watch.run(sys.stdout, sys.stderr)
    return 0


@contextmanager
def _reader_may_leave() -> Iterator[None]:
    try:
        yield
    except BrokenPipeError:
        # The reader (`head`, a pager) has closed the pipe; Python would complain again at exit.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


if __name__ == "__main__":
    sys.exit(main())
