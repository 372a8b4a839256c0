"""Somebody who may write the store edits each field of each document and cuts each; all roles are watched (W10).

So may somebody who writes where a savepoint lies that the DAG or a person names.

A machine is a folder: `lake` is the storage, with the jobs `flights` and `other`, and `kept` the target that the DAG,
the commands and the person name. `victim` belongs to others: it is a copy of `kept`, so that every name in it fits. In
`kept` lies a savepoint of a job of the same name in another storage, and a symlink that leads to `victim`. Whatever a
document of the job says, only `lake`, `kept` and `input`, the folder of the DAG's source, are opened, and the job's own
folder and savepoints alone change. Who finds a document that is none says so in Cairn's own words.
"""

from __future__ import annotations

import dataclasses
import hashlib
import itertools
import json
import os
import re
import shutil
import sys
import threading
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from contextlib import contextmanager, redirect_stderr, redirect_stdout, suppress
from dataclasses import dataclass, field, replace
from datetime import timedelta
from functools import cache, partial
from io import StringIO
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import pytest
from airflow.sdk.exceptions import AirflowException, TaskDeferred

from airflow_cairn.checkpoint import Coordinator, system_runtime
from airflow_cairn.checkpoint.answers import Submit
from airflow_cairn.checkpoint.documents import layout, metadata
from airflow_cairn.checkpoint.documents.attempt import EpochCompletedDocument, Handover
from airflow_cairn.checkpoint.documents.head import Head
from airflow_cairn.checkpoint.documents.server_record import ANYWHERE
from airflow_cairn.checkpoint.errors import CallbackError
from airflow_cairn.checkpoint.reasons import Status
from airflow_cairn.checkpoint.savepoints import savepoint_format
from airflow_cairn.checkpoint.savepoints.savepoint_format import METADATA, REQUEST
from airflow_cairn.checkpoint.source import folders_of
from airflow_cairn.checkpoint.sources.files import FileSource
from airflow_cairn.checkpoint.store import acks
from airflow_cairn.checkpoint.store.job_files import KINDS, JobFiles
from airflow_cairn.cli.main import main, parser
from airflow_cairn.operators import DisposeSavepointOperator, SavepointOperator, StageSpec, TriggerCheckpointOperator
from airflow_cairn.plugin.page.job_reader import SharedReads
from airflow_cairn.sensors import CheckpointSensor
from airflow_cairn.spark.epoch import Epoch
from airflow_cairn.spark.kinds import small_state
from airflow_cairn.spark.kinds.raw_files import FileStatus
from airflow_cairn.spark.remote.register import ServerRegister
from airflow_cairn.storage import CairnError, UnavailableError, ensure_probed, open_store
from airflow_cairn.storage.port import ObjectStore
from airflow_cairn.storage.probe import RECORD
from airflow_cairn.storage.s3.store import S3Store
from airflow_cairn.triggers.checkpoint import CheckpointTrigger
from airflow_cairn.triggers.savepoint import SavepointTrigger
from tests.protocol.advice.scene import Facts
from tests.support.airflow_stage import Ti, context
from tests.support.covering import told_apart
from tests.support.world import grown_state
from tests.support.world.savepoints import asked
from tests.support.world.with_files import ITEMS, VALUE, WorldWithFiles
from tests.support.world.world import CONFIG, STAGES
from tests.support.wrapped_stores import Fault, FaultyStore
from tests.unit.plugin.page.stand_in import ONE, Page, StandIn, dag_of
from tests.unit.plugin.page.test_operations import form_of

HEAD = "head.json"
OF_JOB = "lake/flights"
HOUR = timedelta(hours=1)
MINE = "savepoint-mine"
"""A savepoint that its owner keeps and that the job may be started from."""
THEIRS = "savepoint-theirs"
"""A savepoint of a job of the same name in another storage, with the request id of one of ours."""
LINK = "savepoint-link"
OF_SAVEPOINTS = ("savepoints", "imports", "importing", "savepoint_target", "storage")
"""Fields that say where something lies outside of the job."""
IN_MEMORY = Path("/dev/shm")
PARTS = 2
SERIES = "nightly/"
"""Prefix of the request ids of savepoints of which the DAG keeps one."""


@dataclass
class Machine:
    """The folders of one machine, and who acts there."""

    root: Path
    before: dict[Path, bytes] = field(default_factory=dict)
    """Files of others, as they were made."""
    page: Page | None = None
    ours: tuple[str, ...] = ()
    """The folders of savepoints in the target that its record leads the job to, rightly."""

    @property
    def template(self) -> Path:
        """The untouched original; it lies elsewhere, because its documents name the root."""
        return self.root.with_name("template")

    def renew(self) -> None:
        """Make all as it was that may have changed."""
        if not self.root.exists():
            shutil.copytree(self.template, self.root, symlinks=True)
            return
        kept = self.root / "kept"
        for path in (self.root / "lake/flights", *(path for path in kept.iterdir() if not path.is_symlink())):
            if path.name not in (MINE, THEIRS):
                shutil.rmtree(path)
        for below in ("lake/flights", *(f"kept/{name}" for name in self.ours)):
            shutil.copytree(self.template / below, self.root / below)

    @property
    def storage(self) -> str:
        return f"file://{self.root / 'lake'}"

    @property
    def target(self) -> str:
        return f"file://{self.root / 'kept'}"

    @property
    def input(self) -> str:
        return f"file://{self.root / 'input'}"

    @property
    def job(self) -> dict[str, Any]:
        return {"storage": self.storage, "job": "flights"}

    def coordinator(self) -> Coordinator:
        return Coordinator(open_store(self.storage), "flights")

    def others(self) -> dict[Path, bytes]:
        """Files of others: all but the job's folder, and the folders of the savepoints that it may change."""
        ours = {self.root / "lake/flights", *(self.root / "kept" / name for name in self.ours)}
        found: dict[Path, bytes] = {}
        for above, folders, names in os.walk(self.root):
            folders[:] = [each for each in folders if Path(above, each) not in ours]
            paths = (Path(above, name) for name in names)
            found |= {path: path.read_bytes() for path in paths if not path.is_symlink()}
        return found

    def harm(self, edited: Collection[Path] = ()) -> list[str]:
        """Say what has changed of that since it was made; a new savepoint's folder may have come."""
        now, made = self.others(), self.root / "kept"
        before = {path: now.get(path, data) if path in edited else data for path, data in self.before.items()}
        changed = [f"changed: {path}" for path, data in before.items() if now.get(path) != data]
        new = (path for path in now.keys() - before.keys() if made not in path.parents)
        beside = {path.relative_to(made).parts[0] for path in before if made in path.parents}
        added = (path for path in now.keys() - before.keys() if made in path.parents)
        return changed + [f"new: {path}" for path in (*new, *_within(added, made, beside))]


def _within(paths: Iterable[Path], folder: Path, names: set[str]) -> Iterator[Path]:
    return (path for path in paths if path.relative_to(folder).parts[0] in names)


@pytest.fixture(scope="module")
def machine(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Machine]:
    """A machine on which nobody has edited anything; in memory where that can be, because each edit copies it."""
    if not IN_MEMORY.is_dir():
        yield _machine(tmp_path_factory.mktemp("hostile"))
        return
    with TemporaryDirectory(dir=IN_MEMORY) as folder:
        yield _machine(Path(folder))


def _machine(folder: Path) -> Machine:
    machine = Machine(folder / "machine")
    kept = machine.root / "kept"
    ensure_probed(open_store(machine.storage), nonce="of-this-test")
    config = replace(CONFIG, savepoint_target=machine.target, timeout=12 * HOUR)
    world = WorldWithFiles(open_store(machine.storage), config, machine.root / "input")
    world.come_in()
    world.clock.now_ms = system_runtime().now_ms() - 3 * HOUR // timedelta(milliseconds=1)
    world.appends = True
    world.hook()
    world.run_epoch("e1")
    coordinator = world.coordinator()
    with suppress(UnavailableError):
        half = FaultyStore(open_store(machine.target), 3, Fault.FAILS)
        coordinator.savepoint(asked("page-failed", machine.target, actor="ada"), lambda _: half)
    world.clock.advance(HOUR)
    failed = coordinator.look_for_savepoint("page-failed")
    assert failed is not None
    assert failed.status is Status.FAILED
    made = [coordinator.savepoint(asked(f"{SERIES}{n}", machine.target), open_store) for n in range(3)]
    shutil.copytree(kept / made[0].folder, kept / MINE)
    coordinator.start_from(open_store(machine.target).below(MINE))
    Coordinator(open_store(machine.storage), "other").start_from(open_store(machine.target).below(MINE))
    world.run_epoch("e2")
    assert grown_state.compact(world, "00000000000000c1")
    world.files.create(layout.epoch_completed("e0"), EpochCompletedDocument("flights", "e0", 1))
    page = coordinator.open_savepoint(asked("page-x", machine.target, timeout=12 * HOUR, actor="ada"), open_store)
    world.come_in()
    world.ask("e3")
    failed_try = world.submit("e3", "clean").handover
    world.decline(failed_try)
    coordinator.fail("e3", "clean", failed_try.claimant, "ValueError: bad row")
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(acks, "MARKER_BYTES", 1000)  # so that there are acknowledgements in parts
        world.run_stages("e3")
    ServerRegister(JobFiles(world.store, "flights"), system_runtime()).claim(None, ANYWHERE, "of_this_test")
    machine.ours = (failed.folder, page.folder, *(each.folder for each in made))
    shutil.copytree(kept / made[1].folder, kept / THEIRS)
    request = kept / THEIRS / "_request"
    request.write_text(request.read_text().replace("/lake", "/another"))
    shutil.copytree(kept, machine.root / "victim")
    (kept / LINK).symlink_to(machine.root / "victim" / made[0].folder)
    machine.before = machine.others()
    machine.root.rename(machine.template)
    return machine


# The watch.


@dataclass
class Watch:
    """The paths that this process touches on a machine."""

    root: str
    named: tuple[str, ...]
    """Paths at which a store may be rooted."""
    found: list[str] = field(default_factory=list)

    def see(self, event: str, args: tuple[Any, ...]) -> None:
        if event == "open" and isinstance(args[0], str):
            if args[0].startswith("/"):
                self._opened(args[0])
            elif ("/" in args[0] or ".." in args[0]) and isinstance(args[2], int) and not args[2] & os.O_NOFOLLOW:
                self.found.append(f"open {args[0]}")
        elif event in {"os.mkdir", "os.remove", "os.rmdir", "os.rename", "os.link"}:
            *paths, fds = _paths_of(event, args)
            for path, fd in zip(paths, fds, strict=True):
                self._changed(event, path if fd == -1 else os.path.join(os.readlink(f"/proc/self/fd/{fd}"), path))

    def _opened(self, path: str) -> None:
        # A store opens its root and nothing else by its path; a driver each file of the source's folder.
        theirs = f"{path}/".startswith(f"{self.root}/input/")
        theirs |= any(f"{each}/".startswith(f"{path}/") for each in self.named)
        if path.startswith(f"{self.root}/") and not theirs:
            self.found.append(f"open {path}")

    def _changed(self, event: str, path: str) -> None:
        if path.startswith(f"{self.root}/") and not any(path.startswith(f"{each}/") for each in self.named):
            self.found.append(f"{event} {path}")


def _paths_of(event: str, args: tuple[Any, ...]) -> tuple[Any, ...]:
    if event in {"os.rename", "os.link"}:
        return args[0], args[1], (args[2], args[3])
    return args[0], (args[2] if event == "os.mkdir" else args[1],)


_watching: list[Watch] = []


def _hook(event: str, args: tuple[Any, ...]) -> None:
    for watch in _watching:
        watch.see(event, args)


sys.addaudithook(_hook)


@contextmanager
def watched(machine: Machine) -> Iterator[Watch]:
    """Watch what this process opens, makes, deletes and renames in the block; no bucket is named there."""
    watch = Watch(str(machine.root), tuple(str(machine.root / each) for each in ("lake", "kept", "input")))

    def opened(_store: S3Store, uri: object, *_: object, **__: object) -> None:
        watch.found.append(f"open {uri}")
        raise UnavailableError("nobody has named it")

    _watching.append(watch)
    try:
        with pytest.MonkeyPatch.context() as patched:
            patched.setattr(S3Store, "__init__", opened)
            yield watch
    finally:
        _watching.remove(watch)


# The actors. Each deed may fail: what a document says may be refused, and mostly is.

Deed = Callable[[], object]


def _worker(machine: Machine) -> list[Deed]:
    """Tasks of the job's DAG, and of those that take its savepoints and throw the old ones away."""
    wait = CheckpointSensor(task_id="wait", savepoint_target=machine.target, deferrable=False, **machine.job)
    return [
        lambda: _late_driver(machine),
        lambda: machine.coordinator().begin("e3", "clean", "another try"),
        lambda: wait.poke(context(Ti(run_id="e3", task_id="wait"))),
        *_savepoint_tasks(machine),
        *_next_epoch(machine),
    ]


def _savepoint_tasks(machine: Machine) -> list[Deed]:
    of_run = context(Ti(run_id="e3", task_id="wait"))
    take = SavepointOperator(task_id="again", target=machine.target, request_id=f"{SERIES}2", parallel=1, **machine.job)
    old = DisposeSavepointOperator(task_id="old", keep=1, series=SERIES, target=machine.target, **machine.job)
    return [
        lambda: take.execute(of_run),
        lambda: machine.coordinator().go_on_with_savepoint("page-failed", machine.target, open_store),
        lambda: old.execute(of_run),
    ]


def _next_epoch(machine: Machine) -> list[Deed]:
    """The next run of the DAG, which names a savepoint to start from, and what it leaves."""
    next_run = context(Ti(run_id="e4", task_id="trigger"), dag_run=Facts(run_id="e4"))
    specs = [StageSpec(each.uid, each.upstream) for each in STAGES]
    trigger = TriggerCheckpointOperator(
        task_id="trigger",
        stages=specs,
        config=replace(CONFIG, allow_non_restored_state=True),
        restore_from=f"{machine.target}/{MINE}",
        source=FileSource(machine.input),
        deferrable=False,
        **machine.job,
    )
    return [
        lambda: trigger.execute(next_run),
        *_drivers(machine),
        lambda: machine.coordinator().begin("e4", "routes", "a try"),
        lambda: machine.coordinator().fail("e4", "routes", "a try", "killed"),
        lambda: machine.coordinator().restore_latest(),
        lambda: machine.coordinator().clean(),
    ]


def _looked(_spark: object, urls: Sequence[str]) -> list[FileStatus | None]:
    """Open files as Spark does."""
    return [_status(Path(url.removeprefix("file://"))) for url in urls]


def _status(path: Path) -> FileStatus | None:
    try:
        return FileStatus(len(path.read_bytes()), None, None)
    except OSError:
        return None


def _epoch(machine: Machine, handover: Handover) -> Epoch:
    """An epoch as a driver has it; there is no Spark, so it reads and writes no rows."""
    no_spark: Any = object()
    return Epoch(no_spark, open_store(machine.storage), handover, sources=folders_of([FileSource(machine.input)]))


def _late_driver(machine: Machine) -> None:
    """A driver whose stage another one has acknowledged looks what it was to read."""
    [*_, key] = sorted((machine.root / "lake/flights").glob("chk-*/handover/clean/*.json"))
    handover = JobFiles(open_store(machine.storage), "flights").read(Handover, "/".join(key.parts[-4:]))[0]
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr("airflow_cairn.spark.kinds.raw_files.look", _looked)
        epoch = _epoch(machine, handover)
        epoch.hook("ids")
        _looked(None, [file["url"] for file in (epoch.slice.sources or {})["files"].get("files", ())])
        epoch.files()


def _drivers(machine: Machine) -> list[Deed]:
    """Drivers of stages that restore the newest checkpoint, read what they find there, and acknowledge."""

    def drive(stage: str) -> None:
        answer = machine.coordinator().begin("e4", stage, f"a try of {stage}")
        if not isinstance(answer, Submit):
            return
        with _epoch(machine, answer.handover) as epoch:
            if stage == "airports":
                epoch.get(VALUE)
                epoch.list_state(ITEMS)

    return [partial(drive, "clean"), partial(drive, "airports")]


def _triggerer(machine: Machine) -> list[Deed]:
    """Waits in the triggerer, one look each."""
    savepoint = SavepointTrigger(machine.storage, "flights", "e3", f"{SERIES}2")
    checkpoint = CheckpointTrigger(machine.storage, "flights", "e3")
    return [
        lambda: savepoint._waits_or_asks(machine.coordinator()),
        lambda: checkpoint._go_on(machine.coordinator(), None),
    ]


def _page_of(machine: Machine) -> Page:
    class Server(StandIn):
        def open_store(self, storage: str, aws_conn_id: str | None) -> ObjectStore:
            return open_store(storage)

    server = Server([dag_of("flights", (machine.storage, "flights"), target=machine.target)], {})
    return Page(server, SharedReads(fresh_s=0, patience_s=300))


def _api_server(machine: Machine) -> list[Deed]:
    """People who look at everything, press *Go on* and have savepoints thrown away."""
    page = machine.page = machine.page or _page_of(machine)
    looks = [partial(page.get, f"{ONE}{look}") for look in ("", "/savepoints", "/operations/x", "/doctor")]
    return [*looks, *_presses(machine)]


def _presses(machine: Machine) -> list[Deed]:
    page = machine.page = machine.page or _page_of(machine)

    def confirm(path: str) -> None:
        answer = page.get(path)
        if answer.status_code == 200:
            page.post(path, form_of(answer))

    operations = [partial(page.post, f"{ONE}/operations/{each}", "") for each in ("x", "failed")]
    disposals = [partial(confirm, f"{ONE}/interventions/dispose?checkpoint={number}") for number in range(1, 6)]
    return [*operations, *disposals]


def _person(machine: Machine) -> list[Deed]:
    """Commands of a person who names the storage, the target, or a savepoint in it."""
    commands = (
        ["jobs"],
        ["checkpoints", "flights"],
        ["savepoints", "flights"],
        ["show", "flights", "7"],
        ["servers", "flights"],
        ["verify", "flights", "--deep"],
        ["doctor", "flights", "--read-only"],
        ["state", "flights", "routes", "totals"],
    )
    return [*_commands(machine, commands), *_savepoint_commands(machine)]


def _savepoint_commands(machine: Machine) -> list[Deed]:
    mine = f"{machine.target}/{MINE}"
    commands = (
        ["savepoint", "flights", machine.target, "--request-id", "page-failed"],
        ["dispose", f"{machine.target}/{machine.ours[-1]}", "--yes"],
        ["dispose", f"{machine.target}/{LINK}", "--yes", "--force"],
        ["clean", "flights"],
        ["resume", "flights", "--from", mine, "--yes"],
        ["resume", "flights", "--from", mine, "--yes", "--again"],
    )
    return _commands(machine, commands)


def _commands(machine: Machine, commands: Iterable[list[str]]) -> list[Deed]:
    return [partial(_typed, [*words, "--storage", machine.storage]) for words in commands]


_parser = cache(parser)


def _typed(words: list[str]) -> None:
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr("airflow_cairn.cli.main.parser", _parser)  # a third of the time of a command
        main(words)


def _with_savepoints(machine: Machine) -> list[Deed]:
    """The process that takes savepoints, throws them away and starts the job from one."""
    return [*_savepoint_tasks(machine), *_presses(machine), *_savepoint_commands(machine)]


Role = Callable[[Machine], list[Deed]]
ROLES: tuple[Role, ...] = (_worker, _triggerer, _api_server, _person)


def act(machine: Machine, roles: Sequence[Role] = ROLES, edited: Collection[Path] = ()) -> list[str]:
    """Let everybody act, one after the other, and give what went wrong.

    That is what they have touched that is not theirs, and each error that is no refusal in words of Cairn's own.
    """
    unclear = []
    with watched(machine) as watch, redirect_stdout(StringIO()), redirect_stderr(StringIO()):
        for role in roles:
            for deed in role(machine):
                try:
                    deed()
                except (CairnError, AirflowException, SystemExit, TaskDeferred) as error:
                    # A source's own bug is told so; those of Cairn have none.
                    unclear += [f"failed: {error}"] if isinstance(error, CallbackError) else []
                except Exception as error:  # noqa: BLE001  (it is told below)
                    unclear.append(f"raised {error!r}")
                for copying in (each for each in threading.enumerate() if each.name == "cairn-savepoint"):
                    copying.join()  # the page's request does not wait for it
    return [*unclear, *watch.found, *machine.harm(edited)]


# The edits.


@dataclass(frozen=True)
class Edit:
    """One value of one document."""

    key: str
    line: int
    path: tuple[str | int, ...]
    value: Any
    folders: tuple[str, ...] = (OF_JOB,)
    """Folders with the document: the same savepoint may lie in several."""

    def __str__(self) -> str:
        return f"{self.key}:{self.line} {'.'.join(map(str, self.path))} = {json.dumps(self.value)}"

    def write(self, machine: Machine) -> None:
        """Write it, and have the head name the document as it is now: checksums find damage, not malice."""
        for file in (machine.root / folder / self.key for folder in self.folders):
            lines = _lines(file.read_bytes())
            place = lines[self.line]
            for step in self.path[:-1]:
                place = place.setdefault(step, {}) if isinstance(place, dict) else place[step]
            place[self.path[-1]] = self.value
            if lines[-1].get("kind") == savepoint_format.END and self.line < len(lines) - 1:
                sizes = {file: size for file, size in _sizes(lines[:-1]) if isinstance(size, int)}
                sealed = {"sha256": hashlib.sha256(_joined(lines[:-1])).hexdigest(), "files": len(sizes)}
                lines[-1] |= {**sealed, "size_bytes": sum(sizes.values())}
            file.write_bytes(_joined(lines))
            _seal(file.parents[self.key.count("/")], self.key)


@dataclass(frozen=True)
class Cut:
    """A document that ends too early."""

    key: str
    size_bytes: int
    folders: tuple[str, ...] = (OF_JOB,)

    def __str__(self) -> str:
        return f"{self.key} cut to {self.size_bytes} bytes"

    def write(self, machine: Machine) -> None:
        """Write it, and have the head name what is left."""
        for file in (machine.root / folder / self.key for folder in self.folders):
            file.write_bytes(file.read_bytes()[: self.size_bytes])
            if self.key != HEAD and self.folders == (OF_JOB,):
                _seal(file.parents[self.key.count("/")], self.key)


def _lines(data: bytes) -> list[Any]:
    try:
        return [json.loads(data)]
    except ValueError:
        return [json.loads(line) for line in data.splitlines()]


def _joined(lines: Iterable[Any]) -> bytes:
    return b"".join(json.dumps(line, separators=(",", ":")).encode() + b"\n" for line in lines)


def _seal(folder: Path, key: str) -> None:
    """Have each document that names this one name it as it is now, and so on up to the head."""
    data = (folder / key).read_bytes()
    digest = hashlib.sha256(data).hexdigest()
    for file in (path for path in folder.rglob("*") if "_metadata-" in path.name or path.suffix == ".json"):
        before = file.read_bytes()
        if key.encode() not in before:
            continue
        lines = [json.loads(line) for line in before.splitlines()]
        for ref in _refs(lines, key):
            ref["size_bytes"] = len(data)
            ref |= {
                name: digest if name == "sha256" else f"sha256:{digest}" for name in (*_SUMS, "etag") if name in ref
            }
        after = b"".join(json.dumps(line, separators=(",", ":")).encode() + b"\n" for line in lines)
        if lines != [json.loads(line) for line in before.splitlines()]:
            file.write_bytes(after)
            _seal(folder, str(file.relative_to(folder)))


_SUMS = ("sha256", "checksum", "content")


def _refs(value: Any, key: str) -> Iterator[dict[str, Any]]:
    if isinstance(value, dict):
        if key in (value.get("key"), value.get("path")) and not value.keys().isdisjoint(_SUMS):
            yield value
        for each in value.values():
            yield from _refs(each, key)
    elif isinstance(value, list):
        for each in value:
            yield from _refs(each, key)


def _sizes(value: Any) -> Iterator[tuple[str, Any]]:
    """Yield each file that a savepoint's metadata names, with its size."""
    if isinstance(value, dict) and "size_bytes" in value and isinstance(value.get("path", value.get("key")), str):
        yield value.get("path") or value["key"], value["size_bytes"]
    for each in value.values() if isinstance(value, dict) else value if isinstance(value, list) else ():
        yield from _sizes(each)


def _leaves(value: Any, path: tuple[str | int, ...] = ()) -> Iterator[tuple[tuple[str | int, ...], Any]]:
    """Yield the place of each value of a document that holds no other; of a list its last element stands for all.

    But of savepoints one that failed, one of a series and one that is to be made.
    """
    if isinstance(value, dict) and value:
        for name, each in value.items():
            yield from _leaves(each, (*path, name))
    elif isinstance(value, list) and value:
        for index in (0, 1, len(value) - 1) if path == ("savepoints",) else (len(value) - 1,):
            yield from _leaves(value[index], (*path, index))
    else:
        yield path, value


def _whole(value: Any) -> Any:
    """Give a document as JSON with every field of it, those too that are left out where they say nothing."""
    if dataclasses.is_dataclass(value):
        return {each.name: _whole(getattr(value, each.name)) for each in dataclasses.fields(value)}
    if isinstance(value, dict):
        return {name: _whole(each) for name, each in value.items()}
    return [_whole(each) for each in value] if isinstance(value, tuple | list) else value


ODD: tuple[Any, ...] = (None, True, -1, 10**30, "\ud800", [], {}, 0.5, ["x"], {"x": 1})
"""Values where anything may stand: an author's value, or what a source or a stage has to keep."""
FREE = ("sources", "positions", "values")
"""Fields of other documents with such values."""


def _nodes(value: Any, path: tuple[str | int, ...] = ()) -> Iterator[tuple[str | int, ...]]:
    """Yield the place of each value of a document, those that hold others too; of a list its last element's."""
    if path and path not in (("kind",), ("format",)):
        yield path
    last = list(enumerate(value))[-1:] if isinstance(value, list) else []
    for name, each in value.items() if isinstance(value, dict) else last:
        yield from _nodes(each, (*path, name))


def _odd(key: str, line: int, value: Any, folders: tuple[str, ...] = (OF_JOB,)) -> Iterator[Edit]:
    """Give edits of what may be anything, each time by the next of what is odd."""
    odd, own = itertools.cycle(ODD), key.endswith((".jsonl", small_state.FILE))
    for path in _nodes(value):
        if own or not set(FREE).isdisjoint(path):
            yield from (Edit(key, line, path, each, folders) for each in itertools.islice(odd, 4 if own else 1))


def _values(machine: Machine, path: tuple[str | int, ...], value: Any) -> list[Any]:
    """Give what somebody may write in the place of a value."""
    victim = machine.root / "victim"
    places = [f"file://{victim}", f"{victim}/{machine.ours[2]}", f"../../victim/{machine.ours[2]}", "s3://victim/x"]
    if isinstance(value, bool):
        return [not value]
    if isinstance(value, int):
        return [value + 1]
    if isinstance(value, str) and path[-1] == "status":
        return [each for each in Status if each != value]
    if path[-1] == "url":
        return places
    if isinstance(value, str) and path[0] in OF_SAVEPOINTS:
        return [places[0], places[2], THEIRS, LINK]
    if isinstance(value, str):
        return places[2:3]
    # Nothing is there: what could be there is of a type that the document alone does not tell.
    return [places[0]]


def documents(machine: Machine) -> list[str]:
    """Give the newest document of each kind but the head; of small state each, of lists the newest of both places."""
    folder, newest = machine.template / "lake/flights", dict[tuple[str, str], str]()
    for file in sorted(path for path in folder.rglob("*") if path.is_file() and path.name != HEAD):
        with suppress(ValueError, TypeError, KeyError):  # what a driver has written is no document
            kind = json.loads(file.read_bytes().splitlines()[0])["kind"]
            of = {small_state.KIND: file.parts[-2], metadata.LIST_KIND: file.parts[-3]}
            newest[kind, of.get(kind, "")] = str(file.relative_to(folder))
    return list(newest.values())


def edits(machine: Machine) -> list[Edit | Cut]:
    """Give every edit: of each field of the head, and of each kind of line in the documents; and each of them cut."""
    folder = machine.template / "lake/flights"
    head = _whole(JobFiles(open_store(f"file://{folder.parent}"), "flights").read(Head, HEAD)[0])
    found: list[tuple[str, int, tuple[str | int, ...], Any, tuple[str, ...]]] = []
    found += [(HEAD, 0, path, value, (OF_JOB,)) for path, value in _leaves(head)]
    more: list[Edit | Cut] = list(_odd(HEAD, 0, head))
    places: list[tuple[str, tuple[str, ...]]] = [(key, (OF_JOB,)) for key in documents(machine)]
    kept = tuple(f"kept/{name}" for name in (*machine.ours, MINE))
    whole = tuple(each for each in kept if (machine.template / each / METADATA).exists())
    places += [(METADATA, whole), (REQUEST, kept), (RECORD, ("lake",))]
    for key, folders in places:
        data = (machine.template / folders[0] / key).read_bytes()
        lines = _lines(data)
        for number in {line.get("kind"): number for number, line in enumerate(lines)}.values():
            found += [(key, number, path, value, folders) for path, value in _leaves(lines[number])]
            more += _odd(key, number, lines[number], folders)
        size, last = len(data), len(data.splitlines(keepends=True)[-1])
        more += [Cut(key, each, folders) for each in sorted({0, size // 2, size - 2, size - last})]
    more += [Cut(HEAD, each) for each in (0, 1000)]
    return more + [
        Edit(key, line, path, each, folders)
        for key, line, path, value, folders in found
        if path[-1] not in ("kind", "format")
        for each in _values(machine, path, value)
    ]


def _shows(edit: Edit | Cut) -> Iterator[object]:
    """Yield what has to be edited: each text, in the documents of one kind, as all read it by one reader; in those of
    each kind a value of another type; and one of each kind cut."""
    if isinstance(edit, Edit) and isinstance(edit.value, str):
        yield next(each for each in reversed(edit.path) if isinstance(each, str))
    else:
        yield re.sub(r"[0-9a-f]{6,}|[0-9]+", "", edit.key), type(edit)


@pytest.mark.large
@pytest.mark.usefixtures("parsed_once_for_all")
@pytest.mark.parametrize("part", [0, *(pytest.param(part, marks=pytest.mark.soak) for part in range(1, PARTS))])
@pytest.mark.parametrize("new", [True, pytest.param(False, marks=pytest.mark.soak)], ids=["each field", "the rest"])
def test_no_value_of_a_document_leads_out_of_the_job(  # semantics W5, W10, P1, P3
    machine: Machine, part: int, new: bool
) -> None:
    led: dict[str, list[str]] = {}
    mine = [edit for edit, shows_more in told_apart(edits(machine), _shows) if shows_more is new][part::PARTS]
    for number, edit in enumerate(mine):
        machine.renew()
        edit.write(machine)
        if edit.folders == (OF_JOB,):
            first = number % len(ROLES)
            # Whose turn comes first changes what the others find; a document that is none is one to everybody.
            roles = (*ROLES[first:], *ROLES[:first])
            touched = act(machine, roles if isinstance(getattr(edit, "value", None), str) else roles[:2])
        else:
            edited = {machine.root / folder / edit.key for folder in edit.folders}
            touched = act(machine, (_with_savepoints,), edited)
            shutil.rmtree(machine.root / OF_JOB)  # so that the DAG starts the job from a savepoint
            touched += act(machine, (_next_epoch,), edited)
        if touched:
            led[str(edit)] = touched
        if touched or edit.folders != (OF_JOB,):
            shutil.rmtree(machine.root)  # what belongs to others is made anew
    assert led == {}
    assert len(mine) >= 40


def test_each_kind_of_document_is_edited(machine: Machine) -> None:
    for kind in (Edit, Cut):
        kinds = set()
        for key, (folder, *_) in {(edit.key, edit.folders) for edit in edits(machine) if isinstance(edit, kind)}:
            kinds.add(_lines((machine.template / folder / key).read_bytes())[0]["kind"])
        of_savepoints = {savepoint_format.KIND, savepoint_format.REQUEST_KIND}
        assert kinds >= {*KINDS.values(), metadata.LIST_KIND, small_state.KIND, *of_savepoints, "cairn-probe"}


def test_all_that_they_do_is_theirs_and_done(machine: Machine) -> None:
    """No document is edited here: each act above is done, and stays with its own files."""
    machine.renew()
    assert act(machine) == []
    head = machine.coordinator().head()
    assert [(each.request, each.status) for each in head.savepoints] == [
        ("page-x", Status.COMPLETED),
        ("page-failed", Status.COMPLETED),
    ]
    assert head.completed[-1].epoch.startswith("savepoint.import-")
    machine.renew()
    assert act(machine, (_with_savepoints,)) == []
    assert machine.coordinator().head().completed[-1].epoch.startswith("savepoint.import-")
    shutil.rmtree(machine.root / OF_JOB)
    assert act(machine, (_next_epoch,)) == []
    head = machine.coordinator().head()
    assert [each.claimed for each in head.imports] == [False], "the DAG has started the job anew from a savepoint"
    assert {each.epoch for each in head.history} == {"e4"}
