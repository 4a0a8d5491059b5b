"""Show training examples in colour: tokens with their masks, segments and labels.

Reads an examples folder (`train-*.tar`, `statistics.json`) and its tokenizer; writes to the
terminal. If one shard file is given, all its rows are checked against every rule first.
Try it: sesame inspect experiment=smoke
"""

import json
import re
from dataclasses import replace
from math import ceil
from pathlib import Path
from typing import Any

import numpy as np
from rich.console import Console
from rich.table import Table
from rich.text import Text

from data_prep.errors import SesameError, UsageError
from data_prep.examples.chunks import REMEDY, Chunk, ChunkStore
from data_prep.examples.config import ExamplesConfig
from data_prep.examples.masking import MaskRule, choose_masks, example_keys
from data_prep.examples.rows import is_static, mask_rule
from data_prep.examples.validate import Rules, check, shard_chunks
from data_prep.tokenizers import Tokenizer

SEGMENTS = ("cyan", "bright_blue")
MASKED, REPLACED, KEPT = "bold black on yellow", "bold white on magenta", "bold black on green"
LABELS = {
    "nsp": {0: "next", 1: "random"},
    "sop": {0: "in order", 1: "swapped"},
    "none": {-1: "no pair"},
}
BARS = "·▁▂▃▄▅▆▇█"


def inspect(
    folder: Path, tokenizer_folder: Path, count: int, shard: Path | None, masks: MaskRule
) -> None:
    """Show `count` rows, evenly spread over the training set or over one checked shard.

    Rows without stored masks are shown with masks drawn by the rule `masks`.
    """
    console = Console(highlight=False)
    split = "train"
    if shard is not None:
        folder, split = shard.parent, _split_of(shard)
    facts = _read_statistics(folder)
    config = ExamplesConfig(**facts["examples"])
    tokenizer = Tokenizer.load(tokenizer_folder)
    rules = Rules(config, tokenizer, _stored_rule(config, split, facts) or masks)
    store = ChunkStore(folder, split)
    numbers = range(store.chunks)
    if shard is not None:
        numbers = shard_chunks(shard)
        draws = check(store, numbers, rules)
        console.print(f"{shard.name}: {draws.rows:,} rows checked, every rule kept")
    _show_rows(console, store, numbers, count, rules)
    console.print(_legend())
    console.print(_statistics_table(facts))


def _stored_rule(config: ExamplesConfig, split: str, facts: dict[str, Any]) -> MaskRule | None:
    """Return the rule of a split's stored masks; None if no masks are stored."""
    if not is_static(config, split):
        return None
    # In older examples the held-out masks follow the rule of the training masks.
    follows = split == "train" or "heldout_masks" not in facts
    return mask_rule(config, "train") if follows else MaskRule(**facts["heldout_masks"])


def _split_of(shard: Path) -> str:
    match = re.fullmatch(r"(train|heldout)-\d{5,}\.tar", shard.name)
    if match is None:
        raise UsageError(f"shard={shard}: not an example shard such as train-00000.tar")
    if not shard.is_file():
        raise UsageError(f"shard={shard}: there is no such file")
    return match[1]


def _read_statistics(folder: Path) -> dict[str, Any]:
    path = folder / "statistics.json"
    try:
        facts: dict[str, Any] = json.loads(path.read_bytes())
    except FileNotFoundError:
        raise SesameError(f"{path}: missing; {REMEDY}") from None
    except ValueError:
        raise SesameError(f"{path}: not JSON; {REMEDY}") from None
    return facts


def _show_rows(
    console: Console, store: ChunkStore, numbers: range, count: int, rules: Rules
) -> None:
    """Print rows spread evenly over these chunks."""
    rows_before = np.cumsum([0, *store.rows_per_chunk[numbers.start : numbers.stop]])
    total = int(rows_before[-1])
    for index in np.unique(np.linspace(0, total - 1, min(count, total)).astype(int)):
        place = int(np.searchsorted(rows_before, index, "right")) - 1
        number = numbers.start + place
        row = int(index - rows_before[place])
        global_row = int(store.first_row[number]) + row
        chunk = _with_masks(store.read(number).between(row, row + 1), global_row, rules)
        console.rule(
            f"{store.split} row {global_row} (chunk {number}, row {row}): "
            f"{len(chunk.tokens)} of {rules.config.max_seq_length} pieces",
            align="left",
        )
        for example in range(chunk.examples):
            console.print(_heading(chunk, example, rules.config.pairs))
            console.print(_example(chunk, example, rules.tokenizer))
            console.print()


def _with_masks(row: Chunk, number: int, rules: Rules) -> Chunk:
    """Return a row with its stored masks, else with masks of a first epoch; words have none."""
    if row.target is not None:
        return row
    if rules.tokenizer.kind == "words":
        none = np.zeros(0, np.uint16)
        offsets = np.zeros(row.examples + 1, np.int32)
        return replace(row, target=none, target_examples=offsets, input=none)
    names = example_keys(rules.config.seed, np.zeros(1, int), np.array([number]), row.row_examples)
    masks = choose_masks(row.tokens, row.example_tokens, names, rules.vocabulary, rules.masks)
    return replace(row, **vars(masks))


def _heading(chunk: Chunk, example: int, pairs: str) -> Text:
    label = LABELS[pairs][int(chunk.label[example])]
    first, second = chunk.documents[example]
    decided = " (forced)" if pairs == "nsp" and chunk.coin[example] == 0 else ""
    documents = f"document {first}" if first == second else f"documents {first} and {second}"
    length = int(np.diff(chunk.example_tokens[example : example + 2])[0])
    return Text(f"{label}{decided}, {length} pieces, {documents}", style="bold")


def _example(chunk: Chunk, example: int, tokenizer: Tokenizer) -> Text:
    """Return the tokens of one example; predicted positions show the input and the target."""
    assert chunk.target is not None and chunk.target_examples is not None
    assert chunk.input is not None
    begin, end = chunk.example_tokens[example : example + 2]
    targets = slice(*chunk.target_examples[example : example + 2])
    shown = dict(zip(chunk.target[targets].tolist(), chunk.input[targets].tolist(), strict=True))
    special = {tokenizer.cls, tokenizer.sep}
    text = Text()
    for position, id in enumerate(chunk.tokens[begin:end].tolist()):
        style = SEGMENTS[int(position >= chunk.second[example])]
        word = _plain(tokenizer, id)
        if id in special or tokenizer.starts_word[id]:
            text.append(" " if position else "")
        if position not in shown:
            text.append(word, "dim" if id in special else style)
        elif shown[position] == tokenizer.mask:
            text.append(f"[MASK→{word}]", MASKED)
        elif shown[position] == id:
            text.append(word, KEPT)
        else:
            text.append(f"{_plain(tokenizer, shown[position])}→{word}", REPLACED)
    return text


def _plain(tokenizer: Tokenizer, id: int) -> str:
    """Return a token without its word boundary mark (`##` or `▁`)."""
    return tokenizer.piece(id).removeprefix("##").replace("▁", "")


def _legend() -> Text:
    text = Text("segments ")
    text.append("first", SEGMENTS[0]).append(" ").append("second", SEGMENTS[1])
    text.append("  predicted ").append("[MASK→piece]", MASKED).append(" ")
    text.append("shown→piece", REPLACED).append(" ").append("left as it is", KEPT)
    return text


def _statistics_table(facts: dict[str, Any]) -> Table:
    splits = [split for split in ("train", "heldout") if split in facts]
    table = Table(title="statistics", title_justify="left", box=None)
    table.add_column("")
    for split in splits:
        table.add_column(split, justify="right")
    for name in facts[splits[0]]:
        values = [facts[split][name] for split in splits]
        if name == "lengths":
            table.add_row("lengths", *(_histogram(value) for value in values))
        elif isinstance(values[0], dict):
            for key in values[0]:
                table.add_row(f"{name}.{key}", *(_number(value[key]) for value in values))
        else:
            table.add_row(name, *(_number(value) for value in values))
    return table


def _number(value: float) -> str:
    return f"{value:,}" if isinstance(value, int) else f"{value:,.3f}"


def _histogram(counts: list[int], width: int = 32) -> str:
    """Return a line of bars, from the shortest possible length to the longest."""
    sums = [int(part.sum()) for part in np.array_split(np.array(counts), width)]
    highest = max([*sums, 1])
    return "".join(BARS[ceil(value / highest * (len(BARS) - 1))] for value in sums)
