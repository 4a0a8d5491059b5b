from pathlib import Path

from pipeline.cluster.frozen import Submission, SubmittedJob
from pipeline.cluster.logs import Follower, choose_jobs

JOBS = [
    SubmittedJob("01-shard-clean", "7", "shard", "", "shard/a", [], 2, "clean"),
    SubmittedJob("01-shard", "8", "shard", "", "shard/a", ["7"]),
    SubmittedJob("09-finetune", "9_0", "finetune", "seed=1", "finetune/a", ["8"]),
    SubmittedJob("09-finetune", "9_1", "finetune", "seed=2", "finetune/b", ["8"]),
]


def test_jobs_are_chosen_by_stage_name_task_or_id() -> None:
    assert choose_jobs(JOBS, "shard") == JOBS[:2]
    assert choose_jobs(JOBS, "01-shard") == [JOBS[1]]
    assert choose_jobs(JOBS, "09-finetune[1]") == choose_jobs(JOBS, "9_1") == [JOBS[3]]
    assert choose_jobs(JOBS, "9") == choose_jobs(JOBS, "finetune") == JOBS[2:]
    assert choose_jobs(JOBS, "pretrain") == []


def test_only_complete_new_lines_are_printed(tmp_path: Path) -> None:
    submission = Submission(tmp_path / "one")
    submission.create()
    said: list[str] = []
    follower = Follower(submission, JOBS[2:], said.append)
    assert follower.print_new() == 0 and said == []
    first, other = (submission.logs / f"09-finetune-9_{task}.log" for task in (0, 1))
    (submission.logs / "01-shard-8.log").write_text("of another stage\n")
    first.write_text("one\ntw")
    assert follower.print_new() == 1
    assert said == [f"==> {first} <==\n", "one\n"]
    first.write_text("one\ntwo\n")
    follower.print_new()
    assert said[2:] == ["two\n"]
    other.write_text("three\n")
    assert follower.print_new() == 2
    assert said[3:] == [f"==> {other} <==\n", "three\n"]
    assert follower.print_new() == 2 and len(said) == 5
