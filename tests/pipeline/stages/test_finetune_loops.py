"""Fine-tuning in this process and on ranks: the same steps, and resumed to the bit."""

import json
import os
import signal
import subprocess
import sys
import time
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from data_prep.errors import SesameError, UsageError
from pipeline.config.schema import Config
from pipeline.models.bert.config import BertConfig
from pipeline.stages import rank_loop
from pipeline.stages.finetune import Finetune
from pipeline.stages.tracked import TRAINING
from pipeline.stages.tuning import uses_ranks
from pipeline.store.checkpoints import CHECKPOINTS, checkpoints
from pipeline.store.journal import read_lines
from pipeline.tasks import device, plain_loop
from pipeline.tasks.config import FinetuneConfig, TaskConfig
from pipeline.tasks.rank_training import divide
from pipeline.training import launch
from pipeline.training.config import TrainerConfig
from pipeline.training.exits import Interrupted
from pipeline.training.rank import train_to_end
from pipeline.training.stopping import StopRequest
from pipeline.workflow.stage import Work
from tests.pipeline.toy_tokenizer import write_toy_tokenizer

WORDS = [f"w{number}" for number in range(40)]
PLAIN = BertConfig(layers=2, hidden=16, heads=2, intermediate=32, max_positions=32)
WITHOUT_DROPOUT = replace(PLAIN, dropout=0.0, attention_dropout=0.0)
TUNING = FinetuneConfig(
    lr=1e-2, epochs=2, batch_size=16, max_seq_length=24, accelerator="cpu", eval_every=5
)
Line = dict[str, Any]


@pytest.fixture(scope="module")
def tokenizer(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_toy_tokenizer(tmp_path_factory.mktemp("tokenizer"), WORDS)


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Sentences whose label is the parity of their first word's number."""
    rng = np.random.default_rng(0)
    folder = tmp_path_factory.mktemp("data")
    for name, size in (("train", 120), ("dev", 40)):
        rows = [rng.integers(0, len(WORDS), rng.integers(1, 15)) for _ in range(size)]
        lines = [f"{' '.join(f'w{n}' for n in row)}\t{row[0] % 2}" for row in rows]
        (folder / f"{name}.tsv").write_text("\n".join(["sentence\tlabel", *lines, ""]))
    return folder


def settings(data: Path, tuning: FinetuneConfig, model: BertConfig = PLAIN) -> Config:
    task = TaskConfig(name="toy", data_dir=str(data), train="train.tsv", dev="dev.tsv")
    return Config(encoder="random", model=model, task=task, finetune=tuning, keep=False)


def work_of(config: Config, tokenizer: Path, folder: Path) -> Work:
    out = folder / "store" / "finetune" / "0123456789abcdef"
    out.mkdir(parents=True, exist_ok=True)
    return Work(config, {"tokenizer": tokenizer}, out, out.name)


def run(config: Config, tokenizer: Path, folder: Path) -> tuple[list[Line], Line]:
    """Fine-tune; return the journal and the scores."""
    work = work_of(config, tokenizer, folder)
    Finetune().run(work)
    return journal(work), json.loads((work.out / "scores.json").read_text())


def journal(work: Work) -> list[Line]:
    return list(read_lines(work.out / ".tracking" / "metrics.jsonl"))


def launch_here(folder: Path, trainer: TrainerConfig, entry: str) -> None:
    """Run a single rank without a process of its own, which saves its start."""
    launch._clear_reports(folder)
    code = train_to_end(folder, plain_loop.StopRequest(), rank_loop.train_rank)
    launch._raise_unless_done(folder, 0, code)


@pytest.fixture
def rank_in_this_process(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(launch, "launch_here", launch_here)


def losses(lines: list[Line]) -> list[float]:
    return [line["loss"] for line in lines if "loss" in line]


class StopsAt(StopRequest):
    """A request to stop that comes when it was looked at often enough."""

    after = 7

    def __init__(self) -> None:
        self._looked = 0

    @property
    def came(self) -> bool:
        self._looked += 1
        return self._looked > 2 * self.after

    @came.setter
    def came(self, value: bool) -> None:
        raise AssertionError("no signal is sent in this test")


def test_an_interrupted_loop_goes_on_to_the_bit(
    tokenizer: Path, data: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    config = settings(data, TUNING)
    whole = run(config, tokenizer, tmp_path / "whole")
    assert [line["step"] for line in whole[0]] == [5, 10, 15, 16, 16]
    assert "dev_accuracy" in whole[0][0] and "test_accuracy" in whole[0][-1]
    monkeypatch.setattr(plain_loop, "StopRequest", StopsAt)
    work = work_of(config, tokenizer, tmp_path / "parts")
    launches = 0
    while True:
        try:
            Finetune().run(work)
            break
        except Interrupted as stopped:
            assert "run the same command to go on" in str(stopped)
            launches += 1
            *_, saved = checkpoints(work.out / TRAINING / CHECKPOINTS)
            assert Finetune().how_far(work.out) == f"step {int(saved.name)}"
    assert launches == 2
    assert (journal(work), json.loads((work.out / "scores.json").read_text())) == whole
    Finetune().tidy(work.out, work.inputs)
    assert not (work.out / TRAINING).exists()


def test_lazy_tables_resume_to_the_bit(
    tokenizer: Path, data: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("pipeline.tasks.lazy_rows.MANY", 0)
    test_an_interrupted_loop_goes_on_to_the_bit(tokenizer, data, tmp_path, monkeypatch)


@pytest.mark.parametrize("minutes", [0.0, 10.0], ids=["saved at the end", "not saved"])
def test_scores_noted_before_a_kill_are_noted_once(
    minutes: float, tokenizer: Path, data: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    tuning = replace(TUNING, checkpoint_minutes=minutes)
    whole = run(settings(data, tuning), tokenizer, tmp_path / "whole")

    def killed(path: Path, content: str) -> None:
        raise KeyboardInterrupt

    work = work_of(settings(data, tuning), tokenizer, tmp_path / "killed")
    with monkeypatch.context() as patch, pytest.raises(KeyboardInterrupt):
        patch.setattr("pipeline.stages.finetune.write_atomically", killed)
        Finetune().run(work)
    assert "test_accuracy" in journal(work)[-1]
    Finetune().run(work)
    assert (journal(work), json.loads((work.out / "scores.json").read_text())) == whole


def test_a_fine_tuning_goes_on_in_the_loop_that_began_it(
    tokenizer: Path,
    data: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    rank_in_this_process: None,
) -> None:
    for engine, other, remedy in (
        ("ranks", "plain", "leave finetune.engine=plain out"),
        ("plain", "ranks", "leave finetune.engine=ranks out"),
    ):
        begun, refused, automatic = (
            work_of(settings(data, replace(TUNING, engine=each)), tokenizer, tmp_path / engine)
            for each in (engine, other, "auto")
        )
        with monkeypatch.context() as patch, pytest.raises(Interrupted):
            patch.setattr(plain_loop, "StopRequest", StopsAt)
            Finetune().run(begun)
        before = journal(begun)
        with pytest.raises(SesameError, match=rf"was begun .*; {remedy}"):
            Finetune().run(refused)
        Finetune().run(automatic)
        assert journal(automatic)[: len(before)] == before
        assert (automatic.out / "scores.json").exists()


def start(work: Work) -> subprocess.Popen[bytes]:
    """Run the stage in a process of its own."""
    code = f"""
import json, sys
from pathlib import Path
from pipeline.config.schema import Config
from pipeline.models.bert.config import BertConfig
from pipeline.stages.finetune import Finetune
from pipeline.tasks.config import FinetuneConfig, TaskConfig
from pipeline.workflow.stage import Work
config = json.loads({json.dumps(json.dumps(asdict(work.config)))})
config = Config(encoder="random", model=BertConfig(**config["model"]),
    task=TaskConfig(**config["task"]), finetune=FinetuneConfig(**config["finetune"]), keep=False)
inputs = {{"tokenizer": Path({str(work.inputs["tokenizer"])!r})}}
Finetune().run(Work(config, inputs, Path({str(work.out)!r}), "0"))
"""
    return subprocess.Popen([sys.executable, "-c", code], env=os.environ | {"OMP_NUM_THREADS": "1"})


def kill_after(work: Work, step: int) -> None:
    """Start the stage and kill it with SIGKILL once a checkpoint of `step` or later is there."""
    process = start(work)
    folder = work.out / TRAINING / CHECKPOINTS
    deadline = time.monotonic() + 120
    while not any(int(each.name) >= step for each in checkpoints(folder)):
        assert process.poll() is None and time.monotonic() < deadline
        time.sleep(0.01)
    process.send_signal(signal.SIGKILL)
    process.wait()


@pytest.fixture(scope="module")
def undisturbed(
    tokenizer: Path, data: Path, tmp_path_factory: pytest.TempPathFactory
) -> dict[str, tuple[list[Line], Line]]:
    """A fine-tuning with dropout by engine."""
    return {
        engine: run(
            settings(data, replace(TUNING, engine=engine)), tokenizer,
            tmp_path_factory.mktemp(engine),
        )
        for engine in ("plain", "ranks")
    }  # fmt: skip


def test_dropout_is_the_same_on_a_rank(undisturbed: dict[str, tuple[list[Line], Line]]) -> None:
    plain, ranks = (losses(undisturbed[engine][0]) for engine in ("plain", "ranks"))
    assert ranks == pytest.approx(plain, abs=1e-4)


@pytest.mark.parametrize("engine", ["plain", "ranks"])
def test_a_killed_fine_tuning_is_resumed_to_the_bit(
    engine: str,
    tokenizer: Path,
    data: Path,
    tmp_path: Path,
    undisturbed: dict[str, tuple[list[Line], Line]],
) -> None:
    whole = undisturbed[engine]
    config = settings(data, replace(TUNING, engine=engine, checkpoint_minutes=0.0))
    work = work_of(config, tokenizer, tmp_path / "killed")
    kill_after(work, 7)
    assert not (work.out / "scores.json").exists()
    Finetune().run(work)
    assert (journal(work), json.loads((work.out / "scores.json").read_text())) == whole


@pytest.fixture(scope="module")
def reference(
    tokenizer: Path, data: Path, tmp_path_factory: pytest.TempPathFactory
) -> tuple[list[Line], Line]:
    """The loop in this process, without dropout."""
    tuning = replace(TUNING, dropout=0.0)
    config = settings(data, tuning, WITHOUT_DROPOUT)
    return run(config, tokenizer, tmp_path_factory.mktemp("reference"))


@pytest.mark.parametrize(
    "changes",
    [
        {"devices": 2, "micro_batch_size": 3, "activation_checkpointing": True},
        {"devices": 2, "strategy": "zero2"},
    ],
    ids=["two ranks in micro-batches", "zero2"],
)
def test_ranks_take_the_steps_of_the_plain_loop(
    changes: Line,
    tokenizer: Path,
    data: Path,
    tmp_path: Path,
    reference: tuple[list[Line], Line],
) -> None:
    config = settings(data, replace(TUNING, dropout=0.0, **changes), WITHOUT_DROPOUT)
    lines, scores = run(config, tokenizer, tmp_path)
    assert losses(lines) == pytest.approx(losses(reference[0]), abs=2e-4)
    assert [line.keys() for line in lines] == [line.keys() for line in reference[0]]
    norms = [[line.get("gradient_norm") for line in found] for found in (lines, reference[0])]
    assert norms[0][:2] == pytest.approx(norms[1][:2], rel=1e-3)
    assert scores["dev_scores"] == pytest.approx(reference[1]["dev_scores"], abs=0.06)


def test_bf16_learns_the_same(
    tokenizer: Path,
    data: Path,
    tmp_path: Path,
    reference: tuple[list[Line], Line],
    rank_in_this_process: None,
) -> None:
    tuning = replace(TUNING, dropout=0.0, precision="bf16-mixed")
    lines, _ = run(settings(data, tuning, WITHOUT_DROPOUT), tokenizer, tmp_path)
    assert losses(lines)[:2] == pytest.approx(losses(reference[0])[:2], rel=0.05)
    assert losses(lines) != pytest.approx(losses(reference[0]), abs=1e-6)


def test_every_input_is_in_one_micro_batch_of_one_rank() -> None:
    for bundles in (1, 2, 7, 16):
        for ranks in (1, 2, 3):
            for size in (None, 1, 3, 50):
                parts = [divide(np.arange(bundles), r, ranks, size) for r in range(ranks)]
                assert len({len(part) for part in parts}) == 1
                every = np.concatenate([each for part in parts for each in part])
                assert sorted(every) == list(range(bundles))
                assert all(len(each) <= (size or bundles) for part in parts for each in part)


def test_a_loss_that_is_not_finite_on_ranks_has_the_same_remedy(
    tokenizer: Path, data: Path, tmp_path: Path, rank_in_this_process: None
) -> None:
    config = settings(data, replace(TUNING, engine="ranks", lr=1e30, clip=0.0, warmup=0.0))
    with pytest.raises(SesameError, match=r"in a row; lower finetune\.lr=1e\+30"):
        run(config, tokenizer, tmp_path)


def test_keys_that_need_ranks_choose_them_and_contradictions_are_told() -> None:
    assert not uses_ranks(TUNING)
    assert uses_ranks(replace(TUNING, micro_batch_size=4))
    assert uses_ranks(replace(TUNING, engine="ranks"))
    assert not uses_ranks(replace(TUNING, mode="frozen"))
    for changes, said in (
        ({"engine": "plain", "devices": 2}, r"finetune\.devices=2: finetune\.engine=plain"),
        ({"mode": "frozen", "precision": "bf16-mixed"}, r"precision=bf16-mixed: .*mode=frozen"),
        ({"mode": "frozen", "engine": "ranks"}, r"finetune\.engine=ranks: .*stored hidden"),
        ({"devices": 17}, r"finetune\.devices=17: more than finetune\.batch_size=16"),
        ({"devices": 2, "strategy": "single"}, r"finetune\.strategy=single: cannot use"),
    ):
        with pytest.raises(UsageError, match=said):
            replace(TUNING, **changes).check()


def test_several_devices_are_refused_on_an_apple_gpu_before_work(
    data: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(device, "choose_device", lambda accelerator: torch.device("mps"))
    with pytest.raises(UsageError, match=r"finetune\.devices=2: an Apple GPU .*accelerator=cpu"):
        Finetune().check_machine(settings(data, replace(TUNING, devices=2)))
    Finetune().check_machine(settings(data, TUNING))
