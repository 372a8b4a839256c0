"""The command to type after a failure, and what `cairn help` tells beyond options.

That is the fields of each command's JSON, errors, findings of the doctor, reasons. The texts of all but the last are
beside this module, once: the site shows them as tables (`scripts/reference.py`), and tests compare them with the
product. They may have links of Markdown, relative to docs/reference/.
"""

from __future__ import annotations

import argparse
import re
import shlex
import textwrap
from collections.abc import Callable, Iterator, Mapping, Sequence
from importlib import resources
from pathlib import Path

from ...checkpoint import remedies
from ...storage.errors import CairnError, ErrorKind
from ...storage.facts import facts_of, filled
from ...storage.records import dataclass
from ..airflow_api import TOKEN

_WHERE = (("storage", "--storage"), ("endpoint_url", "--endpoint-url"), ("region", "--region"), ("conn", "--conn"))
_KNOWN_SCHEMES = ("file:", "s3:", "s3a:", "gs:", "abfss:", "abfs:")


@dataclass(frozen=True, slots=True)
class Typed:
    """The user's command line."""

    words: Sequence[str]
    options: argparse.Namespace

    @property
    def verb(self) -> str:
        return str(self.options.verb)

    @property
    def job(self) -> str | None:
        """The job, if one is named; a savepoint's folder is not a job."""
        found = getattr(self.options, "job", None)
        return None if found is None or "/" in found or ":" in found else str(found)

    def again(self, *more: str) -> str:
        """Return the same command, with more options, and with a generated request id, so that it continues."""
        made_up = getattr(self.options, "made_up_id", None)
        request = () if made_up is None else ("--request-id", made_up)
        return shlex.join(("cairn", *self.words, *request, *more))

    def help(self) -> str:
        return f"cairn {self.verb} --help"

    def on_storage(self, *words: str) -> str:
        """Return another command on the same storage."""
        return shlex.join(("cairn", *words, *self._where()))

    def on_job(self, verb: str, job: object = None) -> str:
        """Return another command about a job; if none is known, `cairn jobs` finds it."""
        named = job or self.job
        return self.on_storage("jobs") if named is None else self.on_storage(verb, str(named))

    def doctor(self) -> str:
        """Return the command that examines the storage, and the job if one is named."""
        if self.verb == "doctor":
            return self.again()
        return self.on_storage("doctor", *(() if self.job is None else (self.job,)))

    def _where(self) -> Iterator[str]:
        for name, option in _WHERE:
            value = getattr(self.options, name, None)
            if value:
                yield from (option, value)
            elif name == "storage" and not getattr(self.options, "conn", None):
                yield from (option, "URI")


def after(error: CairnError, typed: Typed) -> str:
    """Return the command to type after an error."""
    failed = _Failed(error, typed)
    return _BY_CODE.get(error.code, _BY_KIND[error.kind])(failed)


def after_damage(typed: Typed) -> str | None:
    """Return the command to type after damage or an incomplete result; None if the output already names it."""
    found = _DAMAGED.get(typed.verb)
    return None if found is None else found(typed)


@dataclass(frozen=True, slots=True)
class _Failed:
    error: CairnError
    typed: Typed

    def again(self) -> str:
        return self.typed.again()

    def help(self) -> str:
        return self.typed.help()

    def doctor(self) -> str:
        return self.typed.doctor()

    def credentials(self) -> str:
        return f"{facts_of(self._storage()).log_in} {self.typed.again()}"

    def upgrade(self) -> str:
        return "pip install --upgrade airflow-cairn"

    def token(self) -> str:
        return f"read -rs {TOKEN} && export {TOKEN}"

    def root(self) -> str:
        """Return the command that lists the root, or for a missing local root its nearest existing parent."""
        if self._storage().startswith(("gs:", "abfs")):
            return filled(facts_of(self._storage()).look, self._storage().partition("://")[2])
        if not self._storage().startswith("file:"):
            endpoint = getattr(self.typed.options, "endpoint_url", None)
            return shlex.join(("aws", "s3", "ls", *(("--endpoint-url", endpoint) if endpoint else ())))
        there = Path(self._storage().removeprefix("file://"))
        while not there.is_dir():
            there = there.parent
        return shlex.join(("ls", str(there)))

    def checkpoints(self) -> str:
        # With this field, the error means that the job does not exist.
        return self.typed.on_storage("jobs") if "jobs" in self.error.fields else self.typed.on_job("checkpoints")

    def savepoints(self) -> str:
        return self.typed.on_job("savepoints", self.error.fields.get("job"))

    def agreed_or(self, otherwise: Callable[[_Failed], str]) -> str:
        option = self.error.fields.get("option")
        return self.typed.again(str(option)) if option else otherwise(self)

    def dag(self) -> str:
        if self.error.fields.get("paused"):
            return shlex.join(("airflow", "dags", "unpause", str(self.error.fields["dag"])))
        return "airflow dags list"

    def pause(self) -> str:
        return shlex.join(("airflow", "dags", "pause", getattr(self.typed.options, "dag", None) or str(self.typed.job)))

    def probe(self) -> str:
        return self.doctor() if self._storage().startswith(_KNOWN_SCHEMES) else self.help()

    def _storage(self) -> str:
        return getattr(self.typed.options, "storage", None) or ""


_BY_KIND: Mapping[ErrorKind, Callable[[_Failed], str]] = {
    ErrorKind.INVALID: _Failed.help,
    ErrorKind.GONE: _Failed.checkpoints,
    ErrorKind.CONFLICT: _Failed.again,
    ErrorKind.FENCED: _Failed.again,
    ErrorKind.FORBIDDEN: _Failed.doctor,
    ErrorKind.UNAVAILABLE: _Failed.again,
    ErrorKind.DATA: _Failed.doctor,
    ErrorKind.INTERNAL: _Failed.doctor,
    ErrorKind.UNSUPPORTED: _Failed.probe,
}

_BY_CODE: Mapping[str, Callable[[_Failed], str]] = {
    "gone": _Failed.root,
    "bucket_gone": _Failed.root,
    "no_credentials": _Failed.credentials,
    "newer_format": _Failed.upgrade,
    "storage_lost": _Failed.root,
    "no_savepoint": _Failed.savepoints,
    "rewind_refused": lambda failed: failed.agreed_or(_Failed.checkpoints),
    "resume_refused": lambda failed: failed.agreed_or(_Failed.checkpoints),
    "mirror_refused": lambda failed: failed.agreed_or(_Failed.checkpoints),
    "mirror_not_activated": lambda failed: failed.typed.on_job("activate"),
    "adoption_refused": _Failed.checkpoints,
    "savepoint_refused": lambda failed: failed.agreed_or(_Failed.savepoints),
    "dag_not_paused": _Failed.pause,
    "airflow_refused": _Failed.token,
    "no_such_dag": _Failed.dag,
}

_DAMAGED: Mapping[str, Callable[[Typed], str]] = {
    "jobs": Typed.doctor,
    "servers": Typed.doctor,
    "verify": Typed.doctor,
    "clean": Typed.doctor,
    "dispose": Typed.again,
    "savepoint": Typed.again,
    "mirror": Typed.again,
    "stop": Typed.again,
}
"""Failures without an error, by the command's name; `doctor` itself names the fix for each finding."""


TOPICS = ("errors", "findings", "reasons")
"""Words after `cairn help` that are not commands."""

_ONLY_A_LINK = re.compile(r" \(\[[^\]]*\]\(\.\./([^)#]+)[^)]*\)\)")
_LINK = re.compile(r"\[([^\]]*)\]\([^)]*\)")


@dataclass(frozen=True, slots=True)
class ErrorText:
    """One code of an error."""

    name: str
    """Name of its class."""
    code: str
    kind: str
    retry_cures: bool
    meaning: str
    remedy: str


@dataclass(frozen=True, slots=True)
class FindingText:
    """One kind of finding of `cairn doctor`."""

    place: str
    """`storage`, `worker` or `cluster`."""
    name: str
    severity: str
    what: str


def fields(command: str) -> tuple[tuple[str, str], ...]:
    """Give the fields that a command prints with `--json`: names, and what they are; empty for an unknown command."""
    _, _, rest = f"\n{_text('fields')}\n".partition(f"\ncairn {command}\n")
    lines = re.split(r"^\S", rest, maxsplit=1, flags=re.MULTILINE)[0].splitlines()
    found = (line.strip().partition(": ") for line in lines if line.strip())
    return tuple((names.removesuffix(":"), meaning) for names, _, meaning in found)


def errors() -> Iterator[ErrorText]:
    """Yield each code, in the order of the classes."""
    lines = _text("errors").splitlines()
    for head, meaning, remedy in zip(lines[::3], lines[1::3], lines[2::3], strict=True):
        name, code, kind, cures = head.split()
        yield ErrorText(name, code, kind, cures == "yes", meaning.strip(), remedy.strip())


def findings() -> Iterator[FindingText]:
    """Yield each finding, by where the doctor looks."""
    place = ""
    for line in _text("findings").splitlines():
        if not line.startswith(" "):
            place = line
            continue
        head, _, what = line.strip().partition(": ")
        name, _, severity = head.partition(", ")
        yield FindingText(place, name, severity, what)


def lines(about: str, columns: int) -> Iterator[str]:
    """Yield the lines of `cairn help` about one of `TOPICS`, or below the options of a command."""
    if about == "errors":
        for error in errors():
            cures = "may cure it" if error.retry_cures else "does not help"
            yield f"{error.name} {error.code}: {error.kind}; a retry {cures}"
            yield from _paragraph(f"{error.meaning} {error.remedy}", columns)
    elif about == "findings":
        for finding in findings():
            yield f"{finding.name}: {finding.severity}, of the {finding.place}"
            yield from _paragraph(finding.what, columns)
    elif about == "reasons":
        for name, what in remedies.rows():
            yield name.strip("`")
            yield from _paragraph(what, columns)
    elif found := fields(about):
        yield from ("", "with --json it prints:")
        for names, meaning in found:
            yield from textwrap.wrap(names, columns, initial_indent="  ", subsequent_indent="  ")
            yield from _paragraph(meaning, columns, "      ")


def _paragraph(text: str, columns: int, indent: str = "    ") -> Iterator[str]:
    plain = _LINK.sub(r"\1", _ONLY_A_LINK.sub(r" (docs/\1)", text))
    yield from textwrap.wrap(plain, columns, initial_indent=indent, subsequent_indent=indent, break_on_hyphens=False)


def _text(name: str) -> str:
    return (resources.files("airflow_cairn") / "cli" / "output" / f"{name}.txt").read_text(encoding="utf-8")
