"""A stage that acknowledges without a Spark job, where it is only asked what Airflow does and what an epoch reads.

It has no session and no JVM (tests/support/driver_stand_in.py); all else is as in any driver in client mode.

Its state is a list of the runs that it has read, in order; an epoch folded in twice or left out shows there.

It can be held as `dags/applications/counting.py` can, at the point of its stage's name. What it is handed to read goes
to `read/<job>/<run>/<attempt>/<stage>`. It fails, without a word, where there is `fail/<job>/<run>/<stage>`.
"""

from __future__ import annotations

import json
import os
import sys
import threading
from pathlib import Path

from airflow_cairn.checkpoint import Coordinator
from airflow_cairn.checkpoint.documents import layout
from airflow_cairn.checkpoint.documents.acknowledgement import AckDocument, SubtaskAck
from airflow_cairn.checkpoint.documents.attempt import Handover
from airflow_cairn.checkpoint.documents.metadata import StageLine
from airflow_cairn.checkpoint.reasons import AckAnswer
from airflow_cairn.checkpoint.store import metadata_file
from airflow_cairn.spark.handover.conf import parse


def main() -> int:
    """Note and acknowledge; gives the exit status."""
    gates = Path(os.environ["CAIRN_TEST_GATES"])
    handed = parse(json.loads(os.environ["CAIRN_TEST_DRIVER_CONF"]).get)
    coordinator = Coordinator(handed.open_store(), handed.job)
    handover, _ = coordinator.files.read(Handover, handed.handover_key)
    where = f"{handover.job}/{layout.run_id_of(handover.epoch)}/{handover.attempt}"
    owes = [layout.run_id_of(each.epoch) for each in handover.backlog]
    note(gates / "read" / where / handover.stage, json.dumps({"sources": handover.slice.sources, "owes": owes}))
    note(gates / "reached" / where / handover.stage, str(os.getpid()))
    pause = threading.Event()
    while (gates / "hold" / where / handover.stage).exists():
        pause.wait(0.05)
    if (gates / "fail" / handover.job / layout.run_id_of(handover.epoch) / handover.stage).exists():
        return 1
    ack = AckDocument(
        job=handover.job,
        checkpoint=handover.checkpoint,
        epoch=handover.epoch,
        stage=handover.stage,
        token=handover.token,
        attempt=handover.attempt,
        run="f" * 16,
        parallelism=1,
        subtasks=(SubtaskAck(0),),
        values={"folded": folded(coordinator, handover)},
    )
    return 0 if coordinator.acknowledge(ack) is AckAnswer.SUCCESS else 1


def folded(coordinator: Coordinator, handover: Handover) -> list[str]:
    """Give the runs that the stage has read, by what it restores, and those that it reads now."""
    before: list[str] = []
    for line in metadata_file.read(coordinator.files, handover.restore.metadata) if handover.restore else ():
        if isinstance(line, StageLine) and line.stage == handover.stage:
            before = line.values.get("folded", [])
    new = [*(each.epoch for each in handover.backlog if each.slice), *(each.epoch for each in handover.replay)]
    return [*before, *(layout.run_id_of(epoch) for epoch in (*new, handover.epoch))]


def note(path: Path, text: str) -> None:
    """Write a file so that nobody sees half of it."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.with_suffix(".new").write_text(text)
    path.with_suffix(".new").rename(path)


if __name__ == "__main__":
    sys.exit(main())
