"""The rules of a bucket that may delete or hide what Cairn has written, as far as the store tells."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from ..bucket_rules import BucketRules, LifecycleRule
from .faults import Fault, Refused
from .requests import S3Requests

_NONE = frozenset({
    "NoSuchLifecycleConfiguration", "ObjectLockConfigurationNotFoundError", "ObjectLockConfigurationNotFound",
})  # fmt: skip
"""Codes by which a store says that there is no such rule."""
_ARCHIVES = frozenset({"GLACIER", "DEEP_ARCHIVE"})
"""Storage classes whose objects must be restored before they can be read."""


def rules_of(wire: S3Requests) -> BucketRules:
    """Ask for the bucket's lifecycle rules, versioning and default retention: three requests.

    What the credentials may not ask, or the store does not know, is `unknown`: it is no fault of the bucket's.
    """
    unknown: dict[str, str] = {}

    def ask(what: str, operation: str) -> dict[str, Any]:
        try:
            return dict(wire.patience.ask(lambda: wire.send(operation)))
        except Fault as fault:
            if not isinstance(fault, Refused) or fault.code not in _NONE:
                unknown[what] = wire.explain(fault, operation, "").message
            return {}

    lifecycle = ask("lifecycle", "get_bucket_lifecycle_configuration")
    versioning = ask("versioning", "get_bucket_versioning")
    lock = ask("object-lock", "get_object_lock_configuration").get("ObjectLockConfiguration", {})
    return BucketRules(
        bucket=wire.bucket,
        lifecycle=tuple(_rules(lifecycle.get("Rules", []), wire.prefix)),
        versioned=versioning.get("Status") == "Enabled",
        retention=_retention(lock.get("Rule", {}).get("DefaultRetention", {})),
        unknown=unknown,
    )


def _rules(found: list[dict[str, Any]], root: str) -> Iterator[LifecycleRule]:
    for number, rule in enumerate(found, start=1):
        chosen = rule.get("Filter", {})
        chosen = {**chosen, **chosen.get("And", {})}
        prefix = str(chosen.get("Prefix", rule.get("Prefix", "")))
        # Cairn gives its objects no tags, so a rule for tagged ones concerns none of them.
        tagged = "Tag" in chosen or "Tags" in chosen
        if rule.get("Status") != "Enabled" or tagged or not (prefix.startswith(root) or root.startswith(prefix)):
            continue
        expiry = rule.get("Expiration", {})
        days, date = expiry.get("Days"), expiry.get("Date")
        classes = {str(each.get("StorageClass")) for each in rule.get("Transitions", [])}
        yield LifecycleRule(
            name=str(rule.get("ID") or f"number {number}"),
            prefix=prefix,
            expires=f"after {days} days" if days else f"on {date:%Y-%m-%d}" if date else "",
            archives=", ".join(sorted(classes & _ARCHIVES)),
            ends_old_versions="NoncurrentVersionExpiration" in rule,
        )


def _retention(rule: dict[str, Any]) -> str:
    if not rule:
        return ""
    return f"{rule.get('Mode')}, " + (f"{rule['Days']} days" if "Days" in rule else f"{rule.get('Years')} years")
