"""The arithmetic of `bench.recovery`: figures from the tries that it has seen."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass


@dataclass(frozen=True)
class Try:
    """One try of one task; times in seconds since any common moment."""

    task: str
    number: int
    """From 1."""
    begin: float
    end: float
    is_stage: bool = True
    """False for the tasks that trigger a checkpoint and wait for it."""

    @property
    def seconds(self) -> float:
        return self.end - self.begin


@dataclass(frozen=True)
class Run:
    """All tries of one DAG run, in any order."""

    tries: Sequence[Try]

    @property
    def wall(self) -> float:
        """Seconds from the first task's start to the last one's end."""
        return max(each.end for each in self.tries) - min(each.begin for each in self.tries)

    @property
    def stages(self) -> list[Try]:
        return [each for each in self.tries if each.is_stage]

    @property
    def again(self) -> list[Try]:
        """The stages' tries that repeat earlier ones."""
        return [each for each in self.stages if each.number > 1]

    @property
    def beside_stages(self) -> float:
        """Seconds of an epoch beside its stages: before the first starts, and after the last has ended."""
        return self.wall - (max(each.end for each in self.stages) - min(each.begin for each in self.stages))

    def until_it_runs_again(self, died: str) -> float:
        """Return the seconds from the end of the killed try to the start of the first repeated try."""
        end = next(each.end for each in self.stages if each.task == died and each.number == 1)
        return min(each.begin for each in self.again) - end

    def recovery(self, died: str) -> float:
        """Return the seconds from the end of the killed try to its stage's success."""
        first, second = (next(each for each in self.stages if (each.task, each.number) == (died, n)) for n in (1, 2))
        return second.end - first.end


def seconds(tries: Collection[Try]) -> float:
    return sum(each.seconds for each in tries)


def figures(
    healthy: Run, region: Run, full: Run, retry: Run, *, together: Collection[str], died: str
) -> dict[str, object]:
    """Compute the figures of `bench.recovery` as its documentation defines them.

    The run `retry` is with Airflow's retry, without Cairn. `together` are the tasks of the killed task's region.
    """
    whole = seconds(healthy.stages)
    region_share = seconds([each for each in healthy.stages if each.task in together]) / whole
    fixed_share = healthy.beside_stages / healthy.wall
    arms: Mapping[str, Run] = {"region": region, "full": full, "retry": retry, "healthy": healthy}
    return {
        "rerun_share": round(seconds(region.again) / whole, 3),
        "region_share": round(region_share, 3),
        "wall_ratio_full": round(region.wall / full.wall, 3),
        "wall_ratio_retry": round(region.wall / retry.wall, 3),
        "fixed_share": round(fixed_share, 3),
        "recovery_share": round(region.recovery(died) / healthy.wall, 3),
        "wall_again_share": round(region.wall / healthy.wall - 1, 3),
        "target": round(region_share + fixed_share, 3),
        "arms": {
            name: {
                "wall_s": round(run.wall, 1),
                "task_s": round(seconds(run.stages), 1),
                "again": sorted({each.task for each in run.again}),
                "again_s": round(seconds(run.again), 1),
                "until_it_runs_again_s": None if run is healthy else round(run.until_it_runs_again(died), 1),
                "beside_stages_s": round(run.beside_stages, 1),
            }
            for name, run in arms.items()
        },
    }
