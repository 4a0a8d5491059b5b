"""Stage `finetune`: fits an encoder to a task and scores it.

Reads the task's files and an encoder's folder (what `export` writes, or any Hugging Face BERT), or
a tokenizer alone where `encoder=random`. Writes
    scores.json        the score by the task's metric, all other scores, and what they rest on
    predictions.jsonl  inputs, gold, prediction and confidence of every test example
Try it: sesame finetune task=polarity
"""

import json
from pathlib import Path
from typing import Any

from data_prep.fields import result_keys
from data_prep.files import atomic_write, write_atomically
from pipeline.config import Config
from pipeline.stages.work import Request, Work
from pipeline.tasks.splits import task_files

FORMAT = 2
SECTIONS = ("task", "finetune")
RANDOM = "random"  # the encoder that was never trained


def inputs(config: Config) -> dict[str, Request]:
    """The exported encoder, or only its vocabulary where weights are random."""
    if config.encoder == RANDOM:
        return {"tokenizer": Request("tokenizer", config)}
    return {"encoder": Request("export", config)}


def keys(config: Config) -> dict[str, Any]:
    """What shapes the scores: task and fine-tuning, and the model where nothing else tells it."""
    sections = (*SECTIONS, "model") if config.encoder == RANDOM else SECTIONS
    return {section: result_keys(getattr(config, section)) for section in sections}


def files(config: Config) -> list[tuple[str, Path]]:
    """The task's data files."""
    return task_files(config.task)


def run(work: Work) -> dict[str, Any]:
    """Fine-tune once."""
    from pipeline.encoders import load_encoder, random_encoder
    from pipeline.tasks.finetuning import finetune
    from pipeline.tasks.splits import read_splits

    task, config = work.config.task, work.config.finetune
    splits = read_splits(task, config.seed)
    if "encoder" in work.inputs:
        encoder = load_encoder(work.inputs["encoder"])
    else:
        encoder = random_encoder(work.config.model, work.inputs["tokenizer"], config.seed)
    outcome = finetune(encoder, splits, task, config)

    with atomic_write(work.out / "predictions.jsonl") as stream:
        for example, guess in zip(splits.test, outcome.predictions, strict=True):
            line = {
                "inputs": example.texts,
                "gold": example.gold,
                "prediction": guess.answer,
                "confidence": guess.confidence,
            }
            stream.write(json.dumps(line, ensure_ascii=False).encode() + b"\n")
    scores = {
        "task": task.name,
        "kind": task.kind,
        "metric": task.metric,
        "score": outcome.scores[task.metric],
        "scores": outcome.scores,
        "encoder": encoder_label(work.config),
        "seed": config.seed,
        "train_examples": len(splits.train),
        "dev_examples": len(splits.dev),
        "test_examples": len(splits.test),
        "steps": outcome.steps,
        "best_epoch": outcome.best_epoch,
        "dev_scores": outcome.dev_scores,
        "repaired_tags": splits.repaired_tags,
        "cut_inputs": outcome.cut,
        "mix": outcome.mix,
    }
    write_atomically(work.out / "scores.json", json.dumps(scores, indent=1))
    return scores


def encoder_label(config: Config) -> str:
    """What tables call the encoder; of a folder only its name."""
    return "pretrained" if config.encoder is None else Path(config.encoder).name
