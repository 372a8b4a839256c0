"""The base of the servers of S3, Google Cloud Storage and Azure, for tests that run on each."""

from __future__ import annotations

from abc import abstractmethod
from pathlib import Path

from airflow_cairn.storage.open import StoreOptions

from .processes import stop_all
from .service import Service

MANY = 150


class BucketServer(Service):
    """A server of buckets on loopback."""

    def __init__(self, name: str, root: Path | None) -> None:
        super().__init__(name, root)
        self._made = 0
        self.port = 0

    @property
    @abstractmethod
    def endpoint_url(self) -> str:
        """The address for Cairn's store and for Spark."""

    @property
    def env(self) -> dict[str, str]:
        """The variables by which a process finds the account; none where no key is needed."""
        return {}

    @property
    @abstractmethod
    def options(self) -> StoreOptions:
        """The way of Cairn's store to it."""

    @abstractmethod
    def root_of(self, bucket: str) -> str:
        """Make an empty bucket, and give the URI of its root."""

    def new_root(self) -> str:
        """Make an empty bucket with a name of its own, and give the URI of its root."""
        self._made += 1
        return self.root_of(f"lake-{self._made}")

    def renew(self) -> None:
        """Start anew, empty, once many buckets were made: an emulator holds all that was ever written in memory."""
        if self._made >= MANY:
            stop_all(list(self._processes.values()))
            self._processes.clear()
            self._made = 0
            self.start()
