"""List states, raw files and large values through real epochs: restored, carried over, dropped, left over by nobody."""

# ruff: noqa: PT012 - the epoch's block as a whole is what raises
from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from airflow_cairn.checkpoint.documents.attempt import StageSpec
from airflow_cairn.checkpoint.errors import InvalidStateError
from airflow_cairn.spark import table
from airflow_cairn.storage import InvalidKeyError
from tests.real.spark.pipeline import At, Pipeline, counts, rows
from tests.support.narrowing import known

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.spark


def tree(folder: Path) -> dict[str, bytes]:
    return {str(each.relative_to(folder)): each.read_bytes() for each in folder.rglob("*") if each.is_file()}


def make(folder: Path, content: dict[str, bytes]) -> Path:
    for name, data in content.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_bytes(data)
    return folder


MODEL = {"model.bin": bytes(range(256)) * 999, "trees/1/a b.json": b"{}", "empty": b"", "ü=1/part": b"x"}


def test_every_kind_is_restored_by_the_next_epoch(pipeline: Pipeline, tmp_path: Path) -> None:  # semantics A4, R3, R4
    source = make(tmp_path / "model", MODEL)
    large = {"seen": ["x" * 1000] * 100}
    with pipeline.running("one") as epoch:
        assert epoch.list_state("offsets") is None
        assert not epoch.restore_files("model", tmp_path / "not there")
        epoch.snapshot_list("offsets", [[{"p": 0, "at": 7}, {"p": 1, "at": 9}], []])
        epoch.snapshot_list("rules", [["a"], ["a"]], mode="broadcast")
        epoch.snapshot_list("all", [["y" * 30_000], [2]], mode="union")
        epoch.snapshot_files("model", source)
        epoch.put("small", 1)
        epoch.put("large", large)
        assert epoch.get("large") == large
    assert not (tmp_path / "not there").exists()
    for run_id in ("two", "three"):  # in the third they come from the second, which has carried them over
        with pipeline.running(run_id) as epoch:
            assert epoch.list_state("offsets") == [[{"p": 0, "at": 7}, {"p": 1, "at": 9}], []]
            assert epoch.list_state("rules") == [["a"]]
            assert epoch.list_state("all") == [["y" * 30_000, 2]] * 2
            assert epoch.get("large") == large
            assert epoch.get("small") == 1
            assert epoch.restore_files("model", str(tmp_path / run_id / "model"))
        assert tree(tmp_path / run_id / "model") == MODEL
    assert not [*pipeline.listing("chk-0000000002/state/"), *pipeline.listing("chk-0000000003/state/")]


def test_what_is_written_anew_replaces_it_and_what_is_dropped_ends(pipeline: Pipeline, tmp_path: Path) -> None:
    """semantics A4, C3"""
    with pipeline.running("one") as epoch:
        epoch.snapshot_list("offsets", [[1]])
        epoch.snapshot_files("model", make(tmp_path / "model", MODEL))
        epoch.put("large", "x" * 30_000)
        epoch.put("gone", "y" * 30_000)
    with pipeline.running("two") as epoch:
        epoch.snapshot_list("offsets", [[2]])
        epoch.snapshot_files("model", make(tmp_path / "newer", {"model.bin": b"2"}))
        epoch.put("large", "short now")
        epoch.drop("gone")
        assert epoch.get("gone", "nothing") == "nothing"
        assert epoch.list_state("offsets") == [[1]], "as the restored checkpoint holds it"
    assert [each for each in pipeline.listing() if "/state/" in each] == [
        each for each in pipeline.listing("chk-0000000002/") if each.endswith("/files.model/model.bin")
    ]
    with pipeline.running("three") as epoch:
        assert epoch.list_state("offsets") == [[2]]
        assert epoch.get("large") == "short now"
        assert epoch.restore_files("model", tmp_path / "third")
        assert tree(tmp_path / "third") == {"model.bin": b"2"}
        epoch.drop("model", kind="files")
        epoch.drop("offsets", kind="list")
    assert not [each for each in pipeline.listing() if "/state/" in each]


def test_rescaling_redistributes_lists_and_keeps_keyed_state(spark: SparkSession, at: At) -> None:  # semantics R4
    with at(2, 8).running("one") as epoch:
        epoch.snapshot("totals", counts(spark, ("A-B", 1), ("A-C", 2), ("B-C", 3), ("C-A", 4)), key=["route"])
        epoch.snapshot_list("offsets", [[1, 2, 3], [4]])
        with pytest.raises(InvalidStateError, match=r"stage=`routes` subtasks=`3` parallelism=`2`"):
            epoch.snapshot_list("three", [[1], [2], [3]])
    for run_id, parallelism, given_out in (
        ("two", 8, [[1], [2], [3], [4], [], [], [], []]),
        ("three", 1, [[1, 2, 3, 4]]),
    ):
        with at(parallelism).running(run_id) as epoch:
            totals = known(epoch.state("totals"))
            assert rows(totals) == [("A-B", 1), ("A-C", 2), ("B-C", 3), ("C-A", 4)]
            epoch.snapshot("totals", totals, key=["route"])
            assert epoch.list_state("offsets") == given_out
    with pytest.raises(InvalidStateError, match=r"stage=`routes` parallelism=`9` restored_max_parallelism=`8`"):
        at(9).trigger("four")


def test_raw_files_are_held_to_the_parallelism(at: At, tmp_path: Path) -> None:  # semantics R4
    at(2).run("one", lambda epoch: epoch.snapshot_files("model", make(tmp_path / "model", MODEL)))
    with pytest.raises(
        InvalidStateError, match=r"stage=`routes` parallelism=`3` restored_parallelism=`2` state=`files"
    ):
        at(3).trigger("two")
    at(2).run("two", lambda epoch: epoch.drop("model", kind="files"))
    at(3).trigger("three")


def test_a_block_that_raises_leaves_nothing_of_any_kind(pipeline: Pipeline, tmp_path: Path) -> None:  # semantics A5
    with pytest.raises(ZeroDivisionError), pipeline.running("one") as epoch:
        epoch.snapshot_files("model", make(tmp_path / "model", MODEL))
        epoch.snapshot_list("offsets", [["x" * 30_000]])
        epoch.put("large", "x" * 30_000)
        assert pipeline.listing("chk-0000000001/state/")
        raise ZeroDivisionError
    assert pipeline.listing("chk-0000000001/state/") == []
    assert pipeline.folders() == []


def test_what_does_not_fit_declines_and_leaves_nothing(pipeline: Pipeline) -> None:  # semantics A4, A5
    with pytest.raises(InvalidStateError, match="too many together"), pipeline.running("one") as epoch:
        epoch.snapshot_list("offsets", [["x" * 30_000]])
        for number in range(100):
            epoch.put(f"v{number}", "x" * 30_000)
    assert pipeline.listing("chk-0000000001/state/") == []
    assert len(pipeline.listing("chk-0000000001/declines/")) == 1


def test_misuse_of_raw_files_is_refused(pipeline: Pipeline, tmp_path: Path) -> None:
    make(tmp_path / "model", MODEL)
    with pipeline.running("one") as epoch:
        with pytest.raises(InvalidStateError, match=rf"no such folder to keep .*folder=`file://{tmp_path}/absent`"):
            epoch.snapshot_files("absent", tmp_path / "absent")
        with pytest.raises(InvalidStateError, match="no such folder to keep"):
            epoch.snapshot_files("a-file", tmp_path / "model" / "model.bin")
        epoch.snapshot_files("model", f"file:{tmp_path}/model/")
        with pytest.raises(InvalidStateError, match="written or dropped before in this epoch"):
            epoch.snapshot_files("model", tmp_path / "model")
    with pipeline.running("two") as epoch:
        with pytest.raises(InvalidStateError, match="into an empty folder only"):
            epoch.restore_files("model", tmp_path / "model")
        (tmp_path / "there").mkdir()
        assert epoch.restore_files("model", tmp_path / "there")
    assert tree(tmp_path / "there") == MODEL


@pytest.mark.parametrize(("name", "error"), [("a\nb", InvalidKeyError), ("a\\b", InvalidStateError)])
def test_a_name_that_no_store_can_hold_declines(
    pipeline: Pipeline, tmp_path: Path, name: str, error: type[Exception]
) -> None:  # semantics W5
    with pytest.raises(error), pipeline.running("one") as epoch:
        epoch.snapshot_files("odd", make(tmp_path / "odd", {"fine": b"1", name: b"x"}))
    assert pipeline.listing("chk-0000000001/state/") == []


def test_a_folder_that_changes_during_a_read_is_refused(
    pipeline: Pipeline, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from airflow_cairn.spark.kinds import raw_files

    folder = make(tmp_path / "model", {"a": b"1", "b": b"2"})
    kept = raw_files._ByHadoop.keep

    def meddling(self: Any, name: str, target: str) -> None:
        kept(self, name, target)
        (folder / "c").write_bytes(b"late")

    monkeypatch.setattr(raw_files._ByHadoop, "keep", meddling)
    with pytest.raises(InvalidStateError, match=r"changed while it was copied.*changed=`c`"):
        pipeline.run("one", lambda epoch: epoch.snapshot_files("model", folder))
    assert pipeline.listing("chk-0000000001/state/") == []


def test_a_structured_streaming_query_goes_on_from_its_checkpoint_folder(
    spark: SparkSession, pipeline: Pipeline, tmp_path: Path
) -> None:  # semantics A4
    """Each epoch runs the query until it has read what there is. A retry reads again exactly what was not kept."""
    landing = make(tmp_path / "landing", {"1.csv": b"A-B\n"})

    def run(run_id: str, work: Path, fails: bool = False) -> list[tuple[Any, ...]]:
        with pipeline.epoch(run_id) as epoch:
            epoch.restore_files("stream", work / "checkpoint")
            source = spark.readStream.schema("route STRING").csv(str(landing))
            new: list[tuple[Any, ...]] = []
            query = (
                source.writeStream.foreachBatch(lambda batch, _number: new.extend(rows(batch)))
                .option("checkpointLocation", str(work / "checkpoint"))
                .trigger(availableNow=True)
                .start()
            )
            query.awaitTermination()
            epoch.snapshot_files("stream", work / "checkpoint")
            if fails:
                raise ZeroDivisionError
        return sorted(new)

    pipeline.trigger("one")
    assert run("one", tmp_path / "w1") == [("A-B",)]
    pipeline.complete("one")
    make(landing, {"2.csv": b"B-C\n"})
    pipeline.trigger("two")
    with pytest.raises(ZeroDivisionError):
        run("two", tmp_path / "w2", fails=True)
    make(landing, {"3.csv": b"C-D\n"})
    assert run("two", tmp_path / "w3") == [("B-C",), ("C-D",)]


def test_the_longest_names_hold_every_kind(spark: SparkSession, at: At, tmp_path: Path) -> None:  # semantics W1
    """Job, uid and every output have 250 characters; what is larger than an acknowledgement takes goes into files."""
    longest = "n" * 250
    source = make(tmp_path / "model", {"model.bin": b"m"})
    pipeline = at(stages=(StageSpec(longest), StageSpec("b", (longest,))), job=longest)
    pipeline.trigger("one")
    with pipeline.epoch("one", longest) as epoch:
        epoch.snapshot(longest, counts(spark, ("state", 1)))
        epoch.publish(longest, counts(spark, ("table", 2)))
        epoch.write(counts(spark, ("exchange", 3)), longest)
        epoch.put(longest, "v" * 30_000)
        epoch.snapshot_list(longest, [["l" * 30_000]])
        epoch.snapshot_files(longest, source)
    with pipeline.epoch("one", "b") as below:
        assert rows(below.read(longest, longest, kind="exchange")) == [("exchange", 3)]
    pipeline.complete("one")
    assert rows(table(spark, f"file://{tmp_path}/lake", longest, longest)) == [("table", 2)]
    pipeline.trigger("two")
    with pipeline.epoch("two", longest) as epoch:
        assert rows(epoch.state(longest)) == [("state", 1)]
        assert epoch.get(longest) == "v" * 30_000
        assert epoch.list_state(longest) == [["l" * 30_000]]
        assert epoch.restore_files(longest, tmp_path / "back")
    assert tree(tmp_path / "back") == tree(source)
