"""`cairn`: arguments in, exit status out."""

from __future__ import annotations

import argparse
import io
import json
import os
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager

from ..checkpoint import system_runtime
from ..checkpoint.secrets.masking import masked
from ..storage.clock import system_sleep
from ..storage.errors import CairnError
from ..storage.port import ObjectStore
from ..storage.printable import printable
from . import commands
from .arguments.options import INTERVAL_S
from .arguments.parser import parser
from .commands import Outcome
from .connection import take_over
from .output.colours import alarming, painted
from .output.next_command import Typed, after, after_damage
from .watch import Watch

DAMAGED = 1
FAILED = 2
INTERRUPTED = 130
"""After Ctrl-C, as shells have it."""

_NO_STORAGE = (
    "the storage is missing: give --storage URI, set CAIRN_STORAGE, or give --conn with a connection that names one"
)


def main(argv: Sequence[str] | None = None) -> int:
    """Run one command.

    Returns:
        0; 1 where `verify` found damage, `doctor` something wrong, or `clean` could not delete all; 2 where the
        command could not be carried out; 130 after Ctrl-C.
    """
    line = parser()
    if "_ARGCOMPLETE" in os.environ:  # a shell asks what may follow
        import argcomplete

        # Without it files are offered for each argument; most are jobs. The shell offers files by itself.
        argcomplete.autocomplete(line, default_completer=argcomplete.completers.SuppressCompleter())
    options = line.parse_args(argv)
    typed = Typed(sys.argv[1:] if argv is None else argv, options)
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
    """Print the command to type after a failure; not among what was found, which may go into a file."""
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
        # The reader (`head`, a pager) has seen enough; Python would complain once more at exit.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


if __name__ == "__main__":
    sys.exit(main())
