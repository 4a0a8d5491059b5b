"""A submission's folder: hand-overs of chained jobs."""

import multiprocessing
from pathlib import Path

from pipeline.cluster.frozen import Submission, freeze_node, thaw_node
from pipeline.config.compose import compose_config
from pipeline.stages import STAGES
from pipeline.store.outputs import Store
from pipeline.workflow.graph import Graph
from pipeline.workflow.stage import Input

WRITERS, EACH = 4, 30


def hand_over(folder: Path, writer: int) -> None:
    for number in range(EACH):
        Submission(folder).add_successor(f"{writer}{number:03d}", f"9{writer}{number:03d}")


def test_jobs_that_hand_over_at_the_same_time_lose_nothing(tmp_path: Path) -> None:
    fork = multiprocessing.get_context("fork")
    writers = [fork.Process(target=hand_over, args=(tmp_path, n)) for n in range(WRITERS)]
    for writer in writers:
        writer.start()
    for writer in writers:
        writer.join()
    assert [writer.exitcode for writer in writers] == [0] * WRITERS
    expected = {
        f"{writer}{number:03d}": f"9{writer}{number:03d}"
        for writer in range(WRITERS)
        for number in range(EACH)
    }
    assert Submission(tmp_path).successors() == expected


def test_a_hand_over_that_is_still_being_written_is_not_read(tmp_path: Path) -> None:
    submission = Submission(tmp_path)
    submission.add_successor("7", "12")
    (tmp_path / "successors" / ".8.0123abcd.tmp").write_text("1")  # a kill leaves such a file
    assert submission.successors() == {"7": "12"}


def test_an_input_that_is_still_being_made_stays_usable(tmp_path: Path) -> None:
    """`encoder=name@step` names a checkpoint of a run that may still train."""
    config = compose_config(["experiment=smoke", f"paths.store={tmp_path}"])
    inputs = {
        "pretrain": Input("pretrain/0123", tmp_path / "a", may_go_on=True),
        "tokenizer": Input("tokenizer/4567", tmp_path / "b"),
    }
    node = Graph(Store(tmp_path), STAGES).place("export", config, "", inputs)
    freeze_node(node, tmp_path / "node.json")
    assert thaw_node(tmp_path / "node.json", STAGES).inputs == inputs
