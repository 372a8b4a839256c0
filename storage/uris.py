"""Storage URIs: `file:///dir` and `s3://bucket/prefix`, parsed without any I/O (semantics W1, W5).

A URI is taken literally, as Spark takes it: no percent decoding, no pattern. URIs that Spark and Cairn could understand
differently are refused when the DAG is parsed. Messages never repeat a possible secret.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, replace
from typing import Literal

from .errors import InvalidKeyError, UnsupportedStorageError
from .names import check_key

ACCEPTED = "file:///absolute/folder or s3://bucket/prefix (s3a:// is read as s3://)"
"""The accepted forms of a storage URI, for messages."""

_SCHEME = re.compile(r"\A([A-Za-z][A-Za-z0-9+.-]*):(.*)\Z", re.DOTALL)
_BUCKET = re.compile(r"\A[a-z0-9][a-z0-9.-]{1,61}[a-z0-9]\Z")
_AMBIGUOUS = re.compile(r"[%*?#\[\]{}\\:]")
_EXPRESS = ("--x-s3", "--xa-s3")


@dataclass(frozen=True, slots=True)
class StorageUri:
    """A parsed storage URI."""

    scheme: Literal["file", "s3"]
    bucket: str
    """The bucket; empty for files."""
    path: str
    """The absolute folder, for files; the prefix without outer slashes, possibly empty, for S3."""

    def __str__(self) -> str:
        """Return the normalised URI, without a trailing slash."""
        if self.scheme == "file":
            return f"file://{self.path}"
        return f"s3://{self.bucket}/{self.path}" if self.path else f"s3://{self.bucket}"

    def below(self, name: str) -> StorageUri:
        """Return the folder of a name below this place."""
        return replace(self, path=f"{self.path}/{name}" if self.path else name)

    def has(self, other: StorageUri) -> bool:
        """Tell whether another place is this one, or lies below it."""
        if (self.scheme, self.bucket) != (other.scheme, other.bucket):
            return False
        return not self.path or f"{other.path}/".startswith(f"{self.path}/")

    def holds(self, url: str) -> bool:
        """Tell whether a URL of Spark names a file below this place: literally, so one with a part `..` never does.

        Args:
            url: `file:///…`, `s3a://…` or `s3://…`; it may have characters that no storage URI may have.
        """
        scheme, _, rest = url.partition("://")
        above = self.path if self.scheme == "file" else "/".join(filter(None, (self.bucket, self.path)))
        if scheme.replace("s3a", "s3") != self.scheme or not rest.startswith(f"{above}/"):
            return False
        try:
            check_key(rest.removeprefix(f"{above}/"))
        except InvalidKeyError:
            return False
        return True


def parse_storage_uri(uri: object) -> StorageUri:
    """Parse a storage URI, without any I/O.

    Args:
        uri: `file:///absolute/folder` or `s3://bucket/prefix`; a parsed URI is returned unchanged.

    Raises:
        UnsupportedStorageError: the scheme is unknown, or the bucket is an S3 Express one (semantics W6).
        InvalidKeyError: a relative path, a query, a fragment, a user, a host, or a folder name that Spark would read
            as a pattern.
    """
    if isinstance(uri, StorageUri):
        return uri
    if not isinstance(uri, str):
        raise _invalid(uri, "it is no text")
    match = _SCHEME.match(uri)
    if match is None:
        raise _invalid(uri, "it has no scheme")
    scheme, rest = match[1].lower(), match[2]
    if scheme not in ("file", "s3", "s3a"):
        raise UnsupportedStorageError(
            f"there is no storage for the scheme {scheme}. Use {ACCEPTED}", uri=_without_secrets(uri)
        )
    authority, path = "", rest
    if rest.startswith("//"):
        authority, slash, path = rest[2:].partition("/")
        path = slash + path
    if "@" in authority:
        raise _invalid(uri, "it names a user; credentials belong into the connection, never into a URI")
    if "?" in rest or "#" in rest:
        raise _invalid(uri, "it has a query or a fragment")
    return _file(uri, authority, path) if scheme == "file" else _s3(uri, rest, authority, path)


def same_place(one: str, other: str | None) -> bool:
    """Tell whether two URIs name one place, however they are spelled; a text that is none names only itself."""
    return one == other or (other is not None and _place(one) == _place(other))


def _place(uri: str) -> StorageUri | str:
    try:
        return parse_storage_uri(uri)
    except (InvalidKeyError, UnsupportedStorageError):
        return uri


def check_storage_uri(uri: object) -> str:
    """Check a storage URI when a DAG is parsed; pure, no I/O.

    Returns:
        The URI, normalised: `s3a` read as `s3`, no trailing slash.

    Raises:
        UnsupportedStorageError: the scheme is unknown, or the bucket is an S3 Express one (semantics W6).
        InvalidKeyError: the URI has no accepted form.
    """
    return str(parse_storage_uri(uri))


def _file(uri: str, authority: str, path: str) -> StorageUri:
    if authority:
        raise _invalid(uri, f"it names the host {authority!r}; a folder is written with three slashes")
    if not path.startswith("/"):
        raise _invalid(uri, "the folder is not absolute")
    trimmed = path.rstrip("/")
    if not trimmed:
        raise _invalid(uri, "the root of the file system is no storage; name a folder below it")
    _check_path(uri, trimmed[1:])
    return StorageUri("file", "", trimmed)


def _s3(uri: str, rest: str, bucket: str, path: str) -> StorageUri:
    if not rest.startswith("//") or not bucket:
        raise _invalid(uri, "it names no bucket")
    if bucket.endswith(_EXPRESS):
        raise UnsupportedStorageError(
            "an S3 Express directory bucket lists its keys in no order and cannot hold checkpoints. "
            "Use a general purpose bucket",
            uri=_without_secrets(uri),
        )
    if not _BUCKET.match(bucket):
        raise _invalid(uri, "a bucket has 3 to 63 characters out of a-z 0-9 . -")
    prefix = path[1:].rstrip("/") if path else ""
    if prefix:
        _check_path(uri, prefix)
    return StorageUri("s3", bucket, prefix)


def _check_path(uri: str, path: str) -> None:
    found = _AMBIGUOUS.search(path)
    if found:
        raise _invalid(uri, f"the character {found[0]!r} in it means something else to Spark")
    try:
        check_key(path)
    except InvalidKeyError as error:
        raise _invalid(uri, error.message) from None


def _invalid(uri: object, why: str) -> InvalidKeyError:
    return InvalidKeyError(f"this is no storage URI: {why}. Use {ACCEPTED}", uri=_without_secrets(uri))


def _without_secrets(uri: object) -> str:
    if not isinstance(uri, str):
        return repr(uri)
    cut = re.sub(r"[?#].*\Z", "?…", uri, flags=re.DOTALL)
    head, at, tail = cut.rpartition("@")
    scheme = _SCHEME.match(head)
    return ascii(f"{scheme[1] if scheme else ''}://…@{tail}" if at else cut)[1:-1][:200]
