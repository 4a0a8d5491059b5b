import json
from pathlib import Path
from typing import Any

import cloudpickle
import pytest
from rich.console import Console

from data_prep.errors import UsageError
from data_prep.fields import result_keys
from pipeline.cluster.site import Site
from pipeline.commands import stages, sweep
from pipeline.commands.arguments import Arguments
from pipeline.commands.sweep_points import (
    Point,
    for_hydra,
    summarise_sweep,
    sweep_folder,
    write_point,
)
from pipeline.config.compose import HydraChoices, compose_config
from pipeline.config.sweep import swept_keys, unswept
from pipeline.store.outputs import Store
from pipeline.tasks.config import TaskConfig

SWEPT = ["experiment=smoke", "finetune.lr=1e-4,5e-4", "finetune.seed=1,2", "hydra/launcher=basic"]


def told(overrides: list[str], stage: str, site: Site) -> dict[str, str]:
    config = compose_config(["experiment=smoke", "paths.store=here"])
    launcher = next((w.partition("=")[2] for w in overrides if "launcher=" in w), "basic")
    sweeper = "optuna" if "hydra/sweeper=optuna" in overrides else "basic"
    choices = HydraChoices(sweeper, launcher, {}, "smoke", "bert_tiny")
    words = for_hydra(overrides, stage, config, Path("/s/sweeps/1"), site, choices, {})
    assert words[: len(overrides)] == overrides
    return dict(word.partition("=")[::2] for word in words[len(overrides) :])


def begun(store: Path, number: int, request: dict[str, Any]) -> str:
    output = Store(store).output(request["stage"], f"{number:016x}")
    output.begin(request)
    return output.reference


def trained(store: Path, number: int, rows: int = 2048, **upstream: str) -> str:
    """A pretraining with the inputs that all have, but for what is given."""
    inputs = {"tokenizer": "tokenizer/a", "examples.0": "examples/a", "examples.1": "examples/b"}
    given = {name.replace("_", "."): value for name, value in upstream.items()}
    config = {"trainer": {"eval_rows": rows}, "optim": {"lr": number}}
    request = {"stage": "pretrain", "config": config, "upstream": inputs | given}
    return begun(store, number, request)


def tuned(store: Path, number: int, checksum: str = "1", head: str = "linear", **task: Any) -> str:
    """A fine-tuning on one task, but for what is given."""
    own = result_keys(TaskConfig(name="toy", train="train.tsv", dev="dev.tsv", **task))
    files = {"train.tsv": {"sha256": "0"}, "dev.tsv": {"sha256": checksum}}
    config = {"task": own, "finetune": {"seed": number, "head": head}}
    request = {"stage": "finetune", "config": config, "upstream": {}, "files_read": files}
    return begun(store, number, request)


@pytest.mark.parametrize(
    ("stage", "differing", "reason"),
    [
        ("pretrain", {}, None),
        ("pretrain", {"examples_0": "examples/c"}, None),  # the last phase's are evaluated
        ("pretrain", {"examples_1": "examples/c"}, "held-out examples"),
        ("pretrain", {"tokenizer": "tokenizer/b", "examples_1": "examples/c"},
         "tokenizer, held-out examples"),
        ("pretrain", {"rows": 64}, "trainer.eval_rows"),
        ("finetune", {}, None),
        ("finetune", {"train_examples": 10, "stride": 64}, None),
        ("finetune", {"metric": "f1"}, "task.metric"),
        ("finetune", {"checksum": "2"}, "development set"),
        ("finetune", {"dev_examples": 10}, "development set"),
    ],
)  # fmt: skip
def test_only_what_was_measured_alike_has_a_best(
    stage: str, differing: dict[str, Any], reason: str | None, tmp_path: Path
) -> None:
    make = {"pretrain": trained, "finetune": tuned}[stage]
    for number, given in enumerate(({}, differing)):
        settings, output = [f"optim.lr={number}"], make(tmp_path, number, **given)
        write_point(tmp_path / str(number), Point(number, settings, output, float(number)))
    console = Console(width=200, record=True)
    console.print(summarise_sweep(tmp_path, stage, Store(tmp_path)))
    said = " ".join(console.export_text().split())  # the line is folded to the table's width
    summary = json.loads((tmp_path / "summary.json").read_text())
    if reason is None:
        assert summary["best"] == f"optim.lr={0 if stage == 'pretrain' else 1}"
        assert "no best" not in said
    else:
        assert summary["best"] is None
        assert f"no best: the points differ in {reason}, so their figures do not compare" in said


def test_seeds_may_have_their_own_rows_if_every_variant_has_the_same(tmp_path: Path) -> None:
    for number in range(4):
        examples = f"examples/{number % 2}"
        settings = [f"optim.lr={number // 2}", f"seed={number % 2}"]
        output = trained(tmp_path, number, examples_1=examples)
        write_point(tmp_path / str(number), Point(number, settings, output, float(number)))
    summarise_sweep(tmp_path, "pretrain", Store(tmp_path))
    assert json.loads((tmp_path / "summary.json").read_text())["best"] == "optim.lr=0"


def test_the_best_is_the_best_mean_over_seeds(tmp_path: Path) -> None:
    values = {("a", 1): 0.9, ("a", 2): 0.1, ("b", 1): 0.6, ("b", 2): 0.7}
    for number, ((variant, seed), value) in enumerate(values.items()):
        settings = [f"finetune.head={variant}", f"finetune.seed={seed}"]
        output = tuned(tmp_path, number, head=variant)
        write_point(tmp_path / str(number), Point(number, settings, output, value))
    write_point(tmp_path / "4", Point(4, ["finetune.head=c"], "", None, "it broke"))
    console = Console(width=200, record=True)
    console.print(summarise_sweep(tmp_path, "finetune", Store(tmp_path)))
    said = console.export_text()
    assert said.count("0.6500 best") == 2  # both seeds of b
    assert "it broke" in said
    summary = json.loads((tmp_path / "summary.json").read_text())
    assert summary["best"] == "finetune.head=b"
    assert summary["means"]["finetune.head=a"] == pytest.approx(0.5)
    assert len(summary["points"]) == 5


def test_other_variants_are_tested_against_the_best(tmp_path: Path) -> None:
    levels = {"a": 0.9, "b": 0.899, "c": 0.2}
    cases = [(variant, seed) for variant in levels for seed in range(5)]
    for number, (variant, seed) in enumerate(cases):
        settings = [f"finetune.head={variant}", f"finetune.seed={seed}"]
        noise = 0.01 * (seed * (1 if variant == "a" else 3) % 5)
        value = levels[variant] + noise
        output = tuned(tmp_path, number, head=variant)
        write_point(
            tmp_path / str(number), Point(number, settings, output, value, resolution=0.001)
        )
    console = Console(width=200, record=True)
    console.print(summarise_sweep(tmp_path, "finetune", Store(tmp_path)))
    rows = [row for row in console.export_text().splitlines() if "finetune.head=" in row]
    words = {"a": "best", "b": "cannot tell", "c": "clearly behind"}
    assert [word in row for row, (name, _) in zip(rows, cases, strict=True)
            for word in [words[name]]] == [True] * 15  # fmt: skip


def test_lists_in_settings_and_errors_are_shown_as_typed(tmp_path: Path) -> None:
    settings = ["encoder=[glove,mine]", "corpus.paths=[/data/a]"]
    write_point(tmp_path / "0", Point(0, settings, tuned(tmp_path, 0), 0.5))
    write_point(tmp_path / "1", Point(1, settings, "", None, "runs=[a,b]: no such run"))
    console = Console(width=200, record=True)
    console.print(summarise_sweep(tmp_path, "finetune", Store(tmp_path)))
    said = console.export_text()
    assert said.count("encoder=[glove,mine], corpus.paths=[/data/a]") == 2
    assert "runs=[a,b]: no such run" in said


def test_of_losses_the_lowest_is_best(tmp_path: Path) -> None:
    for number, value in enumerate((3.0, 2.0, 4.0)):
        output = trained(tmp_path, number)
        write_point(tmp_path / str(number), Point(number, [f"optim.lr={number}"], output, value))
    summarise_sweep(tmp_path, "pretrain", Store(tmp_path))
    assert json.loads((tmp_path / "summary.json").read_text())["best"] == "optim.lr=1"


def test_what_is_swept_is_told_from_what_all_points_share() -> None:
    assert swept_keys(SWEPT) == {"finetune.lr", "finetune.seed"}
    assert unswept(SWEPT) == ["experiment=smoke"]


def test_submitit_asks_for_what_the_site_says() -> None:
    site = Site(partition="cpu", time="01:00:00", at_once=3, gpus="0")
    added = told(["hydra/launcher=submitit_slurm"], "finetune", site)
    assert added == {
        "hydra.sweep.dir": "/s/sweeps/1",
        "hydra.launcher.partition": "cpu",
        "hydra.launcher.timeout_min": "60",
        "hydra.launcher.signal_delay_s": "120",
        "hydra.launcher.array_parallelism": "3",
    }


def test_a_study_is_kept_and_what_the_user_says_holds() -> None:
    words = ["hydra/sweeper=optuna", "hydra.sweeper.study_name=mine"]
    added = told(words, "pretrain", Site())
    assert added["hydra.sweeper.storage"] == "sqlite:////s/sweeps/optuna.db"
    assert added["hydra.sweeper.direction"] == "minimize"
    assert "hydra.sweeper.study_name" not in added
    with pytest.raises(UsageError, match="sweeps finetune, pretrain"):
        told(words, "shard", Site())


def test_two_sweeps_started_together_have_two_folders() -> None:
    config = compose_config(["experiment=smoke", "paths.store=here"])
    assert sweep_folder(config) != sweep_folder(config)


def test_ranks_do_not_go_through_submitit() -> None:
    with pytest.raises(UsageError, match="use sesame submit -m"):
        told(["hydra/launcher=submitit_slurm"], "pretrain", Site())


def test_submitit_can_pickle_the_points(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    jobs: list[Any] = []
    monkeypatch.setattr(sweep, "run_hydra", lambda words, job: jobs.append(job))
    words = ["experiment=smoke", f"paths.store={tmp_path}", "finetune.seed=1,2"]
    sweep.run_sweep(Arguments("run", [], words, {}), stages._run, stages.stage_graph)
    assert cloudpickle.dumps(jobs[0])
