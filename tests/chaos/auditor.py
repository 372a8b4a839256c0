"""Audits a job at rest by the objects in its folder and by what its runs were to read; no code of Cairn's is asked.

Each finding is a rule's name and a sentence: `exactly once`, `left over`, `missing`, `stuck`.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from typing import Any

from tests.chaos.contents import COUNTED, UPDATED, held
from tests.chaos.inputs import kept_keys, totals
from tests.chaos.stored import Folder, Stored, lines, sha256

Finding = tuple[str, str]
SOURCE = "offsets"
"""The name of the source of jobs that have one."""


class Audit:
    """One audit of one job.

    Args:
        folder: the job's.
        job: its name.
        runs: the runs that have ended well, each of which must count once.
        stages: the job's stages.
        before: of a stage that was added later, the runs before it.
        skipped: the runs that were skipped: what their last attempts leave stays for a while, as a clear may need it.
    """

    def __init__(
        self,
        folder: Folder,
        job: str,
        runs: Iterable[str],
        stages: Iterable[str],
        before: Mapping[str, Collection[str]] | None = None,
        skipped: Collection[str] = (),
    ) -> None:
        self._folder = folder
        self._job = job
        self._runs = set(runs)
        self._stages = set(stages)
        self._before = before or {}
        self._skipped = skipped
        self.findings: list[Finding] = []

    def check(self, good: object, rule: str, what: str) -> None:
        """Note a finding unless something is so."""
        if not good:
            self.findings.append((rule, what))

    def at_rest(self) -> list[Finding]:
        """Look at everything when no process runs any more and a cleaner has been."""
        objects = self._folder.objects()
        if "head.json" not in objects:
            return [("missing", "there is no head.json")]
        head = self._folder.json("head.json")
        for name in ("pending", "waiting", "notices"):
            self.check(not head.get(name), "stuck", f"{name} in the head though nothing runs: {head.get(name)}")
        self.check(not head.get("importing"), "stuck", f"an import is under way: {head.get('importing')}")
        # After a pause the next task that starts lets the job go on (S1); nobody need come before it.
        stopped = head.get("stopped")
        self.check(stopped in (None, "paused"), "stuck", f"the job is {stopped}")
        self._ids(head)
        referred: set[str] = set()
        logs = [self._checkpoint(entry, objects, referred) for entry in head["completed"]]
        if self._runs:
            self.check(logs, "missing", "no checkpoint is retained though runs have ended well")
        for log in logs[-1:]:
            self._newest(log)
        for ref in (each["document"] for each in head.get("segments", [])):
            referred.add(ref["key"])
            found = ref["key"] in objects and (objects[ref["key"]].size, sha256(self._folder.bytes(ref["key"])))
            self.check(found == (ref["size_bytes"], ref["sha256"]), "missing", f"a list of completed epochs: {ref}")
        # A list of completed epochs whose swap came too late lies in the next checkpoint's folder, and goes with that.
        next_folder = f"chk-{head['next_id']:010d}/epochs-"
        too_late = {key for key in objects.keys() - referred if key.startswith(next_folder)}
        lent = {key for epoch in self._skipped for key in self._lent(head, epoch, objects)}
        failed = [f"chk-{each['id']:010d}/" for each in head["history"] if each["status"] != "COMPLETED"]
        # People may read these of an attempt that failed; its output for other stages is gone.
        kinds = ("acks/", "declines/", "failures/", "handover/", "pending-")
        records = tuple(f"{folder}{kind}" for folder in failed for kind in kinds)
        lent |= {key for key in objects if key.startswith(records)}
        lent |= self._to_adopt(objects, referred)
        standing = {key for key in objects if key.startswith("chk-")} - too_late - (lent - referred)
        self.check(standing == referred, "left over", f"nothing refers to {sorted(standing - referred)[:8]}")
        self.check(not self._folder.uploads(), "left over", f"uploads are pending: {self._folder.uploads()[:3]}")
        for entry in head.get("savepoints", []):
            self._savepoint(entry)
        return self.findings

    def _ids(self, head: dict[str, Any]) -> None:
        ended = [entry["id"] for entry in head["history"]]
        # Overlapping ones end in any order, each once.
        self.check(len(ended) == len(set(ended)), "exactly once", f"ids of ended checkpoints: {ended}")
        handed_out = head["next_id"] - 1
        self.check(not ended or max(ended) <= handed_out, "exactly once", f"an id nobody handed out: {ended[-1:]}")
        counts = head["counters"]
        # Attempts that a pause has ended did not fail; of long histories the oldest is forgotten (semantics S1, O1).
        paused = sum(each.get("detail") == "the DAG is paused" for each in head["history"])
        left = counts["triggered"] - counts["completed"] - counts["failed"] - paused
        forgotten = handed_out - len(ended)
        self.check(0 <= left <= forgotten, "stuck", f"triggered, completed and failed do not add up: {counts}")

    def _lent(self, head: dict[str, Any], epoch: str, objects: Collection[str]) -> set[str]:
        """Give what the last attempt of a run has left: its document, and what its executions have in their folders."""
        ended = [entry for entry in head["history"] if entry["epoch"] == epoch and entry["status"] != "COMPLETED"]
        last = max(ended, key=lambda entry: int(entry["id"]), default={"id": 0, "token": ""})
        document = f"chk-{last['id']:010d}/pending-{last['token']}.json"
        if document not in objects:
            return set()
        executions = self._folder.json(document)["executions"].values()
        theirs = [(f"chk-{each['home']:010d}/", each["token"]) for each in executions]
        found = {key for key in objects for home, token in theirs if key.startswith(home) and token in key}
        return {document, *found}

    def _to_adopt(self, objects: Collection[str], referred: set[str]) -> set[str]:
        """Give what compactions have left that an epoch may adopt yet: all that they replace is there."""
        records = {key: self._folder.json(key) for key in objects if "/compactions/" in key}
        found: set[str] = set()
        while True:  # one may replace the base of another
            alive = {
                key: each
                for key, each in records.items()
                if not each.get("given_up") and {handle["path"] for handle in each["replaces"]} <= referred | found
            }
            theirs = {key for key in objects for each in alive.values() if each["token"] in key}
            if theirs <= found:
                return found
            found |= theirs

    def _newest(self, log: list[str]) -> None:
        twice = sorted({run for run in log if log.count(run) > 1})
        self.check(not twice, "exactly once", f"{twice} folded in more than once: {log}")
        lost = sorted(self._runs - set(log))
        self.check(not lost, "exactly once", f"{lost} ended well and are in no state: {log}")
        foreign = sorted(set(log) - self._runs)
        self.check(not foreign, "exactly once", f"{foreign} are in the state and have not ended well: {log}")

    def _checkpoint(self, entry: dict[str, Any], objects: dict[str, Stored], referred: set[str]) -> list[str]:
        """Look at a retained checkpoint: all its files, and what each stage holds. Gives the runs that it holds."""
        ref, where = entry["metadata"], f"checkpoint {entry['id']}"
        referred.add(ref["key"])
        if ref["key"] not in objects:
            self.check(False, "missing", f"{where}: its metadata {ref['key']}")
            return []
        data = self._folder.bytes(ref["key"])
        same = (len(data), sha256(data)) == (ref["size_bytes"], ref["sha256"])
        self.check(same, "missing", f"{where}: its metadata was altered")
        read = lines(data)
        for line in read:
            if line["kind"] != "file":
                continue
            handle = line["handle"]
            referred.add(handle["path"])
            found = objects.get(handle["path"])
            self.check(found, "missing", f"{where}: {handle['path']}")
            if found:
                whole = (found.size, found.etag.strip('"')) == (handle["size_bytes"], handle["checksum"].strip('"'))
                self.check(whole, "missing", f"{where}: {handle['path']} was altered")
        return self._content(where, self._folder, read)

    def _content(self, where: str, folder: Folder, read: list[dict[str, Any]]) -> list[str]:
        """Compare what each stage holds with the input; gives the runs that all stages agree on."""
        stages = held(folder, read)
        for stage, it in stages.items():
            agree = it.log == it.runs
            self.check(
                agree, "exactly once", f"{where}, {stage}: the list state {it.log} and the value {it.runs} differ"
            )
            sums = totals(self._job, it.runs)
            self.check(it.sums == sums, "exactly once", f"{where}, {stage}: the sums are not the input's")
            grown = {UPDATED: kept_keys(it.runs), COUNTED: len(it.runs)}
            self.check(it.grown == grown, "exactly once", f"{where}, {stage}: {it.runs} have grown to {it.grown}")
            shown = it.table_runs == it.runs if it.table_sums is None else it.table_sums == sums
            self.check(shown, "exactly once", f"{where}, {stage}: the table shows {it.table_runs or it.table_sums}")
        positions = read[0].get("slice", {}).get("positions") or {}
        log = max((it.runs for it in stages.values()), key=len, default=[])
        due_here = {stage for stage in self._stages if stage not in self._before or set(log) - set(self._before[stage])}
        self.check(stages.keys() == due_here, "missing", f"{where}: stages {sorted(stages)}")
        for stage, it in stages.items():
            due = [run for run in log if run not in self._before.get(stage, ())]
            self.check(it.runs == due, "exactly once", f"{where}, {stage}: it holds {it.runs}, not {due}")
        # Each run reads one number of the source, so the position counts the runs that the state has read.
        at = positions.get(SOURCE, len(log))
        self.check(at == len(log), "exactly once", f"{where}: the source's position is {at}, and the state holds {log}")
        return log

    def _savepoint(self, entry: dict[str, Any]) -> None:
        where = f"savepoint {entry['id']}"
        self.check(entry["status"] != "PENDING", "stuck", f"{where} is pending though nothing runs")
        target, bucket = entry["target"].removeprefix("s3://"), f"{self._folder.bucket}/"
        # Without an Airflow, savepoints lie among the jobs, in a folder that is called like their target.
        place = target.removeprefix(bucket) if target.startswith(bucket) else f"{self._root()}{target}"
        folder = self._folder.below(f"{place}/{entry['folder']}/")
        objects = folder.objects()
        if entry["status"] != "COMPLETED":
            self.check(not objects, "left over", f"{where} has failed and left {sorted(objects)[:3]}")
            return
        if "_metadata" not in objects:
            self.check(False, "missing", f"{where}: its metadata")
            return
        read = lines(folder.bytes("_metadata"))
        named = {line["handle"]["path"] for line in read if line["kind"] == "file"}
        self.check(named <= objects.keys(), "missing", f"{where}: {sorted(named - objects.keys())[:3]}")
        log = self._content(where, folder, read)
        self.check(len(log) == len(set(log)), "exactly once", f"{where} holds {log}")

    def _root(self) -> str:
        return self._folder.prefix.removesuffix(f"{self._job}/")
