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
    r"\Aspark\.kerberos\.renewal\.credentials\Z|\Aspark\.kubernetes\.(?:driver|executor)\.(?:secrets|secretKeyRef)\.",
    re.IGNORECASE,
)
_PLAIN = re.compile(
    r"\A(?:[+-]?\d+(?:\.\d+)?(?:[eE][+-]?\d+)?|true|false|none|null|arn:aws[\w-]*:\S+)?\Z", re.IGNORECASE
)
_NOT_BY_PARTS = re.compile(r"\A(?:tokeni[sz]|secretar|prox(?:y|ies)\Z)")
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


def _of_a_key(words: Sequence[str]) -> bool:
    return any(
        two in ("key", "keys") and (one in _OF_A_KEY or (one in _MAYBE_OF_A_KEY and three not in _ABOUT_A_KEY))
        for one, two, three in zip(words, words[1:], [*words[2:], ""], strict=False)
    )


def is_plain(value: object) -> bool:
    """Tell whether a value is too plain to be a secret, whatever its name.

    That is nothing, a truth value, a number (`--max-tokens 512`), or the ARN of something that AWS keeps.
    """
    return value is None or isinstance(value, (bool, int, float)) or bool(_PLAIN.match(str(value).strip()))
