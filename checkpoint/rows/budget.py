"""How much may be read of a state where a person only wants to look at some of it."""

from __future__ import annotations


class TooMuchToReadError(Exception):
    """A budget is too small for what is to be read next."""


class ReadBudget:
    """What may still be read of a state's files.

    Args:
        size_bytes: how many bytes.
        keys: how many keys of runs. A few bytes may hold millions of keys, and they are all in memory.
    """

    def __init__(self, size_bytes: int, keys: int) -> None:
        self._bytes = size_bytes
        self._keys = keys

    def spend(self, size_bytes: int) -> None:
        """Take some bytes.

        Raises:
            TooMuchToReadError: so many are not left.
        """
        if size_bytes > self._bytes:
            raise TooMuchToReadError
        self._bytes -= size_bytes

    def spend_key(self) -> None:
        """Take one key.

        Raises:
            TooMuchToReadError: none is left.
        """
        if not self._keys:
            raise TooMuchToReadError
        self._keys -= 1
