"""Outputs of programs without an `Epoch` block: their kinds, their formats, and how Spark reads them.

A document names a format and options for Spark's reader. Both are checked against lists of what is allowed: a format
could be the name of a class, and an option could be a path (semantics W5, W10).
"""

from __future__ import annotations

from dataclasses import field
from typing import Annotated

from ...storage.records import dataclass
from .codec import OutputName
from .strict_json import SPARSE

RAW = "raw"
"""The format of files that are not read as rows."""

_TEXT_OPTIONS = frozenset({"encoding", "lineSep", "dateFormat", "timestampFormat", "timestampNTZFormat", "locale"})
FORMATS: dict[str, frozenset[str]] = {
    "": frozenset(),
    "orc": frozenset(),
    "avro": frozenset(),
    "csv": _TEXT_OPTIONS
    | {"header", "sep", "delimiter", "quote", "escape", "comment", "nullValue", "emptyValue", "nanValue"}
    | {"inferSchema", "multiLine", "ignoreLeadingWhiteSpace", "ignoreTrailingWhiteSpace"},
    "json": _TEXT_OPTIONS | {"multiLine", "primitivesAsString", "prefersDecimal", "allowComments"},
    RAW: frozenset(),
}
"""Formats of outputs other than Parquet (the empty name), each with the reader's options that a document may hold: none
of them names a place or a class (semantics W5, W10)."""


def check_format(name: str) -> None:
    """Check that an output is of a known format.

    Raises:
        ValueError: the name is not in `FORMATS`.
    """
    if name not in FORMATS:
        known = ", ".join(sorted(filter(None, FORMATS)))
        raise ValueError(f"{name[:80]!r} is not a format: use parquet, {known}")


def check_options(options: dict[str, str]) -> None:
    """Check that a document has only options that some format allows.

    Raises:
        ValueError: no format has such an option.
    """
    known = frozenset[str]().union(*FORMATS.values())
    if unknown := sorted(set(options) - known):
        raise ValueError(f"{unknown[0][:80]!r} is not an option by which an output is read")


PROGRAM_KINDS = frozenset({"exchange", "table", "state", "files"})
"""Kinds of outputs that a program without an `Epoch` block writes."""


def check_program_kind(kind: str) -> None:
    """Check the kind of a program's output.

    Raises:
        ValueError: no program writes this kind.
    """
    if kind not in PROGRAM_KINDS:
        raise ValueError(f"a program writes no output of the kind {kind[:80]!r}")


@dataclass(frozen=True, slots=True)
class ProgramOutput:
    """One output of a program without an `Epoch` block."""

    kind: Annotated[str, check_program_kind]
    """Kind of the output, as in an acknowledgement."""
    name: OutputName
    format: Annotated[str, check_format] = field(default="", metadata=SPARSE)
    """Format of its files; empty for Parquet."""
    options: Annotated[dict[str, str], check_options] = field(default_factory=dict, metadata=SPARSE)
    """Options by which Spark reads that format."""
    success_file: bool = True
    """Whether the output counts as committed only if the file `_SUCCESS` exists."""

    @property
    def id(self) -> str:
        """The name that is unique within a stage's acknowledgement."""
        return f"{self.kind}.{self.name}"


@dataclass(frozen=True, slots=True)
class Program:
    """A stage's program without an `Epoch` block: the operator acknowledges its outputs."""

    outputs: tuple[ProgramOutput, ...] = ()
