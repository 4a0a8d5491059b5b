"""The passes that BERT's rows and ELMo's streams share.

    tokenize  one work unit per part of a shard (data_prep.examples.text)
    write     one work unit per shard file, which also checks it (data_prep.examples.tars)

Between the two, `build` and `streams` make rows files from the tokens.
"""

import json
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

from data_prep.corpus.shard_format import ShardPart
from data_prep.corpus.strata import Divided
from data_prep.examples.config import ExamplesConfig
from data_prep.examples.reuse import Reuse
from data_prep.examples.rows import is_static, mask_rule
from data_prep.examples.rows_files import list_rows_files
from data_prep.examples.tars import (
    NOT_OUTPUT,
    Layout,
    TarTask,
    add_up,
    plan_split,
    read_plan,
    tar_units,
    write_plan,
    write_tar,
)
from data_prep.examples.text import Unit, write_text
from data_prep.examples.validate import Draws, Rules, refuse_implausible
from data_prep.fields import result_keys
from data_prep.files import write_atomically
from data_prep.passes import Passes
from data_prep.tokenizers import load_tokenizer
from data_prep.work_units import WorkUnit

SPLITS = ("train", "heldout")


@dataclass(frozen=True)
class TextTask:
    """Tokenize one part of a shard.

    sources: the names of the corpus's sources.
    divided: of held-out text, what its documents are divided by (`told_apart`).
    """

    part: ShardPart
    tokenizer: Path
    config: ExamplesConfig
    sources: tuple[str, ...] = ()
    divided: Divided | None = None


def tokenize(
    found: Mapping[str, Sequence[ShardPart]],
    tokenizer: Path,
    config: ExamplesConfig,
    passes: Passes,
    sources: tuple[str, ...] = (),
    divided: Divided | None = None,
) -> dict[str, list[Path]]:
    """Tokenize the parts of all splits; return the text folders by split."""
    units = {
        split: [
            WorkUnit(
                Unit(passes.root, split, number).text.name,
                TextTask(part, tokenizer, config, sources, divided if split == "heldout" else None),
            )
            for number, part in enumerate(found[split])
        ]
        for split in SPLITS
    }
    passes.run("tokenize", [unit for split in SPLITS for unit in units[split]], make_text)
    return {split: [passes.root / unit.name for unit in units[split]] for split in SPLITS}


def make_text(task: TextTask, folder: Path) -> None:
    """Run a `TextTask`: write the tokenized text to `folder`."""
    config = task.config
    tokenizer = load_tokenizer(task.tokenizer)
    write_text(
        task.part, tokenizer, folder, task.sources, config.seed, config.duplicates, task.divided
    )


@dataclass(frozen=True)
class Written:
    """A split as it is written: what was checked, and its reuse if that was measured."""

    draws: Draws
    reuse: Reuse | None


def write_splits(
    rows: Mapping[str, Sequence[Path]],
    documents: Mapping[str, int | None],
    tokenizer: Path,
    config: ExamplesConfig,
    passes: Passes,
    out: Path,
    has_masks: bool = True,
) -> dict[str, Written]:
    """Write the rows of all rows folders to the shard files of each split, and check them.

    documents: the number of documents of a split whose reuse is measured, else None.
    has_masks: masks are stored where `is_static` says so.
    """

    def plan(_: None, folder: Path) -> None:
        size = load_tokenizer(tokenizer).size
        tasks: list[TarTask] = []
        for split in SPLITS:
            layout = Layout.of(split, config, size, has_masks and is_static(config, split))
            tasks += plan_split(list_rows_files(rows[split]), layout, documents[split])
        write_plan(tasks, folder / "tars.json")

    planned = passes.merge("tars", plan) / "tars.json"
    tasks = read_plan(planned, passes.root)
    write = partial(write_tar, config=config, tokenizer=tokenizer, out=out)
    folders = passes.run("write", tar_units(tasks), write)
    passes.end_slices()
    written: dict[str, Written] = {}
    for split in SPLITS:
        own = [
            folder
            for folder, task in zip(folders, tasks, strict=True)
            if task.layout.split == split
        ]
        number = documents[split]
        reuse = None if number is None else Reuse(number)
        draws = add_up(own, reuse)
        rules = Rules(config, load_tokenizer(tokenizer), mask_rule(config, split))
        refuse_implausible(out, split, draws, rules, reuse)
        written[split] = Written(draws, reuse)
    publish(folders, out)
    return written


def publish(folders: Sequence[Path], out: Path) -> None:
    """Move the shard files of all units to `out`."""
    for folder in folders:
        for path in sorted(folder.iterdir()):
            if path.name not in NOT_OUTPUT:
                os.replace(path, out / path.name)


def finish(content: Mapping[str, Any], config: ExamplesConfig, passes: Passes, out: Path) -> None:
    """Write `statistics.json` and remove the work units."""
    content = {"examples": result_keys(config), **content}
    write_atomically(out / "statistics.json", json.dumps(content, indent=1) + "\n")
    passes.remove()
