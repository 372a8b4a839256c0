"""Outputs of programs without an `Epoch` block: their kinds, their formats, and how Spark reads them.

A document names a format and options for Spark's reader. Both are checked against a list first: a reader's name could
be a class, and an option could name a place (semantics W5, W10).
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Annotated

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

    Args:
        name: of the format; empty for Parquet.

    Raises:
        ValueError: it is none of `FORMATS`.
    """
    if name not in FORMATS:
        known = ", ".join(sorted(filter(None, FORMATS)))
        raise ValueError(f"{name[:80]!r} is no format: use parquet, {known}")


def check_options(options: dict[str, str]) -> None:
    """Check that a document holds only options by which some format is read.

    Args:
        options: by name.

    Raises:
        ValueError: no format has such an option.
    """
    known = frozenset[str]().union(*FORMATS.values())
    if unknown := sorted(set(options) - known):
        raise ValueError(f"{unknown[0][:80]!r} is no option by which an output is read")


PROGRAM_KINDS = frozenset({"exchange", "table", "state", "files"})
"""Kinds of outputs that such a program writes."""


def check_program_kind(kind: str) -> None:
    """Check the kind of a program's output.

    Args:
        kind: of the output.

    Raises:
        ValueError: no program writes this kind.
    """
    if kind not in PROGRAM_KINDS:
        raise ValueError(f"a program writes no output of the kind {kind[:80]!r}")


@dataclass(frozen=True, slots=True)
class ProgramOutput:
    """One output that a program writes which knows nothing of Cairn."""

    kind: Annotated[str, check_program_kind]
    """Kind of the output, as in an acknowledgement."""
    name: OutputName
    format: Annotated[str, check_format] = field(default="", metadata=SPARSE)
    """Format of its files; empty for Parquet."""
    options: Annotated[dict[str, str], check_options] = field(default_factory=dict, metadata=SPARSE)
    """Options by which Spark reads that format."""
    success_file: bool = True
    """Whether the write is committed only with a file `_SUCCESS`, as Spark's is."""

    @property
    def id(self) -> str:
        """The name that is unique within a stage's acknowledgement."""
        return f"{self.kind}.{self.name}"


@dataclass(frozen=True, slots=True)
class Program:
    """A stage's program that knows nothing of Cairn: the operator acknowledges what it wrote."""

    outputs: tuple[ProgramOutput, ...] = ()
