"""Every strategy trains for real, in two processes; all give the same curve and resume exactly."""

import gzip
import json
import os
import re
import signal
import subprocess
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import psutil
import pytest

from data_prep.tokenizers.huggingface import Specials, from_vocabulary, write_folder
from pipeline.estimate.memory import model_memory
from pipeline.export.card import Facts
from pipeline.export.huggingface import export_huggingface
from pipeline.export.weights import read_weights
from pipeline.models.bert.config import BertConfig
from pipeline.models.bert.cost import BertCost
from pipeline.stages.pretrain import make_job
from pipeline.store.checkpoints import checkpoints
from pipeline.training.checkpoint import damage, read_state
from pipeline.training.probing import Probed
from tests.pipeline.toy_pretraining import (
    VOCABULARY,
    Leg,
    Toy,
    last_step,
    lines,
    run_pair,
    start_run,
    toy_config,
)
from tests.small_disk import require, small_disk

SHARED = ("ddp", "zero1", "zero2", "zero3")
CHANGES = (("single", "zero2"), ("zero2", "ddp"), ("ddp", "zero3"), ("zero3", "zero1"))
# torch's NAdam is somebody's own class: it has no `found_inf`, and a moment that is a scalar.
OPTIMIZERS: dict[str, dict[str, Any]] = {
    "lamb": {"kind": "lamb"},
    "stable_adamw": {"kind": "stable_adamw", "clip": 0.0},
    "muon": {"kind": "muon"},
    "nadam": {"kind": "own", "path": "torch.optim.NAdam", "options": {"betas": [0.8, 0.95]}},
}
LONG = 80  # steps: enough to be disturbed in
SIGNALS = (signal.SIGUSR1, signal.SIGUSR2, signal.SIGTERM)


class Runs:
    """The legs of all tests, trained in one pair of processes."""

    def __init__(self, toy: Toy) -> None:
        self.toy = toy
        self.legs: list[Leg] = []
        self.folders: dict[str, Path] = {}

    def add(self, name: str, leg: dict[str, Any] | None = None, **config: Any) -> None:
        """Train a run; `config` makes a new one of that name."""
        if name not in self.folders:
            work = self.toy.work(name, toy_config(**config))
            make_job(work, None).write(work.out)
            self.folders[name] = work.out
        given = dict(leg or {})
        if "copy_of" in given:
            given["copy_of"] = str(self.folders[given["copy_of"]])
        self.legs.append(Leg(str(self.folders[name]), **given))

    def __getitem__(self, name: str) -> Path:
        return self.folders[name]


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Runs]:
    runs = Runs(Toy.make(tmp_path_factory.mktemp("toy")))
    runs.add("single", micro_batch_size=16)
    for strategy in SHARED:
        shared = {"strategy": strategy, "devices": 2, "micro_batch_size": 4}
        runs.add(strategy, **shared)
        runs.add(f"{strategy} resumed", {"copy_of": strategy, "step": 4}, **shared)
        runs.add(f"{strategy} poisoned", {"poison": (5,), "hit": (1,)}, **shared)
        probe = {"copy_of": strategy, "step": 4, "stop_at": 6}
        runs.add(f"{strategy} probed", probe, **shared)
        still = {"copy_of": "single", "step": 4}  # goes through a step that changes nothing
        runs.add(f"{strategy} still", still, strategy=strategy, devices=2, max_steps=5, lr=0.0)
        noisy = shared | {
            "dropout": 0.1,
            "precision": "bf16-mixed",
            "activation_checkpointing": True,
        }
        runs.add(f"{strategy} noisy", **noisy)
        runs.add(f"{strategy} noisy resumed", {"copy_of": f"{strategy} noisy", "step": 4}, **noisy)
    for start, end in CHANGES:
        runs.add(f"{start} to {end}", {"copy_of": start, "step": 4}, strategy=end, devices=2)
    pair: dict[str, Any] = {"strategy": "ddp", "devices": 2}
    for name, optim in OPTIMIZERS.items():
        runs.add(f"single {name}", optim=optim)
        runs.add(name, **pair, optim=optim)
        runs.add(f"{name} resumed", {"copy_of": name, "step": 4}, **pair, optim=optim)
        runs.add(f"{name} poisoned", {"poison": (5,), "hit": (1,)}, **pair, optim=optim)
    runs.add("long", **pair, max_steps=LONG, checkpoint_every=100)
    for number in SIGNALS:
        for hit in ((0, 1), (0,), (1,)):
            interruption = {"signal": number, "hit": hit, "goes_on": True}
            runs.add("interrupted", interruption, **pair, max_steps=LONG, checkpoint_every=100)
    runs.add("interrupted", {"goes_on": True})
    phases: dict[str, Any] = {
        "two_phases": True,
        "ramp_steps": 3,
        "masks": {"mask_rate": 0.4, "final_mask_rate": 0.1},
    }
    runs.add("phases", **pair, **phases)
    runs.add("phases resumed", {"copy_of": "phases", "step": 4}, **pair, **phases)
    runs.add("one rank", {"copy_of": "zero2", "step": 4}, checkpoint_every=2)
    runs.add("two again", {"copy_of": "one rank", "step": 6}, **pair, micro_batch_size=2)
    stopped = {"signal": signal.SIGTERM, "hit": (0,)}
    runs.add("by the clock", stopped, **pair, max_steps=None, max_hours=3 / 3600)
    for _ in range(2):
        runs.add("by the clock", {"goes_on": True})
    runs.add("profiled", micro_batch_size=16, profile=2)
    runs.add("bf16", precision="bf16-mixed", activation_checkpointing=True)
    runs.add("compiled", micro_batch_size=16, compile=True)
    runs.add("spiked", {"poison": (60,), "factor": 5.0, "hit": (1,)}, **pair, max_steps=64)
    poison = {"poison": tuple(range(2, 8)), "hit": (0,), "diverges": True}
    runs.add("diverged", poison, **pair)
    streak = {"poison": tuple(range(2, 7)), "hit": (1,)}  # one step less than a divergence
    runs.add("streak", streak, **pair)
    runs.add("streak resumed", {"copy_of": "streak", "step": 4, **streak}, **pair)
    again = {"copy_of": "streak", "step": 4, **poison}  # two steps before, four after
    runs.add("diverged after resuming", again, **pair)
    early = {"poison": tuple(range(8, 14)), "hit": (0,), "diverges": True}
    runs.add("next phase", early, **pair, two_phases=True, max_steps=16, checkpoint_every=5)
    jump = {"poison": tuple(range(55, 61)), "factor": 1.5, "hit": (0, 1), "diverges": True}
    runs.add("jumped", jump, **pair, max_steps=64, checkpoint_every=20)
    runs.add("blind", {"poison_evaluation": (4,), "hit": (1,)}, **pair)
    says = "the held-out loss is not finite"
    runs.add("blind end", {"poison_evaluation": (8,), "hit": (1,), "stops_with": says}, **pair)
    runs.add("full disk", {"file_limit": 20_000, "hit": (1,)}, **pair)
    # A checkpoint takes some 270 KB: there is room for one of them, then for all.
    with small_disk(runs.toy.root / "runs" / "small disk", 400) as mounted:
        if mounted:
            runs.add("small disk", {"fills_disk": True}, **pair, micro_batch_size=4)
            runs.add("small disk", {"disk": 2000, "goes_on": True})
        run_pair(runs.legs, runs.toy.root / "plan.json")
        yield runs


def journal(run: Path, name: str) -> list[dict[str, Any]]:
    return [json.loads(line) for line in (run / name).read_text().splitlines()]


def losses(run: Path) -> list[float]:
    return [value for line in lines(run) for key, value in line.items() if key.endswith("loss")]


@pytest.mark.parametrize("strategy", SHARED)
def test_strategies_give_the_same_curve(runs: Runs, strategy: str) -> None:
    """fp32 without dropout; sums in another order differ by 1e-7, eight steps let that grow."""
    expected = losses(runs["single"])
    assert len(expected) == 8 * 3 + 2 * 3
    assert losses(runs[strategy]) == pytest.approx(expected, rel=1e-4)


@pytest.mark.parametrize("strategy", SHARED)
def test_strategies_have_the_same_gradients(runs: Runs, strategy: str) -> None:
    """AdamW ignores the gradient's scale, so equal losses alone do not show equal gradients."""
    expected = [line["gradient_norm"] for line in lines(runs["single"]) if "lr" in line]
    found = [line["gradient_norm"] for line in lines(runs[strategy]) if "lr" in line]
    assert len(expected) == 8
    assert found == pytest.approx(expected, rel=1e-3)


@pytest.mark.parametrize("name", OPTIMIZERS)
def test_every_optimizer_gives_one_curve_on_one_rank_and_two(runs: Runs, name: str) -> None:
    expected = losses(runs[f"single {name}"])
    assert losses(runs[name]) == pytest.approx(expected, rel=1e-4)
    assert expected != pytest.approx(losses(runs["single"]), rel=1e-4)  # it is another optimizer


def test_a_profile_is_a_trace_and_a_table_and_changes_nothing(runs: Runs) -> None:
    run = runs["profiled"]
    with gzip.open(run / "profile" / "2.json.gz", "rt") as stream:
        names = {event.get("name") for event in json.load(stream)["traceEvents"]}
    assert {"aten::addmm", "AddBackward0"} <= names
    assert "aten::addmm" in (run / "profile" / "2.txt").read_text()
    assert lines(run) == lines(runs["single"])


def test_a_compiled_model_gives_the_same_curve(runs: Runs) -> None:
    assert losses(runs["compiled"]) == pytest.approx(losses(runs["single"]), rel=1e-4)


NOISY = [f"{strategy} noisy" for strategy in SHARED]  # bf16, dropout, recomputed activations


@pytest.mark.parametrize("strategy", [*SHARED, "phases", *NOISY, *OPTIMIZERS])
def test_resuming_is_bit_exact(runs: Runs, strategy: str) -> None:
    whole, resumed = runs[strategy], runs[f"{strategy} resumed"]
    assert (whole / "metrics.jsonl").read_bytes() == (resumed / "metrics.jsonl").read_bytes()
    files = sorted(path.name for path in (whole / "checkpoints" / "00000008").glob("*.safetensors"))
    assert len(files) == 4  # each rank's part of the weights and of the moments
    for name in files:
        last = Path("checkpoints") / "00000008" / name
        assert (whole / last).read_bytes() == (resumed / last).read_bytes()


@pytest.mark.parametrize("strategy", SHARED)
def test_a_rehearsal_finds_the_restored_state_equal_and_stops_at_its_step(
    runs: Runs, strategy: str
) -> None:
    run = runs[f"{strategy} probed"]
    assert [path.name for path in checkpoints(run / "checkpoints")] == ["00000004", "00000006"]
    probed = Probed.read(run)
    assert probed is not None and probed.compared_tensors > 0 < probed.exchange_seconds
    assert len(probed.ranks) == 2 and {rank["accelerator"] for rank in probed.ranks} == {"cpu"}
    (spent,) = probed.checkpoints
    assert spent["step"] == 6
    whole = [line for line in lines(runs[strategy]) if 4 < line["step"] <= 6]
    assert [line for line in lines(run) if line["step"] > 4] == whole


@pytest.mark.parametrize(("start", "end"), CHANGES)
def test_another_engine_continues_the_same_run(runs: Runs, start: str, end: str) -> None:
    changed = runs[f"{start} to {end}"]
    assert losses(changed) == pytest.approx(losses(runs["single"]), rel=1e-4)
    assert [line.get("position") for line in lines(changed)] == [
        line.get("position") for line in lines(runs["single"])
    ]


def test_checkpoints_of_all_strategies_export_to_the_same_files(runs: Runs, tmp_path: Path) -> None:
    tokenizer = tmp_path / "tokenizer"
    tokenizer.mkdir()
    write_folder(tokenizer, from_vocabulary(VOCABULARY, True, True, Specials()), Specials(), None)
    model = toy_config().model
    assert isinstance(model, BertConfig)
    saved = {"single": runs["single"] / "checkpoints" / "00000004"}
    saved |= {each: runs[f"{each} still"] / "checkpoints" / "00000005" for each in SHARED}
    exports = {}
    for strategy, checkpoint in saved.items():
        out = tmp_path / strategy
        out.mkdir()
        facts = Facts(step=4, tokens=1)
        export_huggingface(
            read_weights([checkpoint]), model, len(VOCABULARY), tokenizer, out, facts
        )
        exports[strategy] = {path.name: path.read_bytes() for path in out.iterdir()}
    assert len(exports["single"]) == 8
    assert all(files == exports["single"] for files in exports.values())


def test_two_ranks_become_one_and_two_again(runs: Runs) -> None:
    assert losses(runs["two again"]) == pytest.approx(losses(runs["single"]), rel=1e-4)
    state = read_state(runs["two again"] / "checkpoints" / "00000008")
    assert (state.updates, state.cursor.position) == (8, 8 * 16)


def test_all_ranks_follow_one_clock(runs: Runs) -> None:
    (last,) = checkpoints(runs["by the clock"] / "checkpoints")[-1:]
    state = read_state(last)
    assert state.seconds >= 3.0
    assert state.step == lines(runs["by the clock"])[-1]["step"]


def test_an_interrupted_run_has_the_rest_of_its_hours(runs: Runs) -> None:
    run = runs["by the clock"]
    # A third launch found the time used up, as the checkpoint keeps it, and took no step.
    first, second = journal(run, "launches.jsonl")
    assert first["step"] == 0 < second["step"]
    left = {line["step"]: line["seconds_left"] for line in journal(run, "timing.jsonl")}
    assert 3.0 > left[1] > left[second["step"]] > left[second["step"] + 1]
    assert list(left.values()) == sorted(left.values(), reverse=True)


def test_zero_divides_the_optimizer_state(runs: Runs) -> None:
    def bytes_of(strategy: str) -> int:
        size: int = journal(runs[strategy], "timing.jsonl")[-1]["optimizer_bytes"]
        return size

    assert bytes_of("ddp") == bytes_of("single")
    for strategy in ("zero1", "zero2", "zero3"):
        assert bytes_of(strategy) == pytest.approx(bytes_of("ddp") / 2, rel=0.02)
    model = toy_config().model
    assert isinstance(model, BertConfig)
    weights = BertCost(model, len(VOCABULARY)).parameters()
    for strategy, ranks in (("single", 1), *((name, 2) for name in SHARED)):
        estimated = model_memory(weights, strategy, ranks, "fp32").optimizer
        assert bytes_of(strategy) == pytest.approx(estimated, rel=0.02)


def test_a_run_interrupted_by_every_signal_equals_an_undisturbed_one(runs: Runs) -> None:
    """USR1, USR2 and TERM, each to both ranks, to rank 0 and to rank 1: nine interruptions."""
    interrupted, whole = runs["interrupted"], runs["long"]
    assert (interrupted / "metrics.jsonl").read_bytes() == (whole / "metrics.jsonl").read_bytes()
    assert len(checkpoints(interrupted / "checkpoints")) == 3  # the last ones, all by interruption
    assert all(damage(path) is None for path in checkpoints(interrupted / "checkpoints"))


@pytest.mark.parametrize("strategy", [*SHARED, *OPTIMIZERS])
def test_a_step_that_is_not_finite_on_one_rank_is_dropped_on_all(runs: Runs, strategy: str) -> None:
    poisoned = lines(runs[f"{strategy} poisoned"])
    dropped = [line for line in poisoned if "dropped" in line]
    assert dropped == [{"step": 6, "dropped": "the loss is not finite"}]
    before = [line for line in lines(runs[strategy]) if line["step"] < 6]
    assert [line for line in poisoned if line["step"] < 6] == before
    state = read_state(runs[f"{strategy} poisoned"] / "checkpoints" / "00000008")
    assert (state.step, state.updates) == (8, 7)
    assert state.cursor.skipped == ((5 * 16, 6 * 16),)


@pytest.mark.parametrize("strategy", SHARED)
def test_strategies_go_on_alike_after_a_dropped_step(runs: Runs, strategy: str) -> None:
    expected = losses(runs["ddp poisoned"])
    assert losses(runs[f"{strategy} poisoned"]) == pytest.approx(expected, rel=1e-4)


def test_a_spiking_loss_is_dropped_and_its_rows_skipped(runs: Runs) -> None:
    spiked = lines(runs["spiked"])
    (dropped,) = (line for line in spiked if "dropped" in line)
    assert dropped["step"] == 61
    assert re.fullmatch(r"the loss [\d.]+ is beyond [\d.]+", dropped["dropped"])
    state = read_state(runs["spiked"] / "checkpoints" / "00000064")
    assert (state.step, state.updates) == (64, 63)
    assert state.cursor.skipped == ((60 * 16, 61 * 16),)
    assert state.dropped_since is None  # one step is no divergence


def test_every_line_of_timing_tells_speed_and_time_to_finish(runs: Runs) -> None:
    told = journal(runs["phases"], "timing.jsonl")
    assert [line["step"] for line in told] == list(range(1, 9))
    assert told[-1]["seconds_left"] == 0 < told[0]["seconds_left"]
    for line in told:
        assert 0.4 < line["useful"] < 1  # rows of both lengths are half to quite full
        assert 0 < line["flop_utilisation"] <= 1
        assert 0 <= line["data_wait"] + line["overhead"] <= 1


def test_launches_are_recorded_with_what_they_ran_on(runs: Runs) -> None:
    told = [
        (line["step"], line["ranks"], line["strategy"])
        for name in ("single", "one rank", "two again")
        for line in journal(runs[name], "launches.jsonl")
    ]
    assert told == [(0, 1, "single"), (4, 1, "single"), (6, 2, "ddp")]
    interrupted = [line["step"] for line in journal(runs["interrupted"], "launches.jsonl")]
    assert len(interrupted) == 10
    assert interrupted == sorted(interrupted)


def test_rows_that_make_training_diverge_are_skipped_after_rolling_back(runs: Runs) -> None:
    """Steps 2 to 7 were dropped; the checkpoint of step 4 was among them, so none was good."""
    told = [line for line in lines(runs["diverged"]) if "position" in line]
    assert [line["step"] for line in told] == [1, 2, 3, 4, 5, 6, 7, 8]
    assert [line["position"] for line in told] == [16, 32, 144, 160, 176, 192, 208, 224]
    state = read_state(runs["diverged"] / "checkpoints" / "00000008")
    assert state.cursor.skipped == ((32, 128),)
    assert state.updates == 8


def test_dropped_steps_are_counted_across_a_resumption(runs: Runs) -> None:
    streak, resumed = (runs[name] / "metrics.jsonl" for name in ("streak", "streak resumed"))
    assert streak.read_bytes() == resumed.read_bytes()
    assert read_state(runs["streak"] / "checkpoints" / "00000004").dropped_steps == 2
    state = read_state(runs["diverged after resuming"] / "checkpoints" / "00000008")
    assert state.cursor.skipped == ((32, 128),)
    assert (state.updates, state.dropped_steps) == (8, 0)


def test_rows_that_diverge_early_in_a_phase_are_skipped_after_rolling_back_to_the_one_before(
    runs: Runs,
) -> None:
    """The first six steps of the second phase were dropped; only step 5 was saved before them."""
    told = [line for line in lines(runs["next phase"]) if "position" in line]
    assert [line["step"] for line in told] == list(range(1, 17))
    skipped = 6 * 16
    assert [line["position"] for line in told] == [
        *(16 * step for step in range(1, 8)),
        0,  # the eighth step ends a phase
        *(skipped + 16 * step for step in range(1, 9)),
    ]
    state = read_state(runs["next phase"] / "checkpoints" / "00000016")
    assert state.cursor.skipped == ((0, skipped),)
    assert state.updates == 16


def test_a_loss_that_jumps_for_good_is_rolled_back(runs: Runs) -> None:
    """The six steps from 55 on have half as much loss again, which no window learns to accept."""
    state = read_state(runs["jumped"] / "checkpoints" / "00000064")
    assert state.cursor.skipped == ((55 * 16, 61 * 16),)
    assert (state.step, state.updates) == (64, 64)
    assert [line["step"] for line in journal(runs["jumped"], "launches.jsonl")] == [0, 40]


def test_a_held_out_loss_that_is_not_finite_is_recorded_and_stops_no_training(runs: Runs) -> None:
    usual = {line["step"]: line for line in lines(runs["ddp"]) if "heldout_loss" in line}
    found = {line["step"]: line for line in lines(runs["blind"]) if "heldout_loss" in line}
    blind = found[4]
    assert blind["evaluation_failed"] == "the held-out loss is not finite"
    assert [blind[f"heldout_{key}"] for key in ("loss", "mlm_loss", "perplexity")] == [None] * 3
    assert blind["heldout_pair_loss"] == pytest.approx(usual[4]["heldout_pair_loss"], rel=1e-4)
    assert found[8]["heldout_loss"] == pytest.approx(usual[8]["heldout_loss"], rel=1e-4)
    assert "evaluation_failed" not in found[8]


def test_a_model_whose_last_held_out_loss_is_not_finite_is_no_output(runs: Runs) -> None:
    run = runs["blind end"]
    assert lines(run)[-1]["heldout_loss"] is None
    assert [path.name for path in checkpoints(run / "checkpoints")] == ["00000004"]


def test_phases_and_ramp_take_the_rows_they_should(runs: Runs) -> None:
    positions = [line["position"] for line in lines(runs["phases"]) if "position" in line]
    assert positions == [4, 12, 24, 0, 16, 32, 48, 64]  # the fourth ends a phase
    seen = [line["tokens"] for line in lines(runs["phases"]) if "position" in line]
    assert (seen[7] - seen[3]) / (seen[3] - seen[0]) > 1.2  # the second phase has longer rows


def test_a_full_disk_costs_the_checkpoint_not_the_run(runs: Runs) -> None:
    run = runs["full disk"]
    assert losses(run) == pytest.approx(losses(runs["ddp"]), rel=1e-4)
    assert lines(run)[-1]["step"] == 8
    assert list((run / "checkpoints").iterdir()) == []


def test_what_was_saved_stays_good_on_a_small_disk_and_the_run_goes_on_with_room(
    runs: Runs,
) -> None:
    require("small disk" in runs.folders)
    run, whole = runs["small disk"], runs["ddp"]
    # Step 8 found no room: its launch said so, and the next one went on from step 4.
    assert [line["step"] for line in journal(run, "launches.jsonl")] == [0, 4]
    assert losses(run) == losses(whole)
    assert [path.name for path in checkpoints(run / "checkpoints")] == ["00000004", "00000008"]
    assert all(damage(path) is None for path in checkpoints(run / "checkpoints"))
    assert not list((run / "checkpoints").glob(".*"))


def wait_for(what: Callable[[], bool]) -> None:
    deadline = time.monotonic() + 120
    while not what():
        assert time.monotonic() < deadline, "it did not happen"
        time.sleep(0.002)


def start_and_wait(
    runs: Runs, name: str, **config: Any
) -> tuple[subprocess.Popen[str], list[psutil.Process]]:
    """Start or continue a launched run, and let it take a few steps; its process, its ranks."""
    run = runs.toy.root / "runs" / name
    begun = last_step(run)
    launched = start_run(runs.toy, name, strategy="ddp", devices=2, max_steps=LONG, **config)
    wait_for(lambda: last_step(run) > begun + 5 or launched.poll() is not None)
    assert launched.poll() is None, launched.communicate()[1]
    ranks = psutil.Process(launched.pid).children()
    assert len(ranks) == 2
    return launched, ranks


def test_a_run_killed_in_every_way_equals_an_undisturbed_one(runs: Runs) -> None:
    run = runs.toy.root / "runs" / "killed"

    launched, ranks = start_and_wait(runs, "killed")
    wait_for(lambda: any((run / "checkpoints").glob(".*.tmp")))  # while it saves
    launched.kill()
    assert psutil.wait_procs(ranks, timeout=20)[1] == [], "a rank outlived its parent"
    launched.communicate()

    launched, ranks = start_and_wait(runs, "killed")
    ranks[1].kill()
    said = launched.communicate(timeout=60)[1]
    assert launched.returncode == 1
    assert "rank 1 was ended by SIGKILL" in said
    assert not any(rank.is_running() for rank in ranks)

    newest = checkpoints(run / "checkpoints")[-1]
    os.truncate(newest / "weights-00001-of-00002.safetensors", 1000)
    launched, ranks = start_and_wait(runs, "killed")
    launched.send_signal(signal.SIGINT)
    said = launched.communicate(timeout=60)[1]
    assert launched.returncode == 75
    assert f"checkpoint {newest.name} is damaged" in said
    step = int(checkpoints(run / "checkpoints")[-1].name)
    assert f"interrupted at step {step}; run the same command to go on" in said
    assert step < LONG

    launched = start_run(runs.toy, "killed", strategy="ddp", devices=2, max_steps=LONG)
    said = launched.communicate(timeout=120)[1]
    assert launched.returncode == 0, said
    # Evaluations follow trainer.eval_every, the same in both; only checkpoints are elsewhere.
    assert (run / "metrics.jsonl").read_bytes() == (runs["long"] / "metrics.jsonl").read_bytes()
    assert not (run / ".ranks").exists()


def test_a_hanging_collective_or_loader_ends_in_a_stack_dump(runs: Runs, tmp_path: Path) -> None:
    own = Toy.make(tmp_path / "toy")
    endless: dict[str, Any] = {
        "max_steps": 100_000,
        "eval_every": 100_000,
        "checkpoint_every": 100_000,
    }
    loading = start_run(own, "hanging", **endless, timeout_minutes=0.2, loader_workers=1)
    launched, ranks = start_and_wait(runs, "hanging", timeout_minutes=0.2)
    wait_for(lambda: last_step(own.root / "runs" / "hanging") > 0)
    (rank,) = psutil.Process(loading.pid).children()
    (worker,) = rank.children()
    worker.suspend()  # as if the disk did not answer it
    ranks[1].suspend()
    for process in (launched, loading):
        said = process.communicate(timeout=120)[1]
        assert process.returncode == 1
        assert "Timeout (0:00:12)" in said
        assert "most recent call first" in said
        assert "rank 0 failed with code 1" in said
    assert not any(rank.is_running() for rank in ranks)


def test_bf16_and_recomputed_activations_train_as_fp32_does(runs: Runs) -> None:
    found = losses(runs["bf16"])
    assert found == pytest.approx(losses(runs["single"]), rel=0.03)
    assert found != pytest.approx(losses(runs["single"]), rel=1e-5)
