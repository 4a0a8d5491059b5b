"""The whole chain as a user meets it, on the smoke recipe."""

import json
import shutil
from pathlib import Path

import pytest
import transformers

from data_prep.tokenizers import Tokenizer
from pipeline.export.weights import read_weights
from pipeline.inference.fill import Filler
from pipeline.models.bert.config import BertConfig
from pipeline.models.bert.network import BertForPretraining
from tests.conftest import Sesame

ROOT = Path(__file__).parent.parent
NODES = 13
STAGES = ("shard", "tokenizer", "examples", "pretrain", "export", "finetune", "report")


def outputs(store: Path, stage: str) -> list[Path]:
    return [path.parent for path in sorted((store / stage).glob("*/manifest.json"))]


def manifest(output: Path) -> dict[str, object]:
    loaded: dict[str, object] = json.loads((output / "manifest.json").read_text())
    return loaded


def test_a_run_ends_with_the_page(smoke: Sesame) -> None:
    *_, what, more, last_line = (smoke.folder / "first_run.txt").read_text().splitlines()
    assert "sesame list shows this run as smoke" in what
    assert "your own text: sesame run" in more
    assert last_line.startswith("store/report/")
    assert (smoke.folder / last_line).exists()
    counts = [len(outputs(smoke.store, stage)) for stage in STAGES]
    assert counts == [1, 1, 2, 1, 1, 4, 1]  # examples of two lengths, two tasks × two encoders


def test_nothing_lies_beside_the_store(smoke: Sesame) -> None:
    assert {path.name for path in smoke.folder.iterdir()} == {"store", "first_run.txt"}


def test_a_second_run_finds_everything_done(smoke: Sesame) -> None:
    before = {path: path.stat().st_mtime_ns for path in smoke.store.rglob("*") if path.is_file()}
    done = smoke.succeed("run", "experiment=smoke")
    assert done.stderr.count(" done") == NODES
    assert "new" not in done.stderr
    changed = {
        path.relative_to(smoke.store).parts[0]
        for path, time in before.items()
        if path.stat().st_mtime_ns != time
    }
    assert changed <= {"runs"}


def test_the_plan_says_what_differs(smoke: Sesame) -> None:
    said = smoke.succeed("plan", "experiment=smoke", "optim.lr=2e-4", COLUMNS="200").stderr
    assert "optim.lr 0.001 → 0.0002" in said
    assert said.count(" done") == 6  # the data, and what starts from random weights


def test_execution_keys_change_nothing(smoke: Sesame) -> None:
    said = smoke.succeed(
        "plan", "experiment=smoke", "trainer.devices=1", "trainer.strategy=single",
        "trainer.micro_batch_size=4", "corpus.workers=1", "tracking=none", "trainer.log_every=3",
    ).stderr  # fmt: skip
    assert said.count(" done") == NODES


def unfinish(output: Path) -> None:
    """Leave an output as it is before its last moment."""
    request = {
        key: manifest(output)[key]
        for key in ("stage", "format", "config", "upstream", "files_read")
    }
    (output / ".request.json").write_text(json.dumps(request))
    (output / "manifest.json").unlink()


def test_the_plan_says_how_far_an_unfinished_pretraining_is(smoke: Sesame, tmp_path: Path) -> None:
    user = Sesame(tmp_path)
    shutil.copytree(smoke.store, user.store)
    unfinish(*outputs(user.store, "pretrain"))
    said = user.succeed("plan", "experiment=smoke", COLUMNS="200").stderr
    assert "goes on  step 12 of 12" in said


def test_a_step_is_exported_alike_while_its_pretraining_goes_on(
    smoke: Sesame, tmp_path: Path
) -> None:
    user = Sesame(tmp_path)
    shutil.copytree(smoke.store, user.store)
    (pretraining,) = outputs(user.store, "pretrain")
    made = []
    for goes_on in (False, True):
        if goes_on:
            unfinish(pretraining)
            with (pretraining / "metrics.jsonl").open("a") as metrics:
                metrics.write('{"step": 13, "hel')  # a line that is just being written
        said = user.succeed("export", "experiment=smoke", "encoder=smoke@6").stdout
        folder = tmp_path / said.splitlines()[-1]
        files = {
            path.name: path.read_bytes() for path in folder.iterdir() if path.name != "run.json"
        }
        made.append(files)
        shutil.rmtree(folder)
    assert made[0] == made[1]
    assert "manifest.json" in made[0]
    for changing in ("smoke", "smoke@best"):
        refused = user("export", "experiment=smoke", f"encoder={changing}", "export.language=sv")
        assert refused.returncode == 1
        assert "is not finished; run what makes it to its end, or name a step" in refused.stderr


def test_an_estimate_counts_the_examples_there_are(smoke: Sesame) -> None:
    said = smoke.succeed("estimate", "experiment=smoke", COLUMNS="200").stdout
    assert "epochs (by examples in the store)" in said
    tokens = [int(made["tokens"]) for made in _train_counts(smoke.store)]
    rows = [int(made["rows"]) for made in _train_counts(smoke.store)]
    expected = sorted(f"{16 * t / r:,.0f}" for t, r in zip(tokens, rows, strict=True))
    (line,) = (line for line in said.splitlines() if line.startswith("tokens a step"))
    assert sorted(line.split()[3:5]) == expected


def _train_counts(store: Path) -> list[dict[str, int]]:
    return [
        json.loads((output / "statistics.json").read_text())["train"]
        for output in outputs(store, "examples")
    ]


def test_a_mistyped_checkpoint_leaves_nothing_behind(smoke: Sesame) -> None:
    before = set(smoke.store.rglob("*"))
    done = smoke("export", "experiment=smoke", "encoder=smoke@bset")
    assert done.returncode == 2
    assert "export.checkpoint=bset: must be last, best or a step" in done.stderr
    assert "here: 6, 12" in done.stderr
    assert set(smoke.store.rglob("*")) == before


def test_the_exported_model_fills_a_mask_in_plain_transformers(smoke: Sesame) -> None:
    """With the probabilities of the checkpoint that it was made from."""
    (exported,), (trained,) = (outputs(smoke.store, stage) for stage in ("export", "pretrain"))
    described = json.loads((trained / "config.json").read_text())
    model = BertForPretraining(BertConfig(**described["model"]), described["vocab_size"])
    model.load_state_dict(read_weights([max(trained.glob("checkpoints/*"))]))
    text = "The capital of [MASK] is Paris."
    (ours,) = Filler(model, Tokenizer.load(exported)).fill(text, top=5)
    fill = transformers.pipeline("fill-mask", model=str(exported), top_k=5)
    theirs = {answer["token_str"]: answer["score"] for answer in fill(text)}
    assert theirs == pytest.approx({each.piece: each.probability for each in ours}, rel=1e-5)


def test_manifests_hold_no_times_hosts_or_places(smoke: Sesame) -> None:
    for stage in STAGES:
        for output in outputs(smoke.store, stage):
            text = (output / "manifest.json").read_text()
            assert str(smoke.folder) not in text
            assert str(ROOT) not in text


# Curves, and a local sample of what filters took.
KEPT = {"finetune": [".tracking"], "shard": [".dropped.json"]}


def test_no_output_keeps_scaffolding(smoke: Sesame) -> None:
    for stage in ("shard", "tokenizer", "examples", "export", "finetune", "report"):
        for output in outputs(smoke.store, stage):
            hidden = [path.name for path in output.iterdir() if path.name.startswith(".")]
            assert hidden == KEPT.get(stage, [])


def test_a_store_copied_elsewhere_stays_valid(smoke: Sesame, tmp_path: Path) -> None:
    shutil.copytree(smoke.store, tmp_path / "store")
    said = Sesame(tmp_path).succeed("plan", "experiment=smoke").stderr
    assert said.count(" done") == NODES


def test_a_sweep_of_fine_tunings_leaves_one_pretraining(smoke: Sesame, tmp_path: Path) -> None:
    user = Sesame(tmp_path)
    shutil.copytree(smoke.store, user.store)
    user.succeed(
        "finetune", "-m", "experiment=smoke", "encoder=smoke", "task=polarity",
        "finetune.lr=1e-4,5e-4", "finetune.seed=7,8", "--at-once=2",
    )  # fmt: skip
    assert len(outputs(user.store, "pretrain")) == 1
    assert len(outputs(user.store, "finetune")) == 4 + 4
    assert {path.name for path in tmp_path.iterdir()} == {"store"}
    said = user.succeed("list").stdout
    assert "smoke" in said
    page = user.succeed("report", "runs=smoke", "experiment=smoke").stdout.splitlines()[-1]
    assert (user.folder / page / "index.html").exists()


def test_finetune_never_pretrains(smoke: Sesame) -> None:
    done = smoke("finetune", "experiment=smoke", "task=polarity", "optim.lr=7e-4")
    assert done.returncode == 2
    assert "run: sesame pretrain experiment=smoke task=polarity optim.lr=7e-4" in done.stderr
    assert len(outputs(smoke.store, "pretrain")) == 1


def test_clean_removes_only_what_no_run_needs(smoke: Sesame, tmp_path: Path) -> None:
    user = Sesame(tmp_path)
    shutil.copytree(smoke.store, user.store)
    assert "every output belongs to a run" in user.succeed("clean").stdout
    (report,) = outputs(user.store, "report")
    runs = user.store / "runs" / "smoke.json"
    kept = [e for e in json.loads(runs.read_text())["outputs"] if e["stage"] != "report"]
    runs.write_text(json.dumps({"name": "smoke", "outputs": kept}))
    assert "would remove store/report" in user.succeed("clean").stdout
    assert report.exists()
    user.succeed("clean", "--yes")
    assert not report.exists()
    assert len(outputs(user.store, "shard")) == 1
    user.succeed("clean", "--forget", "smoke", "--yes")
    assert [outputs(user.store, stage) for stage in STAGES] == [[]] * len(STAGES)


def test_the_exported_model_fills_blanks_with_the_same_probabilities(smoke: Sesame) -> None:
    import torch
    from transformers import AutoModelForMaskedLM, AutoTokenizer

    from pipeline import load_filler

    text = "The [MASK] was good, and [MASK] it."
    (folder,) = outputs(smoke.store, "export")
    tokenizer = AutoTokenizer.from_pretrained(folder, local_files_only=True)
    model = AutoModelForMaskedLM.from_pretrained(folder, local_files_only=True).eval()
    inputs = tokenizer(text, return_tensors="pt")
    with torch.no_grad():
        shares_NV = model(**inputs).logits[0].softmax(1)
    blanks = shares_NV[inputs["input_ids"][0] == tokenizer.mask_token_id]
    guessed = load_filler("smoke", smoke.store).fill(text, top=3)
    for guesses, shares_V in zip(guessed, blanks, strict=True):
        best = shares_V.topk(3)
        assert [g.piece for g in guesses] == [tokenizer.decode([id]) for id in best.indices]
        assert [g.probability for g in guesses] == pytest.approx(best.values.tolist(), rel=1e-4)


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (("run", "experiment=bert_mini"), "corpus.paths"),
        (("shard", "experiment=bert_mini", "corpus.paths=/no/such/file.txt"), "/no/such/file.txt"),
        (("run", "experiment=demo", "trainer.global_batch_size=63"), "fits: 62, 64"),
        (("run", "trainer.max_stepz=5"), "did you mean trainer.max_steps?"),
        (("pretrian",), "did you mean pretrain?"),
        (("run", "--untill", "examples"), "did you mean --until?"),
        (("run", "experiment=demo", "--until", "example"), "must be one of"),
        (("finetune", "encoder=nobody", "task=polarity"), "encoder=nobody"),
        (("finetune", "experiment=demo"), "task"),
        (("path", "pretraining"), "name one stage"),
        (("bench", "nothing"), "name one of"),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, tuple) else "",
)
def test_bad_usage_leaves_nothing_behind(sesame: Sesame, words: tuple[str, ...], says: str) -> None:
    done = sesame(*words)
    assert done.returncode == 2, done.stderr
    assert says in done.stderr
    assert "Traceback" not in done.stderr
    assert list(sesame.folder.iterdir()) == []
