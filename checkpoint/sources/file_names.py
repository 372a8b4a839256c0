"""File names and globs: matches an author's pattern, and escapes names that Spark would read as a pattern.

A pattern has the syntax of Spark and of a shell. A pattern that could never match a file is refused where the DAG is
parsed: with it each run would be green and read nothing.
"""

from __future__ import annotations

import re

from ...storage.names import shorten
from ..errors import InvalidConfigError

_MAX_ALTERNATIVES = 1000
_CLASS = r"\[[!^]?(?:\][^\]]*|[^\]]+)\]"
_TOKEN = re.compile(rf"{_CLASS}|.", re.DOTALL)
_WILD = {"**/": "(?:.*/)?", "**": ".*", "*": "[^/]*", "?": "[^/]"}
_PARTS = re.compile(rf"(\*\*/|\*\*|\*|\?|{_CLASS})")
_SPECIAL = re.compile(r"[\[\]{}*?\\]")
"""Characters that Hadoop reads as a part of a pattern, unless a backslash precedes them."""
_COPYING = "._COPYING_"
_UNDERSCORED = re.compile(r"_[^=]*\Z", re.DOTALL)
_HIDDEN = re.compile(r"\.|\[\.+\]|(?:_|\[_+\])[^=*?\[]*\Z", re.DOTALL)
"""Parts of a pattern, by their beginning or in whole, that match only names which are not read."""
_TEMPLATE = re.compile(r"\{\{[^{},]*\}\}|\{%")
_HOME = re.compile(r"~[^/]*(?:/|\Z)")
_VARIABLE = re.compile(r"\$[A-Za-z_{(]\w*")
_RANGE = re.compile(r"(?<=[{,])(\w+)\.\.(\w+)(?:\.\.\w+)?(?=[,}])")
_NUMBERS = 20
"""Most numbers of a range that the advice lists."""


def is_hidden(key: str) -> bool:
    """Tell whether a file is not read because of its name, as in Spark, where a partition may be called `_day=1`."""
    return key.endswith(_COPYING) or any(part[:1] == "." or _UNDERSCORED.match(part) for part in key.split("/"))


def literal(url: str) -> str:
    """Write a URL so that Spark reads that one file, whatever characters its name has."""
    return _SPECIAL.sub(r"\\\g<0>", url)


def unreadable(url: str) -> str | None:
    """Say why Spark cannot read a file, however its URL is written; None where it can."""
    scheme, _, path = url.partition("://")
    # Hadoop appends each part of a path to its folder, and takes the text before a colon for a scheme: for the
    # checksum file of each local file, and wherever it reads a pattern. No escape prevents either.
    if scheme == "file" and ":" in path.rpartition("/")[2]:
        return "Spark cannot read a local file with a colon in its name"
    if ":" in path and _SPECIAL.search(path):
        return "Spark cannot read a file with a colon and one of [ ] { } * ? \\ in its path"
    return None


def compiled(pattern: str) -> re.Pattern[str]:
    """Make the expression that matches the whole name of a file, below the source's URI.

    Raises:
        InvalidConfigError: the pattern is not valid, or could never match a file.
    """
    if "\\" in pattern:
        raise _refused(
            pattern, "it has a backslash; a character is taken as it is between brackets, such as [*] or [{]"
        )
    if _TEMPLATE.search(pattern):
        raise _refused(pattern, "it has a template, and a source is not rendered; each epoch reads the new files")
    if re.search(r"[\x00-\x1f\x7f]", pattern):
        raise _refused(pattern, "it has a control character, and no name that is read has one")
    _check_expansions(pattern)
    alternatives = _alternatives(pattern)
    for each in alternatives:
        _check_path(pattern, each)
    return re.compile("(?s:" + "|".join(_expression(pattern, each) for each in alternatives) + ")")


def _check_expansions(pattern: str) -> None:
    """Refuse signs that a shell would replace before it looks for files, outside of classes."""
    bare = re.sub(_CLASS, "\0", pattern)
    if _HOME.match(bare):
        raise _refused(
            pattern,
            "~ is not a home folder here, and names begin below the source's uri; give the folder as its uri, or write "
            "[~] to mean the character itself",
        )
    if found := _VARIABLE.search(bare):
        raise _refused(
            pattern,
            f"{found[0]} is not a variable here; put its value in where the DAG file is parsed, by os.environ, or "
            "write [$] to mean the character itself",
        )
    if found := _RANGE.search(bare):
        first, last = found[1], found[2]
        numbers = first.isdecimal() and last.isdecimal() and 0 <= int(last) - int(first) < _NUMBERS
        each = ",".join(str(n).zfill(len(first)) for n in range(int(first), int(last) + 1)) if numbers else "a,b,c"
        raise _refused(
            pattern, f"{found[0]} is not a range here; write {{{each}}}, or [.] to mean the character itself"
        )


def _alternatives(pattern: str) -> list[str]:
    """Expand the braces."""
    open_braces: list[tuple[list[str], list[str]]] = []
    done: list[str] = []
    """The alternatives of the innermost brace that are complete."""
    now, is_list = [""], False
    for token in _TOKEN.findall(pattern):
        if token == "{":
            open_braces.append((done, now))
            done, now = [], [""]
        elif token == "}" and open_braces:
            inner = done + now
            done, before = open_braces.pop()
            now = [head + tail for head in before for tail in inner]
        elif token == "," and open_braces:
            done, now = done + now, [""]
        elif token in ("[", "]", "}"):
            raise _refused(pattern, f"{token} has no counterpart; to mean the character itself write [{token}]")
        else:
            is_list |= token == ","
            now = [each + token for each in now]
        if len(done) + len(now) > _MAX_ALTERNATIVES:
            raise _refused(pattern, f"its braces make more than {_MAX_ALTERNATIVES} patterns; use * or several sources")
    if open_braces:
        raise _refused(pattern, "{ has no counterpart; to mean the character itself write [{]")
    if is_list:
        raise _refused(pattern, f"it is a list; write {shorten(f'{{{pattern}}}')}, or [,] to mean the character itself")
    return now


def _check_path(pattern: str, path: str) -> None:
    if path.startswith("/"):
        raise _refused(pattern, "names begin below the source's uri; leave out the / at its beginning")
    if path.endswith("/") or not path:
        raise _refused(pattern, f"it ends with a folder; for the files in it write {shorten(f'{path}*')}")
    for part in path.split("/"):
        if part in (".", ".."):
            raise _refused(pattern, f"names begin below the source's uri and have no part {part!r}; leave it out")
        if not part:
            raise _refused(pattern, "a name has no empty part; write / instead of //")
        if _HIDDEN.match(part):
            raise _refused(pattern, "a file is not read if a part of its name begins with . or _, as in Spark")
    if path.endswith(_COPYING):
        raise _refused(pattern, f"a file is not read if its name ends in {_COPYING}, as in Spark")


def _expression(pattern: str, path: str) -> str:
    parts = _PARTS.split(path)
    return "".join(_WILD.get(each) or (_class(pattern, each) if each[:1] == "[" else re.escape(each)) for each in parts)


def _class(pattern: str, text: str) -> str:
    """Translate `[abc]`, `[a-z]` and their opposites, `[!abc]` and `[^abc]`."""
    negated = text[1] in "!^"
    characters = text[2 if negated else 1 : -1]
    if not characters or "/" in characters:
        raise _refused(pattern, f"{text} is not a class; one such as [ab] or [!ab] names characters other than /")
    translated, at = "", 0
    while at < len(characters):
        first, last = characters[at], characters[at + 2 : at + 3]
        if characters[at + 1 : at + 2] == "-" and last:
            if first > last:
                raise _refused(pattern, f"the range {first}-{last} is empty; write {last}-{first}")
            translated += f"{re.escape(first)}-{re.escape(last)}"
            at += 3
        else:
            translated += re.escape(first)
            at += 1
    return f"(?!/)[{'^' if negated else ''}{translated}]"


def _refused(pattern: str, why: str) -> InvalidConfigError:
    return InvalidConfigError(f"the pattern cannot be used: {why}", pattern=shorten(pattern))
