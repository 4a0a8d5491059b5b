"""A sweep of fine-tunings from the command line to wandb's server: a run per point.

About 8 s: wandb starts once per point.
"""

from pathlib import Path

import pytest

from pipeline.commands.main import run
from tests.pipeline.wandb_server import WandbServer

WORDS = ["good", "bad", "film"]


def test_a_sweep_is_read_back_from_the_server(
    server: WandbServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    lines = [f"{WORDS[n % 3]} {WORDS[n % 2]}\t{n % 2}" for n in range(60)]
    (tmp_path / "train.tsv").write_text("\n".join(["sentence\tlabel", *lines, ""]))
    (tmp_path / "glove.txt").write_text("good 1 0\nbad 0 1\nfilm 1 1\n")
    words = [
        "name=mine", "encoder=glove.txt", "task.name=toy", "task.data_dir=.",
        "task.train=train.tsv", "finetune.lr=0.1,0.2", "finetune.seed=1",
        "finetune.accelerator=cpu", "tracking.mode=online", "finetune.epochs=2",
    ]  # fmt: skip
    assert run(["finetune", "-m", *words, "--at-once=1"]) == 0
    runs = {each["name"]: each for each in server.named("UpsertBucket") if each.get("displayName")}
    assert sorted(each["displayName"] for each in runs.values()) == ["lr=0.1", "lr=0.2"]
    assert {each["jobType"] for each in runs.values()} == {"finetune"}
    [sweep] = [path.name for path in Path("store/sweeps").iterdir() if path.is_dir()]
    assert {each["groupName"] for each in runs.values()} == {sweep}
    rows = server.history()
    assert {"loss", "learning_rate", "dev_accuracy", "epoch"} <= rows[0].keys()
    assert any("test_accuracy" in row for row in rows)
