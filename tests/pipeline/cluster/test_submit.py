"""Submitting where SLURM is missing, refuses or is elsewhere; scripts play its commands."""

import os
import socket
import sys
from pathlib import Path

import pytest

from data_prep.errors import UsageError
from pipeline.cluster import submit as submit_module
from pipeline.cluster.frozen import (
    Submission,
    SubmittedJob,
    freeze_node,
    refuse_changed_files,
    thaw_node,
)
from pipeline.cluster.site import Site
from pipeline.cluster.submit import check_store
from pipeline.commands.main import run
from pipeline.config.compose import compose_config
from pipeline.stages import STAGES
from pipeline.store.outputs import Store
from pipeline.workflow.graph import experiment_graph
from tests.conftest import Sesame

SMOKE = ("experiment=smoke", "--until", "tokenizer")
REFUSAL = "sbatch: error: Batch job submission failed: Job violates accounting/QOS policy"


@pytest.fixture
def played(sesame: Sesame) -> Sesame:
    """A user with commands that keep what they were told in `told`; the third job is refused."""
    folder = sesame.folder / "bin"
    folder.mkdir()
    scripts = {
        "sbatch": f"""
            [[ "$*" == *--test-only* ]] && exit 0
            echo "$@" >> told
            jobs=$(wc -l < told)
            (( jobs < 3 )) || {{ echo "{REFUSAL}" >&2; exit 1; }}
            echo $jobs""",
        "squeue": "true",
        "sinfo": f"echo {socket.gethostname()}",
        "scancel": 'echo scancel "$@" >> told',
        "scontrol": "echo MaxArraySize = 1001",
        "sacctmgr": "exit 1",
    }
    for name, text in scripts.items():
        (folder / name).write_text(f"#!/usr/bin/env bash\n{text}\n")
        (folder / name).chmod(0o755)
    return sesame


def path_of(user: Sesame) -> str:
    return f"{user.folder / 'bin'}:{os.environ['PATH']}"


def test_a_full_queue_leaves_nothing_half_submitted(played: Sesame) -> None:
    done = played("submit", *SMOKE, PATH=path_of(played))
    assert done.returncode == 1
    assert "Job violates accounting/QOS policy; the 2 jobs before it were cancelled" in done.stderr
    assert "Traceback" not in done.stderr
    told = (played.folder / "told").read_text().splitlines()
    assert "--dependency=afterok:1" in told[1]
    assert "--kill-on-invalid-dep=yes" in told[1]
    assert told[-1] == "scancel 1 2"
    assert not list((played.store / "submissions").iterdir())


def test_without_sbatch_the_remedy_is_said(sesame: Sesame) -> None:
    done = sesame("submit", *SMOKE, PATH=str(Path(sys.executable).parent))
    assert done.returncode == 2
    assert "sbatch is not on the path" in done.stderr
    assert "sesame run" in done.stderr
    assert list(sesame.folder.iterdir()) == []


def test_a_dry_run_needs_no_cluster(sesame: Sesame) -> None:
    done = sesame("submit", *SMOKE, "--dry-run", PATH=str(Path(sys.executable).parent))
    assert done.returncode == 0, done.stderr
    assert "SLURM does not answer here" in done.stderr
    assert (
        done.stdout.count("#!/usr/bin/env bash") == 5
    )  # two passes of shard and one of tokenizer, and the jobs that complete both
    assert list(sesame.folder.iterdir()) == []


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (("submit", "--dryrun"), "did you mean --dry-run?"),
        (("submit", "experiment=smoke", "optim.lrr=1"), "did you mean optim.lr?"),
        (("submit", "experiment=smoke", "--from", "pretrain"), "before it is not done"),
        (("submit", "pretrian"), "pretrian: submit takes one stage of shard, tokenizer"),
        (("submit", "export", "experiment=smoke"), "submit export: its encoder is not pretrained"),
        (("submit", *SMOKE, "--time", "soon"), "--time=soon: must be a time limit of SLURM"),
        (("submit", *SMOKE, "--partition", "a b"), "--partition: must be one word"),
        (("status",), "there is no submission at all"),
        (("logs",), "there is no submission at all"),
        (("sweep",), "there is no sweep at all"),
        (("cancel", "yesterday"), "no submission that begins with yesterday"),
        (("shard", "experiment=smoke", "--share", "8/8"), "the first of eight as 0/8"),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, tuple) else "",
)
def test_bad_usage_is_answered(played: Sesame, words: tuple[str, ...], says: str) -> None:
    done = played(*words, PATH=path_of(played))
    assert done.returncode == 2, done.stderr
    assert says in done.stderr
    assert "Traceback" not in done.stderr


def test_a_store_the_nodes_cannot_see_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    store = Path("/scratch/store")
    monkeypatch.setattr(submit_module, "disk_kind", lambda path: "tmpfs")
    with pytest.raises(UsageError, match="which node7 cannot see"):
        check_store(store, Site(), {"node7", socket.gethostname()})
    check_store(store, Site(shared_store=True), {"node7"})
    check_store(store, Site(), {socket.gethostname()})
    monkeypatch.setattr(submit_module, "disk_kind", lambda path: "lustre")
    check_store(store, Site(), {"node7"})


def test_a_frozen_stage_thaws_as_it_was(tmp_path: Path) -> None:
    overrides = ["experiment=smoke", f"paths.store={tmp_path}"]
    config = compose_config(overrides)
    graph = experiment_graph(
        Store(tmp_path), STAGES, config, lambda p: compose_config([*overrides, *p])
    )
    for node in graph.nodes.values():
        freeze_node(node, tmp_path / "node.json")
        thawed = thaw_node(tmp_path / "node.json", STAGES)
        assert thawed.config == node.config
        assert thawed.inputs == node.inputs
        assert thawed.request == node.request
        assert thawed.output == node.output
        refuse_changed_files(thawed)


def test_logs_are_chosen_by_stage_or_job_without_slurm(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    submission = Submission(tmp_path / "submissions" / "2026_mine")
    submission.create()
    jobs = [
        SubmittedJob("01-shard", "7", "shard", "", "shard/a", []),
        SubmittedJob("02-tokenizer", "8", "tokenizer", "", "tokenizer/a", ["7"]),
    ]
    submission.write_jobs(jobs)
    for job in jobs:
        (submission.logs / f"{job.name}-{job.id}.log").write_text(f"made by {job.stage}\n")
    monkeypatch.setenv("PATH", "")
    store = f"paths.store={tmp_path}"

    def said(*words: str) -> list[str]:
        assert run(["logs", *words, "experiment=smoke", store]) == 0
        return [line for line in capsys.readouterr().out.splitlines() if line.startswith("made")]

    assert said() == ["made by shard", "made by tokenizer"]
    assert said("tokenizer") == said("2026", "02-tokenizer") == ["made by tokenizer"]
    assert said("2026") == said()
    assert run(["logs", "2026", "pretrain", "experiment=smoke", store]) == 2
