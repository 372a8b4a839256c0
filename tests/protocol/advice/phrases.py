"""The advice in Cairn's texts, phrase by phrase: what each asks a person to do.

A phrase that is not here is not understood (`unknown`), so that a new advice cannot be forgotten.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from dataclasses import dataclass
from enum import Enum, auto


class Act(Enum):
    """Act of a person."""

    LOOK = auto()
    """Types a command that changes nothing."""
    TYPE = auto()
    """Types a command of `cairn`, or of `airflow`."""
    TYPE_IF_STOPPED = auto()
    """Types a command, if the job is stopped."""
    MEND = auto()
    """Mends the cause, whatever that is."""
    CLEAR_TASKS = auto()
    """Clears the tasks that the text names, with Downstream."""
    CLEAR_THIS = auto()
    """Clears the task whose text it is, with Downstream."""
    CLEAR_STAGE = auto()
    """Clears the stage that the command before names, with Downstream."""
    CLEAR_FAILED = auto()
    """Clears the tasks that have failed, with Downstream."""
    CLEAR_LATE = auto()
    """Clears the stages that have not acknowledged, with Downstream."""
    RAISE_TIMEOUT = auto()
    """Raises the timeout in the DAG file, and mends nothing else."""
    PUT_BACK = auto()
    """Puts stages back into the DAG file."""
    CLEAR_TRIGGER = auto()
    """Clears the task that triggers, with Downstream."""
    CLEAR_TRIGGER_IF_REMOVED = auto()
    """Clears the task that triggers, if a stage that has not acknowledged is no longer in the DAG file."""
    CLEAR_RUN = auto()
    CLEAR_RUN_IF_NONE_FAILED = auto()
    CLEAR_OTHER_RUNS = auto()
    """Clears the runs that the text or its command names, the oldest first."""
    UNPAUSE = auto()
    MARK = auto()
    """Marks the run, and leaves it."""
    LEAVE = auto()
    """Leaves the run as it is: another one has read what it was to read."""
    TRIGGER_REST = auto()
    """Types the command that has a run made for what is left, and leaves this one."""
    BACKFILL = auto()
    """Has Airflow make the runs of some days."""
    TRIGGER_AGAIN = auto()
    """Types the command that has a run made which reads again, and leaves this one."""
    NOTHING = auto()
    """Does nothing: it is for another program, or goes on by itself."""


_COMMAND = r"`(?P<command>cairn (?:{})\b[^`]*)`"
_LOOKS = _COMMAND.format("show|checkpoints|verify|jobs|doctor|savepoints|stats|state|diff|servers|regions")
_ACTS = _COMMAND.format("resume|rewind|adopt|forget-listener|savepoint|stop|dispose|checkpoint|compact|clean")

PHRASES: tuple[tuple[str, Act, str], ...] = (
    (rf"If the job is stopped, type {_ACTS}", Act.TYPE_IF_STOPPED, "the_job_is_rewound_while_it_runs"),
    (
        r"Trigger a run for what is left(?:[^`]{0,20}`(?P<command>cairn checkpoint [^`]*--window [^`]*)`)?",
        Act.TRIGGER_REST,
        "another_run_has_read_some_of_its_days",
    ),
    (r"trigger a run that reads it again by `(?P<command>[^`]*)`", Act.TRIGGER_AGAIN, "a_day_before_it_is_unread"),
    (_LOOKS, Act.LOOK, "a_pause_beside_another_run"),
    (_ACTS, Act.TYPE, "a_day_before_it_is_unread"),
    (
        r"choose Clear Task Instance at .*?, with Downstream switched on",
        Act.CLEAR_TASKS,
        "a_stage_is_removed_while_it_runs",
    ),
    (r"'Clear only failed tasks'", Act.NOTHING, "a_stage_is_removed_while_it_runs"),
    (r"^Nothing: it completed", Act.NOTHING, "a_region_is_left_out"),
    (r"has read its window, and a clear would end skipped", Act.LEAVE, "another_run_has_read_its_day"),
    (r"and the next run reads it first; a clear would end skipped", Act.LEAVE, "a_region_is_left_out"),
    (
        r"leave the run as it is: the next run reads what is kept first, and a clear would end skipped",
        Act.LEAVE,
        "a_region_is_left_out",
    ),
    (
        r"by `airflow backfill create [^`]*--from-date (?P<dates>\S+ --to-date \S+)[^`]*`",
        Act.BACKFILL,
        "a_day_before_it_is_unread",
    ),
    (r"[Cc]lear that stage with Downstream", Act.CLEAR_STAGE, "too_many_checkpoints_fail"),
    (r"clear the failed stages(?: with Downstream)?", Act.CLEAR_FAILED, "another_run_completes_after_it_failed"),
    (r"once you have mended that", Act.MEND, "a_pause_beside_another_run"),
    (r"and cleared its task", Act.CLEAR_TASKS, "a_pause_beside_another_run"),
    (
        r"[Cc]lear (?:this task(?:, with Downstream| once the upstream)|the task, and let it run)",
        Act.CLEAR_THIS,
        "a_source_answers_what_cannot_be_kept",
    ),
    (r"Clear them with Downstream, and this task with them", Act.CLEAR_TASKS, "a_stage_is_marked"),
    (r"[Oo]r put .*? back into the file", Act.PUT_BACK, "a_stage_is_removed_while_it_runs"),
    (r"then clear its task and those that have failed", Act.CLEAR_FAILED, "a_stage_is_removed_while_it_runs"),
    (
        r"if the DAG file no longer has one of them, clear the task that triggers the checkpoint instead",
        Act.CLEAR_TRIGGER_IF_REMOVED,
        "a_stage_is_removed",
    ),
    (r"clear the stages that have not acknowledged", Act.CLEAR_LATE, "a_pause_beside_another_run"),
    (r"If no stage has failed, clear the run", Act.CLEAR_RUN_IF_NONE_FAILED, "another_run_completes_after_it_failed"),
    (r"[Cc]lear (?:the whole run|its DAG run|this run|the run\b)", Act.CLEAR_RUN, "a_day_before_it_is_unread"),
    (r"\b[Cc]lear the task that\s+triggers(?: the checkpoint)?", Act.CLEAR_TRIGGER, "a_master_hook_fails"),
    (r"\(or clear\) the task that triggers(?: the checkpoint| it)?", Act.CLEAR_TRIGGER, "its_first_stage_is_marked"),
    (r"\(or clear\) this task", Act.CLEAR_THIS, "a_master_hook_fails"),
    (r"(?:then|now),? clear (?:the task|the stage now)\b", Act.CLEAR_THIS, "a_stopped_job_takes_no_savepoint"),
    (r"[Mm]end (?:the (?:cause|source|hook)|what the message names|that|it)\b", Act.MEND, "a_master_hook_fails"),
    (r"[Cc]hange what the error names", Act.MEND, "a_stopped_job_takes_no_savepoint"),
    (r"Check the keys and their rights", Act.MEND, "the_store_refuses_everything"),
    (r"Find out why checkpoints do not complete", Act.MEND, "the_queue_is_full"),
    (r"Give this DAG a job name of its own", Act.MEND, "another_dag_owns_the_job"),
    (r"Give the stage its old name by", Act.MEND, "its_savepoint_has_more_than_the_job"),
    (r"leave that state behind by", Act.MEND, "its_savepoint_has_more_than_the_job"),
    (r"put the file back", Act.MEND, "every_checkpoint_is_damaged"),
    (r"Choose another key", Act.MEND, "the_storage_is_wrong"),
    (r"Give the savepoint's own folder", Act.MEND, "its_savepoint_is_missing"),
    (r"Raise `CheckpointConfig\(timeout=…\)`, or make them faster", Act.RAISE_TIMEOUT, "the_checkpoint_expires"),
    (r"its log says why\. Correct that", Act.MEND, "its_other_first_stage_cannot_trigger"),
    (r"then clear both tasks", Act.CLEAR_FAILED, "its_other_first_stage_cannot_trigger"),
    (r"`?airflow dags unpause (?:DAG_ID|\S+)", Act.UNPAUSE, "the_dag_is_paused_when_a_stage_begins"),
    (r"[Mm]ark (?:this run as|it) failed", Act.MARK, "its_files_are_written_again"),
)
"""Each with the situation whose texts have it."""

ELSEWHERE = (
    # By the person who types the command, looks at the finding of `cairn doctor` or reads the page; no run has failed.
    r"clear the runs …",
    r"airflow dags clear DAG_ID",
    r"az storage container legal-hold clear",
    r"^unpause$|[Uu]npause (?:the DAG|its DAG|it)\b",
    r"^clear$",
    r"[Cc]lear (?:one after the other|those DAG runs|these runs|the runs since)",
    r"you clear what failed",
    r"Clear its run, and it runs again",
    r"do not clear them",
    r"cairn (?:resume|clean) … --storage",
    r"cairn regions lists them|cairn help (?:COMMAND|errors|reasons|findings)",
    r"see cairn show",
    r"\(cairn rewind --abort-pending\)",
    r"cairn adopt … --(?:abort-pending|dag)",
    r"cairn adopt JOB --dag",
    r"cairn forget-listener … …",
    r"clear it if it has failed",
    r"cairn compact \(or submit",
    r"^cairn (?:diff|state|server|server authority)$",
    r"Run a backfill for what is left, and mark this run",
    r"mark each edge of the path",
    # Of a run of whose files another has read some: the callback and `cairn show` beside it still lead back to a clear.
    r"[Mm]ark this run as done",
    # Logs say these beside the error that the task ends with, or of a task that goes on.
    r"[Cc]lear manually: (?:…|on the page)|to clear manually",
    r"Clear task (%s|\S+), which clears these stages too",
    r"If one does not start, clear its task",
    r"Trigger a run of the DAG; its job is shown here then",
    r"\(…\); clear it",
    r"[Nn]othing is left to clear",
    r"clear the stage now",
    # To move a job to another region, a person decides; tests/real/s3/test_mirror.py types what the page says.
    r"cairn (?:mirror|activate)\b",
    # No advice: what is refused, and names of threads.
    r"a clear without|a task to clear needs",
    r"cairn (?:watches|closes its|ends in|keeps the|session) ",
)
"""Phrases that are no advice to a person who reads why a run has failed."""


@dataclass(frozen=True, slots=True)
class Step:
    """One thing that a text asks for."""

    act: Act
    text: str
    command: str = ""
    tasks: tuple[str, ...] = ()
    dates: str = ""
    other_way: bool = False
    """Whether it begins another way out: one does this or what came before."""
    of_all: bool = False
    """Whether it ends each of the ways out before it."""


VERBS = re.compile(r"(?<![\w-])(?:[Cc]lear|[Mm]ark|[Uu]npause|[Tt]rigger a run|cairn [a-z-]+)(?![\w-])")
"""Words that an advice has."""


NAMED = (
    r"choose Clear Task Instance at (\S+(?:, [^\s,]+)*), with",
    r"(\S+) \((?:success|failed|upstream_failed|removed)\): ",
    r"`(\w+)` failed",
)
"""Ways in which texts name the tasks to clear."""


OTHER_WAY = re.compile(r"(?:(?:[.;,] [Oo]r|, or)(?:, if [^.;]*, type:)? \w*|To go on without them,)\s*$")
"""Words with which a text begins another way out."""


def steps(text: str) -> list[Step]:
    """Give what a text asks for, in its order."""
    found: dict[tuple[int, int], Step] = {}
    for pattern, act, _ in PHRASES:
        for match in re.finditer(pattern, text):
            if any(match.start() < end and begin < match.end() for begin, end in found):
                continue
            more = {name: value for name, value in match.groupdict().items() if value is not None}
            before = text[: match.start()]
            other = act is Act.PUT_BACK or OTHER_WAY.search(before) is not None
            tasks = _named(text) if act is Act.CLEAR_TASKS else ()
            of_all = before.endswith(". Then ")
            found[match.span()] = Step(act, match[0], tasks=tasks, other_way=other, of_all=of_all, **more)
    return [step for _, step in sorted(found.items(), key=lambda each: each[0])]


def _named(text: str) -> tuple[str, ...]:
    named = [each for pattern in NAMED for found in re.findall(pattern, text) for each in found.split(", ")]
    return tuple(each if "." in each else f"epoch.{each}" for each in named)


def unknown(text: str) -> list[str]:
    """Give the pieces of a text that sound like advice and are none of the phrases."""
    if VERBS.search(text) is None:
        return []
    known = (*(pattern for pattern, _, _ in PHRASES), *ELSEWHERE)
    covered = [match.span() for pattern in known for match in re.finditer(pattern, text)]
    return [
        text[max(0, verb.start() - 40) : verb.end() + 60]
        for verb in VERBS.finditer(text)
        if not any(begin <= verb.start() and verb.end() <= end for begin, end in covered)
    ]


def literals(source: str) -> Iterator[str]:
    """Give the texts of a module, with `…` for what is filled in; no docstrings."""
    tree = ast.parse(source)
    passed = {id(each.value) for each in ast.walk(tree) if isinstance(each, ast.Expr)}
    for node in ast.walk(tree):
        text = None if id(node) in passed else _text(node)
        if text is not None:
            passed |= {id(each) for each in ast.walk(node)}
            yield text


def _text(node: ast.AST) -> str | None:
    match node:
        case ast.Constant(value=str(text)):
            return text
        case ast.JoinedStr(values=parts):
            return "".join(_text(part) or "…" for part in parts)
        case ast.BinOp(left=left, op=ast.Add(), right=right):
            texts = (_text(left), _text(right))
            return None if None in texts else "".join(filter(None, texts))
    return None
