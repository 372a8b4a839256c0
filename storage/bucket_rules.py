"""A bucket's rules that delete, move or keep objects."""

from __future__ import annotations

from dataclasses import dataclass, field


@dataclass(frozen=True, slots=True)
class LifecycleRule:
    """An enabled lifecycle rule that may apply to the objects below a root."""

    name: str
    prefix: str
    """Prefix of keys in the bucket; empty for the whole bucket."""
    expires: str = ""
    """When the rule deletes an object, such as `after 30 days`; empty if it does not."""
    archives: str = ""
    """The storage class to which the rule moves objects, which delays reads; empty if it moves none."""
    ends_old_versions: bool = False
    """True if the rule deletes versions that have been replaced or deleted."""


@dataclass(frozen=True, slots=True)
class BucketRules:
    """The rules of a root's bucket."""

    bucket: str
    lifecycle: tuple[LifecycleRule, ...] = ()
    versioned: bool = False
    """True if a delete keeps the object as an old version."""
    retention: str = ""
    """How long Object Lock keeps every new object, such as `GOVERNANCE, 30 days`; empty if it does not."""
    unknown: dict[str, str] = field(default_factory=dict)
    """Rules that could not be read (`lifecycle`, `versioning`, `object-lock`), with the reason."""
