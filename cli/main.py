"""`cairn`: parses the arguments, runs the command, returns the exit status."""

from __future__ import annotations

import argparse
import io
import json
import os
import shutil
import sys
import textwrap
from collections.abc import Callable, Hashable, Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from typing import Any, NoReturn, TextIO

from ..checkpoint import system_runtime
from ..checkpoint.masking import masked
from ..checkpoint.views.wording import moment
from ..storage.clock import system_sleep
from ..storage.errors import CairnError, ErrorKind, printable
from ..storage.port import ObjectStore
from ..storage.records import dataclass
from . import commands
from .airflow_api import take_over
from .arguments import INTERVAL_S, add_reports, add_requests
from .commands import Outcome
from .output import hints
from .output.hints import Typed, after, after_damage
from .output.text import alarming, fit, meant, painted, width

_HOME, _CLEAR_LINE, _CLEAR_BELOW = "\x1b[H", "\x1b[K", "\x1b[J"


@dataclass(frozen=True, slots=True)
class Watch:
    """A watch: `pulse` returns a value that changes whenever the output does, `wait` may raise KeyboardInterrupt."""

    look: Callable[[], Outcome]
    pulse: Callable[[], Hashable]
    interval_s: int
    wait: Callable[[float], object]
    now_ms: Callable[[], int]
    as_json: bool = False

    def run(self, out: TextIO, err: TextIO) -> None:
        """Watch until nothing more can change; `err` hears of a silent store, unless the screen is redrawn."""
        show: Callable[[Outcome], None]
        complain: Callable[[str], None]
        if self.as_json:
            show, complain = partial(_append_json, out), partial(_append_note, err)
        elif out.isatty():
            show, complain = partial(self._draw, out), partial(_draw_note, out)
        else:
            show, complain = partial(self._append, out), partial(_append_note, err)
        self._run(show, complain)

    def _run(self, show: Callable[[Outcome], None], complain: Callable[[str], None]) -> None:
        seen: Hashable = None
        outcome: Outcome | None = None
        trouble = ""
        while True:
            try:
                found = (self.pulse(), shutil.get_terminal_size())
                if outcome is None or trouble or found != seen:
                    outcome, seen, trouble = self.look(), found, ""
                    show(outcome)
            except CairnError as error:
                if outcome is None or error.kind is not ErrorKind.UNAVAILABLE:
                    raise
                if not trouble:
                    trouble = f"cairn: {masked(str(error))}; asking again"
                    complain(trouble)
            if outcome.over:
                return
            self.wait(self.interval_s)

    def _append(self, out: TextIO, outcome: Outcome) -> None:
        for line in (f"--- {moment(self.now_ms())}", *outcome.lines):
            out.write(f"{printable(line)}\n")
        out.flush()

    def _draw(self, out: TextIO, outcome: Outcome) -> None:
        columns, rows = shutil.get_terminal_size()
        # Below the lines: an empty line, the status, and the cursor's own line.
        room = max(2, rows - 3)
        lines = list(outcome.lines)
        if len(lines) > room:
            lines = [*lines[: room - 1], f"… {len(lines) - room + 1} more lines; a taller terminal shows them"]
        status = "over" if outcome.over else f"looking every {self.interval_s} s, Ctrl-C ends"
        whole = [*lines, "", f"seen {moment(self.now_ms())}; {status}"]
        text = "".join(f"{painted(fit(printable(line), columns), out)}{_CLEAR_LINE}\n" for line in whole)
        out.write(f"{_HOME}{text}{_CLEAR_BELOW}")
        out.flush()


def _append_json(out: TextIO, outcome: Outcome) -> None:
    out.write(json.dumps(outcome.document, sort_keys=True) + "\n")
    out.flush()


def _append_note(err: TextIO, note: str) -> None:
    err.write(f"{printable(note)}\n")
    err.flush()


def _draw_note(out: TextIO, note: str) -> None:
    out.write(f"{fit(printable(note), shutil.get_terminal_size().columns)}{_CLEAR_LINE}\r")
    out.flush()


# The whole command line.


def parser() -> argparse.ArgumentParser:
    """Return the parser of `cairn`."""
    made: argparse.ArgumentParser = _Parser(
        prog="cairn",
        description="Shows the jobs and checkpoints of a storage and the regions of a DAG, rewinds jobs, takes "
        "savepoints and starts jobs from them. Neither Airflow nor Spark need to run.",
        epilog="`cairn help COMMAND` says what a command takes and what its --json prints, `cairn help errors` what "
        "each error means, `cairn help reasons` why checkpoints fail, `cairn help findings` what the doctor finds. "
        "Credentials for s3:// come from --conn, else from where boto3 finds them (environment, profile, role). A "
        "shell completes commands and options after\n"
        'eval "$(register-python-argcomplete cairn)"',
        formatter_class=_Help,
    )
    made.add_argument("--version", action=_Version, nargs=0, help="show the version and exit")
    verbs = made.add_subparsers(title="commands", dest="verb", metavar="COMMAND", required=True)
    add_reports(verbs)
    add_requests(verbs)
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
        return _explain(line, words[1:2])
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


def _explain(line: argparse.ArgumentParser, about: list[str]) -> int:
    """Print the help of all commands or of one, which ends the process; or a topic that is not a command."""
    said = [each for word in about for each in hints.lines(word, width())]
    with _reader_may_leave():
        if about and about[0] in hints.TOPICS:
            print("\n".join(said), flush=True)
            return 0
        try:
            line.parse_args([*about, "--help"])
        finally:
            if said:
                print("\n".join(said), flush=True)
    return 0


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
        _print_next_command(follows)
    return DAMAGED if outcome.damaged else 0


def _failed(why: str, follows: str) -> int:
    print(f"{alarming('cairn:', sys.stderr)} {printable(masked(why))}", file=sys.stderr)
    _print_next_command(follows)
    return FAILED


def _print_next_command(command: str) -> None:
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
