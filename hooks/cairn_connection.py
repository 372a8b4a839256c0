"""Airflow's connection type `cairn`: the form of a storage's connection, and its Test button."""

from __future__ import annotations

import os
import secrets

from airflow.sdk import BaseHook

from ..checkpoint.secrets.masking import masked
from ..storage.errors import CairnError
from ..storage.probe import probe
from .storage import CheckpointStorageHook

STORAGE = "storage"
"""The extra that names what the Test button tries."""


class CairnConnectionHook(BaseHook):
    """What Airflow's form of a connection of type `cairn` makes to test it. DAGs name the connection as `aws_conn_id`.

    Args:
        cairn_conn_id: the connection.
    """

    conn_name_attr = "cairn_conn_id"
    default_conn_name = "cairn_default"
    conn_type = "cairn"
    hook_name = "Cairn storage"

    def __init__(self, cairn_conn_id: str = default_conn_name) -> None:
        super().__init__()
        self.cairn_conn_id = cairn_conn_id

    def test_connection(self) -> tuple[bool, str]:
        """Probe the storage that the connection names, with its credentials; the process that asks does it."""
        try:
            storage = self.get_connection(self.cairn_conn_id).extra_dejson.get(STORAGE)
            if not storage:
                return False, "the connection names no storage to be tested: fill in Storage, such as s3://lake/cairn"
            store = CheckpointStorageHook(storage, self.cairn_conn_id).open_store()
            probe(store, nonce=secrets.token_hex(8))
        except CairnError as error:
            return False, masked(str(error), environ=os.environ)
        return True, f"{store.describe()} passes the probe: its conditional writes hold"
