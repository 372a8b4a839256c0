"""Every reason says what happened and what to do, in messages and on the page for operators alike."""

import re

import pytest

from airflow_cairn.checkpoint.reasons import Reason
from airflow_cairn.checkpoint.remedies import REMEDIES
from airflow_cairn.cli.main import parser

COMMANDS = {"show", "resume", "checkpoints", "verify"}


def test_every_reason_has_a_row() -> None:
    assert set(REMEDIES) == set(Reason)
    assert list(REMEDIES) == list(Reason), "in the order of the enum"


@pytest.mark.parametrize("reason", Reason)
def test_a_row_is_two_sentences_or_more_and_a_command_that_exists(reason: Reason) -> None:
    way = REMEDIES[reason]
    said = way.text("flights", "s3://lake/cairn", 4)
    assert way.meaning.endswith(".")
    assert way.action.endswith(".")
    assert "{" not in said
    for command, rest in re.findall(r"`cairn (\w+)([^`]*)`", said):
        assert command in COMMANDS
        assert rest == f" flights{' 4' if command == 'show' else ''} --storage s3://lake/cairn"
        parser().parse_args([command, *rest.split()])
