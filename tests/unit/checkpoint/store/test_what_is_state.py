"""What counts as a stage's state when it is restored (semantics R3, R4)."""

from airflow_cairn.checkpoint.documents.acknowledgement import Output
from airflow_cairn.checkpoint.documents.attempt import Execution, StageSpec
from airflow_cairn.checkpoint.documents.metadata import StageLine
from airflow_cairn.checkpoint.documents.strict_json import Json
from airflow_cairn.checkpoint.rules.restored_state import match
from airflow_cairn.checkpoint.store.verification import restored_stage

WATERMARKS: dict[str, Json] = {
    "_cairn_watermark": {"at": 1, "idle": False},
    "_cairn_watermark_inputs": {},
    "_cairn_ttl": {},
}
NOTE: dict[str, Json] = {"_cairn_checks": {"execution": "t", "failed": ["the check 'x' failed"]}}
READER = Execution("t", 1, 1)


def test_a_watermark_alone_is_no_state() -> None:  # semantics R3, R4
    """Each stage that reads an upstream with a watermark has one, so a stateless stage stays free to go or to grow."""
    line = StageLine("clean", READER, 8, values=WATERMARKS, max_parallelism=128)
    found = restored_stage(line)
    assert found.state == ()
    assert match([found], [StageSpec("clean", (), 200)]) == {"clean": 512}


def test_a_check_that_only_warned_is_no_state() -> None:  # semantics R3
    """A stage whose check has failed once stays free to go: its author cannot drop the note"""
    assert restored_stage(StageLine("clean", READER, 1, values=NOTE)).state == ()


def test_a_large_one_that_is_a_file_is_none_either() -> None:  # semantics R3
    line = StageLine("clean", READER, 1, outputs=(Output("value", "_cairn_watermark_inputs", "f/"),))
    assert restored_stage(line).state == ()


def test_timers_and_what_an_author_puts_are_state() -> None:  # semantics R3
    timers = Output("state", "_cairn_timers.windows", "f/")
    line = StageLine("clean", READER, 1, outputs=(timers,), values={**WATERMARKS, "rows": 3})
    assert restored_stage(line).state == ("state._cairn_timers.windows", "value.rows")
