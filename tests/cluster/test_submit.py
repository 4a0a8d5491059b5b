"""The graph through a real SLURM: arrays, failures, what is submitted again, what is refused."""

import random
import re
import sys
from collections import Counter
from pathlib import Path

import pytest

from pipeline.cluster.scripts import TEMPLATES
from tests.cluster.conftest import User
from tests.test_data_stages import WORDS, digest, write_texts

pytestmark = pytest.mark.cluster

SMALL = (
    "experiment=bert_tiny", "corpus.paths=texts", "tokenizer.vocab_size=120",
    "examples.max_seq_length=32",
)  # fmt: skip


def test_the_whole_graph_runs_as_jobs(submitted: User) -> None:
    done = Counter(path.parts[-3] for path in submitted.store.glob("*/*/manifest.json"))
    assert done == Counter(
        shard=1, tokenizer=1, examples=2, pretrain=1, export=1, finetune=4, model=2, report=1
    )
    said = submitted.succeed("status").stdout
    # Thirteen outputs; two passes of shard, one of tokenizer and four of each set of examples.
    assert said.count(" done ") == 13 + 2 + 1 + 2 * 4
    assert "05-pretrain-" in said


def test_what_is_done_is_not_submitted_again(submitted: User) -> None:
    said = submitted.succeed("submit", "experiment=smoke").stdout
    assert said == "nothing to submit\n"
    assert submitted.submit("experiment=smoke", "--dry-run") == {}


def test_jobs_leave_what_a_local_run_leaves(submitted: User) -> None:
    said = submitted.succeed("plan", "experiment=smoke").stderr
    assert said.count(" done") == 13
    for output in submitted.store.glob("[se]*[dst]/*/"):  # shard, examples, export
        hidden = {path.name for path in output.iterdir() if path.name.startswith(".")}
        assert hidden <= {".dropped.json"}, "the sample for `sesame inspect dropped`, and no units"


def test_a_dry_run_prints_every_script_and_writes_nothing(user: User) -> None:
    write_texts(user.folder / "texts")
    user.site(array=3, at_once=2, partition="main", stages={"examples": {"time": "01:00:00"}})
    said = user.succeed("submit", *SMALL, "--dry-run", "--until", "examples").stdout
    arrays = ["clean", "write", "count", "tokenize", "pairs", "rows", "write"]
    assert said.count("#!/usr/bin/env bash") == 3 + len(arrays)
    assert said.count("#SBATCH --array=0-2%2") == len(arrays)
    assert said.count("#SBATCH --partition=main") == 3 + len(arrays)
    assert said.count("#SBATCH --time=01:00:00") == 5
    assert "# 03-examples, waits for 03-examples-write" in said
    assert not user.store.exists()


def test_shards_of_any_array_are_the_same_bytes(user: User) -> None:
    draw = random.Random(2)
    (user.folder / "texts").mkdir()
    # Five files of more than 16 MB, so as many pieces at least; most documents fall to `fraction`.
    lines = ["".join(f"{' '.join(draw.choices(WORDS, k=60))}.\n\n") for _ in range(2000)]
    for number in range(5):
        text = "".join(f"Number {number} {each} of {line}" for each in range(24) for line in lines)
        (user.folder / "texts" / f"{number}.txt").write_text(text)
    digests = set()
    for count in (1, 2, 5):
        user.site(array=count)
        words = (*SMALL, "corpus.fraction=0.005", f"paths.store=store{count}")
        jobs = user.submit(*words, "--until", "shard")
        assert len(jobs) == (1 if count == 1 else 3)
        states = user.wait(*jobs.values())
        assert set(states.values()) == {"COMPLETED"}
        assert len(states) == (1 if count == 1 else 2 * count + 1)
        (output,) = (user.folder / f"store{count}" / "shard").iterdir()
        digests.add(digest(output))
    assert len(digests) == 1


def test_the_templates_work_by_hand(user: User) -> None:
    write_texts(user.folder / "texts")
    (user.folder / ".venv").symlink_to(Path(sys.executable).parents[1])
    asked = ("shard", *SMALL)

    def sbatch(*words: str) -> str:
        return user.cluster.call("sbatch", "--parsable", f"--chdir={user.folder}", *words).strip()

    template = f"{TEMPLATES}/pieces.sbatch"
    clean = sbatch("--array=0-1%1", template, "2", *asked)
    write = sbatch("--array=0-1%1", f"--dependency=afterok:{clean}", template, "2:write", *asked)
    merge = sbatch(f"--dependency=afterok:{write}", f"{TEMPLATES}/stage.sbatch", *asked)
    assert set(user.wait(clean, write, merge).values()) == {"COMPLETED"}
    (output,) = (user.store / "shard").iterdir()
    alone = user.succeed(*asked, "paths.store=alone").stdout.strip()
    assert digest(output) == digest(user.folder / alone)


def test_a_failed_task_of_an_array_is_rerun_alone(user: User) -> None:
    write_texts(user.folder / "texts")
    third = '[[ "${SLURM_ARRAY_TASK_ID:-}" != 2 || -e mended ]] || exit 9'
    activate = f'{third}; export PATH="{Path(sys.executable).parent}:$PATH"'
    user.site(array=4, activate=activate)
    jobs = user.submit(*SMALL, "--until", "tokenizer")
    states = user.wait(*jobs.values())
    array = jobs["01-shard-clean"]
    assert states.pop(f"{array}_2") == "FAILED"
    assert [states[f"{array}_{task}"] for task in (0, 1, 3)] == ["COMPLETED"] * 3
    assert states[jobs["01-shard"]] == states[jobs["02-tokenizer"]] == "CANCELLED"
    said = user.succeed("status").stdout
    assert re.search(r"01-shard-clean +\d+ +failed", said)
    assert re.search(r"tasks 0-1, 3 +done", said)
    assert re.search(r"task 2 +failed", said)
    # The array that writes, the job of shard, and both of tokenizer.
    assert len(re.findall(r"cancelled: a job that it waits for did not succeed", said)) == 4

    (user.folder / "mended").touch()
    again = user.submit(*SMALL, "--until", "tokenizer")
    states = user.wait(*again.values())
    tasks = [f"{again[name]}_{task}" for name in ("01-shard-write", "02-tokenizer-count")
             for task in range(4)]  # fmt: skip
    assert set(states) == {
        f"{again['01-shard-clean']}_2",
        again["01-shard"],
        again["02-tokenizer"],
        *tasks,
    }
    assert set(states.values()) == {"COMPLETED"}


def test_dependants_of_a_failed_stage_are_cancelled_and_reported(user: User) -> None:
    write_texts(user.folder / "texts")
    user.site(array=1)
    jobs = user.submit(*SMALL, "tokenizer.vocab_size=30000", "--until", "examples")
    states = user.wait(*jobs.values())
    assert states == {
        jobs["01-shard"]: "COMPLETED",
        jobs["02-tokenizer"]: "FAILED",
        jobs["03-examples"]: "CANCELLED",
    }
    said = user.succeed("status").stdout
    assert re.search(r"02-tokenizer .* failed .*tokenizer\.vocab_size=30000", said)
    assert re.search(r"03-examples .* cancelled", said)


def test_what_is_queued_is_waited_for_and_can_be_cancelled(user: User) -> None:
    write_texts(user.folder / "texts")
    user.site(array=1, extra=["--hold"])
    first = user.submit(*SMALL, "--until", "tokenizer")
    done = user.succeed("submit", *SMALL, "--until", "examples").stdout
    assert f"shard: job {first['01-shard']} makes it already" in done
    assert re.findall(r"^(\d+)  (\S+)", done, re.MULTILINE)[0][1] == "01-examples"
    waiting = user.cluster.call("squeue", "--noheader", "--format=%j %E")
    assert f"afterok:{first['02-tokenizer']}" in re.sub(r"\(\w+\)", "", waiting)
    user.succeed("cancel")
    user.succeed("cancel", next(iter(sorted((user.store / "submissions").iterdir()))).name)
    states = user.wait()
    assert states[first["01-shard"]] == "CANCELLED"
    assert "nothing is waiting or running" in user.succeed("cancel").stdout


def test_an_edit_changes_nothing_that_is_queued(user: User) -> None:
    write_texts(user.folder / "texts")
    conf = user.folder / "conf" / "experiment"
    conf.mkdir(parents=True)
    recipe = "# @package _global_\ndefaults: [bert_tiny]\nname: mine\ncorpus: {paths: texts}\n"
    (conf / "mine.yaml").write_text(recipe)
    user.site(array=1, extra=["--hold"])
    jobs = user.submit("experiment=mine", "--until", "shard")
    before = user.succeed("path", "shard", "experiment=mine").stdout
    (conf / "mine.yaml").write_text(recipe + "tokenizer: {vocab_size: 1}\nno: such key\n")
    user.cluster.call("scontrol", "release", jobs["01-shard"])
    assert set(user.wait(*jobs.values()).values()) == {"COMPLETED"}
    assert (user.folder / before.strip() / "manifest.json").exists()
    (submission,) = (user.store / "submissions").iterdir()
    assert (submission / "code" / "pipeline" / "commands" / "main.py").exists()


def test_a_file_changed_while_queued_is_named(user: User) -> None:
    write_texts(user.folder / "texts")
    user.site(array=1, extra=["--hold"])
    jobs = user.submit(*SMALL, "--until", "shard")
    (user.folder / "texts" / "text_1.txt").write_text("Another text.\n")
    user.cluster.call("scontrol", "release", jobs["01-shard"])
    assert set(user.wait(*jobs.values()).values()) == {"FAILED"}
    assert "text_1.txt has changed since this job was submitted" in user.succeed("status").stdout


def test_gpus_are_requested_for_the_devices(user: User) -> None:
    write_texts(user.folder / "texts")
    words = (*SMALL, "trainer.strategy=ddp", "trainer.devices=2")
    user.site(array=1, extra=["--hold"], gpus="dream", stages={"pretrain": {"partition": "gpu"}})
    jobs = user.submit(*words, "trainer.accelerator=cuda", "--until", "pretrain")
    described = user.cluster.call("scontrol", "show", "job", jobs["04-pretrain"])
    assert "Partition=gpu" in described and "TresPerNode=gres:gpu:dream:2" in described
    assert "gpu:" not in user.cluster.call("scontrol", "show", "job", jobs["01-shard"])
    user.succeed("cancel")
    # Without a type or number, `auto` finds the GPUs of the partition.
    user.site(array=1, gpu_option="gres")
    said = user.succeed("submit", *words, "--partition", "gpu", "--time", "5", "--dry-run").stdout
    assert said.count("#SBATCH --gres=gpu:2") == 1 and "#SBATCH --time=5" in said
    refused = user("submit", *words, "trainer.accelerator=cuda", "--dry-run")
    assert refused.returncode == 2
    assert "needs 2 GPUs per node, but the nodes of the default partition have 0" in refused.stderr


def test_a_sweep_submits_common_stages_once(user: User) -> None:
    write_texts(user.folder / "texts")
    user.site(array=1, extra=["--hold"])
    jobs = user.submit("-m", *SMALL, "optim.lr=1e-3,1e-4,1e-5", "--until", "pretrain")
    stages = [name.partition("-")[2] for name in jobs]
    assert stages == ["shard", "tokenizer", "examples", "pretrain", "pretrain", "pretrain"]
    names = user.cluster.call("squeue", "--noheader", "--format=%100j").split()
    assert {name.rpartition("pretrain-")[2] for name in names} >= {
        "lr=0.001", "lr=0.0001", "lr=1e-05",
    }  # fmt: skip
    user.succeed("cancel")


def test_a_refused_partition_leaves_nothing_behind(user: User) -> None:
    write_texts(user.folder / "texts")
    user.site(partition="nowhere")
    done = user("submit", *SMALL, "--until", "shard")
    assert done.returncode == 1
    assert "invalid partition specified: nowhere" in done.stderr
    assert "Traceback" not in done.stderr
    assert not list((user.store / "submissions").iterdir())
    assert not (user.store / "runs").exists()
