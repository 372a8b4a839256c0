"""After each failure the command says what to type next: a line that `cairn` itself can read (semantics O2)."""

import shlex
from collections.abc import Iterator
from pathlib import Path

import pytest

from airflow_cairn.checkpoint import errors as domain
from airflow_cairn.checkpoint.savepoints.take import Savepoints
from airflow_cairn.cli.main import main, parser
from airflow_cairn.cli.output import hints
from airflow_cairn.cli.output.hints import Typed, after
from airflow_cairn.storage import errors as stores
from airflow_cairn.storage import open_store
from airflow_cairn.storage.errors import CairnError
from tests.support.command import Cairn
from tests.support.world.world import World

STORE = ("--storage", "s3://lake/the jobs", "--endpoint-url", "http://127.0.0.1:9000", "--conn", "lake")
LINES = (
    ("jobs", *STORE),
    ("show", "flights", "3", *STORE),
    ("verify", "s3://kept/flights-7"),
    ("rewind", "flights", "--to", "2", *STORE),
    ("savepoint", "flights", *STORE),
    ("stop", "flights", "--airflow-url", "http://127.0.0.1:8080", *STORE),
    ("dispose", "s3://kept/flights-7", *STORE),
    ("doctor", *STORE),
    ("checkpoint", "flights", "--airflow-url", "http://127.0.0.1:8080"),
    ("regions", "flights.py", "flights"),
)


def documented() -> Iterator[CairnError]:
    """Give each error of the domain and of the stores, by class and code."""
    for each in hints.errors():
        found = getattr(domain, each.name, None) or getattr(stores, each.name, None)
        if found is not None:
            yield found("it failed", code=each.code, dag="flights")


PARSER = parser()
"""One for all lines: to make it takes longer than to read a line."""


def typed(*words: str) -> Typed:
    return Typed(words, PARSER.parse_args(words))


@pytest.mark.parametrize("words", LINES, ids=lambda words: words[0])
def test_what_comes_next_can_be_typed(words: tuple[str, ...], capsys: pytest.CaptureFixture[str]) -> None:
    asked = typed(*words)
    found = list(documented())
    assert len(found) > 40
    for error in found:
        follows = after(error, asked)
        program, *rest = shlex.split(follows.removeprefix("AWS_PROFILE=PROFILE "))
        assert program in {"cairn", "aws", "ls", "pip", "airflow", "read"}, (error.code, follows)
        if program != "cairn":
            continue
        if rest[-1] == "--help":
            with pytest.raises(SystemExit, match="0"):
                PARSER.parse_args(rest)
            assert capsys.readouterr().out.startswith(f"usage: cairn {rest[0]} ")
            continue
        read = PARSER.parse_args(rest)
        if "--storage" in words and read.on_store:
            assert (read.storage, read.endpoint_url, read.conn) == (STORE[1], STORE[3], STORE[5]), (error.code, follows)


def refused(code: str, **facts: object) -> CairnError:
    return domain.RefusedError("x", code=code, **facts)


NO_RIGHT = stores.ForbiddenError("x", code="missing_right")


@pytest.mark.parametrize(
    ("error", "words", "follows"),
    [
        (stores.UnavailableError("x"), ("show", "flights", "3"), "cairn show flights 3"),
        (stores.ForbiddenError("x", code="no_credentials"), ("jobs",), "AWS_PROFILE=PROFILE cairn jobs"),
        (NO_RIGHT, ("jobs", "--region", "r"), "cairn doctor --storage URI --region r"),
        (NO_RIGHT, ("doctor", "--read-only"), "cairn doctor --read-only"),
        (stores.DocumentError("x", code="newer_format"), ("jobs",), "pip install --upgrade airflow-cairn"),
        (domain.NoCheckpointError("x", jobs="rides"), ("stats", "fligths"), "cairn jobs --storage URI"),
        (domain.NoCheckpointError("x"), ("stats", "flights"), "cairn checkpoints flights --storage URI"),
        (refused("savepoint_refused", job="rides"), ("dispose", "s3://k/s"), "cairn savepoints rides --storage URI"),
        (refused("rewind_refused", option="--yes"), ("rewind", "f", "--to", "2"), "cairn rewind f --to 2 --yes"),
        (refused("no_such_dag", dag="f", paused=True), ("checkpoint", "f"), "airflow dags unpause f"),
        (refused("no_such_dag", dag="f"), ("checkpoint", "f"), "airflow dags list"),
        (domain.RetryLaterError("x", code="dag_not_paused"), ("stop", "f", "--dag", "own"), "airflow dags pause own"),
    ],
)
def test_it_fits_the_failure(
    error: CairnError, words: tuple[str, ...], follows: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("CAIRN_STORAGE", raising=False)
    assert after(error, typed(*words)) == follows


def test_a_request_goes_on_under_the_id_that_was_made_up(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:  # semantics P1
    world = World(open_store(f"file://{tmp_path / 'store'}"))
    world.run_epoch("a")

    def away(*_: object) -> None:
        raise stores.UnavailableError("the store does not answer")

    monkeypatch.setattr(Savepoints, "take", away)
    words = ["savepoint", "flights", f"file://{tmp_path}/kept", "--storage", world.store.uri]
    assert main(words) == 2
    request, error, follows, _ = capsys.readouterr().err.split("\n")
    assert error == "cairn: the store does not answer"
    made_up = request.removeprefix("request id: ")
    assert follows == f"next: {shlex.join(('cairn', *words))} --request-id {made_up}"


def test_damage_is_followed_by_who_explains_it(tmp_path: Path, cairn: Cairn) -> None:
    world = World(open_store(f"file://{tmp_path}"))
    world.run_epoch("a")
    (ended,) = world.coordinator().head().completed
    assert cairn.on(world.store.uri)("verify", "flights").err == ""
    (tmp_path / "flights" / ended.metadata.key).unlink()
    said = cairn("verify", "flights", "--json", status=1)
    assert said.err == f"next: cairn doctor flights --storage {world.store.uri}\n"


@pytest.mark.parametrize(
    "words",
    [
        ("jobs", "--storage", "s3://lake/a", "--endpoint-url", "http://127.0.0.1:1/?password={canary}"),
        ("jobs", "--storage", "s3://lake/a", "--endpoint-url", "http://ana:{canary}@127.0.0.1:1"),
        ("jobs", "--storage", "s3://lake/a", "--endpoint-url", "ftp://ana:{canary}@127.0.0.1:1"),
        ("doctor", "--read-only", "--storage", "s3://lake/a", "--endpoint-url", "http://ana:{canary}@127.0.0.1:1"),
        ("jobs", "--storage", "s3://ana:{canary}@lake/a"),
        ("jobs", "--storage", "https://ana:{canary}@lake/a"),
        ("https://ana:{canary}@lake/a",),
        ("jobs", "--storage", "s3://lake/a", "--interval", "https://ana:{canary}@lake/a"),
        ("jobs", "--password={canary}"),
    ],
)
def test_no_line_repeats_a_secret(capsys: pytest.CaptureFixture[str], words: tuple[str, ...]) -> None:
    canary = "canary0123456789abcdef"
    try:
        assert main([word.format(canary=canary) for word in words]) != 0
    except SystemExit as ended:
        assert ended.code == 2
    out, err = capsys.readouterr()
    assert "next: " in err
    assert canary not in out + err


def test_a_secret_is_not_repeated(cairn: Cairn, tmp_path: Path) -> None:
    canary = "canary-0123456789abcdef"
    words = ["doctor", "--read-only", "--conf", f"spark.hadoop.fs.s3a.secret.key={canary}"]
    assert canary not in cairn.on(f"file://{tmp_path}")(*words, "nope", status=2).err
