"""What a stage has from the restored checkpoint, and what of it goes on into the next one.

State, tables and values that a stage does not write again are carried over by reference: the same files, in the older
checkpoint's folder, named by the new acknowledgement too. So nothing vanishes because an epoch did not touch it, and
nothing is copied. The cleaner keeps a file as long as one checkpoint refers to it (semantics C3).
"""

from __future__ import annotations

from copy import deepcopy
from typing import Any

from ...checkpoint.documents.attempt import RestorePointer
from ...checkpoint.documents.strict_json import Json
from ...checkpoint.errors import InvalidStateError
from ...checkpoint.store.job_files import JobFiles
from ..kinds import small_state
from ..stored.local_state import LocalState
from ..stored.outputs import Stored, of_checkpoint
from .adoption import adopted
from .backlog import Backlog

VALUE = "value"
"""Kind of a small value: in `values`, or where it was too large for an acknowledgement among the outputs (A4)."""


class RestoredState:
    """One stage's part of the restored checkpoint.

    Args:
        stage: the stage's uid; state is matched by it (semantics R3).
    """

    def __init__(self, stage: str) -> None:
        self._stage = stage
        self._restored: dict[str, Stored] = {}
        self.outputs: dict[str, Stored] = {}
        """States and tables that go on unless they are written anew, by `Output.id`."""
        self.values: dict[str, Json] = {}
        """Values that go on; `Epoch.put` adds to them."""

    def load(self, files: JobFiles, pointer: RestorePointer | None, backlog: Backlog) -> None:
        """Read the stage's part of a checkpoint, and its backlog; nothing where there is no pointer (semantics R2).

        Raises:
            GoneError: its metadata is gone.
            DocumentError: its metadata is broken or altered.
            UnavailableError: the store could not be asked which compactions there are.
        """
        if pointer is not None:
            found = of_checkpoint(files, pointer.metadata, lambda stage: stage == self._stage, backlog.take)
            for contents in found:
                self._restored.update(contents.outputs)
                self.values.update(contents.values)
            self._restored = adopted(files, self._stage, self._restored)
        backlog.check_whole()
        self.outputs = dict(self._restored)

    def restored(self, output_id: str) -> Stored | None:
        """Give an output as the restored checkpoint holds it, whatever this epoch does to it."""
        return self._restored.get(output_id)

    def put(self, name: str, plain: Json) -> None:
        """Let a value go on instead of what was carried over."""
        self.outputs.pop(f"{VALUE}.{name}", None)
        self.values[name] = plain

    def forget(self, name: str) -> None:
        """Let a value end, if there is one."""
        self.outputs.pop(f"{VALUE}.{name}", None)
        self.values.pop(name, None)

    def put_or_forget(self, name: str, plain: Json) -> None:
        """Put a value; where it is None, let it end."""
        if plain is None:
            self.forget(name)
        else:
            self.put(name, plain)

    def value(self, files: JobFiles, name: str, default: Any, local: LocalState | None = None) -> Any:
        """Give a copy of a value as it goes on, `default` where there is none.

        Raises:
            GoneError: the file that holds it is gone.
            DocumentError: that file has been altered.
        """
        stored = self.outputs.get(f"{VALUE}.{name}")
        if stored is not None:
            return small_state.read(files, stored, local)
        return deepcopy(self.values[name]) if name in self.values else default

    def choose(self, name: str, kind: str | None) -> str:
        """Find what `name` means among what is carried over: an `Output.id`, or `value.<name>`.

        Raises:
            InvalidStateError: nothing of that name, or more than one thing.
        """
        there = [*self.outputs, *(f"{VALUE}.{each}" for each in self.values)]
        found = [each for each in there if each.partition(".")[2] == name and kind in (None, each.partition(".")[0])]
        if len(found) == 1:
            return found[0]
        problem = "nothing" if not found else "more than one thing"
        raise InvalidStateError(
            f"there is {problem} to drop by the name {name!r}" + ("; say which kind" if found else ""),
            stage=self._stage,
            there_is=", ".join(sorted(there)) or "nothing",
        )

    def drop(self, dropped: str) -> None:
        """Leave out what `choose` found."""
        if self.outputs.pop(dropped, None) is None:
            del self.values[dropped.partition(".")[2]]
