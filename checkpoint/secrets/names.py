"""Which names mean a secret: decided by the words of a name, as a reader would.

The driver has no Airflow, whose own list of such names is asked besides where a DAG is parsed
(`operators/stage/submit_options.py`). So its words are here too.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from itertools import pairwise

_WORD = re.compile(r"[A-Z]+(?![a-z])|[A-Z]?[a-z]+")
_SURE = re.compile(r"secret(?!ar)|passw(?:or)?d|passphrase|credential")
"""Anywhere in a name, also in the middle of a word (`PGPASSWORD`, `keyPassword`)."""
_TOKEN = re.compile(r"tokens?\Z")
"""At the end of any word; a tokenizer is none."""
_LAST = re.compile(
    r"(?:\A|(?<=[a-z]))pwd\Z|(?<!by)(?<!com)(?<!sur)(?<!tres)pass\Z"
    r"|\A(?:authorization|jwt|pat|bearer|pw|sig|dsn|webhook|passcode)\Z"
)
"""The name's last word; in the middle these are used for other things (`JWT_ISSUER`, `first.pass.depth`)."""
_OF_A_KEY = frozenset({"access", "account", "api", "private", "secret", "shared"})
_MAYBE_OF_A_KEY = frozenset(
    {"auth", "deploy", "encryption", "fernet", "hmac", "license", "master", "service", "signing", "subscription"}
)
"""Unless the name goes on about the key (`_ABOUT_A_KEY`)."""
_ABOUT_A_KEY = frozenset(
    {"algorithm", "derivation", "factory", "id", "manager", "material", "provider", "retrieval", "rotation", "store"}
)
_KEY = re.compile(r"(?:access|account|api|encryption|fernet|hmac|master|private|secret|shared|signing)keys?\Z")
_TWO = frozenset({("azure", "sas"), ("connection", "string"), ("webhook", "url"), ("keyfile", "dict")})

_HARMLESS = frozenset(
    {
        # The value under such a name is a reference to the secret, ...
        *("alias", "arn", "class", "dir", "directory", "file", "filename", "folder", "location", "name", "names"),
        *("path", "provider", "ref", "reference"),
        # ... or something about it.
        *("binding", "column", "columns", "count", "duration", "enabled", "interval", "length", "lifetime", "limit"),
        *("mechanism", "regex", "required", "size", "timeout", "type", "version"),
    }
)
_KNOWN_HARMLESS = re.compile(
    r"\Aspark\.kerberos\.renewal\.credentials\Z|\Aspark\.kubernetes\.(?:driver|executor)\.(?:secrets|secretKeyRef)\."
    r"|\Aspark\.kubernetes\.(?:container\.image\.pullSecrets|kerberos\.tokenSecret\.itemKey)\Z"
    r"|(?:\A|\.)GOOGLE_APPLICATION_CREDENTIALS\Z",
    re.IGNORECASE,
)
_REFERS = frozenset({"backend", "endpoint", "env", "id", "ids", "less", "model", "uri", "url"})
"""The last word of a name whose value may be no secret, but where one is kept: the value decides."""
_ITSELF = frozenset({("key", "id"), ("key", "ids"), ("webhook", "url")})
_LONGEST_REFERENCE = 200
_SCHEME = re.compile(r"\A[A-Za-z][A-Za-z0-9+.-]{0,20}://")
_BETWEEN_WORDS = re.compile(r"[-/._:@,]+")
_READABLE = re.compile(r"(?:(?:[A-Z]?[a-z]{1,16}|[A-Z]{1,16}){1,4}\d{0,4}|\d{1,4})?\Z")
_NO_VOWEL = re.compile(r"[b-df-hj-np-tv-xz]{6}", re.IGNORECASE)
_PLAIN = re.compile(
    # Nothing, a number, perhaps with a unit of time or size, a truth value, the ARN of something that AWS keeps
    r"\A(?:[+-]?\d+(?:\.\d+)?(?:e[+-]?\d+|\s?(?:[mu]?s|m|min|h|d|b|[kmgtp]b?))?"
    r"|true|false|none|null|arn:aws[\w-]*:\S+)?\Z",
    re.IGNORECASE,
)
_NOT_BY_PARTS = re.compile(r"\A(?:tokeni[sz]|secretar|prox(?:y|ies))")
"""Words that hold one of Airflow's names, or are one: of a proxy's URL only a password is secret; that has a shape."""


def names_a_secret(name: str, hides: Callable[[str], bool] | None = None) -> bool:
    """Tell whether the value under a name is a secret.

    A name is split into words at separators and at capitals. Its last word may say that the value is not the secret
    itself: `oauthTokenFile`, `--secret-name`, `CLIENT_SECRET_VERSION`; but not `MY_PASSWORD_PROFILE`.

    Args:
        name: of a Spark conf, an environment variable, an option, a field in a JSON document.
        hides: asked about the name's words in small letters, joined by `_`, where our own list does not know it.
    """
    words = [word.lower() for word in _WORD.findall(name)]
    if not words or words[-1] in _HARMLESS or _KNOWN_HARMLESS.search(name):
        return False
    if _SURE.search("".join(words)) or _LAST.search(words[-1]):
        return True
    if any(_TOKEN.search(word) or _KEY.search(word) for word in words) or _of_a_key(words):
        return True
    if not _TWO.isdisjoint(pairwise(words)):
        return True
    asked = "_".join(word for word in words if not _NOT_BY_PARTS.match(word)).replace("service_account", "")
    return hides is not None and hides(asked)


def refers_to_a_secret(name: str, value: object) -> bool:
    """Tell whether a value only says where a secret is kept, although its name means one: `--secret-id prod/db`.

    A reference is short and made of words; a secret is not. Under a name that is a secret's own (`--password`) no value
    is a reference: people choose words there, too.
    """
    words = [word.lower() for word in _WORD.findall(name)]
    if not words or words[-1] not in _REFERS or tuple(words[-2:]) in _ITSELF:
        return False
    text = str(value).strip()
    if len(text) > _LONGEST_REFERENCE or _NO_VOWEL.search(text):
        return False
    return all(_READABLE.match(word) for word in _BETWEEN_WORDS.split(_SCHEME.sub("", text)))


def _of_a_key(words: Sequence[str]) -> bool:
    return any(
        two in ("key", "keys") and (one in _OF_A_KEY or (one in _MAYBE_OF_A_KEY and three not in _ABOUT_A_KEY))
        for one, two, three in zip(words, words[1:], [*words[2:], ""], strict=False)
    )


def is_plain(value: object) -> bool:
    """Tell whether a value is too plain to be a secret, whatever its name.

    That is nothing, a truth value, a number (`--max-tokens 512`) or an amount (`30s`), or the ARN of something that AWS
    keeps.
    """
    return value is None or isinstance(value, (bool, int, float)) or bool(_PLAIN.match(str(value).strip()))
