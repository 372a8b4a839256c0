"""Regions of a job, and the stages that a failure restarts (semantics F1)."""

from collections.abc import Iterable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from airflow_cairn.checkpoint import CheckpointConfig, TriggerRequest
from airflow_cairn.checkpoint.documents.attempt import Slice, StageSpec
from airflow_cairn.checkpoint.errors import InvalidConfigError
from airflow_cairn.checkpoint.rules.failures import affected_regions as affected
from airflow_cairn.checkpoint.rules.failures import regions_of
from tests.support.world.exchanges import ALL_PIPELINED, CHAIN, DIAMOND


def _names(uids: str) -> frozenset[str]:
    return frozenset(uids.split())


def _dag(edges: str) -> tuple[StageSpec, ...]:
    """Stages from text: `a>b` is a blocking exchange, `a~b` a pipelined one, `a` a stage."""
    upstream: dict[str, list[str]] = {}
    pipelined: dict[str, list[str]] = {}
    for edge in edges.split():
        for uid in edge.replace("~", ">").split(">"):
            upstream.setdefault(uid, [])
        if len(edge) > 1:
            upstream[edge[2]].append(edge[0])
            if edge[1] == "~":
                pipelined.setdefault(edge[2], []).append(edge[0])
    return tuple(StageSpec(uid, tuple(up), pipelined=tuple(pipelined.get(uid, ()))) for uid, up in upstream.items())


@pytest.mark.parametrize(
    ("edges", "regions"),
    [
        ("a>b b>c", "a|b|c"),
        ("a~b b>c", "a b|c"),
        ("a~b a~c b~d c~d", "a b c d"),
        ("a~b c~b d>b", "a b c|d"),
        ("a~c a>b b>c", "a b c"),  # b reads from a's region, and that from b's: a circle
        ("a~d a>b b>c c>d", "a b c d"),
        ("a~d b~c a>b c>d", "a b c d"),
        ("a b", "a|b"),
    ],
)
def test_regions_are_joined_by_pipelined_exchanges_and_by_circles(edges: str, regions: str) -> None:  # semantics F1
    assert regions_of(_dag(edges)) == tuple(_names(uids) for uids in regions.split("|"))


@pytest.mark.parametrize(
    ("edges", "failed", "missing", "restarted"),
    [
        ("a>b b>c", "b", "", "b c"),
        ("a~b b>c", "b", "", "a b c"),
        ("a>b a>c b>d c>d", "b", "", "b d"),
        ("a>b b>c a>d", "b", "a", "a b c d"),
        ("a>b b>c", "a", "c", "a b c"),
        ("a>b c>b", "a", "c", "a b c"),
        ("a>b c", "a", "c", "a b"),  # nobody who runs again reads c
        ("a>b b>c c>d", "d", "b c", "b c d"),
        ("a>b b>c c>d", "d", "b", "d"),  # c still stands, so nobody reads b again
        ("a>b x~b", "a", "", "a b x"),
    ],
)
def test_a_failure_takes_along(edges: str, failed: str, missing: str, restarted: str) -> None:  # semantics F1
    assert affected(_dag(edges), _names(failed), _names(missing)) == _names(restarted)


def test_who_reads_what_is_there_is_not_taken_along() -> None:  # semantics B2, F1
    assert affected(_dag("a>b b>c"), {"b"}, consumers=False) == _names("b")
    assert affected(_dag("a>b b>c"), {"b"}, {"a"}, consumers=False) == _names("a b")


def test_the_regions_of_the_tests_jobs() -> None:  # semantics F1
    assert regions_of(DIAMOND) == (_names("clean"), _names("routes airports report"))
    assert len(regions_of(ALL_PIPELINED)) == 1
    assert affected(CHAIN, {"routes"}) == _names("clean routes report airports")


def test_a_thousand_stages_in_a_row_take_no_time() -> None:  # semantics F1
    row = (StageSpec("s0"), *(StageSpec(f"s{n}", (f"s{n - 1}",)) for n in range(1, 3_000)))
    assert len(regions_of(row)) == 3_000
    assert len(affected(row, {"s0"})) == 3_000


@st.composite
def _dags(draw: st.DrawFn) -> tuple[StageSpec, ...]:
    size = draw(st.integers(1, 7))
    stages = []
    for number in range(size):
        upstream = draw(st.lists(st.sampled_from(range(number)), unique=True)) if number else []
        pipelined = draw(st.lists(st.sampled_from(upstream), unique=True)) if upstream else []
        stages.append(
            StageSpec(f"s{number}", tuple(f"s{n}" for n in upstream), pipelined=tuple(f"s{n}" for n in pipelined))
        )
    return tuple(draw(st.permutations(stages)))


def reads(stages: tuple[StageSpec, ...], readers: Iterable[str], written: Iterable[str]) -> bool:
    by_uid = {spec.uid: spec for spec in stages}
    return any(uid in by_uid[reader].upstream for reader in readers for uid in written)


def naive_regions(stages: tuple[StageSpec, ...]) -> set[frozenset[str]]:
    """The rule word by word: join while two regions share a pipelined exchange or lead to each other."""
    regions = [frozenset({spec.uid}) for spec in stages]

    def leads(one: frozenset[str], other: frozenset[str], past: tuple[frozenset[str], ...] = ()) -> bool:
        return reads(stages, other, one) or any(
            reads(stages, each, one) and leads(each, other, (*past, one))
            for each in regions
            if each not in (one, *past)
        )

    while True:
        pair = next(
            (
                (one, other)
                for one in regions
                for other in regions
                if one != other
                and (
                    any(set(spec.pipelined) & one for spec in stages if spec.uid in other)
                    or (leads(one, other) and leads(other, one))
                )
            ),
            None,
        )
        if pair is None:
            return set(regions)
        regions = [*(each for each in regions if each not in pair), pair[0] | pair[1]]


@given(_dags())
def test_regions_are_what_the_rule_says(stages: tuple[StageSpec, ...]) -> None:  # semantics F1
    found = regions_of(stages)
    assert set(found) == naive_regions(stages)
    assert sorted(uid for region in found for uid in region) == sorted(spec.uid for spec in stages)


@given(_dags(), st.data())
def test_what_runs_again_is_what_the_rule_says(
    stages: tuple[StageSpec, ...], data: st.DataObject
) -> None:  # semantics F1
    uids = [spec.uid for spec in stages]
    failed = data.draw(st.sets(st.sampled_from(uids)))
    missing = data.draw(st.sets(st.sampled_from(uids)))
    found = affected(stages, failed, missing)
    regions = naive_regions(stages)
    due = {region for region in regions if region & failed}
    for _ in regions:
        due |= {region for region in regions for each in due if reads(stages, region, each)}
        due |= {region for region in regions for each in due if reads(stages, each, region & missing)}
    assert found == frozenset().union(*due)


def _refused(stages: tuple[StageSpec, ...], config: CheckpointConfig) -> InvalidConfigError:
    with pytest.raises(InvalidConfigError) as caught:
        TriggerRequest("a", Slice(), stages, config)
    return caught.value


def test_a_pipelined_exchange_needs_an_edge() -> None:  # semantics F1
    error = _refused((StageSpec("a"), StageSpec("b", pipelined=("a",))), CheckpointConfig())
    assert "does not read from; name that one in upstream too" in error.message
    assert (error.fields["stage"], error.fields["pipelined"]) == ("b", "a")


def test_at_least_once_knows_no_pipelined_exchange() -> None:  # semantics B2, F1
    error = _refused(CHAIN, CheckpointConfig(mode="at_least_once"))
    assert "does not go with pipelined exchanges" in error.message
    assert error.fields["pipelined"] == "clean to routes"
