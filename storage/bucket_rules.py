"""What a store does to objects by itself: the rules of a bucket that delete, move or keep them."""

from __future__ import annotations

from dataclasses import dataclass, field


@dataclass(frozen=True, slots=True)
class LifecycleRule:
    """A lifecycle rule that is switched on and may concern the objects below a root."""

    name: str
    prefix: str
    """In the bucket; empty: all of it."""
    expires: str = ""
    """When it deletes an object, such as `after 30 days`; empty: it does not."""
    archives: str = ""
    """The storage class to which it moves objects, from which they cannot be read at once; empty: to none."""
    ends_old_versions: bool = False
    """Whether it deletes versions that have been replaced or deleted."""


@dataclass(frozen=True, slots=True)
class BucketRules:
    """The rules of the bucket in which a root lies."""

    bucket: str
    lifecycle: tuple[LifecycleRule, ...] = ()
    versioned: bool = False
    """Whether a delete keeps the object as an old version."""
    retention: str = ""
    """How long Object Lock keeps every new object, such as `GOVERNANCE, 30 days`; empty: it does not."""
    unknown: dict[str, str] = field(default_factory=dict)
    """What could not be asked (`lifecycle`, `versioning`, `object-lock`), with the reason."""
