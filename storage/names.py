"""Names, keys and URIs that Cairn's stores can hold, checked without any I/O (semantics W1, W5).

There are two grammars. People choose *names* (job, stage uid, state, table, epoch), which are strict. *Keys* also
include Spark's files (`_temporary`, `.part-0.crc`, `origin=A%20B`), so they are wide: every listed key must be
deletable, as long as it stays below the root and has only one meaning on every store.

A storage URI (`file:///dir`, `s3://bucket/prefix`) is taken literally, as Spark takes it: no
percent decoding, no pattern. URIs that Spark and Cairn could understand differently are refused when the DAG is
parsed. Messages never repeat a possible secret.
"""

from __future__ import annotations

import re
from dataclasses import replace
from typing import Literal

from .errors import InvalidKeyError, UnsupportedStorageError
from .records import dataclass

NAME_GRAMMAR = r"\A[A-Za-z0-9_][A-Za-z0-9._-]{0,249}\Z"
"""The grammar of names; `.` and `..` cannot match, since a name never begins with a dot."""

RESERVED = "_cairn"
"""The folder at the root for Cairn itself (the probe); no job may have its name."""

MAX_KEY_BYTES = 1024
"""The longest key of S3, Google Cloud Storage and Azure, in UTF-8 bytes, including the root's prefix."""

_NAME = re.compile(NAME_GRAMMAR)
_CONTROL = re.compile(r"[\x00-\x1f\x7f]")
_SHOWN = 80


def shorten(value: object) -> str:
    """Return the repr of a value, cut to fit an error message."""
    text = repr(value)
    return text if len(text) <= _SHOWN else f"{text[:_SHOWN]}… ({len(text)} characters)"


def check_name(kind: str, value: object) -> str:
    """Check a name against the grammar of semantics W1.

    Raises:
        InvalidKeyError: the name does not match the grammar, or is reserved.
    """
    if not isinstance(value, str) or _NAME.match(value) is None:
        raise InvalidKeyError(
            f"this {kind} name cannot be used: a name has 1 to 250 characters out of A-Z a-z 0-9 . _ - and begins "
            f"with a letter, a digit or _. Choose another",
            code="invalid_name",
            kind_of_name=kind,
            value=shorten(value),
            grammar=NAME_GRAMMAR,
        )
    if value == RESERVED:
        raise InvalidKeyError(
            f"this {kind} name is reserved for Cairn's own objects. Choose another",
            code="invalid_name",
            kind_of_name=kind,
            value=value,
        )
    return value


def check_key(key: object, *, marker: bool = False) -> str:
    """Check a key below a store's root; with `marker`, one trailing slash is accepted, as in s3a's folder markers.

    Raises:
        InvalidKeyError: the key is empty, absolute, too long, leaves the root, or differs in meaning between stores
            (empty and dot segments, control characters, text that UTF-8 cannot encode).
    """
    if not isinstance(key, str) or not key:
        raise _refusal(key, "a key is a text that is not empty")
    body = key[:-1] if marker and key.endswith("/") else key
    if _CONTROL.search(key):
        raise _refusal(key, "a key holds no control characters (newline, NUL, …)")
    try:
        size = len(key.encode())
    except UnicodeEncodeError:
        raise _refusal(key, "a key is text that UTF-8 can hold") from None
    if size > MAX_KEY_BYTES:
        raise _refusal(key, f"a key has at most {MAX_KEY_BYTES} bytes in UTF-8, this one has {size}")
    for segment in body.split("/"):
        if segment in ("", ".", ".."):
            raise _refusal(key, f"each part between slashes is a name, never {segment!r}")
    return key


def full_key(prefix: str, key: str, store: str, *, marker: bool = False) -> str:
    """Return a bucket's key for a key below a root, whose `prefix` is empty, or ends in `/`.

    Raises:
        InvalidKeyError: the key is invalid, or too long with the prefix.
    """
    full = f"{prefix}{check_key(key, marker=marker)}"
    if len(full.encode()) > MAX_KEY_BYTES:
        raise InvalidKeyError(
            f"this key cannot be used: with the storage's own prefix it has more than {MAX_KEY_BYTES} bytes",
            store=store,
            key=shorten(key),
        )
    return full


def check_prefix(prefix: object) -> str:
    """Check a prefix for a listing: empty (the root) or a folder with its trailing slash.

    Raises:
        InvalidKeyError: the prefix is not a valid key, or does not end in `/` (`job-1` would also list `job-10`:
            semantics W1).
    """
    if prefix == "":
        return prefix
    if not isinstance(prefix, str) or not prefix.endswith("/"):
        raise _refusal(prefix, "a prefix is empty or ends in /")
    check_key(prefix, marker=True)
    return prefix


def order(key: str) -> bytes:
    """Return a key's UTF-8 bytes, S3's order of listings; a foreign name on a local disk sorts by its bytes too."""
    return key.encode("utf-8", "surrogateescape")


def _refusal(key: object, rule: str) -> InvalidKeyError:
    return InvalidKeyError(f"this key cannot be used: {rule}", key=shorten(key))


_ABFSS = "abfss://container@account.dfs.core.windows.net/prefix"
ACCEPTED = f"file:///absolute/folder, s3://bucket/prefix (s3a:// is read as s3://), gs://bucket/prefix or {_ABFSS}"
"""The accepted forms of a storage URI, for messages."""

_Scheme = Literal["file", "s3", "gs", "abfss"]
_READ_AS: dict[str, _Scheme] = {
    "file": "file", "s3": "s3", "s3a": "s3", "gs": "gs", "abfss": "abfss", "abfs": "abfss",
}  # fmt: skip
_WHY = dict.fromkeys(
    ("hdfs", "webhdfs", "viewfs"),
    ": HDFS replaces a file under no condition, so of two writers one would be lost unseen (Spark may keep data there)",
) | dict.fromkeys(("az", "azure", "wasb", "wasbs", "adl"), ": a URI of Azure names its account and begins with abfss")
_SCHEME = re.compile(r"\A([A-Za-z][A-Za-z0-9+.-]*):(.*)\Z", re.DOTALL)
_BUCKET = re.compile(r"\A[a-z0-9][a-z0-9.-]{1,61}[a-z0-9]\Z")
_AMBIGUOUS = re.compile(r"[%*?#\[\]{}\\:]")
_CONTAINER = re.compile(
    r"\A[a-z0-9](?!.*--)[a-z0-9-]{1,61}[a-z0-9]@[a-z0-9]{3,24}\.dfs\.core\.(windows\.net|chinacloudapi\.cn|usgovcloudapi\.net)\Z"
)
_EXPRESS = ("--x-s3", "--xa-s3")


@dataclass(frozen=True, slots=True)
class StorageUri:
    """A parsed storage URI."""

    scheme: _Scheme
    bucket: str
    """The bucket; on Azure `container@host`; empty for files."""
    path: str
    """The absolute folder, for files; the prefix without outer slashes, possibly empty, in a bucket."""

    def __str__(self) -> str:
        """Return the normalised URI, without a trailing slash."""
        if self.scheme == "file":
            return f"file://{self.path}"
        return f"{self.scheme}://{self.bucket}/{self.path}" if self.path else f"{self.scheme}://{self.bucket}"

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

        The URL may have characters that no storage URI may have.
        """
        scheme, _, rest = url.partition("://")
        above = self.path if self.scheme == "file" else "/".join(filter(None, (self.bucket, self.path)))
        if _READ_AS.get(scheme, scheme) != self.scheme or not rest.startswith(f"{above}/"):
            return False
        try:
            check_key(rest.removeprefix(f"{above}/"))
        except InvalidKeyError:
            return False
        return True


def parse_storage_uri(uri: object) -> StorageUri:
    """Parse a storage URI, without any I/O; a parsed URI comes back unchanged.

    Raises:
        UnsupportedStorageError: the scheme is unknown, or the bucket is an S3 Express one (semantics W6).
        InvalidKeyError: a relative path, a query, a fragment, a user, a host, or a folder name that Spark would read
            as a pattern.
    """
    if isinstance(uri, StorageUri):
        return uri
    if not isinstance(uri, str):
        raise _invalid(uri, "it is not a text")
    match = _SCHEME.match(uri)
    if match is None:
        raise _invalid(uri, "it has no scheme")
    named, rest = match[1].lower(), match[2]
    scheme = _READ_AS.get(named)
    if scheme is None:
        raise UnsupportedStorageError(
            f"there is no storage for the scheme {named}{_WHY.get(named, '')}. Use {ACCEPTED}",
            uri=_without_secrets(uri),
        )
    authority, path = "", rest
    if rest.startswith("//"):
        authority, slash, path = rest[2:].partition("/")
        path = slash + path
    if "@" in authority and scheme != "abfss":
        raise _invalid(uri, "it names a user; credentials belong into the connection, never into a URI")
    if "?" in rest or "#" in rest:
        raise _invalid(uri, "it has a query or a fragment")
    if scheme == "file":
        return _file(uri, authority, path)
    return _in_bucket(uri, scheme, rest, authority, path)


def scheme_of(uri: str) -> str:
    """Return the scheme of a URI as Cairn reads it: `s3` of `s3a://…`, `abfss` of `abfs://…`."""
    scheme = uri.partition(":")[0]
    return _READ_AS.get(scheme, scheme)


def same_place(one: str, other: str | None) -> bool:
    """Tell whether two URIs name one place, however they are spelled; a text that is not a URI equals only itself."""
    return one == other or (other is not None and _place(one) == _place(other))


def _place(uri: str) -> StorageUri | str:
    try:
        return parse_storage_uri(uri)
    except (InvalidKeyError, UnsupportedStorageError):
        return uri


def check_storage_uri(uri: object) -> str:
    """Check a storage URI at parse, without any I/O; returns it normalised (`s3a` as `s3`, no trailing slash)."""
    return str(parse_storage_uri(uri))


def _file(uri: str, authority: str, path: str) -> StorageUri:
    if authority:
        raise _invalid(uri, f"it names the host {authority!r}; a folder is written with three slashes")
    if not path.startswith("/"):
        raise _invalid(uri, "the folder is not absolute")
    trimmed = path.rstrip("/")
    if not trimmed:
        raise _invalid(uri, "the root of the file system cannot be a storage; name a folder below it")
    _check_path(uri, trimmed[1:])
    return StorageUri("file", "", trimmed)


def _in_bucket(uri: str, scheme: _Scheme, rest: str, bucket: str, path: str) -> StorageUri:
    if not rest.startswith("//") or not bucket:
        raise _invalid(uri, "it names no bucket")
    if scheme == "s3" and bucket.endswith(_EXPRESS):
        raise UnsupportedStorageError(
            "an S3 Express directory bucket lists its keys in no order and cannot hold checkpoints. "
            "Use a general purpose bucket",
            uri=_without_secrets(uri),
        )
    if scheme == "abfss" and not _CONTAINER.match(bucket):
        raise _invalid(uri, "on Azure it names a container and an account's host")
    if scheme != "abfss" and not _BUCKET.match(bucket):
        raise _invalid(uri, "a bucket has 3 to 63 characters out of a-z 0-9 . -")
    prefix = path[1:].rstrip("/") if path else ""
    if prefix:
        _check_path(uri, prefix)
    return StorageUri(scheme, bucket, prefix)


def _check_path(uri: str, path: str) -> None:
    found = _AMBIGUOUS.search(path)
    if found:
        raise _invalid(uri, f"the character {found[0]!r} in it means something else to Spark")
    try:
        check_key(path)
    except InvalidKeyError as error:
        raise _invalid(uri, error.message) from None


def _invalid(uri: object, why: str) -> InvalidKeyError:
    return InvalidKeyError(f"this is not a storage URI: {why}. Use {ACCEPTED}", uri=_without_secrets(uri))


def _without_secrets(uri: object) -> str:
    if not isinstance(uri, str):
        return repr(uri)
    cut = re.sub(r"[?#].*\Z", "?…", uri, flags=re.DOTALL)
    head, at, tail = cut.rpartition("@")
    scheme = _SCHEME.match(head)
    return ascii(f"{scheme[1] if scheme else ''}://…@{tail}" if at else cut)[1:-1][:200]
