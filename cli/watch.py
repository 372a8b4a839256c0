"""Repeats a command's output whenever it has changed, until nothing more can change or Ctrl-C.

On a terminal the screen is redrawn; elsewhere, new output is appended, as JSON one object a line. A look only asks
whether anything has changed; the output is read only then. If the store does not answer, it is asked again.
"""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable, Hashable
from dataclasses import dataclass
from functools import partial
from typing import TextIO

from ..checkpoint.masking import masked
from ..checkpoint.views.wording import moment
from ..storage.errors import CairnError, ErrorKind
from ..storage.printable import printable
from .commands import Outcome
from .output.text import fit, painted

_HOME, _CLEAR_LINE, _CLEAR_BELOW = "\x1b[H", "\x1b[K", "\x1b[J"


@dataclass(frozen=True, slots=True)
class Watch:
    """The parameters of a watch.

    Args:
        look: returns the command's output.
        pulse: returns a value that changes whenever the output does.
        interval_s: seconds between two looks.
        wait: waits for the given seconds; may raise KeyboardInterrupt.
        now_ms: clock, milliseconds since 1970 UTC.
        as_json: print JSON instead of a table.
    """

    look: Callable[[], Outcome]
    pulse: Callable[[], Hashable]
    interval_s: int
    wait: Callable[[float], object]
    now_ms: Callable[[], int]
    as_json: bool = False

    def run(self, out: TextIO, err: TextIO) -> None:
        """Watch until nothing more can change.

        Args:
            out: stream for the output.
            err: stream for reports that the store does not answer, unless the screen is redrawn.

        Raises:
            CairnError: the first look failed, or a later one for a reason that asking again does not fix.
            KeyboardInterrupt: Ctrl-C.
        """
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
            lines = [*lines[: room - 1], f"… {len(lines) - room + 1} more lines; a higher terminal shows them"]
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
