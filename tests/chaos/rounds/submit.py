"""Stands in for `spark-submit`: a driver without Spark, that can be held where a round's fault is to meet it.

It notes its process under `reached/<job>/<epoch>/<stage>` and waits while `hold/<job>/<epoch>/<stage>` is there. Only
the first driver of a stage is held, because the fault takes the file away.
"""

from __future__ import annotations

import os
import sys
import threading
from pathlib import Path

from airflow_cairn.checkpoint import Coordinator
from airflow_cairn.checkpoint.documents.attempt import Handover
from airflow_cairn.checkpoint.reasons import AckAnswer
from airflow_cairn.spark.handover.conf import parse
from tests.chaos.protocol.driver import Driver


def main(words: list[str]) -> int:
    """Read, write and acknowledge; gives the exit status."""
    pairs = [words[at + 1] for at, word in enumerate(words) if word == "--conf"]
    handed = parse(dict(pair.split("=", 1) for pair in pairs).get)
    coordinator = Coordinator(handed.open_store(), handed.job)
    handover, _ = coordinator.files.read(Handover, handed.handover_key)
    gates, where = Path(os.environ["CHAOS_GATES"]), f"{handover.job}/{handover.epoch}/{handover.stage}"
    reached = gates / "reached" / where
    reached.parent.mkdir(parents=True, exist_ok=True)
    reached.with_suffix(".new").write_text(str(os.getpid()))
    reached.with_suffix(".new").rename(reached)
    pause = threading.Event()
    while (gates / "hold" / where).exists():
        pause.wait(0.1)
    ack = Driver(coordinator, handover, doubled=(gates / "doubled" / where).exists()).written()
    answer = coordinator.acknowledge(ack)
    print(answer)
    return 0 if answer is AckAnswer.SUCCESS else 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
