"""Findings: problem, consequence and remedy. Each kind of finding has a name that never changes."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import asdict, field, replace
from typing import Any

from ...storage.errors import CairnError, ForbiddenError
from ...storage.older_pythons import StrEnum
from ...storage.records import dataclass
from ..documents.strict_json import Json
from ..masking import masked

RIGHT_MISSING = "right-missing"
"""Name of the finding that the credentials lack a right, which later checks may need too."""


class Severity(StrEnum):
    """Severity of a finding."""

    ERROR = "error"
    """Checkpoints cannot be made or restored, or data will be lost."""
    WARNING = "warning"
    """Checkpoints work today, but this costs money, hides something, or fails later."""


@dataclass(frozen=True, slots=True)
class Finding:
    """One problem."""

    name: str
    """Name of the kind of finding, such as `lifecycle-expires`; scripts may rely on it."""
    severity: Severity
    subject: str
    """Subject of the finding: a job, a checkpoint, a right, a rule, a setting."""
    what: str
    why: str
    mend: str
    """The command to type, or what to change where no command does it."""


@dataclass(slots=True)
class Examination:
    """Findings of a series of checks."""

    findings: list[Finding] = field(default_factory=list)
    passed: list[str] = field(default_factory=list)
    """Checks that found nothing, by name, in their order."""
    skipped: dict[str, str] = field(default_factory=dict)
    """Checks that were not made, with the reason."""
    hints: list[str] = field(default_factory=list)
    """Advice about things that are not wrong, but could be better."""

    @property
    def healthy(self) -> bool:
        """Whether nothing is wrong, as far as it was looked at."""
        return not self.findings

    def run(self, name: str, check: Callable[[], Iterator[Finding]]) -> bool:
        """Make one check; True if it found nothing.

        An error of Cairn ends this check alone, as a finding: the others may still find its cause.
        """
        before = len(self.findings)
        try:
            self.findings.extend(check())
        except CairnError as failed:
            if isinstance(failed, ForbiddenError) and any(each.name == RIGHT_MISSING for each in self.findings):
                self.skipped[name] = "it needs the rights that are missing"
                return False
            why = "what this check looks for is not known"
            self.findings.append(warning("check-failed", name, str(failed), why, "Mend the cause, then check again"))
        if len(self.findings) == before:
            self.passed.append(name)
        return len(self.findings) == before

    def add(self, other: Examination) -> None:
        """Take over what other checks have found."""
        self.findings += other.findings
        self.passed += other.passed
        self.skipped |= other.skipped
        self.hints += other.hints

    def masked(self) -> Examination:
        """Give the same for people to see, errors first: what looks like a secret is masked."""
        findings = [
            replace(
                each,
                subject=masked(each.subject),
                what=masked(each.what),
                why=masked(each.why),
                mend=masked(each.mend),
            )
            for each in self.sorted()
        ]
        skipped = {name: masked(reason) for name, reason in self.skipped.items()}
        return Examination(findings, self.passed, skipped, [masked(hint) for hint in self.hints])

    @classmethod
    def of(cls, document: Mapping[str, Any]) -> Examination:
        """Read what `as_json` gave in another process."""
        findings = [Finding(**{**each, "severity": Severity(each["severity"])}) for each in document["findings"]]
        skipped = {each["check"]: each["reason"] for each in document["skipped"]}
        return cls(findings, list(document["passed"]), skipped, list(document["hints"]))

    def as_json(self) -> dict[str, Json]:
        """Give the findings as plain JSON values, errors first."""
        return {
            "healthy": self.healthy,
            "findings": [asdict(each) for each in self.sorted()],
            "passed": list(self.passed),
            "skipped": [{"check": name, "reason": reason} for name, reason in self.skipped.items()],
            "hints": list(self.hints),
        }

    def sorted(self) -> list[Finding]:
        """Give the findings, errors first, else in the order of the checks."""
        return sorted(self.findings, key=lambda each: each.severity is not Severity.ERROR)


def error(name: str, subject: str, what: str, why: str, mend: str) -> Finding:
    """Make a finding that stops checkpoints or loses data."""
    return Finding(name, Severity.ERROR, subject, what, why, mend)


def warning(name: str, subject: str, what: str, why: str, mend: str) -> Finding:
    """Make a finding that costs something, or fails later."""
    return Finding(name, Severity.WARNING, subject, what, why, mend)
