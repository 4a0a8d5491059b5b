import json
from pathlib import Path

import pytest
from rich.console import Console

from data_prep.errors import UsageError
from pipeline.cluster.site import Site
from pipeline.compose import compose_config
from pipeline.sweeps import (
    Point,
    for_hydra,
    summarise_sweep,
    sweep_folder,
    swept_keys,
    unswept,
    write_point,
)

SWEPT = ["experiment=smoke", "finetune.lr=1e-4,5e-4", "finetune.seed=1,2", "hydra/launcher=basic"]


def told(overrides: list[str], stage: str, site: Site) -> dict[str, str]:
    config = compose_config(["experiment=smoke", "paths.store=here"])
    words = for_hydra(overrides, stage, config, Path("/s/sweeps/1"), site)
    assert words[: len(overrides)] == overrides
    return dict(word.partition("=")[::2] for word in words[len(overrides) :])


def test_the_best_is_the_best_mean_over_seeds(tmp_path: Path) -> None:
    values = {("a", 1): 0.9, ("a", 2): 0.1, ("b", 1): 0.6, ("b", 2): 0.7}
    for number, ((variant, seed), value) in enumerate(values.items()):
        settings = [f"finetune.head={variant}", f"finetune.seed={seed}"]
        write_point(tmp_path / str(number), Point(number, settings, f"finetune/{number}", value))
    write_point(tmp_path / "4", Point(4, ["finetune.head=c"], "", None, "it broke"))
    console = Console(width=200, record=True)
    console.print(summarise_sweep(tmp_path, "finetune"))
    said = console.export_text()
    assert said.count("best") == 2  # both seeds of b
    assert "it broke" in said
    summary = json.loads((tmp_path / "summary.json").read_text())
    assert summary["best"] == "finetune.head=b"
    assert summary["means"]["finetune.head=a"] == pytest.approx(0.5)
    assert len(summary["points"]) == 5


def test_lists_in_settings_and_errors_are_shown_as_typed(tmp_path: Path) -> None:
    settings = ["encoder=[glove,mine]", "corpus.paths=[/data/a]"]
    write_point(tmp_path / "0", Point(0, settings, "finetune/0", 0.5))
    write_point(tmp_path / "1", Point(1, settings, "", None, "runs=[a,b]: no such run"))
    console = Console(width=200, record=True)
    console.print(summarise_sweep(tmp_path, "finetune"))
    said = console.export_text()
    assert said.count("encoder=[glove,mine], corpus.paths=[/data/a]") == 2
    assert "runs=[a,b]: no such run" in said


def test_of_losses_the_lowest_is_best(tmp_path: Path) -> None:
    for number, value in enumerate((3.0, 2.0, 4.0)):
        write_point(tmp_path / str(number), Point(number, [f"optim.lr={number}"], "", value))
    summarise_sweep(tmp_path, "pretrain")
    assert json.loads((tmp_path / "summary.json").read_text())["best"] == "optim.lr=1"


def test_what_is_swept_is_told_from_what_all_points_share() -> None:
    assert swept_keys(SWEPT) == {"finetune.lr", "finetune.seed"}
    assert unswept(SWEPT) == ["experiment=smoke"]


def test_submitit_asks_for_what_the_site_says() -> None:
    site = Site(partition="cpu", time="01:00:00", at_once=3, gpus=0)
    added = told(["hydra/launcher=submitit_slurm"], "finetune", site)
    assert added == {
        "hydra.sweep.dir": "/s/sweeps/1",
        "hydra.launcher.partition": "cpu",
        "hydra.launcher.timeout_min": "60",
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
