"""Thirty runs under faults without an Airflow, and bugs that are planted so that the auditor finds them."""

from __future__ import annotations

import json

import pytest

from scripts.harness.bucket_server import BucketServer
from scripts.harness.s3_server import S3Server
from tests.chaos.auditor import Audit
from tests.chaos.protocol.plan import ALONE, KINDS, LAUNCHERS, OF_THE_STORE, SHAPES, calm_plan, job_plan
from tests.chaos.protocol.play import ROOT, RUNS, Stage, play, stage
from tests.chaos.report import Figures
from tests.chaos.stored import Folder

pytestmark = [pytest.mark.s3, pytest.mark.timeout(1800)]

SEEDS = (1036, 1142, 1438, 1222, 1639)
"""With every shape of job, one on a disk, some with a source, and every kind of fault; `make chaos` has more.

`make test` plays two, whose drivers are waited for by a task and by the triggerer: region failover alone, no disk, no
program, and no fault of a cleaner, a decline, a driver that stands still or a clock that is behind: the simulation has
these."""


def test_the_seeds_have_jobs_and_faults_of_every_kind() -> None:
    plans = [job_plan(seed, RUNS) for seed in SEEDS]
    assert {plan.shape for plan in plans} == set(SHAPES)
    assert {(plan.overlap, plan.config["max_concurrent_checkpoints"]) for plan in plans} == {(1, 1), (2, 1), (2, 2)}
    assert {plan.config["failover"] for plan in plans} == {"region", "full"}
    assert {plan.on_disk for plan in plans} == {plan.source for plan in plans} == {False, True}
    assert {plan.launcher for plan in plans} == {"", *LAUNCHERS.values()}
    assert {fault.kind for plan in plans for run in plan.runs for fault in run.faults} == {name for name, _ in KINDS}


SOAK = pytest.mark.soak


@pytest.mark.parametrize(
    ("cloud", "seeds"),
    [("s3", SEEDS[:4:2]), *(pytest.param(cloud, SEEDS, marks=SOAK) for cloud in ("s3", "gcs", "azure"))],
    ids=["some", "s3", "gcs", "azure"],
)
def test_every_run_counts_once_and_none_needs_a_person(  # semantics A2, C1, C3, D2, D3, F1, F2, F5, P1, P2, S1, T5, T9
    request: pytest.FixtureRequest, cloud: str, seeds: tuple[int, ...]
) -> None:
    server: BucketServer = request.getfixturevalue(f"{cloud}_server")
    figures, felt = Figures(), {}
    for seed, found in play(server, server.new_root(), [*(job_plan(seed, RUNS) for seed in seeds), *ALONE]):
        figures.add(found)
        felt[seed] = set(found.faults)
    print(f"\n{figures}")
    assert not figures.violations, "\n".join(map(str, figures.violations))
    assert figures.runs >= RUNS * len(seeds)
    assert len(figures.faults) > 12, "faults of many kinds came"
    assert figures.faults.keys() >= {"driver waited for", "driver deferred for"}
    for plan in ALONE:
        assert felt[plan.seed] >= {fault.kind for run in plan.runs for fault in run.faults}, "planned, and not felt"


@SOAK
@pytest.mark.parametrize("cloud", ["gcs", "azure"])
def test_some_faults_on_each_cloud(request: pytest.FixtureRequest, cloud: str) -> None:  # semantics A2, D3, F2, W2, W3
    """Single requests are struck: a first look, where the test above strikes all on these clouds."""
    server: BucketServer = request.getfixturevalue(f"{cloud}_server")
    with stage(server, server.new_root()) as ready:
        figures = ready.play(OF_THE_STORE)
    assert not figures.violations, "\n".join(map(str, figures.violations))
    assert set(figures.faults) >= {fault.kind for run in OF_THE_STORE.runs for fault in run.faults}


@SOAK  # what is wrong at rest is found below
def test_a_fold_that_is_doubled_is_found(s3_server: S3Server, s3_bucket: str) -> None:
    with stage(s3_server, f"s3://{s3_bucket}") as ready:
        figures = ready.play(calm_plan(CALM, 3), "doubled")
    assert "exactly once" in {each.rule for each in figures.violations}
    assert "e0002" in str(figures.violations[0])
    assert f"CHAOS SEED={CALM}" in str(figures.violations[0])


@SOAK
def test_a_compaction_that_loses_a_run_is_found(s3_server: S3Server, s3_bucket: str) -> None:  # semantics K7
    with stage(s3_server, f"s3://{s3_bucket}") as ready:
        figures = ready.play(calm_plan(ONE_BY_ONE, 3), "forgetful")
    assert {each.rule for each in figures.violations} == {"exactly once"}
    assert "have grown to" in str(figures.violations[0])


@SOAK
def test_a_run_that_is_stuck_is_found(s3_server: S3Server, s3_bucket: str) -> None:
    with stage(s3_server, f"s3://{s3_bucket}") as ready:
        figures = ready.play(calm_plan(CALM, 3), "stuck")
    assert {each.rule for each in figures.violations} == {"hands", "stuck"}


CALM = 128
ONE_BY_ONE = 105
"""Of a job whose runs do not overlap."""


@pytest.fixture
def played(s3_server: S3Server, s3_bucket: str) -> tuple[Stage, Folder]:
    """A job that has run well, and its folder."""
    with stage(s3_server, f"s3://{s3_bucket}") as ready:
        assert ready.play(calm_plan(CALM, 3)).violations == []
        return ready, Folder(s3_server.client(), s3_bucket, f"{ROOT}/job-{CALM}/")


def test_what_is_wrong_in_the_store_is_found(s3_server: S3Server, s3_bucket: str, played: tuple[Stage, Folder]) -> None:
    folder, client = played[1], s3_server.client()

    def found() -> set[str]:
        stages = folder.json("head.json")["pending"] or [line["stage"] for line in _lines(folder) if "stage" in line]
        audit = Audit(folder, f"job-{CALM}", ["e0001", "e0002", "e0003"], stages)
        return {rule for rule, _ in audit.at_rest()}

    assert found() == set()
    # Another run may have passed the first one by, so a retained state need not hold it.
    states = [key for key in folder.objects() if key.startswith("chk-") and "state.totals" in key]
    key, whole = next((key, data) for key in states if b"e0001" in (data := folder.bytes(key)))
    client.put_object(Bucket=s3_bucket, Key=f"{folder.prefix}chk-0000000001/acks/src/x.json", Body=b"{}")
    assert found() == {"left over"}
    client.delete_object(Bucket=s3_bucket, Key=f"{folder.prefix}chk-0000000001/acks/src/x.json")
    client.put_object(Bucket=s3_bucket, Key=folder.prefix + key, Body=whole.replace(b"e0001", b"e0009"))
    assert {"missing", "exactly once"} <= found()
    client.put_object(Bucket=s3_bucket, Key=folder.prefix + key, Body=whole)
    client.create_multipart_upload(Bucket=s3_bucket, Key=f"{folder.prefix}chk-0000000001/part")
    assert found() == {"left over"}


def _lines(folder: Folder) -> list[dict[str, object]]:
    ref = folder.json("head.json")["completed"][-1]["metadata"]["key"]
    return [json.loads(line) for line in folder.bytes(ref).splitlines()]
