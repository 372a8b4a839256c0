"""Plays a job: starts tasks, retries, calls callbacks and clears as Airflow would, and lets the faults come.

It does nothing that only a person would do, except where a fault says so. A run that then cannot go on needs hands:
that is noted, and it is cleared as a person would clear it, so that the job goes on.
"""

from __future__ import annotations

import os
import queue
import signal
import time
from datetime import UTC, datetime, timedelta
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import psutil

from scripts.harness.wait import wait_until
from tests.chaos.protocol.nursery import Nursery
from tests.chaos.protocol.outage import Disk, outage
from tests.chaos.protocol.people import People
from tests.chaos.protocol.plan import SENSOR, TRIGGER, JobPlan
from tests.chaos.protocol.service import Service
from tests.chaos.protocol.tasks import RETRIES, Process, Run, Task
from tests.chaos.report import Figures, Violation
from tests.support.s3_proxy import S3Proxy

SILENCE_S = 600.0
"""When nothing is heard for so long though a process runs, the job is stuck."""
MAX_CLEARS, MAX_IDLE, LOOKS, TAIL = 3, 3, 40, 150
FORGETS_AFTER = 2
"""Runs after which a planted compaction goes over the newest of them."""
PATIENT = 8
"""Quiet moments after which a task of a patient run asks again: the others go on as far as they come."""


class StuckError(Exception):
    """A job does not come to its end."""


class Conductor:
    """Plays one job.

    Args:
        plan: of the job.
        nursery: starts the processes.
        proxy: through which the requests of some of them pass.
        disk: on which the job's storage lies, if it does.
        plant: a bug to plant: `doubled`, `stuck` or `forgetful`.
    """

    def __init__(
        self, plan: JobPlan, nursery: Nursery, proxy: S3Proxy, disk: Disk | None = None, plant: str = ""
    ) -> None:
        self.plan = plan
        self.runs: list[Run] = []
        self.due = [(each.epoch, list(each.faults), False) for each in plan.runs]
        """Runs that have not begun: name, faults, and whether a person has cleared them after a rewind."""
        self.trace: list[str] = []
        self.figures = Figures(rounds=1)
        self.counting: set[str] = set()
        """Runs that have ended well and count."""
        self.skipped: set[str] = set()
        """Runs that were skipped, because another one has read their input."""
        self.paused = False
        self.people = People(self)
        self._nursery = nursery
        self._proxy = proxy
        self._disk = disk
        self._plant = plant
        self._folder = TemporaryDirectory(prefix="cairn-chaos-drivers-") if plan.launcher else None
        """Files that drivers leave outside of the storage."""
        self._deferred: dict[str, tuple[Run, Task, dict[str, Any]]] = {}
        """Tries for whose drivers the triggerer waits, by claimant."""
        self._processes: dict[int, Process] = {}
        self._quiets = 0
        """Number of quiet moments: a task that waits comes back then, and not among those that act."""
        self._begin = self._heard_at = time.monotonic()

    def play(self) -> None:
        """Bring every run and every process to its end."""
        try:
            while self.due or any(not run.ended for run in self.runs) or self.people.busy():
                self._begin_runs()
                for run in [run for run in self.runs if not run.ended]:
                    self._go_on(run)
                self._wait_for_drivers()
                self._hear()
            self._settle()
        except StuckError as error:
            self.violation("stuck", str(error))
        finally:
            if self._folder is not None:
                self._folder.cleanup()

    def violation(self, rule: str, what: str) -> None:
        """Note one, with what happened before it."""
        self.note(f"VIOLATION: {rule}: {what}")
        self.figures.violations.append(Violation(self.plan.seed, rule, what, tuple(self.trace[-TAIL:])))

    def note(self, what: str) -> None:
        """Write down what happens."""
        self.trace.append(f"{time.monotonic() - self._begin:7.2f} {what}")

    def spawn(self, role: str, process: Process | None = None, **told: Any) -> Process:
        """Start a process; one of a person's where none is given."""
        number = self._nursery.start(role, job=self.plan.job, **told)
        process = process or Process(0, role, None, None, "")
        process.number = number
        self._processes[number] = process
        where = f"{process.run.epoch} {process.task.name} {process.claimant}" if process.run and process.task else ""
        shown = ("strike", "driver_strike", "skew_ms", "by_hand", "by_proxy", "declines", "what", "request", "stop")
        more = {name: told[name] for name in shown if told.get(name)}
        self.note(f"#{number} {role} {where} starts {more or ''}")
        return process

    def struck(self, run: Run | None, kind: str) -> None:
        """Count a fault that has come."""
        self.figures.faults[kind] += 1
        if run is not None:
            run.struck = time.monotonic()

    # Airflow's part.

    def _begin_runs(self) -> None:
        while self.due and sum(not run.ended for run in self.runs) < self.plan.overlap and not self.people.holds():
            if self._plant == "forgetful" and len(self.runs) == FORGETS_AFTER:
                self.wait_for("compactor", forgets=True)
            epoch, faults, by_hand = self.due.pop(0)
            tasks = [Task(TRIGGER, ())]
            tasks += [Task(uid, (TRIGGER, *upstream), by_hand=by_hand) for uid, upstream, _ in self.plan.stages]
            tasks.append(Task(SENSOR, tuple(uid for uid, _, _ in self.plan.stages)))
            run = Run(epoch, {task.name: task for task in tasks}, faults, int(epoch[1:]))
            self.runs.append(run)
            self.note(f"run {epoch} begins; to come: {[(each.kind, each.task) for each in faults]}")

    def _go_on(self, run: Run) -> None:
        for task in run.tasks.values():
            ready = all(run.tasks[name].state == "success" for name in task.upstream)
            if task.state in ("none", "retry") and ready and self._quiets >= task.due and not self.paused:
                self._start(run, task)

    def _start(self, run: Run, task: Task) -> None:
        if task.state == "retry":
            task.renew()
        if not task.came_back:
            task.tries += 1
            task.number += 1
        task.state = "running"
        role = task.name if task.name in (TRIGGER, SENSOR) else "stage"
        process = Process(0, role, run, task, task.claimant, tuple(self._own_faults(run, task)))
        told = self._told(run, task)
        mine = {name: value for each in process.faults for name, value in each.told.items()}
        away = next((each for each in process.faults if each.kind in ("store away", "store refuses")), None)
        if away is not None:
            process.outage = outage(**away.told)
            self._proxy.rules.append(process.outage)
            mine = {"by_proxy": True}
        for each in process.faults:
            if each.kind in ("clock ahead", "clock behind", "decline"):
                self.struck(run, each.kind)
        if process.has("disk full"):
            assert self._disk is not None
            self._disk.fill()
        if process.has("decline"):
            mine["declines"] = True
        if self._plant == "doubled" and run.number == 2 and task.upstream == (TRIGGER,):
            mine["doubled"] = True
        task.process = self.spawn(role, process, **told, **mine).number
        twin = run.take("two tries", task.name)
        if role == SENSOR:
            twin = next((each for each in run.faults if each.kind == "two sensors"), None)
            if twin is not None:
                run.faults.remove(twin)
        if twin is not None:
            self.struck(run, twin.kind)
            self.spawn(role, Process(0, role, run, task, task.claimant, ghost=True), **told)

    def _wait_for_drivers(self) -> None:
        """Look as the triggerer does: a try goes on once its driver has ended, in a process of its own."""
        for claimant, (run, task, driver_of) in list(self._deferred.items()):
            if task.claimant != claimant:
                del self._deferred[claimant]  # it was cleared, and another try ends the driver
            elif self._folder is not None and Service(Path(self._folder.name)).find(driver_of["token"]) is None:
                del self._deferred[claimant]
                self.struck(run, "driver deferred for")
                process = Process(0, "stage", run, task, claimant, tuple(self._own_faults(run, task)))
                strike = next((each.told for each in process.faults if "strike" in each.told), {})
                told = self._told(run, task) | {"driver_of": driver_of} | strike
                task.process = self.spawn("stage", process, **told).number

    def _own_faults(self, run: Run, task: Task) -> list[Any]:
        kinds = [f"{how} {who}" for how in ("kill", "stop") for who in ("trigger", "sensor", "task", "driver")]
        kinds += ["kill task, driver stops", "kill task, driver goes on", "decline"]
        kinds += ["clock ahead", "clock behind", "store away", "store refuses", "disk full"]
        found = (run.take(kind, task.name) for kind in kinds)
        return [each for each in found if each is not None]

    def _told(self, run: Run, task: Task) -> dict[str, Any]:
        day = datetime(2001, 1, 1, tzinfo=UTC) + timedelta(days=run.number)
        return {
            "epoch": run.epoch,
            "stage": task.name,
            "claimant": task.claimant,
            "by_hand": task.by_hand,
            "came_back": task.came_back,
            "try_number": task.number,
            "first_try": task.first if task.first > 1 else 1,
            "stages": self.plan.stages,
            "source": self.plan.source,
            "launcher": self.plan.launcher,
            "folder": self._folder.name if self._folder else "",
            "config": self.plan.config,
            # A run that runs again after a rewind has ended before, and is under way.
            "ended": sorted({each.epoch for each in self.runs} - {each.epoch for each in self.runs if not each.ended}),
            "start": day.isoformat(),
            "end": (day + timedelta(days=1)).isoformat(),
            "looks": LOOKS,
            "began_after_pause": True,
        }

    # Messages of the processes.

    def _hear(self) -> None:
        try:
            message = self._nursery.heard.get(timeout=0.2)
        except queue.Empty:
            self._quiet()
            return
        self._heard_at = time.monotonic()
        if "pid" in message and len(message) == 2 and "id" in message:
            self._processes[message["id"]].pid = message["pid"]
        elif "ended" in message:
            self._gone(message["ended"])
        elif "id" in message:
            self._said(self._processes[message["id"]], message)

    def _quiet(self) -> None:
        """Nothing happens: let go on who was stopped for a moment; see that somebody is at work."""
        self._quiets += 1
        for run, task, _ in self._deferred.values():
            self._let_driver_go_on(run, task)
        for process in self._processes.values():
            # A driver whose task waits for it goes on soon: nothing else would come, and no try follows.
            killed = process.has("kill task, driver stops")  # its end may be heard of later
            waited_for = process.driver in process.standing and not (process.over or process.ghost or killed)
            if process.until == "soon" or waited_for:
                self._let_go_on(process)
        alive = [process for process in self._processes.values() if not process.over]
        if alive and not self._deferred and all(process.standing for process in alive):
            for process in alive:
                self._let_go_on(process)
        if self.paused and not [each for each in alive if not each.standing and each.role not in (SENSOR, "savepoint")]:
            self.people.unpause()
        if time.monotonic() - self._heard_at > SILENCE_S:
            raise StuckError(f"nothing was heard for {SILENCE_S:g} s of {[(p.number, p.role) for p in alive]}")

    def _said(self, process: Process, message: dict[str, Any]) -> None:
        if "driver" in message:
            process.driver = message["driver"]
            if process.has("kill task, driver goes on"):
                self._kill(process, "kill task, driver goes on")
        elif "reconnected" in message:
            assert process.run is not None
            assert process.task is not None
            self.struck(process.run, "driver waited for")
            self._let_driver_go_on(process.run, process.task)
        elif "struck" in message:
            self._was_struck(process, message)
        elif "others" in message:
            assert process.run is not None
            on = ("success", "running")
            left = [each for each in message["others"] if process.run.tasks[each[0]].state in on]
            self._compare_and_clear(process.run, left, message["unclaimed"])
        elif "violation" in message:
            self.violation("exactly once", message["violation"])
        elif "refused" in message:
            self._felt(process, message["refused"])
        else:
            process.answer = message.get("answer") or message.get("error", "?")
            text = str({name: each for name, each in message.items() if name not in ("id", "answer")})
            self.note(f"#{process.number} {process.role}: {process.answer} {text if text != '{}' else ''}"[:300])
            self._felt(process, text)
            self._over(process)
            self._answered(process, message)

    def _was_struck(self, process: Process, message: dict[str, Any]) -> None:
        who = "driver" if message["who"] == "driver_strike" else process.role
        self.note(f"#{process.number} {who} is struck: {message['struck']}")
        if process.has("kill task, driver stops"):
            process.standing.add(message["pid"])
            self._kill(process, "kill task, driver stops")
            return
        self.struck(process.run, f"{message['struck']} {'task' if who == 'stage' else who}")
        if message["struck"] == "stop":
            process.standing.add(message["pid"])
            if who != "driver" and process.until != "soon":
                self._take_for_dead(process)

    def _felt(self, process: Process, text: str) -> None:
        if process.has("disk full") and "No space left on device" in text:
            self.struck(process.run, "disk full")

    def _over(self, process: Process) -> None:
        """Let the storage be well again, once nothing of a process asks it any more."""
        if process.outage is not None:
            self._proxy.rules.remove(process.outage)
            if process.outage.met:
                self.struck(process.run, next(kind for kind in ("store away", "store refuses") if process.has(kind)))
        process.outage = None
        if process.has("disk full") and self._disk is not None:
            self._disk.free()

    def _kill(self, process: Process, kind: str) -> None:
        self.note(f"#{process.number} {process.role} is killed")
        self.struck(process.run, kind)
        if not process.over:  # it may have been deferred by now
            self._signal(process.pid, signal.SIGKILL)

    def _take_for_dead(self, process: Process) -> None:
        """The process has missed its heartbeat: another try follows, though the process is there."""
        self._over(process)
        if process.task is not None and process.task.process == process.number:
            self._failed(process, "its heartbeat is missed", called=False)
        process.ghost = True

    def _gone(self, pid: int) -> None:
        process = next((each for each in self._processes.values() if each.pid == pid and not each.over), None)
        if process is None:
            return
        process.over = True
        process.standing.discard(pid)
        if process.answer:
            return
        process.answer = "Killed"
        self._over(process)
        self.note(f"#{process.number} {process.role} was killed")
        if process.role == "callback":
            self._called(process, [], [])
        elif process.task is None:
            self.people.answered(process, {})
        elif not process.ghost and process.task.process == process.number:
            self._failed(process, "killed", called=False)

    def _answered(self, process: Process, message: dict[str, Any]) -> None:
        if message.get("error") == "DEFECT":
            self.violation("defect", f"{process.role}: {message['text']}")
        run, task = process.run, process.task
        if process.role == "callback":
            self._called(process, message.get("restarted", []), message.get("unclaimed", []))
        elif run is None or task is None:
            self.people.answered(process, message)
        elif not process.ghost and task.process == process.number:
            {TRIGGER: self._trigger_said, SENSOR: self._sensor_said}.get(process.role, self._stage_said)(
                process, run, task, message
            )

    def _trigger_said(self, process: Process, run: Run, task: Task, message: dict[str, Any]) -> None:
        if process.answer in ("Triggered", "EpochCompleted"):
            self._succeeded(run, task)
        elif process.answer == "AlreadyRead" and self.plan.source:
            self._ended_well(run, counts=False)  # another run has read what was fixed for it, and counts for both
        elif process.answer == "Declined" and message["waits"]:
            self._come_back(run, task, message["text"])
        else:
            self._failed(process, message.get("text", ""), called=True)

    def _stage_said(self, process: Process, run: Run, task: Task, message: dict[str, Any]) -> None:
        others = message.get("restarted", [])
        if process.answer in ("Acknowledged", "StageAcknowledged", "EpochCompleted"):
            self._succeeded(run, task)
        elif process.answer == "Deferred":
            task.process = None
            self._deferred[task.claimant] = run, task, message["driver_of"]
        elif process.answer == "UpstreamsNotReady":
            others += [[uid, ""] for uid in message["upstreams"] if uid not in dict(others)]
            cleared = self._compare_and_clear(run, others, message["unclaimed"])
            left = [uid for uid in message["upstreams"] if uid not in cleared and run.tasks[uid].ended]
            task.idle = task.idle + 1 if left else 0
            if task.idle > 1:
                self._needs_hands(run, f"{task.name}: {left} must run again first, and nothing will start them")
            else:
                task.state, task.came_back, task.due = "none", True, self._quiets + 1
        elif process.answer == "TriggerFirst":
            self._trigger_again(run, task)
        elif process.answer in ("Queued", "Overtaken", "Missed"):
            self._come_back(run, task, message.get("text", ""))  # which uses up no try
        elif process.answer == "Failed":
            self._needs_hands(run, message["text"], by_rule="for_good=True" in message["text"])
        else:
            self._failed(process, message.get("text", ""), called=True)

    def _trigger_again(self, run: Run, task: Task) -> None:
        """A task has the one that triggers cleared, if it has ended, and comes back after it, which uses up no try."""
        if run.tasks[TRIGGER].state == "success":
            self.note(f"{run.epoch} {TRIGGER} is cleared by {task.name}")
            self.clear(run, run.tasks[TRIGGER], by_hand=False)
        task.state, task.came_back, task.due = "none", True, self._quiets + 1

    def _sensor_said(self, process: Process, run: Run, task: Task, message: dict[str, Any]) -> None:
        if process.answer == "EpochCompleted":
            self._succeeded(run, task)
            self._ended_well(run)
        elif process.answer == "Waiting":
            restarted = dict(message["restarted"])
            ended_well = [
                [uid, restarted.get(uid, "")]
                for uid in {*restarted, *message["missing"]}
                if run.tasks[uid].state == "success"
            ]
            self._compare_and_clear(run, ended_well, message["unclaimed"])
            self._come_back(run, task, message["text"])
        elif process.answer == "TriggerFirst":
            self._trigger_again(run, task)
        elif process.answer == "Failed" and message["by_rule"]:
            self._needs_hands(run, message["text"], by_rule=True)
        else:
            self._failed(process, message.get("text", ""), called=True)

    def _come_back(self, run: Run, task: Task, why: str) -> None:
        """A task waits, and asks again; if it waits for nobody, the run is stuck."""
        on = [each for each in self._processes.values() if not each.over and each.number != task.process]
        others = [each for each in self.runs if not each.ended and each is not run]
        task.idle = 0 if on or others or self.paused or self.people.busy() else task.idle + 1
        task.state, task.came_back, task.due = "none", True, self._quiets + (PATIENT if run.patient else 1)
        if task.idle >= MAX_IDLE:
            self.violation("stuck", f"{run.epoch} {task.name} waits for nobody: {why}")
            self._clear_by_hand(run)

    def _succeeded(self, run: Run, task: Task) -> None:
        task.state = "success"
        self._next_has_run(run, task)
        self.people.after(run, task)

    def _failed(self, process: Process, why: str, *, called: bool) -> None:
        """A try has failed: its callback runs, before the next try if the try itself has called it."""
        run, task = process.run, process.task
        assert run is not None
        assert task is not None
        self._next_has_run(run, task)
        final = task.tries > RETRIES
        task.state = "failed" if final else "retry"
        if process.role == "stage":
            told: dict[str, Any] = {"epoch": run.epoch, "stage": task.name, "claimant": task.claimant, "final": final}
            told["unknown"] = not called  # a task that was killed has not seen its driver's end
            strike = run.take("kill callback", task.name)
            callback = Process(0, "callback", run, task, task.claimant, (strike,) if strike else ())
            if called and not final:
                task.state = "failing"
            self.spawn("callback", callback, **told, **(strike.told if strike else {}))
        if final:
            self._needs_hands(run, f"{task.name} has no tries left: {why}")

    def _called(self, process: Process, restarted: list[list[str]], unclaimed: list[str]) -> None:
        run, task = process.run, process.task
        assert run is not None
        assert task is not None
        self._compare_and_clear(run, restarted, unclaimed)
        if task.state == "failing" and task.claimant == process.claimant:
            task.state = "retry"

    def _compare_and_clear(self, run: Run, restarted: list[list[str]], unclaimed: list[str]) -> list[str]:
        """Clear the tasks that have to run again and do not by themselves; gives their names."""
        cleared = []
        for uid, claimant in restarted:
            task = run.tasks[uid]
            due = uid in unclaimed and task.state != "failed" and (task.claimant == claimant or task.state == "success")
            if due and not run.ended:
                self.note(f"{run.epoch} {uid} is cleared by a failover")
                self.clear(run, task, by_hand=False)
                cleared.append(uid)
        return cleared

    def clear(self, run: Run, task: Task, *, by_hand: bool) -> None:
        """Clear a task; what runs of it is ended."""
        process = self._processes.get(task.process or 0)
        if process is not None and not process.over and not process.ghost:
            process.ghost = True
            for pid in (process.driver, process.pid):
                if pid:
                    self._signal(pid, signal.SIGKILL)
        task.clear(by_hand=by_hand)
        run.ended = False

    def _ended_well(self, run: Run, *, counts: bool = True) -> None:
        run.ended = True
        (self.counting if counts else self.skipped).add(run.epoch)
        self.figures.runs += 1
        now = time.monotonic()
        if run.struck is None:
            self.figures.calm_s.append(now - run.started)
        else:
            self.figures.healed_s.append(now - run.struck)
        self.note(f"run {run.epoch} {'has ended well' if counts else 'is skipped'}")
        for process in self._processes.values():
            if process.run is run and process.until == "end":
                self._let_go_on(process)
        if self._plant == "stuck" and run.number == 1:
            self.spawn("hand", what="shutdown")

    def _needs_hands(self, run: Run, why: str, *, by_rule: bool = False) -> None:
        if by_rule:
            self.figures.hands[why.split(":", maxsplit=1)[0]] += 1
            self.note(f"{run.epoch} needs hands by the rules: {why}")
        else:
            self.violation("hands", f"{run.epoch}: {why}")
        self._clear_by_hand(run)

    def _clear_by_hand(self, run: Run) -> None:
        run.cleared += 1
        if run.cleared > MAX_CLEARS:
            raise StuckError(f"{run.epoch} does not end, though it was cleared {MAX_CLEARS} times")
        self.note(f"{run.epoch} is cleared as a whole")
        for task in run.tasks.values():
            self.clear(run, task, by_hand=True)

    # Stopped processes go on.

    def _next_has_run(self, run: Run, task: Task) -> None:
        for process in self._processes.values():
            if process.run is run and process.task is task and process.until == "next" and process.ghost:
                self._let_go_on(process)

    def _let_go_on(self, process: Process) -> None:
        for pid in list(process.standing):
            self.note(f"#{process.number} {process.role} goes on")
            process.standing.discard(pid)
            wait_until(partial(_stands, pid), 600, f"process {pid} to stand still")
            self._signal(pid, signal.SIGCONT)

    def _let_driver_go_on(self, run: Run, task: Task) -> None:
        """Nothing else would come: somebody waits for it."""
        for process in self._processes.values():
            if process.run is run and process.task is task and process.driver in process.standing:
                self._let_go_on(process)

    def _signal(self, pid: int, number: signal.Signals) -> None:
        assert pid > 0
        try:
            os.kill(pid, number)
        except ProcessLookupError:
            return

    def _settle(self) -> None:
        """Let everybody come to an end, then clean."""
        while self._nursery.children():
            for process in list(self._processes.values()):
                self._let_go_on(process)
            self._hear()
        for _ in range(2):
            self.wait_for("cleaner")

    def wait_for(self, role: str, **told: Any) -> None:
        """Let a process come to its end, before anything else begins."""
        process = self.spawn(role, **told)
        while not process.over:
            self._hear()


def _stands(pid: int) -> bool:
    """Tell whether a process that has said that it will be stopped is, or is gone."""
    try:
        return psutil.Process(pid).status() in (psutil.STATUS_STOPPED, psutil.STATUS_ZOMBIE)
    except psutil.NoSuchProcess:
        return True
