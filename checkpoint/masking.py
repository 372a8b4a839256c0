"""Masks secrets in texts that are kept or shown: exceptions quote URLs, conf and requests (semantics D1).

What is masked: the credentials of this process by their value, known shapes, and the value beside a name that
means a secret. A mask too much costs a reader a word; one too few costs a password.
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from itertools import pairwise
from typing import TYPE_CHECKING, Any
from urllib.parse import quote

from ..storage.errors import printable

if TYPE_CHECKING:
    from re import compile as _pattern
else:

    class _pattern:  # noqa: N801 - stands for `re.compile`
        """A pattern that is compiled at its first use: each process loads this module, and few mask anything."""

        def __init__(self, pattern: str, flags: int = 0) -> None:
            self._given = (pattern, flags)

        def __getattr__(self, name: str) -> Any:
            found = getattr(re.compile(*self._given), name)
            setattr(self, name, found)
            return found


MASK = "***"

MORE = list[Callable[[str], str]]()
"""Masks of those who know more secrets: in a process of Airflow its own, which has seen what was fetched from it."""
_SHORTEST = 8
"""Shorter values would be found in words that have nothing to do with them."""
_RANDOM = 16
"""So long a word after a colon is not prose."""
_FOLDERS = frozenset({"PWD", "OLDPWD"})

_USER = _pattern(
    # On Azure the container stands where others have a user.
    r"(://)(?:[^\s/@:]{0,300}:(?!\d+/)[^\s\"'<>]{0,300}|(?<!abfs://)(?<!abfss://)[^\s/@]{1,300})@"
)
"""Of a URL; a password may hold slashes and at signs, a port is followed by a slash."""
_NAME = _pattern(
    # name=…, name: …, "name": …, name => …; an option begins with dashes
    r"""(?<![\w.-])(?:[^\WA-Za-z_]|[.-])*(?P<name>[A-Za-z_][\w.-]*(?:\ key(?:\ id)?)?)\\*["']?"""
    r"""\s*(?P<sign>=>?|:)\s*\[?\s*""",
    re.IGNORECASE,
)
_OPTION = _pattern(r"""(?<![\w-])--?(?P<name>[A-Za-z][\w.-]*)["']?,?(?P<sign>\s+)(?![-"',])""")
_QUOTED_OPTION = _pattern(r"""["']--?(?P<name>[A-Za-z][\w.-]*)["'],?(?P<sign>\s+)(?=["'][^-])""")
_VALUE = _pattern(
    # An authorization names its scheme first.
    r"""(?:(?:bearer|basic|digest|negotiate|token)\s+(?=\S))?(?P<quote>\\*["'])?"""
    r"""(?P<value>(?(quote)(?:(?!(?P=quote)).)*|[^\s"',;&}\])]+))""",
    re.IGNORECASE | re.DOTALL,
)
_WORDS_OF_PARSERS = _pattern(
    r"\b(?:extraneous|illegal|invalid|missing|near|next|offending|unexpected|unknown|unrecognized)\s+\Z", re.IGNORECASE
)
_STRONG = _pattern(r"secret|passw|passphrase|key", re.IGNORECASE)


def masked(text: str, *, environ: Mapping[str, str] = os.environ) -> str:
    """Mask the secrets in a text, this process's credentials in `environ` among them."""
    for mask in MORE:
        text = mask(text)
    for value in _known(environ):
        text = text.replace(value, MASK)
    for _, shape in SHAPES:
        text = shape.sub(_keeping, text)
    text = AWS_SECRET.sub(lambda found: MASK if is_aws_secret(found[0]) else found[0], text)
    text = _USER.sub(rf"\1{MASK}@", text)
    for pair in (_NAME, _OPTION, _QUOTED_OPTION):
        text = _masked_pairs(text, pair)
    return text


def _known(environ: Mapping[str, str]) -> Iterator[str]:
    """Give the values of this process's credentials, the longest first: one may be a part of another."""
    found = {
        value
        for name, value in environ.items()
        if len(value) >= _SHORTEST and name not in _FOLDERS and names_a_secret(name) and not is_plain(value)
    }
    found |= {quote(value, safe="") for value in found}
    return iter(sorted(found, key=lambda value: (-len(value), value)))


def _keeping(found: re.Match[str]) -> str:
    return f"{found.groupdict().get('keep') or ''}{MASK}"


def _masked_pairs(text: str, pair: re.Pattern[str]) -> str:
    """Mask values by their names; the value beside a harmless name may itself be a pair, so it is looked at again."""
    parts, done, at = [], 0, 0
    while found := pair.search(text, at):
        at = found.end("sign")
        value = _VALUE.match(text, found.end()) if _is_a_name(found["name"], found["sign"]) else None
        if value is not None and _is_secret(text, found, value):
            parts += [text[done : value.start("value")], MASK]
            done = at = value.end("value")
    return "".join((*parts, text[done:]))


def _is_a_name(name: str, sign: str) -> bool:
    return names_a_secret(name) or (sign == "=" and name.lower().endswith("signature"))


def _is_secret(text: str, found: re.Match[str], value: re.Match[str]) -> bool:
    name, content = found["name"], value["value"]
    if is_plain(content) or content.startswith(MASK):
        return False
    if found["sign"] != ":" or value["quote"] or _STRONG.search(name):
        return True
    # Prose: "unexpected token: x", "cannot load credentials: no such profile", "second pass: done".
    looks_random = len(content) >= _RANDOM or any(each.isdigit() for each in content)
    if name.lower() != "token":
        return looks_random
    return looks_random or not _WORDS_OF_PARSERS.search(
        text, max(0, found.start("name") - _RANDOM), found.start("name")
    )


# Which names mean a secret: decided by the words of a name, as a reader would.
#
# Airflow has a list of such words, and where a DAG is parsed it is asked, too (`operators/stage/submit_options.py`).
# A driver has no Airflow, so the words are also here.


_WORD = _pattern(r"[A-Z]+(?![a-z])|[A-Z]?[a-z]+")
_SURE = _pattern(r"secret(?!ar)|passw(?:or)?d|passphrase|credential")
"""Anywhere in a name, also in the middle of a word (`PGPASSWORD`, `keyPassword`)."""
_TOKEN = _pattern(r"tokens?\Z")
"""At the end of any word; a tokenizer is none."""
_LAST = _pattern(
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
_KEY = _pattern(r"(?:access|account|api|encryption|fernet|hmac|master|private|secret|shared|signing)keys?\Z")
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
_KNOWN_HARMLESS = _pattern(
    r"\Aspark\.kerberos\.renewal\.credentials\Z|\Aspark\.kubernetes\.(?:driver|executor)\.(?:secrets|secretKeyRef)\."
    r"|\Aspark\.kubernetes\.(?:container\.image\.pullSecrets|kerberos\.tokenSecret\.itemKey)\Z"
    r"|(?:\A|\.)GOOGLE_APPLICATION_CREDENTIALS\Z",
    re.IGNORECASE,
)
_REFERS = frozenset({"backend", "endpoint", "env", "id", "ids", "less", "model", "uri", "url"})
"""The last word of a name whose value may not be a secret, but where one is kept: the value decides."""
_IDS = frozenset({"id", "ids"})
_ITSELF = frozenset({("key", "id"), ("key", "ids"), ("webhook", "url")})
_LONGEST_REFERENCE = 200
_SCHEME = _pattern(r"\A[A-Za-z][A-Za-z0-9+.-]{0,20}://")
_BETWEEN_WORDS = _pattern(r"[-/._:@,]+")
_READABLE = _pattern(r"(?:(?:[A-Z]?[a-z]{1,16}|[A-Z]{1,16}){1,4}\d{0,4}|\d{1,4})?\Z")
_PATH = _pattern(r"[/:]")
_NUMBERED = _pattern(r"[a-z]{4,}\d")
"""A word with a number at its end is how people choose passwords (`Summer2024`), and seldom a name; `v2` is one."""
_NO_VOWEL = _pattern(r"[b-df-hj-np-tv-xz]{6}", re.IGNORECASE)
_PLAIN = _pattern(
    # Nothing, a number, perhaps with a unit of time or size, a truth value, the ARN of something that AWS keeps
    r"\A(?:[+-]?\d+(?:\.\d+)?(?:e[+-]?\d+|\s?(?:[mu]?s|m|min|h|d|b|[kmgtp]b?))?"
    r"|true|false|none|null|arn:aws[\w-]*:\S+)?\Z",
    re.IGNORECASE,
)
_NOT_BY_PARTS = _pattern(r"\A(?:tokeni[sz]|secretar|prox(?:y|ies))")
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
    # Vault's secret id is a secret itself, and an author may choose such an id. A password has no folders.
    if words[-1] in _IDS and _NUMBERED.search(text) and not _PATH.search(text):
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


# What secrets look like inside a text, whatever its name: known forms, `name=value`, and templates that fetch one.


SHAPES = (
    ("an AWS access key id", _pattern(r"(?<![A-Za-z0-9])(?:AKIA|ASIA|AROA|AIDA)[0-9A-Z]{12,}(?![a-z])")),
    ("a URL with a password", _pattern(r"(?P<keep>(?<![A-Za-z0-9+.-])[A-Za-z0-9+.-]*://)[^/\s@:]*:[^/\s@]+(?=@)")),
    (
        "a URL with a password",
        _pattern(r"(?P<keep>jdbc:oracle:\w{1,20}:)[^/\s@]{1,300}/[^\s@]{1,300}(?=@)", re.IGNORECASE),
    ),
    (
        "a URL with a password",
        _pattern(
            r"(?P<keep>[?&;](?:password|passwd|pwd|passphrase|secret|token|sig|x-amz-signature)=)[^&;\s{\"']+",
            re.IGNORECASE,
        ),
    ),
    (
        "the URL of a webhook",
        _pattern(
            r"(?P<keep>https://(?:hooks\.slack(?:-gov)?\.com/(?:services|workflows|triggers)"
            r"|discord(?:app)?\.com/api/webhooks|[\w.-]+\.webhook\.office\.com|outlook\.office(?:365)?\.com/webhook"
            r"|chat\.googleapis\.com/v1/spaces|hooks\.zapier\.com/hooks|[\w.-]+\.hooks\.n8n\.cloud)/)[^\s\"'<>]+",
            re.IGNORECASE,
        ),
    ),
    (
        "a private key",
        _pattern(
            r"-----BEGIN [A-Z0-9 ]*PRIVATE KEY(?: BLOCK)?-----.*?"
            r"(?:-----END [A-Z0-9 ]*PRIVATE KEY(?: BLOCK)?-----|\Z)",
            re.DOTALL,
        ),
    ),
    ("a signed token", _pattern(r"(?<![\w-])eyJ[\w-]{5,}\.[\w-]{5,}\.[\w-]*")),
    ("an authorization", _pattern(r"(?P<keep>\bbearer\s+)(?=\S*\d)[\w.~+/=-]{8,}", re.IGNORECASE)),
    (
        # "Basic Statistics" is not base64: that has a capital after a small letter.
        "an authorization",
        _pattern(r"(?P<keep>\b[Bb]asic\s+)(?=[A-Za-z0-9+/]*[a-z0-9+/][A-Z])[A-Za-z0-9+/]{8,}={0,2}(?!\w)"),
    ),
    (
        "an access token",
        _pattern(
            r"(?<![A-Za-z0-9])(?:gh[opusr]_[A-Za-z0-9]{16,}|github_pat_\w{16,}|glpat-[\w-]{16,}|xox[abeprs]-[\w-]{10,}"
            r"|dapi[0-9a-f]{32}|hvs\.[\w-]{20,}|AIza[\w-]{35}|sk_live_\w{16,}|sk-[\w-]{20,})"
        ),
    ),
)
"""Names of secrets, and patterns that find them; where there is a group `keep`, that part of it is not a secret."""
AWS_SECRET = _pattern(r"(?<![\w/+:.-])[A-Za-z0-9/+]{40}(?![\w/+=.-])")
_PAIR = _pattern(
    # name=value, -Dname=value; "name": "value" however often it was quoted; `name: value` at the start of a line.
    # Each begins where nothing of its kind stands before it, so that a long word is looked at once.
    r"""(?<![\w.-])(?:[^\WA-Za-z_]|[.-])*(?:(?<=-)D)?(?P<plain>[A-Za-z_][\w.-]*)=(?P<plain_value>{value})"""
    r"""|(?<!\\)\\*["'](?P<quoted>[A-Za-z_][\w.-]*)\\*["']\s*+[:=]\s*+\[?+\s*+(?P<quoted_value>{value})"""
    r"""|^[^\S\n]*+(?P<line>[A-Za-z_][\w.-]*):\s++(?P<line_value>{value})""".replace(
        "{value}", r"""\\*["']?(?:\{\{|[^\s"',;&(){}\[\]\\]+)"""
    ),
    re.MULTILINE,
)
_OPENING = _pattern(r"\{[{%]")
_CLOSING = _pattern(r"[%}]\}")
_CONNECTION = _pattern(r"\bconn\b")
_SECRET_OF_CONNECTION = _pattern(r"\b(?:password|get_password|extra|extra_dejson|get_uri|as_json)\b")
_VARIABLE = _pattern(r"\bvar\b")
_NAME_IN_TEMPLATE = _pattern(r"[\w.-]+")


def secret_in(text: str, names: Callable[[str], bool] = names_a_secret) -> str | None:
    """Find a secret in a text; it takes as long as the text is.

    Args:
        text: a value as its author wrote it, or as it was rendered.
        names: tells whether a name means a secret.

    Returns:
        What it is, in words that do not repeat it; None if there is none.
    """
    for what, shape in SHAPES:
        if shape.search(text):
            return what
    if any(is_aws_secret(match[0]) for match in AWS_SECRET.finditer(text)):
        return "what looks like an AWS secret access key"
    for template in _templates(text):
        if (found := _CONNECTION.search(template)) and _SECRET_OF_CONNECTION.search(template, found.end()):
            return "a template that fetches a connection's secret"
        if _VARIABLE.search(template) and any(map(names, _NAME_IN_TEMPLATE.findall(template))):
            return "a template that fetches a secret variable"
    for pair in _PAIR.finditer(text):
        for kind in ("plain", "quoted", "line"):
            name = pair[kind]
            if name is None or not names(name):
                continue
            value = pair[f"{kind}_value"].strip("\\\"'")
            if not is_plain(value) and not refers_to_a_secret(name, value):
                return f"a secret, as {name}"
    return None


def _templates(text: str) -> Iterator[str]:
    """Yield the text inside of each template."""
    at = 0
    while (opening := _OPENING.search(text, at)) and (closing := _CLOSING.search(text, opening.end())):
        yield text[opening.end() : closing.start()]
        at = closing.end()


def is_aws_secret(text: str) -> bool:
    """Tell random characters from a hash, a name and a path: in the former the kind changes more often.

    Args:
        text: 40 characters, as `AWS_SECRET` finds them.

    A capital before a small letter does not count, words begin like that. 40 random characters have 19 changes.
    """
    kinds = [_kind(character) for character in text]
    changes = sum(one != two and (one, two) != ("A", "a") for one, two in pairwise(kinds))
    return {"A", "a", "0"} <= set(kinds) and changes >= (14 if text.startswith("/") else 11)


def _kind(character: str) -> str:
    if character.isdigit():
        return "0"
    return "/" if not character.isalpha() else "A" if character.isupper() else "a"


MAX_DETAIL = 500
"""Characters of a failure's detail that the head keeps."""


def one_line(text: str) -> str:
    """Shorten a text for the head: one line, at most `MAX_DETAIL` characters, without secrets."""
    line = printable(masked(" ".join(text.encode("utf-8", "replace").decode().split())))
    return line if len(line) <= MAX_DETAIL else line[: MAX_DETAIL - 1] + "…"
