"""`Mirror`: the listener that mirrors a job into another storage after each completion (semantics M1 to M5)."""

from __future__ import annotations

import copy
import logging
import secrets
from typing import TYPE_CHECKING

from ..checkpoint.masking import one_line
from ..checkpoint.validation import MIRROR_LISTENER
from ..storage.errors import CairnError
from ..storage.names import check_storage_uri

if TYPE_CHECKING:
    from ..checkpoint import Coordinator
    from ..checkpoint.extensions.committables import CheckpointNotice

log = logging.getLogger("airflow_cairn")


class Mirror:
    """Copies the job to another storage after each completed checkpoint, so that it can go on there.

    Put it into the `listeners` of the group; a group has one. A pass copies what is new since the last one, in the last
    task of the run. If the other storage does not answer, the task logs a warning and the run succeeds: the next pass
    copies everything that the mirror lacks then. How far it is behind is a metric, and on the job's page.

    Args:
        storage: URI of the mirror's storage, in another region or with another provider.
        aws_conn_id: Airflow connection for it, of the types that the group's `aws_conn_id` takes; None: the provider's
            own chain.

    Raises:
        InvalidKeyError: the URI has no accepted form.
        UnsupportedStorageError: its scheme is not supported.
    """

    name = MIRROR_LISTENER

    def __init__(self, storage: str, aws_conn_id: str | None = None) -> None:
        self.storage = check_storage_uri(storage)
        self.aws_conn_id = aws_conn_id
        self._coordinator: Coordinator | None = None

    def of_job(self, coordinator: Coordinator) -> Mirror:
        """Return this listener for one job."""
        mine = copy.copy(self)
        mine._coordinator = coordinator
        return mine

    def notify_checkpoint_complete(self, notice: CheckpointNotice) -> None:  # noqa: ARG002 - the newest one is copied
        """Bring the mirror up to the job's newest checkpoint; whatever goes wrong is logged: the run has succeeded."""
        from ..hooks.storage import CheckpointStorageHook
        from ..storage.probe import ensure_probed

        assert self._coordinator is not None, "the task binds it to its job"
        try:
            store = CheckpointStorageHook(self.storage, self.aws_conn_id).open_store()
            ensure_probed(store, nonce=secrets.token_hex(8))
            found = self._coordinator.mirror(store)
        except Exception as error:  # noqa: BLE001 - Airflow and its providers raise what they like, too
            said = str(error) if isinstance(error, CairnError) else one_line(repr(error))
            log.warning("The job was not mirrored to %s, and the mirror is as it was: %s", self.storage, said)
            return
        log.info(
            "Mirrored checkpoint %d to %s: %d files copied, %d bytes",
            found.checkpoint,
            self.storage,
            found.files,
            found.size_bytes,
        )

    def notify_checkpoint_aborted(self, notice: CheckpointNotice) -> None:
        """Do nothing: a mirror holds completed checkpoints only."""
