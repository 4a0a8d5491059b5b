"""The sections on the run itself (recipe, versions, machine, time) and on the next commands."""

import json
import shlex
from collections.abc import Iterable, Sequence
from typing import Any

from data_prep.fields import result_keys
from pipeline.config.schema import Config
from pipeline.pages.blocks import Block, Column, Commands, Fact, Facts, Note, Section, Table
from pipeline.pages.wording import count, distinct, duration, model_name, named
from pipeline.report.collect import Collected, FinishedOutput
from pipeline.report.kept import predict_commands
from pipeline.report.settings import settings_of
from pipeline.tasks.config import FinetuneConfig
from pipeline.workflow.stage import STAGE_ORDER


def subtitle(collected: Collected) -> str:
    """Return the recipe in one line; empty if several pretrainings are compared."""
    if len(collected.of("pretrain")) > 1:
        return ""
    said = []
    for made in collected.of("pretrain"):
        budget = made.config["trainer"]
        said.append(model_name(made.config["model"]))
        for key, unit in (("max_steps", "steps"), ("max_tokens", "tokens"), ("max_hours", "hours")):
            if budget.get(key) is not None:
                said.append(f"pretrained for {budget[key]:,} {unit}")
    for made in collected.of("tokenizer")[:1]:
        said.insert(1, f"{count(made.counts['vocab_size'])} {made.counts['kind']} tokens")
    return ", ".join(said)


def left_out_section(collected: Collected) -> Section | None:
    """Return a sentence per output that this version cannot show; None if there is none."""
    notes = [Note(left_out_sentence(made)) for made in collected.left_out]
    return Section("left-out", "Left out", notes) if notes else None


def left_out_sentence(made: FinishedOutput) -> str:
    """Say that an output is not on the page, why, and how to recreate it."""
    return (
        f"{made.title} ({made.reference}) has format {made.manifest['format']} of another version "
        f"of Sesame, which this version cannot read. Run `sesame {made.stage}` with the same "
        "settings to recreate it."
    )


def run_section(collected: Collected, share_text: bool) -> Section:
    """Return the section on times, machines, versions and settings."""
    made = collected.made
    facts = [
        Fact("run", distinct(one.facts["name"] for one in made)),
        Fact("outputs", count(len({one.reference for one in made}))),
        Fact("time in all", duration(sum(one.seconds for one in _once(made)))),
        Fact("machine", distinct(one.facts["machine"] for one in made)),
        Fact("host", distinct(one.facts["host"] for one in made)),
    ]
    blocks: list[Block] = [Facts(facts), _times(made), _versions(made)]
    blocks += [
        _settings(stage, collected.of(stage), share_text)
        for stage in STAGE_ORDER
        if any(made.config for made in collected.of(stage))
    ]
    return Section("run", "What was run", blocks)


def _once(made: Iterable[FinishedOutput]) -> list[FinishedOutput]:
    return list({one.reference: one for one in made}.values())


def _times(made: Sequence[FinishedOutput]) -> Table:
    """Return the times by stage; the fine-tunings of a sweep share one row."""
    groups: dict[tuple[str, str], list[FinishedOutput]] = {}
    for one in made:
        groups.setdefault((one.run, one.stage), []).append(one)
    seconds = [sum(one.seconds for one in group) for group in groups.values()]
    longest = max(seconds, default=0.0) or 1.0
    rows = [
        [
            named(run, stage),
            duration(total),
            group[0].manifest["fingerprint"][:8] if len(group) == 1 else f"{len(group)} outputs",
            min(one.facts["started"] for one in group).replace("T", " ").removesuffix("+00:00"),
        ]
        for ((run, stage), group), total in zip(groups.items(), seconds, strict=True)
    ]
    columns = (Column("stage"), Column("time", True), Column("output"), Column("started, UTC"))
    return Table("Time by stage", columns, rows, [value / longest for value in seconds])


def _versions(made: Sequence[FinishedOutput]) -> Table:
    found: dict[str, list[str]] = {}
    for one in made:
        for package, version in (("python", one.facts["python"]), *one.facts["versions"].items()):
            found.setdefault(package, []).append(version)
    rows = [[package, distinct(versions)] for package, versions in sorted(found.items())]
    return Table("Versions", (Column("package"), Column("version")), rows, folded=True)


def _settings(stage: str, made: Sequence[FinishedOutput], share_text: bool) -> Table:
    rows = list(settings_of(made, share_text).items())
    return Table(f"Settings of {stage}", (Column("key"), Column("value")), rows, folded=True)


def _finetuning_settings(collected: Collected) -> list[str]:
    """Return the settings of the first fine-tuning that are not defaults, as overrides."""
    default = result_keys(FinetuneConfig())
    used: dict[str, Any] = next((made.config["finetune"] for made in collected.of("finetune")), {})
    return [
        shlex.quote(f"finetune.{key}={json.dumps(value)}")
        for key, value in used.items()
        if key != "seed" and value != default.get(key)
    ]


def next_section(collected: Collected, config: Config, tasks: Sequence[str]) -> Section:
    """Return the section with commands to run next."""
    name = (collected.runs or [config.name])[0]
    commands = []
    if collected.of("pretrain"):
        encoder = shlex.quote(f"encoder={name}")
        task = shlex.quote(f"task={tasks[0]}" if tasks else "task=<name>")
        settings = _finetuning_settings(collected)
        commands += [
            (f"sesame path export {encoder}", "Where the encoder lies, as a Hugging Face folder"),
            (
                " ".join(["sesame finetune", encoder, task, *settings, "finetune.seed=4"]),
                "Score the encoder with another seed, or on a task of your own in conf/task/",
            ),
            (
                f"sesame finetune -m {encoder} {task} finetune.lr=2e-5,5e-5,1e-4 "
                "finetune.seed=1,2,3",
                "Sweep over learning rates and seeds; the pretraining is shared",
            ),
        ]
    commands += predict_commands(collected)
    commands += [
        (
            "sesame plan experiment=<recipe> optim.lr=5e-4",
            "What a change would make anew, and what it would reuse",
        ),
        ("sesame list", "All runs with their state and scores"),
        (f"sesame report {shlex.quote(f'runs=[{name},another]')}", "Two runs on one page"),
    ]
    return Section("next", "How to go on", [Commands(commands)])
