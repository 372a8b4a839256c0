"""Types of the fields in a job's documents, each with its check."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated

from ...storage.checksums import check_checksum
from ...storage.names import check_name
from . import layout


@dataclass(frozen=True, slots=True)
class IsName:
    """Checks that a text is a name (semantics W1)."""

    kind: str

    def __call__(self, value: str) -> None:
        """Refuse a text that is not a name."""
        check_name(self.kind, value)


@dataclass(frozen=True, slots=True)
class AtLeast:
    """Checks that a number is not below a bound."""

    bound: int

    def __call__(self, value: int) -> None:
        """Refuse a number below the bound."""
        if value < self.bound:
            raise ValueError(f"expected at least {self.bound}, found {value}")


Stage = Annotated[str, IsName("stage")]
Epoch = Annotated[str, IsName("epoch")]
Job = Annotated[str, layout.check_job]
Token = Annotated[str, layout.check_token]
OutputName = Annotated[str, IsName("output")]
OutputId = Annotated[str, layout.check_output_id]
ListenerName = Annotated[str, IsName("listener")]
HookName = Annotated[str, IsName("hook")]
Key = Annotated[str, layout.check_relative]
Host = Annotated[str, layout.check_host]
RequestId = Annotated[str, layout.check_request]
Target = Annotated[str, layout.check_target]
Partition = Annotated[str, layout.check_partition]
FolderName = Annotated[str, IsName("folder")]
Checksum = Annotated[str, check_checksum]
CheckpointId = Annotated[int, AtLeast(1)]
Count = Annotated[int, AtLeast(0)]
Attempt = Annotated[int, AtLeast(1)]
