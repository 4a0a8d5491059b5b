"""Outputs of small runs in the shape their stages write them, and pages about them as browsers
read them, for tests of the report."""

import json
import math
from dataclasses import replace
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import numpy as np

from data_prep.examples.chunks import Chunk, ChunkWriter
from data_prep.fields import result_keys
from data_prep.tokenizers.huggingface import Specials, from_vocabulary, write_folder
from pipeline.config.schema import Config, ReportConfig, ShareConfig
from pipeline.models.bert.config import BertConfig
from pipeline.report.published import published_layers
from pipeline.stages import STAGES
from pipeline.stages.report import Report
from pipeline.store.outputs import Output, Store, fingerprint
from pipeline.workflow.stage import Work

FACTS = {
    "name": "sample",
    "started": "2026-01-02T03:04:05+00:00",
    "finished": "2026-01-02T03:14:05+00:00",
    "host": "node-1",
    "machine": "x86_64, 2 cores",
    "python": "3.11.2",
    "versions": {"torch": "2.9.0", "sesame-encoders": "0.1.0"},
}
WORDS = ["the", "little", "film", "was", "warm", "and", "##est", "quietly", "funny", ".", "it"]
TASKS = {"polarity": ("accuracy", 0.72, 0.61), "mentions": ("entity_f1", 0.48, 0.39)}
CHOICES = ("embeddings", "last", "second_to_last", "sum_all", "mix")
VOID = {"meta", "link", "br", "img", "hr", "input", "wbr"}


class SampleRun:
    """Writes outputs into a store; `inputs` is what a report of them gets."""

    def __init__(self, store: Path, words: list[str] = WORDS) -> None:
        self.store = Store(store)
        self.words = words
        self.config = Config(name="sample", model=BertConfig(layers=2, hidden=128, heads=2))
        self.inputs: dict[str, Path] = {}
        self.seconds = {"shard": 12.3, "pretrain": 431.0, "finetune": 9.8}
        self.task_words = ["a", "warm"]  # of every test example
        self.formats: dict[str, int] = {}  # by stage, where not the current one
        self.tokenizer = "1"  # of the encoders of fine-tunings

    def finish(
        self, role: str, sections: tuple[str, ...], counts: dict[str, Any],
        files: dict[str, str] | None = None, upstream: dict[str, str] | None = None,
    ) -> Output:  # fmt: skip
        """Make an output real."""
        stage = role.split("/")[0]
        request = {
            "stage": stage,
            "format": self.formats.get(stage, STAGES[stage].format),
            "config": {name: result_keys(getattr(self.config, name)) for name in sections},
            "upstream": upstream or {},
            "files_read": {},
        }
        output = self.store.output(stage, fingerprint({**request, "role": role}))
        output.begin(request)
        for name, content in (files or {}).items():
            (output.path / name).write_text(content)
        output.finish(request, counts, FACTS | {"seconds": self.seconds.get(stage, 3.4)})
        self.inputs[role] = output.path
        return output

    def write_all(self) -> "SampleRun":
        """One output of every stage, and fine-tunings over tasks, encoders and seeds."""
        self.write_shard()
        self.write_examples(self.write_tokenizer())
        self.write_pretraining()
        self.finish("export", ("export",), {"parameters": 4_400_000})
        for task in TASKS:
            for encoder in ("pretrain", "random"):
                for seed in (1, 2, 3):
                    self.write_finetuning(task, encoder, seed)
        return self

    def write_shard(self, more: dict[str, Any] | None = None) -> Output:
        """A corpus of reviews; `more` adds to its counts."""
        documents = {
            "read": 33_530, "kept": 31_246, "broken_files": 1, "repaired": {"invalid_utf8": 4},
            "dropped": {"duplicate": 2_101, "min_characters": 180, "where": 3},
        }  # fmt: skip
        counts = {
            "files": 3,
            "documents": documents,
            "paragraphs": {
                "read": 90_311,
                "kept": 88_004,
                "dropped": {"duplicate": 2_001, "document": 306},
            },
            "sections": {"train": 31_089, "heldout": 157},
            "sentences": {"train": 402_118, "heldout": 2_043},
            "words": {"train": 6_012_377, "heldout": 30_119},
            "bytes": {"train": 33_412_876, "heldout": 170_220},
            "shards": {"train": 1, "heldout": 1},
            **(more or {}),
        }
        shape = [2, 9, 60, 311, 1_201, 3_900, 9_204, 10_411, 4_800, 1_100, 220, 28]
        histogram = {"from": [2**n for n in range(12)], "documents": shape}
        statistics = counts | {
            "document_words": histogram,
            "document_sentences": {"from": [1, 2, 4, 8], "documents": [900, 8_000, 20_000, 2_346]},
            "damaged": [["a.jsonl", 17, "malformed_json, document dropped"]],
        }
        return self.finish(
            "shard", ("corpus",), counts, {"statistics.json": json.dumps(statistics)}
        )

    def write_tokenizer(self) -> Output:
        """A vocabulary of a few words."""
        held_out = {
            "words": 30_119, "pieces": 38_250, "characters": 141_000, "fertility": 1.27,
            "unknown_rate": 0.0004, "coverage": 0.99993, "changed_characters": 0.0,
        }  # fmt: skip
        counts = {
            "kind": "wordpiece", "vocab_size": 5 + len(self.words),
            "words": 6_012_377, "distinct_words": 148_213, "heldout": held_out,
        }  # fmt: skip
        output = self.finish("tokenizer", ("tokenizer",), counts)
        specials = Specials()
        vocabulary = [*specials.names(), *self.words]
        write_folder(
            output.path, from_vocabulary(vocabulary, False, False, specials), specials, None
        )
        return output

    def write_examples(self, tokenizer: Output, role: str = "examples") -> Output:
        """Two held-out examples with masks, and counts of many more."""
        lengths = [0] * 129
        for length in range(9, 129):
            lengths[length] = 40 + (9_000 if length == 128 else int(200 * math.exp(-length / 40)))
        whole = {
            "rows": 14_431, "examples": 14_431, "tokens": 1_771_202, "next": 7_190, "other": 7_101,
            "forced": 140, "predictions": 0, "masked": 0, "kept": 0, "replaced": 0,
            "mean_tokens_per_row": 122.735, "efficiency": {"unpacked": 0.958867, "packed": 0.9911},
            "lengths": lengths,
        }  # fmt: skip
        held_out = whole | {
            "rows": 81, "examples": 81, "tokens": 9_800, "next": 41, "other": 39, "forced": 1,
            "predictions": 1_470, "masked": 1_180, "kept": 146, "replaced": 144,
        }  # fmt: skip
        content = json.dumps({"train": whole, "heldout": held_out})
        output = self.finish(
            role, ("examples",), {"train": {"rows": 14_431}, "heldout": {"rows": 81}},
            {"statistics.json": content}, {"tokenizer": tokenizer.reference},
        )  # fmt: skip
        first = 5  # after the special pieces
        ids = [2, first, first + 1, first + 2, first + 3, 3, first + 4, first + 5, first + 6, 3]
        chunk = Chunk(
            tokens=np.array(ids * 2, np.uint16),
            row_examples=np.array([0, 1, 2], np.int32),
            example_tokens=np.array([0, 10, 20], np.int32),
            second=np.array([6, 6], np.uint16),
            label=np.array([0, 1], np.int8),
            coin=np.array([1, 1], np.int8),
            documents=np.array([[1, 1], [1, 2]], np.uint32),
            target=np.array([1, 2, 7], np.uint16),
            target_examples=np.array([0, 2, 3], np.int32),
            input=np.array([4, first + 1, first + 8], np.uint16),
        )
        with ChunkWriter(
            output.path, "heldout", shard_size=1 << 20, chunk_rows=8, vocab_size=100, static=True
        ) as writer:
            writer.add(chunk)
        return output

    def of_run(self, name: str, role: str) -> None:
        """Give an output to a named run, as a report that compares runs gets it."""
        self.inputs[f"{name}/{role}"] = self.inputs.pop(role)

    def write_pretraining(self, role: str = "pretrain", steps: int = 1500) -> Output:
        """Curves that fall and rise as curves do, with one restart and one dropped step."""
        self.config = replace(self.config, trainer=replace(self.config.trainer, max_steps=steps))
        rng = np.random.default_rng(steps)
        metrics: list[dict[str, Any]] = []
        timing: list[dict[str, Any]] = []
        for step in range(10, steps + 1, 10):
            part = step / steps
            loss = 4.2 + 4.6 * math.exp(-5 * part) + rng.normal(0, 0.05)
            told = 0.5 + 0.3 * part + rng.normal(0, 0.02)
            metrics.append({
                "step": step, "position": 64 * step, "loss": loss + 0.6, "mlm_loss": loss,
                "mlm_accuracy": max(0.0, 0.34 - loss / 26), "pair_loss": 0.69 - 0.25 * part,
                "pair_accuracy": told, "perplexity": math.exp(loss), "tokens": 7_000 * step,
                "lr": 1e-3 * min(part / 0.1, (1 - part) / 0.9),
                "gradient_norm": 0.6 + rng.gamma(2, 0.2),
            })  # fmt: skip
            timing.append({
                "step": step, "tokens_per_second": 24_000 + rng.normal(0, 600), "seconds": 2.8,
                "useful": 0.97, "peak_memory_bytes": 1_150_000_000, "data_wait": 0.011,
                "overhead": 0.02, "flop_utilisation": 0.8,
            })  # fmt: skip
            if step % 250 == 0:
                metrics.append({
                    "step": step, "heldout_loss": loss + 0.7, "heldout_mlm_loss": loss + 0.08,
                    "heldout_mlm_accuracy": max(0.0, 0.33 - loss / 26), "heldout_pair_loss": 0.62,
                    "heldout_pair_accuracy": told - 0.01,
                })  # fmt: skip
        metrics.insert(60, {"step": 605, "dropped": "the loss 9.1 is beyond 7.2"})
        started = {"time": FACTS["started"], "ranks": 2, "strategy": "zero2"}
        launches = [{"step": 0, **started}, {"step": 800, **started}]
        return self.finish(
            role, ("model", "optim", "trainer", "pretrain"),
            {"steps": steps, "updates": steps - 1, "tokens": 7_000 * steps},
            {
                "metrics.jsonl": _lines(metrics), "timing.jsonl": _lines(timing),
                "launches.jsonl": _lines(launches),
            },
        )  # fmt: skip

    def write_finetuning(
        self, task: str, encoder: str, seed: int, lr: float = 5e-5, run: str = "",
        labels: int = 400, test: str | None = None, more: dict[str, Any] | None = None,
    ) -> Output:  # fmt: skip
        """One score; the random encoder's is lower, and more labels help."""
        metric, trained, random = TASKS.get(task, ("accuracy", 0.7, 0.6))
        level = random if encoder == "random" else trained
        score = level + 0.004 * (seed - 2) + 0.05 * math.log10(labels / 400)
        own = replace(self.config.finetune, seed=seed, lr=lr)
        told = replace(
            self.config.task, name=task, metric=metric, test=test,
            train_fraction=1.0 if labels == 400 else labels / 400,
        )  # fmt: skip
        self.config = replace(self.config, task=told, finetune=own)
        scores = {
            "task": task, "kind": "tag" if metric == "entity_f1" else "classify",
            "metric": metric, "score": score,
            "scores": {metric: score, "matthews": score - 0.1}, "encoder": encoder, "seed": seed,
            "train_examples": labels, "dev_examples": 200, "test_examples": 2_000, "steps": 39,
            "dev_score": score + 0.02, "dev_scores": [score - 0.03, score + 0.02, score + 0.01],
            "best_epoch": 2, "split": told.scored_split, "repairs": {}, "cut_inputs": 0,
            "mix": None, **(more or {}),
        }  # fmt: skip
        if metric == "accuracy":
            right = round(1_000 * score)
            scores["confusion"] = [[right, 1_000 - right], [1_010 - right, right - 10]]
        labels_of_task = self.config.task.labels or ["no", "yes"]
        named = scores | {"labels": labels_of_task}
        if metric == "entity_f1":
            own = {"entity_f1": score, "entity_precision": 0.6, "entity_recall": 0.3}
            named["by_type"] = {
                label: own | {"gold": 31, "predicted": 28} for label in labels_of_task
            }
        sections = ("task", "finetune", *(("model",) if encoder == "random" else ()))
        role = f"finetune/encoder={encoder}, task={task}, finetune.seed={seed}, finetune.lr={lr}"
        role += f", {labels} labels" if labels != 400 else ""
        predictions = self._predictions(str(scores["kind"]), labels_of_task)
        files = {"scores.json": json.dumps(named), "predictions.jsonl": _lines(predictions)}
        output = self.finish(role, sections, scores, files, self._upstream(encoder))
        if run:
            self.of_run(run, role)
        return output

    def _upstream(self, encoder: str) -> dict[str, str]:
        """What an encoder was made from: all have one tokenizer, and trained ones this model."""
        tokenizer = {"tokenizer": f"tokenizer/{self.tokenizer:0>16}"}
        if encoder in ("random", "tfidf"):
            return tokenizer if encoder == "random" else {}
        model = result_keys(self.config.model)
        name = fingerprint({"encoder": encoder, "model": model} | tokenizer)
        for stage, config, upstream in (
            ("pretrain", {"model": model}, tokenizer),
            ("export", {}, {"pretrain": f"pretrain/{name}"} | tokenizer),
        ):
            self.store.output(stage, name).begin({"config": config, "upstream": upstream})
        return {"encoder": f"export/{name}"}

    def _predictions(self, kind: str, labels: list[str]) -> list[dict[str, Any]]:
        """100 test examples with confidences from 0.5 up; three of four are right."""
        gold: Any = labels[0] if kind == "classify" else [f"B-{labels[0]}", "O"]
        wrong: Any = labels[1] if kind == "classify" else ["O", f"B-{labels[1]}"]
        inputs = [" ".join(self.task_words)] if kind == "classify" else self.task_words
        return [
            {
                "inputs": inputs,
                "gold": gold,
                "prediction": gold if number % 4 else wrong,
                "confidence": 0.5 + number / 200,
                **({} if kind == "classify" else {"scores": [0.5 + number / 200] * len(gold)}),
            }
            for number in range(100)
        ]

    def write_model(
        self, task: str, form: str = "sesame", run: str = "", split: str = "test"
    ) -> Output:
        """A kept model."""
        counts = {
            "task": task, "kind": "tag", "metric": "entity_f1", "encoder": "pretrain", "seed": 2,
            "seeds": [1, 2], "dev_scores": [0.5, 0.6], "test_scores": [0.4, 0.45], "form": form,
            "split": split,
        }  # fmt: skip
        role = f"model/{task}, {form}"
        output = self.finish(role, (), counts)
        if run:
            self.of_run(run, role)
        return output

    def write_layers(self, task: str, encoder: str, run: str = "", split: str = "test") -> Output:
        """A score for each choice of layers and seed."""
        counts = {
            "task": task, "metric": "entity_f1", "encoder": encoder, "width": 200,
            "train_examples": 400, "test_examples": 2_000, "split": split,
            "choices": {
                choice: {
                    split: [level + 0.03 * place, level + 0.02 + 0.03 * place]
                    for split, level in (("dev", 0.5), ("test", 0.4))
                }
                for place, choice in enumerate(CHOICES)
            },
            "published": published_layers(task, "entity_f1"),
        }  # fmt: skip
        role = f"layers/{encoder}, {task}"
        files = {"layers.json": json.dumps(counts)}
        output = self.finish(role, ("layers", "task"), counts, files)
        if run:
            self.of_run(run, role)
        return output


def write_two_runs(store: Path) -> SampleRun:
    """Runs `left` and `right`: pretrainings, a task of the literature over labels, layers."""
    run = SampleRun(store)
    for name, steps, encoder_name in (("left", 300, "bert"), ("right", 500, "elmo")):
        run.write_pretraining(steps=steps)
        run.of_run(name, "pretrain")
        for encoder in ("pretrain", "random"):
            for seed in (1, 2):
                for labels in (40, 400):
                    run.write_finetuning("sst2", encoder, seed, run=name, labels=labels)
                run.write_finetuning("mentions", encoder, seed, run=name, test="test.conll")
        run.write_layers("mentions", encoder_name, run=name)
    return run


def make_page(run: SampleRun, out: Path, share_text: bool = False, title: str = "") -> Path:
    """Run the stage on what a sample run has written; returns the folder of the page."""
    out.mkdir(parents=True)
    config = replace(run.config, share=ShareConfig(share_text), report=ReportConfig(title))
    Report().run(Work(config, run.inputs, out, "0" * 16))
    return out


class PageReader(HTMLParser):
    """Elements, attributes and text as a browser sees them; checks that tags are balanced."""

    def __init__(self, out: Path) -> None:
        super().__init__()
        self.tags: list[str] = []
        self.attributes: list[tuple[str, str]] = []
        self.texts: list[str] = []
        self._open: list[str] = []
        self.feed((out / "index.html").read_text())
        assert self._open == [], f"left open: {self._open}"

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append(tag)
        self.attributes += [(name, value or "") for name, value in attrs]
        if tag not in VOID:
            self._open.append(tag)

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append(tag)
        self.attributes += [(name, value or "") for name, value in attrs]

    def handle_endtag(self, tag: str) -> None:
        assert self._open.pop() == tag

    def handle_data(self, data: str) -> None:
        self.texts.append(data)

    @property
    def text(self) -> str:
        """All text, runs of white space as single spaces."""
        return " ".join("".join(self.texts).split())


def _lines(rows: list[dict[str, Any]]) -> str:
    return "".join(json.dumps(row) + "\n" for row in rows)
