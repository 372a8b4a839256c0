"""One boto3 client for each server and credentials in a process; the one module of Cairn that imports boto3.

Making a client costs 35 CPU milliseconds, keeping one 0.7 MB, and each has connections of its own. So every store that
is opened with equal options in an equal environment shares one, also between threads, which boto3's clients allow. A
client is kept while a store uses it; the last few are kept beyond, for a process that opens one store after another.

A forked process begins without any: connections must not be shared between processes.
"""

from __future__ import annotations

import os
import threading
from collections import deque
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import Any
from weakref import WeakValueDictionary

import boto3
import botocore.session
from botocore import exceptions as boto
from botocore.config import Config
from botocore.loaders import create_loader

from ..errors import UnsupportedStorageError
from .options import S3Options

_CONNECTIONS = 32
_KEPT = 4
_PREFIXES = ("AWS_", "BOTO")
_NAMES = frozenset({"HOME", "HTTP_PROXY", "HTTPS_PROXY", "NO_PROXY", "REQUESTS_CA_BUNDLE"})
_FILES = {"AWS_SHARED_CREDENTIALS_FILE": "~/.aws/credentials", "AWS_CONFIG_FILE": "~/.aws/config"}

_Facts = tuple[object, ...]


@dataclass
class _Clients:
    """The clients of this process, by all that a client is made from."""

    lock: threading.Lock = field(default_factory=threading.Lock)
    used: WeakValueDictionary[_Facts, Any] = field(default_factory=WeakValueDictionary)
    latest: deque[Any] = field(default_factory=lambda: deque(maxlen=_KEPT))

    def give(self, options: S3Options, uri: str) -> Any:
        # Within the lock also while one is made, so that a thousand triggers that start together make one.
        with self.lock:
            facts = (options, *_surroundings())
            client = self.used.get(facts)
            if client is None:
                client = self.used[facts] = _make(options, uri)
            if client not in self.latest:
                self.latest.append(client)
            return client


_clients = _Clients()


def client_for(options: S3Options, uri: str) -> Any:
    """Give the client of these options, a new one if this process has none.

    Args:
        options: endpoint, region, credentials and bounds.
        uri: the storage, for the message.

    Raises:
        UnsupportedStorageError: boto3 cannot make a client of these options.
    """
    return _clients.give(options, uri)


def _forget() -> None:
    global _clients  # noqa: PLW0603 - the lock may be held by a thread that the fork has not taken along
    _clients = _Clients()


os.register_at_fork(after_in_child=_forget)


def _surroundings() -> _Facts:
    """Give what boto3 reads besides the options when it makes a client; another key pair there is another client."""
    variables = {
        name: value for name, value in os.environ.items() if name.startswith(_PREFIXES) or name.upper() in _NAMES
    }
    files = (Path(os.environ.get(name, usual)).expanduser() for name, usual in _FILES.items())
    return (frozenset(variables.items()), *map(_version, files))


def _version(path: Path) -> tuple[int, int, int] | None:
    try:
        found = path.stat()
    except OSError:
        return None
    return found.st_ino, found.st_mtime_ns, found.st_size


@cache
def _loader() -> Any:
    """Give the reader of botocore's service descriptions; shared, because parsing them is most of a client's cost."""
    return create_loader()


def _make(options: S3Options, uri: str) -> Any:
    try:
        core = botocore.session.get_session()
        core.register_component("data_loader", _loader())
        session = boto3.session.Session(
            botocore_session=core,
            aws_access_key_id=options.access_key,
            aws_secret_access_key=options.secret_key,
            aws_session_token=options.session_token,
            region_name=options.region,
        )
        return session.client(
            "s3",
            endpoint_url=options.endpoint_url,
            region_name=options.region or session.region_name or "us-east-1",
            verify=options.verify,
            config=Config(
                retries={"total_max_attempts": 1, "mode": "standard"},
                s3={"addressing_style": "path" if options.uses_path_style else "auto"},
                connect_timeout=options.connect_timeout_s,
                read_timeout=options.read_timeout_s,
                max_pool_connections=_CONNECTIONS,
                tcp_keepalive=True,
                # Many stores other than AWS refuse or mangle the trailing checksums that newer SDKs send by default.
                request_checksum_calculation="when_required",
                response_checksum_validation="when_required",
                user_agent_extra="airflow-cairn",
            ),
        )
    except (boto.BotoCoreError, ValueError) as error:
        raise UnsupportedStorageError(f"boto3 cannot use these S3 options: {error}. Correct them", uri=uri) from error
