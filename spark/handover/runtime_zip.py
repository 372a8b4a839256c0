"""The runtime that is submitted with each application: one zip of the code that runs inside Spark, for `--py-files`.

Equal sources give equal bytes and an equal name, so that caches between here and the executors work, and another
version never passes for this one. The zip also holds each source's bytecode for this Python, which halves a driver's
import time; a driver with another Python version uses the source.
"""

from __future__ import annotations

import base64
import hashlib
import marshal
import os
import sys
import tempfile
import zipfile
from collections.abc import Iterable, Iterator
from functools import cache
from importlib.machinery import SourceFileLoader
from importlib.util import MAGIC_NUMBER, source_hash
from pathlib import Path
from types import CodeType

from ... import __version__
from ...checkpoint.errors import InvalidConfigError

PACKAGES = ("checkpoint", "spark", "storage")
"""The subpackages that run inside Spark."""

_ROOT = Path(__file__).resolve().parents[2]
_NAME = "airflow_cairn"
_EPOCH = (1980, 1, 1, 0, 0, 0)
_MODE = 0o644 << 16
_UNCHECKED = (0b01).to_bytes(4, "little")
"""Flags of bytecode that is not compared with the source beside it (PEP 552)."""
_WITHOUT_REFERENCES = 2
"""The newest version of `marshal` whose bytes depend on the value alone, and not on other references to its parts."""


def runtime_zip(target_dir: str | os.PathLike[str]) -> Path:
    """Write the runtime into a folder, unless it is there.

    Args:
        target_dir: an existing folder.

    Returns:
        The zip: `airflow_cairn-<version>-<hash of its sources and of this Python>.zip`.

    Raises:
        InvalidConfigError: Cairn's own sources are not files on disk.
    """
    sources = dict(_sources())
    if f"{_NAME}/spark/epoch.py" not in sources:
        raise InvalidConfigError(
            "Cairn's sources are not there as files, so they cannot be shipped to Spark. Install airflow-cairn "
            "unpacked, not as a zip",
            looked_in=_ROOT.name,
        )
    digest = hashlib.sha256(MAGIC_NUMBER + bytes([sys.flags.optimize]))
    for name, data in sources.items():
        digest.update(f"{name}\0{len(data)}\0".encode() + data)
    target = Path(target_dir) / f"{_NAME}-{__version__}-{digest.hexdigest()[:12]}.zip"
    if not target.exists():
        _write(target, ((f"{name}{more}", it) for name, data in sources.items() for more, it in _compiled(name, data)))
    return target


def runtime_wheel(target_dir: str | os.PathLike[str]) -> Path:
    """Write the runtime as a wheel, for a service that installs Python code and puts no zip on a path.

    Args:
        target_dir: an existing folder.

    Returns:
        The wheel: it has the zip's sources and no bytecode, and the zip's hash as its build tag.

    Raises:
        InvalidConfigError: Cairn's own sources are not files on disk.
    """
    zipped = runtime_zip(target_dir)
    target = zipped.with_name(f"{_NAME}-{__version__}-0{zipped.stem.rpartition('-')[2]}-py3-none-any.whl")
    about = f"{_NAME}-{__version__}.dist-info"
    members = {
        **dict(_sources()),
        f"{about}/METADATA": f"Metadata-Version: 2.1\nName: airflow-cairn\nVersion: {__version__}\n".encode(),
        f"{about}/WHEEL": b"Wheel-Version: 1.0\nGenerator: airflow-cairn\nRoot-Is-Purelib: true\nTag: py3-none-any\n",
    }
    rows = [f"{name},sha256={_record(data)},{len(data)}" for name, data in members.items()]
    members[f"{about}/RECORD"] = "\n".join([*rows, f"{about}/RECORD,,\n"]).encode()
    if not target.exists():
        _write(target, members.items())
    return target


def _record(data: bytes) -> str:
    return base64.urlsafe_b64encode(hashlib.sha256(data).digest()).rstrip(b"=").decode()


def _compiled(name: str, data: bytes) -> Iterator[tuple[str, bytes]]:
    yield "", data
    yield "c", _bytecode(name, data)


def _sources() -> Iterator[tuple[str, bytes]]:
    yield f"{_NAME}/__init__.py", (_ROOT / "__init__.py").read_bytes()
    found = (path for package in PACKAGES for path in (_ROOT / package).rglob("*.py"))
    for path in sorted(found, key=lambda path: path.relative_to(_ROOT).as_posix()):
        yield f"{_NAME}/{path.relative_to(_ROOT).as_posix()}", path.read_bytes()


def _write(target: Path, members: Iterable[tuple[str, bytes]]) -> None:
    """Write under a temporary name first: two operators may write into one folder at the same moment."""
    handle, temporary = tempfile.mkstemp(dir=target.parent, prefix=".cairn-", suffix=".zip")
    try:
        # Stored, not deflated, so that the bytes do not depend on the version of zlib.
        with os.fdopen(handle, "wb") as file, zipfile.ZipFile(file, "w", zipfile.ZIP_STORED) as archive:
            for name, data in members:
                info = zipfile.ZipInfo(name, _EPOCH)
                info.external_attr = _MODE
                archive.writestr(info, data)
        Path(temporary).chmod(0o644)
        Path(temporary).replace(target)
    except BaseException:
        Path(temporary).unlink(missing_ok=True)
        raise


def _bytecode(name: str, source: bytes) -> bytes:
    path = _ROOT / name.removeprefix(f"{_NAME}/")
    return MAGIC_NUMBER + _UNCHECKED + source_hash(source) + _code(path, name, source)


@cache  # most of the time that a zip takes, and a process may submit again
def _code(path: Path, name: str, _source: bytes) -> bytes:
    """Return a module's code: this Python's cached one, or newly compiled."""
    code = SourceFileLoader(path.stem, str(path)).get_code(path.stem)
    assert code is not None  # the module is a file with a source
    return marshal.dumps(_named(code, name), _WITHOUT_REFERENCES)


def _named(code: CodeType, name: str) -> CodeType:
    """Return the code with another file name, so that no path of this machine is shipped."""
    inner = tuple(_named(each, name) if isinstance(each, CodeType) else each for each in code.co_consts)
    return code.replace(co_filename=name, co_consts=inner)
