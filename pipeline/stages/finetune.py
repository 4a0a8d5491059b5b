"""Stage `finetune`: fine-tunes an encoder on a task and scores it.

Reads the task's files and the encoder of `encoder=`: an exported folder, any Hugging Face encoder,
word vectors, several of these, only a tokenizer (`random`) or nothing (`tfidf`, `majority`). Writes
    scores.json        the task's main score, all other scores, and the settings behind them
    predictions.jsonl  per test example: inputs, gold, prediction and confidence
    predictions.json   answers by question, for SQuAD's official script (spans)
    null_odds.json     by question, the score of "no answer" relative to the best answer (SQuAD 2.0)
    answers/           predictions for files without labels, in the leaderboard's format
A suite of tasks reads the outputs of its members and writes
    scores.json        the average of their scores
    submission.zip     their answers
Try it: sesame finetune experiment=demo task=polarity
"""

import json
import shutil
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from rich.markup import escape
from rich.table import Table

from data_prep.files import atomic_write, write_atomically
from data_prep.progress import console
from pipeline.config.schema import FLOORS, MAJORITY, TFIDF, Config
from pipeline.stages.encoder_inputs import (
    earlier_encoder_keys,
    encoder_keys,
    encoder_label,
    encoder_requests,
)
from pipeline.stages.tracked import TRAINING
from pipeline.stages.tuning import steps_done, train, uses_ranks
from pipeline.tasks.config import TaskConfig
from pipeline.tasks.metrics import confusion, scores_by_type
from pipeline.tasks.splits import missing_files, read_splits, task_files
from pipeline.tasks.suite import ANSWERS, members_with_data, score_suite
from pipeline.tasks.summary import CHOSEN_ON_DEV, chosen_on_scored
from pipeline.workflow.stage import Request, Stage, UserFiles, Work


class Finetune(Stage):
    """The stage that fine-tunes an encoder on a task and scores it."""

    name = "finetune"
    format = 9
    sections = ("task", "finetune")
    obeyed = ("tracking",)
    runs_beside = True

    def inputs(self, config: Config) -> dict[str, Request]:
        """Return the encoder's inputs (see `encoder_requests`); for a suite, one per member."""
        if config.task.members:
            return {
                name: Request("finetune", _of_member(config, member), f"task={name}")
                for name, member in members_with_data(config.task).items()
            }
        return encoder_requests(config)

    def keys(self, config: Config) -> dict[str, Any]:
        """Return the settings of task and fine-tuning, and `encoder_keys`."""
        return super().keys(config) | encoder_keys(config)

    def earlier_keys(self, config: Config) -> dict[str, Any]:
        """Return the keys with all options of a random encoder's model."""
        return super().keys(config) | earlier_encoder_keys(config)

    def files(self, config: Config) -> UserFiles:
        """Return the task's data files; nothing for a suite, whose members read them."""
        return UserFiles([] if config.task.members else task_files(config.task))

    def check_machine(self, config: Config) -> None:
        """Raise a UsageError for devices that this machine does not have."""
        if not config.task.members and not FLOORS.keys() & set(config.encoders):
            uses_ranks(config.finetune)

    def run(self, work: Work) -> dict[str, Any]:
        """Fine-tune once, score the test split and write the files above; return the scores."""
        from pipeline.tasks.majority import answer_majority
        from pipeline.tasks.submission import (
            details,
            write_answers,
            write_null_odds,
            write_spans,
        )
        from pipeline.tasks.tfidf import fit_tfidf

        task, config = work.config.task, work.config.finetune
        if task.members:
            return _run_suite(work)
        for name in missing_files(task):
            console.print(f"task {task.name}: {name} is not there and left out", markup=False)
        splits = read_splits(task, config.seed)
        if TFIDF in work.config.encoders:
            outcome = fit_tfidf(splits, task)
        elif MAJORITY in work.config.encoders:
            outcome = answer_majority(splits, task)
        else:
            outcome = train(work, splits)

        with atomic_write(work.out / "predictions.jsonl") as stream:
            for example, guess in zip(splits.test, outcome.predictions, strict=True):
                line = {
                    "inputs": example.texts,
                    "gold": example.gold,
                    "prediction": guess.answer,
                    "confidence": guess.confidence,
                    **details(guess),
                }
                stream.write(json.dumps(line, ensure_ascii=False).encode() + b"\n")
        if task.kind == "span":
            write_spans(work.out / "predictions.json", splits.test, outcome.predictions)
        if task.unanswerable:
            write_null_odds(work.out / "null_odds.json", splits.test, outcome.predictions)
        for name, examples in splits.unlabelled.items():
            write_answers(work.out / ANSWERS, name, task.kind, examples, outcome.unlabelled[name])
        scores = {
            "task": task.name,
            "kind": task.kind,
            "metric": task.metric,
            "score": outcome.scores[task.metric],
            "scores": outcome.scores,
            "dev_score": outcome.dev_score,
            "split": task.scored_split,
            "encoder": encoder_label(work.config),
            "seed": config.seed,
            "train_examples": len(splits.train),
            "dev_examples": len(splits.dev),
            "test_examples": len(splits.test),
            "steps": outcome.steps,
            "best_epoch": outcome.best_epoch,
            "dev_scores": outcome.dev_scores,
            "repairs": splits.repairs,
            "cut_inputs": outcome.cut,
            "mix": outcome.mix,
        }
        if splits.groups:
            scores["groups"] = splits.groups
        if task.kind == "classify":
            gold = [str(example.gold) for example in splits.test]
            guesses = [str(guess.answer) for guess in outcome.predictions]
            scores["confusion"] = confusion(gold, guesses, splits.labels).tolist()
        # Labels and entity types may be private text: they go into scores.json, not the manifest.
        named: dict[str, Any] = scores | {"labels": splits.labels}
        if task.kind == "tag":
            gold_tags: list[Any] = [example.gold for example in splits.test]
            guessed: list[Any] = [guess.answer for guess in outcome.predictions]
            named["by_type"] = scores_by_type(gold_tags, guessed)
        write_atomically(work.out / "scores.json", json.dumps(named, indent=1))
        return scores

    def tidy(self, out: Path, inputs: Mapping[str, Path]) -> None:
        """Remove the checkpoints."""
        shutil.rmtree(out / TRAINING, ignore_errors=True)

    def how_far(self, out: Path) -> str:
        """Return the step of the last checkpoint as text, for the plan."""
        return steps_done(out)

    def closing(self, out: Path) -> Table:
        """Return the scores as a table, the main score first."""
        found = json.loads((out / "scores.json").read_text())
        title = f"{found['task']}: {found['encoder']}"
        table = Table(
            title=escape(title),
            title_justify="left",
            show_header=False,
            caption=CHOSEN_ON_DEV if chosen_on_scored(found) else None,
            caption_justify="left",
        )
        first = found["metric"]
        for name, value in sorted(found["scores"].items(), key=lambda item: item[0] != first):
            table.add_row(name, f"{100 * value:.1f}")
        return table


def _of_member(config: Config, member: TaskConfig) -> Config:
    """Return the config of a suite's member, with its own settings of fine-tuning."""
    own = member.own_finetuning(config.finetune)
    return replace(config, task=replace(member, finetune={}), finetune=own)


def _run_suite(work: Work) -> dict[str, Any]:
    scores = {
        **score_suite(work.config.task, work.inputs, work.out),
        "encoder": encoder_label(work.config),
        "seed": work.config.finetune.seed,
    }
    for lacking, key in (("no data for", "left_out"), ("no answers to", "answers_missing")):
        if scores[key]:
            names = ", ".join(scores[key])
            console.print(f"task {work.config.task.name}: {lacking} {names}", markup=False)
    write_atomically(work.out / "scores.json", json.dumps(scores, indent=1))
    return scores
