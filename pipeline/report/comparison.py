"""The section that compares several runs: their facts, their cost and the settings that differ.

Their curves are overlaid in the section on pretraining; their scores are in the section on tasks.
"""

from collections.abc import Callable, Iterator, Sequence

from pipeline.pages.blocks import Block, Column, Note, Section, Table
from pipeline.pages.wording import count, distinct, model_name, short
from pipeline.report.collect import Collected, FinishedOutput
from pipeline.report.curves import Journal
from pipeline.report.settings import settings_of
from pipeline.report.training import pretraining_facts

ABSENT = "–"
BEFORE_TASKS = ("shard", "tokenizer", "vectors", "examples", "pretrain", "export")


def comparison_section(collected: Collected, share_text: bool) -> Section | None:
    """Return tables with one column per run: facts, then the settings that differ."""
    runs = collected.runs
    if len(runs) < 2:
        return None
    made = [[one for one in collected.made if one.run == run] for run in runs]
    settings = [_settings(own, share_text) for own in made]
    blocks: list[Block] = [
        _beside("Side by side", "", runs, [_facts(own) for own in made]),
        *_differing(runs, settings),
    ]
    return Section("compared", "Runs compared", blocks)


def _facts(made: Sequence[FinishedOutput]) -> dict[str, str]:
    """Return the facts of a run by name."""
    facts: dict[str, list[str]] = {}
    measures: dict[str, tuple[str, Callable[[FinishedOutput], str]]] = {
        "model": ("pretrain", lambda one: model_name(one.config["model"])),
        "parameters": ("export", lambda one: short(one.counts["parameters"])),
        "words of the corpus": ("shard", lambda one: short(sum(one.counts["words"].values()))),
        "vocabulary": ("tokenizer", lambda one: count(one.counts["vocab_size"])),
        "machine": ("pretrain", lambda one: str(one.facts["machine"])),
    }
    for name, (stage, measure) in measures.items():
        facts[name] = [measure(one) for one in made if one.stage == stage]
    for one in made:
        if one.stage == "pretrain":
            for fact in pretraining_facts(Journal(one)):
                facts.setdefault(fact.name, []).append(fact.value)
    return {name: distinct(values) for name, values in facts.items() if values}


def _settings(made: Sequence[FinishedOutput], share_text: bool) -> dict[str, str]:
    """Return the settings of a run's encoder and fine-tuning, without tasks and seeds."""
    told = settings_of((one for one in made if one.stage in BEFORE_TASKS), share_text)
    tuned = settings_of((one for one in made if one.stage == "finetune"), share_text)
    return told | {
        key: value
        for key, value in tuned.items()
        if key.startswith("finetune.") and key != "finetune.seed"
    }


def _differing(runs: Sequence[str], settings: Sequence[dict[str, str]]) -> Iterator[Block]:
    """Yield the settings that differ, except those of a model or stage that some run lacks."""
    values = {key: {own.get(key) for own in settings} for own in settings for key in own}
    differing = [key for key, found in values.items() if len(found - {None}) > 1]
    partial = [key for key, found in values.items() if None in found and key not in differing]
    if not differing:
        yield Note("The runs differ in no setting that they share.")
    for caption, keys in (
        ("Settings that differ", differing),
        ("Settings that not all runs have", partial),
    ):
        told = [{key: own[key] for key in keys if key in own} for own in settings]
        if keys:
            yield _beside(caption, "key", runs, told, folded=keys is partial)


def _beside(
    caption: str,
    heading: str,
    runs: Sequence[str],
    told: Sequence[dict[str, str]],
    folded: bool = False,
) -> Table:
    """Return a table with one row per name and one column per run."""
    names = dict.fromkeys(name for own in told for name in own)
    columns = (Column(heading), *(Column(run) for run in runs))
    rows = [[name, *(own.get(name, ABSENT) for own in told)] for name in names]
    return Table(caption, columns, rows, folded=folded)
