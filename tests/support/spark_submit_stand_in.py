"""Stands in for `spark-submit` where no JVM is needed: notes how it was started, then does what it was told.

What it is told comes by `spark.test.do`; acknowledging and declining go through the real domain and the real store.
"""

from __future__ import annotations

import json
import os
import signal
import sys
from pathlib import Path
from typing import Any

from airflow_cairn.checkpoint import Coordinator
from airflow_cairn.checkpoint.documents.acknowledgement import AckDocument, DeclineDocument, SubtaskAck
from airflow_cairn.checkpoint.documents.attempt import Handover
from airflow_cairn.checkpoint.reasons import AckAnswer, Reason
from airflow_cairn.spark.execution.log_lines import Application
from airflow_cairn.spark.handover.conf import parse


def _conf() -> dict[str, str]:
    words = sys.argv[1:]
    pairs = [words[at + 1] for at, word in enumerate(words) if word == "--conf"]
    return dict(pair.split("=", 1) for pair in pairs)


def main() -> int:
    """Note and act; gives the exit status."""
    conf = _conf()
    shipped = [path for path in sys.argv if path.endswith(".zip")]
    note = {
        "argv": sys.argv[1:],
        "conf": conf,
        "environ": dict(os.environ),
        "shipped": all(Path(path).exists() for path in ",".join(shipped).split(",") if path),
    }
    Path(os.environ["CAIRN_TEST_NOTE"]).write_text(json.dumps(note))
    what = conf["spark.test.do"]
    if what in ("nothing", "write"):
        if what == "write":
            from tests.support.plain_program import write_to  # here: PyArrow is a third of this program's time

            write_to(sys.argv[-1], [{"key": "BER", "n": 1}])
        return 0
    if what == "die":
        os.kill(os.getpid(), signal.SIGKILL)
    if what == "miss it":
        return 2  # as Python does that cannot open its script
    if what == "fail":
        print("Traceback: something went wrong")
        return 3
    if what == "raise":
        print('Traceback (most recent call last):\n  File "app.py", line 1\nValueError: the seventh row is bad')
        return 1
    if "spark.test.ui" in conf:
        print(f"{os.environ['CAIRN_OUTPUT_MARK']}{Application('app-1', conf['spark.test.ui'], logged=True).line()}")
    handed = parse(conf.get)
    coordinator = Coordinator(handed.open_store(), handed.job)
    handover, _ = coordinator.files.read(Handover, handed.handover_key)
    who: dict[str, Any] = {
        "job": handover.job,
        "checkpoint": handover.checkpoint,
        "epoch": handover.epoch,
        "stage": handover.stage,
        "token": handover.token,
    }
    if what.startswith("decline"):
        incurable, detail = what == "decline for good", "AnalysisException: no such column"
        why = DeclineDocument(**who, reason=Reason.CHECKPOINT_DECLINED, detail=detail, incurable=incurable)
        coordinator.decline(why)
        return 0 if what == "decline quietly" else 1
    if not coordinator.standing(handover).may_count:
        print("FencedError: this attempt has been replaced")
        return 1
    if what == "be replaced":
        coordinator.fail(handover.epoch, handover.stage, handover.claimant, "somebody else says so")
    if what == "lag":
        coordinator.complete(handover.checkpoint)
    if what == "acknowledge after a pause":
        coordinator.pause()
    ack = AckDocument(**who, attempt=handover.attempt, run="f" * 16, parallelism=1, subtasks=(SubtaskAck(0),))
    answer = coordinator.acknowledge(ack)
    print(answer)
    if what == "acknowledge, then be replaced":
        coordinator.fail(handover.epoch, "airports", "airports-1", "boom")
    return 1 if what == "lag" and answer is not AckAnswer.SUCCESS else 0


if __name__ == "__main__":
    sys.exit(main())
